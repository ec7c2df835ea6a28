//! Joins in a core with the real store, on a disk that loses what is not synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use goondan_durable::disk::{Crash, Disk, SimulatedDisk};
use goondan_protocol::control::{Call, SendResult};
use goondan_protocol::event_join::JoinTimeout;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use goondan_store::ledger;
use goondan_store::root::Layout;
use goondan_store::workspace;
use goondan_store::writer::{StoreJob, Worker};
use serde_json::{Value, json};

use super::super::event_queue::EventOrigin;
use super::super::join_sets::tests::part;
use super::*;
use crate::simulation::config::Edit;
use crate::{
    Accounts, ClockTime, Core, CoreEffect, CoreInput, Facts, LoadPurpose, LoadedWorkspace, Peer,
    StandingApprovals, UnknownCalls, WorkspaceLoadResult,
};

const WAITS: &str = "waits";

/// A daemon with its disk, without processes: no turn begins.
struct World {
    disk: SimulatedDisk,
    layout: Layout,
    worker: Worker,
    core: Core,
    jobs: Vec<StoreJob>,
    now_ms: i64,
    mono_ms: u64,
    boots: u128,
    next_token: u64,
    responses: BTreeMap<u64, Result<Value, ControlError>>,
}

fn new_core(layout: &Layout, boots: u128) -> Core {
    let facts = Facts {
        layout: layout.clone(),
        pid: 1,
        started_at: Timestamp::from_unix_millis(0),
        log_dir: None,
        cgroup: None,
        program: None,
        is_memory_open: false,
        restored: None,
        node: None,
    };
    let mut next = boots << 64;
    Core::new(facts, move || {
        next += 1;
        uuid::Uuid::from_u128(next)
    })
}

impl World {
    fn new() -> Self {
        let disk = SimulatedDisk::new();
        let layout = Layout::new("/root");
        for dir in [layout.root().to_owned(), layout.workspaces()] {
            disk.create_dir(&dir).unwrap();
        }
        disk.sync_dir(std::path::Path::new("/")).unwrap();
        disk.sync_dir(layout.root()).unwrap();
        let mut world = Self {
            worker: Worker::new(Arc::new(disk.clone()), layout.clone()),
            core: new_core(&layout, 0),
            disk,
            layout,
            jobs: Vec::new(),
            now_ms: 1_000,
            mono_ms: 1_000,
            boots: 0,
            next_token: 0,
            responses: BTreeMap::new(),
        };
        world.load();
        world
    }

    fn at(&self) -> InstanceRef {
        let workspace = self.core.fleet.workspaces().keys().next();
        InstanceRef {
            workspace_id: workspace.unwrap().clone(),
            instance_key: "main".parse().unwrap(),
        }
    }

    fn load(&mut self) {
        let project = std::path::Path::new("/projects/shop");
        let record = workspace::open(&self.disk, &self.layout, project, None).unwrap();
        let id = record.workspace_id.clone();
        let instances = self.layout.instances(&id);
        let (with_work, _) = workspace::instances_with_work(&self.disk, &instances).unwrap();
        let ledger = ledger::read(&self.disk, &self.layout, &id).unwrap();
        let loaded = WorkspaceLoadResult {
            purpose: LoadPurpose::Start,
            workspace_id: Some(id),
            sources: Default::default(),
            result: Ok(LoadedWorkspace {
                record,
                bundle: Edit::Valid(0).bundle(),
                fallback: None,
                may_be_kept: false,
                accounts: Accounts::of(&ledger.lines),
                unknown_calls: UnknownCalls::default(),
                standing: StandingApprovals::default(),
                schedules: Vec::new(),
                with_work,
                parked: BTreeMap::new(),
                to_begin_anew: Vec::new(),
            }),
        };
        self.step(CoreInput::Loaded(Box::new(loaded)));
    }

    fn clock(&self) -> ClockTime {
        ClockTime {
            mono_ms: self.mono_ms,
            wall: Timestamp::from_unix_millis(self.now_ms),
        }
    }

