//! Files that were truncated, emptied, removed, exchanged or restored: `verify` reports the loss
//! before and after the instance is opened, until it is acknowledged (`MSG-11`).

use std::sync::Arc;

use goondan_durable::disk::{Crash, Disk, SimulatedDisk};
use goondan_durable::{FileError, Finding, FindingKind, Severity};
use goondan_store::instance::{self, InstanceStore};
use goondan_store::{StoreError, verify};

use crate::answers::copies_of;
use crate::damage::{BASE, DamageHarness, EVENTS, INBOX, MANIFEST, SUMS, batches, rig};
use crate::world::{BatchPace, at};

const FILES: [&str; 4] = [INBOX, EVENTS, BASE, SUMS];

fn errors(rig: &DamageHarness, disk: &SimulatedDisk) -> Vec<Finding> {
    let mut findings = verify::instance(disk, rig.dir()).unwrap().findings;
    findings.retain(|finding| finding.severity == Severity::Error);
    findings
}

/// Opens a conversation with possible losses. A loss is reported until it is acknowledged. Returns
/// true if there was one.
fn assert_told(rig: &DamageHarness, disk: &SimulatedDisk, case: &str) -> bool {
    let before = errors(rig, disk);
    let (found, findings) = rig.open(disk);
    if found == rig.whole {
        return false;
    }
    assert!(!before.is_empty(), "{case}: verify reports nothing");
    assert!(
        findings.iter().any(|f| f.severity == Severity::Error),
        "{case}: opening reports nothing: {findings:#?}"
    );
    for round in 0..2 {
        assert!(
            !errors(rig, disk).is_empty(),
            "{case}: forgotten after opening {round}"
        );
        let store = InstanceStore::open(Arc::new(disk.clone()), rig.dir()).unwrap();
        assert!(!store.unacknowledged().is_empty(), "{case}: {round}");
    }
    let after = disk.after_crash(Crash::LoseUnsynced);
    assert!(!errors(rig, &after).is_empty(), "{case}: lost in a crash");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    instance::repair(&shared, rig.dir(), at()).unwrap();
    for crash in [Crash::KeepUnsynced, Crash::LoseUnsynced] {
        let repaired = disk.after_crash(crash);
        let left = errors(rig, &repaired);
        assert!(left.is_empty(), "{case}: still reported: {left:#?}");
        let (_, findings) = rig.open(&repaired);
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        assert!(!findings.iter().any(is_error), "{case}: {findings:#?}");
    }
    true
}

#[test]
fn msg_11_file_cut_at_any_byte_is_reported_until_acknowledged() {
    let rig = rig();
    let mut told = 0;
    for name in FILES {
        let content = rig.read(&rig.disk, name);
        for len in 0..content.len() {
            let disk = rig.with(name, &content[..len]);
            told += usize::from(assert_told(&rig, &disk, &format!("{name} cut to {len}")));
        }
    }
    assert!(told > 1000, "only {told} cuts removed data");
}

#[test]
fn msg_11_missing_file_is_reported_until_acknowledged() {
    let rig = rig();
    for (name, is_loss) in FILES.into_iter().zip([true, true, true, false]) {
        let disk = rig.disk.after_crash(Crash::KeepUnsynced);
        disk.remove_file(&rig.messages.join(name)).unwrap();
        assert_eq!(assert_told(&rig, &disk, name), is_loss, "{name}");
    }
    let disk = rig.disk.after_crash(Crash::KeepUnsynced);
    for name in FILES {
        disk.remove_file(&rig.messages.join(name)).unwrap();
    }
    assert!(assert_told(&rig, &disk, "all of them"));
}

#[test]
fn msg_11_older_copy_of_any_file_is_reported_until_acknowledged() {
    let rig = rig();
    for name in FILES {
        let copies = copies_of(&batches(), BatchPace::Quiet, name);
        assert!(copies.len() > 2, "{name}");
        for copy in copies {
            let case = format!("a copy of {name} of {} bytes", copy.len());
            assert_told(&rig, &rig.with(name, &copy), &case);
        }
    }
}

