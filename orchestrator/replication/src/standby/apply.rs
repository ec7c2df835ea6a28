//! One record after the other.

use super::{
    ApplyFailure, NextPage, RecordChanges, Standby, StandbyEffect, StandbyStep, StandbyTrouble,
};
use crate::chain::{Chain, RecordRole};
use crate::log::{Attempt, LogPage, ReadAnswer};
use crate::names::{Hash, Position};
use crate::record::{Body, EncodedRecord};

impl NextPage {
    fn read(&mut self, attempt: Attempt, answer: ReadAnswer) {
        if !matches!(self, Self::Asked(asked) if *asked == attempt) {
            return;
        }
        *self = match answer {
            // After the changes are applied, the end of the log is read again.
            ReadAnswer::Page(page) if !page.records.is_empty() => Self::Here(page),
            ReadAnswer::Page(_) | ReadAnswer::Unavailable => Self::None,
        };
    }
}

impl Standby {
    pub(super) fn read(&mut self, now_ms: u64, attempt: Attempt, answer: ReadAnswer) {
        if let StandbyStep::Applying { next, .. } = &mut self.step {
            return next.read(attempt, answer);
        }
        match &self.step {
            StandbyStep::Reading { attempt: asked, .. } if *asked == attempt => {}
            StandbyStep::Finding { attempt: asked, .. } if *asked == attempt => {
                return self.found(now_ms, answer);
            }
            _ => return,
        }
        match answer {
            ReadAnswer::Unavailable => self.rest(now_ms),
            ReadAnswer::Page(page) => self.turn(now_ms, page),
        }
    }

    /// Checks the position of a page, then processes its records.
    fn turn(&mut self, now_ms: u64, page: LogPage) {
        let position = self.chain.position();
        if page.head < position {
            return self.is_ahead(now_ms, page.head);
        }
        if page.oldest > position.next() {
            let oldest = page.oldest;
            self.effects
                .push(StandbyEffect::Say(StandbyTrouble::TooFarBehind {
                    oldest,
                    position,
                }));
            return self.rebuild(now_ms);
        }
        // Records before the oldest one are truncated; the oldest one names its predecessor.
        let can_tell = position > Position::START && page.oldest <= position;
        if can_tell && page.before != Some(self.chain.last()) {
            return self.stop(StandbyTrouble::Replaced { position });
        }
        // The first record of a log cannot be void: it follows the records that were read, or the
        // log is a different one.
        let is_next = position > Position::START && page.oldest == position.next();
        let first = page.records.first().filter(|_| is_next);
        if first.is_some_and(|bytes| is_void(&self.chain, bytes)) {
            return self.stop(StandbyTrouble::Replaced { position });
        }
        if std::mem::take(&mut self.is_rebuild_due) {
            return self.rebuild(now_ms);
        }
        if page.records.is_empty() {
            return self.caught_up(now_ms, page.head);
        }
        self.heard_ms = now_ms;
        self.head = page.head;
        self.page = page.records.into();
        self.go_on(now_ms);
    }

    /// The log ends before what this node has read: its server has lost the rest. The owner appends it again.
    fn is_ahead(&mut self, now_ms: u64, head: Position) {
        if !self.is_due_to_try(now_ms) {
            return self.rest(now_ms);
        }
        let position = self.chain.position();
        self.stop(StandbyTrouble::TailLost {
            head,
            known: self.acknowledged.max(position),
            position,
        });
    }

