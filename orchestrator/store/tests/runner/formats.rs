//! Data that was written earlier, or by others, opens; what nobody here knows survives (`MSG-2`,
//! `MSG-3`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_store::Severity;
use goondan_store::disk::{Disk, RealDisk, append_all, read_all};
use goondan_store::instance::{InstanceStore, Metadata};
use goondan_store::verify;
use serde_json::{Value, json};

use crate::model::Change;
use crate::world::look_at;

fn read(path: &Path) -> Vec<u8> {
    let mut file = RealDisk.open_read(path).unwrap();
    read_all(file.as_mut(), 1 << 20).unwrap()
}

fn copy(from: &Path, to: &Path) {
    RealDisk.create_dir(to).unwrap();
    for entry in RealDisk.list(from).unwrap() {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        if entry.kind == goondan_store::disk::EntryKind::Directory {
            copy(&from, &to);
        } else {
            let mut file = RealDisk.create(&to).unwrap();
            append_all(file.as_mut(), &read(&from)).unwrap();
        }
    }
}

/// A copy of a fixture that may be written to.
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

/// Today's format, kept for ever.
#[test]
fn format_1_opens_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let dir = fixture(temp.path(), "format-1/a");
    let worst = verify::instance(&RealDisk, &dir).unwrap();
    assert_eq!(worst.findings, []);
    let base = read(&dir.join("messages/base.jsonl"));
    let events: Vec<String> = (1..=5).map(|n| format!("e{n}")).collect();
    let mut findings = Vec::new();
    let seen = look_at(&mut open(&dir), &events, &mut findings).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let ids: Vec<_> = seen
        .messages
        .iter()
        .map(|message| message.0.as_str())
        .collect();
    assert_eq!(ids, ["t1:u", "t1:a", "t2:u", "t2:a", "t3:u", "t3:a"]);
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
    assert_eq!(seen.extension, Some(3));
    assert_eq!(read(&dir.join("messages/base.jsonl")), base);
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
    assert!(store.state().open_turn.is_none(), "nobody can resume it");
    // Their turn is folded by a rewrite; every line it does not touch is the same, byte for byte.
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
    assert_eq!(verify::instance(&RealDisk, &dir).unwrap().findings, []);
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
