//! Verifies `docs/storage.md`: the store writes its examples byte for byte, opens them, and
//! recovers from them as documented.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::FindingKind;
use goondan_durable::disk::{Disk, RealDisk, append_all, read_all};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{ExtensionName, InstanceKey};
use goondan_store::configuration::{self, StoredConfiguration};
use goondan_store::instance::{ApprovalMark, EventState, InstanceStore, LlmMessage, Metadata};
use goondan_store::ledger::{self, LedgerEntry};
use goondan_store::root::{Layout, LogConfig, SystemConfig, SystemRoot};
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::operation::RecordUsage;
use goondan_store::writer::{Op, StoreJob, Worker};
use goondan_store::{file_names, limits, verify, workspace};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/storage.md");

/// Returns the code block with the info string `file`, including its last newline.
fn example(file: &str) -> &'static str {
    let (_, rest) = ["json ", "jsonl "]
        .iter()
        .find_map(|language| PAGE.split_once(&format!("\n```{language}{file}\n")))
        .unwrap_or_else(|| panic!("docs/storage.md has no example of {file}"));
    rest.split_once("```").unwrap().0
}

/// Returns the cells of the table with the given header, without backticks.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(&format!("\n{head}\n")).unwrap();
    let rows: Vec<Vec<&str>> = rest
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let line = line.trim_matches('|');
            line.split('|')
                .map(|cell| cell.trim().trim_matches('`'))
                .collect()
        })
        .collect();
    assert!(!rows.is_empty());
    rows
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

fn write(path: &Path, content: &str) {
    let mut file = RealDisk.create(path).unwrap();
    append_all(file.as_mut(), content.as_bytes()).unwrap();
}

fn read(path: &Path) -> String {
    let mut file = RealDisk.open_read(path).unwrap();
    String::from_utf8(read_all(file.as_mut(), 1 << 20).unwrap()).unwrap()
}

const MESSAGE_FILES: [&str; 6] = [
    "messages/inbox.jsonl",
    "messages/events.jsonl",
    "messages/base.jsonl",
    "messages/base.sums.jsonl",
    "messages/llm.jsonl",
    "messages/runtime-events.jsonl",
];

/// Creates the documented instance in a new directory.
fn planted(temp: &Path) -> PathBuf {
    let dir = temp.join("main");
    for made in [&dir, &dir.join("messages"), &dir.join("extensions")] {
        RealDisk.create_dir(made).unwrap();
    }
    for file in MESSAGE_FILES
        .into_iter()
        .chain(["metadata.json", "extensions/notes.json"])
    {
        write(&dir.join(file), example(file));
    }
    dir
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the raw messages of a reader.
fn history(store: &mut InstanceStore) -> (Vec<String>, Vec<String>) {
    let page = store.page(0).unwrap();
    assert!(page.damage.is_empty() && page.next.is_none());
    let texts = |raw: &[Box<serde_json::value::RawValue>]| {
        raw.iter().map(|record| record.get().to_owned()).collect()
    };
    let messages = page.messages.iter();
    let messages = messages.map(|raw| String::from_utf8(raw.to_vec()).unwrap());
    (messages.collect(), texts(&page.events))
}

#[test]
fn the_names_are_the_ones_the_store_gives() {
    for row in table("| Project Root | package | workspace id |")
        .get(1..)
        .unwrap()
    {
        let package = (!row[1].is_empty()).then_some(row[1]);
        let id = file_names::workspace_id(Path::new(row[0]), package).unwrap();
        assert_eq!(id.as_str(), row[2]);
    }
    for row in table("| key | directory |").get(1..).unwrap() {
        let key = InstanceKey::new(row[0]).unwrap();
        assert_eq!(file_names::instance_dir_name(&key), row[1]);
        assert_eq!(file_names::instance_key_of(row[1]), Some(key));
    }
}

#[test]
fn kept_configuration_matches_the_documentation() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    let id = "srv_bot__no-package".parse().unwrap();
    for dir in [layout.workspaces(), layout.workspace(&id)] {
        RealDisk.create_dir(&dir).unwrap();
    }
    let shown: StoredConfiguration = serde_json::from_str(example("configuration.json")).unwrap();
    configuration::keep(&RealDisk, &layout, &id, &shown).unwrap();
    let written = std::fs::read_to_string(layout.configuration(&id)).unwrap();
    assert_eq!(written, example("configuration.json"));
    let read = configuration::read(&RealDisk, &layout, &id).unwrap();
    assert_eq!(read, Some(shown));
}