    /// Processes records up to one that needs a wait; the changes of all records before it are
    /// applied together.
    fn go_on(&mut self, now_ms: u64) {
        let mut then = self.chain.clone();
        let mut changes = Vec::new();
        while let Some(bytes) = self.page.pop_front() {
            let behind = then.clone();
            let (record, link) = match then.follow_bytes(bytes) {
                Ok(followed) => followed,
                Err(fault) if changes.is_empty() => {
                    return self.stop(StandbyTrouble::Strange(fault));
                }
                Err(_) => {
                    // It is read again after the changes are applied.
                    self.page.clear();
                    break;
                }
            };
            if self.is_another(&then) {
                let position = then.position();
                return self.stop(StandbyTrouble::Replaced { position });
            }
            let is_mine = self.sealed == Some(then.last());
            if matches!(record.body, Body::Seal { .. }) && link == RecordRole::Follows {
                self.released_ms = None;
            }
            match record.body {
                _ if link == RecordRole::Void => {}
                Body::Operations(operations) => changes.push(RecordChanges { behind, operations }),
                Body::Released { .. } => self.released_ms = Some(now_ms),
                // The request was made before this owner was known.
                Body::Seal { .. } if !is_mine => self.is_asked_to_take_over = false,
                Body::Seal { .. } | Body::Snapshot { .. } | Body::SnapshotKept { .. }
                    if !changes.is_empty() =>
                {
                    // As above: it is about the files with these changes.
                    self.page.clear();
                    then = behind;
                    break;
                }
                Body::Seal { .. } => {
                    self.chain = behind;
                    return self.own();
                }
                Body::Snapshot { .. } => {
                    self.step = StandbyStep::Digesting { then };
                    return self.effects.push(StandbyEffect::Digest);
                }
                Body::SnapshotKept { at, digest } => {
                    if let Some(found) = self.digest_unlike(at, digest) {
                        return self.differs_from(now_ms, at, digest, found);
                    }
                }
            }
        }
        if changes.is_empty() {
            self.chain = then;
            return self.ask(now_ms);
        }
        self.effects.push(StandbyEffect::Apply(changes));
        let next = self.read_on(&then);
        self.step = StandbyStep::Applying { then, next };
    }

    /// Reads the next page while changes are applied, if there is one.
    fn read_on(&mut self, then: &Chain) -> NextPage {
        if !self.page.is_empty() || then.position() >= self.head {
            return NextPage::None;
        }
        let attempt = self.attempt();
        self.effects
            .push(StandbyEffect::Read(attempt, then.position().next()));
        NextPage::Asked(attempt)
    }

    /// The digest that was computed at a snapshot's record, if it differs from the expected one.
    fn digest_unlike(&mut self, at: Position, digest: Hash) -> Option<Hash> {
        let (_, found) = self.digest.take_if(|(position, _)| *position == at)?;
        if found == digest {
            self.differed = None;
        }
        (found != digest).then_some(found)
    }

    pub(super) fn applied(&mut self, now_ms: u64, outcome: Result<(), ApplyFailure>) {
        let StandbyStep::Applying { then, next } = &mut self.step else {
            return;
        };
        let next = std::mem::replace(next, NextPage::None);
        match outcome {
            Ok(()) => {
                self.chain = then.clone();
                match next {
                    NextPage::Here(page) if !self.is_rebuild_asked => self.turn(now_ms, page),
                    NextPage::Here(_) | NextPage::None => self.go_on(now_ms),
                    NextPage::Asked(attempt) => self.reading(now_ms, attempt),
                }
            }
            Err(ApplyFailure { position, fault }) => {
                self.differs(now_ms, position, StandbyTrouble::Misfit { position, fault });
            }
        }
    }

    /// Stores the digest of the files at a snapshot's record. The expected digest arrives when the
    /// snapshot is stored.
    pub(super) fn digested(&mut self, now_ms: u64, found: Hash) {
        let StandbyStep::Digesting { then } = &self.step else {
            return;
        };
        self.digest = Some((then.position(), found));
        self.chain = then.clone();
        self.go_on(now_ms);
    }

    fn differs_from(&mut self, now_ms: u64, position: Position, expected: Hash, found: Hash) {
        let trouble = StandbyTrouble::Differs {
            position,
            expected,
            found,
        };
        self.differs(now_ms, position, trouble);
    }

    /// The files differ from the expected ones at a position: rebuilds them, but only once.
    pub(super) fn differs(&mut self, now_ms: u64, position: Position, trouble: StandbyTrouble) {
        if self.differed == Some(position) {
            return self.stop(StandbyTrouble::DiffersAgain { position });
        }
        self.differed = Some(position);
        self.effects.push(StandbyEffect::Say(trouble));
        self.rebuild(now_ms);
    }
}

/// True if the record after a chain is void.
fn is_void(chain: &Chain, bytes: &[u8]) -> bool {
    let read = EncodedRecord::of_bytes(bytes.to_vec());
    read.is_ok_and(|(_, record)| chain.judge(&record) == Ok(RecordRole::Void))
}
