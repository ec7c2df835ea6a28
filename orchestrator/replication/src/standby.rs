//! Who replays a workspace's log, and takes the workspace over when its owner is gone.
//!
//! It reads the records in order, checks that each follows the one before, and has the shell make their changes. So it
//! has the owner's files, byte for byte, some moments later. It writes one record: a seal.
//!
//! # When it tries
//!
//! When the workspace was released, or a person says so, or its owner was not heard for a while: neither a heartbeat
//! nor a new record. Whether it succeeds is the log's decision alone. It tries only if it has read all there is, and if
//! the log has all that it was told of: a log that has lost its tail is for its owner to mend, or for a person to see.
//!
//! # What can be wrong
//!
//! | it finds | it |
//! | --- | --- |
//! | files that are not those the records make | says where, and rebuilds them |
//! | records that are forgotten before it has read them | rebuilds from the snapshot that the log begins with |
//! | the log ends before what it has read, and the owner is gone | stops, and says so |
//! | the log is not the one it has read, or a record does not follow | stops, and says so |

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::chain::{Chain, ChainFault};
use crate::limits::{
    ANSWER_DEADLINE_MS, POLL_MS, TAKE_OVER_AFTER_MS, TAKE_OVER_STEP_MS, TAKEN_WITHIN_MS,
};
use crate::log::{Attempt, Page, Put, PutAnswer, ReadAnswer};
use crate::names::{Hash, Life, NodeId, Position};
use crate::operation::FileOperation;
use crate::record::SnapshotReference;
use crate::tree::{DoesNotFit, MemoryTree};

mod following;
mod rebuilding;
mod taking_over;

/// What happens to a standby.
#[derive(Debug, Clone)]
pub enum Input {
    /// The log has answered [`Effect::Read`].
    Read(Attempt, ReadAnswer),
    /// The log has answered [`Effect::Seal`].
    Sealed(Attempt, PutAnswer),
    /// [`Effect::Apply`] is done, or does not fit the files.
    Applied(Result<(), Unfit>),
    /// The digest that [`Effect::Digest`] asked for.
    Digested(Hash),
    /// Whether the files are those that the records make, as [`Effect::Verify`] asked.
    Verified(bool),
    /// The files are those that [`Effect::Restore`] asked for; false if they could not be got.
    Restored(bool),
    /// The owner lives, and has acknowledged what stands up to here.
    Heard {
        /// Up to where.
        acknowledged: Position,
    },
    /// The node lives that the workspace was given up to: it may be about to take it.
    TakerHeard,
    /// There may be new records.
    Told,
    /// How many nodes are to try before this one; none if it is not to have the workspace.
    Rank(Option<u64>),
    /// The workspace is wanted here, now: until another node is found to have taken it meanwhile.
    TakeOver,
    /// A person wants the files made anew from the log, whatever is here.
    Rebuild,
    /// Time has passed.
    Tick,
}

/// What a standby wants done. At most one of them is under way, but for [`Effect::Say`], and a page that is read while the
/// changes of the one before are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read the log from a position on.
    Read(Attempt, Position),
    /// Make the changes of records, in order. How far this node is ([`Standby::chain`]) may be noted durably now and
    /// then, and not while they are made ([`Standby::is_changing`]).
    Apply(Vec<RecordChanges>),
    /// Tell the digest of all files as they are.
    Digest,
    /// Tell whether the files are those that the records make; what was looked at lately need not be again.
    Verify,
    /// Offer a seal to the log.
    Seal(Attempt, Put),
    /// Make the files those of a snapshot, or none at all, whatever is there.
    Restore(Option<SnapshotReference>),
    /// The workspace is this node's: the machine ends here, and [`crate::owner::Owner`] goes on.
    Own {
        /// How far the log is written: up to the seal.
        chain: Box<Chain>,
        /// The seal.
        seal: Put,
    },
    /// People are to know.
    Say(Trouble),
}

/// What a record changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChanges {
    /// What it stands behind.
    pub behind: Chain,
    /// The changes.
    pub operations: Vec<FileOperation>,
}

impl RecordChanges {
    /// Where the record stands.
    #[must_use]
    pub fn position(&self) -> Position {
        self.behind.position().next()
    }

