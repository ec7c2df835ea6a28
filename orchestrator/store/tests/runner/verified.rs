//! Results of `verify` on intact files, and on files that it cannot check (`MSG-11`).

use std::path::Path;

use goondan_durable::disk::{CallFault, Disk, SimulatedDisk, read_all};
use goondan_durable::sealed_log::SealedLog;
use goondan_durable::{FileError, FindingKind, Severity};
use goondan_store::{StoreError, verify};
use serde_json::json;

use crate::damage::{DamageHarness, rig};
use crate::world::layout;

/// Errors that say nothing about a file: too many open descriptors in the process or system, out of
/// memory.
const SHORTAGES: [i32; 3] = [24, 23, 12];

/// The workspace of a rig with all optional files.
fn workspace(rig: &DamageHarness) -> &Path {
    let workspace = rig.dir().parent().and_then(Path::parent).unwrap();
    let connectors = workspace.join("connectors");
    rig.disk.create_dir(&connectors).unwrap();
    rig.disk
        .plant(&connectors.join("clock.json"), b"{\"nightly\":null}\n")
        .unwrap();
    let extension = rig.dir().join("extensions/notes.json");
    rig.disk.plant(&extension, b"{\"seen\":3}\n").unwrap();
    rig.disk.plant(&layout().config_file(), b"{}\n").unwrap();
    workspace
}

fn kinds_of(disk: &SimulatedDisk) -> Vec<FindingKind> {
    let verified = verify::root(disk, &layout()).unwrap();
    let findings = verified.findings.iter();
    findings.map(|finding| finding.kind).collect()
}

#[test]
fn msg_11_saved_connection_state_is_known_and_verified() {
    let rig = rig();
    let workspace = workspace(&rig);
    let before = kinds_of(&rig.disk);
    assert!(!before.contains(&FindingKind::UnknownFile), "{before:?}");
    let memory = workspace.join("connectors/clock.json");
    rig.disk.plant(&memory, b"{\"nightly\":").unwrap();
    let verified = verify::root(&rig.disk, &layout()).unwrap();
    let found = verified.findings.iter().find(|it| it.path == memory);
    let kind = found.map(|finding| finding.kind);
    assert_eq!(kind, Some(FindingKind::UnreadableFile), "{verified:#?}");
}

#[test]
fn msg_11_task_history_is_verified_but_user_files_are_not() {
    let rig = rig();
    let tasks = workspace(&rig).join("tasks");
    let history = |task: &str| {
        let metadata = tasks.join(task).join(".metadata");
        for dir in [&tasks, &tasks.join(task), &metadata] {
            rig.disk.create_dir(dir).unwrap();
        }
        metadata.join("history.jsonl")
    };
    let (path, other) = (history("shop"), history("_mine"));
    let mut log = SealedLog::open(&rig.disk, &path).unwrap().0;
    for event in ["task_created", "agent_started", "task_completed"] {
        log.append(&json!({"event": event})).unwrap();
    }
    log.sync().unwrap();
    rig.disk.plant(&other, b"anything").unwrap();
    let before = kinds_of(&rig.disk);
    let mut file = rig.disk.open_read(&path).unwrap();
    let text = String::from_utf8(read_all(file.as_mut(), 10_000).unwrap()).unwrap();
    let altered = text.replace("agent_started", "agent_sTarted");
    rig.disk.plant(&path, altered.as_bytes()).unwrap();
    let verified = verify::root(&rig.disk, &layout()).unwrap();
    let found = verified.findings.iter().find(|it| it.path == path).unwrap();
    assert_eq!(found.severity, Severity::Error, "{found:?}");
    assert_eq!(verified.findings.len(), before.len() + 1, "{verified:#?}");
}

/// A resource shortage in any call is reported as such, and never as damage.
#[test]
fn msg_11_a_shortage_while_verifying_is_never_called_damage() {
    let rig = rig();
    workspace(&rig);
    let clean = verify::root(&rig.disk, &layout()).unwrap();
    for shortage in SHORTAGES {
        for call in 1.. {
            let failing = rig.disk.calls() + call;
            rig.disk.fail_at(failing, CallFault::Errno(shortage), false);
            let verified = verify::root(&rig.disk, &layout());
            let is_past_the_end = rig.disk.calls() < failing;
            match verified {
                Ok(verified) => assert_eq!(verified, clean, "{shortage} at call {call}"),
                Err(error) => {
                    let is_said = error.is_shortage()
                        && matches!(error, StoreError::File(FileError::Io { .. }));
                    assert!(is_said, "{shortage} at call {call}: {error}");
                }
            }
            if is_past_the_end {
                assert!(call > 30, "only {call} calls");
                break;
            }
        }
    }
}
