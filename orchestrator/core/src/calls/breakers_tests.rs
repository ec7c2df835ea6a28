//! Tests of circuit breakers in calls: scopes of a failure, probes, and calls that wait for them.

use goondan_oauth::Ticket;
use goondan_protocol::call::CallResult;
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::ipc::{ToChild, ToConnector};
use serde_json::value::to_raw_value;

use super::*;
use crate::calls::Origin;
use crate::calls::internal_calls::DaemonCall;
use crate::limits::{BREAKER_OUTAGES, BREAKER_PAUSE_FIRST_MS, CALL_RETRY_MAX_MS, TICK_MS};
use crate::{ClockTime, CoreEffect, ProcessId};

/// Deadline of calls that wait for everything.
const PATIENT_MS: u64 = 1_800_000;

/// A workspace with two models at one URL, whose processes are ready.
struct World {
    fleet: Fleet,
    calls: Calls,
    id: WorkspaceId,
    target: CallTarget,
    other: CallTarget,
    now_ms: u64,
}

/// A call that was sent to a model's process.
struct SentCall {
    process: ProcessId,
    id: CallId,
    deadline_ms: u64,
}

fn overloaded() -> CallError {
    CallError::new(CallErrorCode::Overloaded, "busy").later(None)
}

fn unreachable_endpoint() -> CallError {
    CallError::new(CallErrorCode::Unavailable, "connection refused")
        .later(None)
        .of_endpoint()
}

impl World {
    fn new() -> Self {
        let model = |name: &str| {
            let model = serde_json::json!({"name": name, "provider": "openai", "model": name});
            serde_json::from_value(model).unwrap()
        };
        let target = |name: &str| CallTarget::Model {
            name: name.parse().unwrap(),
        };
        let (mut fleet, id) = Fleet::with_ready_model(model("big"));
        fleet.add_ready_model(&id, model("small"), ProcessId(2));
        Self {
            fleet,
            calls: Calls::default(),
            id,
            target: target("big"),
            other: target("small"),
            now_ms: 0,
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now = ClockTime {
            mono_ms: self.now_ms,
            ..self.fleet.now()
        };
        self.fleet.cx().begin(now);
    }

    /// Suspends the model.
    fn suspend(&mut self) {
        for _ in 0..BREAKER_OUTAGES {
            self.pass(2_000);
            let now_ms = self.now_ms;
            let models = &mut self.fleet.workspace_mut(&self.id).unwrap().models;
            let breaker = models.breaker_mut(&self.target, BreakerScope::Model);
            let breaker = breaker.unwrap();
            breaker.failed(CallId(0), &overloaded(), now_ms);
        }
        assert!(self.is_open(BreakerScope::Model));
    }

    /// True if the breaker of the first model, or of the endpoint, is open.
    fn is_open(&self, scope: BreakerScope) -> bool {
        let workspace = &self.fleet.workspaces()[&self.id];
        let breaker = workspace.models.breaker(&self.target, scope);
        breaker.is_some_and(Breaker::is_open)
    }

    fn call(&mut self, deadline_ms: u64) {
        self.call_to(self.target.clone(), deadline_ms);
    }

    fn call_to(&mut self, target: CallTarget, deadline_ms: u64) {
        let call = DaemonCall {
            at: InstanceRef {
                workspace_id: self.id.clone(),
                instance_key: "main".parse().unwrap(),
            },
            agent: "clerk".parse().unwrap(),
            target,
            method: "complete".to_owned(),
            params: to_raw_value("").unwrap(),
            deadline_ms,
            is_idempotent: true,
        };
        let origin = Origin::OAuth(Ticket(0));
        let made = self.calls.make_for_daemon(&mut self.fleet, call, origin);
        made.unwrap();
    }

    /// Makes a call to the first model, and lets each of its attempts fail.
    fn fail_all(&mut self, error: &CallError) {
        self.call(PATIENT_MS);
        for attempt in 1..=CALL_ATTEMPTS_MAX {
            let sent = self.sent_one();
            self.answer(&sent, CallOutcome::Error(error.clone()));
            if attempt < CALL_ATTEMPTS_MAX {
                self.pass(CALL_RETRY_MAX_MS);
                self.calls.on_call_time(&mut self.fleet);
            }
        }
        assert!(self.calls.is_empty(), "the call has failed");
    }

    fn answer(&mut self, sent: &SentCall, outcome: CallOutcome) {
        let result = CallResult {
            call_id: sent.id,
            outcome,
            looked_back: None,
        };
        self.calls
            .on_call_result(&mut self.fleet, sent.process, result);
    }

    /// The only call that was sent since the last time.
    fn sent_one(&mut self) -> SentCall {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "calls that were sent");
        sent.remove(0)
    }

