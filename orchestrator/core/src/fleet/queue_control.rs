//! Queue control by users (`STEER-2`).

use goondan_protocol::control::{ControlError, EmptyResult, ErrorCode};
use goondan_protocol::ids::{EventId, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::shell::shell_quoted;
use goondan_store::StoreError;
use goondan_store::instance::{QueueOp, QueueOrder};
use goondan_store::writer::operation::ArrangeEvent;

use super::Workspace;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::{RequestToken, control_error};

continuation! {
    /// Changes an event's place in the queue.
    Arranging {
        token: RequestToken,
        event_id: EventId,
        arrangement: QueueOp,
    } after ArrangeEvent => &workspace.on_arranged
}

/// Error for an event whose turn has begun.
fn in_turn(at: &InstanceRef, event_id: &EventId) -> ControlError {
    let key = shell_quoted(at.instance_key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    let text = format!("the turn of event `{event_id}` has already started");
    ControlError::new(ErrorCode::InstanceBusy, text).suggest(format!(
        "end it: `gdn conversation cancel --conversation {key} {event_id}`"
    ))
}

impl Workspace {
    /// Changes the place of a queued event.
    pub(crate) fn arrange(
        &mut self,
        cx: &mut Cx,
        token: RequestToken,
        at: InstanceRef,
        event_id: EventId,
        arrangement: QueueOp,
    ) -> Result<(), ControlError> {
        let wall = cx.now().wall;
        let entry = self.conversations.get(&at.instance_key);
        let event = entry.and_then(|entry| entry.queue().get(&event_id));
        if event.is_some_and(|event| event.waits_as().is_some()) {
            return self.arrange_part(cx, token, &at, &event_id, &arrangement);
        }
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            if entry.worked_on().any(|id| *id == event_id) {
                return Err(in_turn(&at, &event_id));
            }
            if arrangement == QueueOp::Pause {
                entry.queue_mut().begin_pausing(event_id.clone());
            }
        }
        let arrange = ArrangeEvent {
            instance: at.clone(),
            event_id: event_id.clone(),
            arrangement: arrangement.clone(),
            at: wall,
        };
        let then = Arranging {
            instance: at,
            token,
            event_id,
            arrangement,
        };
        cx.store(arrange, then);
        Ok(())
    }

    fn on_arranged(
        &mut self,
        cx: &mut Cx,
        arranging: &Arranging,
        result: Result<QueueOrder, StoreError>,
    ) {
        let (at, event_id, token) = (&arranging.instance, &arranging.event_id, arranging.token);
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.queue_mut().end_pausing(event_id);
        }
        let (instance_key, id) = (at.instance_key.clone(), event_id.clone());
        match result {
            Err(error) => {
                let told = match error {
                    StoreError::InTurn { .. } => in_turn(at, event_id),
                    error => control_error(&error),
                };
                cx.respond_error(token, told);
                // The inbox must be read again.
                self.invalidate_queue(cx, at);
            }
            Ok(arranged) => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.queue_mut().arrange(arranged);
                }
                let event = match arranging.arrangement {
                    QueueOp::Pause => LifecycleEvent::EventPaused {
                        instance_key,
                        event_id: id,
                    },
                    QueueOp::Resume => LifecycleEvent::EventResumed {
                        instance_key,
                        event_id: id,
                    },
                    QueueOp::Move(_) => LifecycleEvent::EventMoved {
                        instance_key,
                        event_id: id,
                    },
                };
                self.announce(cx, event, None);
                cx.respond(token, &EmptyResult {});
                self.advance(cx, at);
            }
        }
    }
}
