//! Tests of rewinds with failing store and file operations. The test plays the store and the files
//! for a single core.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::JsonObject;
use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::ids::{InstanceRef, TurnId, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::StoreError;
use goondan_store::instance::{CancelScope, InstanceState, Pins, RewindNote};
use goondan_store::root::Layout;
use goondan_store::workspace::{PendingInstance, WorkspaceRecord};

use goondan_store::writer::{Op, Report, StoreCompletion, StoreJob};
use serde_json::json;

use crate::exchange::joint::{JointResult, JointWork, RollbackFailure};
use crate::limits::{BACK_OFF_FIRST_MS, IMMEDIATE_RESTARTS};
use crate::{
    Accounts, ClockTime, Core, CoreEffect, CoreInput, Facts, LoadPurpose, LoadedWorkspace, Peer,
    RequestToken, WorkspaceLoadResult,
};
use crate::{StandingApprovals, UnknownCalls};

struct World {
    core: Core,
    now_ms: u64,
}

#[derive(Default)]
struct RequestedEffects {
    jobs: Vec<StoreJob>,
    joint: Vec<JointWork>,
    answers: Vec<Result<serde_json::Value, ControlError>>,
}

fn conversation() -> InstanceRef {
    InstanceRef {
        workspace_id: WorkspaceId::new("w").unwrap(),
        instance_key: "main".parse().unwrap(),
    }
}

fn at() -> Timestamp {
    Timestamp::from_unix_millis(1_000)
}

impl World {
    /// Creates a world whose workspace has no configuration, so no process is started.
    fn new(with_work: bool) -> (Self, RequestedEffects) {
        let facts = Facts {
            layout: Layout::new("/state"),
            pid: 1,
            started_at: at(),
            log_dir: None,
            cgroup: None,
            program: None,
            is_memory_open: false,
            restored: None,
            node: None,
        };
        let mut next = 0_u128;
        let core = Core::new(facts, move || {
            next += 1;
            uuid::Uuid::from_u128(next)
        });
        let mut world = Self {
            core,
            now_ms: 1_000,
        };
        let InstanceRef {
            workspace_id,
            instance_key,
        } = conversation();
        let record = WorkspaceRecord {
            workspace_id: workspace_id.clone(),
            project_root: "/project".into(),
            package: None,
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        };
        let waiting = PendingInstance {
            instance_key,
            agent_name: Some("clerk".parse().unwrap()),
        };
        let loaded = WorkspaceLoadResult {
            purpose: LoadPurpose::Start,
            workspace_id: Some(workspace_id),
            sources: Default::default(),
            result: Ok(LoadedWorkspace {
                record,
                bundle: Err(ControlError::new(
                    ErrorCode::InvalidConfiguration,
                    "it is no YAML",
                )),
                fallback: None,
                may_be_kept: false,
                accounts: Accounts::default(),
                unknown_calls: UnknownCalls::default(),
                standing: StandingApprovals::default(),
                schedules: Vec::new(),
                with_work: with_work.then_some(waiting).into_iter().collect(),
                parked: BTreeMap::new(),
                to_begin_anew: Vec::new(),
            }),
        };
        let wanted = world.step(CoreInput::Loaded(Box::new(loaded)));
        (world, wanted)
    }

    fn step(&mut self, input: CoreInput) -> RequestedEffects {
        let now = ClockTime {
            mono_ms: self.now_ms,
            wall: at(),
        };
        let mut wanted = RequestedEffects::default();
        for effect in self.core.handle(now, input) {
            match effect {
                CoreEffect::Store(job) if matches!(job.op, Op::Audit(_)) => {}
                CoreEffect::Store(job) => wanted.jobs.push(job),
                CoreEffect::Joint(work) => wanted.joint.push(*work),
                CoreEffect::Respond { result, .. } => wanted.answers.push(result),
                _ => {}
            }
        }
        wanted
    }

    fn stored(&mut self, job: &StoreJob, report: Report) -> RequestedEffects {
        let token = job.token;
        self.step(CoreInput::Stored(StoreCompletion { token, report }))
    }

    fn rewind(&mut self, cancel: bool) -> RequestedEffects {
        let params =
            json!({"workspaceId": "w", "instanceKey": "main", "dryRun": false, "cancel": cancel});
        let call = json!({"method": "instance.rewind", "params": params});
        let call: Call = serde_json::from_value(call).unwrap();
        self.step(CoreInput::Request {
            token: RequestToken(1),
            peer: Peer::person(),
            call: Box::new(call),
        })
    }
}

fn in_turn() -> Report {
    Report::PinConversation(Err(StoreError::InTurn {
        turn_id: TurnId::new("t").unwrap(),
        event_id: Some("e".parse().unwrap()),
    }))
}

#[test]
fn ckpt_6_rewind_ends_an_open_turn_once_and_only_if_allowed() {
    let (mut world, _) = World::new(false);
    let wanted = world.rewind(true);
    let [pin] = wanted.jobs.as_slice() else {
        panic!("{:?}", wanted.jobs);
    };
    assert!(matches!(pin.op, Op::PinConversation(_)));
    let wanted = world.stored(pin, in_turn());
    let [cancel, pin] = wanted.jobs.as_slice() else {
        panic!("{:?}", wanted.jobs);
    };
    assert!(matches!(&cancel.op, Op::CancelEvent(cancel) if cancel.event_id.as_str() == "e"));
    assert!(matches!(pin.op, Op::PinConversation(_)));
    let turn = CancelScope::Turn(TurnId::new("t").unwrap());
    let wanted = world.stored(cancel, Report::CancelEvent(Ok(turn)));
    assert!(wanted.answers.is_empty(), "no request matches exactly");
    let again = world.stored(pin, in_turn());
    let error = again.answers[0].as_ref().unwrap_err();
    assert_eq!(error.code, ErrorCode::InstanceBusy);

    let (mut world, _) = World::new(false);
    let pin = &world.rewind(false).jobs[0];
    let refused = world.stored(pin, in_turn());
    let is_cancelled = refused.jobs.iter();
    let is_cancelled = is_cancelled
        .map(|job| &job.op)
        .any(|op| matches!(op, Op::CancelEvent(_)));
    assert!(!is_cancelled, "{:?}", refused.jobs);
    let error = refused.answers[0].as_ref().unwrap_err();
    assert!(error.suggestion.as_ref().unwrap().contains("--cancel"));

    let (mut world, _) = World::new(false);
    let pin = &world.rewind(true).jobs[0];
    let pins = Pins {
        instance_key: conversation().instance_key,
        agent: "clerk".parse().unwrap(),
        messages: 1,
        base_bytes: 1,
        inbox_seq: 1,
        extensions: 0,
    };
    let wanted = world.stored(pin, Report::PinConversation(Ok(pins)));
    assert!(matches!(wanted.joint.as_slice(), [JointWork::Plan { .. }]));
}

/// Finds a half-finished rewind when the conversation is opened, and makes it fail: the files are
/// unchanged, and the disk is too full to unpack the messages.
fn fail_to_finish(world: &mut World, wanted: &RequestedEffects) -> RequestedEffects {
    let [open] = wanted.jobs.as_slice() else {
        panic!("{:?}", wanted.jobs);
    };
    let note = RewindNote {
        at: at(),
        checkpoint_id: "checkpoint_001".to_owned(),
        pre_rewind: "checkpoint_002".to_owned(),
        messages_before: 1,
        is_prepared: true,
    };
    let state = InstanceState {
        agent: "clerk".parse().unwrap(),
        open_turn: None,
        approvals: Vec::new(),
        waiting: Vec::new(),
        paused: BTreeSet::new(),
        attempts: BTreeMap::new(),
        parked: Vec::new(),
        awaiting: Vec::new(),
        findings: Vec::new(),
        unacknowledged: Vec::new(),
        rewind: Some(note),
    };
    let wanted = world.stored(open, Report::Open(Ok(Box::new(state))));
    let [JointWork::TakeBack { at, hold, .. }] = wanted.joint.as_slice() else {
        panic!("{:?}", wanted.joint);
    };
    let failed = RollbackFailure {
        error: ControlError::new(ErrorCode::Storage, "no room"),
        is_untouched: true,
    };
    let done = JointResult::TakenBack {
        at: at.clone(),
        hold: *hold,
        result: Err(failed),
    };
    let wanted = world.step(CoreInput::Joint(Box::new(done)));
    let [abandon] = wanted.jobs.as_slice() else {
        panic!("{:?}", wanted.jobs);
    };
    let begun = StoreError::Rewinding {
        checkpoint_id: "checkpoint_001".to_owned(),
    };
    world.stored(abandon, Report::AbandonRewind(Err(begun)))
}

#[test]
fn ckpt_6_unfinished_rewind_is_retried_with_delays() {
    let (mut world, mut wanted) = World::new(true);
    for _ in 0..=IMMEDIATE_RESTARTS {
        wanted = fail_to_finish(&mut world, &wanted);
    }
    assert!(wanted.jobs.is_empty(), "not at once: {:?}", wanted.jobs);
    world.now_ms += BACK_OFF_FIRST_MS;
    let wanted = world.step(CoreInput::Tick);
    assert!(matches!(wanted.jobs.as_slice(), [job] if matches!(job.op, Op::Open(_))));
}
