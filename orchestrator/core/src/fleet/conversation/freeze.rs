//! The operation that holds a frozen conversation.

use goondan_protocol::control::{InstanceRewound, RewindInstance};
use goondan_store::instance::RewindNote;

use crate::RequestToken;
use crate::exchange::joint::FreezeId;

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
