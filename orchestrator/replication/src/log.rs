//! Interface of a log of workspaces, independent of its implementation.
//!
//! The log decides one thing: which record gets a position. The rule is **put position n if it is
//! free**. A position is free if no record is stored there and the writer has seen the record
//! before it. Stored records never change. A log can also be read, and be truncated before a record
//! that is identified by its position and hash.
//!
//! An answer may be lost, so every request may be repeated: a record that is offered again for its
//! position is recognized by its hash.
//!
//! # Guarantees of a log
//!
//! * Of all records offered for a position, exactly one is stored.
//! * A record confirmed by [`PutAnswer::Done`] is durable, as far as the server's settings
//!   guarantee it. If the server loses it later, the hashes reveal the loss ([`crate::owner`]).
//! * Positions have no gaps.
//! * An answer about one moment is true for that moment. It may arrive late, or never.

use std::collections::BTreeMap;

use crate::limits::{READ_BYTES_MAX, READ_RECORDS_MAX};
use crate::names::{Hash, Position};
use crate::record::EncodedRecord;

/// Identifies a request to the log, so that the answer to an earlier request is not mistaken for
/// its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt(pub u64);

/// A record offered for its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutRequest {
    pub record: EncodedRecord,
    /// Hash of the record at the previous position; ignored for the first position.
    pub after: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutAnswer {
    /// The record is stored durably at its position.
    Done,
    /// The position holds a record with these bytes. It may be the offered one.
    Taken(Vec<u8>),
    /// The position is free, but the previous record is missing or differs from the one the writer
    /// has seen.
    Behind {
        /// Position of the last record.
        head: Position,
    },
    /// The position was truncated after the log had been written beyond it.
    Forgotten {
        /// The oldest stored position.
        oldest: Position,
    },
    /// The answer was lost or late. The record may be stored, or may still arrive.
    Unknown,
    /// The put was not attempted because the log is unreachable.
    Unavailable,
}

/// Consecutive records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Hash of the record before the first requested position, if it is still stored.
    pub before: Option<Hash>,
    /// Records from the requested position on: at most [`READ_RECORDS_MAX`] and [`READ_BYTES_MAX`],
    /// or a single record.
    pub records: Vec<Vec<u8>>,
    /// The oldest stored position; 0 if the log is empty.
    pub oldest: Position,
    /// Position of the last record; 0 if the log is empty.
    pub head: Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadAnswer {
    /// A page, which may be empty.
    Page(LogPage),
    /// The log is unreachable or did not answer in time.
    Unavailable,
}

/// In-memory log of one workspace, for simulations and as a reference for other logs.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    records: BTreeMap<Position, (Hash, Vec<u8>)>,
}

impl MemoryLog {
    /// Stores a record at its position if the position is free.
    pub fn put(&mut self, put: &PutRequest) -> PutAnswer {
        let position = put.record.position();
        if let Some((_, bytes)) = self.records.get(&position) {
            return PutAnswer::Taken(bytes.clone());
        }
        let head = self.head();
        if position <= head {
            let oldest = self.oldest();
            return PutAnswer::Forgotten { oldest };
        }
        if position != Position::START.next() && self.before(position) != Some(put.after) {
            return PutAnswer::Behind { head };
        }
        let record = (put.record.hash(), put.record.bytes().to_vec());
        self.records.insert(position, record);
        PutAnswer::Done
    }

    /// Reads records from a position on.
    #[must_use]
    pub fn read(&self, from: Position) -> LogPage {
        self.read_some(from, READ_RECORDS_MAX)
    }

    /// Like [`read`](Self::read), with a limit on the number of records.
    #[must_use]
    pub(crate) fn read_some(&self, from: Position, records_max: usize) -> LogPage {
        let mut bytes = 0;
        let fits = |record: &&(Hash, Vec<u8>)| {
            let is_first = bytes == 0;
            bytes += record.1.len();
            is_first || bytes <= READ_BYTES_MAX
        };
        let behind = self.records.range(from..).map(|(_, record)| record);
        let records = behind.take(records_max).take_while(fits);
        let is_there = self.records.contains_key(&from);
        LogPage {
            before: self.before(from),
            records: records
                .filter(|_| is_there)
                .map(|(_, bytes)| bytes.clone())
                .collect(),
            oldest: self.oldest(),
            head: self.head(),
        }
    }

    /// Position of the last record; 0 if the log is empty.
    #[must_use]
    pub fn head(&self) -> Position {
        self.records.keys().next_back().copied().unwrap_or_default()
    }

    /// Truncates the log before a record if the hash at its position matches; returns the oldest
    /// remaining position.
    pub fn trim(&mut self, before: Position, hash: Hash) -> Position {
        if self.records.get(&before).is_some_and(|(it, _)| *it == hash) {
            self.records = self.records.split_off(&before);
        }
        self.oldest()
    }

