//! Data of earlier versions and other implementations opens, and unknown fields survive (`MSG-2`,
//! `MSG-3`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::Severity;
use goondan_durable::disk::{Disk, EntryKind, RealDisk, append_all, read_all};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use goondan_store::instance::{self, InstanceStore, Metadata};
use goondan_store::root::Layout;
use goondan_store::{configuration, connection, ledger, verify, workspace};
use serde_json::{Value, json};

use crate::model::{Change, ModelView};
use crate::world::look_at;

fn read(path: &Path) -> Vec<u8> {
    let mut file = RealDisk.open_read(path).unwrap();
    read_all(file.as_mut(), 1 << 20).unwrap()
}

fn copy(from: &Path, to: &Path) {
    RealDisk.create_dir(to).unwrap();
    for entry in RealDisk.list(from).unwrap() {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        if entry.kind == EntryKind::Directory {
            copy(&from, &to);
        } else {
            let mut file = RealDisk.create(&to).unwrap();
            append_all(file.as_mut(), &read(&from)).unwrap();
        }
    }
}

/// Returns a writable copy of a fixture.
fn fixture(temp: &Path, name: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    let to = temp.join(from.file_name().unwrap());
    copy(&from, &to);
    to
}

fn open(dir: &Path) -> InstanceStore {
    InstanceStore::open(Arc::new(RealDisk), dir).unwrap()
}

/// The format before manifests, listed answers and segments; kept permanently.
#[test]
fn format_1_opens_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let dir = fixture(temp.path(), "format-1/a");
    let worst = verify::instance(&RealDisk, &dir).unwrap();
    assert_eq!(worst.findings, []);
    let seen = assert_conversation(&dir, &["t1:u", "t1:a", "t2:u", "t2:a", "t3:u", "t3:a"]);
    assert_eq!(seen.extension, Some(3));
}

