//! Recreates the files from the log.

use super::{Standby, StandbyEffect, StandbyStep, StandbyTrouble};
use crate::chain::{Chain, ChainFault};
use crate::limits::{ANSWER_DEADLINE_MS, POLL_MS};
use crate::log::ReadAnswer;
use crate::names::Position;
use crate::record::{Body, EncodedRecord, SnapshotReference};

impl Standby {
    /// Starts to recreate the files by finding the start of the log. If the log loses its tail now,
    /// all records read from it are discarded.
    pub(super) fn rebuild(&mut self, now_ms: u64) {
        let position = self.chain.position();
        if self.had_read.is_none_or(|(known, _)| known < position) {
            self.had_read = Some((position, self.chain.last()));
        }
        self.find(now_ms, Position::START.next());
    }

    /// True if a position holds a different record than when it was read before.
    pub(super) fn is_another(&self, there: &Chain) -> bool {
        self.had_read
            .is_some_and(|(known, last)| known == there.position() && last != there.last())
    }

    pub(super) fn find(&mut self, now_ms: u64, from: Position) {
        self.page.clear();
        self.digest = None;
        let attempt = self.attempt();
        self.step = StandbyStep::Finding {
            attempt,
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
            from,
        };
        self.effects.push(StandbyEffect::Read(attempt, from));
    }

    fn later(&mut self, now_ms: u64) {
        self.step = StandbyStep::FindingLater {
            until_ms: now_ms.saturating_add(POLL_MS),
        };
    }

    pub(super) fn found(&mut self, now_ms: u64, answer: ReadAnswer) {
        let StandbyStep::Finding { from, .. } = self.step else {
            return;
        };
        let page = match answer {
            ReadAnswer::Unavailable => return self.later(now_ms),
            ReadAnswer::Page(page) => page,
        };
        let oldest = page.oldest;
        if oldest <= Position::START.next() {
            let then = Chain::new(self.chain.workspace().clone());
            return self.restore(None, then);
        }
        let first = page.records.into_iter().next();
        let Some(bytes) = first.filter(|_| from == oldest) else {
            return self.find(now_ms, oldest);
        };
        let (encoded, record) = match EncodedRecord::of_bytes(bytes) {
            Ok(read) => read,
            Err(fault) => {
                let position = oldest;
                return self.stop(StandbyTrouble::Strange(ChainFault::NoRecord {
                    position,
                    fault,
                }));
            }
        };
        let is_ours = record.workspace == *self.chain.workspace() && record.position == oldest;
        match (Chain::behind_snapshot(&encoded, &record), record.body) {
            (Some(then), Body::Snapshot { reference, .. }) if is_ours => {
                self.restore(Some(reference), then);
            }
            _ => self.stop(StandbyTrouble::NoSnapshot { oldest }),
        }
    }

    fn restore(&mut self, reference: Option<SnapshotReference>, then: Chain) {
        self.step = StandbyStep::Restoring { then };
        self.effects.push(StandbyEffect::Restore(reference));
    }

    pub(super) fn restored(&mut self, now_ms: u64, is_so: bool) {
        let StandbyStep::Restoring { then } = &self.step else {
            return;
        };
        if is_so {
            self.chain = then.clone();
            if self.is_another(&self.chain) {
                let position = self.chain.position();
                return self.stop(StandbyTrouble::Replaced { position });
            }
            self.ask(now_ms);
        } else {
            self.later(now_ms);
        }
    }
}
