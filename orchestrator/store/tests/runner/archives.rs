//! Archives of conversations: an import restores exactly the exported conversation or fails.

use std::path::Path;
use std::sync::Arc;

use goondan_durable::FileError;
use goondan_durable::disk::{Crash, Disk, SimulatedDisk, read_all};
use goondan_protocol::control::{ExportPart, ImportResult};
use goondan_protocol::ids::{AgentName, ExtensionName, InstanceKey};
use goondan_protocol::time::Timestamp;
use goondan_store::StoreError;
use goondan_store::instance::{InstanceStore, import};
use goondan_store::limits::EXPORT_PART_BYTES;
use serde_json::{Value, json};

const ARCHIVE: &str = "/elsewhere/main.jsonl";
const BASE: &str = "messages/base.jsonl";

fn key(text: &str) -> InstanceKey {
    InstanceKey::new(text).unwrap()
}

fn agent() -> AgentName {
    AgentName::new("clerk").unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(ms)
}

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["/from", "/to", "/elsewhere"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn message(id: &str, text: &str) -> String {
    let message = json!({
        "id": id,
        "data": {"role": "user", "content": text},
        "metadata": {},
        "createdAt": "2026-01-01T00:00:00.000Z",
        "source": {"type": "user"},
    });
    message.to_string()
}

/// Creates instance `main` in `/from` with these lines as its messages.
fn conversation(disk: &SimulatedDisk, lines: &[String]) -> InstanceStore {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let from = Path::new("/from");
    InstanceStore::create(shared.clone(), from, &key("main"), &agent(), at(5), ".new").unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    disk.plant(&from.join("main").join(BASE), text.as_bytes())
        .unwrap();
    InstanceStore::open(shared, &from.join("main")).unwrap()
}

fn export(store: &mut InstanceStore, skip: bool) -> Result<(String, ExportPart), StoreError> {
    let (mut text, mut position) = (String::new(), None);
    loop {
        let part = store.export(position, skip, at(9))?;
        text.push_str(&part.text);
        position = part.next.clone();
        if position.is_none() {
            return Ok((text, part));
        }
    }
}

fn import_as(disk: &SimulatedDisk, name: &str) -> Result<ImportResult, StoreError> {
    let to = (&key(name), &agent());
    let archive = Path::new(ARCHIVE);
    import(disk, Path::new("/to"), to, archive, at(20), ".new")
}

fn imported(disk: &SimulatedDisk, archive: &[u8]) -> Result<ImportResult, StoreError> {
    disk.plant(Path::new(ARCHIVE), archive).unwrap();
    import_as(disk, "copy")
}

fn content(disk: &SimulatedDisk, path: &str) -> String {
    let mut file = disk.open_read(Path::new(path)).unwrap();
    String::from_utf8(read_all(file.as_mut(), 1 << 26).unwrap()).unwrap()
}

#[track_caller]
fn nothing_was_made(disk: &SimulatedDisk) {
    assert_eq!(disk.list(Path::new("/to")).unwrap(), []);
}

/// A small conversation with details that a careless copy would change.
fn small() -> Vec<String> {
    let odd = r#"{"z":1e5, "id":"m2","data":{"role":"assistant","content":"\u00e9é","y":1.0},"createdAt":"then","source":{"type":"assistant","stepId":"s"}}"#;
    vec![message("m1", "Hello\n\"you\""), odd.to_owned()]
}

fn small_archive(disk: &SimulatedDisk) -> String {
    let mut store = conversation(disk, &small());
    let notes = ExtensionName::new("Notes").unwrap();
    store.set_extension_state(&notes, &json!({"n": 1})).unwrap();
    export(&mut store, false).unwrap().0
}

#[test]
fn exported_conversation_is_imported_byte_for_byte() {
    let disk = disk();
    let archive = small_archive(&disk);
    let lines: Vec<&str> = archive.lines().collect();
    let head: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(head["format"], "goondan.conversation/1");
    assert_eq!(head["instanceKey"], "main");
    assert_eq!(lines[1], format!("{{\"message\":{}}}", small()[0]));
    assert_eq!(
        lines[3],
        r#"{"extension":{"name":"Notes","state":{"n":1}}}"#
    );
    assert_eq!(lines.len(), 5);

    let made = imported(&disk, archive.as_bytes()).unwrap();
    assert_eq!((made.messages, made.extensions), (2, 1));
    // The import is durable, and the store has no findings.
    let disk = disk.after_crash(Crash::LoseUnsynced);
    assert_eq!(
        content(&disk, "/to/copy/messages/base.jsonl"),
        content(&disk, "/from/main/messages/base.jsonl")
    );
    let mut copy = InstanceStore::open(Arc::new(disk.clone()), Path::new("/to/copy")).unwrap();
    assert_eq!(copy.state().findings, []);
    assert_eq!(copy.count_messages(), 2);
    let page = copy.page(0).unwrap();
    assert_eq!(page.messages.len(), 2);
    assert_eq!(page.damage, []);
    let notes = ExtensionName::new("Notes").unwrap();
    assert_eq!(copy.extension_state(&notes).unwrap(), Some(json!({"n": 1})));
    let metadata = copy.metadata();
    assert_eq!(metadata.instance_key, key("copy"));
    assert_eq!((metadata.created_at, metadata.updated_at), (at(5), at(20)));

    // A second export differs only in names.
    let (again, _) = export(&mut copy, false).unwrap();
    let body = |text: &str| {
        text.lines()
            .skip(1)
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(body(&again), body(&archive));
}

#[test]
fn an_archive_cut_anywhere_is_refused_and_changes_nothing() {
    let disk = disk();
    let archive = small_archive(&disk);
    for len in 0..archive.len() {
        let error = imported(&disk, &archive.as_bytes()[..len]).unwrap_err();
        assert!(
            matches!(error, StoreError::BadArchive { .. }),
            "{len}: {error}"
        );
        nothing_was_made(&disk);
    }
    imported(&disk, archive.as_bytes()).unwrap();
}

#[test]
fn an_archive_with_a_flipped_bit_is_refused_and_changes_nothing() {
    let disk = disk();
    let archive = small_archive(&disk);
    for at in 0..archive.len() {
        for bit in 0..8 {
            let mut flipped = archive.clone().into_bytes();
            flipped[at] ^= 1 << bit;
            let error = imported(&disk, &flipped).unwrap_err();
            assert!(
                matches!(error, StoreError::BadArchive { .. }),
                "{at}, {bit}: {error}"
            );
            nothing_was_made(&disk);
        }
    }
}

/// Builds an archive with a matching end line, like an attacker.
fn forged(lines: &[String], messages: u64, extensions: u64) -> Vec<u8> {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let crc32 = format!("{:08x}", crc32fast::hash(body.as_bytes()));
    let end = json!({"messages": messages, "extensions": extensions, "crc32": crc32});
    format!("{body}{}\n", json!({"end": end})).into_bytes()
}

#[test]
fn a_forged_archive_is_refused_with_the_line_and_the_reason() {
    let disk = disk();
    let head = small_archive(&disk).lines().next().unwrap().to_owned();
    let wrap = |raw: &str| format!("{{\"message\":{raw}}}");
    let (m1, m2) = (wrap(&message("m1", "a")), wrap(&message("m2", "b")));
    let extension = |name: &str| json!({"extension": {"name": name, "state": 1}}).to_string();
    let all = |lines: &[&String]| lines.iter().map(|line| (*line).clone()).collect::<Vec<_>>();
    let good = forged(
        &all(&[&head, &m1, &m2, &extension("a"), &extension("b")]),
        2,
        2,
    );
    let long = wrap(&message("m1", &"x".repeat(9 << 20)));
    let other = head.replace("conversation/1", "conversation/2");
    let hidden = head.replace("\"format\"", "\"x\":1,\"format\"");
    let cases: [(&str, u64, Vec<u8>); 14] = [
        ("expected format", 1, forged(&all(&[&other]), 0, 0)),
        (
            "not a conversation archive",
            1,
            forged(&all(&[&hidden]), 0, 0),
        ),
        (
            "not a conversation archive",
            1,
            forged(&all(&[&m1, &head]), 1, 0),
        ),
        (
            "duplicate message `m1`",
            3,
            forged(&all(&[&head, &m1, &m1]), 2, 0),
        ),
        (
            "invalid message",
            2,
            forged(&all(&[&head, &wrap("{\"id\":1}")]), 1, 0),
        ),
        (
            "message after an extension state",
            3,
            forged(&all(&[&head, &extension("a"), &m1]), 1, 1),
        ),
        (
            "not sorted by name",
            3,
            forged(&all(&[&head, &extension("b"), &extension("a")]), 0, 2),
        ),
        (
            "not sorted by name",
            3,
            forged(&all(&[&head, &extension("a"), &extension("a")]), 0, 2),
        ),
        ("bytes", 2, forged(&all(&[&head, &long]), 1, 0)),
        ("totals do not match", 3, forged(&all(&[&head, &m1]), 2, 0)),
        (
            "unknown variant",
            2,
            forged(&all(&[&head, &"{\"x\":1}".to_owned()]), 0, 0),
        ),
        ("unexpected data", 6, [good.as_slice(), b"\n"].concat()),
        (
            "truncated",
            2,
            [head.as_bytes(), b"\n{\"message\":"].concat(),
        ),
        ("not a conversation archive", 1, b"\x00\xff\n".to_vec()),
    ];
    for (reason, line, archive) in cases {
        let error = imported(&disk, &archive).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reason), "no {reason:?} in {text}");
        assert!(
            text.contains(&format!("line {line}:")),
            "line {line}: {text}"
        );
        nothing_was_made(&disk);
    }
    disk.create_dir(Path::new("/elsewhere/dir")).unwrap();
    let to = (&key("copy"), &agent());
    let dir = Path::new("/elsewhere/dir");
    let error = import(&disk, Path::new("/to"), to, dir, at(20), ".new").unwrap_err();
    assert!(matches!(error, StoreError::BadArchive { .. }), "{error}");
    imported(&disk, &good).unwrap();
}

