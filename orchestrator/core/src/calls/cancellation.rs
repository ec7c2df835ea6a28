//! Calls that end without an answer: canceled, interrupted by a lost process, or timed out.

use goondan_protocol::call::{
    CallCancel, CallError, CallErrorCode, CallId, CallOutcome, CallTarget, ModelPiece,
};
use goondan_protocol::ids::{InstanceRef, TurnId, WorkspaceId};
use goondan_protocol::ipc::ToConnector;
use serde_json::value::to_raw_value;

use super::messages::send_provider;
use super::{CallState, Calls, LaneKey, OpenCall};
use crate::ProcessId;
use crate::fleet::Fleet;
use crate::limits::CALL_ATTEMPTS_MAX;

impl Calls {
    /// Handles an agent's cancellation of a call.
    pub(crate) fn on_call_cancel(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        cancel: CallCancel,
    ) {
        let waiter = Some((process, cancel.call_id));
        for id in self.ids(|call| call.waiter == waiter) {
            self.give_up(fleet, id);
        }
    }

    /// Cancels a call without a waiter. A reply that is being recorded is recorded anyway.
    pub(super) fn give_up(&mut self, fleet: &mut Fleet, id: CallId) {
        if let Some(call) = self.open.get_mut(&id)
            && let CallState::Recording { .. } = call.state
        {
            call.waiter = None;
            return;
        }
        let Some(mut call) = self.remove(id) else {
            return;
        };
        if let Some(bill) = call.bill.take() {
            self.put_down(fleet, call.at.clone(), bill);
        }
        if let Some(process) = call.process() {
            let cancel = ToConnector::CallCancel(CallCancel { call_id: id });
            send_provider(fleet, process, &call.target, call.trace, cancel);
        }
        self.serve_lane(fleet, &call.lane);
    }

    /// Handles the loss of an agent's process. A model's reply is still awaited, because it is paid
    /// for and the restarted agent requests it again. Other calls are canceled.
    pub(crate) fn on_caller_gone(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        at: &InstanceRef,
    ) {
        let is_staying = fleet
            .workspace_and_cx(&at.workspace_id)
            .is_none_or(|(it, cx)| it.why_nothing_begins(cx, &at.instance_key).is_none());
        for id in self.ids(|call| call.waiter.is_some_and(|(p, _)| p == process)) {
            match self.open.get_mut(&id) {
                Some(call) if is_staying && call.record.is_some() => call.waiter = None,
                _ => self.give_up(fleet, id),
            }
        }
    }

    /// Cancels the calls of a conversation's finished turns: all except those of `current`.
    pub(crate) fn give_up_calls_of(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        current: Option<&TurnId>,
    ) {
        let is_over = |call: &OpenCall| {
            call.at == *at
                && call
                    .place
                    .as_ref()
                    .is_some_and(|p| Some(&p.turn_id) != current)
        };
        for id in self.ids(is_over) {
            self.give_up(fleet, id);
        }
        if current.is_none() {
            self.replied.remove(at);
        }
    }

    /// Handles the loss of a connector's process. Its successor retries the calls that can be
    /// retried.
    pub(crate) fn on_provider_gone(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        id: &WorkspaceId,
        target: &CallTarget,
        how: &str,
    ) {
        for call_id in self.ids(|call| call.process() == Some(process)) {
            let Some(call) = self.open.get_mut(&call_id) else {
                continue;
            };
            let had_streamed = std::mem::take(&mut call.has_streamed);
            let target = &call.target;
            if !call.is_idempotent && !call.recovery.is_recoverable() {
                let message = format!("{target} ended during the call ({how}); outcome unknown");
                let error = CallError::new(CallErrorCode::Interrupted, message)
                    .suggest("check whether the call took effect before you try again");
                self.end_call(fleet, call_id, CallOutcome::Error(error));
            } else if call.attempts >= CALL_ATTEMPTS_MAX {
                let times = call.attempts;
                let message =
                    format!("{target} ended {times} times during this call, most recently: {how}");
                let error = CallError::new(CallErrorCode::Interrupted, message)
                    .suggest("run `gdn logs` to see the last output of its process");
                call.recovery.attempt_lost();
                self.end_call(fleet, call_id, CallOutcome::Error(error));
            } else {
                let message = format!("its process ended: {how}");
                let error = CallError::new(CallErrorCode::Interrupted, message);
                call.recovery.attempt_lost();
                self.put_back(call_id, 0);
                if had_streamed && let Ok(again) = to_raw_value(&ModelPiece::Again) {
                    self.pass_on(fleet, call_id, &again);
                }
                self.tell_of_retry(fleet, call_id, &error, 0);
            }
        }
        self.serve(fleet, id, target);
    }

    /// Ends calls that timed out and starts calls that are due.
    pub(crate) fn on_call_time(&mut self, fleet: &mut Fleet) {
        self.hold_for_consent(fleet);
        let now_ms = fleet.now().mono_ms;
        let late = self.ids(|call| {
            let is_outside = matches!(call.state, CallState::Waiting | CallState::Running { .. });
            call.deadline_ms <= now_ms && is_outside && call.held_since_ms.is_none()
        });
        for id in late {
            // The call's timeout is paused while a question is open.
            if self.questions.holds(id) {
                continue;
            }
            let Some(call) = self.open.get(&id) else {
                continue;
            };
            // No other token arrived in time, so the call ends with the rejection.
            if let Some(declined) = &call.declined {
                let error = declined.error.clone();
                self.end_call(fleet, id, CallOutcome::Error(error));
                continue;
            }
            let (target, trace, process) = (call.target.clone(), call.trace, call.process());
            let is_harmless = process.is_none() || call.is_idempotent;
            let error = if is_harmless {
                let message = format!("{target} did not answer in time");
                CallError::new(CallErrorCode::TimedOut, message).suggest("try again later")
            } else {
                let unknown = format!("{target} did not answer in time; outcome unknown");
                CallError::new(CallErrorCode::TimedOut, unknown)
                    .of_unknown_outcome()
                    .suggest("check whether the call took effect before you try again")
            };
            if let Some(process) = process {
                let cancel = ToConnector::CallCancel(CallCancel { call_id: id });
                send_provider(fleet, process, &target, trace, cancel);
            }
            self.end_call(fleet, id, CallOutcome::Error(error));
        }
        let lanes: Vec<LaneKey> = self.lanes.keys().cloned().collect();
        for lane in lanes {
            self.serve_lane(fleet, &lane);
        }
    }
}
