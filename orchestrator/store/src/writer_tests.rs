//! Tests of the writer threads over the real file system.

use std::collections::{BTreeMap, VecDeque};

use goondan_durable::Severity;
use goondan_durable::batch::BatchWorker as _;
use goondan_durable::disk::{Crash, RealDisk, SimulatedDisk, read_all};
use goondan_protocol::JsonObject;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{TurnId, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_writers::Writers;
use tokio::sync::mpsc;

use super::*;
use crate::instance::{self, EventState, Metadata};
use crate::limits::{INSTANCE_REST_DELAY_MS, WRITER_OPEN_INSTANCES_MAX};
use crate::workspace;
use crate::writer::operation::{
    Accept, AcceptResult, AppendEvent, BeginTurn, Close, CompleteTurn, Delete, Inspect,
    LookUpEvent, Open, Operation, ParkEvent, ReadPage, ReadParked,
};

struct WriterHarness {
    _temp: tempfile::TempDir,
    layout: Layout,
    writers: Writers<Worker>,
    completed: mpsc::UnboundedReceiver<Vec<StoreCompletion>>,
    reported: VecDeque<StoreCompletion>,
    workspace_id: WorkspaceId,
    index: InstanceIndex,
}

fn rig() -> WriterHarness {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.create_dir(&layout.workspaces()).unwrap();
    let project = std::path::Path::new("/p");
    let record = workspace::open(disk.as_ref(), &layout, project, None).unwrap();
    let index = InstanceIndex::default();
    let (writers, completed) =
        Writers::start(Worker::for_threads(&disk, &layout, &index, 2, u64::MAX)).unwrap();
    WriterHarness {
        _temp: temp,
        layout,
        writers,
        completed,
        reported: VecDeque::new(),
        workspace_id: record.workspace_id,
        index,
    }
}

impl WriterHarness {
    fn instance(&self, key: &str) -> InstanceRef {
        let workspace_id = self.workspace_id.clone();
        InstanceRef {
            workspace_id,
            instance_key: key.parse().unwrap(),
        }
    }

    async fn submit(&self, token: u64, op: impl Into<Op>) {
        let op = op.into();
        assert!(
            self.writers
                .submit(vec![StoreJob { token, op }])
                .await
                .is_ok()
        );
    }

    async fn next(&mut self) -> StoreCompletion {
        while self.reported.is_empty() {
            self.reported.extend(self.completed.recv().await.unwrap());
        }
        self.reported.pop_front().unwrap()
    }

    async fn run<O: Operation>(&mut self, operation: O) -> Result<O::Output, StoreError> {
        self.submit(0, operation).await;
        O::output(self.next().await.report).unwrap()
    }
}

fn event(id: &str) -> Box<AgentEvent> {
    Box::new(AgentEvent {
        id: id.parse().unwrap(),
        kind: "message".into(),
        created_at: Timestamp::from_unix_millis(0),
        trace_id: None,
        parent_span_id: None,
        input: Some("x".into()),
        header: None,
        properties: JsonObject::new(),
        instance_key: None,
        source: EventSource::Connector {
            name: "cli".parse().unwrap(),
        },
        auth: None,
        reply_to: None,
        chain: None,
        join: None,
        metadata: JsonObject::new(),
    })
}

fn accept(instance: InstanceRef, agent: &str, id: &str) -> Accept {
    Accept {
        instance,
        agent: agent.parse().unwrap(),
        event: event(id),
        former_id: None,
    }
}

#[tokio::test]
async fn every_job_is_reported_once_and_in_order_within_its_instance() {
    let mut rig = rig();
    let keys = ["a", "b", "c"];
    for n in 0..300_u64 {
        let key = keys[usize::try_from(n).unwrap() % keys.len()];
        let op = accept(rig.instance(key), "agent", &format!("e{n}"));
        rig.submit(n, op).await;
    }
    let mut seen: Vec<u64> = Vec::new();
    while seen.len() < 300 {
        let completion = rig.next().await;
        assert!(matches!(
            completion.report,
            Report::Accept(Ok(AcceptResult {
                before: EventState::Unknown,
                ..
            }))
        ));
        seen.push(completion.token);
    }
    for remainder in 0..3 {
        let of_key: Vec<u64> = seen
            .iter()
            .copied()
            .filter(|n| n % 3 == remainder)
            .collect();
        assert!(of_key.is_sorted(), "order within an instance was lost");
    }
    let state = rig
        .run(Open {
            instance: rig.instance("a"),
        })
        .await
        .unwrap();
    assert_eq!(state.waiting.len(), 100);
}

#[tokio::test]
async fn inst_3_a_key_of_another_agent_is_refused() {
    let mut rig = rig();
    rig.run(accept(rig.instance("k"), "first", "e1"))
        .await
        .unwrap();
    let error = rig
        .run(accept(rig.instance("k"), "second", "e2"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::KeyTaken { owner, .. } if owner.as_str() == "first"));
}

#[tokio::test]
async fn inst_5_delete_never_leaves_the_instance_through_a_link() {
    let mut rig = rig();
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    goondan_durable::files::replace(&RealDisk, &precious, b"x").unwrap();
    rig.run(accept(rig.instance("k"), "agent", "e1"))
        .await
        .unwrap();
    let dir = rig.layout.instances(&rig.workspace_id).join("k");
    std::os::unix::fs::symlink(outside.path(), dir.join("work").join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.with_file_name("linked")).unwrap();
    let gone = rig
        .run(Delete {
            instance: rig.instance("k"),
        })
        .await
        .unwrap();
    assert!(gone.existed);
    let gone = rig
        .run(Delete {
            instance: rig.instance("linked"),
        })
        .await
        .unwrap();
    assert!(gone.existed);
    let gone = rig
        .run(Delete {
            instance: rig.instance("k"),
        })
        .await
        .unwrap();
    assert!(!gone.existed);
    assert!(precious.is_file());
    let left = RealDisk
        .list(&rig.layout.instances(&rig.workspace_id))
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn inst_2_metadata_is_written_when_the_instance_is_closed() {
    let mut rig = rig();
    let instance = rig.instance("k");
    rig.run(accept(instance.clone(), "agent", "e1"))
        .await
        .unwrap();
    let turn_id: TurnId = "t1".parse().unwrap();
    let begin = BeginTurn {
        config_digest: None,
        observation: goondan_protocol::observe::ObservationBounds::default(),
        instance: instance.clone(),
        turn_id: turn_id.clone(),
        event_id: "e1".parse().unwrap(),
        at: Timestamp::from_unix_millis(5),
    };
    rig.run(begin).await.unwrap();
    rig.run(Close { instance }).await.unwrap();
    let dir = rig.layout.instances(&rig.workspace_id).join("k");
    let metadata = Metadata::read(&RealDisk, &dir).unwrap();
    assert_eq!(metadata.status, instance::InstanceStatus::Processing);
    assert_eq!(metadata.updated_at, Timestamp::from_unix_millis(5));
    let (with_work, _) = workspace::instances_with_work(&RealDisk, dir.parent().unwrap()).unwrap();
    assert_eq!(with_work.len(), 1);
}

#[tokio::test]
async fn missing_instance_is_reported_and_nothing_is_created() {
    let mut rig = rig();
    let error = rig
        .run(Open {
            instance: rig.instance("nobody"),
        })
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::NoInstance { .. }));
    let left = RealDisk
        .list(&rig.layout.instances(&rig.workspace_id))
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn index_matches_a_fresh_listing_of_the_disk() {
    let mut rig = rig();
    let instances = rig.layout.instances(&rig.workspace_id);
    let on_disk = || workspace::list_instances(&RealDisk, &instances).unwrap().0;
    rig.index.take_up(&rig.workspace_id, &[]);
    for (key, id) in [("a", "e1"), ("b", "e2"), ("a", "e3")] {
        rig.run(accept(rig.instance(key), "agent", id))
            .await
            .unwrap();
    }
    let begin = BeginTurn {
        config_digest: None,
        observation: goondan_protocol::observe::ObservationBounds::default(),
        instance: rig.instance("a"),
        turn_id: "t1".parse().unwrap(),
        event_id: "e1".parse().unwrap(),
        at: Timestamp::from_unix_millis(5),
    };
    rig.run(begin).await.unwrap();
    let listed = rig.index.list(&rig.workspace_id).unwrap();
    assert_eq!(listed[0].status, instance::InstanceStatus::Processing);
    for key in ["a", "b"] {
        rig.run(Close {
            instance: rig.instance(key),
        })
        .await
        .unwrap();
    }
    assert_eq!(rig.index.list(&rig.workspace_id), Some(on_disk()));
    rig.run(Delete {
        instance: rig.instance("a"),
    })
    .await
    .unwrap();
    let listed = rig.index.list(&rig.workspace_id).unwrap();
    assert_eq!(listed, on_disk());
    assert_eq!(listed.len(), 1);
    rig.index.forget(&rig.workspace_id);
    assert_eq!(rig.index.list(&rig.workspace_id), None);
}

fn begin(instance: InstanceRef, turn_id: &str, event_id: &str) -> BeginTurn {
    BeginTurn {
        config_digest: None,
        observation: goondan_protocol::observe::ObservationBounds::default(),
        instance,
        turn_id: turn_id.parse().unwrap(),
        event_id: event_id.parse().unwrap(),
        at: Timestamp::from_unix_millis(5),
    }
}

fn append(instance: InstanceRef, turn_id: &str) -> AppendEvent {
    let event = r#"{"type":"append","message":{"id":"m","data":{"role":"user","content":"hi"},"metadata":{},"createdAt":"2026-01-01T00:00:00.000Z","source":{"type":"user"}}}"#;
    AppendEvent {
        instance,
        turn_id: turn_id.parse().unwrap(),
        seq: 1,
        event: serde_json::from_str(event).unwrap(),
    }
}

/// Number of files this process holds open, by conversation.
#[cfg(target_os = "linux")]
fn open_files(rig: &WriterHarness) -> HashMap<String, usize> {
    let instances = rig.layout.instances(&rig.workspace_id);
    let mut found = HashMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        // The descriptor of the listing itself may be closed already.
        let Ok(path) = std::fs::read_link(entry.unwrap().path()) else {
            continue;
        };
        if let Ok(inside) = path.strip_prefix(&instances) {
            let key = inside.iter().next().unwrap().to_str().unwrap();
            *found.entry(key.to_owned()).or_insert(0) += 1;
        }
    }
    found
}

