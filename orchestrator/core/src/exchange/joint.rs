//! Operations on the joint checkpoints of conversations, and their results (`CKPT-6`).

use std::path::PathBuf;

use goondan_protocol::control::{
    ControlError, InstanceCheckpoint, InstanceRewound, ListInstanceCheckpoints, PinnedConversation,
};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::time::Timestamp;

use super::RequestToken;

/// Id of an operation that blocks new turns of a conversation. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreezeId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointMetadata {
    /// The pinned state, except the digest of the messages.
    pub pinned: PinnedConversation,
    /// Name given by the user.
    pub name: Option<String>,
    pub now: Timestamp,
}

/// An operation on the joint checkpoints of a conversation. Operations are executed in order, one
/// at a time.
#[derive(Debug)]
pub enum JointWork {
    /// Create a checkpoint, and remove the ones beyond the retention limit.
    Make {
        at: InstanceRef,
        hold: FreezeId,
        about: JointMetadata,
    },
    /// List the checkpoints and respond with a page.
    List {
        at: InstanceRef,
        token: RequestToken,
        list: ListInstanceCheckpoints,
    },
    /// Compute the changes of a rewind. Unless it is a dry run, also create a joint checkpoint of
    /// the current state.
    Plan {
        at: InstanceRef,
        hold: FreezeId,
        /// The target checkpoint; the newest usable one if `None`.
        checkpoint_id: Option<String>,
        /// Metadata of the checkpoint of the current state.
        about: JointMetadata,
        /// The sandbox of the conversation's agent, if any, which is left unchanged.
        sandbox: Option<PathBuf>,
        /// True for a dry run.
        is_rehearsal: bool,
    },
    /// Restore all files of the work directory atomically and unpack the conversation. Idempotent.
    TakeBack {
        at: InstanceRef,
        hold: FreezeId,
        checkpoint_id: String,
        /// The checkpoint of the state before the rewind.
        pre_rewind: String,
        now: Timestamp,
    },
    /// Remove the temporary files of a rewind, and the checkpoints beyond the retention limit.
    TidyUp { at: InstanceRef },
}

/// Error of a failed restore.
#[derive(Debug)]
pub struct RollbackFailure {
    pub error: ControlError,
    /// True if the files are certainly unchanged.
    pub is_untouched: bool,
}

#[derive(Debug)]
pub enum JointResult {
    /// Result of creating a joint checkpoint.
    Made {
        at: InstanceRef,
        hold: FreezeId,
        result: Result<InstanceCheckpoint, ControlError>,
    },
    /// Result of planning a rewind.
    Planned {
        at: InstanceRef,
        hold: FreezeId,
        result: Result<Box<InstanceRewound>, ControlError>,
    },
    TakenBack {
        at: InstanceRef,
        hold: FreezeId,
        /// Path of the unpacked conversation, below the conversation's directory.
        result: Result<PathBuf, RollbackFailure>,
    },
}
