//! Delivery of answers to the agents that asked.
//!
//! An answer is delivered in one of two ways. A waiting call receives it as its result. Otherwise
//! it is an event of the requester's instance, whose id is derived from the question's, so it is
//! delivered once. The expected answer is recorded in the requester's inbox ([`PendingReplyRecord`]) before
//! the question is sent; when the instance is opened, the outcome is requested from the other
//! instance. A call that times out, or whose answer cannot arrive because the workspace or daemon
//! stops, switches from the first way to the second.
//!
//! An answer that arrives during a turn is passed to the turn for its next step, and the turn's
//! commit ends both events. A later answer gets a turn of its own.

use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef, TurnId};
use goondan_protocol::ipc::RefusalCode;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_store::StoreError;
use goondan_store::instance::{EventState, PendingReplyRecord};
use goondan_store::writer::operation::{AwaitReply, ForgoReply, LookUpEvent, ReplyAwaited};
use serde_json::json;

use super::conversation::Conversation;
use super::conversation_run::RunUpdate;
use super::event_queue::EventOrigin;
use super::waiters::TurnWaiter;
use super::{ProcessOwner, Workspace};
use crate::LogEvent;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::limits::LOOK_AGAIN_MS;
use crate::refusals::{AgentRequestError, parked_error};

pub(crate) mod pending_replies;

use pending_replies::{AgentWaiter, Mode, QuestionStatus, ReplyMode, ReplyWatch, Requester};

fn failed(code: &str, message: impl Into<String>) -> TurnOutcome {
    TurnOutcome::Failed {
        code: code.to_owned(),
        message: message.into(),
    }
}

/// Converts an error of the control API for agents.
fn outcome_of(error: &ControlError) -> TurnOutcome {
    let code = match error.code {
        ErrorCode::EventParked => "E_EVENT_PARKED",
        _ => "E_AGENT_GONE",
    };
    failed(code, error.message.clone())
}

/// Truncates an answer to the maximum size of an event.
fn capped(outcome: &TurnOutcome) -> TurnOutcome {
    match outcome {
        TurnOutcome::Completed { reply } if reply.len() > MAX_INPUT_BYTES => {
            let end = reply.floor_char_boundary(MAX_INPUT_BYTES);
            let (head, rest) = reply.split_at(end);
            TurnOutcome::Completed {
                reply: format!("{head} … ({} bytes more)", rest.len()),
            }
        }
        other => other.clone(),
    }
}

continuation! {
    /// Records that the answer will arrive as an event, then sends the question.
    AwaitingThenAsk {
        requester: Requester,
        target: InstanceRef,
        agent: AgentName,
        event: Box<AgentEvent>,
        reply: Box<AgentEvent>,
        reply_mode: ReplyMode,
    } after AwaitReply => workspace.on_awaiting_then_ask
}

continuation! {
    /// Records that the answer to a question already sent will arrive as an event after all.
    AwaitingThenTell {
        requester: Requester,
        target: InstanceRef,
        question: EventId,
        reply: Box<AgentEvent>,
        note: String,
    } after AwaitReply => workspace.on_awaiting_then_tell
}

continuation! {
    /// Records that no answer is expected, then notifies the requester.
    Forgoing { requester: Requester, question: EventId, answer: Box<AgentAnswer> } after ForgoReply => workspace.on_forgone
}

continuation! {
    /// Looks up the outcome of a question without an answer.
    LookingUpQuestion {
        question: EventId,
        target: InstanceRef,
        turn_is_open: bool,
    } after LookUpEvent => &workspace.on_question_looked_up
}

/// True if the process that asked has not exited.
fn is_up(cx: &Cx, requester: &Requester) -> bool {
    let owner = cx.processes().owner_of(requester.process);
    owner == Some(&ProcessOwner::Agent(requester.at.clone()))
}

impl AwaitingThenAsk {
    /// Has the store record the expected answer.
    pub(super) fn begin(self, cx: &mut Cx) {
        let awaited = PendingReplyRecord {
            question: self.event.id.clone(),
            target: self.target.instance_key.clone(),
            reply: (*self.reply).clone(),
        };
        let op = AwaitReply {
            instance: self.instance.clone(),
            awaited: Box::new(awaited),
            at: cx.now().wall,
        };
        cx.store(op, self);
    }
}