#[cfg(target_os = "linux")]
#[test]
fn files_of_unused_instances_are_closed() {
    fn run(worker: &mut Worker, op: impl Into<Op>) {
        let op = op.into();
        let mut done = worker.work(&mut vec![StoreJob { token: 0, op }]);
        worker.settle();
        done.remove(0).report.into_done().unwrap();
    }
    let rig = rig();
    let mut worker = Worker::new(Arc::new(RealDisk), rig.layout.clone());
    let (quiet, busy) = (rig.instance("quiet"), rig.instance("busy"));
    for instance in [&quiet, &busy] {
        run(&mut worker, accept(instance.clone(), "agent", "e"));
        run(
            &mut worker,
            Open {
                instance: instance.clone(),
            },
        );
    }
    run(&mut worker, begin(busy.clone(), "t", "e"));
    worker.clear_quiet(true);
    worker.flush_metadata(true);
    let due = worker.next_due().unwrap();
    let delay = Duration::from_millis(INSTANCE_REST_DELAY_MS);
    assert!(due <= Instant::now() + delay);
    worker.tidy(false);
    assert!(open_files(&rig).contains_key("quiet"));

    worker.tidy(true);
    let open = open_files(&rig);
    assert!(
        !open.contains_key("quiet") && open.contains_key("busy"),
        "{open:?}"
    );
    assert_eq!(
        worker.next_due(),
        None,
        "nothing wakes the thread of idle conversations"
    );

    // A process still works with it: the next operation reopens it, and it stays open.
    run(&mut worker, begin(quiet.clone(), "t", "e"));
    run(&mut worker, append(quiet, "t"));
    assert!(open_files(&rig).contains_key("quiet"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn thousands_of_idle_conversations_hold_no_files_open() {
    let mut rig = rig();
    let busy = rig.instance("busy");
    rig.run(accept(busy.clone(), "agent", "e")).await.unwrap();
    rig.run(Open {
        instance: busy.clone(),
    })
    .await
    .unwrap();
    rig.run(begin(busy.clone(), "t", "e")).await.unwrap();
    let count = 3 * WRITER_OPEN_INSTANCES_MAX;
    for n in 0..count {
        let instance = rig.instance(&format!("k{n}"));
        let id = format!("e{n}");
        rig.run(accept(instance.clone(), "agent", &id))
            .await
            .unwrap();
        rig.run(Open { instance }).await.unwrap();
    }
    // Instances left open by a batch are closed before the next one begins.
    let first = rig.instance("k0");
    rig.run(begin(first.clone(), "t0", "e0")).await.unwrap();
    let open = open_files(&rig);
    // One more for each of the two threads, because the last batch may not be settled.
    let most = 2 * (WRITER_OPEN_INSTANCES_MAX + 2);
    assert!(open.len() <= most, "{} are open", open.len());
    assert!(open.contains_key("busy") && open.contains_key("k0"));
    // A thread that writes metadata also has the new file, and then its directory, open.
    let beside: usize = open.values().map(|files| files.saturating_sub(7)).sum();
    assert!(beside <= 2, "{open:?}");

    // Both continue: the instance that stayed open and the one that was closed.
    for (instance, turn_id) in [(busy, "t"), (first, "t0")] {
        rig.run(append(instance.clone(), turn_id)).await.unwrap();
        let complete = CompleteTurn {
            instance: instance.clone(),
            turn_id: turn_id.parse().unwrap(),
            last_seq: 1,
            also: Vec::new(),
            states: BTreeMap::new(),
            outcome: TurnOutcome::Completed { reply: "x".into() },
            at: Timestamp::from_unix_millis(6),
        };
        rig.run(complete).await.unwrap();
        let read = ReadPage {
            instance,
            offset: 0,
            states_of: Vec::new(),
        };
        let page = rig.run(read).await.unwrap();
        assert_eq!((page.messages.len(), page.events.len()), (1, 0));
    }
}

/// Goal: a request that arrives together with the end of a turn sees the state after the turn.
/// Method: all operations in one batch.
#[tokio::test]
async fn msg_13_event_whose_turn_ended_in_the_same_batch_is_finished() {
    let rig = rig();
    let instance = rig.instance("k");
    let mut worker = Worker::new(Arc::new(RealDisk), rig.layout.clone());
    let mut work = |ops: Vec<Op>| -> Vec<Report> {
        let mut batch = (0..)
            .zip(ops)
            .map(|(token, op)| StoreJob { token, op })
            .collect();
        let done = worker.work(&mut batch).into_iter();
        done.map(|completion| completion.report).collect()
    };
    let turn = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let outcome = TurnOutcome::Completed { reply: "hi".into() };
    work(vec![
        accept(instance.clone(), "agent", "e1").into(),
        accept(instance.clone(), "agent", "e2").into(),
        begin(instance.clone(), turn, "e1").into(),
        append(instance.clone(), turn).into(),
    ]);
    let reports = work(vec![
        CompleteTurn {
            instance: instance.clone(),
            turn_id: turn.parse().unwrap(),
            last_seq: 1,
            also: vec!["e2".parse().unwrap()],
            states: BTreeMap::new(),
            outcome: outcome.clone(),
            at: Timestamp::from_unix_millis(6),
        }
        .into(),
        accept(instance.clone(), "agent", "e1").into(),
        LookUpEvent {
            instance: instance.clone(),
            event_id: "e2".parse().unwrap(),
        }
        .into(),
        Inspect {
            instance: instance.clone(),
        }
        .into(),
        Open { instance }.into(),
    ]);
    let over = EventState::Done(outcome);
    let [
        Report::CompleteTurn(Ok(())),
        Report::Accept(Ok(AcceptResult { before, .. })),
        Report::LookUpEvent(Ok(taken_in)),
        Report::Inspect(Ok(inspected)),
        Report::Open(Ok(state)),
    ] = &reports[..]
    else {
        panic!("{reports:#?}")
    };
    assert_eq!((before, taken_in), (&over, &over));
    assert_eq!((inspected.messages, inspected.waiting), (1, 0));
    assert_eq!((&state.open_turn, &state.waiting[..]), (&None, &[][..]));
}

/// A writer on a simulated disk, with an empty workspace.
fn simulated() -> (SimulatedDisk, Worker, InstanceRef) {
    let disk = SimulatedDisk::new();
    let layout = Layout::new(std::path::Path::new("/s"));
    for dir in [std::path::Path::new("/s"), &layout.workspaces()] {
        disk.create_dir(dir).unwrap();
    }
    let project = std::path::Path::new("/p");
    let record = workspace::open(&disk, &layout, project, None).unwrap();
    let instance = InstanceRef {
        workspace_id: record.workspace_id,
        instance_key: "k".parse().unwrap(),
    };
    let worker = Worker::new(Arc::new(disk.clone()), layout);
    (disk, worker, instance)
}

fn done(worker: &mut Worker, ops: Vec<Op>) {
    let jobs = (0..).zip(ops);
    let mut batch = jobs.map(|(token, op)| StoreJob { token, op }).collect();
    for completion in worker.work(&mut batch) {
        completion.report.into_done().unwrap();
    }
    worker.settle();
}

fn complete(instance: InstanceRef, turn_id: &str) -> CompleteTurn {
    CompleteTurn {
        instance,
        turn_id: turn_id.parse().unwrap(),
        last_seq: 1,
        also: Vec::new(),
        states: BTreeMap::new(),
        outcome: TurnOutcome::Completed { reply: "x".into() },
        at: Timestamp::from_unix_millis(6),
    }
}

/// Goal: a turn costs few calls of the disk. Method: turns of a busy conversation, in the batches in
/// which they arrive. Each has an append, a sync and a look at the path for its event and for its
/// end, and two appends for its fold.
#[test]
fn a_turn_takes_eight_calls_of_the_disk() {
    const TURNS: u64 = 16;
    let (disk, mut worker, instance) = simulated();
    let open = Open {
        instance: instance.clone(),
    };
    done(
        &mut worker,
        vec![accept(instance.clone(), "agent", "e").into(), open.into()],
    );
    let before = disk.calls();
    for n in 0..TURNS {
        let (turn, event) = (format!("t{n}"), format!("e{n}"));
        let of_turn = || instance.clone();
        done(&mut worker, vec![accept(of_turn(), "agent", &event).into()]);
        done(&mut worker, vec![begin(of_turn(), &turn, &event).into()]);
        let end = vec![
            append(of_turn(), &turn).into(),
            complete(of_turn(), &turn).into(),
        ];
        done(&mut worker, end);
    }
    let calls = disk.calls() - before;
    assert!(calls <= 8 * TURNS, "{calls} calls for {TURNS} turns");
}

/// Records without a promise are in memory until the next sync, and in their files once the thread
/// has ended. The manifest is then up to date.
#[test]
fn msg_11_staged_records_are_written_when_the_thread_ends() {
    let (disk, mut worker, instance) = simulated();
    let open = Open {
        instance: instance.clone(),
    };
    let accepted = accept(instance.clone(), "agent", "e");
    done(&mut worker, vec![accepted.into(), open.into()]);
    done(&mut worker, vec![begin(instance.clone(), "t", "e").into()]);
    assert!(worker.next_due().is_some(), "the manifest is due");
    let dir = worker.dir_of(&instance);
    let after_crash = || {
        let disk = disk.after_crash(Crash::ProcessOnly);
        let noted = noted_inbox_bytes(&disk, &dir);
        let store = InstanceStore::open(Arc::new(disk), &dir).unwrap();
        (store.state(), noted)
    };
    let (state, noted) = after_crash();
    assert_eq!((state.open_turn, noted), (None, 0));
    assert_eq!(state.waiting.len(), 1, "the event was promised");

    worker.finish();
    let (state, noted) = after_crash();
    assert_eq!(state.open_turn.unwrap().turn_id.as_str(), "t");
    assert!(noted > 0);
}

/// Goal: a manifest that is older than its files reports no loss. Method: turns of a busy
/// conversation, whose journal is cleared in between; after each batch, the files that a killed
/// daemon leaves are verified and opened. The manifest is noted only when the journal is cleared.
#[test]
fn msg_11_older_manifest_after_a_kill_reports_no_loss() {
    const TURNS: usize = 40;
    let (disk, mut worker, instance) = simulated();
    let dir = worker.dir_of(&instance);
    let check = || {
        let disk = disk.after_crash(Crash::ProcessOnly);
        let verified = crate::verify::instance(&disk, &dir).unwrap();
        let worst = verified.worst();
        assert!(worst <= Some(Severity::Info), "{verified:#?}");
        let store = InstanceStore::open(Arc::new(disk), &dir).unwrap();
        let findings = store.state().findings;
        assert!(findings.is_empty(), "{findings:#?}");
    };
    let open = Open {
        instance: instance.clone(),
    };
    let accepted = accept(instance.clone(), "agent", "e");
    done(&mut worker, vec![accepted.into(), open.into()]);
    check();
    for n in 0..TURNS {
        let (turn, event) = (format!("t{n}"), format!("e{n}"));
        let mut message = append(instance.clone(), &turn);
        let text = message
            .event
            .get()
            .replace(r#""id":"m""#, &format!(r#""id":"m{n}""#));
        message.event = serde_json::from_str(&text).unwrap();
        let batches: [Vec<Op>; 3] = [
            vec![accept(instance.clone(), "agent", &event).into()],
            vec![begin(instance.clone(), &turn, &event).into()],
            vec![message.into(), complete(instance.clone(), &turn).into()],
        ];
        for batch in batches {
            done(&mut worker, batch);
            check();
        }
    }
}

/// Size of the inbox by the last line of the instance's manifest.
fn noted_inbox_bytes(disk: &SimulatedDisk, dir: &std::path::Path) -> u64 {
    let mut file = disk.open_read(&dir.join("manifest.jsonl")).unwrap();
    let text = read_all(file.as_mut(), 1 << 20).unwrap();
    let last = text
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty());
    let last: serde_json::Value = last.map_or_else(Default::default, |line| {
        serde_json::from_slice(line).unwrap()
    });
    let bytes = last["files"]["inbox.jsonl"]["bytes"].as_u64();
    bytes.unwrap_or_default()
}

#[tokio::test]
async fn need_1_parked_events_are_read_without_opening_their_conversations() {
    let rig = rig();
    let mut worker = Worker::new(Arc::new(RealDisk), rig.layout.clone());
    let mut work = |ops: Vec<Op>| -> (Vec<Report>, usize) {
        let mut batch = (0..)
            .zip(ops)
            .map(|(token, op)| StoreJob { token, op })
            .collect();
        let done = worker.work(&mut batch).into_iter();
        let reports = done.map(|completion| completion.report).collect();
        (reports, worker.open.len())
    };
    let instances: Vec<InstanceRef> = ["a", "b", "c"].map(|key| rig.instance(key)).to_vec();
    let of_each = |op: &dyn Fn(InstanceRef) -> Vec<Op>| -> Vec<Op> {
        instances.iter().cloned().flat_map(op).collect()
    };
    work(of_each(&|instance| {
        vec![
            accept(instance.clone(), "agent", "e1").into(),
            accept(instance.clone(), "agent", "e2").into(),
            ParkEvent {
                instance,
                event_id: "e1".parse().unwrap(),
                reason: "it crashes".to_owned(),
                at: Timestamp::from_unix_millis(5),
            }
            .into(),
        ]
    }));
    let parked = |reports: &[Report]| -> Vec<String> {
        let parked = reports.iter().flat_map(|report| match report {
            Report::ReadParked(Ok(parked)) => parked.clone(),
            other => panic!("{other:?}"),
        });
        parked
            .map(|parked| format!("{}: {}", parked.event.id, parked.reason))
            .collect()
    };
    let read = || of_each(&|instance| vec![ReadParked { instance }.into()]);
    let expected = ["e1: it crashes"; 3];
    let (reports, open) = work(read());
    assert_eq!(
        (parked(&reports), open),
        (expected.map(str::to_owned).to_vec(), 3)
    );
    let (_, open) = work(of_each(&|instance| vec![Close { instance }.into()]));
    assert_eq!(open, 0);
    let (reports, open) = work(read());
    assert_eq!(
        (parked(&reports), open),
        (expected.map(str::to_owned).to_vec(), 0)
    );

    // A conversation with a turn is recovered first.
    let turn = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let b = rig.instance("b");
    work(vec![
        begin(b.clone(), turn, "e2").into(),
        append(b.clone(), turn).into(),
        Close { instance: b }.into(),
    ]);
    let (reports, open) = work(read());
    assert_eq!(
        (parked(&reports), open),
        (expected.map(str::to_owned).to_vec(), 1)
    );
    let gone = vec![
        ReadParked {
            instance: rig.instance("gone"),
        }
        .into(),
    ];
    let (reports, _) = work(gone);
    assert!(
        matches!(
            reports[..],
            [Report::ReadParked(Err(StoreError::NoInstance { .. }))]
        ),
        "{reports:?}"
    );
}