    /// The calls that were sent since the last time.
    fn sent(&mut self) -> Vec<SentCall> {
        let effects = self.fleet.cx().take_effects().into_iter();
        let sent = effects.filter_map(|effect| match effect {
            CoreEffect::Send {
                process, message, ..
            } => Some((process, *message)),
            _ => None,
        });
        let sent = sent.filter_map(|(process, message)| match message {
            ToChild::Connector(ToConnector::Call(order)) => Some(SentCall {
                process,
                id: order.call_id,
                deadline_ms: order.deadline_ms,
            }),
            _ => None,
        });
        sent.collect()
    }

    /// Deadlines of the calls that started since the last time.
    fn started(&mut self) -> Vec<u64> {
        let sent = self.sent().into_iter();
        sent.map(|sent| sent.deadline_ms).collect()
    }
}

#[test]
fn prov_1_a_probe_that_timed_out_lets_another_call_probe() {
    const PATIENCE_MS: u64 = 4_000;
    const LONG_MS: u64 = 60_000;
    let mut world = World::new();
    world.suspend();
    world.call(PATIENCE_MS + BREAKER_PAUSE_FIRST_MS);
    world.call(LONG_MS);
    assert!(world.started().is_empty(), "the model is suspended");

    world.pass(BREAKER_PAUSE_FIRST_MS);
    world.calls.on_call_time(&mut world.fleet);
    assert_eq!(world.started(), [PATIENCE_MS], "one call is the probe");
    world.pass(TICK_MS);
    world.calls.on_call_time(&mut world.fleet);
    assert!(world.started().is_empty(), "the other one waits");

    world.pass(PATIENCE_MS);
    world.calls.on_call_time(&mut world.fleet);
    let left_ms = LONG_MS - BREAKER_PAUSE_FIRST_MS - PATIENCE_MS - TICK_MS;
    assert_eq!(world.started(), [left_ms], "the other one is the probe");
    assert!(world.is_open(BreakerScope::Model), "no call was answered");
}

#[test]
fn prov_1_one_probe_decides_for_all_models_of_an_endpoint() {
    let mut world = World::new();
    world.fail_all(&unreachable_endpoint());
    assert!(world.is_open(BreakerScope::Endpoint));
    let other = world.other.clone();
    world.call(PATIENT_MS);
    world.call_to(other, PATIENT_MS);
    assert!(world.started().is_empty(), "no model of it is called");

    world.pass(BREAKER_PAUSE_FIRST_MS);
    world.calls.on_call_time(&mut world.fleet);
    let probe = world.sent_one();
    world.answer(&probe, CallOutcome::Ok(to_raw_value("done").unwrap()));
    world.calls.on_call_time(&mut world.fleet);
    assert_eq!(world.started().len(), 1, "the other model is called, too");
    for scope in BreakerScope::ALL {
        assert!(!world.is_open(scope), "{scope:?}");
    }
}

#[test]
fn prov_1_failed_probe_of_an_endpoint_fails_calls_to_its_models() {
    let mut world = World::new();
    world.fail_all(&unreachable_endpoint());
    let other = world.other.clone();
    world.call(PATIENT_MS);
    world.call_to(other, PATIENT_MS);
    // As calls of agents to a suspended model.
    for call in world.calls.open.values_mut() {
        call.attempts = CALL_ATTEMPTS_MAX - 1;
    }
    world.pass(BREAKER_PAUSE_FIRST_MS);
    world.calls.on_call_time(&mut world.fleet);
    let probe = world.sent_one();
    world.answer(&probe, CallOutcome::Error(unreachable_endpoint()));
    assert!(world.calls.is_empty(), "each has waited for this attempt");
    assert!(world.is_open(BreakerScope::Endpoint));
}

#[test]
fn prov_1_an_overloaded_model_never_blocks_another_one_of_its_endpoint() {
    let mut world = World::new();
    world.fail_all(&overloaded());
    assert!(world.is_open(BreakerScope::Model));
    assert!(!world.is_open(BreakerScope::Endpoint));
    let other = world.other.clone();
    world.call(PATIENT_MS);
    world.call_to(other, PATIENT_MS);
    assert_eq!(world.started().len(), 1, "only the other one is called");
}

#[test]
fn prov_1_another_model_that_answers_keeps_the_endpoint_open_for_calls() {
    let mut world = World::new();
    let other = world.other.clone();
    for _ in 0..2 * BREAKER_OUTAGES {
        let now_ms = world.now_ms;
        let models = &mut world.fleet.workspace_mut(&world.id).unwrap().models;
        let breaker = models.breaker_mut(&world.target, BreakerScope::Endpoint);
        let breaker = breaker.unwrap();
        breaker.failed(CallId(0), &unreachable_endpoint(), now_ms);
        world.pass(2_000);
        world.call_to(other.clone(), PATIENT_MS);
        let sent = world.sent_one();
        world.answer(&sent, CallOutcome::Ok(to_raw_value("done").unwrap()));
    }
    assert!(!world.is_open(BreakerScope::Endpoint));
}