/// Answers that it expects as events.
impl Conversation {
    /// Looks up the outcome of unwatched questions in other instances. `open` is its open turn.
    pub(super) fn look_for_answers(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        open: Option<&TurnId>,
    ) {
        let now_ms = cx.now().mono_ms;
        let mut asked: Vec<(EventId, InstanceRef)> = Vec::new();
        for held in self.pending_replies_mut() {
            let is_watched = match held.watch {
                ReplyWatch::Somebody => true,
                ReplyWatch::Nobody => false,
                ReplyWatch::From(from_ms) => from_ms > now_ms,
            };
            if !is_watched {
                held.watch = ReplyWatch::Somebody;
                let target = InstanceRef {
                    workspace_id: at.workspace_id.clone(),
                    instance_key: held.awaited.target.clone(),
                };
                asked.push((held.awaited.question.clone(), target));
            }
        }
        for (question, target) in asked {
            let turn_is_open = open.is_some_and(|turn_id| {
                let rest = question.as_str().strip_prefix(turn_id.as_str());
                rest.is_some_and(|rest| rest.starts_with('.'))
            });
            let op = LookUpEvent {
                instance: target.clone(),
                event_id: question.clone(),
            };
            let sought = LookingUpQuestion {
                instance: at.clone(),
                question,
                target,
                turn_is_open,
            };
            cx.store(op, sought);
        }
    }

    /// Handles an answer that is durable as an event, or could not be made so (`is_there`: false).
    pub(super) fn on_delivered(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        reply_id: &EventId,
        is_there: bool,
    ) {
        let look_again_ms = cx.now().mono_ms.saturating_add(LOOK_AGAIN_MS);
        if is_there {
            self.on_answer_arrived(reply_id);
            self.hand_over_answers(cx, at);
        } else if let Some(held) = self.pending_reply_mut(reply_id) {
            held.watch = ReplyWatch::From(look_again_ms);
        }
    }

    /// Ends the waits of a finished turn's calls, and looks up the outcome of questions that the
    /// turn did not ask again.
    pub(super) fn end_questions(&mut self, cx: &mut Cx, at: &InstanceRef) {
        self.settle_questions();
        self.look_for_answers(cx, at, None);
    }
}

impl Workspace {
    /// Handles a question that is durable in the target instance.
    pub(super) fn on_question_accepted(
        &mut self,
        cx: &mut Cx,
        target: &InstanceRef,
        question: &EventId,
        (requester, reply_mode): (Requester, ReplyMode),
        reply: Box<AgentEvent>,
        before: EventState,
    ) {
        let over = match before {
            EventState::Done(outcome) => Some(outcome),
            EventState::Parked(parked) => Some(outcome_of(&parked_error(question, &parked.reason))),
            EventState::Unknown | EventState::Waiting => None,
        };
        match (reply_mode, over) {
            (ReplyMode::Hand, _) => self.tell_accepted(cx, &requester, target, question, None),
            (ReplyMode::Wait { .. }, Some(outcome)) => {
                self.tell_answered(cx, &requester, target, question, &outcome);
            }
            (ReplyMode::Wait { until_ms }, None) => {
                let mode = Mode::Call {
                    requester: requester.clone(),
                    until_ms,
                };
                let waiter = AgentWaiter {
                    requester: requester.at,
                    reply,
                    mode,
                };
                match self.why_nothing_begins(cx, &target.instance_key) {
                    Some(error) if !self.is_turn_of(&target.instance_key, question) => {
                        self.wait_no_longer(cx, target, question, waiter, error.message);
                    }
                    _ => self.add_waiter(target, question, waiter),
                }
            }
            (ReplyMode::Later { note }, over) => {
                match over {
                    Some(outcome) => self.deliver(cx, &requester.at, &reply, &outcome),
                    None => self.watch_for(&requester.at, target, question, &reply),
                }
                self.tell_accepted(cx, &requester, target, question, note);
            }
        }
    }

