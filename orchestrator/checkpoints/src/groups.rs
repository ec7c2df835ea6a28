//! Which entries of a tree are compressed together.
//!
//! Where a group ends depends on the paths of its entries and hardly on anything else, so that a file that
//! is new, gone or changed leaves the other groups as they are.

use std::ops::Range;

use goondan_durable::disk::NodeKind;
use goondan_trees::Surveyed;
use sha2::{Digest as _, Sha256};

use crate::limits::{GROUP_BYTES_MAX, GROUP_BYTES_MIN, GROUP_BYTES_MORE};

/// Bytes of a block of an archive.
const BLOCK_BYTES: u64 = 512;

/// What an entry takes in an archive, roughly. Lengths count by their magnitude, so that a file that grows a
/// little ends no group.
fn weight(entry: &Surveyed) -> u64 {
    let len = if entry.stat.kind == NodeKind::File {
        entry.stat.len.next_power_of_two()
    } else {
        0
    };
    BLOCK_BYTES + len
}

/// A number that a path always has.
fn number_of(entry: &Surveyed) -> u64 {
    let digest = Sha256::digest(entry.path.as_bytes());
    let bytes = digest.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// The groups of entries that are sorted by path.
pub(crate) fn groups(entries: &[Surveyed]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut bytes) = (0, 0_u64);
    for (at, entry) in entries.iter().enumerate() {
        let weight = weight(entry);
        if entry.stat.len > GROUP_BYTES_MAX && start < at {
            // A long file is a group of its own.
            groups.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(weight);
        let is_drawn = number_of(entry) % GROUP_BYTES_MORE < weight;
        if (bytes >= GROUP_BYTES_MIN && is_drawn) || bytes >= GROUP_BYTES_MAX {
            groups.push(start..at + 1);
            (start, bytes) = (at + 1, 0);
        }
    }
    if start < entries.len() {
        groups.push(start..entries.len());
    }
    groups
}
