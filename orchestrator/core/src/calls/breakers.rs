//! Circuit breakers of models in calls: which calls wait, fail fast, or probe.
//!
//! * A call with a fallback fails immediately while its model is suspended, so that the agent calls
//!   the fallback.
//! * A call without one waits for the next probe, or is the probe.

use goondan_protocol::call::{CallError, CallErrorCode, CallId, CallOutcome, CallTarget};
use goondan_protocol::definition::ModelProvider;
use goondan_protocol::ids::WorkspaceId;

use super::{CallState, Calls, OpenCall};
use crate::LogEvent;
use crate::fleet::Fleet;
use crate::fleet::breaker::{Breaker, OpenBreaker, Passage, is_outage};
use crate::limits::CALL_ATTEMPTS_MAX;

/// True if the agent calls another model when this call fails so.
fn has_fallback(fleet: &Fleet, call: &OpenCall, code: CallErrorCode) -> bool {
    let CallTarget::Model { name } = &call.target else {
        return false;
    };
    let Some((agent, _)) = fleet.agent_in_turn(&call.at) else {
        return false;
    };
    let ModelProvider::Connector { fallbacks, .. } = &agent.model.provider else {
        return false;
    };
    let at = fallbacks.iter().position(|fallback| fallback.name == *name);
    let after = match at {
        Some(at) => at + 1,
        None if agent.model.name == *name => 0,
        None => return false,
    };
    let mut later = fallbacks.iter().skip(after);
    later.any(|fallback| fallback.on.contains(&code))
}

fn open_breaker<'f>(fleet: &'f Fleet, call: &OpenCall) -> Option<&'f OpenBreaker> {
    let breaker = fleet.breaker(&call.at.workspace_id, &call.target)?;
    breaker.open()
}

/// Decides if a call may start.
pub(super) fn passage_of(fleet: &Fleet, call: &OpenCall) -> Passage {
    let Some(breaker) = fleet.breaker(&call.at.workspace_id, &call.target) else {
        return Passage::Free;
    };
    let Some(open) = breaker.open() else {
        return Passage::Free;
    };
    let has_fallback = has_fallback(fleet, call, open.error.code);
    breaker.passage(fleet.now().mono_ms, has_fallback)
}

/// True if the model of a failed call is suspended, and the agent calls another one instead.
pub(super) fn is_suspended_with_fallback(fleet: &Fleet, call: &OpenCall) -> bool {
    open_breaker(fleet, call).is_some_and(|open| has_fallback(fleet, call, open.error.code))
}

/// Attempts that count for a new call: to a suspended model, it has one.
pub(super) fn attempts_before(fleet: &Fleet, call: &OpenCall) -> u32 {
    match open_breaker(fleet, call) {
        Some(_) => CALL_ATTEMPTS_MAX - 1,
        None => 0,
    }
}

/// The failure of a call that is not made.
fn suspended(open: &OpenBreaker, target: &CallTarget, now_ms: u64) -> CallError {
    let message = format!(
        "{target} is not called at present, because its last {} calls failed; the last one: {}",
        open.outages, open.error.message
    );
    let seconds = open.probe_ms(true).saturating_sub(now_ms).div_ceil(1_000);
    CallError::new(open.error.code, message).suggest(format!(
        "it is tried again in {seconds} s; `gdn ps` shows its state"
    ))
}

impl Calls {
    /// Ends the waiting calls to a suspended model whose agents have a fallback.
    pub(super) fn end_suspended(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        target: &CallTarget,
    ) {
        self.release_probe(fleet, id, target);
        let now_ms = fleet.now().mono_ms;
        let Some(open) = fleet.breaker(id, target).and_then(Breaker::open) else {
            return;
        };
        let error = suspended(open, target, now_ms);
        let code = open.error.code;
        let ended = self.ids(|call| {
            call.at.workspace_id == *id
                && call.target == *target
                && matches!(call.state, CallState::Waiting)
                && has_fallback(fleet, call, code)
                && passage_of(fleet, call) == Passage::No
        });
        for call_id in ended {
            self.end_call(fleet, call_id, CallOutcome::Error(error.clone()));
        }
    }

    /// Lets the next call be the probe if the previous one ended without an answer.
    pub(super) fn release_probe(&self, fleet: &mut Fleet, id: &WorkspaceId, target: &CallTarget) {
        let open = &self.open;
        let is_running = |call_id: CallId| {
            open.get(&call_id)
                .is_some_and(|call| call.process().is_some())
        };
        if let Some(breaker) = fleet.breaker_mut(id, target)
            && let Some(probe) = breaker.open().and_then(OpenBreaker::probe)
            && !is_running(probe)
        {
            breaker.abandoned(probe);
        }
    }

    /// Notes the outcome of a call in the breaker of its model.
    pub(super) fn note_outcome(&mut self, fleet: &mut Fleet, id: CallId, outcome: &CallOutcome) {
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let (at, target, trace) = (call.at.clone(), call.target.clone(), call.trace);
        let now_ms = fleet.now().mono_ms;
        let Some(breaker) = fleet.breaker_mut(&at.workspace_id, &target) else {
            return;
        };
        let was_open = breaker.is_open();
        let was_probe = breaker.open().and_then(OpenBreaker::probe) == Some(id);
        match outcome {
            CallOutcome::Error(error) if error.code == CallErrorCode::Cancelled => {
                breaker.abandoned(id);
            }
            CallOutcome::Error(error) if is_outage(error) => {
                breaker.failed(id, error, now_ms);
            }
            CallOutcome::Ok(_) | CallOutcome::Error(_) => breaker.answered(),
        }
        let event = match (breaker.open().cloned(), was_open) {
            (Some(open), true) if was_probe => return self.count_probe(fleet, id, &open),
            (Some(open), false) => LogEvent::warn("model suspended after repeated failures")
                .with("failures", open.outages)
                .with("error", open.error.message),
            (None, true) => LogEvent::info("model is called again"),
            (Some(_), true) | (None, false) => return,
        };
        let event = event.of(&at).with("target", target.to_string());
        fleet.log(event.in_trace(trace));
    }

    /// Counts a failed probe as an attempt of every call that waited for it.
    fn count_probe(&mut self, fleet: &mut Fleet, id: CallId, open: &OpenBreaker) {
        let Some(probe) = self.open.get(&id) else {
            return;
        };
        let (workspace_id, target) = (probe.at.workspace_id.clone(), probe.target.clone());
        let waiting = self.ids(|call| {
            call.at.workspace_id == workspace_id
                && call.target == target
                && matches!(call.state, CallState::Waiting)
        });
        for call_id in waiting {
            let Some(call) = self.open.get_mut(&call_id) else {
                continue;
            };
            call.attempts = call.attempts.saturating_add(1);
            if call.attempts >= CALL_ATTEMPTS_MAX {
                let error = open.error.clone();
                self.end_call(fleet, call_id, CallOutcome::Error(error));
            }
        }
    }
}

#[cfg(test)]
#[path = "breakers_tests.rs"]
mod tests;
