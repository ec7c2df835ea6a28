//! Tests of one instance: crashes at every call, and supported formats.

use goondan_durable::disk::{Crash, SimulatedDisk};
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use goondan_protocol::message::{Message, MessageEvent};
use serde_json::json;

use super::*;

const INSTANCES: &str = "/i";

pub(super) fn at(n: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + n)
}

pub(super) fn key() -> InstanceKey {
    InstanceKey::new("k").unwrap()
}

pub(super) fn agent() -> AgentName {
    AgentName::new("a").unwrap()
}

pub(super) fn dir() -> PathBuf {
    Path::new(INSTANCES).join("k")
}

pub(super) fn event(id: &str) -> AgentEvent {
    AgentEvent {
        id: EventId::new(id).unwrap(),
        kind: "message".into(),
        created_at: at(0),
        trace_id: None,
        parent_span_id: None,
        input: Some(format!("input of {id}")),
        header: None,
        properties: goondan_protocol::JsonObject::new(),
        instance_key: Some(key()),
        source: EventSource::Connector {
            name: "cli".parse().unwrap(),
        },
        auth: None,
        reply_to: None,
        chain: None,
        join: None,
        metadata: goondan_protocol::JsonObject::new(),
    }
}

pub(super) fn turn(id: &str) -> TurnId {
    TurnId::new(id).unwrap()
}

fn message(id: &str) -> Message {
    Message::user(id.parse().unwrap(), at(1), &format!("text of {id}"))
}

fn completed(reply: &str) -> TurnOutcome {
    TurnOutcome::Completed {
        reply: reply.into(),
    }
}

pub(super) fn fresh() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new(INSTANCES)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

