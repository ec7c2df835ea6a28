//! Tests of schedules in a core whose store, clock and kills the test plays.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::JsonObject;
use goondan_protocol::control::{Call, SchedulesPage};
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::EventId;
use goondan_protocol::schedule::{ScheduleTime, ScheduledInput};
use goondan_store::instance::EventState;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::operation::AcceptResult;
use goondan_store::writer::{Op, Report, StoreCompletion, StoreJob};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::simulation::config::Edit;
use crate::{
    Accounts, ClientOrigin, ClockTime, Core, CoreEffect, CoreInput, Facts, LoadPurpose,
    LoadedWorkspace, Peer, ProcessId, RequestToken, StandingApprovals, UnknownCalls,
    WorkspaceLoadResult,
};

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn conversation() -> InstanceRef {
    InstanceRef {
        workspace_id: "w".parse().unwrap(),
        instance_key: "main".parse().unwrap(),
    }
}

fn requester(request_id: u64) -> Requester {
    Requester {
        at: conversation(),
        process: ProcessId(1),
        request_id: Some(request_id),
    }
}

fn creator() -> ScheduleCreator {
    ScheduleCreator {
        agent: "clerk".parse().unwrap(),
        auth: Some(JsonObject::from_iter([("user".to_owned(), json!("ada"))])),
        connection: "chat".parse().ok(),
        metadata: JsonObject::from_iter([("chat".to_owned(), json!(7))]),
    }
}

fn cron(cron: &str) -> RequestedTime {
    RequestedTime::Cron {
        cron: cron.to_owned(),
        time_zone: "UTC".to_owned(),
    }
}

/// A daemon with its disk: `schedules.json`, and the inbox.
struct World {
    core: Core,
    edit: Edit,
    now: Timestamp,
    mono_ms: u64,
    stored: Option<Box<RawValue>>,
    inbox: Vec<AgentEvent>,
    jobs: Vec<StoreJob>,
    responses: Vec<Result<Value, ControlError>>,
    logged: Vec<&'static str>,
    uuids: u128,
}

impl World {
    fn new(now: &str) -> Self {
        let now = instant(now);
        let mut world = Self {
            core: new_core(now, 0),
            edit: Edit::Valid(0),
            now,
            mono_ms: 1_000,
            stored: None,
            inbox: Vec::new(),
            jobs: Vec::new(),
            responses: Vec::new(),
            logged: Vec::new(),
            uuids: 0,
        };
        world.load();
        world
    }

    fn load(&mut self) {
        let record = WorkspaceRecord {
            workspace_id: conversation().workspace_id,
            project_root: "/project".into(),
            package: None,
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        };
        let stored = self.stored.iter().map(|content| StoredSchedules {
            instance_key: conversation().instance_key,
            agent_name: "clerk".parse().unwrap(),
            content: Ok(content.clone()),
        });
        let loaded = WorkspaceLoadResult {
            purpose: LoadPurpose::Start,
            workspace_id: Some(conversation().workspace_id),
            sources: Default::default(),
            result: Ok(LoadedWorkspace {
                record,
                bundle: self.edit.bundle(),
                fallback: None,
                may_be_kept: false,
                accounts: Accounts::default(),
                unknown_calls: UnknownCalls::default(),
                standing: StandingApprovals::default(),
                schedules: stored.collect(),
                with_work: Vec::new(),
                parked: BTreeMap::new(),
                to_begin_anew: Vec::new(),
            }),
        };
        self.step(CoreInput::Loaded(Box::new(loaded)));
    }

    /// Kills the daemon: operations in progress have no effect, unless [`Self::perform`] was called.
    fn restart(&mut self) {
        self.uuids += 1_000_000;
        self.core = new_core(self.now, self.uuids);
        self.jobs.clear();
        self.load();
    }

    fn step(&mut self, input: CoreInput) {
        let now = ClockTime {
            mono_ms: self.mono_ms,
            wall: self.now,
        };
        let effects = self.core.handle(now, input);
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<CoreEffect>) {
        for effect in effects {
            match effect {
                CoreEffect::Store(job)
                    if matches!(job.op, Op::Accept(_) | Op::KeepSchedules(_)) =>
                {
                    self.jobs.push(job);
                }
                CoreEffect::Respond { result, .. } => self.responses.push(result),
                CoreEffect::Log(event) => self.logged.push(event.message),
                _ => {}
            }
        }
    }

