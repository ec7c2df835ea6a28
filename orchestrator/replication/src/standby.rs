//! Applies a workspace's log, and takes the workspace over when its owner is gone.
//!
//! It reads the records in order, checks that each follows its predecessor, and has the shell apply
//! their changes. So it has the owner's files, byte for byte, with a short delay. It writes only
//! one record: a seal.
//!
//! # When it tries
//!
//! When the workspace was released, a user requests it, or the owner was silent for a while:
//! neither a heartbeat nor a new record. Only the log decides if it succeeds. It tries only if it
//! has read the whole log, and if the log has all records that it knows of: a log that has lost its
//! tail must be repaired by its owner or a person.
//!
//! # Problems
//!
//! | problem | reaction |
//! | --- | --- |
//! | the files differ from those of the records | reports the position, and rebuilds them |
//! | records were truncated before they were read | rebuilds from the snapshot that the log begins
//! with |
//! | the log ends before the applied position, and the owner is gone | stops with a report |
//! | the log is a different one, or a record does not follow | stops with a report |

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::chain::{Chain, ChainFault};
use crate::limits::{
    ANSWER_DEADLINE_MS, POLL_MS, TAKE_OVER_AFTER_MS, TAKE_OVER_STEP_MS, TAKEN_WITHIN_MS,
};
use crate::log::{Attempt, LogPage, PutAnswer, PutRequest, ReadAnswer};
use crate::names::{Hash, Incarnation, NodeId, Position};
use crate::operation::FileOperation;
use crate::record::SnapshotReference;
use crate::tree::{FileMismatch, MemoryTree};

mod apply;
mod rebuild;
mod taking_over;

#[derive(Debug, Clone)]
pub enum StandbyInput {
    /// The log has answered [`StandbyEffect::Read`].
    Read(Attempt, ReadAnswer),
    /// The log has answered [`StandbyEffect::Seal`].
    Sealed(Attempt, PutAnswer),
    /// [`StandbyEffect::Apply`] is done, or the records do not match the files.
    Applied(Result<(), ApplyFailure>),
    Digested(Hash),
    /// Result of [`StandbyEffect::Verify`]: true if the files match the records.
    Verified(bool),
    /// [`StandbyEffect::Restore`] has ended; false if the files could not be restored.
    Restored(bool),
    /// The owner is alive, and has acknowledged records.
    Heard {
        acknowledged: Position,
    },
    /// The node to which the workspace was released is alive, and may be about to take it.
    TakerHeard,
    /// There may be new records.
    Told,
    /// Number of nodes that try before this one; `None` if this node must not take the workspace.
    Rank(Option<u64>),
    /// The workspace is needed here now, unless another node has taken it in the meantime.
    TakeOver,
    /// A user requests to rebuild the files from the log.
    Rebuild,
    Tick,
}

/// Output of a standby. At most one effect is in progress, except [`StandbyEffect::Say`], and the read of
/// the next page while the changes of a page are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StandbyEffect {
    /// Read the log from a position on.
    Read(Attempt, Position),
    /// Apply the changes of records, in order. The applied position ([`Standby::chain`]) may be
    /// noted durably, but not while changes are applied ([`Standby::is_changing`]).
    Apply(Vec<RecordChanges>),
    /// Return the digest of all files.
    Digest,
    /// Check that the files match the records; recent checks may be reused.
    Verify,
    /// Offer a seal to the log.
    Seal(Attempt, PutRequest),
    /// Replace the files by those of a snapshot, or remove all files.
    Restore(Option<SnapshotReference>),
    /// This node owns the workspace: this machine ends, and [`crate::owner::WorkspaceOwner`] continues.
    Own {
        /// State of the log, up to the seal.
        chain: Box<Chain>,
        seal: PutRequest,
    },
    /// Report this to the user.
    Say(StandbyTrouble),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChanges {
    /// State of the log before the record.
    pub behind: Chain,
    pub operations: Vec<FileOperation>,
}

impl RecordChanges {
    #[must_use]
    pub fn position(&self) -> Position {
        self.behind.position().next()
    }

