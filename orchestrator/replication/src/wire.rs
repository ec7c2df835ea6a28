//! Protocol between the daemon and `goondan-replica`.
//!
//! The daemon has no network code. Its child process holds the connection to the log's server, and
//! answers requests over a socket pair, in the frames of all children
//! ([`goondan_protocol::frame`]). The first frame of each side is a greeting: [`Hello`] and
//! [`Welcome`]. All others are a [`LogRequest`] or its [`LogResponse`], in any order: each response names
//! its request.
//!
//! # A frame's body
//!
//! ```text
//! length of the head 4 │ head, as JSON │ bytes, one piece after the other
//! ```
//!
//! Records and parts of snapshots are raw bytes after the head, which contains their lengths. In
//! JSON they would have to be Base64: a third more to copy, and two of the largest records in a
//! frame instead of three.
//!
//! # Invariants
//!
//! * Input is validated before it is used: a record is decoded, so that its workspace, position and
//!   hash come only from its own bytes.
//! * Allocations stay within [`crate::limits`], regardless of the lengths in a head.

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::secret::SecretValue;
use goondan_protocol::version::{Version, VersionMismatch};
use serde::{Deserialize, Serialize};

use crate::limits::{HEAD_BYTES_MAX, HEADS_MAX, PART_BYTES_MAX};
use crate::log::{PutAnswer, PutRequest, ReadAnswer};
use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::record::{RecordFault, SnapshotReference};

mod answers;
mod asks;
mod pieces;

/// First frame of the program, with its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    pub version: Version,
}

/// First frame of the daemon, with the location of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Welcome {
    pub version: Version,
    /// The server's URL, with its password: `postgres://user:password@host:port/database?…`.
    pub server: SecretValue,
    /// The node, for the server's list of clients.
    pub node: NodeId,
}

/// A request of the daemon, with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// Id of the response. Unique on a connection, because each state machine counts its own
    /// attempts.
    pub id: u64,
    pub ask: LogCommand,
}

/// Command of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogCommand {
    /// Offer a record for its position; answered by [`LogAnswer::Put`].
    Put(PutRequest),
    /// Read a log from a position on; answered by [`LogAnswer::Read`].
    Read {
        workspace: WorkspaceId,
        from: Position,
    },
    /// Truncate the log before a snapshot's record, if the record is still at its position and all
    /// parts of the snapshot exist; after a fail-over of the server, they may be missing. Answered
    /// by [`LogAnswer::Trimmed`].
    Trim {
        workspace: WorkspaceId,
        /// The new first snapshot of the log.
        before: KeptSnapshot,
    },
    /// Last positions of logs, and the heartbeats of their nodes; at most [`HEADS_MAX`]. Answered
    /// by [`LogAnswer::Heads`].
    Heads(Vec<WorkspaceId>),
    /// List the workspaces that have a log, in ascending order of their names; answered by
    /// [`LogAnswer::Listed`].
    List {
        /// The last workspace of the previous page.
        after: Option<WorkspaceId>,
    },
    /// Publish heartbeats; at most [`HEADS_MAX`]. Answered by [`LogAnswer::Noted`].
    Beat(Vec<Beat>),
    /// Store a part of a snapshot, replacing an earlier version of the part; answered by
    /// [`LogAnswer::Noted`].
    KeepPart(SnapshotPartRef, Vec<u8>),
    /// Read a part of a snapshot; answered by [`LogAnswer::Part`].
    ReadPart(SnapshotPartRef),
    /// Delete the snapshots whose names sort before this one, byte by byte, which were taken
    /// earlier. Only if the log begins with it, because the log may have been truncated on another
    /// server before a fail-over. Answered by [`LogAnswer::Noted`].
    ForgetSnapshots {
        workspace: WorkspaceId,
        before: KeptSnapshot,
    },
    /// Check the settings of the server; answered by [`LogAnswer::Checked`].
    Check,
    /// Return the known reason why puts or reads fail; answered by [`LogAnswer::Standing`].
    Standing,
    /// Make an empty commit to check that the server confirms commits; answered by
    /// [`LogAnswer::Noted`] if it does.
    Probe,
    /// Update the URL of the log's server, including its password, for later connections. Answered
    /// by [`LogAnswer::Noted`].
    Server(SecretValue),
}

/// A snapshot whose parts are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    pub reference: SnapshotReference,
    pub parts: u32,
    pub at: Position,
    pub hash: Hash,
}