    fn tick(&mut self) {
        self.mono_ms += 250;
        self.step(CoreInput::Tick);
    }

    /// Sets the clock and lets time pass until nothing happens.
    fn settle(&mut self, now: &str) {
        self.now = instant(now);
        self.tick();
        while let Some(job) = self.next_job() {
            let report = self.perform(&job);
            self.report(&job, report);
        }
    }

    fn next_job(&mut self) -> Option<StoreJob> {
        (!self.jobs.is_empty()).then(|| self.jobs.remove(0))
    }

    /// Executes an operation on disk.
    fn perform(&mut self, job: &StoreJob) -> Report {
        match &job.op {
            Op::Accept(accept) => {
                let known = self.inbox.iter().any(|event| event.id == accept.event.id);
                if !known {
                    self.inbox.push((*accept.event).clone());
                }
                let before = if known {
                    EventState::Waiting
                } else {
                    EventState::Unknown
                };
                Report::Accept(Ok(AcceptResult {
                    before,
                    created: false,
                }))
            }
            Op::KeepSchedules(keep) => {
                self.stored = Some(keep.schedules.clone());
                Report::KeepSchedules(Ok(false))
            }
            other => panic!("{other:?}"),
        }
    }

    fn report(&mut self, job: &StoreJob, report: Report) {
        let token = job.token;
        self.step(CoreInput::Stored(StoreCompletion { token, report }));
    }

    fn create(&mut self, n: u64, time: RequestedTime, catch_up: ScheduleCatchUp) -> ScheduleId {
        let id = id_of_request(&format!("t.1:q{n}").parse().unwrap()).unwrap();
        let input = format!("input {n}");
        let asked = (id.clone(), time, catch_up, input);
        let refused = self.try_create(n, asked);
        assert!(refused.is_ok(), "{refused:?}");
        id
    }

    fn try_create(
        &mut self,
        n: u64,
        (schedule_id, time, catch_up, input): (ScheduleId, RequestedTime, ScheduleCatchUp, String),
    ) -> Result<(), AgentRequestError> {
        let asked = NewSchedule {
            schedule_id,
            time,
            catch_up,
            input,
            by_person: false,
        };
        let Core {
            fleet, schedules, ..
        } = &mut self.core;
        fleet.cx().begin(ClockTime {
            mono_ms: self.mono_ms,
            wall: self.now,
        });
        let result = schedules.create(fleet, &requester(n), creator(), asked);
        let effects = fleet.cx().take_effects();
        self.take(effects);
        result
    }

    fn call(&mut self, method: &str, params: &Value) {
        self.call_by(Peer::person(), method, params);
    }

    fn call_by(&mut self, peer: Peer, method: &str, params: &Value) {
        let call = json!({"method": method, "params": params});
        let call: Call = serde_json::from_value(call).unwrap();
        self.step(CoreInput::Request {
            token: RequestToken(1),
            peer,
            call: Box::new(call),
        });
    }

    fn listed(&mut self) -> Vec<ScheduleInfo> {
        self.call("schedule.list", &json!({"workspaceId": "w"}));
        let page = self.responses.pop().unwrap().unwrap();
        serde_json::from_value::<SchedulesPage>(page)
            .unwrap()
            .schedules
    }

    fn inputs(&self) -> Vec<(String, String)> {
        let inputs = self.inbox.iter().map(|event| {
            let origin = ScheduledInput::of(&event.metadata).unwrap();
            (
                event.input.clone().unwrap(),
                origin.scheduled_at.to_string(),
            )
        });
        inputs.collect()
    }
}

fn new_core(now: Timestamp, uuids: u128) -> Core {
    let facts = Facts {
        layout: Layout::new("/state"),
        pid: 1,
        started_at: now,
        log_dir: None,
        cgroup: None,
        program: None,
        is_memory_open: false,
        restored: None,
        node: None,
    };
    let mut next = uuids;
    Core::new(facts, move || {
        next += 1;
        uuid::Uuid::from_u128(next)
    })
}

fn pair(input: &str, at: &str) -> (String, String) {
    (input.to_owned(), at.to_owned())
}

