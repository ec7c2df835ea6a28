//! Event queues of conversations: accepts events, acknowledges them once they are durable, and
//! notifies the senders that wait for their outcomes.

use goondan_protocol::control::{ControlError, ErrorCode, SendResult};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{AgentName, EventId, InstanceRef};
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode, ToConnector};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_PENDING_EVENTS_PER_INSTANCE;
use goondan_protocol::task::{TASK_KEY_PREFIX, is_of_task};
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::instance::EventState;
use goondan_store::writer::operation::{Accept, AcceptResult, LookUpEvent};

use super::Workspace;
use super::agent_replies::pending_replies::{QuestionStatus, ReplyMode, Requester};
use super::conversation_run::{ConversationRun, RunUpdate};
use super::scheduled_inputs::refused;
use super::waiters::TurnWaiter;
use crate::RequestToken;
use crate::bus::context::Cx;
use crate::bus::queue::Message;
use crate::exchange::ChildRequest;
use crate::exchange::schedules::SubmittedOccurrence;
use crate::jobs::continuation;
use crate::limits::JOIN_PARTS_WAITING_MAX;
use crate::refusals::parked_error;

/// Reason why an event was not stored, without details of this machine, which senders must not see.
fn told_to_strangers(code: RefusalCode) -> &'static str {
    if code == RefusalCode::Damaged {
        "files of this conversation are lost or damaged; an operator must repair them"
    } else {
        "the event could not be stored; try again later"
    }
}

/// Receiver of an acknowledgment that an event is durable.
#[derive(Debug)]
pub(crate) enum EventOrigin {
    Connector {
        request: ChildRequest,
        /// The event's id as the connector sent it.
        said: EventId,
    },
    /// An agent that sent a request. `reply` identifies the event that will bring the answer, if it
    /// comes as an event.
    Agent {
        requester: Requester,
        reply_mode: ReplyMode,
        question: EventId,
        reply: Box<AgentEvent>,
    },
    /// No receiver: the event is the answer to a request of its instance.
    Answer,
    /// A schedule, with the occurrence of the event.
    Schedule(Box<SubmittedOccurrence>),
    /// A task, with the run of the event.
    Run(Box<ConversationRun>),
    /// A client; with `wait`, it is answered after the turn.
    Client {
        token: RequestToken,
        sent: SendResult,
        wait: bool,
    },
}

continuation! {
    /// An event that is being written to the inbox.
    Accepting { event: Box<AgentEvent>, reply: EventOrigin } after Accept => workspace.on_accepted
}

continuation! {
    /// A search for the outcome of a finished event that a caller waits for.
    LookingUp { event_id: EventId } after LookUpEvent => &workspace.on_looked_up
}

impl Workspace {
    /// Sends an event to the store. `reply` receives the acknowledgment, or the reason of the
    /// failure.
    pub(crate) fn accept(
        &mut self,
        cx: &mut Cx,
        instance: InstanceRef,
        agent: &AgentName,
        event: AgentEvent,
        reply: EventOrigin,
    ) {
        let is_run = matches!(reply, EventOrigin::Run(_));
        if is_of_task(&instance.instance_key) && !is_run {
            let message =
                format!("conversations named `{TASK_KEY_PREFIX}…` belong to tasks; use `gdn task`");
            return self.refuse(cx, &reply, RefusalCode::Invalid, message);
        }
        let now = cx.now().wall;
        let Some(entry) = self.conversation_entry(cx, &instance, Some(agent)) else {
            return;
        };
        if entry.is_deleting() {
            let message = format!("conversation `{}` is being deleted", instance.instance_key);
            return self.refuse(cx, &reply, RefusalCode::Unavailable, message);
        }
        // Answers are bounded by the questions, and the requester has reserved their places.
        let is_answer = matches!(reply, EventOrigin::Answer);
        if !is_answer && entry.pending() >= MAX_PENDING_EVENTS_PER_INSTANCE {
            let message = format!(
                "conversation `{}` already has {MAX_PENDING_EVENTS_PER_INSTANCE} waiting events",
                instance.instance_key
            );
            return self.refuse(cx, &reply, RefusalCode::Overloaded, message);
        }
        if event.waits_as().is_some() && entry.queue().parts() >= JOIN_PARTS_WAITING_MAX {
            let message = format!(
                "in conversation `{}`, {JOIN_PARTS_WAITING_MAX} events already wait for the other \
                 parts of joins",
                instance.instance_key
            );
            return self.refuse(cx, &reply, RefusalCode::Overloaded, message);
        }
        entry.queue_mut().begin_accept(now);
        let former_id = match &reply {
            EventOrigin::Connector { said, .. } => Some(said.clone()),
            EventOrigin::Agent { .. }
            | EventOrigin::Answer
            | EventOrigin::Schedule(_)
            | EventOrigin::Run(_)
            | EventOrigin::Client { .. } => None,
        };
        let accept = Accept {
            instance: instance.clone(),
            agent: agent.clone(),
            event: Box::new(event.clone()),
            former_id: former_id.filter(|said| *said != event.id),
        };
        let event = Box::new(event);
        cx.store(
            accept,
            Accepting {
                instance,
                event,
                reply,
            },
        );
    }

