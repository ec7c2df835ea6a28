//! Reactions of an owner to answers of its log.

use super::{OwnerEffect, OwnershipLoss, Phase, WorkspaceOwner};
use crate::chain::{ChainFault, RecordRole};
use crate::limits::{RETRY_FIRST_MS, RETRY_MAX_MS};
use crate::log::{Attempt, LogPage, PutAnswer, ReadAnswer};
use crate::names::Position;
use crate::record::{Body, EncodedRecord, LogRecord};

impl WorkspaceOwner {
    pub(super) fn put_answered(&mut self, now_ms: u64, attempt: Attempt, answer: PutAnswer) {
        if !matches!(self.phase, Phase::Putting { attempt: asked, .. } if asked == attempt) {
            return;
        }
        self.phase = Phase::Idle;
        match answer {
            PutAnswer::Done => self.stands(now_ms),
            PutAnswer::Taken(bytes) => self.taken(now_ms, bytes),
            PutAnswer::Behind { head } => self.behind(now_ms, head),
            PutAnswer::Forgotten { .. } => self.overtaken(),
            PutAnswer::Unknown => self.failed(now_ms, true),
            PutAnswer::Unavailable => self.failed(now_ms, false),
        }
    }

    pub(super) fn looked(&mut self, now_ms: u64, attempt: Attempt, answer: ReadAnswer) {
        if !matches!(self.phase, Phase::Looking { attempt: asked, .. } if asked == attempt) {
            return;
        }
        self.phase = Phase::Idle;
        let LogPage {
            before,
            records,
            head,
            ..
        } = match answer {
            ReadAnswer::Page(page) => page,
            ReadAnswer::Unavailable => return self.failed(now_ms, true),
        };
        let expected = self.kept.again().map_or(self.chain.last(), |put| put.after);
        if let Some(bytes) = records.into_iter().next() {
            self.taken(now_ms, bytes);
        } else if head >= self.target() {
            self.overtaken();
        } else if before == Some(expected) || self.target() == Position::START.next() {
            self.failures = 0;
            self.heard_ms = now_ms;
            if self.offered.is_none() && self.kept.again().is_none() {
                self.unanswered_since_ms = None;
            }
        } else {
            self.behind(now_ms, head);
        }
    }

    /// Handles that the offered record is stored at its position.
    fn stands(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.failures = 0;
        self.unanswered_since_ms = None;
        if let Some(from) = self.taken_from {
            let to = self.chain.position();
            return self.depose(OwnershipLoss::TailTaken { from, to });
        }
        if self.kept.stands_again() {
            return;
        }
        self.is_sure = false;
        let Some(offered) = self.offered.take() else {
            return;
        };
        let bytes = offered.put.record.bytes().to_vec();
        let body = match self.chain.follow_bytes(bytes) {
            Ok((record, _)) => record.body,
            Err(fault) => return self.depose(OwnershipLoss::Strange(fault)),
        };
        self.kept.push(offered.put);
        for id in offered.completes {
            self.appended(id);
        }
        let position = self.chain.position();
        match body {
            Body::Operations(_) | Body::Seal { .. } => {}
            Body::Snapshot { reference, .. } => {
                let begins = OwnerEffect::SnapshotBegins(reference, position, self.chain.last());
                self.effects.push(begins);
            }
            Body::SnapshotKept { at, .. } => {
                self.snapshot = None;
                self.effects.push(OwnerEffect::SnapshotStands(at));
            }
            Body::Released { .. } => self.depose(OwnershipLoss::Released { position }),
        }
    }

    /// Handles that the next position holds a record.
    fn taken(&mut self, now_ms: u64, bytes: Vec<u8>) {
        let position = self.target();
        let found = EncodedRecord::of_bytes(bytes);
        let again = self.kept.again();
        let mine = again.or(self.offered.as_ref().map(|it| &it.put));
        if let (Ok((found, _)), Some(mine)) = (&found, mine)
            && found.hash() == mine.record.hash()
        {
            return self.stands(now_ms);
        }
        if again.is_some() {
            return self.tail_taken(now_ms, position);
        }
        match found {
            Ok((encoded, record)) => self.judge(now_ms, &encoded, record),
            Err(fault) => {
                self.depose(OwnershipLoss::Strange(ChainFault::NoRecord {
                    position,
                    fault,
                }));
            }
        }
    }