    /// Applies the changes in memory.
    ///
    /// # Errors
    ///
    /// The first change that does not match; earlier ones are applied.
    pub fn make_in(&self, tree: &mut MemoryTree) -> Result<(), ApplyFailure> {
        let mut operations = self.operations.iter();
        let made = operations.try_for_each(|operation| tree.apply(operation));
        made.map_err(|fault| ApplyFailure {
            position: self.position(),
            fault,
        })
    }
}

/// The changes of a record do not match the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyFailure {
    /// Position of the record. The changes of earlier records are applied.
    pub position: Position,
    pub fault: FileMismatch,
}

/// Problem of a standby, for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StandbyTrouble {
    /// The files differ from the owner's.
    #[error(
        "this node's files do not match the log up to position {position}: expected digest \
         {expected}, found {found}; rebuilding them"
    )]
    Differs {
        position: Position,
        expected: Hash,
        found: Hash,
    },
    /// The files differ from those that the record at a position changes.
    #[error(
        "the record at position {position} does not fit this node's files: {fault}; rebuilding them"
    )]
    Misfit {
        position: Position,
        fault: FileMismatch,
    },
    #[error("this node's files do not match the log up to position {position}; rebuilding them")]
    Altered { position: Position },
    /// The rebuilt files differ from the owner's again.
    #[error(
        "after a rebuild from the log, this node's files differ from the owner's again at position \
         {position}: one of the two disks is damaged; run `gdn daemon verify` on both nodes"
    )]
    DiffersAgain { position: Position },
    /// The log was truncated beyond the next record to read.
    #[error(
        "the log begins at position {oldest}, but this node has read up to {position}; restoring the snapshot"
    )]
    TooFarBehind {
        /// Oldest position of the log.
        oldest: Position,
        /// Position that this node has read.
        position: Position,
    },
    /// The log begins with a record that is not a snapshot's.
    #[error(
        "the log begins at position {oldest} with a record that is not a snapshot; it cannot be used"
    )]
    NoSnapshot {
        /// Oldest position of the log.
        oldest: Position,
    },
    /// The log has lost acknowledged records, and the owner is not available to append them again.
    #[error(
        "the log ends at position {head}, but records up to {known} were acknowledged: its server \
         has lost them. The owner could append them again but is gone; this node has the records \
         up to {position}"
    )]
    TailLost {
        /// Last position of the log.
        head: Position,
        known: Position,
        /// Position that this node has read.
        position: Position,
    },
    /// The log lacks records that this node has read, and has others in their place.
    #[error(
        "the log differs from the one that this node has read up to position {position}: its \
         server has lost records, or it was altered. Files that exist only here are kept until a \
         person decides"
    )]
    Replaced { position: Position },
    /// A record is invalid at its position.
    #[error("{0}")]
    Strange(ChainFault),
}

/// Initial state of a standby's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FilesState {
    /// They are those that the records make, or those of some record behind it: it was a standby before.
    AsNoted,
    /// The files may be ahead of the log, because this node was the owner. They are rebuilt once
    /// the log is known to have all acknowledged records.
    PerhapsAhead,
}

#[derive(Debug)]
enum StandbyStep {
    /// No operation is in progress.
    Resting {
        until_ms: u64,
    },
    Reading {
        attempt: Attempt,
        until_ms: u64,
    },
    /// The changes of records are made; afterwards the chain is this one.
    Applying {
        then: Chain,
        next: NextPage,
    },
    /// The digest is awaited; afterwards the chain is this one.
    Digesting {
        then: Chain,
    },
    /// The files are verified before a seal.
    Verifying,
    Sealing {
        attempt: Attempt,
        put: PutRequest,
        until_ms: u64,
    },
    /// The log's beginning is looked for, to rebuild from.
    Finding {
        attempt: Attempt,
        until_ms: u64,
        from: Position,
    },
    /// As before, later.
    FindingLater {
        until_ms: u64,
    },
    /// Files are restored; afterwards the chain is this one.
    Restoring {
        then: Chain,
    },
    /// A person must decide, or this node owns the workspace.
    Stopped,
}