    fn is_turn_of(&self, key: &InstanceKey, event_id: &EventId) -> bool {
        let turn = self.turn_of(key);
        turn.is_some_and(|turn| turn.context.event_id == *event_id)
    }

    /// Adds an agent as a waiter for an event's turn. It waits at most once per question.
    fn add_waiter(&mut self, target: &InstanceRef, question: &EventId, waiter: AgentWaiter) {
        if let Some(entry) = self.conversations.get_mut(&target.instance_key) {
            let waiter = TurnWaiter::Agent(waiter);
            entry.waiters_mut().add(question.clone(), waiter);
        }
    }

    fn watch_for(
        &mut self,
        requester: &InstanceRef,
        target: &InstanceRef,
        question: &EventId,
        reply: &AgentEvent,
    ) {
        let waiter = AgentWaiter {
            requester: requester.clone(),
            reply: Box::new(reply.clone()),
            mode: Mode::Event,
        };
        self.add_waiter(target, question, waiter);
    }

    /// Ends the wait of a call. The question stays open, and its answer will arrive as an event.
    /// The call returns once that is recorded.
    fn wait_no_longer(
        &mut self,
        cx: &mut Cx,
        target: &InstanceRef,
        question: &EventId,
        waiter: AgentWaiter,
        note: String,
    ) {
        let AgentWaiter {
            requester: at,
            reply,
            mode,
        } = waiter;
        let requester = match mode {
            // The process is gone; the next one asks again.
            Mode::Call { requester, .. } if !is_up(cx, &requester) => return,
            Mode::Call { requester, .. } => requester,
            Mode::Event => return self.watch_for(&at, target, question, &reply),
        };
        self.watch_for(&at, target, question, &reply);
        let awaited = PendingReplyRecord {
            question: question.clone(),
            target: target.instance_key.clone(),
            reply: (*reply).clone(),
        };
        let op = AwaitReply {
            instance: at.clone(),
            awaited: Box::new(awaited),
            at: cx.now().wall,
        };
        let telling = AwaitingThenTell {
            instance: at,
            requester,
            target: target.clone(),
            question: question.clone(),
            reply,
            note,
        };
        cx.store(op, telling);
    }

    fn on_awaiting_then_tell(
        &mut self,
        cx: &mut Cx,
        telling: AwaitingThenTell,
        result: Result<ReplyAwaited, StoreError>,
    ) {
        let AwaitingThenTell {
            instance: _,
            requester,
            target,
            question,
            reply,
            note,
        } = telling;
        if self.note_awaiting(cx, &requester, (&target, &question), &reply, result) {
            self.tell_accepted(cx, &requester, &target, &question, Some(note));
        }
    }

    fn on_awaiting_then_ask(
        &mut self,
        cx: &mut Cx,
        asking: AwaitingThenAsk,
        result: Result<ReplyAwaited, StoreError>,
    ) {
        let AwaitingThenAsk {
            instance: _,
            requester,
            target,
            agent,
            event,
            reply,
            reply_mode,
        } = asking;
        if self.note_awaiting(cx, &requester, (&target, &event.id), &reply, result) {
            let question = event.id.clone();
            let reply = EventOrigin::Agent {
                requester,
                reply_mode,
                question,
                reply,
            };
            self.accept(cx, target, &agent, *event, reply);
        }
    }

    /// Handles the store's result of recording an expected answer. False if it failed.
    fn note_awaiting(
        &mut self,
        cx: &mut Cx,
        requester: &Requester,
        (target, question): (&InstanceRef, &EventId),
        reply: &AgentEvent,
        result: Result<ReplyAwaited, StoreError>,
    ) -> bool {
        match result {
            Ok(ReplyAwaited { is_open }) => {
                if let Some(entry) = self
                    .conversations
                    .get_mut(&requester.at.instance_key)
                    .filter(|_| is_open)
                {
                    entry.expect_answer(question, target, reply);
                }
                true
            }
            Err(error) => {
                self.on_store_failure(cx, &requester.at, Some(requester.process), &error);
                false
            }
        }
    }