    /// Makes them in memory.
    ///
    /// # Errors
    ///
    /// The first one that does not fit; those before it are made.
    pub fn make_in(&self, tree: &mut MemoryTree) -> Result<(), Unfit> {
        let mut operations = self.operations.iter();
        let made = operations.try_for_each(|operation| tree.apply(operation));
        made.map_err(|fault| Unfit {
            position: self.position(),
            fault,
        })
    }
}

/// The changes of a record do not fit the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Where the record stands. The changes of those before it are made.
    pub position: Position,
    /// What is wrong.
    pub fault: DoesNotFit,
}

/// What people are to know of a standby.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Its files are not those of the owner.
    #[error(
        "the files of this node are not those that the log makes up to position {position}: their digest is {found}, \
         and should be {expected}; they are made anew"
    )]
    Differs {
        /// Up to where.
        position: Position,
        /// What it should be.
        expected: Hash,
        /// What it is.
        found: Hash,
    },
    /// Its files are not those that the record at a position changes.
    #[error(
        "the record at position {position} does not fit the files of this node: {fault}; they are made anew"
    )]
    Misfit {
        /// Where.
        position: Position,
        /// Which file.
        fault: DoesNotFit,
    },
    /// Its files were altered.
    #[error(
        "the files of this node are not those that the log makes up to position {position}; they are made anew"
    )]
    Altered {
        /// Up to where.
        position: Position,
    },
    /// Made anew, they are not those of the owner again.
    #[error(
        "made anew from the log, the files of this node differ from the owner's at position {position} again: one of \
         the two disks is damaged; run `gdn verify` on both nodes"
    )]
    DiffersAgain {
        /// Where.
        position: Position,
    },
    /// The log has forgotten what it was to read next.
    #[error(
        "the log begins at position {oldest}, and this node has read up to {position}; it takes the snapshot"
    )]
    TooFarBehind {
        /// Where the log begins.
        oldest: Position,
        /// How far it has read.
        position: Position,
    },
    /// The log begins with a record that is no snapshot's.
    #[error(
        "the log begins at position {oldest} with a record that is no snapshot's: nothing can be made of it"
    )]
    NoSnapshot {
        /// Where it begins.
        oldest: Position,
    },
    /// The log has lost what was acknowledged, and nobody is there to append it again.
    #[error(
        "the log ends at position {head}, and records up to {known} were acknowledged: its server has lost them. The \
         owner would append them again, and is gone; this node has what is up to {position}"
    )]
    TailLost {
        /// Where the log ends.
        head: Position,
        /// What was acknowledged.
        known: Position,
        /// What this node has.
        position: Position,
    },
    /// What this node has read is not in the log, and other records are.
    #[error(
        "the log is not the one that this node has read up to position {position}: its server has lost records, or it \
         was altered. What is here alone stays as it is until a person decides"
    )]
    Replaced {
        /// Up to where.
        position: Position,
    },
    /// A record cannot be where it stands.
    #[error("{0}")]
    Strange(ChainFault),
}

/// What is known of the files that a standby begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Files {
    /// They are those that the records make, or those of some record behind it: it was a standby before.
    AsNoted,
    /// They may have what no record says: the node was the owner. They are made anew, once the log is known to have
    /// all that was acknowledged.
    PerhapsAhead,
}

#[derive(Debug)]
enum Step {
    /// Nothing is under way.
    Resting { until_ms: u64 },
    /// The log is read.
    Reading { attempt: Attempt, until_ms: u64 },
    /// The changes of records are made; afterwards the chain is this one.
    Applying { then: Chain, next: NextPage },
    /// The digest is awaited; afterwards the chain is this one.
    Digesting { then: Chain },
    /// The files are looked at before a seal.
    Verifying,
    /// A seal is offered.
    Sealing {
        attempt: Attempt,
        put: Put,
        until_ms: u64,
    },
    /// The log's beginning is looked for, to rebuild from.
    Finding {
        attempt: Attempt,
        until_ms: u64,
        from: Position,
    },
    /// As before, later.
    FindingLater { until_ms: u64 },
    /// Files are restored; afterwards the chain is this one.
    Restoring { then: Chain },
    /// A person has to decide, or the workspace is this node's.
    Stopped,
}