    pub(super) fn refuse(
        &mut self,
        cx: &mut Cx,
        reply: &EventOrigin,
        code: RefusalCode,
        message: String,
    ) {
        match reply {
            EventOrigin::Connector { request, .. } => {
                cx.refuse_connector(*request, EventRefused::new(code, message));
            }
            EventOrigin::Agent {
                requester,
                reply_mode,
                question,
                ..
            } => self.refuse_requester(cx, requester, reply_mode, question, code, message),
            EventOrigin::Run(of) => cx.tell_task(of, RunUpdate::Refused(message)),
            EventOrigin::Schedule(of) => cx.send(refused(of, message)),
            // Retried later, because the pending answer is recorded.
            EventOrigin::Answer => {}
            &EventOrigin::Client { token, .. } => {
                let (code, suggestion) = match code {
                    RefusalCode::Invalid => (ErrorCode::InvalidRequest, None),
                    RefusalCode::Unroutable => (ErrorCode::AgentNotFound, None),
                    RefusalCode::Overloaded => (ErrorCode::Overloaded, Some("try again later")),
                    RefusalCode::Unavailable => (
                        ErrorCode::Storage,
                        Some("the event was not accepted; fix the cause, then send it again"),
                    ),
                    RefusalCode::Damaged => (
                        ErrorCode::Damaged,
                        Some(
                            "the event was not accepted; list all damage with `gdn daemon verify`",
                        ),
                    ),
                };
                let error = ControlError::new(code, message);
                let error = match suggestion {
                    Some(suggestion) => error.suggest(suggestion),
                    None => error,
                };
                cx.respond_error(token, error);
            }
        }
    }

    fn on_accepted(
        &mut self,
        cx: &mut Cx,
        accepting: Accepting,
        result: Result<AcceptResult, StoreError>,
    ) {
        let (event, reply) = (*accepting.event, accepting.reply);
        let instance = &accepting.instance;
        let AcceptResult { before, created } = match result {
            Ok(accepted) => accepted,
            Err(error) => {
                self.refuse_for(cx, instance, &reply, &error);
                if let EventOrigin::Answer = reply
                    && let Some(entry) = self.conversations.get_mut(&instance.instance_key)
                {
                    entry.on_delivered(cx, instance, &event.id, false);
                }
                return self.settle_accept(cx, instance, error.is_io());
            }
        };
        let trace = event.trace_id.zip(event.parent_span_id);
        let trace = trace.map(|(trace_id, span)| TraceContext::root(trace_id, span));
        let is_new = before == EventState::Unknown;
        let key = &instance.instance_key;
        if is_new {
            self.count_event(cx, key, &event.source);
        }
        let accepted = LifecycleEvent::EventAccepted {
            instance_key: key.clone(),
            event_id: event.id.clone(),
            again: !is_new,
        };
        self.announce(cx, accepted, trace);
        if created {
            let created = LifecycleEvent::InstanceCreated {
                instance_key: key.clone(),
                agent_name: self.agent_name(&instance.instance_key).cloned(),
            };
            self.announce(cx, created, None);
        }
        let event_id = event.id.clone();
        if let Some(entry) = self.conversations.get_mut(&instance.instance_key) {
            entry.queue_mut().end_accept(is_new.then_some(event));
        }
        self.tell_sender(cx, instance, &event_id, reply, before);
        self.advance(cx, instance);
    }