#[test]
fn once_runs_once_and_says_who_made_it() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let id = world.create(
        1,
        RequestedTime::In { seconds: 90 },
        ScheduleCatchUp::Latest,
    );
    world.settle("2026-01-01T10:01:29.999Z");
    assert_eq!(world.inputs(), []);
    let listed = world.listed();
    assert_eq!(listed[0].next, Some(instant("2026-01-01T10:01:30Z")));
    world.settle("2026-01-01T10:01:30Z");
    let due = pair("input 1", "2026-01-01T10:01:30.000Z");
    assert_eq!(world.inputs(), std::slice::from_ref(&due));
    let event = &world.inbox[0];
    assert_eq!(
        event.id.as_str(),
        format!("schedule/{id}/2026-01-01T10:01:30.000Z")
    );
    assert_eq!(event.auth, creator().auth);
    assert_eq!(event.metadata["chat"], 7);
    assert_eq!(event.metadata["schedule"]["connection"], "chat");
    assert_eq!(event.metadata["schedule"]["isLate"], false);
    assert!(event.trace_id.is_some() && event.parent_span_id.is_some());
    assert!(
        matches!(&event.source, EventSource::Agent { name, instance_key }
            if name.as_str() == "clerk" && instance_key.as_str() == "main"),
        "{event:?}"
    );
    assert_eq!(world.listed(), []);
    // The clock steps back, and the daemon restarts: it has run.
    world.settle("2026-01-01T09:00:00Z");
    world.restart();
    world.settle("2026-01-01T11:00:00Z");
    assert_eq!(world.inputs(), [due]);
    // A tool call that is repeated after a crash creates nothing, although its delay is relative.
    world.create(
        1,
        RequestedTime::In { seconds: 90 },
        ScheduleCatchUp::Latest,
    );
    world.settle("2026-01-01T12:00:00Z");
    assert_eq!(world.inbox.len(), 1);
}

#[test]
fn missed_occurrences_follow_the_policy() {
    for (policy, once, recurring) in [
        (ScheduleCatchUp::None, 0, 0),
        (ScheduleCatchUp::Latest, 1, 1),
        (ScheduleCatchUp::All, 1, 10),
    ] {
        let mut world = World::new("2026-01-01T10:00:30Z");
        let at = instant("2026-01-01T10:30:00Z");
        world.create(1, RequestedTime::At { at }, policy);
        world.create(2, cron("0 * * * *"), policy);
        world.settle("2026-01-01T10:00:31Z");
        world.settle("2026-01-02T10:30:00Z");
        let of = |input| world.inputs().iter().filter(|it| it.0 == input).count();
        assert_eq!(of("input 1"), once, "{policy:?}");
        assert_eq!(of("input 2"), recurring, "{policy:?}");
        let late = world
            .inbox
            .iter()
            .all(|event| event.metadata["schedule"]["isLate"] == true);
        assert!(late, "{policy:?}");
        let was_told = world.logged.contains(&"skipped missed occurrences");
        // Nothing before the latest one is looked for.
        let is_told = policy != ScheduleCatchUp::Latest;
        assert_eq!(was_told, is_told, "{policy:?}: {:?}", world.logged);
        // The next one is on time for every policy, and a completed once-schedule is gone.
        world.settle("2026-01-02T11:00:00.250Z");
        let last = pair("input 2", "2026-01-02T11:00:00.000Z");
        assert_eq!(world.inputs().last(), Some(&last), "{policy:?}");
        assert_eq!(world.listed().len(), 1, "{policy:?}");
    }
}

#[test]
fn daylight_saving_is_that_of_the_connector() {
    // Berlin goes from 02:00 to 03:00 on 29 March 2026, and from 03:00 back to 02:00 on 25 October.
    for (day, next, expected) in [
        ("2026-03-29", "2026-03-30", "2026-03-29T01:00:00.000Z"),
        ("2026-10-25", "2026-10-26", "2026-10-25T00:30:00.000Z"),
    ] {
        let mut world = World::new(&format!("{day}T00:00:00Z"));
        let nightly = RequestedTime::Cron {
            cron: "30 2 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
        };
        world.create(1, nightly, ScheduleCatchUp::All);
        for minutes in 0..96 {
            let (hour, minute) = (minutes / 4, minutes % 4 * 15);
            world.settle(&format!("{day}T{hour:02}:{minute:02}:00Z"));
        }
        world.settle(&format!("{next}T00:00:00Z"));
        assert_eq!(world.inputs(), [pair("input 1", expected)]);
    }
}

