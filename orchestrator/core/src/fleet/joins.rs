//! Ends of joins: events that an agent gets as one input (`IPC-3`).
//!
//! Every part is an event of its conversation's inbox, which no turn begins for. The sets follow from
//! the queue and the time ([`super::join_sets`]), so a restart needs no other state. The end of a set
//! is one record of the store: its last part gets the texts of the others, which are finished.

use goondan_protocol::control::{ControlError, EmptyResult, ErrorCode};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceKey, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::StoreError;
use goondan_store::instance::QueueOp;
use goondan_store::writer::operation::JoinEvents;

use super::Workspace;
use super::cancellation::CancelCause;
use super::join_sets::{EndedSet, JoinEnd};
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::{LogEvent, RequestToken, control_error};

continuation! {
    /// The end of a set on its way to the inbox.
    Joining {
        // The request of the person who released it.
        token: Option<RequestToken>,
        set: EndedSet,
    } after JoinEvents => workspace.on_joined
}

impl Workspace {
    /// Ends the sets that are due in any conversation.
    pub(crate) fn end_late_joins(&mut self, cx: &mut Cx) {
        let now = cx.now();
        let entries = self.conversations.iter();
        let due = entries.filter(|(_, entry)| entry.queue().is_join_due(now));
        let due: Vec<InstanceKey> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            let at = self.conversation_ref(&key);
            self.end_joins(cx, &at);
        }
    }

    /// Ends the sets of a conversation that are due.
    pub(super) fn end_joins(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let now = cx.now();
        if self.is_ending(cx) || cx.is_paused() {
            return;
        }
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let is_free = entry.is_read() && !entry.is_deleting() && !entry.is_frozen();
        if !is_free || !entry.queue().is_join_due(now) {
            return;
        }
        for set in entry.queue_mut().take_ended_sets(now.wall) {
            if set.is_dropped {
                self.drop_set(cx, at, &set);
            } else {
                join(cx, at, None, set);
            }
        }
    }

    /// Ends the parts of a set without a turn, as its configuration says.
    fn drop_set(&mut self, cx: &mut Cx, at: &InstanceRef, set: &EndedSet) {
        let event = LogEvent::warn("join timed out; its parts are dropped").of(at);
        let event = event.with("join", set.name.as_str());
        self.log(cx, event.with("parts", set.events().count()));
        for id in set.events() {
            self.cancel_for(cx, None, at, Some(id.clone()), CancelCause::JOIN_TIMEOUT);
        }
    }

    fn on_joined(&mut self, cx: &mut Cx, joining: Joining, result: Result<(), StoreError>) {
        let Joining {
            instance: at,
            token,
            set,
        } = joining;
        if let Err(error) = result {
            if let Some(token) = token {
                cx.respond_error(token, control_error(&error));
            }
            let event = LogEvent::warn("failed to join events; trying again").of(&at);
            self.log(cx, event.with("error", goondan_log::error_chain(&error)));
            let now_ms = cx.now().mono_ms;
            if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                entry.queue_mut().on_not_joined(&set, now_ms);
            }
            // A person may have dropped a part, or a failed write may have left something.
            return self.invalidate_queue(cx, &at);
        }
        let event = LogEvent::info("joined events").of(&at);
        let event = event.with("join", set.name.as_str());
        let event = event.with("eventId", set.whole.id.as_str());
        let event = event.with("parts", set.events().count());
        self.log(cx, event.with("end", set.end.as_str()));
        let (parts, event_id) = (set.parts.clone(), set.whole.id.clone());
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.queue_mut().joined(set);
        }
        // The reply belongs to the last part, as in the inbox.
        let outcome = TurnOutcome::Completed {
            reply: String::new(),
        };
        for part in &parts {
            self.answer_waiters(cx, &at, part, &outcome);
        }
        if let Some(token) = token {
            let resumed = LifecycleEvent::EventResumed {
                instance_key: at.instance_key.clone(),
                event_id,
            };
            self.announce(cx, resumed, None);
            cx.respond(token, &EmptyResult {});
        }
        self.advance(cx, &at);
    }

    /// Handles a person's change of a part: resuming it delivers its set without the missing parts.
    pub(super) fn arrange_part(
        &mut self,
        cx: &mut Cx,
        token: RequestToken,
        at: &InstanceRef,
        event_id: &EventId,
        arrangement: &QueueOp,
    ) -> Result<(), ControlError> {
        let wall = cx.now().wall;
        let entry = self.conversations.get_mut(&at.instance_key);
        let Some(entry) = entry.filter(|entry| entry.is_read() && !entry.is_frozen()) else {
            let text = format!(
                "the queue of conversation `{}` is being read",
                at.instance_key
            );
            return Err(ControlError::new(ErrorCode::InstanceBusy, text).suggest("try again"));
        };
        if *arrangement != QueueOp::Resume {
            let text = format!("event `{event_id}` waits for the other parts of a join");
            let error = ControlError::new(ErrorCode::InvalidRequest, text);
            return Err(error.suggest(
                "deliver it without them with `gdn event resume`, or drop it with `gdn event drop`",
            ));
        }
        if entry.queue().is_joining(event_id) {
            cx.respond(token, &EmptyResult {});
            return Ok(());
        }
        let sets = entry.queue().join_sets(wall);
        let set = sets.iter().find(|set| set.has(event_id));
        let Some(set) = set.and_then(|set| set.ended_by(JoinEnd::Released)) else {
            let text = format!("event `{event_id}` is not waiting");
            return Err(ControlError::new(ErrorCode::EventNotFound, text));
        };
        entry.queue_mut().begin_joining(&set);
        join(cx, at, Some(token), set);
        Ok(())
    }
}

/// Stores the end of a set.
fn join(cx: &mut Cx, at: &InstanceRef, token: Option<RequestToken>, set: EndedSet) {
    let join = JoinEvents {
        instance: at.clone(),
        event: set.whole.clone(),
        at: cx.now().wall,
    };
    let then = Joining {
        instance: at.clone(),
        token,
        set,
    };
    cx.store(join, then);
}

#[cfg(test)]
#[path = "joins_tests.rs"]
mod tests;
