use goondan_oauth::Ticket;
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::ipc::{ToChild, ToConnector};
use serde_json::value::to_raw_value;

use super::*;
use crate::calls::Origin;
use crate::calls::internal_calls::DaemonCall;
use crate::limits::{BREAKER_OUTAGES, BREAKER_PAUSE_FIRST_MS, TICK_MS};
use crate::{ClockTime, CoreEffect};

/// A workspace with one model, whose process is ready.
struct World {
    fleet: Fleet,
    calls: Calls,
    id: WorkspaceId,
    target: CallTarget,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let model = serde_json::from_value(serde_json::json!({
            "name": "big", "provider": "openai", "model": "big-1",
        }))
        .unwrap();
        let (fleet, id) = Fleet::with_ready_model(model);
        let name = "big".parse().unwrap();
        Self {
            fleet,
            calls: Calls::default(),
            id,
            target: CallTarget::Model { name },
            now_ms: 0,
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now = ClockTime {
            mono_ms: self.now_ms,
            ..self.fleet.now()
        };
        self.fleet.begin(now);
    }

    /// Suspends the model.
    fn suspend(&mut self) {
        for _ in 0..BREAKER_OUTAGES {
            self.pass(2_000);
            let error = CallError::new(CallErrorCode::Overloaded, "busy").later(None);
            let now_ms = self.now_ms;
            let breaker = self.fleet.breaker_mut(&self.id, &self.target).unwrap();
            breaker.failed(CallId(0), &error, now_ms);
        }
        assert!(self.is_suspended());
    }

    fn is_suspended(&self) -> bool {
        let breaker = self.fleet.breaker(&self.id, &self.target).unwrap();
        breaker.is_open()
    }

    fn call(&mut self, deadline_ms: u64) {
        let call = DaemonCall {
            at: InstanceRef {
                workspace_id: self.id.clone(),
                instance_key: "main".parse().unwrap(),
            },
            agent: "clerk".parse().unwrap(),
            target: self.target.clone(),
            method: "complete".to_owned(),
            params: to_raw_value("").unwrap(),
            deadline_ms,
            is_idempotent: true,
        };
        let origin = Origin::OAuth(Ticket(0));
        let made = self.calls.make_for_daemon(&mut self.fleet, call, origin);
        made.unwrap();
    }

    /// Deadlines of the calls that started since the last time.
    fn started(&mut self) -> Vec<u64> {
        let effects = self.fleet.take_effects().into_iter();
        let sent = effects.filter_map(|effect| match effect {
            CoreEffect::Send { message, .. } => Some(*message),
            _ => None,
        });
        let orders = sent.filter_map(|message| match message {
            ToChild::Connector(ToConnector::Call(order)) => Some(order.deadline_ms),
            _ => None,
        });
        orders.collect()
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
    assert!(world.is_suspended(), "no call was answered");
}