    fn step(&mut self, input: CoreInput) {
        let effects = self.core.handle(self.clock(), input);
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<CoreEffect>) {
        for effect in effects {
            match effect {
                CoreEffect::Store(job) => self.jobs.push(job),
                CoreEffect::Respond { token, result } => {
                    self.responses.insert(token.0, result);
                }
                _ => {}
            }
        }
    }

    /// Executes the oldest jobs. With `is_reported`, the core gets their results.
    fn work(&mut self, count: usize, is_reported: bool) {
        let rest = self.jobs.split_off(count.min(self.jobs.len()));
        let mut batch = std::mem::replace(&mut self.jobs, rest);
        for completion in self.worker.work(&mut batch) {
            if is_reported {
                self.step(CoreInput::Stored(completion));
            }
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        self.mono_ms += 250;
        self.step(CoreInput::Tick);
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.pass(0);
            while !self.jobs.is_empty() {
                self.work(usize::MAX, true);
            }
        }
    }

    /// Kills the daemon, or the machine.
    fn kill(&mut self, crash: Crash) {
        self.disk = self.disk.after_crash(crash);
        self.worker = Worker::new(Arc::new(self.disk.clone()), self.layout.clone());
        self.jobs.clear();
        self.boots += 1;
        self.core = new_core(&self.layout, self.boots);
        self.load();
    }

    /// A sender submits a part. Its acknowledgment is the response with the returned token.
    fn send(&mut self, id: &str, name: &str, key: &str, on_timeout: JoinTimeout) -> u64 {
        let event = part(id, name, Some(key), self.clock().wall, on_timeout);
        self.next_token += 1;
        let token = RequestToken(self.next_token);
        let at = self.at();
        let agent = "clerk".parse().unwrap();
        let sent = SendResult {
            event_id: event.id.clone(),
            instance_key: at.instance_key.clone(),
            agent,
            trace_id: TraceId::from_uuid(uuid::Uuid::from_u128(1)),
            duplicate: false,
            outcome: None,
        };
        let agent = sent.agent.clone();
        let wait = false;
        let now = self.clock();
        let fleet = &mut self.core.fleet;
        fleet.cx().begin(now);
        let (workspace, cx) = fleet.workspace_and_cx(&at.workspace_id).unwrap();
        let origin = EventOrigin::Client { token, sent, wait };
        workspace.accept(cx, at, &agent, event, origin);
        let effects = fleet.cx().take_effects();
        self.take(effects);
        self.next_token
    }