#[test]
fn msg_13_kill_between_input_and_ledger_repeats_the_same_input() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    world.create(1, cron("30 10 * * *"), ScheduleCatchUp::Latest);
    world.settle("2026-01-01T10:29:00Z");
    world.now = instant("2026-01-01T10:30:00Z");
    world.tick();
    let accept = world.next_job().unwrap();
    world.perform(&accept);
    // The input is durable; the ledger is not.
    world.restart();
    world.settle("2026-01-01T10:31:00Z");
    world.restart();
    world.settle("2026-01-01T10:32:00Z");
    assert_eq!(world.inbox.len(), 1);
    let next = world.listed()[0].next;
    assert_eq!(next, Some(instant("2026-01-02T10:30:00Z")));
}

#[test]
fn removed_schedule_sends_nothing_also_after_a_restart() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let id = world.create(1, cron("* * * * *"), ScheduleCatchUp::Latest);
    world.settle("2026-01-01T10:00:01Z");
    let remove = json!({"workspaceId": "w", "scheduleId": id});
    let stranger = Peer {
        pid: None,
        standing: ClientOrigin::BelowDaemon,
    };
    world.call_by(stranger, "schedule.remove", &remove);
    let refused = world.responses.pop().unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::PersonNeeded);
    world.call("schedule.remove", &remove);
    assert_eq!(world.responses, [], "not before it is durable");
    world.settle("2026-01-01T10:00:02Z");
    let removed = world.responses.pop().unwrap().unwrap();
    assert_eq!(removed["schedule"]["scheduleId"], id.as_str());
    world.settle("2026-01-01T10:05:00Z");
    world.restart();
    world.settle("2026-01-01T10:06:00Z");
    assert_eq!(world.inbox, []);
    world.call("schedule.remove", &remove);
    let unknown = world.responses.pop().unwrap().unwrap_err();
    assert_eq!(unknown.code, ErrorCode::ScheduleNotFound);
}

#[test]
fn removal_waits_for_an_input_on_its_way() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let id = world.create(1, RequestedTime::In { seconds: 1 }, ScheduleCatchUp::Latest);
    world.settle("2026-01-01T10:00:00Z");
    world.now = instant("2026-01-01T10:00:01Z");
    world.tick();
    world.call(
        "schedule.remove",
        &json!({"workspaceId": "w", "scheduleId": id}),
    );
    assert_eq!(world.responses, []);
    world.settle("2026-01-01T10:00:02Z");
    // It has run, so there was nothing to remove.
    let gone = world.responses.pop().unwrap().unwrap_err();
    assert_eq!(gone.code, ErrorCode::ScheduleNotFound);
    assert_eq!(world.inbox.len(), 1);
}

#[test]
fn schedule_of_an_unknown_agent_is_reported_and_waits() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    world.create(
        1,
        RequestedTime::In { seconds: 60 },
        ScheduleCatchUp::Latest,
    );
    world.settle("2026-01-01T10:00:01Z");
    world.edit = Edit::Broken;
    world.restart();
    for minute in 1..5 {
        world.settle(&format!("2026-01-01T10:0{minute}:30Z"));
    }
    assert_eq!(world.inbox, []);
    let report = "scheduled input is due but cannot be submitted; waiting";
    let reports = world.logged.iter().filter(|line| **line == report);
    assert_eq!(reports.count(), 1);
    let listed = world.listed();
    assert!(listed[0].problem.is_some(), "{listed:?}");
    world.edit = Edit::Valid(0);
    world.restart();
    world.settle("2026-01-01T10:10:00Z");
    assert_eq!(
        world.inputs(),
        [pair("input 1", "2026-01-01T10:01:00.000Z")]
    );
}