/// A heartbeat of a node for a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Beat {
    pub workspace: WorkspaceId,
    pub node: NodeId,
    pub life: Incarnation,
    /// Epoch of an owner; of a standby, the last epoch that it has read.
    pub epoch: Epoch,
    /// Position up to which an owner has acknowledged; of a standby, up to which it has read.
    pub position: Position,
    /// True if the node owns the workspace.
    pub owns: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPartRef {
    pub workspace: WorkspaceId,
    pub reference: SnapshotReference,
    /// Number of the part, from 0.
    pub number: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogResponse {
    /// Id of the answered request.
    pub id: u64,
    pub answer: LogAnswer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogAnswer {
    Put(PutAnswer),
    Read(ReadAnswer),
    /// The oldest remaining position; 0 if there is none.
    Trimmed(Position),
    /// Last positions of logs, without workspaces that have neither records nor heartbeats.
    Heads(Vec<LogHead>),
    /// Workspaces that have a log. Fewer than [`HEADS_MAX`] are the last page.
    Listed(Vec<WorkspaceId>),
    Noted,
    /// The part, if it is stored.
    Part(Option<Vec<u8>>),
    Checked(Vec<ServerCheck>),
    /// Reason why puts or reads fail; `None` if they do not.
    Standing(Option<String>),
    /// The server cannot be reached, did not answer in time, or too many requests are in progress.
    Unavailable,
}

/// Last position of a log, and the heartbeats of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogHead {
    pub workspace: WorkspaceId,
    /// Position of the last record; 0 if there is none.
    pub head: Position,
    /// Position of the oldest record; 0 if there is none.
    pub oldest: Position,
    pub heard: Vec<LastHeartbeat>,
}

/// Last heartbeat of a node, and the number of its heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastHeartbeat {
    pub beat: Beat,
    /// Increases with each heartbeat, so that a changed number is a new heartbeat. No clocks are
    /// compared.
    pub count: u64,
}

/// A finding about the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerCheck {
    /// The checked item: the name of a setting, `version`, `role`, or `connection`.
    pub what: String,
    pub found: String,
    pub verdict: ServerCheckVerdict,
    /// Suggested fix and reason; empty if the value is fine.
    pub advice: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerCheckVerdict {
    Good,
    /// Acceptable, but with weaker guarantees after failures.
    Weak,
    /// The setting does not work.
    Bad,
}

/// Reason why a frame's body is invalid.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// The frame ends before its head does, or its head is too large.
    #[error("the head of a message is truncated, or has more than {HEAD_BYTES_MAX} bytes")]
    Head,
    /// The head is not valid JSON of the expected form.
    #[error("failed to read or write the head of a message")]
    Json(#[source] serde_json::Error),
    /// The bytes after the head do not match the head.
    #[error("the body of a message does not match its head")]
    Pieces,
    /// The offered bytes are not a record.
    #[error("the data for the log is not a record")]
    Record(#[source] RecordFault),
    /// A list or a part is too long.
    #[error(
        "a request can name at most {HEADS_MAX} workspaces, and a part can have at most {PART_BYTES_MAX} bytes"
    )]
    TooMuch,
    /// The other side has another version.
    #[error("install goondan-orchestrator and goondan-replica of the same version")]
    OtherVersion(#[source] VersionMismatch),
}

/// Version of a greeting, which is parsed first because the rest may be unreadable in another
/// version.
#[derive(Deserialize)]
struct GreetingVersion {
    version: Version,
}

fn greeted<'de, G: Deserialize<'de>>(body: &'de [u8]) -> Result<G, WireFault> {
    let greeting: GreetingVersion = serde_json::from_slice(body).map_err(WireFault::Json)?;
    greeting.version.check().map_err(WireFault::OtherVersion)?;
    serde_json::from_slice(body).map_err(WireFault::Json)
}

impl Hello {
    /// Encodes the message as a frame's body of only JSON.
    ///
    /// # Errors
    ///
    /// [`WireFault::Json`].
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        serde_json::to_vec(self).map_err(WireFault::Json)
    }

    /// Parses a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if the body is invalid, or has another version.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        greeted(body)
    }
}

impl Welcome {
    /// Encodes the message as a frame's body of only JSON.
    ///
    /// # Errors
    ///
    /// [`WireFault::Json`].
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        serde_json::to_vec(self).map_err(WireFault::Json)
    }

    /// Parses a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if the body is invalid, or has another version.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        greeted(body)
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