#[test]
fn system_files_match_the_documentation() {
    let config: SystemConfig = serde_json::from_str(example("config.json")).unwrap();
    assert_eq!(config.log, LogConfig::default());
    let shown: Value = serde_json::from_str(example("config.json")).unwrap();
    assert_eq!(
        serde_json::to_value(&config).unwrap(),
        shown,
        "a field is not shown"
    );

    let temp = tempfile::tempdir().unwrap();
    let root = SystemRoot::take(temp.path()).unwrap();
    let layout = root.layout().clone();
    assert_eq!(read(&layout.format_file()), example("system/format.json"));
    let shown: WorkspaceRecord = serde_json::from_str(example("workspace.json")).unwrap();
    let package = shown.package.as_deref();
    let opened = workspace::open(&RealDisk, &layout, &shown.project_root, package).unwrap();
    assert_eq!(opened, shown);
    let dir = layout.workspace(&shown.workspace_id);
    assert_eq!(read(&dir.join("workspace.json")), example("workspace.json"));

    let record = serde_json::from_str(example("audit.jsonl")).unwrap();
    workspace::append_audit(&RealDisk, &layout, &shown.workspace_id, &record).unwrap();
    assert_eq!(read(&dir.join("audit.jsonl")), example("audit.jsonl"));
}

#[test]
fn ledger_matches_the_documentation() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    RealDisk.create_dir(&layout.workspaces()).unwrap();
    let record = workspace::open(&RealDisk, &layout, Path::new("/srv/bot"), None).unwrap();
    let id = record.workspace_id;
    let entry: LedgerEntry = serde_json::from_str(example("usage.jsonl")).unwrap();
    let mut worker = Worker::new(disk(), layout.clone());
    let op = || {
        Op::from(RecordUsage {
            workspace_id: id.clone(),
            entry: Box::new(entry.clone()),
        })
    };
    for _ in 0..2 {
        let mut batch = vec![
            StoreJob { token: 0, op: op() },
            StoreJob { token: 1, op: op() },
        ];
        for done in worker.work(&mut batch) {
            assert!(done.report.error().is_none(), "{done:?}");
        }
    }
    let path = layout.workspace(&id).join(ledger::LEDGER_FILE);
    assert_eq!(read(&path), example("usage.jsonl"));
    write(&path, example("sum (of usage.jsonl)"));
    let found = ledger::read(&RealDisk, &layout, &id).unwrap();
    assert_eq!((found.lines.len(), found.unreadable), (1, 0));
    assert_eq!(found.lines[0].spending.cost_micro_usd.0, 1155);
    let verified = verify::workspace(&RealDisk, &layout, &id).unwrap();
    assert_eq!(verified.findings, []);
    let page: String = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    for number in [
        limits::LEDGER_COMPACT_BYTES.to_string(),
        limits::LEDGER_REMEMBERED_REPLIES.to_string(),
    ] {
        assert!(page.contains(&number), "{number} is not on the page");
    }
}