#[test]
fn bad_requests_change_nothing() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let id = |n: usize| id_of_request(&format!("t.2:q{n}").parse().unwrap()).unwrap();
    let past = instant("2026-01-01T09:59:59Z");
    let latest = ScheduleCatchUp::Latest;
    let nowhere = RequestedTime::Cron {
        cron: "* * * * *".to_owned(),
        time_zone: "Mars/Olympus".to_owned(),
    };
    for (time, input, said) in [
        (RequestedTime::At { at: past }, "x", "has passed"),
        (RequestedTime::In { seconds: 0 }, "x", "has passed"),
        (RequestedTime::In { seconds: u64::MAX }, "x", "too far"),
        (cron("61 * * * *"), "x", "invalid `cron`"),
        (cron("* * * * * *"), "x", "invalid `cron`"),
        (cron("0 0 30 2 *"), "x", "never occurs"),
        (nowhere, "x", "invalid `timeZone`"),
        (cron("* * * * *"), " ", "1 to 8192 bytes"),
        (cron("* * * * *"), &"x".repeat(8_193), "1 to 8192 bytes"),
    ] {
        let asked = (id(0), time, latest, input.to_owned());
        let refused = world.try_create(0, asked).unwrap_err();
        assert_eq!(refused.code, "E_INVALID_REQUEST");
        assert!(refused.message.contains(said), "{}", refused.message);
    }
    assert!(world.jobs.is_empty());
    for n in 0..SCHEDULES_PER_CONVERSATION_MAX {
        let asked = (id(n), cron("@yearly"), latest, "x".to_owned());
        assert!(world.try_create(0, asked).is_ok());
    }
    let asked = (id(99), cron("@yearly"), latest, "x".to_owned());
    let refused = world.try_create(0, asked).unwrap_err();
    assert_eq!(refused.code, "E_SCHEDULE_REFUSED");
    world.settle("2026-01-01T10:00:01Z");
    assert_eq!(world.listed().len(), SCHEDULES_PER_CONVERSATION_MAX);
}

#[test]
fn failed_write_is_reported_and_repaired() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    world.create(1, cron("* * * * *"), ScheduleCatchUp::Latest);
    let job = world.next_job().unwrap();
    // The content may be on disk anyway.
    world.perform(&job);
    let error = StoreError::TooLarge { bytes: 2, max: 1 };
    world.report(&job, Report::KeepSchedules(Err(error)));
    assert!(world.logged.contains(&"failed to store schedules"));
    world.settle("2026-01-01T10:00:11Z");
    world.restart();
    world.settle("2026-01-01T10:05:00Z");
    assert_eq!((world.listed(), &*world.inbox), (Vec::new(), &[][..]));
}

#[test]
fn damaged_file_is_reported_and_left_alone() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    world.stored = RawValue::from_string(r#"{"schedules":7}"#.to_owned()).ok();
    world.restart();
    let report =
        "failed to read schedules; run `gdn daemon verify --repair`, then `gdn config reload`";
    assert!(world.logged.contains(&report), "{:?}", world.logged);
    let id = id_of_request(&"t.1:q1".parse().unwrap()).unwrap();
    let asked = (id, cron("@daily"), ScheduleCatchUp::Latest, "x".to_owned());
    let refused = world.try_create(1, asked).unwrap_err();
    assert_eq!(refused.code, "E_FAILED");
    assert!(world.jobs.is_empty());
    // Set aside by a repair, which a reload notices.
    world.stored = None;
    world.load();
    world.create(1, cron("@daily"), ScheduleCatchUp::Latest);
    world.settle("2026-01-01T10:00:01Z");
    assert_eq!(world.listed().len(), 1);
    world.load();
    assert_eq!(world.listed().len(), 1);
}

