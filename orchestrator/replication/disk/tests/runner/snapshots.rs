//! Snapshots: the files of one moment, unaffected by later changes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{CallFault, Disk, DiskFile, SimulatedDisk, append_all};
use goondan_replicated_disk::{BatchContent, Capture, CaptureError, ConfirmPoint, RestoreError};
use goondan_replication::names::Hash;
use goondan_replication::record::SnapshotReference;

use crate::workload::{Faults, run, seeds};
use crate::world::{Owner, bare, dir, memory, replica, workspace};

const CAPTURES: &str = "/r/captured";

fn reference() -> SnapshotReference {
    SnapshotReference::new("s").unwrap()
}

fn capture(owner: &Owner) -> io::Result<Capture> {
    let disk: Arc<dyn Disk> = Arc::new(owner.disk.clone());
    let dir = Path::new(CAPTURES);
    owner
        .recording
        .capture(&workspace(), &disk, dir, reference())
}

fn parts(capture: &Capture) -> Result<(Vec<Vec<u8>>, Hash), CaptureError> {
    let mut parts = Vec::new();
    let digest = capture.give(&mut |part| {
        parts.push(part);
        Ok(())
    })?;
    Ok((parts, digest))
}

fn restored(parts: &[Vec<u8>]) -> Result<SimulatedDisk, RestoreError> {
    let disk = bare();
    let mut replica = replica(&disk);
    replica.restore(&mut |number| Ok(parts.get(number as usize).cloned()))?;
    Ok(disk)
}

#[test]
fn rep_1_snapshot_keeps_its_files_despite_later_changes() {
    let mut cut = 0;
    for seed in seeds(300) {
        let owner = Owner::new(ConfirmPoint::AtConfirm);
        run(&owner, seed, 60, Faults::None);
        let capture = capture(&owner).unwrap();
        let captured = lengths(&owner);
        run(&owner, seed + 1_000_000, 30, Faults::None);
        let now = lengths(&owner);
        cut += usize::from(now.iter().zip(&captured).any(|(now, then)| now < then));
        let given = parts(&capture);
        // The log continues unchanged.
        owner.is_replayed(&format!("seed {seed}"));
        let (parts, digest) = given.unwrap();
        let before = memory(&owner.operations_before_snapshot());
        assert_eq!(digest, before.digest(), "seed {seed}");
        let disk = restored(&parts).unwrap();
        assert_eq!(replica(&disk).digest().unwrap(), digest, "seed {seed}");
        drop(capture);
        let left = owner.disk.stat(Path::new(CAPTURES)).unwrap();
        assert_eq!(left, None, "the second names are left");
    }
    assert!(cut > 30, "files were cut in {cut} runs");
}

/// Current lengths of the captured files.
fn lengths(owner: &Owner) -> Vec<u64> {
    let names = (0..).map(|number: u64| Path::new(CAPTURES).join(number.to_string()));
    let found = names.map(|name| owner.disk.stat(&name).unwrap());
    found.map_while(|found| Some(found?.len)).collect()
}

/// Writes a file of this many mebibytes.
fn write(owner: &Owner, name: &str, mebibytes: u8) -> Box<dyn DiskFile> {
    let mut file = owner.replicated.create(&dir().join(name)).unwrap();
    for number in 0..mebibytes {
        append_all(file.as_mut(), &vec![number + 1; 1 << 20]).unwrap();
    }
    file
}

