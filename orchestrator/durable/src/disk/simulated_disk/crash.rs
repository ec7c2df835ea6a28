//! Selection of unsynced changes that survive a crash.

use std::collections::BTreeMap;

use super::node::{DirChange, FileChange, SimulatedNode, change_names};

/// Set of unsynced changes that survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    LoseUnsynced,
    KeepUnsynced,
    /// A subset chosen by this seed; appends may be torn at any byte.
    Subset(u64),
    /// All changes of names, and this many appended bytes in order; a truncation counts as zero
    /// bytes.
    KeepBytes(u64),
    /// Only the process ends: all changes stay visible, but not durable.
    ProcessOnly,
}

/// Decides which unsynced changes survive.
pub(super) struct CrashChoice {
    pub(super) crash: Crash,
    pub(super) state: u64,
    /// Number of bytes appended before the oldest unsynced append.
    pub(super) bytes_before: u64,
    /// Decisions about renames between two directories.
    pub(super) pairs: BTreeMap<u64, bool>,
}

impl CrashChoice {
    pub(super) fn new(crash: Crash) -> Self {
        let seed = if let Crash::Subset(seed) = crash {
            seed
        } else {
            0
        };
        Self {
            crash,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            bytes_before: 0,
            pairs: BTreeMap::new(),
        }
    }

    /// Returns a number below `bound` (which is not 0), by xorshift, which is random enough here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap_or(0) % bound
    }

    pub(super) fn keeps(&mut self) -> bool {
        match self.crash {
            Crash::LoseUnsynced => false,
            Crash::KeepUnsynced | Crash::ProcessOnly | Crash::KeepBytes(_) => true,
            Crash::Subset(_) => self.below(2) == 0,
        }
    }

    pub(super) fn keeps_names(&mut self, change: &DirChange) -> bool {
        let Some((pair, _)) = change.with else {
            return self.keeps();
        };
        if let Some(kept) = self.pairs.get(&pair) {
            return *kept;
        }
        let kept = self.keeps();
        self.pairs.insert(pair, kept);
        kept
    }

    /// True if a truncation survives that was made after `before` appended bytes.
    pub(super) fn keeps_cut(&mut self, before: u64) -> bool {
        match self.crash {
            Crash::KeepBytes(kept) => before <= self.bytes_before + kept,
            _ => self.keeps(),
        }
    }

    /// Returns the number of surviving bytes of an append of `len` bytes after `before` others.
    pub(super) fn bytes(&mut self, len: usize, before: u64) -> usize {
        match self.crash {
            Crash::KeepBytes(kept) => {
                let left = (self.bytes_before + kept).saturating_sub(before);
                len.min(usize::try_from(left).unwrap_or(usize::MAX))
            }
            Crash::LoseUnsynced => 0,
            Crash::KeepUnsynced | Crash::ProcessOnly => len,
            Crash::Subset(_) => match self.below(3) {
                0 => 0,
                1 => len,
                _ => self.below(len + 1),
            },
        }
    }
}

pub(super) fn settle(node: &mut SimulatedNode, choice: &mut CrashChoice) {
    match node {
        SimulatedNode::File {
            durable,
            current,
            changes,
            ..
        } => {
            for change in changes.drain(..) {
                match change {
                    FileChange::Append {
                        offset,
                        data,
                        before,
                    } => {
                        let kept = choice.bytes(data.len(), before);
                        if kept > 0 {
                            if durable.len() < offset {
                                durable.resize(offset, 0);
                            }
                            durable.truncate(offset);
                            durable.extend(data.into_iter().take(kept));
                        }
                    }
                    FileChange::SetLen { len, before } => {
                        if choice.keeps_cut(before) {
                            durable.truncate(len);
                        }
                    }
                }
            }
            current.clone_from(durable);
        }
        SimulatedNode::Dir {
            durable,
            current,
            changes,
            ..
        } => {
            for change in changes.drain(..) {
                if choice.keeps_names(&change) {
                    change_names(durable, change);
                }
            }
            current.clone_from(durable);
        }
        // Its content persists with its name.
        SimulatedNode::Link { .. } | SimulatedNode::Pipe => {}
    }
}
