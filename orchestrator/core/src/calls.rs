//! Outgoing calls: queueing, execution, and recovery when a process dies.
//!
//! An agent requests a call; the process of the named model or connection executes it. Calls that
//! share a credential share a [`CredentialQueue`]: agents take turns, and the number of concurrent calls
//! is limited. A rate-limit response delays the calls to its model or connection.
//!
//! # Invariants
//!
//! * A call that an agent waits for ends in exactly one `call.result`.
//! * A model's reply is durable before the agent receives it, and the reply of a step is recorded
//!   once: a repeated request for the step receives the recorded reply or waits for the one in
//!   progress.
//! * No call to a model begins if it could exceed a [budget](budgets).
//! * The usage of a reply is durable in the ledger before the reply is recorded, and is recorded
//!   once.
//! * A call that is not idempotent is sent to a connector at most once, unless the connector
//!   reports that it had no effect, or finds out itself whether the first attempt had one
//!   ([`recovery`]).

use std::collections::BTreeMap;

use goondan_oauth::Ticket;
use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOrder, CallOutcome, CallPiece, CallPlace, CallRecord,
    CallResult, CallRetry, CallTarget, Caller, ModelPiece, OutgoingCall,
};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, InstanceRef, QuestionId, ResourceName, StepId, WorkspaceId,
};
use goondan_protocol::ipc::{ToAgent, ToConnector};
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::trace::TraceContext;
use goondan_protocol::usage::Charge;
use goondan_store::ledger::LedgerEntry;
use serde_json::value::{RawValue, to_raw_value};

use self::accounts::{Accounts, BudgetOwner};
use self::breakers::{attempts_before, is_suspended_with_fallback, note_start, passage_of};
use self::budgets::Admission;
use self::call_metrics::{count_request, count_sent, count_unknown};
use self::lane::{CredentialQueue, QueueKey};
use self::last_reply::LastReply;
use self::messages::{
    answer_call, check_call, credential_of, send_provider, tell_of_fallback, tell_watchers,
};
use self::model_replies::step_to_record;
use self::open_questions::Questions;
use self::pending_charges::Charges;
use self::recovery::AttemptRecovery;
use self::token_rejection::{TokenRejection, runs_with_declined};
use crate::bus::queue::Message;
use crate::exchange::oauth_calls::OAuthCallResult;
use crate::exchange::task_calls::{TaskCallRef, TaskCallResult};
use crate::fleet::Fleet;
use crate::fleet::authority;
use crate::fleet::availability::{Availability, starting};
use crate::fleet::breaker::Passage;
use crate::fleet::conversation::Conversation;
use crate::fleet::views::ProcessWorkload;
use crate::limits::{
    CALL_ATTEMPTS_MAX, CALL_DEADLINE_MAX_MS, CALL_RECOVERY_WAIT_MS, CALL_RETRY_FIRST_MS,
    CALL_RETRY_MAX_MS, CALLS_OPEN_PER_AGENT, TICK_MS,
};
use crate::{LogEvent, ProcessId};

pub(super) mod accounts;
mod breakers;
mod budgets;
mod call_metrics;
mod cancellation;
mod consent;
mod internal_calls;
mod lane;
mod last_reply;
mod messages;
mod model_replies;
mod oauth_calls;
mod open_questions;
mod pending_charges;
mod question_decisions;
mod questions;
mod recovery;
mod task_budgets;
mod task_calls;
mod token_rejection;

/// Group of calls that share a bill and rate limits: those of one connection, or of all models with
/// the same key. The group of models is named after the first model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Credential {
    Model(ResourceName),
    Connection(ConnectionName),
}

type LaneKey = (WorkspaceId, Credential);

#[derive(Debug)]
enum CallState {
    Waiting,
    Running {
        process: ProcessId,
    },
    /// Its result is being recorded.
    Recording {
        message: Box<RawValue>,
    },
    /// Its result could not be recorded; the next request for the step retries the write.
    Unrecorded {
        message: Box<RawValue>,
    },
}

