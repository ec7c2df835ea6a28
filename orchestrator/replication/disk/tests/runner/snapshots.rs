//! Snapshots: the files of one moment, whatever happens to them afterwards.

use std::io;
use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Disk, Fault, SimulatedDisk};
use goondan_replicated_disk::{Capture, CaptureError, Content, RestoreError, Waits};
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
fn rep_1_a_snapshot_has_the_files_of_its_moment_whatever_happens_to_them_later() {
    let (mut kept, mut void) = (0, 0);
    for seed in seeds(300) {
        let owner = Owner::new(Waits::AtConfirm);
        run(&owner, seed, 60, Faults::None);
        let capture = capture(&owner).unwrap();
        run(&owner, seed + 1_000_000, 30, Faults::None);
        let given = parts(&capture);
        // The log goes on as if nothing had been.
        owner.is_replayed(&format!("seed {seed}"));
        let (parts, digest) = match given {
            Ok(given) => given,
            Err(CaptureError::Void) => {
                void += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        kept += 1;
        let before = memory(&owner.operations_before_snapshot());
        assert_eq!(digest, before.digest(), "seed {seed}");
        let disk = restored(&parts).unwrap();
        assert_eq!(replica(&disk).digest().unwrap(), digest, "seed {seed}");
        drop(capture);
        let left = owner.disk.stat(Path::new(CAPTURES)).unwrap();
        assert_eq!(left, None, "the second names are left");
    }
    assert!(kept > 30 && void > 30, "{kept} kept, {void} void");
}

#[test]
fn rep_1_a_capture_that_fails_changes_nothing() {
    for seed in seeds(60) {
        for call in 1.. {
            let owner = Owner::new(Waits::AtConfirm);
            run(&owner, seed, 30, Faults::None);
            let at = owner.disk.calls() + call;
            owner.disk.fail_at(at, Fault::Errno(28), false);
            let taken = capture(&owner).map(drop);
            let has_failed = owner.disk.calls() >= at;
            owner.disk.fail_at(0, Fault::Errno(28), false);
            owner.is_replayed(&format!("seed {seed}, call {call}"));
            if !has_failed {
                taken.unwrap();
                break;
            }
        }
    }
}

#[test]
fn rep_1_what_is_no_snapshot_is_refused() {
    let owner = Owner::new(Waits::AtConfirm);
    for name in ["a", "b"] {
        let mut file = owner.replicated.create(&dir().join(name)).unwrap();
        // So many bytes are more than one part.
        for _ in 0..5 {
            let chunk = vec![name.as_bytes()[0]; 1 << 20];
            goondan_durable::disk::append_all(file.as_mut(), &chunk).unwrap();
        }
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
    let owner = Owner::new(Waits::AtConfirm);
    owner.recording.disown(&workspace(), "b has it".to_owned());
    let refused = capture(&owner).unwrap_err();
    assert!(refused.to_string().contains("b has it"), "{refused}");
    let handed = owner.contents();
    let is_snapshot = |content: &Content| matches!(content, Content::Snapshot(_));
    assert!(!handed.iter().any(is_snapshot));
}
