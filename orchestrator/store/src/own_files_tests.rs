//! Missing data of a workspace's own files is reported until it is acknowledged, and a crash never
//! makes data look missing.

use std::path::Path;

use goondan_durable::disk::{Crash, SimulatedDisk};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::WorkspaceId;
use serde_json::json;

use super::*;
use crate::StoreError;
use crate::root::Layout;
use crate::verify;
use crate::workspace;

fn disk() -> (SimulatedDisk, Layout) {
    let disk = SimulatedDisk::new();
    let layout = Layout::new("/s");
    for dir in ["/s", "/s/workspaces", "/s/system"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    for dir in ["/", "/s"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    (disk, layout)
}

fn open(disk: &SimulatedDisk, layout: &Layout) -> Result<WorkspaceId, StoreError> {
    let record = workspace::open(disk, layout, Path::new("/p"), None)?;
    Ok(record.workspace_id)
}

/// One run of a workspace: some records in each log.
fn live(disk: &SimulatedDisk, layout: &Layout) -> Result<WorkspaceId, StoreError> {
    let id = open(disk, layout)?;
    let dir = layout.workspace(&id);
    let mut own = FolderManifest::open(disk, &dir)?;
    for number in 0..4 {
        let record: JsonObject = json!({ "number": number }).as_object().unwrap().clone();
        workspace::append_audit(disk, layout, &id, &record)?;
        own.note(disk, AUDIT_FILE)?;
        workspace::append_system_audit(disk, layout, &record)?;
    }
    Ok(id)
}

fn found(disk: &SimulatedDisk, layout: &Layout, id: &WorkspaceId) -> Vec<(FindingKind, String)> {
    let own = verify::workspace_files(disk, layout, id).unwrap().findings;
    let root = verify::root_files(disk, layout).unwrap().findings;
    let mut all: Vec<_> = own
        .into_iter()
        .chain(root)
        .map(|finding| {
            let path = finding.path.strip_prefix("/s").unwrap();
            (finding.kind, path.to_string_lossy().into_owned())
        })
        .collect();
    all.dedup();
    all
}

fn write(disk: &SimulatedDisk, path: &Path, content: &[u8]) {
    goondan_durable::files::replace(disk, path, content).unwrap();
}

fn content(disk: &SimulatedDisk, path: &Path) -> Vec<u8> {
    let mut file = disk.open_read(path).unwrap();
    goondan_durable::disk::read_all(file.as_mut(), 1 << 20).unwrap()
}

#[test]
fn msg_11_audit_log_loss_is_reported_until_acknowledged() {
    type Harm = fn(&SimulatedDisk, &Path);
    let shorten: Harm = |disk, path| {
        let lines = content(disk, path);
        let end = lines.iter().rposition(|byte| *byte == b'{').unwrap();
        write(disk, path, &lines[..end]);
    };
    let empty: Harm = |disk, path| write(disk, path, b"");
    let remove: Harm = |disk, path| disk.remove_file(path).unwrap();
    let edit: Harm = |disk, path| {
        let text = String::from_utf8(content(disk, path)).unwrap();
        write(disk, path, text.replace('2', "7").as_bytes());
    };
    for (harm, kind) in [
        (shorten, FindingKind::MissingRecords),
        (empty, FindingKind::MissingRecords),
        (remove, FindingKind::MissingRecords),
        (edit, FindingKind::ReplacedFile),
    ] {
        let (disk, layout) = disk();
        let id = live(&disk, &layout).unwrap();
        assert_eq!(found(&disk, &layout, &id), []);
        let dirs = [layout.workspace(&id), layout.system()];
        for dir in &dirs {
            harm(&disk, &dir.join(AUDIT_FILE));
        }
        let told = |disk: &SimulatedDisk| {
            let found = found(disk, &layout, &id);
            let of_kind = found.iter().filter(|found| found.0 == kind);
            assert_eq!(of_kind.count(), 2, "{found:?}");
            assert_eq!(found.len(), 2, "{found:?}");
        };
        told(&disk);
        // The loss is still reported after further writes to the logs.
        live(&disk, &layout).unwrap();
        told(&disk);
        for dir in &dirs {
            let mut own = FolderManifest::open(&disk, dir).unwrap();
            own.acknowledge(&disk).unwrap();
        }
        assert_eq!(found(&disk, &layout, &id), []);
        live(&disk, &layout).unwrap();
        assert_eq!(found(&disk, &layout, &id), []);
    }
}

#[test]
fn msg_11_a_crash_at_any_call_makes_nothing_look_missing() {
    for call in 0.. {
        let mut has_ended = true;
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::Subset(call),
        ] {
            let (disk, layout) = disk();
            open(&disk, &layout).unwrap();
            disk.crash_at(disk.calls() + call);
            has_ended &= live(&disk, &layout).is_ok();
            let after = disk.after_crash(crash);
            let id = open(&after, &layout).unwrap();
            assert_eq!(found(&after, &layout, &id), [], "call {call}, {crash:?}");
            live(&after, &layout).unwrap();
            assert_eq!(found(&after, &layout, &id), [], "call {call}, {crash:?}");
        }
        if has_ended {
            return;
        }
    }
}

#[test]
fn root_10_truncated_or_missing_record_is_reported_and_restored() {
    for harm in ["", "{\"workspaceId\": \"", "gone"] {
        let (disk, layout) = disk();
        let id = live(&disk, &layout).unwrap();
        let path = layout.workspace(&id).join(workspace::WORKSPACE_FILE);
        let before = content(&disk, &path);
        if harm == "gone" {
            disk.remove_file(&path).unwrap();
        } else {
            write(&disk, &path, harm.as_bytes());
        }
        let findings = verify::root_files(&disk, &layout).unwrap().findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(findings[0].advice.contains("`/p`"), "{findings:?}");
        // The workspace is still listed, and opening it restores the record.
        let (listed, _) = workspace::list(&disk, &layout).unwrap();
        assert_eq!(listed.len(), 1);
        open(&disk, &layout).unwrap();
        assert_eq!(content(&disk, &path), before);
        assert_eq!(found(&disk, &layout, &id), []);
    }
}

#[test]
fn msg_11_a_removed_workspace_folder_is_reported() {
    for is_run_again in [false, true] {
        let (disk, layout) = disk();
        let id = live(&disk, &layout).unwrap();
        let dir = layout.workspace(&id);
        disk.remove_tree(&dir).unwrap();
        if is_run_again {
            open(&disk, &layout).unwrap();
            // Later writes of the record keep the loss.
            let record = workspace::read(&disk, &dir).unwrap().unwrap();
            workspace::write(&disk, &layout, &record).unwrap();
        }
        let mut result = verify::root_files(&disk, &layout).unwrap();
        let findings = &result.findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (findings[0].severity, &findings[0].path),
            (Severity::Error, &dir)
        );
        assert_eq!(verify::root(&disk, &layout).unwrap().findings, *findings);
        let own = verify::workspace_files(&disk, &layout, &id).unwrap();
        assert_eq!(own.findings, *findings);
        verify::acknowledge_lost_folders(&disk, &layout, &mut result).unwrap();
        assert_eq!(result.findings[0].severity, Severity::Warning);
        assert_eq!(found(&disk, &layout, &id), []);
        open(&disk, &layout).unwrap();
        assert_eq!(found(&disk, &layout, &id), []);
    }
}

#[test]
fn rep_1_a_folder_that_replication_moved_is_not_missing() {
    let (disk, layout) = disk();
    let id = live(&disk, &layout).unwrap();
    let kept = layout.replication().join("before");
    for dir in [layout.replication(), kept.clone()] {
        disk.create_dir(&dir).unwrap();
    }
    disk.rename(&layout.workspace(&id), &kept.join(id.as_str()))
        .unwrap();
    assert_eq!(found(&disk, &layout, &id), []);
}

#[test]
fn root_10_edited_workspace_record_is_reported_and_used() {
    let (disk, layout) = disk();
    let id = live(&disk, &layout).unwrap();
    let path = layout.workspace(&id).join(workspace::WORKSPACE_FILE);
    let text = String::from_utf8(content(&disk, &path)).unwrap();
    write(&disk, &path, text.replace("true", "false").as_bytes());
    assert_eq!(found(&disk, &layout, &id)[0].0, FindingKind::ReplacedFile);
    let (listed, _) = workspace::list(&disk, &layout).unwrap();
    assert!(!listed[0].registered);
}