#[derive(Debug)]
enum Origin {
    /// A turn of an agent. The agent's process waits, unless it crashed.
    Agent,
    Task(TaskCallRef),
    OAuth(Ticket),
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    at: InstanceRef,
    agent: AgentName,
    /// The event of the turn that requested it.
    event_id: Option<EventId>,
    /// The waiting process and its id for the call; `None` after the agent crashed.
    waiter: Option<(ProcessId, CallId)>,
    origin: Origin,
    lane: LaneKey,
    target: CallTarget,
    method: String,
    params: Box<RawValue>,
    wants_pieces: bool,
    is_idempotent: bool,
    /// Attempts whose outcome the connector can find out.
    recovery: AttemptRecovery,
    /// True if the call fails instead of waiting for the process of its target.
    only_if_ready: bool,
    place: Option<CallPlace>,
    record: Option<(StepId, CallRecord)>,
    trace: Option<TraceContext>,
    deadline_ms: u64,
    /// Start of the current wait for a login. Time spent waiting for a login does not count.
    held_since_ms: Option<u64>,
    not_before_ms: u64,
    /// Time of the request.
    asked_ms: u64,
    /// The rejection of the token last used. The call waits for another token.
    declined: Option<TokenRejection>,
    attempts: u32,
    /// Start of the latest attempt.
    begun_ms: u64,
    /// True if a piece of the current attempt was delivered.
    has_streamed: bool,
    /// The budget owners that the reply counts against.
    payers: Vec<BudgetOwner>,
    /// Budget reserved while the call runs, until its reply is counted.
    reserved: Option<Charge>,
    /// The usage of the model's reply, until the ledger records it.
    bill: Option<Box<LedgerEntry>>,
    state: CallState,
}

impl OpenCall {
    fn who(&self) -> QueueKey<'_> {
        QueueKey {
            agent: &self.agent,
            instance_key: &self.at.instance_key,
        }
    }

    /// True if the call has waited this long, or cannot wait this long before its deadline.
    fn has_waited(&self, now_ms: u64, patience_ms: u64) -> bool {
        let until_ms = self.asked_ms.saturating_add(patience_ms);
        now_ms >= until_ms || self.deadline_ms <= until_ms.saturating_add(patience_ms)
    }

    /// True if this call requests the reply of `step_id`.
    fn is_for(&self, at: &InstanceRef, step_id: &StepId) -> bool {
        self.at == *at && self.record.as_ref().is_some_and(|(id, _)| id == step_id)
    }

    fn process(&self) -> Option<ProcessId> {
        match self.state {
            CallState::Running { process } => Some(process),
            CallState::Waiting | CallState::Recording { .. } | CallState::Unrecorded { .. } => None,
        }
    }
}

/// All calls that have not ended.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, OpenCall>,
    lanes: BTreeMap<LaneKey, CredentialQueue>,
    charges: Charges,
    questions: Questions,
    /// The latest reply of each turn in progress.
    replied: BTreeMap<InstanceRef, LastReply>,
    accounts: BTreeMap<WorkspaceId, Accounts>,
}

impl ProcessWorkload for Calls {
    fn is_called(&self, id: &WorkspaceId, target: &CallTarget) -> bool {
        self.any_for(id, target)
    }

    fn waiting_targets(&self, at: &InstanceRef) -> Vec<CallTarget> {
        self.targets_waited_for(at)
    }

    fn wider_needs(&self, at: &InstanceRef) -> Vec<OAuthNeed> {
        self.consents_to_more(at)
    }

    fn questions_in(&self, id: &WorkspaceId) -> usize {
        self.questions.all(Some(id)).count()
    }

    fn questions_of(&self, at: &InstanceRef) -> Vec<QuestionId> {
        self.questions.of_instance(at)
    }
}

#[cfg(test)]
impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.charges.is_empty()
    }

    /// Recorded spending of each workspace.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &Accounts> {
        self.accounts.values()
    }

    /// Questions awaiting an answer.
    pub(super) fn open_questions(&self) -> impl Iterator<Item = &open_questions::OpenQuestion> {
        self.questions.all(None)
    }
}

impl Calls {
    /// Total spending of a conversation.
    pub(super) fn spent_by(&self, at: &InstanceRef) -> Charge {
        let payer = BudgetOwner::Instance(at.instance_key.clone());
        let accounts = self.accounts.get(&at.workspace_id);
        accounts.map_or_else(Charge::default, |accounts| accounts.ever(&payer))
    }

    /// True if a call to this model or connection is queued or running.
    pub(super) fn any_for(&self, workspace_id: &WorkspaceId, target: &CallTarget) -> bool {
        self.open
            .values()
            .any(|call| call.at.workspace_id == *workspace_id && call.target == *target)
    }

