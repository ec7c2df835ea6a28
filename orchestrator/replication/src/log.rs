//! What a log of workspaces does, whoever keeps it.
//!
//! The one thing that a log decides is who gets a position: **put position n if it is free**. It is free if nothing
//! stands there and the record before it is the one that the writer has seen. What stands somewhere is never changed.
//! Beside that, a log can be read, and what stands before a record that is named by its position and hash can be
//! forgotten at once.
//!
//! An answer may be lost. So every question may be asked again: a record that is offered for its position a second
//! time is found there, by its hash.
//!
//! # What a log promises
//!
//! * Of all that are offered for a position, one stands there.
//! * A record that [`PutAnswer::Done`] was said of is durable, as far as its server's settings make it so; a log that
//!   loses it later is found out by the hashes ([`crate::owner`]).
//! * Positions have no holes.
//! * An answer about one moment is true of that moment. It may come late, or never.

use std::collections::BTreeMap;

use crate::limits::{READ_BYTES_MAX, READ_RECORDS_MAX};
use crate::names::{Hash, Position};
use crate::record::Encoded;

/// Names one question to the log, so that the answer to an earlier one is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt(pub u64);

/// A record that is offered for its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The record.
    pub record: Encoded,
    /// The hash of what stands at the position before; of no meaning for the first.
    pub after: Hash,
}

/// What became of a record that was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutAnswer {
    /// It stands at its position, durably.
    Done,
    /// A record stands there: these are its bytes. It may be the one that was offered.
    Taken(Vec<u8>),
    /// The position is free, and what stands before it is not what the writer has seen, or nothing does.
    Behind {
        /// The last position at which a record stands.
        head: Position,
    },
    /// The position is none any more: the log was written beyond it, and has forgotten what stood there.
    Forgotten {
        /// The oldest position that is still there.
        oldest: Position,
    },
    /// Nobody knows: the answer was lost, or did not come in time. It may be there, or get there still.
    Unknown,
    /// It was not tried: the log cannot be reached.
    Unavailable,
}

/// Some records that stand one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The hash of what stands before the first position asked for, if that is still there.
    pub before: Option<Hash>,
    /// From the position asked for on; at most [`READ_RECORDS_MAX`] and [`READ_BYTES_MAX`], or one.
    pub records: Vec<Vec<u8>>,
    /// The oldest position that is still there; 0 if there is none.
    pub oldest: Position,
    /// The last position at which a record stands; 0 if there is none.
    pub head: Position,
}

/// What reading gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadAnswer {
    /// Records, or that there are none.
    Page(Page),
    /// The log cannot be reached, or did not answer in time.
    Unavailable,
}

/// A log of one workspace, in memory: for simulations, and to compare others with.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    records: BTreeMap<Position, (Hash, Vec<u8>)>,
}

impl MemoryLog {
    /// Puts a record at its position if that is free.
    pub fn put(&mut self, put: &Put) -> PutAnswer {
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
    pub fn read(&self, from: Position) -> Page {
        self.read_some(from, READ_RECORDS_MAX)
    }

    /// As [`read`](Self::read), so many records at most.
    #[must_use]
    pub(crate) fn read_some(&self, from: Position, records_max: usize) -> Page {
        let mut bytes = 0;
        let fits = |record: &&(Hash, Vec<u8>)| {
            let is_first = bytes == 0;
            bytes += record.1.len();
            is_first || bytes <= READ_BYTES_MAX
        };
        let behind = self.records.range(from..).map(|(_, record)| record);
        let records = behind.take(records_max).take_while(fits);
        let is_there = self.records.contains_key(&from);
        Page {
            before: self.before(from),
            records: records
                .filter(|_| is_there)
                .map(|(_, bytes)| bytes.clone())
                .collect(),
            oldest: self.oldest(),
            head: self.head(),
        }
    }

    /// The last position at which a record stands; 0 if there is none.
    #[must_use]
    pub fn head(&self) -> Position {
        self.records.keys().next_back().copied().unwrap_or_default()
    }

    /// Forgets what stands before a record, if that is the one at its position; returns the oldest position that is left.
    pub fn trim(&mut self, before: Position, hash: Hash) -> Position {
        if self.records.get(&before).is_some_and(|(it, _)| *it == hash) {
            self.records = self.records.split_off(&before);
        }
        self.oldest()
    }

    /// What a fail-over does to a server whose standby was behind.
    #[cfg(test)]
    pub(crate) fn lose_behind(&mut self, last: Position) {
        drop(self.records.split_off(&last.next()));
    }

    /// A log of these records, the first of which stands there.
    #[cfg(test)]
    pub(crate) fn of(first: Position, records: &[Vec<u8>]) -> Self {
        let positions = std::iter::successors(Some(first), |position| Some(position.next()));
        let records = records.iter().map(|bytes| (Hash::of(bytes), bytes.clone()));
        Self {
            records: positions.zip(records).collect(),
        }
    }

    /// Forgets what stands before a position, whatever stands there.
    #[cfg(test)]
    pub(crate) fn trim_to(&mut self, before: Position) {
        self.records = self.records.split_off(&before.min(self.head()));
    }

    /// The oldest position that is left; 0 if there is none.
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
    use crate::names::{Life, NodeId};
    use crate::record::Body;

    fn seal(chain: &Chain, life: u64) -> Put {
        let node = NodeId::new("a").unwrap();
        let record = chain
            .next(Body::Seal {
                node,
                life: Life(life),
            })
            .unwrap();
        Put {
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
    fn whoever_has_seen_another_predecessor_gets_no_position() {
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
    fn what_is_forgotten_is_told_and_the_last_record_stays() {
        let mut log = MemoryLog::default();
        let chain = grown(&mut log, 5);
        let hash_of = |log: &MemoryLog, position: u64| log.before(Position(position + 1)).unwrap();
        let fourth = hash_of(&log, 4);
        // Another record may stand there by the time that it is asked.
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
