//! One record after the other.

use super::{Effect, Standby, Step, Trouble};
use crate::chain::Link;
use crate::log::{Attempt, Page, ReadAnswer};
use crate::names::{Hash, Position};
use crate::record::Body;
use crate::tree::DoesNotFit;

impl Standby {
    pub(super) fn read(&mut self, now_ms: u64, attempt: Attempt, answer: ReadAnswer) {
        match &self.step {
            Step::Reading { attempt: asked, .. } if *asked == attempt => {}
            Step::Finding { attempt: asked, .. } if *asked == attempt => {
                return self.found(now_ms, answer);
            }
            _ => return,
        }
        match answer {
            ReadAnswer::Unavailable => self.rest(now_ms),
            ReadAnswer::Page(page) => self.turn(now_ms, page),
        }
    }

    /// Looks at where a page stands, then goes through it.
    fn turn(&mut self, now_ms: u64, page: Page) {
        let position = self.chain.position();
        if page.head < position {
            return self.is_ahead(now_ms, page.head);
        }
        if page.oldest > position.next() {
            let oldest = page.oldest;
            self.effects
                .push(Effect::Say(Trouble::TooFarBehind { oldest, position }));
            return self.rebuild(now_ms);
        }
        // What stands before the oldest record is forgotten; that one names it.
        let can_tell = position > Position::START && page.oldest <= position;
        if can_tell && page.before != Some(self.chain.last()) {
            return self.stop(Trouble::Replaced { position });
        }
        if std::mem::take(&mut self.is_rebuild_due) {
            return self.rebuild(now_ms);
        }
        if page.records.is_empty() {
            return self.caught_up(now_ms, page.head);
        }
        self.heard_ms = now_ms;
        self.page = page.records.into();
        self.go_on(now_ms);
    }

    /// The log ends before what this node has read: its server has lost the rest. The owner appends it again.
    fn is_ahead(&mut self, now_ms: u64, head: Position) {
        if !self.is_due_to_try(now_ms) {
            return self.rest(now_ms);
        }
        let position = self.chain.position();
        self.stop(Trouble::TailLost {
            head,
            known: self.acknowledged.max(position),
            position,
        });
    }

    /// Follows records until one has to be waited for.
    fn go_on(&mut self, now_ms: u64) {
        while let Some(bytes) = self.page.pop_front() {
            let mut then = self.chain.clone();
            let (record, link) = match then.follow_bytes(bytes) {
                Ok(followed) => followed,
                Err(fault) => return self.stop(Trouble::Strange(fault)),
            };
            match record.body {
                _ if link == Link::Void => self.chain = then,
                Body::Operations(operations) => {
                    let position = then.position();
                    self.step = Step::Applying { then };
                    self.effects.push(Effect::Apply(position, operations));
                    return;
                }
                Body::Snapshot { .. } => {
                    self.step = Step::Digesting { then };
                    self.effects.push(Effect::Digest);
                    return;
                }
                Body::SnapshotKept { at, digest } => {
                    let found = self.digest.take_if(|(position, _)| *position == at);
                    if let Some((_, found)) = found {
                        if found != digest {
                            return self.differs_from(now_ms, at, digest, found);
                        }
                        self.differed = None;
                    }
                    self.chain = then;
                }
                Body::Seal { .. } if self.sealed == Some(then.last()) => return self.own(),
                Body::Seal { .. } => {
                    // Who asked did not know of this owner.
                    self.is_asked_to_take_over = false;
                    self.chain = then;
                }
                Body::Released { .. } => self.chain = then,
            }
        }
        self.ask(now_ms);
    }

    pub(super) fn applied(&mut self, now_ms: u64, outcome: Result<(), DoesNotFit>) {
        let Step::Applying { then } = &self.step else {
            return;
        };
        let position = then.position();
        match outcome {
            Ok(()) => {
                self.chain = then.clone();
                self.go_on(now_ms);
            }
            Err(fault) => self.differs(now_ms, position, Trouble::Misfit { position, fault }),
        }
    }

    /// What the files are at a snapshot's record: what they should be is said when it is kept.
    pub(super) fn digested(&mut self, now_ms: u64, found: Hash) {
        let Step::Digesting { then } = &self.step else {
            return;
        };
        self.digest = Some((then.position(), found));
        self.chain = then.clone();
        self.go_on(now_ms);
    }

    fn differs_from(&mut self, now_ms: u64, position: Position, expected: Hash, found: Hash) {
        let trouble = Trouble::Differs {
            position,
            expected,
            found,
        };
        self.differs(now_ms, position, trouble);
    }

    /// The files are not what they should be at a position: they are made anew, and not for ever.
    pub(super) fn differs(&mut self, now_ms: u64, position: Position, trouble: Trouble) {
        if self.differed == Some(position) {
            return self.stop(Trouble::DiffersAgain { position });
        }
        self.differed = Some(position);
        self.effects.push(Effect::Say(trouble));
        self.rebuild(now_ms);
    }
}