/// Repeats the documented operations with the store and compares its files.
#[test]
fn the_store_writes_the_examples_byte_for_byte() {
    let temp = tempfile::tempdir().unwrap();
    let shown: Metadata = serde_json::from_str(example("metadata.json")).unwrap();
    let inbox = lines(example("messages/inbox.jsonl"));
    let base = lines(example("messages/base.jsonl"));
    let journal = lines(example("messages/events.jsonl"));
    let event =
        |at: usize| -> AgentEvent { serde_json::from_value(inbox[at]["event"].clone()).unwrap() };
    let time = |value: &Value| value.as_str().unwrap().parse().unwrap();
    let id = |value: &Value| value.as_str().unwrap().to_owned();

    let mut store = InstanceStore::create(
        disk(),
        temp.path(),
        &shown.instance_key,
        &shown.agent_name,
        shown.created_at,
        ".new",
    )
    .unwrap();
    store.accept(event(0)).unwrap();
    let done = &inbox[1];
    let turn_id = id(&done["turnId"]).parse().unwrap();
    let at = time(&done["at"]);
    store
        .begin_turn(id(&done["turnId"]).parse().unwrap(), &event(0).id, at)
        .unwrap();
    for (seq, message) in (1..).zip(&base) {
        let raw = serde_json::json!({"type": "append", "message": message});
        let raw = serde_json::value::to_raw_value(&raw).unwrap();
        store.append_event(&turn_id, seq, &raw).unwrap();
    }
    let outcome = serde_json::from_value(done["outcome"].clone()).unwrap();
    store.complete_turn(&turn_id, 2, outcome, at).unwrap();
    store.sync().unwrap();
    store.finish_turn().unwrap();
    store.accept(event(2)).unwrap();

    let turn_id = id(&journal[0]["turnId"]).parse().unwrap();
    for line in &journal {
        if line["type"] == "turn_begin" {
            let turn_id = id(&line["turnId"]).parse().unwrap();
            store
                .begin_turn(turn_id, &event(2).id, time(&line["at"]))
                .unwrap();
        } else {
            let raw = serde_json::json!({"type": line["type"], "message": line["message"]});
            let raw = serde_json::value::to_raw_value(&raw).unwrap();
            store
                .append_event(&turn_id, line["seq"].as_u64().unwrap(), &raw)
                .unwrap();
        }
    }
    store
        .observe(example("messages/runtime-events.jsonl").as_bytes())
        .unwrap();
    let shown_llm = &lines(example("messages/llm.jsonl"))[0];
    store
        .log_llm(&LlmMessage {
            at: time(&shown_llm["recordedAt"]),
            turn_id: id(&shown_llm["turnId"]).parse().unwrap(),
            step_id: Some(id(&shown_llm["stepId"]).parse().unwrap()),
            message: serde_json::value::to_raw_value(&shown_llm["message"]).unwrap(),
        })
        .unwrap();
    let notes = serde_json::from_str(example("extensions/notes.json")).unwrap();
    let extension = ExtensionName::new("notes").unwrap();
    store.set_extension_state(&extension, &notes).unwrap();
    store.sync().unwrap();
    store.flush_metadata().unwrap();

    let dir = temp
        .path()
        .join(file_names::instance_dir_name(&shown.instance_key));
    for file in MESSAGE_FILES
        .into_iter()
        .chain(["metadata.json", "extensions/notes.json"])
    {
        assert_eq!(read(&dir.join(file)), example(file), "{file}");
    }

    let commit: Value = serde_json::from_str(example("turn_commit (delta)")).unwrap();
    let outcome = serde_json::from_value(commit["outcome"].clone()).unwrap();
    store
        .complete_turn(&turn_id, 2, outcome, time(&commit["at"]))
        .unwrap();
    store.write_out().unwrap();
    let expected = [
        example("messages/events.jsonl"),
        example("turn_commit (delta)"),
    ]
    .concat();
    assert_eq!(read(&dir.join("messages/events.jsonl")), expected);
}

#[test]
fn an_open_turn_is_found_again() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    let state = store.state();
    assert!(state.findings.is_empty(), "{:?}", state.findings);
    let open = state.open_turn.unwrap();
    assert_eq!(
        (open.turn_id.as_str(), open.attempt, open.last_seq),
        ("t2", 2, 2)
    );
    let waiting: Vec<_> = state
        .waiting
        .iter()
        .map(|event| event.id.as_str())
        .collect();
    assert_eq!(waiting, ["e2"]);
    let answered = store.event_state(&"e1".parse().unwrap()).unwrap();
    assert!(matches!(answered, EventState::Done(_)), "{answered:?}");
    let (messages, events) = history(&mut store);
    assert_eq!(messages.join("\n") + "\n", example("messages/base.jsonl"));
    assert_eq!(events.len(), 2);
}

#[test]
fn steer_3_approvals_are_journaled_as_the_page_documents() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    for line in lines(example("approvals")) {
        let mark: ApprovalMark = serde_json::from_value(line).unwrap();
        store.note_approval(&"t2".parse().unwrap(), mark).unwrap();
    }
    store.sync().unwrap();
    let expected = [example("messages/events.jsonl"), example("approvals")].concat();
    assert_eq!(read(&dir.join("messages/events.jsonl")), expected);
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    let known = store.state().approvals;
    assert!(known[0].is_handed && known[0].decided.is_some());
    assert_eq!(history(&mut store).1.len(), 2, "it is not a message event");
}