    /// Simulates a failover to a server that lacked the latest records.
    #[cfg(test)]
    pub(crate) fn lose_behind(&mut self, last: Position) {
        drop(self.records.split_off(&last.next()));
    }

    /// Creates a log of these records, starting at position `first`.
    #[cfg(test)]
    pub(crate) fn of(first: Position, records: &[Vec<u8>]) -> Self {
        let positions = std::iter::successors(Some(first), |position| Some(position.next()));
        let records = records.iter().map(|bytes| (Hash::of(bytes), bytes.clone()));
        Self {
            records: positions.zip(records).collect(),
        }
    }

    /// Unconditionally truncates the log before a position.
    #[cfg(test)]
    pub(crate) fn trim_to(&mut self, before: Position) {
        self.records = self.records.split_off(&before.min(self.head()));
    }

    /// The oldest remaining position; 0 if the log is empty.
    #[must_use]
    pub fn oldest(&self) -> Position {
        self.records.keys().next().copied().unwrap_or_default()
    }

    fn before(&self, position: Position) -> Option<Hash> {
        let (hash, _) = self.records.get(&position.previous()?)?;
        Some(*hash)
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::WorkspaceId;

    use super::*;
    use crate::chain::Chain;
    use crate::names::{Incarnation, NodeId};
    use crate::record::Body;

    fn seal(chain: &Chain, life: u64) -> PutRequest {
        let node = NodeId::new("a").unwrap();
        let record = chain
            .next(Body::Seal {
                node,
                life: Incarnation(life),
            })
            .unwrap();
        PutRequest {
            record,
            after: chain.last(),
        }
    }

    fn grown(log: &mut MemoryLog, records: u64) -> Chain {
        let mut chain = Chain::new(WorkspaceId::new("w").unwrap());
        for life in 1..=records {
            let put = seal(&chain, life);
            assert_eq!(log.put(&put), PutAnswer::Done);
            chain.follow_bytes(put.record.bytes().to_vec()).unwrap();
        }
        chain
    }

    #[test]
    fn a_position_is_given_once() {
        let mut log = MemoryLog::default();
        let chain = grown(&mut log, 2);
        let (mine, other) = (seal(&chain, 8), seal(&chain, 9));
        assert_eq!(log.put(&mine), PutAnswer::Done);
        for late in [&mine, &other] {
            assert_eq!(
                log.put(late),
                PutAnswer::Taken(mine.record.bytes().to_vec())
            );
        }
    }

    #[test]
    fn put_with_another_predecessor_gets_no_position() {
        let mut log = MemoryLog::default();
        let mut chain = grown(&mut log, 1);
        let mut lost = chain.clone();
        let gone = seal(&chain, 8);
        lost.follow_bytes(gone.record.bytes().to_vec()).unwrap();
        let late = seal(&lost, 8);
        assert_eq!(log.put(&late), PutAnswer::Behind { head: Position(1) });
        let other = seal(&chain, 9);
        assert_eq!(log.put(&other), PutAnswer::Done);
        chain.follow_bytes(other.record.bytes().to_vec()).unwrap();
        assert_eq!(log.put(&late), PutAnswer::Behind { head: Position(2) });
    }

    #[test]
    fn trimmed_positions_are_reported_and_last_record_is_kept() {
        let mut log = MemoryLog::default();
        let chain = grown(&mut log, 5);
        let hash_of = |log: &MemoryLog, position: u64| log.before(Position(position + 1)).unwrap();
        let fourth = hash_of(&log, 4);
        // By the time of the request, the position may hold a different record.
        assert_eq!(log.trim(Position(4), hash_of(&log, 3)), Position(1));
        assert_eq!(log.trim(Position(6), fourth), Position(1));
        assert_eq!(log.trim(Position(4), fourth), Position(4));
        let page = log.read(Position(2));
        assert_eq!((page.before, page.records.len()), (None, 0));
        assert_eq!((page.oldest, page.head), (Position(4), Position(5)));
        assert_eq!(log.read(Position(4)).records.len(), 2);
        assert_eq!(log.trim(Position(4), fourth), Position(4));
        let last = hash_of(&log, 5);
        assert_eq!(log.trim(Position(5), last), Position(5));
        assert_eq!(log.trim(Position(4), fourth), Position(5));
        let page = log.read(Position(6));
        assert_eq!(
            (page.before, page.oldest),
            (Some(chain.last()), Position(5))
        );
        let first = seal(&Chain::new(WorkspaceId::new("w").unwrap()), 9);
        let oldest = Position(5);
        assert_eq!(log.put(&first), PutAnswer::Forgotten { oldest });
        assert_eq!(log.put(&seal(&chain, 9)), PutAnswer::Done);
    }
}