    fn is_accepted(&self, token: u64) -> bool {
        matches!(self.responses.get(&token), Some(Ok(_)))
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, ControlError> {
        self.next_token += 1;
        let call: Call =
            serde_json::from_value(json!({"method": method, "params": params})).unwrap();
        self.step(CoreInput::Request {
            token: RequestToken(self.next_token),
            peer: Peer::person(),
            call: Box::new(call),
        });
        self.settle();
        self.responses.remove(&self.next_token).unwrap()
    }

    /// The events that wait: of an input its parts in their order, of a part [`WAITS`].
    fn queue(&self) -> Vec<Vec<String>> {
        let at = self.at();
        let workspace = self.core.fleet.workspaces().get(&at.workspace_id).unwrap();
        let Some(entry) = workspace.conversations.get(&at.instance_key) else {
            return Vec::new();
        };
        let told = entry.queue().events().map(|event| match &event.join {
            Some(goondan_protocol::event_join::EventJoin::Whole { parts, .. }) => {
                let own = event.id.to_string();
                parts.iter().map(ToString::to_string).chain([own]).collect()
            }
            _ => vec![WAITS.to_owned(), event.id.to_string()],
        });
        told.collect()
    }

    /// State and reason of the events, as they are listed.
    fn listed(&mut self) -> Vec<(String, String)> {
        let (at, now) = (self.at(), self.clock().wall);
        let fleet = &mut self.core.fleet;
        let (workspace, _) = fleet.workspace_and_cx(&at.workspace_id).unwrap();
        let events = workspace.events_of(&at, &"clerk".parse().unwrap(), Vec::new(), now);
        let told = events.into_iter().map(|event| {
            let standing = event.standing.as_str().to_owned();
            (standing, event.reason.unwrap_or_default())
        });
        told.collect()
    }

    fn of_event(&self, id: &str) -> Value {
        json!({"workspaceId": self.at().workspace_id, "instanceKey": "main", "eventId": id})
    }
}

fn strings<const N: usize>(list: [&str; N]) -> Vec<String> {
    list.map(str::to_owned).to_vec()
}

#[test]
fn ipc_3_parts_wait_and_then_are_one_input() {
    let mut world = World::new();
    let first = world.send("1", "build", "x", JoinTimeout::Deliver);
    assert!(!world.is_accepted(first), "it is not durable yet");
    world.settle();
    assert!(world.is_accepted(first));
    assert_eq!(world.queue(), [strings([WAITS, "1"])]);
    let [(standing, reason)] = &world.listed()[..] else {
        panic!("one event waits")
    };
    assert_eq!(standing, "joining");
    assert!(reason.contains("waits for `review` until"), "{reason}");
    // The same event again is not another part.
    let again = world.send("1", "build", "x", JoinTimeout::Deliver);
    world.settle();
    assert_eq!(world.responses[&again].as_ref().unwrap()["duplicate"], true);
    world.send("2", "review", "x", JoinTimeout::Deliver);
    world.settle();
    assert_eq!(world.queue(), [strings(["1", "2"])]);
    let again = world.send("1", "build", "x", JoinTimeout::Deliver);
    world.settle();
    assert_eq!(world.responses[&again].as_ref().unwrap()["duplicate"], true);
    assert_eq!(world.queue(), [strings(["1", "2"])]);
}

#[test]
fn ipc_3_late_sets_are_delivered_or_dropped_also_after_a_restart() {
    let mut world = World::new();
    world.send("1", "build", "x", JoinTimeout::Deliver);
    world.send("2", "build", "y", JoinTimeout::Drop);
    world.settle();
    world.pass(99);
    world.settle();
    assert_eq!(world.queue().len(), 2);
    world.kill(Crash::LoseUnsynced);
    world.now_ms += 1;
    world.settle();
    assert_eq!(world.queue(), [strings(["1"])]);
    // The outcome is durable, and names the cause.
    world.kill(Crash::LoseUnsynced);
    let again = world.send("2", "build", "y", JoinTimeout::Drop);
    world.settle();
    let again = world.responses[&again].as_ref().unwrap();
    let expected = json!({
        "status": "failed",
        "code": "E_JOIN_TIMEOUT",
        "message": "the other parts of its join did not arrive in time",
    });
    assert_eq!(again["outcome"], expected, "{again}");
}

#[test]
fn steer_2_a_person_releases_or_drops_what_waits() {
    let mut world = World::new();
    world.send("1", "build", "x", JoinTimeout::Drop);
    world.send("2", "build", "y", JoinTimeout::Drop);
    world.settle();
    let refused = world.call("event.pause", &world.of_event("1")).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidRequest);
    world.call("event.resume", &world.of_event("1")).unwrap();
    world.call("event.cancel", &world.of_event("2")).unwrap();
    assert_eq!(world.queue(), [strings(["1"])]);
    let gone = world.call("event.resume", &world.of_event("2"));
    assert!(gone.is_err());
    let again = world.send("2", "build", "y", JoinTimeout::Drop);
    world.settle();
    let again = world.responses[&again].as_ref().unwrap();
    assert_eq!(again["outcome"]["code"], "E_CANCELLED", "{again}");
}

