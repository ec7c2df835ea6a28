//! Truncation of the log, and the schedule of snapshots.
//!
//! A snapshot contains the files in their state before its record. Records before that record can
//! be removed once the snapshot is stored; they are kept longer for standbys that are close to
//! reading them.

use crate::limits::{KEPT_FOR_STANDBY_RECORDS, SNAPSHOT_BYTES};
use crate::names::Position;

/// Amount written since the last snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrowthSinceSnapshot {
    pub records: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

impl GrowthSinceSnapshot {
    /// True if the next snapshot is due, after `records_max` records or [`SNAPSHOT_BYTES`].
    #[must_use]
    pub fn is_due(&self, records_max: u64) -> bool {
        self.records >= records_max || self.bytes >= SNAPSHOT_BYTES
    }
}

/// Position before which the log may be truncated, so that it starts with a snapshot's record.
/// `snapshots` are the positions of stored snapshots' records, and `standbys` the positions that
/// standbys have read. `None` if nothing may be removed for now.
#[must_use]
pub fn forgettable(
    snapshots: impl IntoIterator<Item = Position>,
    standbys: impl IntoIterator<Item = Position>,
) -> Option<Position> {
    let snapshots: Vec<_> = snapshots.into_iter().collect();
    let latest = snapshots.iter().max()?;
    let far = latest.0.saturating_sub(KEPT_FOR_STANDBY_RECORDS);
    let near = standbys.into_iter().filter(|position| position.0 >= far);
    let slowest = near.map(Position::next).fold(*latest, Position::min);
    snapshots.into_iter().filter(|it| *it <= slowest).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_retained_for_a_near_standby_but_not_for_a_distant_one() {
        let snapshots = [900_000, 950_000, 1_000_000].map(Position);
        let kept_for = |standbys: &[u64]| {
            let before = forgettable(snapshots, standbys.iter().copied().map(Position));
            before.map(|position| position.0)
        };
        assert_eq!(kept_for(&[]), Some(1_000_000));
        assert_eq!(kept_for(&[1_000_050]), Some(1_000_000));
        assert_eq!(kept_for(&[999_000, 1_000_050]), Some(950_000));
        assert_eq!(
            kept_for(&[949_999]),
            Some(950_000),
            "it reads the record of the snapshot next"
        );
        assert_eq!(kept_for(&[949_998]), Some(900_000));
        assert_eq!(kept_for(&[850_000]), None);
        assert_eq!(
            kept_for(&[5, 999_000]),
            Some(950_000),
            "one that is far takes the snapshot"
        );
        assert_eq!(forgettable([], [Position(3)]), None);
    }

    #[test]
    fn a_snapshot_is_due_after_many_records_or_bytes() {
        let since = |records, bytes| GrowthSinceSnapshot { records, bytes };
        assert!(!since(9, SNAPSHOT_BYTES - 1).is_due(10));
        assert!(since(10, 0).is_due(10));
        assert!(since(0, SNAPSHOT_BYTES).is_due(10));
    }
}
