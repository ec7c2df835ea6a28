//! Cancellation of a turn in progress or a queued event, by a user (`STEER-1`, `STEER-2`) or for
//! its task.
//!
//! The process of the turn is killed with all its tools, and the recorded part of the turn is
//! committed. Cancellation therefore works independently of the process's state, and a crash leaves
//! the turn either open or finished.

use goondan_protocol::control::{ControlError, ErrorCode, EventCancelled};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceRef, TurnId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::instance::CancelScope;
use goondan_store::writer::operation::CancelEvent;

use super::Workspace;
use super::agent_replies::pending_replies::QuestionStatus;
use super::turn::{CANCELLED, JOIN_TIMEOUT};
use super::turns::Completing;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::{RequestToken, control_error};

/// Cause of a cancellation. The outcome of the event reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CancelCause {
    code: &'static str,
    /// For the model and for users.
    reason: &'static str,
}

continuation! {
    /// Cancels an event at a user's request.
    Cancelling {
        // The client's request; `None` if the cancellation has another cause.
        token: Option<RequestToken>,
        event_id: EventId,
        // Trace context of its turn, if in progress.
        trace: Option<TraceContext>,
        cause: CancelCause,
    } after CancelEvent => &core.on_cancelled
}

impl CancelCause {
    pub(crate) const BY_PERSON: Self = Self::new("canceled by a person");

    /// The part of a join waited until its time limit. It never had a turn.
    pub(super) const JOIN_TIMEOUT: Self = Self {
        code: JOIN_TIMEOUT,
        reason: "the other parts of its join did not arrive in time",
    };

    pub(crate) const fn new(reason: &'static str) -> Self {
        Self {
            code: CANCELLED,
            reason,
        }
    }

    fn outcome(self) -> TurnOutcome {
        let Self { code, reason } = self;
        let message = match code {
            JOIN_TIMEOUT => reason.to_owned(),
            _ => format!("{reason}; messages and effects from before stay in the conversation"),
        };
        TurnOutcome::Failed {
            code: code.to_owned(),
            message,
        }
    }
}

impl Cancelling {
    /// Commit handling of a canceled turn, like that of any other turn.
    pub(crate) fn completing(&self, turn_id: TurnId) -> Completing {
        Completing {
            instance: self.instance.clone(),
            process: None,
            turn_id,
            event_id: self.event_id.clone(),
            also: Vec::new(),
            outcome: self.cause.outcome(),
        }
    }
}

impl Workspace {
    /// Cancels the turn of an event, or the queued event; without an id, the turn in progress.
    /// Without a token, no client gets the result.
    pub(crate) fn cancel_for(
        &mut self,
        cx: &mut Cx,
        token: Option<RequestToken>,
        at: &InstanceRef,
        event_id: Option<EventId>,
        cause: CancelCause,
    ) {
        let wall = cx.now().wall;
        let entry = self.conversations.get_mut(&at.instance_key);
        let wanted = event_id.or_else(|| entry.as_ref()?.worked_on().next().cloned());
        let Some(event_id) = wanted else {
            let text = format!("no turn is in progress in `{}`", at.instance_key);
            let error = ControlError::new(ErrorCode::EventNotFound, text).suggest(
                "list waiting events with `gdn event list`, and turns in progress with `gdn ps`",
            );
            if let Some(token) = token {
                cx.respond_error(token, error);
            }
            return;
        };
        // The end of its set, which is on its way to the disk, may make it the input of all parts.
        let is_joining = entry
            .as_ref()
            .is_some_and(|it| it.queue().is_joining(&event_id));
        if let Some(token) = token.filter(|_| is_joining) {
            let text = format!("event `{event_id}` is being joined with others");
            let error = ControlError::new(ErrorCode::InstanceBusy, text);
            return cx.respond_error(token, error.suggest("list events with `gdn event list`"));
        }
        let trace = entry.and_then(|entry| {
            let trace = entry.end_work_on(&event_id)?;
            if let Some(process) = entry.process() {
                entry.kill(cx, process, true);
            }
            Some(trace)
        });
        let cancel = CancelEvent {
            instance: at.clone(),
            event_id: event_id.clone(),
            outcome: cause.outcome(),
            reason: cause.reason.to_owned(),
            at: wall,
        };
        let then = Cancelling {
            instance: at.clone(),
            token,
            event_id,
            trace,
            cause,
        };
        cx.store(cancel, then);
    }

    /// Handles the store's result. Returns the turn, if it was open.
    pub(crate) fn on_cancelled(
        &mut self,
        cx: &mut Cx,
        cancelling: &Cancelling,
        result: Result<CancelScope, StoreError>,
    ) -> Option<TurnId> {
        let (at, event_id) = (&cancelling.instance, &cancelling.event_id);
        let cancelled = match result {
            Ok(cancelled) => cancelled,
            Err(error) => {
                if let Some(token) = cancelling.token {
                    cx.respond_error(token, control_error(&error));
                }
                // The inbox must be read again.
                self.invalidate_queue(cx, at);
                return None;
            }
        };
        let turn_id = match cancelled {
            CancelScope::Turn(turn_id) => Some(turn_id),
            CancelScope::Event => None,
        };
        let event = LifecycleEvent::EventCancelled {
            instance_key: at.instance_key.clone(),
            event_id: event_id.clone(),
        };
        self.announce(cx, event, cancelling.trace);
        if let Some(turn_id) = &turn_id {
            self.observe_cancelled(cx, cancelling, turn_id);
        } else {
            self.end_waiting(cx, at, event_id, cancelling.cause.reason);
        }
        let answer = EventCancelled {
            event_id: event_id.clone(),
            turn_id: turn_id.clone(),
        };
        if let Some(token) = cancelling.token {
            cx.respond(token, &answer);
        }
        turn_id
    }

    /// Ends a queued event without an answer.
    fn end_waiting(&mut self, cx: &mut Cx, at: &InstanceRef, event_id: &EventId, reason: &str) {
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.queue_mut().done(|id| id == event_id);
            entry.queue_mut().forgive(event_id);
        }
        let text = format!("event `{event_id}` was canceled: {reason}");
        let error = ControlError::new(ErrorCode::Cancelled, text);
        for waiter in self.take_waiters(at, event_id) {
            self.fail_waiter(cx, at, event_id, waiter, &error, QuestionStatus::Lost);
        }
        self.invalidate_queue(cx, at);
    }

    fn observe_cancelled(&mut self, cx: &mut Cx, cancelling: &Cancelling, turn_id: &TurnId) {
        let (at, timestamp) = (&cancelling.instance, cx.now().wall);
        let agent = self
            .conversations
            .get_mut(&at.instance_key)
            .map(|entry| entry.agent().clone());
        let (Some(agent), Some(trace)) = (agent, cancelling.trace) else {
            return;
        };
        let whose = (agent, at.instance_key.clone());
        let kind = RuntimeEventKind::TurnFailed;
        let event = RuntimeEvent {
            event_id: Some(cancelling.event_id.clone()),
            detail: Some(detail_of(cancelling.cause.reason)),
            ..RuntimeEvent::new(kind, timestamp, trace, whose, turn_id.clone())
        };
        self.record_observation(cx, at, &event);
    }
}
