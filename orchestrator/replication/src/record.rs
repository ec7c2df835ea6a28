//! One entry of a workspace's log, and its bytes.
//!
//! Numbers are big-endian; a text is its length in two bytes and then UTF-8.
//!
//! ```text
//! "gdnr" │ format 1 │ workspace │ position 8 │ epoch 8 │ previous 32 │ kind 1 │ body to the end
//! ```
//!
//! | kind | body |
//! | --- | --- |
//! | 1 operations | count 4, then each: code 1, path, and what it needs |
//! | 2 seal | life 8, node |
//! | 3 snapshot | reference, life 8, node of the owner |
//! | 4 released | node that is to take over, or an empty text |
//! | 5 snapshot is kept | position 8 of the snapshot's record, digest 32 |
//!
//! A record is known by the SHA-256 of all these bytes. There is one encoding of each record and one record of each
//! encoding: what is left over, out of range or written otherwise is refused.

use std::fmt;

use goondan_protocol::ids::WorkspaceId;

use crate::limits::REFERENCE_BYTES_MAX;
use crate::names::{Epoch, Hash, Life, NodeId, Position};
use crate::operation::FileOperation;

mod bytes;
mod decoding;
mod encoding;
pub mod parts;

/// The format that records are written in.
pub const RECORD_FORMAT: u8 = 1;

/// What a record begins with.
const MAGIC: [u8; 4] = *b"gdnr";

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// They do not begin as one.
    #[error("it does not begin as a record of goondan")]
    NoRecord,
    /// A newer program wrote them.
    #[error(
        "it has the format {0}, and this version reads {RECORD_FORMAT}; upgrade goondan on this node"
    )]
    Format(u8),
    /// They end too early.
    #[error("it is cut short")]
    Short,
    /// Something stands behind the end.
    #[error("{0} bytes stand behind its end")]
    Behind(usize),
    /// A limit is passed.
    #[error("{what}: {found}, and at most {max} are allowed")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        max: usize,
    },
    /// A field holds what it cannot.
    #[error("its {0} is none")]
    Bad(&'static str),
}

/// The name under which a snapshot is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SnapshotReference(String);

impl SnapshotReference {
    /// Checks `text` and makes it a name.
    ///
    /// # Errors
    ///
    /// [`RecordFault::Bad`] if it is empty, longer than [`REFERENCE_BYTES_MAX`] or holds control characters.
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

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// What writer batches did to files.
    Operations(Vec<FileOperation>),
    /// From here on, the workspace is this node's: the epoch of the record is one more than before.
    Seal {
        /// Whose.
        node: NodeId,
        /// Which life of it.
        life: Life,
    },
    /// The files as the records before this one make them are being copied to where snapshots are kept. A log that
    /// begins with this record has the copy.
    Snapshot {
        /// Under which name.
        reference: SnapshotReference,
        /// Whose the workspace is: whoever begins here has not read the seal.
        node: NodeId,
        /// Which life of it.
        life: Life,
    },
    /// The owner has given the workspace up: nothing of its epoch follows.
    Released {
        /// Which node is to take over; any, if none is named.
        to: Option<NodeId>,
    },
    /// A snapshot is kept as a whole: records before its own can go.
    SnapshotKept {
        /// Where the record of the snapshot stands.
        at: Position,
        /// The digest of its files ([`crate::tree::TreeDigest`]).
        digest: Hash,
    },
}

/// One entry of a workspace's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose log.
    pub workspace: WorkspaceId,
    /// Where in it, from 1, without holes.
    pub position: Position,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// The hash of the record it follows; of the first, [`origin`].
    pub previous: Hash,
    /// What it says.
    pub body: Body,
}

/// A record's bytes, as they stand in the log.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    workspace: WorkspaceId,
    position: Position,
    hash: Hash,
    bytes: Vec<u8>,
}

impl Encoded {
    /// Whose log.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    /// Where in the log.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// By what it is known.
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

impl fmt::Debug for Encoded {
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

/// What stands in the place of a predecessor's hash in the first record of a workspace.
#[must_use]
pub fn origin(workspace: &WorkspaceId) -> Hash {
    Hash::of(format!("goondan log of {workspace}").as_bytes())
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