    /// Handles another node's record at the next position.
    fn judge(&mut self, now_ms: u64, encoded: &EncodedRecord, record: LogRecord) {
        let position = record.position;
        match (self.chain.judge(&record), record.body) {
            // The record does not follow this node's last record, which may have been lost: check
            // that first. An earlier owner may also have written it after a failover lost this
            // node's records.
            (Ok(RecordRole::Void) | Err(ChainFault::Broken { .. }), _) if !self.is_sure => {
                self.is_sure = true;
                self.behind(now_ms, position);
            }
            (Ok(RecordRole::Void), body) => {
                let record = LogRecord { body, ..record };
                match self.chain.follow(encoded, &record) {
                    Ok(_) => self.step_over(),
                    Err(fault) => self.depose(OwnershipLoss::Strange(fault)),
                }
            }
            (Ok(RecordRole::Follows), Body::Seal { node, .. }) => {
                self.depose(OwnershipLoss::Sealed {
                    by: node,
                    epoch: record.epoch,
                    position,
                });
            }
            (Ok(RecordRole::Follows), _) => {
                self.depose(OwnershipLoss::Strange(ChainFault::Broken { position }));
            }
            (Err(fault), _) => self.depose(OwnershipLoss::Strange(fault)),
        }
    }

    /// Handles that another record replaced an acknowledged one. Steps back to the part of the log
    /// that is unchanged.
    fn tail_taken(&mut self, now_ms: u64, position: Position) {
        self.taken_from = Some(position);
        if self.kept.step_back(position) {
            self.wait(now_ms, RETRY_FIRST_MS, false);
        } else {
            let to = self.chain.position();
            self.depose(OwnershipLoss::TailTaken { from: position, to });
        }
    }

    /// Moves the offer behind a void record. This is safe because the offered record was never
    /// stored.
    fn step_over(&mut self) {
        self.is_sure = false;
        let Some(offered) = self.offered.take() else {
            return;
        };
        let Ok(record) = LogRecord::decode(offered.put.record.bytes()) else {
            return;
        };
        self.offered = self.offer(record.body, offered.completes);
    }

    /// Handles that the log lacks the record before the offered one.
    fn behind(&mut self, now_ms: u64, head: Position) {
        if self.kept.step_back(head) {
            self.failures = self.failures.saturating_add(1);
            return self.wait(now_ms, RETRY_FIRST_MS, false);
        }
        let to = self.chain.position();
        let kept = self.kept.oldest().unwrap_or(to.next());
        self.depose(OwnershipLoss::TailTooLong { head, kept, to });
    }

    fn overtaken(&mut self) {
        let position = self.target();
        self.depose(OwnershipLoss::Overtaken { position });
    }

    /// Handles a failed request; `in_doubt` if the record may be stored anyway.
    pub(super) fn failed(&mut self, now_ms: u64, in_doubt: bool) {
        self.unanswered_since_ms.get_or_insert(now_ms);
        let doublings = self.failures.min(u64::BITS / 2);
        self.failures = self.failures.saturating_add(1);
        if in_doubt && doublings == 0 {
            return self.look(now_ms);
        }
        let wait_ms = RETRY_FIRST_MS
            .saturating_mul(1 << doublings)
            .min(RETRY_MAX_MS);
        self.wait(now_ms, wait_ms, in_doubt);
    }

    fn wait(&mut self, now_ms: u64, wait_ms: u64, look_first: bool) {
        self.phase = Phase::Waiting {
            until_ms: now_ms.saturating_add(wait_ms),
            look_first,
        };
    }
}
