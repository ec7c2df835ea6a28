//! Outgoing calls: who makes them, when, and what becomes of them when anybody dies.
//!
//! An agent asks for a call; the process of the named model or connection makes it. Calls that share a
//! credential share a [`Lane`]: agents take turns, only so many run at a time, and when the other side
//! says "too many", all of them wait.
//!
//! # Invariants
//!
//! * A call that an agent waits for ends in exactly one `call.result`.
//! * A model's reply is durable before the agent sees it, and the reply of one step is recorded once:
//!   whoever asks for the step again gets the recorded one, or the one under way.
//! * No call to a model begins that may lead past a [budget](budgets).
//! * What a reply took is durable in the ledger before the reply is recorded, and is put down once.
//! * A call that is not idempotent is handed to a connector at most once, unless the connector itself
//!   says that it had no effect.

use std::collections::{BTreeMap, BTreeSet};

use goondan_oauth::Ticket;
use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOrder, CallOutcome, CallPiece, CallPlace, CallRecord,
    CallResult, CallRetry, CallTarget, Caller, ModelPiece, OutgoingCall,
};
use goondan_protocol::ids::{
    AgentName, ConnectionName, InstanceRef, QuestionId, ResourceName, StepId, WorkspaceId,
};
use goondan_protocol::ipc::{ToAgent, ToConnector};
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::trace::TraceContext;
use goondan_protocol::usage::Charge;
use goondan_store::ledger::Entry;
use serde_json::value::{RawValue, to_raw_value};

use self::accounts::{Accounts, Payer};
use self::budgets::Verdict;
use self::charges::Charges;
use self::declined::{Declined, runs_with_declined};
use self::lane::{Lane, Who};
use self::messages::{
    answer_call, check_call, credential_of, send_provider, tell_of_fallback, tell_watchers,
};
use self::metering::{count_request, count_unknown};
use self::open_questions::Questions;
use self::recording::step_to_record;
use self::replied::Replied;
use crate::exchange::oauth_calls::{OAuthCalled, SaidOfTokens};
use crate::exchange::task_calls::{NotificationRef, TaskCalled};
use crate::fleet::Fleet;
use crate::fleet::authority;
use crate::fleet::availability::Availability;
use crate::fleet::views::Work;
use crate::limits::{
    CALL_ATTEMPTS_MAX, CALL_DEADLINE_MAX_MS, CALL_RETRY_FIRST_MS, CALL_RETRY_MAX_MS,
    CALLS_OPEN_PER_AGENT, TICK_MS,
};
use crate::{LogEvent, ProcessId};

pub(super) mod accounts;
mod budgets;
mod charges;
mod consent;
mod declined;
mod ends;
mod for_oauth;
mod for_tasks;
mod lane;
mod messages;
mod metering;
mod of_daemon;
mod open_questions;
mod questions;
mod recording;
mod replied;
mod task_budgets;

/// Calls that are paid for and limited together: those of one connection, or of the models with one
/// key, which are named by the first of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Credential {
    Model(ResourceName),
    Connection(ConnectionName),
}

type LaneKey = (WorkspaceId, Credential);

/// How a call stands.
#[derive(Debug)]
enum CallState {
    /// It waits in its lane.
    Waiting,
    /// A connector makes it.
    Running { process: ProcessId },
    /// Its result is being recorded.
    Recording { message: Box<RawValue> },
    /// Its result could not be recorded; whoever asks again has it tried again.
    Unrecorded { message: Box<RawValue> },
}

/// What a call is made for.
#[derive(Debug)]
enum Origin {
    /// An agent's turn: its process waits, unless it crashed.
    Agent,
    /// The notification of a task.
    Task(NotificationRef),
    /// A token.
    OAuth(Ticket),
}

/// One call that is not over.
#[derive(Debug)]
struct OpenCall {
    at: InstanceRef,
    agent: AgentName,
    /// Who waits, and its own name for the call; nobody, after the agent crashed.
    waiter: Option<(ProcessId, CallId)>,
    origin: Origin,
    lane: LaneKey,
    target: CallTarget,
    method: String,
    params: Box<RawValue>,
    wants_pieces: bool,
    is_idempotent: bool,
    place: Option<CallPlace>,
    record: Option<(StepId, CallRecord)>,
    trace: Option<TraceContext>,
    deadline_ms: u64,
    /// Since when it waits for a login, if it does: that time does not count.
    held_since_ms: Option<u64>,
    not_before_ms: u64,
    /// What the other side said of the token that it was made with: it waits for another one.
    declined: Option<Declined>,
    /// How often it was begun.
    attempts: u32,
    /// When it was begun last.
    begun_ms: u64,
    /// Whether anybody has heard a piece of the attempt at hand.
    has_streamed: bool,
    /// Whom the reply counts against.
    payers: Vec<Payer>,
    /// What is reserved for it, while it is made and until its reply is counted.
    reserved: Option<Charge>,
    /// What the model's reply took, until that is put down in the ledger.
    bill: Option<Box<Entry>>,
    state: CallState,
}

