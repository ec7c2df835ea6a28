//! The operation that holds a frozen conversation.

use goondan_protocol::control::{InstanceRewound, RewindInstance};
use goondan_store::instance::RewindNote;

use super::Conversation;
use crate::bus::context::Cx;
use crate::exchange::joint::FreezeId;
use crate::{ClockTime, RequestToken};

/// Reason a conversation is held.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    Checkpoint {
        token: RequestToken,
        name: Option<String>,
    },
    /// Rewind to a checkpoint, or compute its changes.
    Rewind {
        token: RequestToken,
        request: RewindInstance,
    },
    /// Finish a rewind that had begun; no client waits for it.
    Finish { note: RewindNote },
}

/// Progress of the operation.
#[derive(Debug, Clone)]
pub(crate) enum FreezeStep {
    /// Waiting for a turn or process to end.
    Waiting,
    /// Waiting for the store or the thread of the joint checkpoints.
    Working,
    /// Restoring files; holds the response to send afterward.
    TakingBack(Option<Box<InstanceRewound>>),
}

/// A held conversation.
#[derive(Debug)]
pub(crate) struct Freeze {
    pub(crate) id: FreezeId,
    pub(crate) order: Order,
    pub(crate) step: FreezeStep,
}

/// Next step for a held conversation.
#[derive(Debug)]
pub(crate) enum FreezeAction {
    /// Request the state to pin from the store.
    Pin,
    TakeBack(RewindNote),
}

/// Reason a conversation cannot be frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fleet) enum FreezeRefusal {
    Deleting,
    Frozen,
    InTurn,
}

/// Progress of the operation that holds it.
impl Conversation {
    /// The hold with this id, if it is still active.
    pub(crate) fn held_for(&mut self, id: FreezeId) -> Option<&mut Freeze> {
        self.freeze.as_mut().filter(|hold| hold.id == id)
    }

    /// The next step, once no turn is in progress and, for restoring files, its process has exited.
    pub(crate) fn next_of_hold(&mut self, cx: &mut Cx) -> Option<(FreezeId, FreezeAction)> {
        let up = self.process();
        let is_in_turn = self.is_in_turn();
        let hold = self.freeze.as_mut()?;
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
            self.kill(cx, process, true);
            return None;
        }
        let next = match &hold.order {
            Order::Checkpoint { .. } | Order::Rewind { .. } => {
                hold.step = FreezeStep::Working;
                FreezeAction::Pin
            }
            Order::Finish { note } => {
                let note = note.clone();
                hold.step = FreezeStep::TakingBack(None);
                FreezeAction::TakeBack(note)
            }
        };
        Some((hold.id, next))
    }

    /// Delays a rewind that could not be finished. It is retried after the back-off, and no turn
    /// begins until then.
    pub(crate) fn put_off(&mut self, now: ClockTime, why: &str) {
        self.slot.failed(now, why.to_owned());
    }
}

impl Freeze {
    /// The client request that it serves.
    pub(crate) fn token(&self) -> Option<RequestToken> {
        match &self.order {
            Order::Checkpoint { token, .. } | Order::Rewind { token, .. } => Some(*token),
            Order::Finish { .. } => None,
        }
    }
}