/// The page behind those records whose changes are being made.
#[derive(Debug)]
enum NextPage {
    /// It is not asked for, or did not come.
    None,
    Asked(Attempt),
    Here(Page),
}

/// Who replays a workspace's log.
#[derive(Debug)]
pub struct Standby {
    node: NodeId,
    life: Life,
    chain: Chain,
    /// Records that are read and not followed yet.
    page: VecDeque<Vec<u8>>,
    /// How far the log was written when that page was read.
    head: Position,
    step: Step,
    rank: Option<u64>,
    heard_ms: u64,
    /// Since when it is known that the workspace was given up; none while a node owns it.
    released_ms: Option<u64>,
    /// Up to where the owner has acknowledged, as far as it was heard.
    acknowledged: Position,
    /// How far it had read before it began to make its files anew, and what stood there.
    had_read: Option<(Position, Hash)>,
    /// The hash of the seal that it offered last.
    sealed: Option<Hash>,
    is_asked_to_take_over: bool,
    is_rebuild_asked: bool,
    is_rebuild_due: bool,
    is_told: bool,
    /// The digest of the files at the last snapshot's record, until it is said what it should be.
    digest: Option<(Position, Hash)>,
    /// Where files differed when they were last made anew.
    differed: Option<Position>,
    attempts: u64,
    effects: Vec<Effect>,
}

impl Standby {
    /// A standby that has read the log as far as `chain` says. Each has a life of its own.
    #[must_use]
    pub fn new(node: NodeId, life: Life, chain: Chain, files: Files, now_ms: u64) -> Self {
        let owner = chain.owner();
        let is_released = owner.is_some_and(|owner| owner.released.is_some());
        Self {
            node,
            life,
            released_ms: is_released.then_some(now_ms),
            chain,
            page: VecDeque::new(),
            head: Position::START,
            step: Step::Resting { until_ms: now_ms },
            rank: None,
            heard_ms: now_ms,
            acknowledged: Position::START,
            had_read: None,
            sealed: None,
            is_asked_to_take_over: false,
            is_rebuild_asked: false,
            is_rebuild_due: files == Files::PerhapsAhead,
            is_told: false,
            digest: None,
            differed: None,
            attempts: 0,
            effects: Vec::new(),
        }
    }