#[test]
fn ipc_3_more_parts_than_may_wait_are_refused() {
    let mut world = World::new();
    let max = crate::limits::JOIN_PARTS_WAITING_MAX;
    for n in 0..max {
        let token = world.send(
            &n.to_string(),
            "build",
            &n.to_string(),
            JoinTimeout::Deliver,
        );
        if n % 50 == 49 {
            world.settle();
            assert!(world.is_accepted(token));
        }
    }
    let token = world.send("over", "build", "over", JoinTimeout::Deliver);
    let refused = world.responses[&token].as_ref().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Overloaded);
}

fn number(id: &str) -> usize {
    id.parse().unwrap()
}

/// True for the events of the key `z`, whose late sets are dropped.
fn is_dropped(id: &str) -> bool {
    number(id) / 2 % 3 == 2
}

/// Kills, failing disks, jumps of the clock, repeated events and people at random: each accepted part
/// is in one input, or ended as its terms or a person say.
#[test]
fn msg_13_each_part_is_in_one_input_over_any_kill() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let mut sent: Vec<(u64, String)> = Vec::new();
        for n in 0..300 {
            match rng.u8(0..100) {
                0..30 => {
                    // A quarter is a repetition, as of a sender without an answer.
                    let id = match rng.usize(0..4) {
                        0 if !sent.is_empty() => sent[rng.usize(0..sent.len())].1.clone(),
                        _ => n.to_string(),
                    };
                    let name = ["build", "review"][number(&id) % 2];
                    let key = ["x", "y", "z"][number(&id) / 2 % 3];
                    let on_timeout = match is_dropped(&id) {
                        true => JoinTimeout::Drop,
                        false => JoinTimeout::Deliver,
                    };
                    let token = world.send(&id, name, key, on_timeout);
                    sent.push((token, id));
                }
                30..70 => world.work(rng.usize(1..4), true),
                70..85 => world.pass(rng.i64(0..40)),
                85..88 => world.pass(-rng.i64(0..40)),
                88..91 => {
                    let call = world.disk.calls() + rng.u64(0..20);
                    world.disk.crash_at(call);
                    world.work(usize::MAX, false);
                    let crash = [
                        Crash::LoseUnsynced,
                        Crash::KeepUnsynced,
                        Crash::Subset(seed),
                    ];
                    world.kill(crash[rng.usize(0..3)]);
                }
                91..94 => {
                    world.work(rng.usize(0..4), false);
                    world.kill(Crash::KeepUnsynced);
                }
                _ => {
                    let queue = world.queue();
                    if let Some(id) = queue.first().and_then(|it| it.last()) {
                        let of = world.of_event(id);
                        let method = ["event.resume", "event.pause"][rng.usize(0..2)];
                        let _decided = world.call(method, &of);
                    }
                }
            }
        }
        // The clock may have been set back.
        world.now_ms += 10_000;
        world.kill(Crash::LoseUnsynced);
        world.settle();
        let queue = world.queue();
        let waits = queue.iter().filter(|it| it[0] == WAITS).count();
        assert_eq!(waits, 0, "seed {seed}: {queue:?}");
        let mut inputs: Vec<&String> = queue.iter().flatten().collect();
        let count = inputs.len();
        inputs.sort();
        inputs.dedup();
        assert_eq!(inputs.len(), count, "seed {seed}: a part is in two inputs");
        let missing = sent
            .iter()
            .filter(|(token, id)| world.is_accepted(*token) && inputs.binary_search(&id).is_err());
        let missing: Vec<String> = missing.map(|(_, id)| id.clone()).collect();
        for id in missing {
            let again = world.send(&id, "build", "x", JoinTimeout::Deliver);
            world.settle();
            let again = world.responses[&again].as_ref().unwrap();
            assert_eq!(again["duplicate"], true, "seed {seed}: event {id} was lost");
            assert!(
                is_dropped(&id),
                "seed {seed}: event {id} ended without a turn"
            );
            assert_eq!(
                again["outcome"]["code"], "E_JOIN_TIMEOUT",
                "seed {seed}: {again}"
            );
            assert_eq!(world.queue(), queue, "seed {seed}: event {id} waits again");
        }
    }
}
