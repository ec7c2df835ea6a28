//! Runs steps on a store on a simulated disk, and reads the resulting state.

use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Crash, Disk, SimulatedDisk, read_all};
use goondan_durable::{FileError, Finding, Severity};
use goondan_protocol::control::EventPlace;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{ExtensionStates, InstanceRef, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::StoreError;
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::{EventState, InstanceStore, PendingReplyRecord, QueueOp};
use goondan_store::root::Layout;
use goondan_store::workspace;
use goondan_store::writer::operation::{
    Accept, AppendEvent, ArrangeEvent, Audit, AwaitReply, BeginTurn, Close, CompleteTurn, Delete,
    DropEvent, ForgoReply, NoteAttempt, Observe, ParkEvent, RetryEvent, VerifyInstance,
};
use goondan_store::writer::{Op, Report, StoreJob, Worker};
use serde_json::{Value, json};

use crate::model::{Batch, Change, INSTANCES, ModelQueueOp, ModelStep, ModelView, World};

const PROJECT: &str = "/p";

pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

pub(crate) fn layout() -> Layout {
    Layout::new("/s")
}

/// Returns a durable disk with an empty workspace, and the workspace's id.
pub(crate) fn fresh() -> (SimulatedDisk, WorkspaceId) {
    let disk = SimulatedDisk::new();
    for dir in ["/s", "/s/workspaces"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    for dir in ["/", "/s"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    let record = workspace::open(&disk, &layout(), Path::new(PROJECT), None).unwrap();
    (disk, record.workspace_id)
}

fn event(id: &str) -> AgentEvent {
    AgentEvent {
        id: id.parse().unwrap(),
        kind: "message".into(),
        created_at: at(),
        trace_id: None,
        parent_span_id: None,
        input: Some(format!("input of {id}")),
        header: None,
        properties: goondan_protocol::JsonObject::new(),
        instance_key: None,
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

fn op(workspace_id: &WorkspaceId, step: &ModelStep) -> Op {
    let instance = InstanceRef {
        workspace_id: workspace_id.clone(),
        instance_key: step.instance().unwrap_or("none").parse().unwrap(),
    };
    let at = at();
    match step {
        ModelStep::Accept(_, id) => Op::from(Accept {
            instance,
            agent: "agent".parse().unwrap(),
            event: Box::new(event(id)),
            former_id: None,
        }),
        ModelStep::Begin(_, turn, event) => Op::from(BeginTurn {
            observation: goondan_protocol::observe::ObservationBounds::default(),
            config_digest: None,
            instance,
            turn_id: turn.parse().unwrap(),
            event_id: event.parse().unwrap(),
            at,
        }),
        ModelStep::Append(_, turn, seq, change) => Op::from(AppendEvent {
            instance,
            turn_id: turn.parse().unwrap(),
            seq: *seq,
            event: serde_json::value::to_raw_value(&change.to_json()).unwrap(),
        }),
        ModelStep::Complete(_, turn, last_seq) => Op::from(CompleteTurn {
            instance,
            turn_id: turn.parse().unwrap(),
            last_seq: *last_seq,
            also: Vec::new(),
            states: remembered(*last_seq),
            outcome: TurnOutcome::Completed {
                reply: format!("reply of {turn}"),
            },
            at,
        }),
        ModelStep::CompleteWith(_, turn, last_seq, also) => Op::from(CompleteTurn {
            instance,
            turn_id: turn.parse().unwrap(),
            last_seq: *last_seq,
            also: also.iter().map(|id| id.parse().unwrap()).collect(),
            states: remembered(*last_seq),
            outcome: TurnOutcome::Completed {
                reply: format!("reply of {turn}"),
            },
            at,
        }),
        ModelStep::Await(_, question, reply) => Op::from(AwaitReply {
            instance,
            awaited: Box::new(PendingReplyRecord {
                question: question.parse().unwrap(),
                target: "helper".parse().unwrap(),
                reply: event(reply),
            }),
            at,
        }),
        ModelStep::Forgo(_, question) => Op::from(ForgoReply {
            instance,
            question: question.parse().unwrap(),
            at,
        }),
        ModelStep::Attempts(_, event, attempts) => Op::from(NoteAttempt {
            instance,
            event_id: event.parse().unwrap(),
            attempts: *attempts,
            at,
        }),
        ModelStep::Park(_, event) => Op::from(ParkEvent {
            instance,
            event_id: event.parse().unwrap(),
            reason: "it crashed".into(),
            at,
        }),
        ModelStep::Retry(_, event) => Op::from(RetryEvent {
            instance,
            event_id: event.parse().unwrap(),
            at,
        }),
        ModelStep::Drop(_, event) => Op::from(DropEvent {
            instance,
            event_id: event.parse().unwrap(),
            at,
        }),
        ModelStep::Arrange(_, event, arranged) => Op::from(ArrangeEvent {
            instance,
            event_id: event.parse().unwrap(),
            arrangement: match arranged {
                ModelQueueOp::Pause => QueueOp::Pause,
                ModelQueueOp::Resume => QueueOp::Resume,
                ModelQueueOp::First => QueueOp::Move(EventPlace::First),
                ModelQueueOp::Last => QueueOp::Move(EventPlace::Last),
                ModelQueueOp::Before(other) => {
                    QueueOp::Move(EventPlace::Before(other.parse().unwrap()))
                }
            },
            at,
        }),
        ModelStep::Observe(_) => Op::from(Observe {
            instance,
            line: b"{\"type\":\"turn.started\"}\n".to_vec(),
        }),
        ModelStep::Verify(_) => Op::from(VerifyInstance {
            instance,
            repair: true,
            at,
        }),
        ModelStep::Close(_) => Op::from(Close { instance }),
        ModelStep::Delete(_) => Op::from(Delete { instance }),
        ModelStep::Audit(n) => Op::from(Audit {
            workspace_id: workspace_id.clone(),
            record: goondan_protocol::JsonObject::from_iter([("n".to_owned(), json!(n))]),
        }),
    }
}

/// Returns the extension state set by a turn that ends with this event.
fn remembered(last_seq: u64) -> ExtensionStates {
    [("notes".parse().unwrap(), json!({"n": last_seq}))].into()
}

/// Idle time between batches for deferred work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchPace {
    /// After every second batch: bases are synced and journals cleared.
    Quiet,
    /// Never: turns accumulate in the journal.
    Busy,
}

pub(crate) const PACES: [BatchPace; 2] = [BatchPace::Quiet, BatchPace::Busy];

/// Runs batches until one fails; returns the number of acknowledged batches and the failure.
pub(crate) fn perform(
    disk: &SimulatedDisk,
    workspace_id: &WorkspaceId,
    batches: &[Batch],
    pace: BatchPace,
) -> (usize, Option<StoreError>) {
    let mut worker = Worker::new(Arc::new(disk.clone()), layout());
    perform_with(&mut worker, workspace_id, batches, pace)
}

/// As [`perform`], with a writer that can continue afterwards.
pub(crate) fn perform_with(
    worker: &mut Worker,
    workspace_id: &WorkspaceId,
    batches: &[Batch],
    pace: BatchPace,
) -> (usize, Option<StoreError>) {
    for (done, batch) in batches.iter().enumerate() {
        let mut jobs: Vec<StoreJob> = (0..)
            .zip(batch)
            .map(|(token, step)| StoreJob {
                token,
                op: op(workspace_id, step),
            })
            .collect();
        let reports = worker.work(&mut jobs);
        assert_eq!(reports.len(), batch.len());
        for report in reports {
            if let Report::VerifyInstance(Ok(found)) = &report.report {
                assert!(found.worst() <= Some(Severity::Info), "{found:#?}");
            }
            if let Err(error) = report.report.into_done() {
                return (done, Some(error));
            }
        }
        if pace == BatchPace::Quiet && done % 2 == 1 {
            worker.tidy(true);
        }
    }
    (batches.len(), None)
}

/// Runs batches with one writer, repeats failed steps once like a sender, then reads the state.
pub(crate) fn perform_again(
    disk: &SimulatedDisk,
    workspace_id: &WorkspaceId,
    batches: &[Batch],
) -> Result<World, String> {
    let mut worker = Worker::new(Arc::new(disk.clone()), layout());
    for step in batches.iter().flatten() {
        let mut results = (0..2).map(|token| {
            let op = op(workspace_id, step);
            let mut reports = worker.work(&mut vec![StoreJob { token, op }]);
            reports.remove(0).report.into_done()
        });
        let is_done = results.any(|result| match result {
            Ok(()) => true,
            // A failed step may have reached the disk anyway; then it is refused as a duplicate.
            Err(error) => !error.is_io(),
        });
        if !is_done {
            return Err(format!("{step:?} failed twice"));
        }
    }
    drop(worker);
    let healed = disk.after_crash(Crash::KeepUnsynced);
    let found = look(&healed, workspace_id, &events_of(batches));
    found
        .map(|(world, _)| world)
        .map_err(|error| error.to_string())
}

/// Findings while reading the state.
pub(crate) type Findings = Vec<Finding>;

/// Opens everything like a starting daemon and reads the state. `events` lists all possible events.
pub(crate) fn look(
    disk: &SimulatedDisk,
    workspace_id: &WorkspaceId,
    events: &[String],
) -> Result<(World, Findings), StoreError> {
    workspace::open(disk, &layout(), Path::new(PROJECT), None)?;
    let mut world = World::default();
    let mut findings = Vec::new();
    let instances = layout().instances(workspace_id);
    let (_, unusable) = workspace::list_instances(disk, &instances)?;
    if let Some(first) = unusable.into_iter().next() {
        return Err(first.error);
    }
    for key in INSTANCES {
        let dir = instances.join(instance_dir_name(&key.parse().unwrap()));
        let stat = disk.stat(&dir).map_err(|source| FileError::Io {
            operation: "inspect",
            path: dir.clone(),
            source,
        })?;
        if stat.is_none() {
            continue;
        }
        let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir)?;
        let seen = look_at(&mut store, events, &mut findings)?;
        // An instance created for an event that was never acknowledged is empty.
        if seen != ModelView::default() {
            world.instances.insert(key, seen);
        }
    }
    let audit = layout().workspace(workspace_id).join("audit.jsonl");
    let text = disk.open_read(&audit).and_then(|mut file| {
        let bytes = read_all(file.as_mut(), 1 << 20)?;
        Ok(String::from_utf8(bytes).unwrap())
    });
    match text {
        Ok(text) => {
            let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
            let records = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
            world.audit = records
                .map(|value| u32::try_from(value["n"].as_u64().unwrap()).unwrap())
                .collect();
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(FileError::Io {
                operation: "read",
                path: audit,
                source,
            }
            .into());
        }
    }
    Ok((world, findings))
}

pub(crate) fn look_at(
    store: &mut InstanceStore,
    events: &[String],
    findings: &mut Findings,
) -> Result<ModelView, StoreError> {
    let mut seen = ModelView::default();
    let state = store.state();
    findings.extend(state.findings);
    let mut offset = Some(0);
    while let Some(from) = offset {
        let page = store.page(from)?;
        findings.extend(page.damage);
        for raw in page.messages.iter() {
            let value: Value = serde_json::from_slice(raw).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            seen.messages
                .push((text(&value["id"]), text(&value["data"]["content"])));
        }
        for raw in page.events {
            let value: Value = serde_json::from_str(raw.get()).unwrap();
            seen.pending.push(Change::of_json(&value));
        }
        offset = page.next;
    }
    seen.open = state.open_turn.map(|open| {
        let event = open.event.map(|event| event.event_id.to_string());
        (open.turn_id.to_string(), event.unwrap_or_default())
    });
    let waiting = state.waiting.iter();
    seen.waiting = waiting.map(|event| event.id.to_string()).collect();
    seen.paused = state.paused.iter().map(ToString::to_string).collect();
    for parked in state.parked {
        if parked.attempts > 0 {
            seen.attempts
                .insert(parked.event.id.to_string(), parked.attempts);
        }
        seen.parked.push(parked.event.id.to_string());
    }
    let attempts = state.attempts.into_iter();
    seen.attempts
        .extend(attempts.map(|(event, attempts)| (event.to_string(), attempts)));
    let awaiting = state.awaiting.iter();
    seen.awaiting = awaiting
        .map(|awaited| (awaited.question.to_string(), awaited.reply.id.to_string()))
        .collect();
    seen.awaiting.sort();
    for event in events {
        if let EventState::Done(outcome) = store.event_state(&event.parse().unwrap())? {
            let how = match outcome {
                TurnOutcome::Completed { reply } => reply,
                TurnOutcome::Failed { code, .. } => code,
            };
            seen.ended.insert(event.clone(), how);
        }
    }
    let notes = store.extension_state(&"notes".parse().unwrap())?;
    seen.extension = notes.map(|value| u32::try_from(value["n"].as_u64().unwrap()).unwrap());
    Ok(seen)
}

/// Returns every event in the batches.
pub(crate) fn events_of(batches: &[Batch]) -> Vec<String> {
    let mut events: Vec<String> = batches
        .iter()
        .flatten()
        .filter_map(|step| match step {
            ModelStep::Accept(_, event) => Some(event.clone()),
            _ => None,
        })
        .collect();
    events.sort();
    events.dedup();
    events
}

/// Crashes tried at each interruption.
pub(crate) fn crashes(seeds: std::ops::Range<u64>) -> Vec<Crash> {
    let subsets = seeds.map(Crash::Subset);
    [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly]
        .into_iter()
        .chain(subsets)
        .collect()
}