    /// How far the log has been read and its changes made: what is to be noted durably.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether the files are being made anew, and are not those of any record.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        matches!(
            self.step,
            Step::Finding { .. } | Step::FindingLater { .. } | Step::Restoring { .. }
        )
    }

    /// Whether the changes of records behind [`chain`](Self::chain) are being made. What is noted meanwhile as how far
    /// this node is would say that changes which are made already are still to come, with others in between.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        matches!(self.step, Step::Applying { .. })
    }

    /// Whether the page behind that is here already.
    #[cfg(test)]
    pub(crate) fn has_read_on(&self) -> bool {
        let Step::Applying { next, .. } = &self.step else {
            return false;
        };
        matches!(next, NextPage::Here(_))
    }

    /// Whether a person has to decide what becomes of this node's files.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.step, Step::Stopped)
    }

    /// Whether it mends a file that is altered now: not once it has offered a seal, as an owner's disk is trusted, nor
    /// where it has made its files anew already.
    #[cfg(test)]
    pub(crate) fn mends(&self) -> bool {
        self.sealed.is_none() && self.differed.is_none()
    }

    /// When [`Input::Tick`] is due at the latest, in the milliseconds that are handed in.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match &self.step {
            Step::Resting { until_ms }
            | Step::Reading { until_ms, .. }
            | Step::Sealing { until_ms, .. }
            | Step::Finding { until_ms, .. }
            | Step::FindingLater { until_ms } => Some(*until_ms),
            Step::Applying { .. }
            | Step::Digesting { .. }
            | Step::Verifying
            | Step::Restoring { .. }
            | Step::Stopped => None,
        }
    }

    /// Takes in what happened at a time, in running milliseconds; returns what is to be done, in order.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Effect> {
        match input {
            Input::Read(attempt, answer) => self.read(now_ms, attempt, answer),
            Input::Sealed(attempt, answer) => self.sealed(now_ms, attempt, answer),
            Input::Applied(outcome) => self.applied(now_ms, outcome),
            Input::Digested(found) => self.digested(now_ms, found),
            Input::Verified(is_so) => self.verified(now_ms, is_so),
            Input::Restored(is_so) => self.restored(now_ms, is_so),
            Input::Heard { acknowledged } => {
                self.heard_ms = now_ms;
                self.acknowledged = self.acknowledged.max(acknowledged);
            }
            Input::TakerHeard => {
                let is_late = |since_ms: u64| since_ms.saturating_add(TAKEN_WITHIN_MS) <= now_ms;
                if self.released_ms.is_some_and(|since_ms| !is_late(since_ms)) {
                    self.heard_ms = now_ms;
                }
            }
            Input::Told => {
                self.is_told = true;
                if matches!(self.step, Step::Resting { .. }) {
                    self.ask(now_ms);
                }
            }
            Input::Rank(rank) => self.rank = rank,
            Input::TakeOver => self.is_asked_to_take_over = true,
            Input::Rebuild => self.is_rebuild_asked = true,
            Input::Tick => self.tick(now_ms),
        }
        let is_between = matches!(
            self.step,
            Step::Resting { .. } | Step::Reading { .. } | Step::FindingLater { .. } | Step::Stopped
        );
        if self.is_rebuild_asked && is_between {
            self.is_rebuild_asked = false;
            self.differed = None;
            // Whatever it knew to be there: a person decides for what the log has.
            self.acknowledged = Position::START;
            self.had_read = None;
            self.find(now_ms, Position::START.next());
        }
        std::mem::take(&mut self.effects)
    }

    fn tick(&mut self, now_ms: u64) {
        if self.due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        match &self.step {
            Step::Finding { .. } | Step::FindingLater { .. } => self.rebuild(now_ms),
            // Whatever became of a seal: it is found where it would stand.
            Step::Resting { .. } | Step::Reading { .. } | Step::Sealing { .. } => self.ask(now_ms),
            Step::Applying { .. }
            | Step::Digesting { .. }
            | Step::Verifying
            | Step::Restoring { .. }
            | Step::Stopped => {}
        }
    }

    /// Reads what comes next.
    fn ask(&mut self, now_ms: u64) {
        self.is_told = false;
        let attempt = self.attempt();
        let from = self.chain.position().next();
        self.effects.push(Effect::Read(attempt, from));
        self.reading(now_ms, attempt);
    }

    /// Waits for what comes next.
    fn reading(&mut self, now_ms: u64, attempt: Attempt) {
        self.step = Step::Reading {
            attempt,
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
        };
    }

    /// Waits for news.
    fn rest(&mut self, now_ms: u64) {
        if self.is_told {
            return self.ask(now_ms);
        }
        self.step = Step::Resting {
            until_ms: now_ms.saturating_add(POLL_MS),
        };
    }

    /// How long the owner has to be silent for this node to try; none if it is not to try.
    fn patience_ms(&self) -> Option<u64> {
        if self.chain.ended_by().is_some() {
            return None;
        }
        if self.is_asked_to_take_over {
            return Some(0);
        }
        let steps_ms = self.rank?.saturating_mul(TAKE_OVER_STEP_MS);
        let is_free = match self.chain.owner() {
            None => true,
            Some(owner) => match &owner.released {
                Some(Some(to)) if *to == self.node => return Some(0),
                Some(None) => true,
                Some(Some(_)) | None => false,
            },
        };
        let silence_ms = if is_free { 0 } else { TAKE_OVER_AFTER_MS };
        Some(silence_ms.saturating_add(steps_ms))
    }

    /// Whether the owner has been silent for so long that this node is to try.
    fn is_due_to_try(&self, now_ms: u64) -> bool {
        let silence_ms = now_ms.saturating_sub(self.heard_ms);
        self.patience_ms()
            .is_some_and(|patience_ms| silence_ms >= patience_ms)
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt(self.attempts)
    }

    fn stop(&mut self, trouble: Trouble) {
        self.page.clear();
        self.step = Step::Stopped;
        self.effects.push(Effect::Say(trouble));
    }
}

#[cfg(test)]
#[path = "standby_tests.rs"]
mod tests;