    /// Acknowledges a durable event to its sender.
    fn tell_sender(
        &mut self,
        cx: &mut Cx,
        instance: &InstanceRef,
        event_id: &EventId,
        reply: EventOrigin,
        before: EventState,
    ) {
        let duplicate = before != EventState::Unknown;
        match reply {
            EventOrigin::Connector { request, said } => {
                self.provider_worked(cx, request.process);
                let accepted = EventAccepted {
                    event_id: said,
                    duplicate,
                    instance_key: Some(instance.instance_key.clone()),
                };
                cx.answer_connector(request, ToConnector::EventAccepted(accepted));
            }
            EventOrigin::Agent {
                requester,
                reply_mode,
                question,
                reply,
            } => self.on_question_accepted(
                cx,
                instance,
                &question,
                (requester, reply_mode),
                reply,
                before,
            ),
            EventOrigin::Answer => {
                if let Some(entry) = self.conversations.get_mut(&instance.instance_key) {
                    entry.on_delivered(cx, instance, event_id, true);
                }
            }
            EventOrigin::Run(of) => self.on_run_accepted(cx, of, before),
            EventOrigin::Schedule(of) => cx.send(Message::Submitted(of)),
            EventOrigin::Client { token, sent, wait } => {
                let sent = SendResult { duplicate, ..sent };
                self.answer_sender(cx, instance, token, sent, wait, before);
            }
        }
    }

    /// Answers a client whose event is durable, or registers it to wait for the outcome.
    fn answer_sender(
        &mut self,
        cx: &mut Cx,
        instance: &InstanceRef,
        token: RequestToken,
        sent: SendResult,
        wait: bool,
        before: EventState,
    ) {
        let outcome = match before {
            EventState::Done(outcome) => Some(outcome),
            EventState::Unknown | EventState::Waiting if !wait => None,
            // A parked event needs a decision by a person, so waiting for it is pointless.
            EventState::Parked(parked) if wait => {
                let error = parked_error(&parked.event.id, &parked.reason);
                return cx.respond_error(token, error);
            }
            EventState::Parked(_) => None,
            EventState::Unknown | EventState::Waiting => {
                if let Some(error) = self.why_nothing_begins(cx, &instance.instance_key) {
                    return cx.respond_error(token, error);
                }
                self.tell_of_approvals(cx, instance, &sent.event_id, token);
                if let Some(entry) = self.conversations.get_mut(&instance.instance_key) {
                    let event_id = sent.event_id.clone();
                    let sent = Box::new(sent);
                    let waiter = TurnWaiter::Client { token, sent };
                    entry.waiters_mut().add(event_id, waiter);
                }
                return;
            }
        };
        cx.respond(token, &SendResult { outcome, ..sent });
    }

    /// Handles an event that was not accepted. `may_be_there` is true if a partial write may have
    /// survived.
    fn settle_accept(&mut self, cx: &mut Cx, instance: &InstanceRef, may_be_there: bool) {
        if let Some(entry) = self.conversations.get_mut(&instance.instance_key) {
            entry.queue_mut().end_accept(None);
        }
        if may_be_there {
            self.invalidate_queue(cx, instance);
        }
        self.forget_if_done(cx, &instance.instance_key);
    }

