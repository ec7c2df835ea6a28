//! What the daemon and `goondan-replica` say to each other.
//!
//! The daemon has no network code. The program that holds the connection to the log's server is a child of it, and
//! answers questions over a socket pair, in the frames of all children ([`goondan_protocol::frame`]). The first frame
//! of each side is a greeting: [`Hello`] and [`Welcome`]. What follows is a [`Request`] or its [`Response`], in any
//! order: each response names its request.
//!
//! # A frame's body
//!
//! ```text
//! length of the head 4 │ head, as JSON │ bytes, one piece behind the other
//! ```
//!
//! Records and parts of snapshots are bytes, and go behind the head as they are; the head names their lengths. In
//! JSON they would have to be Base64: a third more to copy, and two of the largest records in a frame instead of
//! three.
//!
//! # Invariants
//!
//! * What comes is checked before it is used: a record is decoded, so that its workspace, position and hash are its
//!   own and no second word about them can differ.
//! * Nothing is allocated past [`crate::limits`], whatever a head announces.

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::secret::SecretValue;
use goondan_protocol::version::{Version, VersionMismatch};
use serde::{Deserialize, Serialize};

use crate::limits::{HEAD_BYTES_MAX, HEADS_MAX, PART_BYTES_MAX};
use crate::log::{Put, PutAnswer, ReadAnswer};
use crate::names::{Epoch, Hash, Life, NodeId, Position};
use crate::record::{RecordFault, SnapshotReference};

mod answers;
mod asks;
mod pieces;

/// The first frame of the program: which version it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    /// Its version.
    pub version: Version,
}

/// The first frame of the daemon: where the log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Welcome {
    /// Its version.
    pub version: Version,
    /// The server's URL, with its password: `postgres://user:password@host:port/database?…`.
    pub server: SecretValue,
    /// The node, as the server is to show it among its clients.
    pub node: NodeId,
}

/// A question of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// By which its response is known. Unique on a connection: attempts are counted by each machine for itself.
    pub id: u64,
    /// What is asked.
    pub ask: Ask,
}

/// What the daemon asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Offer a record for its position; answered by [`Answer::Put`].
    Put(Put),
    /// Read a log from a position on; answered by [`Answer::Read`].
    Read {
        /// Whose.
        workspace: WorkspaceId,
        /// The first position.
        from: Position,
    },
    /// Forget what stands before a snapshot's record, if that is the one at its position by then, and all its parts are
    /// there: parts were perhaps kept on another server, before a fail-over. Answered by [`Answer::Trimmed`].
    Trim {
        /// Whose.
        workspace: WorkspaceId,
        /// The snapshot that the log is to begin with.
        before: KeptSnapshot,
    },
    /// How far logs are written, and who was heard of them; at most [`HEADS_MAX`]. Answered by [`Answer::Heads`].
    Heads(Vec<WorkspaceId>),
    /// Which workspaces have a log, by their names in ascending order; answered by [`Answer::Listed`].
    List {
        /// The last one that is known already.
        after: Option<WorkspaceId>,
    },
    /// Let a node be heard; at most [`HEADS_MAX`]. Answered by [`Answer::Noted`].
    Beat(Vec<Beat>),
    /// Keep a part of a snapshot, in place of what is kept as that part; answered by [`Answer::Noted`].
    KeepPart(Part, Vec<u8>),
    /// Read a part of a snapshot; answered by [`Answer::Part`].
    ReadPart(Part),
    /// Forget the snapshots whose names sort before this one, byte by byte: as those do that were taken earlier. Only if
    /// the log begins with it by then: a trim was perhaps done on another server, before a fail-over. Answered by
    /// [`Answer::Noted`].
    ForgetSnapshots {
        /// Whose.
        workspace: WorkspaceId,
        /// The first that stays.
        before: KeptSnapshot,
    },
    /// Whether the server is set as its records need it; answered by [`Answer::Checked`].
    Check,
    /// Why nothing can be put or read now, as far as that is known; answered by [`Answer::Standing`].
    Standing,
    /// Make a commit with nothing in it, to find out whether the server confirms any; answered by [`Answer::Noted`] if it
    /// does.
    Probe,
    /// Where the log is from now on, with the password of its server: for connections that are made later. Answered by
    /// [`Answer::Noted`].
    Server(SecretValue),
}

/// A snapshot whose parts are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// Its name.
    pub reference: SnapshotReference,
    /// How many parts it has.
    pub parts: u32,
    /// Where its record stands.
    pub at: Position,
    /// That record's hash.
    pub hash: Hash,
}