#[test]
fn import_to_an_existing_key_changes_nothing() {
    let disk = disk();
    let archive = small_archive(&disk);
    imported(&disk, archive.as_bytes()).unwrap();
    let before = content(&disk, "/to/copy/messages/base.jsonl");
    let error = imported(&disk, archive.as_bytes()).unwrap_err();
    assert!(matches!(error, StoreError::KeyTaken { .. }), "{error}");
    assert_eq!(content(&disk, "/to/copy/messages/base.jsonl"), before);
    assert_eq!(disk.list(Path::new("/to")).unwrap().len(), 1);
}

#[test]
fn import_crash_at_any_call_leaves_all_or_nothing() {
    let disk = disk();
    let archive = small_archive(&disk);
    disk.plant(Path::new(ARCHIVE), archive.as_bytes()).unwrap();
    let disk = disk.after_crash(Crash::KeepUnsynced);
    let crashes = [
        Crash::LoseUnsynced,
        Crash::KeepUnsynced,
        Crash::Subset(1),
        Crash::Subset(2),
    ];
    let (mut none, mut whole) = (0, 0);
    for call in 1.. {
        let run = disk.after_crash(Crash::ProcessOnly);
        run.crash_at(call);
        let result = import_as(&run, "copy");
        if !run.is_down() {
            result.unwrap();
            break;
        }
        for crash in crashes {
            let after = run.after_crash(crash);
            goondan_store::instance::sweep(&after, Path::new("/to")).unwrap();
            if after.list(Path::new("/to")).unwrap().is_empty() {
                none += 1;
                continue;
            }
            whole += 1;
            let copy = InstanceStore::open(Arc::new(after.clone()), Path::new("/to/copy"));
            let mut copy = copy.unwrap();
            assert_eq!(copy.state().findings, [], "call {call}, {crash:?}");
            let (text, _) = export(&mut copy, false).unwrap();
            assert_eq!(
                text.lines().skip(1).take(3).collect::<Vec<_>>(),
                archive.lines().skip(1).take(3).collect::<Vec<_>>()
            );
        }
    }
    assert!(none > 10 && whole > 0, "{none} {whole}");
}