/// One operation, made durable before the next.
#[derive(Debug, Clone)]
enum StoreStep {
    Create,
    Accept(&'static str),
    Begin(&'static str, &'static str),
    Append(&'static str, u64, Box<MessageEvent>),
    Complete(&'static str, u64),
    Metadata,
}

fn step(turn: &'static str, seq: u64, event: MessageEvent) -> StoreStep {
    StoreStep::Append(turn, seq, Box::new(event))
}

fn append(turn: &'static str, seq: u64, id: &str) -> StoreStep {
    step(
        turn,
        seq,
        MessageEvent::Append {
            message: message(id),
        },
    )
}

fn replace(turn: &'static str, seq: u64, target: &str, id: &str) -> StoreStep {
    let target_id = target.parse().unwrap();
    step(
        turn,
        seq,
        MessageEvent::Replace {
            target_id,
            message: message(id),
        },
    )
}

fn remove(turn: &'static str, seq: u64, target: &str) -> StoreStep {
    step(
        turn,
        seq,
        MessageEvent::Remove {
            target_id: target.parse().unwrap(),
        },
    )
}

/// A run with every kind of change: delta folds, rewrites, a truncation, an attempt begun twice.
fn life() -> Vec<StoreStep> {
    vec![
        StoreStep::Create,
        StoreStep::Accept("e1"),
        StoreStep::Accept("e2"),
        StoreStep::Begin("t1", "e1"),
        append("t1", 1, "m1"),
        append("t1", 2, "m2"),
        StoreStep::Complete("t1", 2),
        StoreStep::Begin("t2", "e2"),
        append("t2", 1, "m3"),
        replace("t2", 2, "m1", "m1b"),
        remove("t2", 3, "not-there"),
        StoreStep::Begin("ignored", "e2"),
        append("t2", 4, "m4"),
        StoreStep::Metadata,
        StoreStep::Complete("t2", 4),
        StoreStep::Accept("e3"),
        StoreStep::Begin("t3", "e3"),
        StoreStep::Complete("t3", 0),
        StoreStep::Accept("e4"),
        StoreStep::Begin("t4", "e4"),
        StoreStep::Append("t4", 1, Box::new(MessageEvent::Truncate)),
        append("t4", 2, "m5"),
        StoreStep::Complete("t4", 2),
        StoreStep::Accept("e5"),
        StoreStep::Begin("t5", "e5"),
        append("t5", 1, "m6"),
    ]
}

/// Observable state of an instance.
#[derive(Debug, Clone, PartialEq, Default)]
struct InstanceView {
    exists: bool,
    base: Vec<Message>,
    pending: Vec<MessageEvent>,
    waiting: Vec<String>,
    done: Vec<String>,
}

fn perform(
    disk: &SimulatedDisk,
    store: &mut Option<InstanceStore>,
    step: &StoreStep,
) -> Result<(), StoreError> {
    if let StoreStep::Create = step {
        let disk = Arc::new(disk.clone());
        let made =
            InstanceStore::create(disk, Path::new(INSTANCES), &key(), &agent(), at(0), ".new")?;
        *store = Some(made);
        return Ok(());
    }
    let store = store.as_mut().unwrap();
    match step {
        StoreStep::Create => {}
        StoreStep::Accept(id) => drop(store.accept(event(id))?),
        StoreStep::Begin(id, event) => {
            drop(store.begin_turn(turn(id), &event.parse().unwrap(), at(2))?);
        }
        StoreStep::Append(id, seq, event) => {
            let raw = serde_json::value::to_raw_value(event).unwrap();
            store.append_event(&turn(id), *seq, &raw)?;
        }
        StoreStep::Complete(id, last) => {
            store.complete_turn(&turn(id), *last, completed(id), at(3))?;
        }
        StoreStep::Metadata => store.flush_metadata()?,
    }
    store.sync()?;
    store.finish_turn()
}

fn look(disk: &SimulatedDisk) -> Result<InstanceView, StoreError> {
    sweep(disk, Path::new(INSTANCES))?;
    if disk.stat(&dir()).during("inspect", &dir())?.is_none() {
        return Ok(InstanceView::default());
    }
    let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir())?;
    let page = store.page(0)?;
    assert!(page.damage.is_empty() && page.next.is_none());
    let mut done = Vec::new();
    for id in ["e1", "e2", "e3", "e4", "e5"] {
        if let EventState::Done(outcome) = store.event_state(&id.parse().unwrap())? {
            assert_eq!(
                outcome,
                completed(&format!("t{}", &id.chars().nth(1).unwrap()))
            );
            done.push(id.to_owned());
        }
    }
    Ok(InstanceView {
        exists: true,
        base: page
            .messages
            .iter()
            .map(|raw| serde_json::from_slice(raw).unwrap())
            .collect(),
        pending: page
            .events
            .iter()
            .map(|raw| serde_json::from_str(raw.get()).unwrap())
            .collect(),
        waiting: store
            .state()
            .waiting
            .iter()
            .map(|event| event.id.to_string())
            .collect(),
        done,
    })
}

/// Crashes tried at each interruption.
fn crashes(seeds: u64) -> Vec<Crash> {
    let subsets = (0..seeds).map(Crash::Subset);
    [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly]
        .into_iter()
        .chain(subsets)
        .collect()
}

#[test]
fn msg_13_the_same_event_twice_is_one_and_the_answer_is_kept() {
    let disk = fresh();
    let mut store = None;
    for step in &life()[..7] {
        perform(&disk, &mut store, step).unwrap();
    }
    let store = store.as_mut().unwrap();
    assert_eq!(
        store.accept(event("e1")).unwrap(),
        EventState::Done(completed("t1"))
    );
    assert_eq!(store.accept(event("e2")).unwrap(), EventState::Waiting);
    assert_eq!(store.waiting_count(), 1);
}

#[test]
fn msg_9_events_of_another_turn_or_out_of_order_are_refused() {
    let disk = fresh();
    let mut store = None;
    for step in &life()[..5] {
        perform(&disk, &mut store, step).unwrap();
    }
    let store = store.as_mut().unwrap();
    let raw = serde_json::value::to_raw_value(&MessageEvent::Truncate).unwrap();
    let wrong = store.append_event(&turn("t2"), 2, &raw);
    assert!(
        matches!(wrong, Err(StoreError::WrongTurn { .. })),
        "{wrong:?}"
    );
    let gap = store.append_event(&turn("t1"), 3, &raw);
    assert!(
        matches!(
            gap,
            Err(StoreError::OutOfOrder {
                expected: 2,
                got: 3
            })
        ),
        "{gap:?}"
    );
    let early = store.complete_turn(&turn("t1"), 2, completed("x"), at(3));
    assert!(
        matches!(early, Err(StoreError::OutOfOrder { .. })),
        "{early:?}"
    );
    let garbage = serde_json::value::to_raw_value(&json!({"type": "append"})).unwrap();
    let invalid = store.append_event(&turn("t1"), 2, &garbage);
    assert!(
        matches!(invalid, Err(StoreError::InvalidEvent { .. })),
        "{invalid:?}"
    );
    perform(
        &disk,
        &mut Some(InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap()),
        &append("t1", 2, "m2"),
    )
    .unwrap();
}

#[test]
fn msg_7_delta_fold_cost_does_not_grow_with_the_history() {
    let cost = |history: usize| {
        let disk = fresh();
        let mut store = None;
        perform(&disk, &mut store, &StoreStep::Create).unwrap();
        let line = serde_json::to_string(&message("old")).unwrap() + "\n";
        drop(store.take());
        disk.plant(
            &dir().join("messages/base.jsonl"),
            line.repeat(history).as_bytes(),
        )
        .unwrap();
        let mut store = Some(InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap());
        let before = (disk.bytes_written(), disk.calls());
        for step in [
            StoreStep::Accept("e1"),
            StoreStep::Begin("t1", "e1"),
            append("t1", 1, "m"),
            StoreStep::Complete("t1", 1),
        ] {
            perform(&disk, &mut store, &step).unwrap();
        }
        (disk.bytes_written() - before.0, disk.calls() - before.1)
    };
    let (short, long) = (cost(1), cost(10_000));
    assert_eq!(short.1, long.1, "calls");
    assert!(long.0 < short.0 + 100, "bytes: {} and {}", short.0, long.0);
}

#[test]
fn msg_8_turn_of_another_implementation_is_folded_unchanged() {
    let disk = fresh();
    let messages = dir().join("messages");
    for dir in [&dir(), &messages] {
        disk.create_dir(dir).unwrap();
    }
    let metadata = r#"{"status":"processing","agentName":"a","instanceKey":"k","createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z","theirs":1}"#;
    disk.plant(&dir().join("metadata.json"), metadata.as_bytes())
        .unwrap();
    let base = concat!(
        r#"{"id":"m1","data":{"role":"user","content":"Hello"},"metadata":{},"createdAt":"...","source":{"type":"user"},"x":1}"#,
        "\n",
        r#"{"id":"m2","data":{"role":"assistant","content":"Hi!"},"metadata":{},"createdAt":"...","source":{"type":"assistant","stepId":"s1"}}"#,
    );
    disk.plant(&messages.join("base.jsonl"), base.as_bytes())
        .unwrap();
    let events = r#"{"type":"append","message":{"id":"m3","data":{"role":"user","content":"Fix the bug"},"metadata":{},"createdAt":"...","source":{"type":"user"}}}
{"type":"replace","targetId":"m2","message":{"id":"m2-v2","data":{"role":"user","content":"Updated"},"metadata":{},"createdAt":"...","source":{"type":"extension","extensionName":"compaction"}}}
"#;
    disk.plant(&messages.join("events.jsonl"), events.as_bytes())
        .unwrap();
    let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap();
    let page = store.page(0).unwrap();
    let ids: Vec<_> = page
        .messages
        .iter()
        .map(|raw| {
            serde_json::from_slice::<Message>(raw)
                .unwrap()
                .id
                .to_string()
        })
        .collect();
    assert_eq!(ids, ["m1", "m2-v2", "m3"]);
    assert!(
        page.messages.iter().next().unwrap().ends_with(br#""x":1}"#),
        "unknown fields stay"
    );
    assert_eq!(store.state().open_turn, None);
    store.accept(event("e1")).unwrap();
    store.flush_metadata().unwrap();
    let metadata = Metadata::read(&disk, &dir()).unwrap();
    assert_eq!(metadata.extra.get("theirs"), Some(&json!(1)));
}

#[test]
fn a_message_longer_than_a_page_is_a_page() {
    let disk = fresh();
    let (root, files) = (Path::new(INSTANCES), Arc::new(disk.clone()));
    let made = InstanceStore::create(files, root, &key(), &agent(), at(0), ".new");
    drop(made.unwrap());
    let message = |(n, bytes): (usize, usize)| {
        let id = format!("m{n}").parse().unwrap();
        serde_json::to_string(&Message::user(id, at(0), &"x".repeat(bytes))).unwrap()
    };
    let lengths = [300_000, 2_500_000, 8_000_000, 10, 2_500_000];
    let lines: Vec<String> = lengths.into_iter().enumerate().map(message).collect();
    let path = dir().join("messages/base.jsonl");
    disk.plant(&path, (lines.join("\n") + "\n").as_bytes())
        .unwrap();
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    let (mut offset, mut got) = (Some(0), Vec::new());
    while let Some(from) = offset {
        let page = store.page(from).unwrap();
        let messages = page.messages.iter();
        got.extend(messages.map(|raw| String::from_utf8(raw.to_vec()).unwrap()));
        offset = page.next;
    }
    assert!(got == lines, "not the messages that were written");
}

/// For all line lengths and page ends, a page has the messages just before its end.
#[test]
fn pages_from_the_end_on_hold_the_same_messages() {
    let disk = fresh();
    let (root, files) = (Path::new(INSTANCES), Arc::new(disk.clone()));
    let made = InstanceStore::create(files, root, &key(), &agent(), at(0), ".new");
    drop(made.unwrap());
    let lengths = [
        10, 300_000, 2_500_000, 20, 65_536, 65_535, 1_048_400, 1, 2, 3,
    ];
    let message = |(n, bytes): (usize, usize)| {
        let id = format!("m{n}").parse().unwrap();
        serde_json::to_string(&Message::user(id, at(0), &"x".repeat(bytes))).unwrap()
    };
    let lines: Vec<String> = lengths.into_iter().enumerate().map(message).collect();
    let path = dir().join("messages/base.jsonl");
    let text = lines.join("\n") + "\n";
    disk.plant(&path, text.as_bytes()).unwrap();
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    for limit in [0, 1, 2, 3, 7, 10, 99] {
        let (mut before, mut got, mut pages) = (None, Vec::new(), 0);
        loop {
            let found = store.page_before(before, limit).unwrap();
            assert_eq!(
                found.next, before,
                "the next page begins where this one ends"
            );
            let count = found.messages.iter().count() as u64;
            assert!(count >= 1 && count <= limit.max(1), "{count} of {limit}");
            let bytes: usize = found.messages.iter().map(<[u8]>::len).sum();
            assert!(count == 1 || bytes <= HISTORY_PAGE_BYTES, "{bytes}");
            let messages = found.messages.iter();
            let messages = messages.map(|raw| String::from_utf8(raw.to_vec()).unwrap());
            got.splice(0..0, messages);
            pages += 1;
            match found.previous {
                Some(previous) => before = Some(previous),
                None => break,
            }
        }
        assert!(got == lines, "not the messages that were written: {limit}");
        assert!(limit < 10 || pages <= 5, "{pages}");
    }
    let first = lines[0].len() as u64 + 1;
    let page = store.page_before(Some(first), 5).unwrap();
    assert_eq!((page.messages.len(), page.previous), (1, None));
    let page = store.page_before(Some(0), 5).unwrap();
    assert_eq!((page.messages.len(), page.previous), (0, None));
    for no_line in [first - 1, text.len() as u64 + 1] {
        let error = store.page_before(Some(no_line), 5).unwrap_err();
        assert!(matches!(error, StoreError::HistoryChanged));
    }
}

/// Found by id and offset, as changed by the open turn; never another message.
#[test]
fn obs_1_message_is_read_by_the_position_its_page_reports() {
    let disk = fresh();
    let mut store = None;
    perform(&disk, &mut store, &StoreStep::Create).unwrap();
    drop(store);
    let line = |id: &str| serde_json::to_string(&message(id)).unwrap();
    let text: String = ["a", "b", "c"].map(|id| line(id) + "\n").concat();
    let path = dir().join("messages/base.jsonl");
    disk.plant(&path, text.as_bytes()).unwrap();
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    let places = store.page_before(None, 9).unwrap().places;
    let [a, b, c] = places[..] else {
        panic!("{places:?}");
    };
    store.accept(event("e1")).unwrap();
    let first = "e1".parse().unwrap();
    store.begin_turn(turn("t1"), &first, at(2)).unwrap();
    let steps = [
        append("t1", 1, "d"),
        append("t1", 2, "e"),
        replace("t1", 3, "e", "f"),
        replace("t1", 4, "b", "g"),
        remove("t1", 5, "c"),
    ];
    for step in steps {
        let StoreStep::Append(id, seq, event) = step else {
            unreachable!("no other results")
        };
        let raw = RawValue::from_string(serde_json::to_string(&event).unwrap());
        store.append_event(&turn(id), seq, &raw.unwrap()).unwrap();
    }
    let mut found = |id: &str, offset| match store.message(&id.parse().unwrap(), offset) {
        Ok(found) => Some(found.id.to_string()),
        Err(StoreError::HistoryChanged) => None,
        Err(other) => panic!("{other}"),
    };
    let is = |id: &str| Some(id.to_owned());
    // Confirmed, replaced by the open turn, and added by the open turn.
    assert_eq!(found("a", Some(a)), is("a"));
    assert_eq!(found("g", Some(b)), is("g"));
    assert_eq!(found("d", None), is("d"));
    assert_eq!(found("f", None), is("f"));
    // Removed, replaced, at another offset, without an offset, and unknown.
    for (id, offset) in [
        ("c", Some(c)),
        ("b", Some(b)),
        ("e", None),
        ("a", Some(b)),
        ("a", Some(a + 1)),
        ("a", Some(text.len() as u64)),
        ("a", Some(u64::MAX)),
        ("a", None),
        ("zz", None),
    ] {
        assert_eq!(found(id, offset), None, "{id} {offset:?}");
    }
}

#[test]
fn long_history_is_read_in_pages_of_bounded_size() {
    let disk = fresh();
    drop(
        InstanceStore::create(
            Arc::new(disk.clone()),
            Path::new(INSTANCES),
            &key(),
            &agent(),
            at(0),
            ".new",
        )
        .unwrap(),
    );
    let long = "x".repeat(300_000);
    let lines: Vec<String> = (0..10)
        .map(|n| {
            serde_json::to_string(&Message::user(
                format!("m{n}").parse().unwrap(),
                at(0),
                &long,
            ))
            .unwrap()
        })
        .collect();
    disk.plant(
        &dir().join("messages/base.jsonl"),
        (lines.join("\n") + "\n").as_bytes(),
    )
    .unwrap();
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    let (mut offset, mut got, mut pages) = (Some(0), Vec::new(), 0);
    while let Some(from) = offset {
        let page = store.page(from).unwrap();
        pages += 1;
        got.extend(
            page.messages
                .iter()
                .map(|raw| String::from_utf8(raw.to_vec()).unwrap()),
        );
        offset = page.next;
    }
    assert_eq!(got, lines);
    assert_eq!(pages, 4);
    assert!(matches!(store.page(5), Err(StoreError::HistoryChanged)));

    // Events of an open turn are paged too.
    store.accept(event("e1")).unwrap();
    let first = "e1".parse().unwrap();
    store.begin_turn(turn("t1"), &first, at(2)).unwrap();
    for (seq, line) in (1..).zip(&lines) {
        let raw = RawValue::from_string(format!(r#"{{"type":"append","message":{line}}}"#));
        store.append_event(&turn("t1"), seq, &raw.unwrap()).unwrap();
    }
    let (mut offset, mut events, mut pages) = (Some(0), Vec::new(), 0);
    while let Some(from) = offset {
        let page = store.page(from).unwrap();
        pages += 1;
        events.extend(page.events.iter().map(|raw| raw.get().to_owned()));
        assert!(events.is_empty() || page.events.len() <= 3, "{pages}");
        offset = page.next;
    }
    assert_eq!(events.len(), lines.len());
    let are_in_order = events
        .iter()
        .zip(&lines)
        .all(|(event, line)| event.contains(line));
    assert!(are_in_order, "the events are others");
    assert_eq!(
        pages, 7,
        "the first three events are on the last page of messages"
    );
}

#[test]
fn inbox_drops_old_answers_but_never_pending_events() {
    let disk = fresh();
    let mut store = None;
    perform(&disk, &mut store, &StoreStep::Create).unwrap();
    let mut store = store.unwrap();
    store.accept(event("first-waiting")).unwrap();
    let big = "r".repeat(4_000);
    for n in 0..1_500 {
        let id = format!("n{n}");
        store.accept(event(&id)).unwrap();
        store
            .begin_turn(turn(&id), &id.parse().unwrap(), at(1))
            .unwrap();
        store
            .complete_turn(&turn(&id), 0, completed(&big), at(2))
            .unwrap();
        store.sync().unwrap();
        store.finish_turn().unwrap();
    }
    let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap();
    assert_eq!(store.waiting_count(), 1);
    let state =
        |store: &mut InstanceStore, id: &str| store.event_state(&id.parse().unwrap()).unwrap();
    assert_eq!(
        state(&mut store, "n1499"),
        EventState::Done(completed(&big))
    );
    assert_eq!(state(&mut store, "first-waiting"), EventState::Waiting);
    let size = disk
        .stat(&dir().join("messages/inbox.jsonl"))
        .unwrap()
        .unwrap()
        .len;
    assert!(size < 10 * 1024 * 1024, "{size}");
}

/// Events are read back whole, also those of finished turns, until they are too old.
#[test]
fn conn_1_finished_events_are_read_back_over_a_compaction() {
    let disk = fresh();
    let mut store = None;
    perform(&disk, &mut store, &StoreStep::Create).unwrap();
    let mut store = store.unwrap();
    let payload = json!({"payload": "x".repeat(40_000)});
    let metadata = payload.as_object().unwrap();
    for n in 0..60 {
        let (id, turn) = (format!("e{n}"), turn(&format!("t{n}")));
        let event = AgentEvent {
            metadata: metadata.clone(),
            ..event(&id)
        };
        store.accept(event).unwrap();
        let id = id.parse().unwrap();
        store.begin_turn(turn.clone(), &id, at(1)).unwrap();
        store
            .complete_turn(&turn, 0, completed("ok"), at(2))
            .unwrap();
        store.sync().unwrap();
        store.finish_turn().unwrap();
    }
    let path = dir().join("messages/inbox.jsonl");
    let bytes = disk.stat(&path).unwrap().unwrap().len;
    assert!(bytes < 2 * crate::limits::INBOX_COMPACT_BYTES, "{bytes}");
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    assert_eq!(store.waiting_count(), 0);
    let mut read = |id: &str| store.events(Some(&id.parse().unwrap())).unwrap();
    // Ten of them fit into what a compaction keeps.
    for n in 50..60 {
        let found = read(&format!("e{n}"));
        assert_eq!((found.len(), &found[0].metadata), (1, metadata), "e{n}");
    }
    assert!(read("e0").is_empty());
    assert!(read("unknown").is_empty());
    let listed = store.events(None).unwrap();
    assert!(listed.len() >= 10, "{}", listed.len());
    assert_eq!(listed[0].id.as_str(), "e59");
    let state = store.event_state(&"e0".parse().unwrap()).unwrap();
    assert_eq!(state, EventState::Done(completed("ok")));
}

/// In a compacted inbox, zeros in place of a durable record are damage, not a torn end.
#[test]
fn msg_11_zeros_in_a_compacted_inbox_take_nothing_behind_them() {
    let disk = fresh();
    let mut store = None;
    perform(&disk, &mut store, &StoreStep::Create).unwrap();
    let mut store = store.unwrap();
    for id in ["done", "waiting"] {
        let input = Some("x".repeat(700_000));
        let event = event(id);
        store.accept(AgentEvent { input, ..event }).unwrap();
    }
    let done = "done".parse().unwrap();
    store.begin_turn(turn("t1"), &done, at(1)).unwrap();
    store
        .complete_turn(&turn("t1"), 0, completed("ok"), at(2))
        .unwrap();
    store.sync().unwrap();
    store.finish_turn().unwrap();
    let path = dir().join("messages/inbox.jsonl");
    let compacted = disk.stat(&path).unwrap().unwrap().len;
    assert!(compacted < 1_000_000, "{compacted}");
    store.accept(event("after")).unwrap();
    store.sync().unwrap();
    drop(store);
    let mut file = disk.open_read(&path).unwrap();
    let mut content = goondan_durable::disk::read_all(file.as_mut(), 1 << 22).unwrap();
    let end = usize::try_from(compacted).unwrap() - 1;
    let line = content[..end].iter().rposition(|byte| *byte == b'\n');
    content[line.unwrap() + 1..end].fill(0);
    disk.plant(&path, &content).unwrap();
    let mut store = InstanceStore::open(Arc::new(disk), &dir()).unwrap();
    let state = store.event_state(&"after".parse().unwrap()).unwrap();
    assert_eq!(state, EventState::Waiting);
}

#[test]
fn ext_3_setting_an_equal_value_writes_nothing() {
    let disk = fresh();
    let mut store = None;
    perform(&disk, &mut store, &StoreStep::Create).unwrap();
    let store = store.unwrap();
    let name = ExtensionName::new("@scope/Counter").unwrap();
    assert_eq!(store.extension_state(&name).unwrap(), None);
    store.set_extension_state(&name, &json!({"n": 1})).unwrap();
    let before = disk.bytes_written();
    store.set_extension_state(&name, &json!({"n": 1})).unwrap();
    assert_eq!(disk.bytes_written(), before);
    let after = disk.after_crash(Crash::LoseUnsynced);
    let store = InstanceStore::open(Arc::new(after), &dir()).unwrap();
    assert_eq!(store.extension_state(&name).unwrap(), Some(json!({"n": 1})));
    assert_eq!(store.extension_states().unwrap().len(), 1);
}

#[test]
fn inst_5_delete_is_whole_and_repeatable_and_stays_inside() {
    for call in 1.. {
        let disk = fresh();
        disk.plant(Path::new("/outside"), b"precious").unwrap();
        let mut store = None;
        for step in &life()[..7] {
            perform(&disk, &mut store, step).unwrap();
        }
        disk.crash_at(disk.calls() + call);
        let done = delete(&disk, &dir(), ".removed-x").is_ok();
        for crash in crashes(3) {
            let disk = disk.after_crash(crash);
            let found = look(&disk).unwrap();
            assert!(!done || !found.exists);
            assert!(
                !found.exists || found.base.len() == 2,
                "a half-removed instance is visible"
            );
            assert!(disk.stat(Path::new("/outside")).unwrap().is_some());
            assert_eq!(
                disk.list(Path::new(INSTANCES)).unwrap().len(),
                usize::from(found.exists)
            );
        }
        if done {
            assert!(!delete(&disk.after_crash(Crash::KeepUnsynced), &dir(), ".removed-y").unwrap());
            break;
        }
    }
}
