//! Frozen conversations: no turn begins while a joint checkpoint is created or the conversation is
//! rewound (`CKPT-6`). Events are still accepted and queued.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::shell::shell_quoted;
use goondan_store::instance::RewindNote;

use super::Fleet;
use super::cancellation::BY_PERSON;
use super::conversation::freeze::{Freeze, FreezeRefusal, FreezeStep, Order};
use crate::exchange::joint::FreezeId;

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

impl Fleet {
    /// Holds a conversation for an operation between turns. With `may_cancel`, a turn may be in
    /// progress.
    pub(crate) fn hold(
        &mut self,
        at: &InstanceRef,
        order: Order,
        may_cancel: bool,
    ) -> Result<(), ControlError> {
        if self.workspace(&at.workspace_id)?.closing.is_some() {
            return Err(crate::refusals::no_workspace(&at.workspace_id));
        }
        let id = self.next_hold();
        let Some(entry) = self.conversation_entry(at, None) else {
            return Err(crate::refusals::no_workspace(&at.workspace_id));
        };
        let freeze = Freeze {
            id,
            order,
            step: FreezeStep::Waiting,
        };
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

    fn next_hold(&mut self) -> FreezeId {
        self.holds += 1;
        FreezeId(self.holds)
    }

    /// Holds the conversation to finish a rewind that had begun.
    pub(super) fn hold_to_finish(&mut self, at: &InstanceRef, note: RewindNote) {
        let id = self.next_hold();
        if let Some(entry) = self.conversation_mut(at) {
            entry.freeze_to_finish(Freeze {
                id,
                order: Order::Finish { note },
                step: FreezeStep::Waiting,
            });
        }
    }

    /// Cancels the turn in progress so that a rewind can begin. False if there is none.
    pub(crate) fn cancel_for_rewind(&mut self, at: &InstanceRef) -> bool {
        let entry = self.conversation_mut(at);
        let event_id = entry.and_then(|entry| entry.worked_on().next().cloned());
        let is_in_turn = event_id.is_some();
        if is_in_turn {
            self.cancel_for(None, at.clone(), event_id, BY_PERSON);
        }
        is_in_turn
    }

    /// Releases a conversation. True if it must be deleted now.
    pub(crate) fn release(&mut self, at: &InstanceRef) -> bool {
        let Some(entry) = self.conversation_mut(at) else {
            return false;
        };
        entry.release();
        if entry.is_deleting() {
            return entry.process().is_none();
        }
        // The queued events are read again, and it continues with them.
        self.advance(at);
        self.forget_if_done(at);
        false
    }
}