#[test]
fn damaged_records_stop_an_export_unless_they_are_left_out() {
    let disk = disk();
    let lines = [
        message("m1", "one"),
        message("m2", "two"),
        message("m3", "three"),
    ];
    drop(conversation(&disk, &lines));
    let path = Path::new("/from/main").join(BASE);
    let damaged = lines.join("\n").replace("two", "twa") + "\n";
    disk.plant(&path, damaged.as_bytes()).unwrap();
    let mut store = InstanceStore::open(Arc::new(disk.clone()), Path::new("/from/main")).unwrap();
    let error = export(&mut store, false).unwrap_err();
    assert!(
        matches!(error, StoreError::File(FileError::Damaged { line: 2, .. })),
        "{error}"
    );
    let (archive, last) = export(&mut store, true).unwrap();
    assert_eq!((last.messages, last.damaged), (2, 1));
    assert_eq!(imported(&disk, archive.as_bytes()).unwrap().messages, 2);
}

#[test]
fn long_conversations_and_messages_are_exported_in_parts() {
    let disk = disk();
    let long = message("long", &"é\"".repeat(7 << 18));
    assert!(long.len() > EXPORT_PART_BYTES);
    let mut lines: Vec<String> = (0..3_000)
        .map(|n| message(&format!("m{n}"), &"x".repeat(1_000)))
        .collect();
    lines.insert(1_500, long);
    let mut store = conversation(&disk, &lines);
    let (archive, last) = export(&mut store, false).unwrap();
    assert_eq!(last.messages, 3_001);
    let made = imported(&disk, archive.as_bytes()).unwrap();
    assert_eq!(made.messages, 3_001);
    assert!(
        content(&disk, "/to/copy/messages/base.jsonl")
            == content(&disk, "/from/main/messages/base.jsonl")
    );
}