/// Crashes after the commit point at each step of the table: recovery finishes the turn and is
/// idempotent.
#[test]
fn committed_turn_is_finished_after_a_crash_at_any_step() {
    let new_messages: String = lines(example("messages/events.jsonl"))
        .iter()
        .filter(|line| line["type"] == "append")
        .map(|line| format!("{}\n", line["message"]))
        .collect();
    let folded = [example("messages/base.jsonl"), &new_messages].concat();
    let half = new_messages.get(..40).unwrap();
    let done = example("done (of the second turn)").trim_end();
    let old_base = example("messages/base.jsonl");
    let mut sums = example("messages/base.sums.jsonl").to_owned();
    for (base, inbox) in [
        (old_base.to_owned(), String::new()),
        ([old_base, half].concat(), String::new()),
        (folded.clone(), String::new()),
        (folded.clone(), format!("{done}\n")),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let dir = planted(temp.path());
        let journal = [
            example("messages/events.jsonl"),
            example("turn_commit (delta)"),
        ]
        .concat();
        write(&dir.join("messages/events.jsonl"), &journal);
        write(&dir.join("messages/base.jsonl"), &base);
        if !inbox.is_empty() {
            // The checksums are on disk before `done` is written.
            write(&dir.join("messages/base.sums.jsonl"), &sums);
        }
        let inbox = [example("messages/inbox.jsonl"), &inbox].concat();
        write(&dir.join("messages/inbox.jsonl"), &inbox);
        for _ in 0..2 {
            let store = InstanceStore::open(disk(), &dir).unwrap();
            assert_eq!(store.state().open_turn, None);
            assert!(store.state().waiting.is_empty() && store.state().findings.is_empty());
            assert_eq!(read(&dir.join("messages/base.jsonl")), folded);
            assert_eq!(read(&dir.join("messages/events.jsonl")), "");
            let inbox = [example("messages/inbox.jsonl"), done, "\n"].concat();
            assert_eq!(read(&dir.join("messages/inbox.jsonl")), inbox);
        }
        sums = read(&dir.join("messages/base.sums.jsonl"));
    }
}

#[test]
fn a_prepared_base_counts_only_under_a_commit_record() {
    let prepared = example("messages/base.jsonl")
        .lines()
        .next()
        .unwrap()
        .to_owned()
        + "\n";
    let commit = example("turn_commit (delta)");
    let (head, _) = commit.split_once(r#""fold":"#).unwrap();
    // Without a seal, because a record of another version is also valid.
    let commit = format!("{head}\"fold\":{{\"mode\":\"rewrite\"}}}}\n");
    for is_committed in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let dir = planted(temp.path());
        write(&dir.join("messages/base.next.jsonl"), &prepared);
        let commit = if is_committed { commit.as_str() } else { "" };
        let journal = [example("messages/events.jsonl"), commit].concat();
        write(&dir.join("messages/events.jsonl"), &journal);
        let store = InstanceStore::open(disk(), &dir).unwrap();
        assert_eq!(store.state().open_turn.is_none(), is_committed);
        let expected = if is_committed {
            prepared.as_str()
        } else {
            example("messages/base.jsonl")
        };
        assert_eq!(read(&dir.join("messages/base.jsonl")), expected);
        let next = RealDisk
            .stat(&dir.join("messages/base.next.jsonl"))
            .unwrap();
        assert_eq!(next, None);
    }
}

#[test]
fn a_torn_end_is_cut_and_kept_aside() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let messages = dir.join("messages");
    let torn = r#"{"type":"accepted","seq":3,"eve"#;
    for file in ["inbox.jsonl", "events.jsonl", "base.jsonl"] {
        let whole = read(&messages.join(file));
        write(&messages.join(file), &format!("{whole}{torn}"));
    }
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    assert_eq!(store.state().findings.len(), 3);
    for file in ["inbox.jsonl", "events.jsonl", "base.jsonl"] {
        let whole = example(&format!("messages/{file}"));
        assert_eq!(read(&messages.join(file)), whole);
        let kept = messages.join(format!("{file}.torn-{}", whole.len()));
        assert_eq!(read(&kept), torn);
    }
    assert_eq!(history(&mut store).0.len(), 2);
}