/// A node lets itself be heard for a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Beat {
    /// Of which workspace.
    pub workspace: WorkspaceId,
    /// Which node.
    pub node: NodeId,
    /// Which life of it.
    pub life: Life,
    /// Of an owner, its epoch; of a standby, the one it has read of.
    pub epoch: Epoch,
    /// Of an owner, up to where it has acknowledged; of a standby, up to where it has read.
    pub position: Position,
    /// Whether it is the owner.
    pub owns: bool,
}

/// One part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Whose.
    pub workspace: WorkspaceId,
    /// Which snapshot.
    pub reference: SnapshotReference,
    /// Which part of it, from 0.
    pub number: u32,
}

/// What the program answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The request that it answers.
    pub id: u64,
    /// The answer.
    pub answer: Answer,
}

/// An answer of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What became of a record that was offered.
    Put(PutAnswer),
    /// What reading gave.
    Read(ReadAnswer),
    /// The oldest position that is still there; 0 if there is none.
    Trimmed(Position),
    /// How far logs are written; none of those that nobody wrote or was heard of.
    Heads(Vec<LogHead>),
    /// Workspaces that have a log, at most [`HEADS_MAX`]: with fewer, there are no more.
    Listed(Vec<WorkspaceId>),
    /// It is done.
    Noted,
    /// The part, if it is kept.
    Part(Option<Vec<u8>>),
    /// What was looked at.
    Checked(Vec<Finding>),
    /// Why nothing can be put or read; none if nothing stands in the way.
    Standing(Option<String>),
    /// The server cannot be reached, or did not answer in time; or more was asked than is worked on at once.
    Unavailable,
}

/// How far a log is written, and who was heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogHead {
    /// Whose log.
    pub workspace: WorkspaceId,
    /// The last position at which a record stands; 0 if there is none.
    pub head: Position,
    /// The oldest one; 0 if there is none.
    pub oldest: Position,
    /// What nodes last said.
    pub heard: Vec<Heard>,
}

/// What a node last said, and how often it has said something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heard {
    /// What.
    pub beat: Beat,
    /// Goes up with each beat: one that is not what it was is news. No clock is compared.
    pub count: u64,
}

/// One thing about the server that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// What: the name of a setting, `version`, `role`, or `connection`.
    pub what: String,
    /// What it is.
    pub found: String,
    /// Whether that will do.
    pub verdict: Verdict,
    /// What to do about it, and why; empty if it will do.
    pub advice: String,
}

/// Whether something will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It will.
    Good,
    /// It will, and less is kept when something fails.
    Weak,
    /// It will not.
    Bad,
}

/// Why a frame's body is no message.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// It ends before its head does, or is larger than any.
    #[error("the head of a message is cut short, or has more than {HEAD_BYTES_MAX} bytes")]
    Head,
    /// The head is no JSON of the kind.
    #[error("the head of a message cannot be read or written")]
    Json(#[source] serde_json::Error),
    /// What stands behind the head is not what the head says.
    #[error("what stands behind the head of a message is not what the head announces")]
    Pieces,
    /// What is offered is no record.
    #[error("what is offered to the log is no record")]
    Record(#[source] RecordFault),
    /// A list or a part is too long.
    #[error(
        "at most {HEADS_MAX} workspaces are asked for at once, and a part has {PART_BYTES_MAX} bytes at most"
    )]
    TooMuch,
    /// The other side is of another version.
    #[error("install goondan-orchestrator and goondan-replica of the same version")]
    OtherVersion(#[source] VersionMismatch),
}

/// The version that a greeting names: it comes first, as what another version says may not even be readable.
#[derive(Deserialize)]
struct Greeting {
    version: Version,
}

fn greeted<'de, G: Deserialize<'de>>(body: &'de [u8]) -> Result<G, WireFault> {
    let greeting: Greeting = serde_json::from_slice(body).map_err(WireFault::Json)?;
    greeting.version.check().map_err(WireFault::OtherVersion)?;
    serde_json::from_slice(body).map_err(WireFault::Json)
}

impl Hello {
    /// As a frame's body: JSON alone.
    ///
    /// # Errors
    ///
    /// [`WireFault::Json`].
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        serde_json::to_vec(self).map_err(WireFault::Json)
    }

    /// Reads a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it is none, or of another version.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        greeted(body)
    }
}

impl Welcome {
    /// As a frame's body: JSON alone.
    ///
    /// # Errors
    ///
    /// [`WireFault::Json`].
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        serde_json::to_vec(self).map_err(WireFault::Json)
    }

    /// Reads a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it is none, or of another version.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        greeted(body)
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