/// Kills, failing writes and jumps of the clock at random: every occurrence is accepted once.
#[test]
fn msg_13_every_occurrence_is_accepted_once_over_any_kill() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new("2026-01-01T00:00:30Z");
        world.create(1, cron("*/10 * * * *"), ScheduleCatchUp::All);
        let at = instant("2026-01-01T03:00:00Z");
        world.create(2, RequestedTime::At { at }, ScheduleCatchUp::All);
        // Their creation is durable.
        world.settle("2026-01-01T00:00:31Z");
        let end = instant("2026-01-01T06:00:00Z");
        while world.now < end {
            match rng.u8(0..100) {
                0..50 => {
                    let ms = rng.i64(0..120_000);
                    world.now = later(world.now, ms);
                    world.tick();
                }
                50..85 => {
                    if let Some(job) = world.next_job() {
                        let report = world.perform(&job);
                        world.report(&job, report);
                    }
                }
                85..90 => {
                    // Executed, but the daemon dies before it is reported.
                    if let Some(job) = world.next_job() {
                        world.perform(&job);
                    }
                    world.restart();
                }
                90..95 => world.restart(),
                95..98 => {
                    if let Some(job) = world.next_job() {
                        let reaches_disk = rng.bool();
                        if reaches_disk {
                            world.perform(&job);
                        }
                        let error = || StoreError::TooLarge { bytes: 2, max: 1 };
                        let report = match &job.op {
                            Op::Accept(_) => Report::Accept(Err(error())),
                            _ => Report::KeepSchedules(Err(error())),
                        };
                        world.report(&job, report);
                    }
                }
                // The clock steps back, but not before the creation.
                _ => {
                    world.now = later(world.now, -rng.i64(0..600_000));
                    world.now = world.now.max(instant("2026-01-01T00:00:31Z"));
                    world.tick();
                }
            }
        }
        world.restart();
        for _ in 0..20 {
            let now = later(world.now, SCHEDULE_RETRY_MS + 1);
            world.settle(&now.to_string());
        }
        let ids: BTreeSet<&EventId> = world.inbox.iter().map(|event| &event.id).collect();
        assert_eq!(ids.len(), world.inbox.len(), "seed {seed}");
        let inputs = world.inputs();
        let once = inputs.iter().filter(|it| it.0 == "input 2").count();
        assert_eq!(once, 1, "seed {seed}");
        let recurring: BTreeSet<&String> = inputs
            .iter()
            .filter(|it| it.0 == "input 1")
            .map(|it| &it.1)
            .collect();
        let mut expected = Vec::new();
        let mut at = instant("2026-01-01T00:10:00Z");
        while at <= world.now {
            expected.push(at.to_string());
            at = later(at, 600_000);
        }
        assert_eq!(recurring, expected.iter().collect(), "seed {seed}");
    }
}

#[test]
fn schedules_are_deleted_with_their_conversation() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    world.create(1, cron("* * * * *"), ScheduleCatchUp::Latest);
    world.settle("2026-01-01T10:00:01Z");
    assert_eq!(world.core.schedules.count(&conversation()), 1);
    let Core {
        fleet, schedules, ..
    } = &mut world.core;
    schedules.forget(fleet, &conversation());
    world.settle("2026-01-01T10:05:00Z");
    assert_eq!(world.inbox, []);
    assert_eq!(world.core.schedules.count(&conversation()), 0);
}

#[test]
fn book_remembers_ended_schedules_up_to_its_limit() {
    let mut book = Book::default();
    let id = |n: usize| format!("s-{n}").parse::<ScheduleId>().unwrap();
    for n in 0..100 {
        let record = ScheduleRecord {
            schedule_id: id(n),
            time: ScheduleTime::Once {
                at: instant("2026-01-01T10:00:00Z"),
            },
            catch_up: ScheduleCatchUp::Latest,
            input: "x".to_owned(),
            created_at: instant("2026-01-01T09:00:00Z"),
            agent_name: "clerk".parse().unwrap(),
            by_person: false,
            auth: None,
            connection: None,
            metadata: JsonObject::new(),
            ledger: None,
        };
        book = book.after(&BookChange::Add(Box::new(record)));
        book = book.after(&BookChange::Remove(id(n)));
        // Again, without effect.
        book = book.after(&BookChange::Remove(id(n)));
    }
    assert!(book.schedules.is_empty());
    assert!(book.has_ended(&id(99)) && !book.has_ended(&id(0)));
    let text = serde_json::to_string(&book).unwrap();
    assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
}

#[test]
fn stored_schedules_match_the_documentation() {
    let page = include_str!("../../../../docs/storage.md");
    let (_, example) = page.split_once("```json schedules.json\n").unwrap();
    let (example, _) = example.split_once('\n').unwrap();
    let book: Book = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_string(&book).unwrap(), example);
}

fn injection(event_id: &str, at: &str) -> Value {
    json!({
        "workspaceId": "w", "agent": "clerk", "conversationKey": "main", "input": "look",
        "time": {"kind": "at", "at": at}, "eventId": event_id,
    })
}

impl World {
    /// Sends a request of a person, and returns its answer when it is durable.
    fn request(&mut self, method: &str, params: &Value) -> Result<Value, ControlError> {
        self.call(method, params);
        let now = self.now.to_string();
        self.settle(&now);
        self.responses.pop().unwrap()
    }
}