    /// True if `process` is executing this call.
    pub(super) fn is_made_by(&self, process: ProcessId, id: CallId) -> bool {
        let call = self.open.get(&id);
        call.is_some_and(|call| call.process() == Some(process))
    }

    fn ids(&self, mut test: impl FnMut(&OpenCall) -> bool) -> Vec<CallId> {
        let found = self.open.iter().filter(|(_, call)| test(call));
        found.map(|(id, _)| *id).collect()
    }

    /// Removes a call from the open calls and from its lane.
    fn remove(&mut self, id: CallId) -> Option<OpenCall> {
        let call = self.open.remove(&id)?;
        if let Some(lane) = self.lanes.get_mut(&call.lane) {
            match call.state {
                CallState::Waiting => lane.remove(call.who(), id),
                CallState::Running { .. } => lane.ended(),
                CallState::Recording { .. } | CallState::Unrecorded { .. } => {}
            }
        }
        Some(call)
    }

    /// Requeues a call that was begun. It starts no earlier than `not_before_ms`.
    fn put_back(&mut self, id: CallId, not_before_ms: u64) {
        if let Some(call) = self.open.get_mut(&id)
            && let Some(lane) = self.lanes.get_mut(&call.lane)
        {
            lane.ended();
            lane.push_back_in(call.who(), id);
            call.not_before_ms = not_before_ms;
            call.reserved = None;
            call.state = CallState::Waiting;
        }
    }
}

/// Delay before the next attempt, in milliseconds.
fn retry_delay_ms(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(16);
    (CALL_RETRY_FIRST_MS << doublings).min(CALL_RETRY_MAX_MS)
}

impl Calls {
    /// Handles a call request from an agent.
    pub(super) fn on_call(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        process: ProcessId,
        trace: Option<TraceContext>,
        asked: OutgoingCall,
    ) {
        let waiter = (process, asked.call_id);
        let recovery = AttemptRecovery::new(asked.recoverable, asked.again_since);
        let refused = |error| CallOutcome::Error(recovery.unsettled(error));
        let (event_id, trace) = match check_call(fleet, at, &asked) {
            Ok(within) => {
                let trace = authority::trace_within(&within, trace);
                (Some(within.context.event_id), Some(trace))
            }
            Err(error) => {
                return answer_call(fleet, at, waiter, refused(error));
            }
        };
        let step = match step_to_record(fleet, at, &asked) {
            Ok(step) => step,
            Err(problem) => return fleet.on_broken(process, problem),
        };
        if let Some(step_id) = &step
            && self.answer_from_record(fleet, at, step_id, waiter, &asked.target)
        {
            return;
        }
        let Some(agent) = fleet.conversation(at).map(Conversation::agent).cloned() else {
            return;
        };
        let queued = self
            .has_room_for(process)
            .and_then(|()| self.queue_call(fleet, at, &agent, &asked.target));
        let (id, lane) = match queued {
            Ok(queued) => queued,
            Err(error) => {
                return answer_call(fleet, at, waiter, refused(error));
            }
        };
        let deadline_ms = asked.deadline_ms.min(CALL_DEADLINE_MAX_MS);
        tell_of_fallback(fleet, at, &asked);
        let call = OpenCall {
            at: at.clone(),
            agent,
            event_id,
            waiter: Some(waiter),
            origin: Origin::Agent,
            lane: lane.clone(),
            target: asked.target.clone(),
            method: asked.method,
            params: asked.params,
            wants_pieces: asked.pieces,
            is_idempotent: asked.idempotent || step.is_some(),
            recovery,
            only_if_ready: asked.only_if_ready,
            place: asked.place,
            record: step.zip(asked.record),
            trace,
            deadline_ms: fleet.now().mono_ms.saturating_add(deadline_ms),
            held_since_ms: None,
            not_before_ms: 0,
            asked_ms: fleet.now().mono_ms,
            declined: None,
            attempts: 0,
            begun_ms: 0,
            has_streamed: false,
            payers: self.payers_of(fleet, at, &asked.target),
            reserved: None,
            bill: None,
            state: CallState::Waiting,
        };
        let call = OpenCall {
            attempts: attempts_before(fleet, &call),
            ..call
        };
        self.open.insert(id, call);
        self.serve(fleet, &at.workspace_id, &asked.target);
    }

