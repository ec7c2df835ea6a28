//! Circuit breakers of models and their endpoints in calls: which calls wait, fail fast, or probe.
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
use crate::fleet::breaker::{Breaker, BreakerScope, OpenBreaker, Passage, is_outage};
use crate::fleet::conversation::Conversation;
use crate::fleet::model_failures::FailureChange;
use crate::limits::CALL_ATTEMPTS_MAX;

/// A circuit breaker that concerns calls to a target; `None` if it cannot be open.
fn breaker_of<'f>(
    fleet: &'f Fleet,
    id: &WorkspaceId,
    target: &CallTarget,
    scope: BreakerScope,
) -> Option<&'f Breaker> {
    fleet.workspaces().get(id)?.models.breaker(target, scope)
}

fn breaker_mut<'f>(
    fleet: &'f mut Fleet,
    id: &WorkspaceId,
    target: &CallTarget,
    scope: BreakerScope,
) -> Option<&'f mut Breaker> {
    fleet.workspace_mut(id)?.models.breaker_mut(target, scope)
}

/// True if the agent calls another model when this call fails so.
fn has_fallback(fleet: &Fleet, call: &OpenCall, code: CallErrorCode) -> bool {
    let CallTarget::Model { name } = &call.target else {
        return false;
    };
    let entry = fleet.conversation(&call.at);
    let Some((agent, _)) = entry.and_then(Conversation::agent_in_turn) else {
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

/// The open breakers that concern a model, that of its endpoint first.
fn open_breakers<'f>(
    fleet: &'f Fleet,
    id: &WorkspaceId,
    target: &CallTarget,
) -> impl Iterator<Item = (BreakerScope, &'f OpenBreaker)> {
    BreakerScope::ALL
        .into_iter()
        .filter_map(move |scope| Some((scope, breaker_of(fleet, id, target, scope)?.open()?)))
}

/// Decides if a call may start.
pub(super) fn passage_of(fleet: &Fleet, call: &OpenCall) -> Passage {
    let now_ms = fleet.now().mono_ms;
    let open = open_breakers(fleet, &call.at.workspace_id, &call.target);
    let passages = open.map(|(_, open)| {
        let has_fallback = has_fallback(fleet, call, open.error.code);
        open.passage(now_ms, has_fallback)
    });
    passages.max().unwrap_or(Passage::Free)
}

/// True if the model of a failed call is suspended, and the agent calls another one instead.
pub(super) fn is_suspended_with_fallback(fleet: &Fleet, call: &OpenCall) -> bool {
    let mut open = open_breakers(fleet, &call.at.workspace_id, &call.target);
    open.any(|(_, open)| has_fallback(fleet, call, open.error.code))
}

/// Attempts that count for a new call: to a suspended model, it has one.
pub(super) fn attempts_before(fleet: &Fleet, call: &OpenCall) -> u32 {
    let mut open = open_breakers(fleet, &call.at.workspace_id, &call.target);
    match open.next() {
        Some(_) => CALL_ATTEMPTS_MAX - 1,
        None => 0,
    }
}

/// Notes that a call starts, as the probe of a suspended model or endpoint.
pub(super) fn note_start(
    fleet: &mut Fleet,
    workspace: &WorkspaceId,
    target: &CallTarget,
    id: CallId,
) {
    for scope in BreakerScope::ALL {
        if breaker_of(fleet, workspace, target, scope).is_some_and(Breaker::is_open)
            && let Some(breaker) = breaker_mut(fleet, workspace, target, scope)
        {
            breaker.probing(id);
        }
    }
}

/// The failure of a call that is not made.
fn suspended(
    (scope, open): (BreakerScope, &OpenBreaker),
    target: &CallTarget,
    now_ms: u64,
) -> CallError {
    let of_endpoint = match scope {
        BreakerScope::Endpoint => " to its endpoint",
        BreakerScope::Model => "",
    };
    let message = format!(
        "{target} is not called at present, because the last {} calls{of_endpoint} failed; the \
         last one: {}",
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
        let strictest = open_breakers(fleet, id, target).reduce(|first, other| {
            match other.1.passage(now_ms, true) > first.1.passage(now_ms, true) {
                true => other,
                false => first,
            }
        });
        let Some((scope, open)) = strictest else {
            return;
        };
        let error = suspended((scope, open), target, now_ms);
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
        for scope in BreakerScope::ALL {
            let open = breaker_of(fleet, id, target, scope).and_then(Breaker::open);
            if let Some(probe) = open.and_then(OpenBreaker::probe)
                && !is_running(probe)
                && let Some(breaker) = breaker_mut(fleet, id, target, scope)
            {
                breaker.abandoned(probe);
            }
        }
    }

    /// Notes the outcome of a call in the breakers of its model and of the endpoint.
    pub(super) fn note_outcome(&mut self, fleet: &mut Fleet, id: CallId, outcome: &CallOutcome) {
        let mut failed_probe = None;
        for scope in BreakerScope::ALL {
            let probed = self.note_in(fleet, id, outcome, scope);
            // The wider scope includes the calls of the other.
            failed_probe = failed_probe.or_else(|| Some((scope, probed?)));
        }
        if let Some((scope, error)) = failed_probe {
            self.count_probe(fleet, id, scope, &error);
        }
        self.note_lasting_failure(fleet, id, outcome);
    }

    /// Notes and logs failures of a model that only a person can end.
    fn note_lasting_failure(&self, fleet: &mut Fleet, id: CallId, outcome: &CallOutcome) {
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let (at, target) = (&call.at, &call.target);
        let change = fleet
            .workspace_and_cx(&at.workspace_id)
            .and_then(|(workspace, cx)| {
                let wall = cx.now().wall;
                workspace.models.note_lasting_failure(target, outcome, wall)
            });
        let event = match (change, outcome) {
            (Some(FailureChange::Begun), CallOutcome::Error(error)) => {
                LogEvent::warn("calls to a model fail until a person acts")
                    .with("error", error.message.as_str())
            }
            (Some(FailureChange::Ended), _) => LogEvent::info("model replies again"),
            (Some(FailureChange::Begun), CallOutcome::Ok(_)) | (None, _) => return,
        };
        let event = event.of(at).with("target", target.to_string());
        fleet.log(event.in_trace(call.trace));
    }

    /// Notes the outcome of a call in one breaker. Returns the error of a failed probe.
    fn note_in(
        &self,
        fleet: &mut Fleet,
        id: CallId,
        outcome: &CallOutcome,
        scope: BreakerScope,
    ) -> Option<CallError> {
        let call = self.open.get(&id)?;
        let (at, target, trace) = (&call.at, &call.target, call.trace);
        let now_ms = fleet.now().mono_ms;
        let breaker = breaker_mut(fleet, &at.workspace_id, target, scope)?;
        let was_open = breaker.is_open();
        let was_probe = breaker.open().and_then(OpenBreaker::probe) == Some(id);
        match outcome {
            CallOutcome::Error(error) if error.code == CallErrorCode::Cancelled => {
                breaker.abandoned(id);
            }
            CallOutcome::Error(error) if is_outage(error, scope) => {
                breaker.failed(id, error, now_ms);
            }
            CallOutcome::Ok(_) | CallOutcome::Error(_) => breaker.answered(),
        }
        let (suspended, resumed) = match scope {
            BreakerScope::Endpoint => (
                "endpoint suspended after repeated failures",
                "endpoint is called again",
            ),
            BreakerScope::Model => (
                "model suspended after repeated failures",
                "model is called again",
            ),
        };
        let event = match (breaker.open().cloned(), was_open) {
            (Some(open), true) => return was_probe.then_some(open.error),
            (Some(open), false) => LogEvent::warn(suspended)
                .with("failures", open.outages)
                .with("error", open.error.message),
            (None, true) => LogEvent::info(resumed),
            (None, false) => return None,
        };
        let has_ended = was_open && scope == BreakerScope::Endpoint;
        let event = event.of(at).with("target", target.to_string());
        fleet.log(event.in_trace(trace));
        if has_ended && let Some(workspace) = fleet.workspace_mut(&at.workspace_id) {
            workspace.models.resume_endpoint(target);
        }
        None
    }

    /// Counts a failed probe as an attempt of every call that waited for it.
    fn count_probe(
        &mut self,
        fleet: &mut Fleet,
        id: CallId,
        scope: BreakerScope,
        error: &CallError,
    ) {
        let Some(probe) = self.open.get(&id) else {
            return;
        };
        let (workspace_id, target) = (probe.at.workspace_id.clone(), probe.target.clone());
        let models = fleet.workspaces().get(&workspace_id).map(|it| &it.models);
        let is_probed = |call: &OpenCall| match scope {
            BreakerScope::Endpoint => {
                models.is_some_and(|models| models.share_endpoint(&call.target, &target))
            }
            BreakerScope::Model => call.target == target,
        };
        let waiting = self.ids(|call| {
            call.at.workspace_id == workspace_id
                && matches!(call.state, CallState::Waiting)
                && is_probed(call)
        });
        for call_id in waiting {
            let Some(call) = self.open.get_mut(&call_id) else {
                continue;
            };
            call.attempts = call.attempts.saturating_add(1);
            if call.attempts >= CALL_ATTEMPTS_MAX {
                self.end_call(fleet, call_id, CallOutcome::Error(error.clone()));
            }
        }
    }
}

#[cfg(test)]
#[path = "breakers_tests.rs"]
mod tests;