/// The page after the records that are being applied.
#[derive(Debug)]
enum NextPage {
    /// It was not requested, or did not arrive.
    None,
    Asked(Attempt),
    Here(LogPage),
}

/// Applies a workspace's log.
#[derive(Debug)]
pub struct Standby {
    node: NodeId,
    life: Incarnation,
    chain: Chain,
    /// Records that are read and not followed yet.
    page: VecDeque<Vec<u8>>,
    /// End of the log when that page was read.
    head: Position,
    step: StandbyStep,
    rank: Option<u64>,
    heard_ms: u64,
    /// Time at which the release was seen; `None` while a node owns it.
    released_ms: Option<u64>,
    /// Up to where the owner has acknowledged, as far as it was heard.
    acknowledged: Position,
    /// Position that was read before the files were rebuilt, and the hash there.
    had_read: Option<(Position, Hash)>,
    /// The hash of the seal that it offered last.
    sealed: Option<Hash>,
    is_asked_to_take_over: bool,
    is_rebuild_asked: bool,
    is_rebuild_due: bool,
    is_told: bool,
    /// Digest of the files at the last snapshot's record, until the expected digest is known.
    digest: Option<(Position, Hash)>,
    /// Position of the difference that caused the last rebuild.
    differed: Option<Position>,
    attempts: u64,
    effects: Vec<StandbyEffect>,
}

impl Standby {
    /// A standby that has read the log as far as `chain` says. Each has a life of its own.
    #[must_use]
    pub fn new(
        node: NodeId,
        life: Incarnation,
        chain: Chain,
        files: FilesState,
        now_ms: u64,
    ) -> Self {
        let owner = chain.owner();
        let is_released = owner.is_some_and(|owner| owner.released.is_some());
        Self {
            node,
            life,
            released_ms: is_released.then_some(now_ms),
            chain,
            page: VecDeque::new(),
            head: Position::START,
            step: StandbyStep::Resting { until_ms: now_ms },
            rank: None,
            heard_ms: now_ms,
            acknowledged: Position::START,
            had_read: None,
            sealed: None,
            is_asked_to_take_over: false,
            is_rebuild_asked: false,
            is_rebuild_due: files == FilesState::PerhapsAhead,
            is_told: false,
            digest: None,
            differed: None,
            attempts: 0,
            effects: Vec::new(),
        }
    }