impl OpenCall {
    /// Whose turn it takes.
    fn who(&self) -> Who<'_> {
        Who {
            agent: &self.agent,
            instance_key: &self.at.instance_key,
        }
    }

    /// Whether this is the call for the reply of a step.
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

/// The calls that are not over.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, OpenCall>,
    lanes: BTreeMap<LaneKey, Lane>,
    charges: Charges,
    questions: Questions,
    /// The replies that turns in progress got last.
    replied: BTreeMap<InstanceRef, Replied>,
    done_for_tasks: Vec<TaskCalled>,
    /// Workspaces in whose ledgers something was put down.
    charged: BTreeSet<WorkspaceId>,
    /// The same of calls for tokens.
    done_for_oauth: Vec<OAuthCalled>,
    /// What was said of tokens that calls were made with.
    verdicts: Vec<SaidOfTokens>,
    /// What replies took so far, of each workspace.
    accounts: BTreeMap<WorkspaceId, Accounts>,
}

impl Work for Calls {
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
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.charges.is_empty()
    }

    /// What is held to have been spent in each workspace.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &Accounts> {
        self.accounts.values()
    }

    /// The questions that wait.
    pub(super) fn open_questions(&self) -> impl Iterator<Item = &open_questions::OpenQuestion> {
        self.questions.all(None)
    }
}

impl Calls {
    /// What a conversation has spent so far.
    pub(super) fn spent_by(&self, at: &InstanceRef) -> Charge {
        let payer = Payer::Instance(at.instance_key.clone());
        let accounts = self.accounts.get(&at.workspace_id);
        accounts.map_or_else(Charge::default, |accounts| accounts.ever(&payer))
    }

    /// Whether a model or connection has any call to make, or makes one.
    pub(super) fn any_for(&self, workspace_id: &WorkspaceId, target: &CallTarget) -> bool {
        self.open
            .values()
            .any(|call| call.at.workspace_id == *workspace_id && call.target == *target)
    }

    /// Whether a process makes this call.
    pub(super) fn is_made_by(&self, process: ProcessId, id: CallId) -> bool {
        let call = self.open.get(&id);
        call.is_some_and(|call| call.process() == Some(process))
    }

    fn ids(&self, mut test: impl FnMut(&OpenCall) -> bool) -> Vec<CallId> {
        let found = self.open.iter().filter(|(_, call)| test(call));
        found.map(|(id, _)| *id).collect()
    }

    /// Takes a call out of everything.
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

