//! What a node knows of the snapshots of a workspace that it owns.

use super::Captured;
use crate::names::{Hash, Position};
use crate::record::SnapshotReference;
use crate::wire::KeptSnapshot;

/// One that is not kept yet.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) reference: SnapshotReference,
    /// Where its record stands, and that record's hash.
    pub(super) at: Option<(Position, Hash)>,
    /// What it is, once all parts are kept.
    pub(super) captured: Option<Captured>,
}

/// Snapshots of one workspace.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub(super) under_way: Option<UnderWay>,
    /// Those of this node that are kept, the oldest first.
    pub(super) kept: Vec<KeptSnapshot>,
    /// Bytes of operations that this node wrote since the last one.
    pub(super) bytes: u64,
    pub(super) not_before_ms: u64,
    pub(super) is_trim_due: bool,
    /// Whether the log is asked to forget, and has not answered.
    pub(super) is_trimming: bool,
}

impl Snapshots {
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}
