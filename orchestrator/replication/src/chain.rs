//! Order of records: every reader of a log judges the next record in the same way.
//!
//! A record follows if it names the hash of its predecessor and has the epoch of the last seal; a
//! seal follows if its epoch is one higher. A record of an earlier epoch that does not name the
//! predecessor is void: its writer was deposed and did not know it. It keeps its position and has
//! no effect. Anything else is damage: foreign writes to the log, altered records, or a different
//! log from the one that was read before.

use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Deserializer, Serialize};

use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::record::{Body, EncodedRecord, LogRecord, RecordFault, origin};

/// Current owner of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ownership {
    pub node: NodeId,
    pub life: Incarnation,
    /// If the owner released the workspace: the next node. The owner itself, if it left the cluster
    /// and keeps the workspace.
    // Absent if it was not released; `null` if any node may take it.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub released: Option<Option<NodeId>>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<NodeId>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// State of reading a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Chain {
    workspace: WorkspaceId,
    position: Position,
    last: Hash,
    followed: Hash,
    epoch: Epoch,
    owner: Option<Ownership>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Position>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordRole {
    Follows,
    /// The record of a deposed owner, which has no effect.
    Void,
}

/// Reason why a record cannot follow a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The bytes are not a record.
    #[error("position {position} of the log does not contain a valid record: {fault}")]
    NoRecord {
        position: Position,
        fault: RecordFault,
    },
    #[error("position {position} of the log contains a record of {workspace} for position {says}")]
    Elsewhere {
        position: Position,
        workspace: WorkspaceId,
        says: Position,
    },
    /// The record does not follow the previous one.
    #[error(
        "the record at position {position} does not follow the records that this node has read"
    )]
    Broken { position: Position },
    /// The record follows the previous one, but its epoch belongs to another owner, or has ended.
    #[error(
        "the record at position {position} has epoch {found}, but the current epoch is {current}"
    )]
    Epoch {
        position: Position,
        found: Epoch,
        current: Epoch,
    },
}

impl Chain {
    /// Before the first record of a workspace.
    #[must_use]
    pub fn new(workspace: WorkspaceId) -> Self {
        let origin = origin(&workspace);
        Self {
            workspace,
            position: Position::START,
            last: origin,
            followed: origin,
            epoch: Epoch::default(),
            owner: None,
            snapshot: None,
        }
    }

    /// State after the snapshot's record that a log begins with, for a reader that begins with its
    /// files; `None` if it is not a snapshot's record.
    #[must_use]
    pub fn behind_snapshot(encoded: &EncodedRecord, record: &LogRecord) -> Option<Self> {
        let Body::Snapshot { node, life, .. } = &record.body else {
            return None;
        };
        Some(Self {
            workspace: record.workspace.clone(),
            position: record.position,
            last: encoded.hash(),
            followed: encoded.hash(),
            epoch: record.epoch,
            owner: Some(Ownership {
                node: node.clone(),
                life: *life,
                released: None,
            }),
            snapshot: Some(record.position),
        })
    }

    #[must_use]
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    /// Position of the last record.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Hash of the last record, including void ones.
    #[must_use]
    pub fn last(&self) -> Hash {
        self.last
    }

    /// Hash of the last record that is not void: the predecessor of the next one.
    #[must_use]
    pub fn followed(&self) -> Hash {
        self.followed
    }

    /// Epoch of the last seal.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Current owner; `None` before the first seal.
    #[must_use]
    pub fn owner(&self) -> Option<&Ownership> {
        self.owner.as_ref()
    }

    /// The node that left the cluster and keeps the workspace. The log has then ended, and no node
    /// may take the workspace over.
    #[must_use]
    pub fn ended_by(&self) -> Option<&NodeId> {
        let owner = self.owner.as_ref()?;
        let is_own = |to: &Option<NodeId>| to.as_ref() == Some(&owner.node);
        owner
            .released
            .as_ref()
            .is_some_and(is_own)
            .then_some(&owner.node)
    }

    /// Position of the record of the last stored snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Option<Position> {
        self.snapshot
    }

    /// A record with this body behind the last one.
    ///
    /// # Errors
    ///
    /// As [`LogRecord::encode`].
    pub fn next(&self, body: Body) -> Result<EncodedRecord, RecordFault> {
        let epoch = match body {
            Body::Seal { .. } => self.epoch.next(),
            Body::Operations(_)
            | Body::Snapshot { .. }
            | Body::SnapshotKept { .. }
            | Body::Released { .. } => self.epoch,
        };
        let record = LogRecord {
            workspace: self.workspace.clone(),
            position: self.position.next(),
            epoch,
            previous: self.followed,
            body,
        };
        record.encode()
    }

    /// Judges a record at the next position, without changing the state.
    ///
    /// # Errors
    ///
    /// [`ChainFault`] if the record is invalid there.
    pub fn judge(&self, record: &LogRecord) -> Result<RecordRole, ChainFault> {
        let position = self.position.next();
        if record.workspace != self.workspace || record.position != position {
            return Err(ChainFault::Elsewhere {
                position,
                workspace: record.workspace.clone(),
                says: record.position,
            });
        }
        if record.previous != self.followed {
            return if record.epoch < self.epoch {
                Ok(RecordRole::Void)
            } else {
                Err(ChainFault::Broken { position })
            };
        }
        let is_released = self
            .owner
            .as_ref()
            .is_some_and(|owner| owner.released.is_some());
        let fits = match &record.body {
            Body::Seal { .. } => record.epoch == self.epoch.next() && self.ended_by().is_none(),
            Body::Operations(_)
            | Body::Snapshot { .. }
            | Body::SnapshotKept { .. }
            | Body::Released { .. } => {
                record.epoch == self.epoch && self.owner.is_some() && !is_released
            }
        };
        if fits {
            return Ok(RecordRole::Follows);
        }
        Err(ChainFault::Epoch {
            position,
            found: record.epoch,
            current: self.epoch,
        })
    }

    /// Advances by the record at the next position.
    ///
    /// # Errors
    ///
    /// [`ChainFault`] if the record is invalid there; then nothing changes.
    pub fn follow(
        &mut self,
        encoded: &EncodedRecord,
        record: &LogRecord,
    ) -> Result<RecordRole, ChainFault> {
        let link = self.judge(record)?;
        self.position = self.position.next();
        self.last = encoded.hash();
        if link == RecordRole::Void {
            return Ok(link);
        }
        self.followed = encoded.hash();
        self.epoch = record.epoch;
        match &record.body {
            Body::Seal { node, life } => {
                self.owner = Some(Ownership {
                    node: node.clone(),
                    life: *life,
                    released: None,
                });
            }
            Body::Released { to } => {
                if let Some(owner) = &mut self.owner {
                    owner.released = Some(to.clone());
                }
            }
            Body::SnapshotKept { at, .. } => self.snapshot = Some(*at),
            Body::Operations(_) | Body::Snapshot { .. } => {}
        }
        Ok(link)
    }

    /// Decodes the record at the next position, and advances by it.
    ///
    /// # Errors
    ///
    /// [`ChainFault`] if the bytes are invalid there; then nothing changes.
    pub fn follow_bytes(&mut self, bytes: Vec<u8>) -> Result<(LogRecord, RecordRole), ChainFault> {
        let position = self.position.next();
        let read = EncodedRecord::of_bytes(bytes);
        let (encoded, record) = read.map_err(|fault| ChainFault::NoRecord { position, fault })?;
        let link = self.follow(&encoded, &record)?;
        Ok((record, link))
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
