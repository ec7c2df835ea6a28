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

/// Metadata of a joint checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointMetadata {
    /// The pinned state, except the digest of the messages.
    pub pinned: PinnedConversation,
    /// Name given by the user.
    pub name: Option<String>,
    /// Creation time.
    pub now: Timestamp,
}

/// An operation on the joint checkpoints of a conversation. Operations are executed in order, one
/// at a time.
#[derive(Debug)]
pub enum JointWork {
    /// Create a checkpoint, and remove the ones beyond the retention limit.
    Make {
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
        hold: FreezeId,
        /// Metadata of the checkpoint.
        about: JointMetadata,
    },
    /// List the checkpoints and respond with a page.
    List {
        /// The conversation.
        at: InstanceRef,
        /// The client's request.
        token: RequestToken,
        /// The requested page.
        list: ListInstanceCheckpoints,
    },
    /// Compute the changes of a rewind. Unless it is a dry run, also create a joint checkpoint of
    /// the current state.
    Plan {
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
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
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
        hold: FreezeId,
        /// The target checkpoint.
        checkpoint_id: String,
        /// The checkpoint of the state before the rewind.
        pre_rewind: String,
        /// Current time.
        now: Timestamp,
    },
    /// Remove the temporary files of a rewind, and the checkpoints beyond the retention limit.
    TidyUp {
        /// The conversation.
        at: InstanceRef,
    },
}

/// Error of a failed restore.
#[derive(Debug)]
pub struct RollbackFailure {
    /// The error.
    pub error: ControlError,
    /// True if the files are certainly unchanged.
    pub is_untouched: bool,
}

/// Result of an operation.
#[derive(Debug)]
pub enum JointResult {
    /// Result of creating a joint checkpoint.
    Made {
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
        hold: FreezeId,
        /// The checkpoint.
        result: Result<InstanceCheckpoint, ControlError>,
    },
    /// Result of planning a rewind.
    Planned {
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
        hold: FreezeId,
        /// The changes.
        result: Result<Box<InstanceRewound>, ControlError>,
    },
    /// Result of restoring files.
    TakenBack {
        /// The conversation.
        at: InstanceRef,
        /// Id of the operation.
        hold: FreezeId,
        /// Path of the unpacked conversation, below the conversation's directory.
        result: Result<PathBuf, RollbackFailure>,
    },
}