    /// A call that was begun is to be begun again, not before `not_before_ms`.
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

/// How long to wait before the next attempt, in milliseconds.
fn retry_delay_ms(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(16);
    (CALL_RETRY_FIRST_MS << doublings).min(CALL_RETRY_MAX_MS)
}

impl Calls {
    /// An agent wants something done outside.
    pub(super) fn on_call(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        process: ProcessId,
        trace: Option<TraceContext>,
        asked: OutgoingCall,
    ) {
        let waiter = (process, asked.call_id);
        let trace = match check_call(fleet, at, &asked) {
            Ok(within) => Some(authority::trace_within(&within, trace)),
            Err(error) => {
                return answer_call(fleet, at, waiter, CallOutcome::Error(error));
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
        let Some(agent) = fleet.agent_name(at).cloned() else {
            return;
        };
        let queued = self
            .has_room_for(process)
            .and_then(|()| self.queue_call(fleet, at, &agent, &asked.target));
        let (id, lane) = match queued {
            Ok(queued) => queued,
            Err(error) => {
                return answer_call(fleet, at, waiter, CallOutcome::Error(error));
            }
        };
        let deadline_ms = asked.deadline_ms.min(CALL_DEADLINE_MAX_MS);
        tell_of_fallback(fleet, at, &asked);
        let call = OpenCall {
            at: at.clone(),
            agent,
            waiter: Some(waiter),
            origin: Origin::Agent,
            lane: lane.clone(),
            target: asked.target.clone(),
            method: asked.method,
            params: asked.params,
            wants_pieces: asked.pieces,
            is_idempotent: asked.idempotent || step.is_some(),
            place: asked.place,
            record: step.zip(asked.record),
            trace,
            deadline_ms: fleet.now().mono_ms.saturating_add(deadline_ms),
            held_since_ms: None,
            not_before_ms: 0,
            declined: None,
            attempts: 0,
            begun_ms: 0,
            has_streamed: false,
            payers: self.payers_of(fleet, at, &asked.target),
            reserved: None,
            bill: None,
            state: CallState::Waiting,
        };
        self.open.insert(id, call);
        self.serve(fleet, &at.workspace_id, &asked.target);
    }

    /// Whether an agent's process may wait for one more call.
    fn has_room_for(&self, process: ProcessId) -> Result<(), CallError> {
        let open = self.ids(|call| call.waiter.is_some_and(|(p, _)| p == process));
        if open.len() < CALLS_OPEN_PER_AGENT {
            return Ok(());
        }
        let message = format!("the agent waits for {CALLS_OPEN_PER_AGENT} calls already");
        Err(CallError::new(CallErrorCode::Overloaded, message).later(None))
    }

    /// Gives a new call its place in the lane of its target.
    fn queue_call(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        agent: &AgentName,
        target: &CallTarget,
    ) -> Result<(CallId, LaneKey), CallError> {
        let Some(credential) = credential_of(fleet, &at.workspace_id, target) else {
            let message = format!("there is no {target} in the configuration");
            return Err(CallError::new(CallErrorCode::NotFound, message));
        };
        let who = Who {
            agent,
            instance_key: &at.instance_key,
        };
        let lane = (at.workspace_id.clone(), credential);
        let id = fleet.next_call_id();
        let queue = self.lanes.entry(lane.clone()).or_default();
        queue.is_served_by(target);
        if !queue.push(who, id) {
            let message = format!("too many calls wait for {target}");
            return Err(CallError::new(CallErrorCode::Overloaded, message).later(None));
        }
        Ok((id, lane))
    }

    /// Does what can be done for the calls to one model or connection.
    pub(super) fn serve(&mut self, fleet: &mut Fleet, id: &WorkspaceId, target: &CallTarget) {
        if !self.any_for(id, target) {
            return;
        }
        if let CallTarget::Model { name } = target {
            fleet.pump_model(id, name, true);
        }
        if let Availability::Not(error) = fleet.availability(id, target) {
            let waiting = self.ids(|call| {
                call.at.workspace_id == *id
                    && call.target == *target
                    && matches!(call.state, CallState::Waiting)
            });
            for call_id in waiting {
                self.end_call(fleet, call_id, CallOutcome::Error(error.clone()));
            }
        }
        let lanes = self.lanes.iter();
        let served = lanes.filter(|((of, _), lane)| of == id && lane.targets().contains(target));
        let served: Vec<LaneKey> = served.map(|(lane_key, _)| lane_key.clone()).collect();
        for lane_key in served {
            self.serve_lane(fleet, &lane_key);
        }
    }

    /// Begins every call of a lane that may begin now.
    fn serve_lane(&mut self, fleet: &mut Fleet, lane_key: &LaneKey) {
        let now_ms = fleet.now().mono_ms;
        let Some(lane) = self.lanes.get(lane_key) else {
            return;
        };
        let mut ready: BTreeMap<CallTarget, ProcessId> = BTreeMap::new();
        for target in lane.targets() {
            if let Availability::Ready(process) = fleet.availability(&lane_key.0, target) {
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
                (!runs_with_declined(fleet, call, process)).then_some(process)
            };
            let Some(id) = lane.next(now_ms, |id| process_for(id).is_some()) else {
                break;
            };
            let Some(process) = process_for(id) else {
                continue;
            };
            match self.budget_verdict(fleet, id) {
                Verdict::Fits(reserved) => self.begin_call(fleet, id, process, reserved),
                // Whoever it waits for comes to an end.
                Verdict::Wait => self.put_back(id, now_ms.saturating_add(TICK_MS)),
                Verdict::Refused(error) => {
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
        let now_ms = fleet.now().mono_ms;
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        call.attempts = call.attempts.saturating_add(1);
        call.begun_ms = now_ms;
        call.state = CallState::Running { process };
        call.declined = None;
        call.reserved = reserved;
        let (target, trace) = (call.target.clone(), call.trace);
        let caller = Caller {
            agent: call.agent.clone(),
            instance_key: call.at.instance_key.clone(),
        };
        let (method, params) = (call.method.clone(), call.params.clone());
        let deadline_ms = call.deadline_ms.saturating_sub(now_ms);
        let order = CallOrder {
            call_id: id,
            caller,
            method,
            params,
            deadline_ms,
        };
        send_provider(
            fleet,
            process,
            &target,
            trace,
            ToConnector::Call(Box::new(order)),
        );
    }

    /// Ends a call, telling whoever waits for it.
    fn end_call(&mut self, fleet: &mut Fleet, id: CallId, mut outcome: CallOutcome) {
        let Some(call) = self.remove(id) else {
            return;
        };
        if let CallOutcome::Error(error) = &mut outcome {
            if error.code == CallErrorCode::Interrupted {
                error.outcome_unknown = !call.is_idempotent;
            }
            if error.outcome_unknown {
                count_unknown(fleet, &call.at.workspace_id, &call.target);
            }
            let event = LogEvent::warn("an outgoing call failed").of(&call.at);
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
            (Origin::Task(of), _) => self.done_for_tasks.push(TaskCalled { of, outcome }),
            (Origin::OAuth(ticket), _) => self.done_for_oauth.push(OAuthCalled {
                ticket,
                method: call.method,
                outcome,
            }),
            (Origin::Agent, Some(waiter)) => answer_call(fleet, &call.at, waiter, outcome),
            (Origin::Agent, None) => {}
        }
    }

    /// The call that `process` makes under this name. One it does not make was given up meanwhile.
    fn running_call(&mut self, process: ProcessId, id: CallId) -> Option<&mut OpenCall> {
        let call = self.open.get_mut(&id)?;
        (call.process() == Some(process)).then_some(call)
    }

    /// A connector tells a part of what comes of a call.
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

    /// Hands a piece to the agent, if it wants it, and to whoever watches the turn.
    fn pass_on(&mut self, fleet: &mut Fleet, id: CallId, piece: &RawValue) {
        let Some(call) = self.open.get(&id) else {
            return;
        };
        let at = call.at.clone();
        let place = call.place.clone();
        if let Some((process, call_id)) = call.waiter.filter(|_| call.wants_pieces) {
            let piece = piece.to_owned();
            let piece = ToAgent::CallPiece(CallPiece { call_id, piece });
            fleet.send_agent(&at, process, None, None, piece);
        }
        // A summary of what is long past is no part of the turn's answer.
        let is_summary = |place: &CallPlace| place.step_id.as_ref().is_some_and(StepId::is_summary);
        if let Some(place) = place.filter(|place| !is_summary(place)) {
            tell_watchers(fleet, &at, &place, piece);
        }
    }

    /// Tells those who wait for the turn that one of its calls is made again, and when.
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

    /// A connector tells how a call ended.
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
        if let Some(call) = self.open.get(&id) {
            count_request(fleet, call, &result.outcome);
        }
        fleet.provider_worked(process);
        self.note_verdict(fleet, process, &result.outcome);
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

    /// Makes a call again that had no effect, later; or gives it up.
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
            lane.cool_down(again_ms.min(now_ms.saturating_add(CALL_DEADLINE_MAX_MS)));
        }
        let is_worth_it = error.retryable
            && !call.has_streamed
            && call.attempts < CALL_ATTEMPTS_MAX
            && again_ms < call.deadline_ms;
        if !is_worth_it {
            return self.end_call(fleet, id, CallOutcome::Error(error));
        }
        let (at, target, trace) = (call.at.clone(), call.target.to_string(), call.trace);
        self.tell_of_retry(fleet, id, &error, delay_ms);
        let event = LogEvent::info("an outgoing call is made again").of(&at);
        let event = event
            .with("target", target)
            .with("code", error.code.as_str())
            .with("afterMs", delay_ms);
        let event = event.with("error", error.message).in_trace(trace);
        fleet.log(event);
        self.put_back(id, again_ms);
    }

    /// A workspace is opened, for which this was spent so far.
    pub(super) fn open_accounts(&mut self, id: &WorkspaceId, accounts: Accounts) {
        self.accounts.insert(id.clone(), accounts);
    }

    /// Forgets the replies to turns of conversations that have nothing to do any more.
    pub(super) fn forget_replies(&mut self, fleet: &Fleet) {
        self.replied.retain(|at, _| fleet.agent_name(at).is_some());
    }

    /// Forgets the calls of a workspace that is gone.
    pub(super) fn forget_calls_of(&mut self, id: &WorkspaceId) {
        self.open.retain(|_, call| call.at.workspace_id != *id);
        self.lanes.retain(|(workspace_id, _), _| workspace_id != id);
    }
}
