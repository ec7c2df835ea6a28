//! Records that an owner can append again.

use std::collections::VecDeque;

use crate::limits::{KEPT_BYTES_MAX, KEPT_RECORDS_MAX};
use crate::log::PutRequest;
use crate::names::Position;

/// The last records confirmed by the log, and the number that it has lost.
#[derive(Debug)]
pub(super) struct ConfirmedRecords {
    puts: VecDeque<PutRequest>,
    bytes: usize,
    /// Number of records at the end that must be appended again.
    lost: usize,
}

impl ConfirmedRecords {
    pub(super) fn of(put: PutRequest) -> Self {
        let mut kept = Self {
            puts: VecDeque::new(),
            bytes: 0,
            lost: 0,
        };
        kept.push(put);
        kept
    }

    /// Adds a stored record.
    pub(super) fn push(&mut self, put: PutRequest) {
        self.bytes += put.record.bytes().len();
        self.puts.push_back(put);
        while self.puts.len() > KEPT_RECORDS_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.puts.pop_front() else {
                break;
            };
            self.bytes -= oldest.record.bytes().len();
        }
    }

    /// The first record that must be appended again.
    pub(super) fn again(&self) -> Option<&PutRequest> {
        let first = self.puts.len().checked_sub(self.lost)?;
        self.puts.get(first)
    }

    /// Handles that this record is stored again; returns false if none was lost.
    pub(super) fn stands_again(&mut self) -> bool {
        let was_lost = self.lost > 0;
        self.lost = self.lost.saturating_sub(1);
        was_lost
    }

    /// Handles that the log ends at `head` or has a different record there. Steps back by at least
    /// one record, to those after `head`. Returns false if they are no longer kept.
    pub(super) fn step_back(&mut self, head: Position) -> bool {
        let behind = |put: &&PutRequest| put.record.position() > head;
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