    fn refuse_for(
        &mut self,
        cx: &mut Cx,
        instance: &InstanceRef,
        reply: &EventOrigin,
        error: &StoreError,
    ) {
        let text = goondan_log::error_chain(error);
        let refused = LifecycleEvent::EventRefused {
            instance_key: instance.instance_key.clone(),
            error: text.clone(),
        };
        self.announce(cx, refused, None);
        let code = if error.is_permanent() {
            RefusalCode::Damaged
        } else {
            RefusalCode::Unavailable
        };
        match (error, reply) {
            (StoreError::KeyTaken { .. }, &EventOrigin::Client { token, .. }) => {
                let error = ControlError::new(ErrorCode::InstanceKeyTaken, text).suggest(
                    "choose another `--conversation` key, or pass that agent with `--agent`",
                );
                cx.respond_error(token, error);
            }
            (StoreError::KeyTaken { .. }, reply) => {
                self.refuse(cx, reply, RefusalCode::Unroutable, text);
            }
            (_, EventOrigin::Client { .. } | EventOrigin::Run(_) | EventOrigin::Schedule(_)) => {
                self.refuse(cx, reply, code, text);
            }
            // Senders receive no details about this machine; they are in the log.
            (_, reply) => self.refuse(cx, reply, code, told_to_strangers(code).to_owned()),
        }
    }

    fn on_looked_up(
        &mut self,
        cx: &mut Cx,
        sought: &LookingUp,
        result: Result<EventState, StoreError>,
    ) {
        let (at, event_id) = (&sought.instance, &sought.event_id);
        match result {
            Ok(EventState::Done(outcome)) => {
                self.answer_waiters(cx, at, event_id, &outcome);
            }
            Ok(EventState::Waiting) => {}
            Ok(EventState::Unknown | EventState::Parked(_)) | Err(_) => {
                let error = ControlError::new(
                    ErrorCode::Cancelled,
                    format!("the outcome of event `{event_id}` is no longer stored"),
                );
                for waiter in self.take_waiters(at, event_id) {
                    self.fail_waiter(cx, at, event_id, waiter, &error, QuestionStatus::Lost);
                }
            }
        }
        self.forget_if_done(cx, &at.instance_key);
    }

    pub(super) fn take_waiters(&mut self, at: &InstanceRef, event_id: &EventId) -> Vec<TurnWaiter> {
        let entry = self.conversations.get_mut(&at.instance_key);
        entry.map_or_else(Vec::new, |entry| entry.waiters_mut().take(event_id))
    }

    pub(crate) fn answer_waiters(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        event_id: &EventId,
        outcome: &TurnOutcome,
    ) {
        for waiter in self.take_waiters(at, event_id) {
            match waiter {
                TurnWaiter::Client { token, sent } => {
                    let outcome = Some(outcome.clone());
                    let sent = SendResult { outcome, ..*sent };
                    cx.respond(token, &sent);
                }
                TurnWaiter::Agent(waiter) => self.tell_agent(cx, at, event_id, &waiter, outcome),
                TurnWaiter::Run(of) => cx.tell_task(&of, RunUpdate::Ended(Ok(outcome.clone()))),
                TurnWaiter::Connection(waiter) => {
                    self.tell_connection(cx, &waiter, outcome);
                }
            }
        }
    }

    /// Answers all waiters for turns of an instance with an error.
    pub(crate) fn cancel_waiters(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        error: &ControlError,
        status: QuestionStatus,
    ) {
        self.cancel_waiters_but(cx, at, None, error, status);
    }

    fn cancel_waiters_but(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        kept: Option<&EventId>,
        error: &ControlError,
        status: QuestionStatus,
    ) {
        let entry = self.conversations.get_mut(&at.instance_key);
        let waiters = entry.map(|entry| entry.waiters_mut().take_all_but(kept));
        for (event_id, waiter) in waiters.into_iter().flatten() {
            self.fail_waiter(cx, at, &event_id, waiter, error, status);
        }
    }

    /// Answers all waiters for turns that will not begin with an error. Turns in progress are
    /// finished, and their waiters get the results.
    pub(super) fn cancel_waiters_of_later_turns(&mut self, cx: &mut Cx, error: &ControlError) {
        for at in self.conversation_refs() {
            let current = self.turn_of(&at.instance_key);
            let current = current.map(|turn| turn.context.event_id.clone());
            self.cancel_waiters_but(cx, &at, current.as_ref(), error, QuestionStatus::Stands);
        }
    }
}
