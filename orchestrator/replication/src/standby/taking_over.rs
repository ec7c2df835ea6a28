//! From standby to owner.

use super::{Standby, StandbyEffect, StandbyStep, StandbyTrouble};
use crate::limits::ANSWER_DEADLINE_MS;
use crate::log::{Attempt, PutAnswer, PutRequest};
use crate::names::{Hash, Position};
use crate::record::Body;

impl Standby {
    /// The whole log was read: tries to take over, if that is due.
    pub(super) fn caught_up(&mut self, now_ms: u64, head: Position) {
        if !self.is_due_to_try(now_ms) {
            return self.rest(now_ms);
        }
        let position = self.chain.position();
        let had_read = self.had_read.map_or(Position::START, |(known, _)| known);
        let known = self.acknowledged.max(had_read);
        if known > head {
            return self.stop(StandbyTrouble::TailLost {
                head,
                known,
                position,
            });
        }
        if self.has_just_owned() {
            return self.offer_seal(now_ms);
        }
        self.step = StandbyStep::Verifying;
        self.effects.push(StandbyEffect::Verify);
    }

    /// True if no node has owned the workspace since this incarnation released it. An owner's disk
    /// is trusted, so its files need no check, which takes long for many files.
    fn has_just_owned(&self) -> bool {
        let owner = self.chain.owner();
        owner.is_some_and(|owner| {
            owner.node == self.node && owner.life == self.life && owner.released.is_some()
        })
    }

    pub(super) fn verified(&mut self, now_ms: u64, is_so: bool) {
        if !matches!(self.step, StandbyStep::Verifying) {
            return;
        }
        if !is_so {
            let position = self.chain.position();
            return self.differs(now_ms, position, StandbyTrouble::Altered { position });
        }
        // A heartbeat of the owner may have arrived since the last check.
        if !self.is_due_to_try(now_ms) {
            return self.rest(now_ms);
        }
        self.offer_seal(now_ms);
    }

    fn offer_seal(&mut self, now_ms: u64) {
        let Some(put) = self.seal() else {
            return self.rest(now_ms);
        };
        let attempt = self.attempt();
        self.sealed = Some(put.record.hash());
        self.step = StandbyStep::Sealing {
            attempt,
            put: put.clone(),
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
        };
        self.effects.push(StandbyEffect::Seal(attempt, put));
    }

    /// The seal of this incarnation after the records that were read; its bytes are the same for
    /// each attempt.
    fn seal(&self) -> Option<PutRequest> {
        let body = Body::Seal {
            node: self.node.clone(),
            life: self.life,
        };
        let record = self.chain.next(body).ok()?;
        let after = self.chain.last();
        Some(PutRequest { record, after })
    }

    pub(super) fn sealed(&mut self, now_ms: u64, attempt: Attempt, answer: PutAnswer) {
        let StandbyStep::Sealing {
            attempt: asked,
            put,
            ..
        } = &self.step
        else {
            return;
        };
        if *asked != attempt {
            return;
        }
        let is_mine = |bytes: &[u8]| Hash::of(bytes) == put.record.hash();
        match answer {
            PutAnswer::Done => self.own(),
            PutAnswer::Taken(bytes) if is_mine(&bytes) => self.own(),
            PutAnswer::Unavailable => self.rest(now_ms),
            // The read shows if the seal is there.
            PutAnswer::Taken(_)
            | PutAnswer::Behind { .. }
            | PutAnswer::Forgotten { .. }
            | PutAnswer::Unknown => self.ask(now_ms),
        }
    }

    /// This incarnation's seal follows the records that were read: this node owns the workspace.
    pub(super) fn own(&mut self) {
        let Some(seal) = self.seal() else {
            return;
        };
        let mut chain = self.chain.clone();
        self.page.clear();
        self.step = StandbyStep::Stopped;
        match chain.follow_bytes(seal.record.bytes().to_vec()) {
            Ok(_) => self.effects.push(StandbyEffect::Own {
                chain: Box::new(chain),
                seal,
            }),
            Err(fault) => self
                .effects
                .push(StandbyEffect::Say(StandbyTrouble::Strange(fault))),
        }
    }
}
