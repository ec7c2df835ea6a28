//! A record of a workspace's log, and its encoding.
//!
//! Numbers are big-endian; a text is its length in two bytes, followed by UTF-8.
//!
//! ```text
//! "gdnr" │ format 1 │ workspace │ position 8 │ epoch 8 │ previous 32 │ kind 1 │ body to the end
//! ```
//!
//! | kind | body |
//! | --- | --- |
//! | 1 operations | count 4, then each: code 1, path, and its fields |
//! | 2 seal | life 8, node |
//! | 3 snapshot | reference, life 8, node of the owner |
//! | 4 released | node that should take over, or an empty text |
//! | 5 snapshot stored | position 8 of the snapshot's record, digest 32 |
//!
//! The SHA-256 of these bytes identifies a record. Encoding is one-to-one: trailing bytes, values
//! out of range and alternative encodings are refused.

use std::fmt;

use goondan_protocol::ids::WorkspaceId;

use crate::limits::REFERENCE_BYTES_MAX;
use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::operation::FileOperation;

mod bytes;
mod decode;
mod encode;
pub mod parts;

pub const RECORD_FORMAT: u8 = 1;

/// Magic bytes of a record.
const MAGIC: [u8; 4] = *b"gdnr";

/// Reason why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The magic bytes are wrong.
    #[error("it does not begin like a goondan record")]
    NoRecord,
    /// A newer version wrote the record.
    #[error(
        "it has format {0}, but this version reads {RECORD_FORMAT}; upgrade goondan on this node"
    )]
    Format(u8),
    /// The bytes end too early.
    #[error("it is truncated")]
    Short,
    /// The record has trailing bytes.
    #[error("{0} unexpected bytes after its end")]
    Behind(usize),
    #[error("{what}: {found}, and at most {max} are allowed")]
    TooMuch {
        what: &'static str,
        found: usize,
        max: usize,
    },
    /// A field has an invalid value.
    #[error("its {0} is invalid")]
    Bad(&'static str),
}

/// Name of a stored snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SnapshotReference(String);

impl SnapshotReference {
    /// Validates a name.
    ///
    /// # Errors
    ///
    /// [`RecordFault::Bad`] if it is empty, longer than [`REFERENCE_BYTES_MAX`] or contains control
    /// characters.
    pub fn new(text: &str) -> Result<Self, RecordFault> {
        let is_good = !text.is_empty()
            && text.len() <= REFERENCE_BYTES_MAX
            && !text.chars().any(char::is_control);
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(RecordFault::Bad("name of a snapshot"))
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// File changes of writer batches.
    Operations(Vec<FileOperation>),
    /// The workspace belongs to this node from here on. The record's epoch is one higher than
    /// before.
    Seal {
        node: NodeId,
        /// The life of the owner.
        life: Incarnation,
    },
    /// A copy of the files in their state before this record has started. If a log starts with this
    /// record, the copy is available.
    Snapshot {
        reference: SnapshotReference,
        /// The current owner, for readers that start here and have not read its seal.
        node: NodeId,
        /// The life of the owner.
        life: Incarnation,
    },
    /// The owner has released the workspace; no record of its epoch follows.
    Released {
        /// The node that should take over; any node if absent.
        to: Option<NodeId>,
    },
    /// A snapshot is stored completely; records before the snapshot's record can be removed.
    SnapshotKept {
        /// Position of the snapshot's record.
        at: Position,
        /// Digest of its files ([`crate::tree::TreeDigest`]).
        digest: Hash,
    },
}

/// A record of a workspace's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    pub workspace: WorkspaceId,
    /// Position in the log, from 1, without gaps.
    pub position: Position,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// Hash of the previous record; [`origin`] for the first record.
    pub previous: Hash,
    pub body: Body,
}

/// A record's bytes, as stored in the log.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedRecord {
    workspace: WorkspaceId,
    position: Position,
    hash: Hash,
    bytes: Vec<u8>,
}

impl EncodedRecord {
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The hash that identifies the record.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for EncodedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workspace,
            position,
            hash,
            bytes,
        } = self;
        write!(
            f,
            "record {position} of {workspace} ({hash}, {} bytes)",
            bytes.len()
        )
    }
}

/// Value that replaces the previous record's hash in the first record of a workspace.
#[must_use]
pub fn origin(workspace: &WorkspaceId) -> Hash {
    Hash::of(format!("goondan log of {workspace}").as_bytes())
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