    /// Checks that an agent's process may have one more open call.
    fn has_room_for(&self, process: ProcessId) -> Result<(), CallError> {
        let open = self.ids(|call| call.waiter.is_some_and(|(p, _)| p == process));
        if open.len() < CALLS_OPEN_PER_AGENT {
            return Ok(());
        }
        let message = format!("the agent already has {CALLS_OPEN_PER_AGENT} open calls");
        Err(CallError::new(CallErrorCode::Overloaded, message).later(None))
    }

    /// Enqueues a new call in the lane of its target.
    fn queue_call(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        agent: &AgentName,
        target: &CallTarget,
    ) -> Result<(CallId, LaneKey), CallError> {
        let Some(credential) = credential_of(fleet, &at.workspace_id, target) else {
            let message = format!("{target} is not in the configuration");
            return Err(CallError::new(CallErrorCode::NotFound, message));
        };
        let who = QueueKey {
            agent,
            instance_key: &at.instance_key,
        };
        let lane = (at.workspace_id.clone(), credential);
        let id = fleet.cx().next_call_id();
        let queue = self.lanes.entry(lane.clone()).or_default();
        queue.is_served_by(target);
        if !queue.push(who, id) {
            let message = format!("too many calls are waiting for {target}");
            return Err(CallError::new(CallErrorCode::Overloaded, message).later(None));
        }
        Ok((id, lane))
    }

    /// Advances the calls to one model or connection.
    pub(super) fn serve(&mut self, fleet: &mut Fleet, id: &WorkspaceId, target: &CallTarget) {
        if !self.any_for(id, target) {
            return;
        }
        if let CallTarget::Model { name } = target
            && let Some((workspace, cx)) = fleet.workspace_and_cx(id)
        {
            workspace.advance_model(cx, name, true);
        }
        // The patience is that of calls that wait for the process.
        let ended = match fleet.availability(id, target) {
            Availability::Not(error) => Some((error, Some(0))),
            Availability::Recovering(error) => Some((error, Some(CALL_RECOVERY_WAIT_MS))),
            Availability::Coming => Some((starting(target), None)),
            Availability::Ready(_) | Availability::Consent => None,
        };
        if let Some((error, patience_ms)) = ended {
            let now_ms = fleet.now().mono_ms;
            let waiting = self.ids(|call| {
                call.at.workspace_id == *id
                    && call.target == *target
                    && matches!(call.state, CallState::Waiting)
                    && (call.only_if_ready
                        || patience_ms.is_some_and(|ms| call.has_waited(now_ms, ms)))
            });
            for call_id in waiting {
                self.end_call(fleet, call_id, CallOutcome::Error(error.clone()));
            }
        }
        self.end_suspended(fleet, id, target);
        let lanes = self.lanes.iter();
        let served = lanes.filter(|((of, _), lane)| of == id && lane.targets().contains(target));
        let served: Vec<LaneKey> = served.map(|(lane_key, _)| lane_key.clone()).collect();
        for lane_key in served {
            self.serve_lane(fleet, &lane_key);
        }
    }

    /// Starts every call of a lane that can start now.
    fn serve_lane(&mut self, fleet: &mut Fleet, lane_key: &LaneKey) {
        let now_ms = fleet.now().mono_ms;
        let Some(lane) = self.lanes.get(lane_key) else {
            return;
        };
        for target in lane.targets() {
            self.release_probe(fleet, &lane_key.0, target);
        }
        let mut ready: BTreeMap<CallTarget, ProcessId> = BTreeMap::new();
        for target in lane.targets() {
            if !lane.is_cooling(target, now_ms)
                && let Availability::Ready(process) = fleet.availability(&lane_key.0, target)
            {
                ready.insert(target.clone(), process);
            }
        }
        loop {
            let Self { open, lanes, .. } = self;
            let Some(lane) = lanes.get_mut(lane_key) else {
                return;
            };
            let process_for = |id: CallId| {
                let call = open.get(&id).filter(|call| call.not_before_ms <= now_ms)?;
                let process = ready.get(&call.target).copied()?;
                let may_begin = !runs_with_declined(fleet, call, process)
                    && passage_of(fleet, call) != Passage::No;
                may_begin.then_some(process)
            };
            let Some(id) = lane.next(|id| process_for(id).is_some()) else {
                break;
            };
            let Some(process) = process_for(id) else {
                continue;
            };
            match self.budget_verdict(fleet, id) {
                Admission::Fits(reserved) => self.begin_call(fleet, id, process, reserved),
                // The call starts when a call that holds the reservation ends.
                Admission::Wait => self.put_back(id, now_ms.saturating_add(TICK_MS)),
                Admission::Refused(error) => {
                    self.put_back(id, now_ms);
                    self.end_call(fleet, id, CallOutcome::Error(error));
                }
            }
        }
        if let Some(lane) = self.lanes.get(lane_key)
            && lane.is_idle(now_ms)
        {
            self.lanes.remove(lane_key);
        }
    }