    /// Rejects a question that could not be sent.
    pub(super) fn refuse_requester(
        &mut self,
        cx: &mut Cx,
        requester: &Requester,
        reply_mode: &ReplyMode,
        question: &EventId,
        code: RefusalCode,
        message: String,
    ) {
        let code = match code {
            RefusalCode::Invalid => "E_INVALID_REQUEST",
            RefusalCode::Unroutable => "E_INSTANCE_KEY_TAKEN",
            RefusalCode::Overloaded => "E_OVERLOADED",
            RefusalCode::Unavailable => "E_UNAVAILABLE",
            RefusalCode::Damaged => "E_DAMAGED",
        };
        let answer = AgentAnswer::from(AgentRequestError::new(code, message));
        if let ReplyMode::Later { .. } = reply_mode {
            let op = ForgoReply {
                instance: requester.at.clone(),
                question: question.clone(),
                at: cx.now().wall,
            };
            let forgoing = Forgoing {
                instance: requester.at.clone(),
                requester: requester.clone(),
                question: question.clone(),
                answer: Box::new(answer),
            };
            cx.store(op, forgoing);
        } else {
            if let Some(entry) = self.conversations.get_mut(&requester.at.instance_key) {
                entry.settle_question(question);
            }
            self.answer_agent(cx, requester, answer);
        }
    }

    fn on_forgone(&mut self, cx: &mut Cx, forgoing: Forgoing, result: Result<(), StoreError>) {
        let (requester, question) = (&forgoing.requester, &forgoing.question);
        if let Err(error) = result {
            return self.on_store_failure(cx, &requester.at, Some(requester.process), &error);
        }
        if let Some(entry) = self.conversations.get_mut(&requester.at.instance_key) {
            entry.forgo_answer(question);
        }
        self.answer_agent(cx, requester, *forgoing.answer);
    }

    fn tell_accepted(
        &mut self,
        cx: &mut Cx,
        requester: &Requester,
        target: &InstanceRef,
        question: &EventId,
        note: Option<String>,
    ) {
        if let Some(entry) = self.conversations.get_mut(&requester.at.instance_key) {
            entry.settle_question(question);
        }
        let Some(agent) = self.agent_name(&target.instance_key).cloned() else {
            return;
        };
        let (instance_key, event_id) = (target.instance_key.clone(), question.clone());
        let answer = match note {
            None => AgentAnswer::Accepted {
                agent,
                instance_key,
                event_id,
            },
            Some(reason) => AgentAnswer::Pending {
                agent,
                instance_key,
                event_id,
                reason,
            },
        };
        self.answer_agent(cx, requester, answer);
    }

    fn tell_answered(
        &mut self,
        cx: &mut Cx,
        requester: &Requester,
        target: &InstanceRef,
        question: &EventId,
        outcome: &TurnOutcome,
    ) {
        if let Some(entry) = self.conversations.get_mut(&requester.at.instance_key) {
            entry.settle_question(question);
        }
        let Some(agent) = self.agent_name(&target.instance_key).cloned() else {
            return;
        };
        let answer = AgentAnswer::Answered {
            agent,
            instance_key: target.instance_key.clone(),
            event_id: question.clone(),
            outcome: capped(outcome),
        };
        self.answer_agent(cx, requester, answer);
    }

    /// Sends the outcome of a turn to a waiting agent.
    pub(super) fn tell_agent(
        &mut self,
        cx: &mut Cx,
        target: &InstanceRef,
        question: &EventId,
        waiter: &AgentWaiter,
        outcome: &TurnOutcome,
    ) {
        match &waiter.mode {
            Mode::Call { requester, .. } => {
                self.tell_answered(cx, requester, target, question, outcome);
            }
            Mode::Event => self.deliver(cx, &waiter.requester, &waiter.reply, outcome),
        }
    }

