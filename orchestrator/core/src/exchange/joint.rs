//! What is to be done about the joint checkpoints of conversations, and what came of it (`CKPT-6`).

use std::path::PathBuf;

use goondan_protocol::control::{
    ControlError, InstanceCheckpoint, InstanceRewound, ListInstanceCheckpoints, PinnedConversation,
};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::time::Timestamp;

use super::RequestToken;

/// Names one piece of work on a conversation during which no turn of it begins; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldId(pub u64);

/// What a joint checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointAbout {
    /// What is pinned, but for the digest of the messages.
    pub pinned: PinnedConversation,
    /// A name that a person gives it.
    pub name: Option<String>,
    /// When it is made.
    pub now: Timestamp,
}

/// What is to be done about the joint checkpoints of a conversation. All of it happens in the order in which it is
/// asked for, one after the other.
#[derive(Debug)]
pub enum JointWork {
    /// Make one, and remove those that are beyond what is kept.
    Make {
        /// The conversation.
        at: InstanceRef,
        /// Under which it is reported.
        hold: HoldId,
        /// What it says of itself.
        about: JointAbout,
    },
    /// List them, and answer with them.
    List {
        /// The conversation.
        at: InstanceRef,
        /// The request that waits for it.
        token: RequestToken,
        /// Which page of them.
        list: ListInstanceCheckpoints,
    },
    /// Tell what going back would change; unless it is a rehearsal, make a joint checkpoint of what there is.
    Plan {
        /// The conversation.
        at: InstanceRef,
        /// Under which it is reported.
        hold: HoldId,
        /// Which checkpoint; the newest that can be if it is not said.
        checkpoint_id: Option<String>,
        /// What the checkpoint of what there is says of itself.
        about: JointAbout,
        /// The sandbox of the conversation's agent, if it has one: that stays as it is.
        sandbox: Option<PathBuf>,
        /// Whether it is only told.
        is_rehearsal: bool,
    },
    /// Take the files of the work directory back, all of them or none, and unpack the conversation. Done again, it
    /// changes nothing.
    TakeBack {
        /// The conversation.
        at: InstanceRef,
        /// Under which it is reported.
        hold: HoldId,
        /// Which checkpoint.
        checkpoint_id: String,
        /// The one that holds what there was before.
        pre_rewind: String,
        /// When.
        now: Timestamp,
    },
    /// Remove what a rewind needed, and the checkpoints that are beyond what is kept.
    TidyUp {
        /// The conversation.
        at: InstanceRef,
    },
}

/// Why files could not be taken back.
#[derive(Debug)]
pub struct NotTakenBack {
    /// Why.
    pub error: ControlError,
    /// Whether they surely are as they were before.
    pub is_untouched: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum JointDone {
    /// A joint checkpoint was made, or not.
    Made {
        /// The conversation.
        at: InstanceRef,
        /// The work.
        hold: HoldId,
        /// The checkpoint.
        result: Result<InstanceCheckpoint, ControlError>,
    },
    /// It is known what a rewind would change, or not.
    Planned {
        /// The conversation.
        at: InstanceRef,
        /// The work.
        hold: HoldId,
        /// What.
        result: Result<Box<InstanceRewound>, ControlError>,
    },
    /// Files were taken back, or not.
    TakenBack {
        /// The conversation.
        at: InstanceRef,
        /// The work.
        hold: HoldId,
        /// Where the conversation as it was is unpacked, below the conversation's directory.
        result: Result<PathBuf, NotTakenBack>,
    },
}
