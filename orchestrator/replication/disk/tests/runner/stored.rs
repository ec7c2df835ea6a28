//! A real store over a replicated disk, and a second store over the files that the log produces.

use std::path::Path;
use std::sync::Arc;

use goondan_durable::FindingKind;
use goondan_durable::batch::BatchWorker as _;
use goondan_durable::disk::{Crash, Disk, EntryKind, SimulatedDisk};
use goondan_protocol::JsonObject;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::time::Timestamp;
use goondan_replicated_disk::ConfirmPoint;
use goondan_store::instance::InstanceStore;
use goondan_store::root::Layout;
use goondan_store::workspace;
use goondan_store::writer::operation::{
    Accept, AppendEvent, BeginTurn, Close, CompleteTurn, Delete, Observe,
};
use goondan_store::writer::{Op, StoreJob, Worker};
use serde_json::json;

use crate::non_replicated::files;
use crate::world::{Owner, bare, content, dir, replica, workspace};

fn at() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

fn layout() -> Layout {
    Layout::new("/r")
}

fn instance(key: &str) -> InstanceRef {
    InstanceRef {
        workspace_id: workspace(),
        instance_key: key.parse().unwrap(),
    }
}

fn accept(key: &str, event: &str) -> Op {
    let event = AgentEvent {
        id: event.parse().unwrap(),
        kind: "message".into(),
        created_at: at(),
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
    };
    Op::from(Accept {
        instance: instance(key),
        agent: "agent".parse().unwrap(),
        event: Box::new(event),
        former_id: None,
    })
}

/// A turn of an instance with a message and, occasionally, a change of all earlier messages.
fn turn(key: &str, number: usize) -> Vec<Op> {
    let (turn, event) = (format!("t{number}"), format!("e{number}"));
    let message = json!({
        "id": format!("m{number}"), "data": {"role": "user", "content": "x".repeat(300)},
        "metadata": {}, "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
    });
    let mut events = vec![json!({"type": "append", "message": message})];
    if number % 4 == 3 {
        events.insert(0, json!({"type": "truncate"}));
    }
    let mut ops = vec![
        accept(key, &event),
        Op::from(BeginTurn {
            observation: ObservationBounds::default(),
            config_digest: None,
            instance: instance(key),
            turn_id: turn.parse().unwrap(),
            event_id: event.parse().unwrap(),
            at: at(),
        }),
        Op::from(Observe {
            instance: instance(key),
            line: b"{\"type\":\"turn.started\"}\n".to_vec(),
        }),
    ];
    for (seq, event) in (1..).zip(&events) {
        ops.push(Op::from(AppendEvent {
            instance: instance(key),
            turn_id: turn.parse().unwrap(),
            seq,
            event: serde_json::value::to_raw_value(event).unwrap(),
        }));
    }
    ops.push(Op::from(CompleteTurn {
        instance: instance(key),
        turn_id: turn.parse().unwrap(),
        last_seq: events.len() as u64,
        also: Vec::new(),
        states: [("notes".parse().unwrap(), json!({"n": number}))].into(),
        outcome: TurnOutcome::Completed {
            reply: "done".into(),
        },
        at: at(),
    }));
    ops
}

/// Turns of two instances, one of which is deleted and recreated.
fn live(owner: &Owner) {
    let disk: Arc<dyn Disk> = owner.replicated.clone();
    workspace::open(disk.as_ref(), &layout(), Path::new("/p"), None).unwrap();
    let mut worker = Worker::new(Arc::clone(&disk), layout());
    for number in 0..12 {
        let mut ops = turn("a", number);
        ops.extend(turn("b", number));
        if number == 6 {
            ops.push(Op::from(Delete {
                instance: instance("b"),
            }));
        }
        if number % 5 == 4 {
            ops.push(Op::from(Close {
                instance: instance("a"),
            }));
        }
        for op in ops {
            let reports = worker.work(&mut vec![StoreJob { token: 0, op }]);
            for report in reports {
                report.report.into_done().unwrap();
            }
        }
        let is_all = number % 2 == 1;
        if is_all {
            // It is due before the rest, and is synced.
            worker.flush_metadata(true);
        }
        worker.tidy(is_all);
        // Deferred changes do not wait for the next batch.
        assert!(!is_all || owner.recording.is_quiet(&workspace()));
    }
    worker.finish();
    drop(worker);
    disk.confirm(&dir()).unwrap();
}

/// Opens everything like a daemon that takes over the workspace; returns the number of instances.
fn take_over(disk: &SimulatedDisk, context: &str) -> usize {
    workspace::open(disk, &layout(), Path::new("/p"), None).unwrap();
    let instances = layout().instances(&workspace());
    let mut count = 0;
    for entry in disk.list(&instances).unwrap() {
        assert_eq!(entry.kind, EntryKind::Directory, "{context}");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = InstanceStore::open(shared, &instances.join(&entry.name)).unwrap();
        // Expected findings after a crash.
        let harmless = [FindingKind::TornTail, FindingKind::UnfinishedWork];
        let findings = store.state().findings;
        let is_harmless = findings.iter().all(|found| harmless.contains(&found.kind));
        assert!(is_harmless, "{context}: {findings:#?}");
        count += 1;
    }
    count
}

#[test]
fn rep_1_standby_files_equal_the_store_byte_for_byte() {
    for waits in [ConfirmPoint::AtEachSync, ConfirmPoint::AtConfirm] {
        let owner = Owner::new(waits);
        live(&owner);
        owner.is_replayed("a store");
        let standby = bare();
        let mut made = replica(&standby);
        made.apply(&owner.operations()).unwrap().unwrap();
        let names = files(&owner.disk, &dir());
        assert!(names.len() > 10, "{names:?}");
        assert_eq!(files(&standby, &dir()), names);
        for name in names {
            assert_eq!(
                content(&standby, &name),
                content(&owner.disk, &name),
                "{name:?}"
            );
        }
    }
}

#[test]
fn rep_1_store_recovers_from_any_prefix_of_the_log() {
    let owner = Owner::new(ConfirmPoint::AtEachSync);
    live(&owner);
    let standby = bare();
    let mut made = replica(&standby);
    let mut most = 0;
    let batches = owner.batches();
    for (number, operations) in batches.iter().enumerate() {
        made.apply(operations).unwrap().unwrap();
        let taken_over = standby.after_crash(Crash::ProcessOnly);
        let context = format!("behind batch {} of {}", number + 1, batches.len());
        most = most.max(take_over(&taken_over, &context));
    }
    assert_eq!(most, 2);
}