#[test]
fn unimportable_conversation_is_not_exported() {
    let disk = disk();
    let lines = [message("m1", "one"), "{\"note\":1}".to_owned()];
    let mut store = conversation(&disk, &lines);
    let error = export(&mut store, false).unwrap_err();
    assert!(error.to_string().contains("invalid message"), "{error}");
    let (archive, last) = export(&mut store, true).unwrap();
    assert_eq!((last.messages, last.damaged), (1, 1));
    assert_eq!(imported(&disk, archive.as_bytes()).unwrap().messages, 1);
}

fn turn(store: &mut InstanceStore, number: u32, event: &Value) {
    let event_id = format!("e{number}").parse().unwrap();
    let accepted = json!({
        "id": event_id, "type": "message", "createdAt": at(10), "input": "x",
        "source": {"kind": "connector", "name": "cli"},
    });
    store
        .accept(serde_json::from_value(accepted).unwrap())
        .unwrap();
    let turn_id: goondan_protocol::ids::TurnId = format!("t{number}").parse().unwrap();
    store
        .begin_turn(turn_id.clone(), &event_id, at(11))
        .unwrap();
    let raw = serde_json::value::to_raw_value(event).unwrap();
    store.append_event(&turn_id, 1, &raw).unwrap();
    let outcome = serde_json::from_value(json!({"status": "completed", "reply": "x"})).unwrap();
    store.complete_turn(&turn_id, 1, outcome, at(12)).unwrap();
    store.sync().unwrap();
    store.finish_turn().unwrap();
}

#[test]
fn an_export_is_of_the_conversation_as_it_was_when_it_began() {
    let disk = disk();
    let mut store = conversation(&disk, &small());
    let first = store.export(None, false, at(9)).unwrap();
    let added: Value = serde_json::from_str(&message("m3", "later")).unwrap();
    turn(&mut store, 1, &json!({"type": "append", "message": added}));
    let mut archive = first.text.clone();
    let mut position = first.next.clone();
    while position.is_some() {
        let part = store.export(position, false, at(9)).unwrap();
        archive.push_str(&part.text);
        position = part.next;
    }
    assert_eq!(imported(&disk, archive.as_bytes()).unwrap().messages, 2);
    assert_eq!(store.count_messages(), 3);

    // The exported part does not exist any longer.
    turn(&mut store, 2, &json!({"type": "remove", "targetId": "m1"}));
    let error = store.export(first.next, false, at(9)).unwrap_err();
    assert!(matches!(error, StoreError::HistoryChanged), "{error}");
}

#[test]
fn an_empty_conversation_has_an_archive_too() {
    let disk = disk();
    let mut store = conversation(&disk, &[]);
    let (archive, _) = export(&mut store, false).unwrap();
    assert_eq!(archive.lines().count(), 2);
    assert_eq!(imported(&disk, archive.as_bytes()).unwrap().messages, 0);
}

#[test]
fn the_archive_on_the_page_can_be_imported() {
    let page = include_str!("../../../../docs/storage.md");
    let (_, rest) = page.split_once("```jsonl archive.jsonl\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let disk = disk();
    let made = imported(&disk, example.as_bytes()).unwrap();
    assert_eq!((made.messages, made.extensions), (2, 1));
    let mut copy = InstanceStore::open(Arc::new(disk.clone()), Path::new("/to/copy")).unwrap();
    let (again, _) = export(&mut copy, false).unwrap();
    let body = |text: &str| {
        text.lines()
            .skip(1)
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(body(&again), body(example));
}