#[test]
fn rep_1_file_truncated_during_copy_is_in_the_snapshot() {
    // The files take four parts, and `b` is in three of them.
    for part in 1..4 {
        for name in ["a", "b", "c", "d"] {
            let owner = Owner::new(ConfirmPoint::AtConfirm);
            let sizes = [("a", 3), ("b", 9), ("c", 2)];
            let mut files: Vec<_> = sizes
                .into_iter()
                .map(|(name, mebibytes)| (name, write(&owner, name, mebibytes)))
                .collect();
            let capture = capture(&owner).unwrap();
            let mut parts = Vec::new();
            let given = capture.give(&mut |given| {
                parts.push(given);
                if parts.len() == part {
                    match files.iter_mut().find(|(file, _)| *file == name) {
                        Some((_, file)) => {
                            file.set_len(1).unwrap();
                            // The new content differs from the captured one.
                            append_all(file.as_mut(), &[0; 10 << 20]).unwrap();
                        }
                        // The same applies to a file that replaces another.
                        None => drop(owner.replicated.create(&dir().join("c")).unwrap()),
                    }
                }
                Ok(())
            });
            let context = format!("`{name}` behind part {part}");
            assert!(parts.len() >= 4, "{context}: {} parts", parts.len());
            let digest = given.unwrap();
            let before = memory(&owner.operations_before_snapshot());
            assert_eq!(digest, before.digest(), "{context}");
            let disk = restored(&parts).unwrap();
            assert_eq!(replica(&disk).digest().unwrap(), digest, "{context}");
        }
    }
}

#[test]
fn rep_1_a_capture_of_which_too_much_was_cut_is_void() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let names: Vec<String> = (0..17).map(|number| format!("f{number}")).collect();
    let files = names.iter().map(|name| write(&owner, name, 4));
    let mut files: Vec<_> = files.collect();
    let (kept, last) = files.split_at_mut(16);
    for is_void in [false, true] {
        let capture = capture(&owner).unwrap();
        for file in kept.iter_mut() {
            file.set_len(0).unwrap();
        }
        if is_void {
            last[0].set_len(0).unwrap();
        }
        let given = parts(&capture);
        assert_eq!(
            matches!(given, Err(CaptureError::Void)),
            is_void,
            "{:?}",
            given.err()
        );
        for file in kept.iter_mut() {
            append_all(file.as_mut(), &vec![7; 4 << 20]).unwrap();
        }
    }
}

#[test]
fn rep_1_a_capture_that_fails_changes_nothing() {
    for seed in seeds(60) {
        for call in 1.. {
            let owner = Owner::new(ConfirmPoint::AtConfirm);
            run(&owner, seed, 30, Faults::None);
            let at = owner.disk.calls() + call;
            owner.disk.fail_at(at, CallFault::Errno(28), false);
            let taken = capture(&owner).map(drop);
            let has_failed = owner.disk.calls() >= at;
            owner.disk.fail_at(0, CallFault::Errno(28), false);
            owner.is_replayed(&format!("seed {seed}, call {call}"));
            if !has_failed {
                taken.unwrap();
                break;
            }
        }
    }
}

#[test]
fn rep_1_incomplete_or_altered_snapshot_is_rejected() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    for name in ["a", "b"] {
        // More than one part.
        write(&owner, name, 5);
    }
    let (parts, _) = parts(&capture(&owner).unwrap()).unwrap();
    assert!(parts.len() > 1);
    restored(&parts).unwrap();
    let missing = restored(&parts[..1]).unwrap_err();
    assert!(matches!(missing, RestoreError::Missing(1)), "{missing}");
    let mut cut = parts.clone();
    cut[0].pop();
    let damaged = restored(&cut).unwrap_err();
    assert!(matches!(damaged, RestoreError::Part { number: 0, .. }));
    let mut altered = parts.clone();
    let last = altered[0].len() - 1;
    altered[0][last] ^= 1;
    let differs = restored(&altered).unwrap_err();
    assert!(matches!(differs, RestoreError::Differs), "{differs}");
    let misfit = restored(&parts[1..]).unwrap_err();
    assert!(matches!(misfit, RestoreError::Misfit { .. }), "{misfit}");
}

#[test]
fn a_workspace_of_another_node_is_not_captured() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    owner.recording.disown(&workspace(), "b has it".to_owned());
    let refused = capture(&owner).unwrap_err();
    assert!(refused.to_string().contains("b has it"), "{refused}");
    let handed = owner.contents();
    let is_snapshot = |content: &BatchContent| matches!(content, BatchContent::Snapshot(_));
    assert!(!handed.iter().any(is_snapshot));
}
