//! Frozen conversations: no turn begins while a joint checkpoint is created or the conversation is
//! rewound (`CKPT-6`). Events are still accepted and queued.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::shell::shell_quoted;
use goondan_store::instance::RewindNote;

use super::Fleet;
use super::cancellation::BY_PERSON;
use super::conversation::Conversation;
use super::conversation::freeze::{Freeze, FreezeAction, FreezeRefusal, FreezeStep, Order};
use crate::RequestToken;
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

    /// True if a conversation is held.
    pub(crate) fn is_held(&self, at: &InstanceRef) -> bool {
        let entry = self.conversation(at);
        entry.is_some_and(Conversation::is_frozen)
    }

    /// Workspaces with a held conversation.
    pub(super) fn holding(&self) -> Vec<WorkspaceId> {
        let workspaces = self.workspaces.iter().filter(|(_, workspace)| {
            let mut instances = workspace.conversations.values();
            instances.any(Conversation::is_frozen)
        });
        workspaces.map(|(id, _)| id.clone()).collect()
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

    /// The next step for a held conversation, once no turn is in progress and, for restoring files,
    /// its process has exited.
    pub(crate) fn next_of_hold(&mut self, at: &InstanceRef) -> Option<FreezeAction> {
        let entry = self.conversation_mut(at)?;
        let up = entry.process();
        let is_in_turn = entry.is_in_turn();
        let hold = entry.freeze_mut()?;
        if !matches!(hold.step, FreezeStep::Waiting) || is_in_turn {
            return None;
        }
        let may_run = match &hold.order {
            Order::Checkpoint { .. } => true,
            Order::Rewind { request, .. } => request.dry_run,
            Order::Finish { .. } => false,
        };
        if let Some(process) = up.filter(|_| !may_run) {
            // The process has the old conversation loaded. Nothing of a turn is lost by killing it.
            self.kill(process, true);
            return None;
        }
        Some(match &hold.order {
            Order::Checkpoint { .. } | Order::Rewind { .. } => {
                hold.step = FreezeStep::Working;
                FreezeAction::Pin
            }
            Order::Finish { note } => {
                let note = note.clone();
                hold.step = FreezeStep::TakingBack(None);
                FreezeAction::TakeBack(note)
            }
        })
    }

    pub(crate) fn instance_hold(&self, at: &InstanceRef) -> Option<FreezeId> {
        Some(self.conversation(at)?.freeze()?.id)
    }

    /// The client request of a conversation's hold.
    pub(crate) fn token_of_hold(&mut self, at: &InstanceRef, id: FreezeId) -> Option<RequestToken> {
        match &self.held_for(at, id)?.order {
            Order::Checkpoint { token, .. } | Order::Rewind { token, .. } => Some(*token),
            Order::Finish { .. } => None,
        }
    }

    /// The hold with this id, if it is still active.
    pub(crate) fn held_for(&mut self, at: &InstanceRef, id: FreezeId) -> Option<&mut Freeze> {
        let hold = self.conversation_mut(at)?.freeze_mut()?;
        (hold.id == id).then_some(hold)
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

    /// Delays a rewind that could not be finished. It is retried after the back-off, and no turn
    /// begins until then.
    pub(crate) fn put_off(&mut self, at: &InstanceRef, why: &str) {
        let now = self.now();
        if let Some(entry) = self.conversation_mut(at) {
            entry.slot_mut().failed(now, why.to_owned());
        }
    }

    /// The digest of the running configuration, which is pinned together with the store's state.
    pub(crate) fn config_digest(&self, id: &WorkspaceId) -> Option<String> {
        let bundle = self.workspaces.get(id)?.bundle.as_ref()?;
        Some(bundle.digest.clone())
    }
}
