//! Frozen conversations: no turn begins while a joint checkpoint is created or the conversation is
//! rewound (`CKPT-6`). Events are still accepted and queued.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::shell::shell_quoted;
use goondan_store::instance::RewindNote;

use super::Workspace;
use super::cancellation::CancelCause;
use super::conversation::Conversation;
use super::conversation::freeze::{Freeze, FreezeRefusal, FreezeStep, Order};
use crate::bus::context::Cx;
use crate::refusals::no_workspace;

fn busy(at: &InstanceRef, what: &str) -> ControlError {
    let text = format!("conversation `{}` {what}", at.instance_key);
    ControlError::new(ErrorCode::InstanceBusy, text)
}

/// Error for an operation that requires that no turn is in progress.
pub(crate) fn in_turn(at: &InstanceRef) -> ControlError {
    let key = shell_quoted(at.instance_key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    busy(at, "is in a turn").suggest(format!(
        "wait until the turn ends, or cancel it: `gdn conversation cancel --conversation {key}`; \
         `gdn conversation rewind {key} --cancel` cancels it \
         automatically"
    ))
}

impl Conversation {
    /// Holds it to finish a rewind that had begun.
    pub(super) fn hold_to_finish(&mut self, cx: &mut Cx, note: RewindNote) {
        self.freeze_to_finish(Freeze {
            id: cx.next_freeze_id(),
            order: Order::Finish { note },
            step: FreezeStep::Waiting,
        });
    }
}

impl Workspace {
    /// Holds a conversation for an operation between turns. With `may_cancel`, a turn may be in
    /// progress.
    pub(crate) fn hold(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        order: Order,
        may_cancel: bool,
    ) -> Result<(), ControlError> {
        let gone = || no_workspace(&at.workspace_id);
        if self.closing.is_some() {
            return Err(gone());
        }
        let freeze = Freeze {
            id: cx.next_freeze_id(),
            order,
            step: FreezeStep::Waiting,
        };
        let entry = self.conversation_entry(cx, at, None).ok_or_else(gone)?;
        entry
            .begin_freeze(freeze, may_cancel)
            .map_err(|refusal| match refusal {
                FreezeRefusal::Deleting => busy(at, "is being deleted"),
                FreezeRefusal::Frozen => {
                    busy(at, "is being checkpointed or rewound").suggest("try again later")
                }
                FreezeRefusal::InTurn => in_turn(at),
            })
    }

    /// Cancels the turn in progress, if any, so that a rewind can begin.
    pub(crate) fn cancel_for_rewind(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let entry = self.conversations.get(&at.instance_key);
        let event_id = entry.and_then(|entry| entry.worked_on().next().cloned());
        if event_id.is_some() {
            self.cancel_for(cx, None, at, event_id, CancelCause::BY_PERSON);
        }
    }

    /// Releases a conversation. True if it must be deleted now.
    pub(crate) fn release(&mut self, cx: &mut Cx, at: &InstanceRef) -> bool {
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return false;
        };
        entry.release();
        if entry.is_deleting() {
            return entry.process().is_none();
        }
        // The queued events are read again, and it continues with them.
        self.advance(cx, at);
        self.forget_if_done(cx, &at.instance_key);
        false
    }
}
