//! Groups of entries that are compressed together.
//!
//! The end of a group depends almost only on the paths of its entries, so adding, removing or
//! changing a file leaves most groups unchanged.

use std::ops::Range;

use goondan_durable::disk::NodeKind;
use goondan_trees::SurveyedPath;
use sha2::{Digest as _, Sha256};

use crate::limits::{GROUP_BYTES_MAX, GROUP_BYTES_MIN, GROUP_BYTES_MORE};

/// Block size of a tar archive.
const BLOCK_BYTES: u64 = 512;

/// Approximate size of an entry in an archive. Lengths are rounded to a power of two, so that a
/// slightly larger file does not end a group.
fn weight(entry: &SurveyedPath) -> u64 {
    let len = if entry.stat.kind == NodeKind::File {
        entry.stat.len.next_power_of_two()
    } else {
        0
    };
    BLOCK_BYTES + len
}

/// A pseudo-random number derived from the path.
fn number_of(entry: &SurveyedPath) -> u64 {
    let digest = Sha256::digest(entry.path.as_bytes());
    let bytes = digest.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// Splits entries, sorted by path, into groups.
pub(crate) fn groups(entries: &[SurveyedPath]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut bytes) = (0, 0_u64);
    for (at, entry) in entries.iter().enumerate() {
        let weight = weight(entry);
        if entry.stat.len > GROUP_BYTES_MAX && start < at {
            // A large file is a separate group.
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