    fn begin_call(
        &mut self,
        fleet: &mut Fleet,
        id: CallId,
        process: ProcessId,
        reserved: Option<Charge>,
    ) {
        let now = fleet.now();
        let (now_ms, wall) = (now.mono_ms, now.wall);
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        call.attempts = call.attempts.saturating_add(1);
        call.recovery.begin(wall);
        call.begun_ms = now_ms;
        call.state = CallState::Running { process };
        call.declined = None;
        call.reserved = reserved;
        let (target, trace) = (call.target.clone(), call.trace);
        note_start(fleet, &call.at.workspace_id, &target, id);
        let caller = Caller {
            agent: call.agent.clone(),
            instance_key: call.at.instance_key.clone(),
        };
        let (method, params) = (call.method.clone(), call.params.clone());
        let deadline_ms = call.deadline_ms.saturating_sub(now_ms);
        let order = CallOrder {
            call_id: id,
            caller,
            event_id: call.event_id.clone(),
            method,
            params,
            deadline_ms,
            again_since: call.recovery.again_since(),
        };
        send_provider(
            fleet,
            process,
            &target,
            trace,
            ToConnector::Call(Box::new(order)),
        );
    }

    /// Ends a call and notifies its waiter.
    fn end_call(&mut self, fleet: &mut Fleet, id: CallId, mut outcome: CallOutcome) {
        let Some(call) = self.remove(id) else {
            return;
        };
        if let CallOutcome::Error(error) = &mut outcome {
            if error.code == CallErrorCode::Interrupted {
                error.outcome_unknown = !call.is_idempotent;
            }
            call.recovery.mark_unsettled(error);
            if error.outcome_unknown {
                count_unknown(fleet, &call.at.workspace_id, &call.target);
            }
            let event = LogEvent::warn("outgoing call failed").of(&call.at);
            let event = event
                .with("target", call.target.to_string())
                .with("code", error.code.as_str())
                .with("attempts", call.attempts);
            fleet.log(
                event
                    .with("error", error.message.clone())
                    .in_trace(call.trace),
            );
        }
        match (call.origin, call.waiter) {
            (Origin::Task(of), _) => {
                fleet.post(Message::TaskCallDone(TaskCallResult { of, outcome }));
            }
            (Origin::OAuth(ticket), _) => fleet.post(Message::OAuthCallDone(OAuthCallResult {
                ticket,
                method: call.method,
                outcome,
            })),
            (Origin::Agent, Some(waiter)) => answer_call(fleet, &call.at, waiter, outcome),
            (Origin::Agent, None) => {}
        }
    }

    /// Returns the call that `process` executes under this id; `None` if it was abandoned.
    fn running_call(&mut self, process: ProcessId, id: CallId) -> Option<&mut OpenCall> {
        let call = self.open.get_mut(&id)?;
        (call.process() == Some(process)).then_some(call)
    }

    /// Handles a partial result from a connector.
    pub(super) fn on_call_piece(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        piece: &CallPiece,
    ) {
        let Some(call) = self.running_call(process, piece.call_id) else {
            return;
        };
        call.has_streamed = true;
        self.pass_on(fleet, piece.call_id, &piece.piece);
    }

    /// Forwards a piece to the agent, if it requested pieces, and to the watchers of the turn.
    fn pass_on(&mut self, fleet: &mut Fleet, id: CallId, piece: &RawValue) {
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let at = call.at.clone();
        let place = call.place.clone();
        if let Some((process, call_id)) = call.waiter.filter(|_| call.wants_pieces) {
            let piece = piece.to_owned();
            let piece = ToAgent::CallPiece(CallPiece { call_id, piece });
            if let Some((entry, cx)) = fleet.conversation_and_cx(&at) {
                entry.send(cx, &at, (process, None), None, piece);
            }
        }
        // A summary of older messages is not part of the turn's answer.
        let is_summary = |place: &CallPlace| place.step_id.as_ref().is_some_and(StepId::is_summary);
        if let Some(place) = place.filter(|place| !is_summary(place)) {
            tell_watchers(fleet, &at, &place, piece);
        }
    }