/// The current format, a whole System Root; kept permanently.
#[test]
fn inst_6_format_2_opens_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(fixture(temp.path(), "format-2"));
    let id: WorkspaceId = "p__no-package".parse().unwrap();
    let dir = layout.instances(&id).join("a");
    let verified = verify::root(&RealDisk, &layout).unwrap();
    assert_eq!(verified.findings, []);
    // The manifest itself is not counted.
    assert!(verified.files + 1 >= count_files(temp.path()));
    let record = workspace::open(&RealDisk, &layout, Path::new("/p"), None).unwrap();
    assert_eq!(record.workspace_id, id);
    let ledger = ledger::read(&RealDisk, &layout, &id).unwrap();
    assert_eq!((ledger.lines.len(), ledger.unreadable), (1, 0));
    let kept = configuration::read(&RealDisk, &layout, &id).unwrap();
    assert!(kept.is_some(), "the configuration is as it was written");
    let clock = "clock".parse().unwrap();
    let state = connection::state(&RealDisk, &layout, &id, &clock).unwrap();
    assert!(state.is_some_and(|state| state.get().contains("nightly")));
    assert!(open(&dir).unacknowledged().is_empty());
    let seen = assert_conversation(
        &dir,
        &["t1:u", "t1:a", "t2:u", "t2:a", "t2:b", "t3:u", "t3:a"],
    );
    assert_eq!(seen.extension, Some(2));
    let mut offset = 0;
    let mut events = 0;
    loop {
        let key = "a".parse().unwrap();
        let page =
            instance::read_event_log(&RealDisk, &layout.instances(&id), &key, offset).unwrap();
        assert_eq!(page.unreadable, 0);
        events += page.events.len();
        match page.next {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(events, 5093, "those of the segment and of the current file");
    let audit = read(&layout.workspace(&id).join("audit.jsonl"));
    let record = serde_json::from_slice(&audit).unwrap();
    workspace::append_audit(&RealDisk, &layout, &id, &record).unwrap();
    let grown = read(&layout.workspace(&id).join("audit.jsonl"));
    assert_eq!(grown, audit.repeat(2), "it continues with whole lines");
    let verified = verify::root(&RealDisk, &layout).unwrap();
    assert_eq!(verified.worst(), None, "{verified:#?}");
}

fn count_files(dir: &Path) -> u64 {
    let entries = RealDisk.list(dir).unwrap().into_iter();
    entries
        .map(|entry| match entry.kind {
            EntryKind::Directory => count_files(&dir.join(entry.name)),
            _ => 1,
        })
        .sum()
}

/// Opens the fixtures' conversation: it is unchanged, and so is its base.
fn assert_conversation(dir: &Path, messages: &[&str]) -> ModelView {
    let base = read(&dir.join("messages/base.jsonl"));
    let events: Vec<String> = (1..=5).map(|n| format!("e{n}")).collect();
    let mut findings = Vec::new();
    let seen = look_at(&mut open(dir), &events, &mut findings).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let ids: Vec<_> = seen
        .messages
        .iter()
        .map(|message| message.0.as_str())
        .collect();
    assert_eq!(ids, messages);
    assert_eq!(seen.open, Some(("t4".into(), "e4".into())));
    assert_eq!(
        seen.pending,
        ["t4:u", "t4:a", "t4:b"].map(|id| Change::Append(id.into()))
    );
    assert_eq!(seen.waiting, ["e4", "e5"]);
    assert_eq!(seen.attempts.get("e4"), Some(&1));
    assert_eq!(
        seen.ended.get("e2").map(String::as_str),
        Some("reply of t2")
    );
    assert_eq!(read(&dir.join("messages/base.jsonl")), base);
    seen
}

#[test]
fn msg_3_the_plain_formats_open_and_keep_every_field() {
    let temp = tempfile::tempdir().unwrap();
    let dir = fixture(temp.path(), "plain/telegram%3a123");
    let before = verify::instance(&RealDisk, &dir).unwrap();
    assert!(before.worst() <= Some(Severity::Info), "{before:#?}");
    let lines = |dir: &Path| -> Vec<String> {
        let text = String::from_utf8(read(&dir.join("messages/base.jsonl"))).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let old = lines(&dir);
    let mut store = open(&dir);
    assert!(store.state().open_turn.is_none(), "it cannot be resumed");
    // A foreign turn is folded by a rewrite; untouched lines stay equal byte for byte.
    let new = lines(&dir);
    assert_eq!((&new[0], &new[2]), (&old[0], &old[2]));
    let replaced: Value = serde_json::from_str(&new[1]).unwrap();
    assert_eq!(replaced["source"]["extensionName"], "compaction");
    assert!(new[3].contains("\"shard\":8"), "{}", new[3]);
    let mut offset = Some(0);
    let mut count = 0;
    while let Some(from) = offset {
        let page = store.page(from).unwrap();
        assert!(page.damage.is_empty(), "{:?}", page.damage);
        count += page.messages.len();
        offset = page.next;
    }
    assert_eq!((count, store.count_messages()), (4, 4));
    store.flush_metadata().unwrap();
    let metadata = Metadata::read(&RealDisk, &dir).unwrap();
    assert_eq!(metadata.extra.get("theirs"), Some(&json!({"shard": 7})));
    drop(store);
    // Only the missing target is reported, until it is acknowledged.
    let findings = verify::instance(&RealDisk, &dir).unwrap().findings;
    let [warning] = &findings[..] else {
        panic!("{findings:#?}");
    };
    assert!(warning.problem.contains("`not-there`"), "{warning:?}");
}

/// The events of such a turn do not come from our agents, so the store warns about missing targets.
#[test]
fn msg_4_a_missing_target_in_a_foreign_turn_leaves_a_warning() {
    let temp = tempfile::tempdir().unwrap();
    let dir = fixture(temp.path(), "plain/telegram%3a123");
    let store = open(&dir);
    let findings = store.state().findings;
    let [warning] = &findings[..] else {
        panic!("{findings:#?}");
    };
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.problem.contains("`not-there`"), "{warning:?}");
    drop(store);
    let observed = read(&dir.join("messages/runtime-events.jsonl"));
    let warnings: Vec<RuntimeEvent> = observed
        .split(|byte| *byte == b'\n')
        .filter_map(|line| RuntimeEvent::from_record(line).ok())
        .filter(|event| event.kind == RuntimeEventKind::MessageWarning)
        .collect();
    let details: Vec<&str> = warnings
        .iter()
        .filter_map(|event| event.detail.as_deref())
        .collect();
    let expected = "a remove refers to message `not-there`, which is not in the conversation";
    assert_eq!(details, [expected]);
    // The warning is reported once.
    assert_eq!(open(&dir).state().findings, []);
}

#[test]
fn files_that_are_empty_or_missing_are_no_damage() {
    for name in ["plain/empty", "plain/bare"] {
        let temp = tempfile::tempdir().unwrap();
        let dir = fixture(temp.path(), name);
        let before = verify::instance(&RealDisk, &dir).unwrap();
        assert!(
            before.worst() <= Some(Severity::Info),
            "{name}: {before:#?}"
        );
        let mut store = open(&dir);
        assert!(store.state().findings.is_empty(), "{name}");
        assert_eq!(store.page(0).unwrap().messages.len(), 0);
        drop(store);
        assert_eq!(
            verify::instance(&RealDisk, &dir).unwrap().findings,
            [],
            "{name}"
        );
    }
}