    /// Notifies a waiter that no answer will arrive.
    pub(crate) fn fail_waiter(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        event_id: &EventId,
        waiter: TurnWaiter,
        error: &ControlError,
        status: QuestionStatus,
    ) {
        match (waiter, status) {
            (TurnWaiter::Client { token, .. }, _) => cx.respond_error(token, error.clone()),
            (TurnWaiter::Run(of), _) => cx.tell_task(&of, RunUpdate::Ended(Err(error.clone()))),
            (TurnWaiter::Connection(waiter), status) => {
                self.fail_connection(cx, at, event_id, waiter, error, status);
            }
            (TurnWaiter::Agent(waiter), QuestionStatus::Lost) => {
                self.tell_agent(cx, at, event_id, &waiter, &outcome_of(error));
            }
            (TurnWaiter::Agent(waiter), QuestionStatus::Stands) => {
                self.wait_no_longer(cx, at, event_id, waiter, error.message.clone());
            }
        }
    }

    /// Ends the waits of calls that timed out.
    pub(super) fn time_out_waiters(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let now_ms = cx.now().mono_ms;
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let late = entry.waiters_mut().take_late(now_ms);
        let has_to_look = entry.pending_replies().any(|held| match held.watch {
            ReplyWatch::From(from_ms) => from_ms <= now_ms,
            ReplyWatch::Somebody | ReplyWatch::Nobody => false,
        });
        for (question, waiter) in late {
            let note = "it did not answer in time".to_owned();
            self.wait_no_longer(cx, at, &question, waiter, note);
        }
        if has_to_look && let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            let open = entry.turn().map(|turn| turn.turn_id.clone());
            entry.look_for_answers(cx, at, open.as_ref());
        }
    }

    fn on_question_looked_up(
        &mut self,
        cx: &mut Cx,
        sought: &LookingUpQuestion,
        result: Result<EventState, StoreError>,
    ) {
        let (at, question, target) = (&sought.instance, &sought.question, &sought.target);
        let look_again_ms = cx.now().mono_ms.saturating_add(LOOK_AGAIN_MS);
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let Some(held) = entry.pending_reply_to(question) else {
            return;
        };
        let reply = held.awaited.reply.clone();
        match result {
            Ok(EventState::Done(outcome)) => {
                self.deliver(cx, at, &reply, &outcome);
            }
            Ok(EventState::Parked(parked)) => {
                let outcome = outcome_of(&parked_error(question, &parked.reason));
                self.deliver(cx, at, &reply, &outcome);
            }
            Ok(EventState::Waiting) => {
                self.take_up(cx, target, None);
                self.watch_for(at, target, question, &reply);
            }
            Ok(EventState::Unknown) | Err(StoreError::NoInstance { .. }) => {
                if sought.turn_is_open {
                    held.watch = ReplyWatch::Nobody;
                    return;
                }
                let message = format!("conversation `{}` no longer has it", target.instance_key);
                self.deliver(cx, at, &reply, &failed("E_AGENT_GONE", message));
            }
            Err(error) => {
                held.watch = ReplyWatch::From(look_again_ms);
                let event = LogEvent::warn("failed to read outcome of a request").of(at);
                self.log(cx, event.with("error", goondan_log::error_chain(&error)));
            }
        }
        self.forget_if_done(cx, &target.instance_key);
    }

    /// Submits the answer to an agent's question as an event.
    fn deliver(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        reply: &AgentEvent,
        outcome: &TurnOutcome,
    ) {
        let created_at = cx.now().wall;
        let Some(entry) = self
            .conversations
            .get_mut(&at.instance_key)
            .filter(|entry| !entry.is_deleting())
        else {
            return;
        };
        let agent = entry.agent().clone();
        let (status, input) = match capped(outcome) {
            TurnOutcome::Completed { reply } => ("completed", reply),
            TurnOutcome::Failed { code, message } => ("failed", format!("{code}: {message}")),
        };
        let mut event = AgentEvent {
            created_at,
            input: Some(input),
            ..reply.clone()
        };
        event.metadata.insert("status".to_owned(), json!(status));
        self.accept(cx, at.clone(), &agent, event, EventOrigin::Answer);
    }

    /// Drops the questions of an instance that is gone.
    pub(crate) fn forget_questions_of(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.forget_questions();
        }
        for entry in self.conversations.values_mut() {
            entry.waiters_mut().forget_requester(at);
        }
    }
}