#[test]
fn damage_in_the_middle_is_skipped_and_reported() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let messages = dir.join("messages");
    let flipped = example("messages/base.jsonl").replacen("Ada", "Eva", 1);
    write(&messages.join("base.jsonl"), &flipped);
    let mut journal: Vec<&str> = example("messages/events.jsonl").lines().collect();
    journal[2] = "{damaged";
    let journal = journal.join("\n") + "\n";
    write(&messages.join("events.jsonl"), &journal);
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    let state = store.state();
    assert_eq!(
        state.open_turn.unwrap().last_seq,
        2,
        "later records still count"
    );
    let places: Vec<_> = state.findings.iter().map(|found| found.line).collect();
    assert_eq!(places, [Some(3)], "{:?}", state.findings);
    let page = store.page(0).unwrap();
    assert_eq!((page.messages.len(), page.events.len()), (1, 2));
    assert_eq!(page.damage.len(), 1);
    assert_eq!(page.damage[0].line, Some(1));
    assert_eq!(read(&messages.join("base.jsonl")), flipped);

    let commit: Value = serde_json::from_str(example("turn_commit (delta)")).unwrap();
    let outcome = serde_json::from_value(commit["outcome"].clone()).unwrap();
    let at = commit["at"].as_str().unwrap().parse().unwrap();
    store
        .complete_turn(&"t2".parse().unwrap(), 2, outcome, at)
        .unwrap();
    store.sync().unwrap();
    store.finish_turn().unwrap();
    assert_eq!(read(&messages.join("events.jsonl")), "");
    assert!(read(&messages.join("events.jsonl.damaged")).starts_with(&journal));
}

#[test]
fn truncated_base_is_used_and_the_loss_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let messages = dir.join("messages");
    let (first, _) = example("messages/base.jsonl").split_once('\n').unwrap();
    write(&messages.join("base.jsonl"), first);
    let mut store = InstanceStore::open(disk(), &dir).unwrap();
    let findings = store.state().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].kind, FindingKind::MissingRecords);
    let kept = findings[0].kept_in.as_ref().unwrap();
    assert_eq!(read(kept), example("messages/base.sums.jsonl"));
    assert_eq!(history(&mut store).0, [first]);
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planted(temp.path());
    let messages = dir.join("messages");
    std::os::unix::fs::symlink(dir.join("metadata.json"), messages.join("link")).unwrap();
    RealDisk
        .rename(&messages.join("link"), &messages.join("base.jsonl"))
        .unwrap();
    assert!(InstanceStore::open(disk(), &dir).is_err());
}

#[test]
fn inst_4_invalid_instance_directories_are_skipped_and_reported() {
    let temp = tempfile::tempdir().unwrap();
    for (name, metadata) in [
        ("main", example("metadata.json")),
        ("renamed", example("metadata.json")),
        ("damaged", "{"),
    ] {
        RealDisk.create_dir(&temp.path().join(name)).unwrap();
        write(&temp.path().join(name).join("metadata.json"), metadata);
    }
    RealDisk.create_dir(&temp.path().join("empty")).unwrap();
    RealDisk.create_dir(&temp.path().join(".new-1")).unwrap();
    write(&temp.path().join("file"), "");
    let (found, unusable) = workspace::list_instances(&RealDisk, temp.path()).unwrap();
    let keys: Vec<_> = found
        .iter()
        .map(|metadata| metadata.instance_key.as_str())
        .collect();
    assert_eq!(keys, ["main"]);
    let mut left_out: Vec<_> = unusable
        .iter()
        .map(|found| found.path.file_name().unwrap())
        .collect();
    left_out.sort();
    assert_eq!(left_out, ["damaged", "empty", "renamed"]);
}

#[test]
fn the_limits_on_the_page_are_the_ones_the_store_has() {
    for text in [
        format!("grown past {} bytes", limits::INBOX_COMPACT_BYTES),
        format!(
            "latest {} bytes keep their contents",
            limits::INBOX_KEPT_EVENT_BYTES
        ),
        format!(
            "the latest {} finished events",
            limits::INBOX_REMEMBERED_EVENTS
        ),
    ] {
        let page = PAGE.replace('\n', " ");
        assert!(page.contains(&text), "docs/storage.md does not say: {text}");
    }
    assert_eq!(
        limits::METADATA_INTERVAL_MS,
        1_000,
        "\"at most once a second\""
    );
}
