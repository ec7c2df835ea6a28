//! The records that an owner could append again.

use std::collections::VecDeque;

use crate::limits::{KEPT_BYTES_MAX, KEPT_RECORDS_MAX};
use crate::log::Put;
use crate::names::Position;

/// The last records that the log has confirmed, and which of them it has lost.
#[derive(Debug)]
pub(super) struct Kept {
    puts: VecDeque<Put>,
    bytes: usize,
    /// How many of them, from the end, are to be appended again.
    lost: usize,
}

impl Kept {
    pub(super) fn of(put: Put) -> Self {
        let mut kept = Self {
            puts: VecDeque::new(),
            bytes: 0,
            lost: 0,
        };
        kept.push(put);
        kept
    }

    /// One more that stands.
    pub(super) fn push(&mut self, put: Put) {
        self.bytes += put.record.bytes().len();
        self.puts.push_back(put);
        while self.puts.len() > KEPT_RECORDS_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.puts.pop_front() else {
                break;
            };
            self.bytes -= oldest.record.bytes().len();
        }
    }

    /// The first of those that are to be appended again.
    pub(super) fn again(&self) -> Option<&Put> {
        let first = self.puts.len().checked_sub(self.lost)?;
        self.puts.get(first)
    }

    /// The first of those stands again; false if none is lost.
    pub(super) fn stands_again(&mut self) -> bool {
        let was_lost = self.lost > 0;
        self.lost = self.lost.saturating_sub(1);
        was_lost
    }

    /// The log ends at `head`, or has something else there: goes back to what is behind it, and one at least. False
    /// if that is not kept.
    pub(super) fn step_back(&mut self, head: Position) -> bool {
        let behind = |put: &&Put| put.record.position() > head;
        let missing = self.puts.iter().rev().take_while(behind).count();
        let lost = missing.max(self.lost + 1);
        let is_kept = lost <= self.puts.len();
        if is_kept {
            self.lost = lost;
        }
        is_kept
    }

    pub(super) fn oldest(&self) -> Option<Position> {
        self.puts.front().map(|put| put.record.position())
    }
}