#[test]
fn msg_11_base_and_checksums_of_the_same_past_are_reported() {
    let rig = rig();
    let bases = copies_of(&batches(), BatchPace::Quiet, BASE);
    let sums = copies_of(&batches(), BatchPace::Quiet, SUMS);
    assert_eq!(bases.len(), sums.len());
    // Both grow with each turn, so sorting by length pairs them.
    let by_len = |copies: std::collections::BTreeSet<Vec<u8>>| {
        let mut copies: Vec<_> = copies.into_iter().collect();
        copies.sort_by_key(Vec::len);
        copies
    };
    let mut told = 0;
    for (base, sums) in by_len(bases).into_iter().zip(by_len(sums)) {
        let disk = rig.with(BASE, &base);
        disk.plant(&rig.messages.join(SUMS), &sums).unwrap();
        told += usize::from(assert_told(&rig, &disk, &format!("{} bytes", base.len())));
    }
    assert_eq!(told, 3);
}

#[test]
fn msg_11_files_of_another_conversation_are_reported() {
    let rig = rig();
    let other: Vec<_> = batches()
        .into_iter()
        .map(|batch| {
            let renamed = batch.into_iter().map(|step| match step {
                crate::model::ModelStep::Append(
                    at,
                    turn,
                    seq,
                    crate::model::Change::Append(id),
                ) => crate::model::ModelStep::Append(
                    at,
                    turn,
                    seq,
                    crate::model::Change::Append(format!("x{id}")),
                ),
                step => step,
            });
            renamed.collect()
        })
        .collect();
    let other = crate::damage::rig_of(&other, BatchPace::Quiet);
    for names in [
        &[BASE, SUMS][..],
        &[BASE][..],
        &[EVENTS, BASE, SUMS],
        &FILES,
    ] {
        let disk = rig.disk.after_crash(Crash::KeepUnsynced);
        for name in names {
            disk.plant(&rig.messages.join(name), &other.read(&other.disk, name))
                .unwrap();
        }
        assert!(assert_told(&rig, &disk, &format!("{names:?}")), "{names:?}");
    }
}

/// A foreign line is part of the conversation, and is reported until it is acknowledged.
#[test]
fn msg_11_foreign_line_is_reported_until_acknowledged() {
    let rig = rig();
    let foreign = b"{\"id\":\"f\",\"data\":{\"role\":\"user\",\"content\":\"text of f\"},\"metadata\":{},\"createdAt\":\"2026-01-01T00:00:00.000Z\",\"source\":{\"type\":\"user\"}}\n";
    let content = [&rig.read(&rig.disk, BASE), &foreign[..]].concat();
    let disk = rig.with(BASE, &content);
    let warnings = |disk: &SimulatedDisk| {
        let mut findings = verify::instance(disk, rig.dir()).unwrap().findings;
        findings.retain(|finding| finding.severity == Severity::Warning);
        findings.len()
    };
    assert_eq!(warnings(&disk), 1, "before it is opened");
    for _ in 0..2 {
        let (found, _) = rig.open(&disk);
        assert_eq!(found.messages.len(), rig.whole.messages.len() + 1);
        assert_eq!(warnings(&disk), 1, "after it was opened");
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    instance::repair(&shared, rig.dir(), at()).unwrap();
    assert_eq!(warnings(&disk), 0);
    assert_eq!(
        rig.open(&disk).0.messages.len(),
        rig.whole.messages.len() + 1
    );
}

/// An outdated manifest is normal after a crash.
#[test]
fn msg_11_outdated_manifest_causes_no_findings() {
    let rig = rig();
    let copies = copies_of(&batches(), BatchPace::Quiet, MANIFEST);
    assert!(copies.len() > 5);
    for copy in copies {
        let disk = rig.with(MANIFEST, &copy);
        let verified = verify::instance(&disk, rig.dir()).unwrap();
        assert_eq!(verified.findings, [], "{} bytes", copy.len());
        let (found, findings) = rig.open(&disk);
        assert_eq!(found, rig.whole);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

/// An export fails if the conversation has losses.
#[test]
fn msg_11_export_fails_for_a_conversation_with_losses() {
    let rig = rig();
    let disk = rig.disk.after_crash(Crash::KeepUnsynced);
    for name in [BASE, SUMS] {
        disk.remove_file(&rig.messages.join(name)).unwrap();
    }
    for _ in 0..2 {
        let mut store = InstanceStore::open(Arc::new(disk.clone()), rig.dir()).unwrap();
        let refused = store.export(None, false, at());
        assert!(
            matches!(refused, Err(StoreError::File(FileError::Damaged { .. }))),
            "{refused:?}"
        );
        let part = store.export(None, true, at()).unwrap();
        assert_eq!(part.damaged, 1);
        let is_gone = |f: &Finding| f.kind == FindingKind::MissingRecords;
        assert!(store.unacknowledged().iter().any(is_gone));
    }
}