    /// Notifies the watchers of the turn that a call will be retried, and when.
    fn tell_of_retry(&mut self, fleet: &mut Fleet, id: CallId, error: &CallError, delay_ms: u64) {
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let Some(place) = call.place.clone() else {
            return;
        };
        let at = call.at.clone();
        let retry = ModelPiece::Retry(CallRetry {
            target: call.target.to_string(),
            attempt: call.attempts.saturating_add(1),
            attempts_max: CALL_ATTEMPTS_MAX,
            delay_ms,
            code: error.code,
            reason: error.message.clone(),
        });
        if let Ok(piece) = to_raw_value(&retry) {
            tell_watchers(fleet, &at, &place, &piece);
        }
    }

    /// Handles the final result from a connector.
    pub(super) fn on_call_result(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        result: CallResult,
    ) {
        let id = result.call_id;
        let Some(call) = self.running_call(process, id) else {
            return;
        };
        let (lane, is_recorded) = (call.lane.clone(), call.record.is_some());
        call.recovery.found_out(&result.outcome);
        if let Some(call) = self.open.get(&id) {
            count_request(fleet, call, &result.outcome);
            count_sent(fleet, call, &result.outcome);
            if let Some(found) = result.looked_back {
                recovery::announce_look_back(fleet, call, found);
            }
        }
        if let Some((workspace, cx)) = fleet.workspace_of(process) {
            workspace.provider_worked(cx, process);
        }
        self.note_outcome(fleet, id, &result.outcome);
        token_rejection::note_verdict(fleet, process, &result.outcome);
        match result.outcome {
            CallOutcome::Ok(answer) if is_recorded => self.record_reply(fleet, id, &answer),
            CallOutcome::Ok(answer) => self.end_call(fleet, id, CallOutcome::Ok(answer)),
            CallOutcome::Error(error) => {
                self.count_failure(fleet, id, error.usage.as_deref().copied());
                if let Err(error) = self.hold_for_token(fleet, id, process, error) {
                    self.on_call_failed(fleet, id, error);
                }
            }
        }
        self.serve_lane(fleet, &lane);
    }

    /// Retries a call that had no effect, after a delay, or ends it with the error.
    fn on_call_failed(&mut self, fleet: &mut Fleet, id: CallId, error: CallError) {
        let now_ms = fleet.now().mono_ms;
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let delay_ms = retry_delay_ms(call.attempts).max(error.retry_after_ms.unwrap_or(0));
        let again_ms = now_ms.saturating_add(delay_ms);
        if error.code == CallErrorCode::RateLimited
            && let Some(lane) = self.lanes.get_mut(&call.lane)
        {
            let until_ms = again_ms.min(now_ms.saturating_add(CALL_DEADLINE_MAX_MS));
            lane.cool_down(&call.target, until_ms);
        }
        let is_worth_it = error.retryable
            && !is_suspended_with_fallback(fleet, call)
            && !call.has_streamed
            && call.attempts < CALL_ATTEMPTS_MAX
            && again_ms < call.deadline_ms;
        if !is_worth_it {
            return self.end_call(fleet, id, CallOutcome::Error(error));
        }
        let (at, target, trace) = (call.at.clone(), call.target.to_string(), call.trace);
        self.tell_of_retry(fleet, id, &error, delay_ms);
        let event = LogEvent::info("retrying outgoing call").of(&at);
        let event = event
            .with("target", target)
            .with("code", error.code.as_str())
            .with("afterMs", delay_ms);
        let event = event.with("error", error.message).in_trace(trace);
        fleet.log(event);
        self.put_back(id, again_ms);
    }

    /// Sets the spending so far of a workspace that was opened.
    pub(super) fn open_accounts(&mut self, id: &WorkspaceId, accounts: Accounts) {
        self.accounts.insert(id.clone(), accounts);
    }

    /// Drops the replies of conversations that have become idle.
    pub(super) fn forget_replies(&mut self, fleet: &Fleet) {
        self.replied
            .retain(|at, _| fleet.conversation(at).is_some());
    }

    /// Drops the calls of a closed workspace.
    pub(super) fn forget_calls_of(&mut self, id: &WorkspaceId) {
        self.open.retain(|_, call| call.at.workspace_id != *id);
        self.lanes.retain(|(workspace_id, _), _| workspace_id != id);
    }
}