#[test]
fn steer_2_person_sends_an_input_later_once_over_repeats_and_restarts() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let first = injection("e1", "2026-01-01T11:00:00Z");
    world.call("schedule.create", &first);
    assert_eq!(world.responses, [], "not before it is durable");
    let Op::KeepSchedules(keep) = &world.jobs[0].op else {
        panic!("{:?}", world.jobs);
    };
    let created_for = keep.created_for.as_ref().unwrap();
    assert_eq!(
        created_for.0.as_str(),
        "clerk",
        "the conversation may be new"
    );
    world.settle("2026-01-01T10:00:01Z");
    let kept = world.responses.pop().unwrap().unwrap();
    assert_eq!(kept["schedule"]["byPerson"], true);
    world.restart();
    // Sent again after a lost answer: the same schedule.
    assert_eq!(world.request("schedule.create", &first), Ok(kept.clone()));
    assert_eq!(world.listed().len(), 1);
    // It is not the agent's.
    let id: ScheduleId = serde_json::from_value(kept["schedule"]["scheduleId"].clone()).unwrap();
    let Core {
        fleet, schedules, ..
    } = &mut world.core;
    let refused = schedules.remove_for_agent(fleet, &requester(9), id.clone());
    assert_eq!(refused.unwrap_err().code, "E_NO_SCHEDULE");

    let moved = json!({"workspaceId": "w", "scheduleId": id, "at": "2026-01-01T12:00:00Z"});
    let kept = world.request("schedule.move", &moved).unwrap();
    assert_eq!(kept["schedule"]["next"], "2026-01-01T12:00:00.000Z");
    world.settle("2026-01-01T11:30:00Z");
    assert_eq!(world.inputs(), []);
    world.settle("2026-01-01T12:00:01Z");
    assert_eq!(world.inputs(), [pair("look", "2026-01-01T12:00:00.000Z")]);
    let source = &world.inbox[0].source;
    assert!(matches!(source, EventSource::Connector { name } if name.as_str() == "cli"));
    // Its request is not forgotten with it.
    assert_eq!(world.request("schedule.create", &first), Ok(json!({})));
    let late = world.request("schedule.move", &moved).unwrap_err();
    assert_eq!(late.code, ErrorCode::ScheduleNotFound);
    world.settle("2026-01-01T13:00:00Z");
    assert_eq!(world.inbox.len(), 1);
}

#[test]
fn steer_2_refused_inputs_change_nothing() {
    let mut world = World::new("2026-01-01T10:00:00Z");
    let past = world.request("schedule.create", &injection("e1", "2026-01-01T09:00:00Z"));
    assert_eq!(past.unwrap_err().code, ErrorCode::InvalidRequest);
    let mut unknown = injection("e1", "2026-01-01T11:00:00Z");
    unknown["agent"] = json!("nobody");
    let unknown = world.request("schedule.create", &unknown);
    assert_eq!(unknown.unwrap_err().code, ErrorCode::AgentNotFound);
    // The store finds that the conversation belongs to another agent.
    world.call("schedule.create", &injection("e1", "2026-01-01T11:00:00Z"));
    let job = world.next_job().unwrap();
    let error = StoreError::KeyTaken {
        key: conversation().instance_key,
        owner: "porter".parse().unwrap(),
    };
    world.report(&job, Report::KeepSchedules(Err(error)));
    let taken = world.responses.pop().unwrap().unwrap_err();
    assert_eq!(taken.code, ErrorCode::InstanceKeyTaken);
    world.settle("2026-01-01T12:00:00Z");
    assert_eq!((world.listed(), &*world.inbox), (Vec::new(), &[][..]));
    // A recurring one has no single time.
    let id = world.create(1, cron("@daily"), ScheduleCatchUp::Latest);
    world.settle("2026-01-01T12:00:01Z");
    let moved = json!({"workspaceId": "w", "scheduleId": id, "at": "2026-01-01T13:00:00Z"});
    let refused = world.request("schedule.move", &moved).unwrap_err();
    assert!(refused.message.ends_with("recurs"), "{}", refused.message);
    let origin = Peer {
        pid: None,
        standing: ClientOrigin::BelowDaemon,
    };
    for (method, params) in [
        ("schedule.create", injection("e2", "2026-01-01T13:00:00Z")),
        ("schedule.move", moved),
    ] {
        world.call_by(origin, method, &params);
        let refused = world.responses.pop().unwrap().unwrap_err();
        assert_eq!(refused.code, ErrorCode::PersonNeeded, "{method}");
    }
}
