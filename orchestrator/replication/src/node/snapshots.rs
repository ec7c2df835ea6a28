//! Snapshots of a workspace that the node owns.

use super::CapturedSnapshot;
use crate::names::{Hash, Position};
use crate::record::SnapshotReference;
use crate::wire::KeptSnapshot;

/// A snapshot that is not stored completely yet.
#[derive(Debug)]
pub(super) struct PendingSnapshot {
    pub(super) reference: SnapshotReference,
    /// Position and hash of its record.
    pub(super) at: Option<(Position, Hash)>,
    /// Its content, once all parts are stored.
    pub(super) captured: Option<CapturedSnapshot>,
}

#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub(super) under_way: Option<PendingSnapshot>,
    /// Stored snapshots of this node, oldest first.
    pub(super) kept: Vec<KeptSnapshot>,
    /// Bytes of operations that this node wrote since the last snapshot.
    pub(super) bytes: u64,
    pub(super) not_before_ms: u64,
    pub(super) is_trim_due: bool,
    /// True while a trim request is unanswered.
    pub(super) is_trimming: bool,
}

impl Snapshots {
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}