    /// State of the log up to the applied position, to be noted durably.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// True if the files are being rebuilt and match no record.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        matches!(
            self.step,
            StandbyStep::Finding { .. }
                | StandbyStep::FindingLater { .. }
                | StandbyStep::Restoring { .. }
        )
    }

    /// True if records after [`chain`](Self::chain) are being applied. No position may be noted
    /// meanwhile, because some of their changes are already made.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        matches!(self.step, StandbyStep::Applying { .. })
    }

    /// True if the next page was already read.
    #[cfg(test)]
    pub(crate) fn has_read_on(&self) -> bool {
        let StandbyStep::Applying { next, .. } = &self.step else {
            return false;
        };
        matches!(next, NextPage::Here(_))
    }

    /// True if a person must decide about this node's files.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.step, StandbyStep::Stopped)
    }

    /// True if it would repair an altered file now: not after it has offered a seal, because an
    /// owner's disk is trusted, and not after a rebuild.
    #[cfg(test)]
    pub(crate) fn mends(&self) -> bool {
        self.sealed.is_none() && self.differed.is_none()
    }

    /// When [`StandbyInput::Tick`] is due at the latest, in the milliseconds that are handed in.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match &self.step {
            StandbyStep::Resting { until_ms }
            | StandbyStep::Reading { until_ms, .. }
            | StandbyStep::Sealing { until_ms, .. }
            | StandbyStep::Finding { until_ms, .. }
            | StandbyStep::FindingLater { until_ms } => Some(*until_ms),
            StandbyStep::Applying { .. }
            | StandbyStep::Digesting { .. }
            | StandbyStep::Verifying
            | StandbyStep::Restoring { .. }
            | StandbyStep::Stopped => None,
        }
    }

    /// Handles an input at a time, in monotonic milliseconds; returns the effects, in order.
    pub fn handle(&mut self, now_ms: u64, input: StandbyInput) -> Vec<StandbyEffect> {
        match input {
            StandbyInput::Read(attempt, answer) => self.read(now_ms, attempt, answer),
            StandbyInput::Sealed(attempt, answer) => self.sealed(now_ms, attempt, answer),
            StandbyInput::Applied(outcome) => self.applied(now_ms, outcome),
            StandbyInput::Digested(found) => self.digested(now_ms, found),
            StandbyInput::Verified(is_so) => self.verified(now_ms, is_so),
            StandbyInput::Restored(is_so) => self.restored(now_ms, is_so),
            StandbyInput::Heard { acknowledged } => {
                self.heard_ms = now_ms;
                self.acknowledged = self.acknowledged.max(acknowledged);
            }
            StandbyInput::TakerHeard => {
                let is_late = |since_ms: u64| since_ms.saturating_add(TAKEN_WITHIN_MS) <= now_ms;
                if self.released_ms.is_some_and(|since_ms| !is_late(since_ms)) {
                    self.heard_ms = now_ms;
                }
            }
            StandbyInput::Told => {
                self.is_told = true;
                if matches!(self.step, StandbyStep::Resting { .. }) {
                    self.ask(now_ms);
                }
            }
            StandbyInput::Rank(rank) => self.rank = rank,
            StandbyInput::TakeOver => self.is_asked_to_take_over = true,
            StandbyInput::Rebuild => self.is_rebuild_asked = true,
            StandbyInput::Tick => self.tick(now_ms),
        }
        let is_between = matches!(
            self.step,
            StandbyStep::Resting { .. }
                | StandbyStep::Reading { .. }
                | StandbyStep::FindingLater { .. }
                | StandbyStep::Stopped
        );
        if self.is_rebuild_asked && is_between {
            self.is_rebuild_asked = false;
            self.differed = None;
            // Discards earlier knowledge: a person has decided for the content of the log.
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
            StandbyStep::Finding { .. } | StandbyStep::FindingLater { .. } => self.rebuild(now_ms),
            // The outcome of a seal does not matter: reading its position shows it.
            StandbyStep::Resting { .. }
            | StandbyStep::Reading { .. }
            | StandbyStep::Sealing { .. } => self.ask(now_ms),
            StandbyStep::Applying { .. }
            | StandbyStep::Digesting { .. }
            | StandbyStep::Verifying
            | StandbyStep::Restoring { .. }
            | StandbyStep::Stopped => {}
        }
    }

    /// Reads what comes next.
    fn ask(&mut self, now_ms: u64) {
        self.is_told = false;
        let attempt = self.attempt();
        let from = self.chain.position().next();
        self.effects.push(StandbyEffect::Read(attempt, from));
        self.reading(now_ms, attempt);
    }

    /// Waits for the answer to a read.
    fn reading(&mut self, now_ms: u64, attempt: Attempt) {
        self.step = StandbyStep::Reading {
            attempt,
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
        };
    }

    /// Waits for news.
    fn rest(&mut self, now_ms: u64) {
        if self.is_told {
            return self.ask(now_ms);
        }
        self.step = StandbyStep::Resting {
            until_ms: now_ms.saturating_add(POLL_MS),
        };
    }

    /// Silence of the owner after which this node tries; `None` if it must not try.
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

    /// True if the owner has been silent for long enough that this node must try.
    fn is_due_to_try(&self, now_ms: u64) -> bool {
        let silence_ms = now_ms.saturating_sub(self.heard_ms);
        self.patience_ms()
            .is_some_and(|patience_ms| silence_ms >= patience_ms)
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt(self.attempts)
    }

    fn stop(&mut self, trouble: StandbyTrouble) {
        self.page.clear();
        self.step = StandbyStep::Stopped;
        self.effects.push(StandbyEffect::Say(trouble));
    }
}

#[cfg(test)]
#[path = "standby_tests.rs"]
mod tests;
