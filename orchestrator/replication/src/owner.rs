//! Who owns a workspace: its batches become records, one behind the other.
//!
//! **One record is under way at a time.** What comes meanwhile waits and goes into the next one together, so that
//! many batches share one append as they share one sync, and a batch waits for two appends at most. Several records
//! under way at once would save a part of that wait and cost the simplest thing there is to know: which position is in
//! doubt. A lost answer is about one position, and a deposed owner can leave nothing behind the seal.
//!
//! A batch that nobody waits for goes into the next record of one that somebody does, or into one of its own after
//! [`UNAWAITED_MS`]: it would keep others waiting for its append.
//!
//! A batch's files may be synced before or after its record stands; it is acknowledged when both are so.
//!
//! # What an owner does with answers
//!
//! | answer | it |
//! | --- | --- |
//! | done, or its own record is found there | acknowledges |
//! | a seal is found there | is deposed: nothing is acknowledged any more |
//! | lost | looks at the position; if nothing is there, offers the same bytes again |
//! | the record before is missing | offers the lost tail again, as far as it has it; stops if any of it is taken |
//! | the log cannot be reached | acknowledges nothing, asks again, more and more rarely |
//!
//! An owner that has nothing to write looks at its next position from time to time: so a deposed one learns it.

use std::collections::HashMap;

use crate::chain::{Chain, ChainFault, Ownership};
use crate::limits::{
    ANSWER_DEADLINE_MS, HEARTBEAT_MS, QUEUED_BATCHES_MAX, QUEUED_BYTES_MAX, UNAWAITED_MS,
};
use crate::log::{Attempt, Put, PutAnswer, ReadAnswer};
use crate::names::{Epoch, Hash, NodeId, Position};
use crate::operation::FileOperation;
use crate::record::{Body, SnapshotReference};

mod answers;
mod kept;
mod queue;

use kept::Kept;
use queue::{Next, Queue};

/// A writer batch, as whoever made it knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// What happens to an owner.
#[derive(Debug, Clone)]
pub enum Input {
    /// A writer batch: what it does to files, in that order. It may be on disk already.
    Batch {
        /// Which.
        id: BatchId,
        /// What it does.
        operations: Vec<FileOperation>,
        /// Whether anybody waits for it. If not, it may go into the log together with a later one.
        is_awaited: bool,
    },
    /// The files that a batch wrote are synced.
    Synced(BatchId),
    /// The log has answered [`Effect::Put`].
    Put(Attempt, PutAnswer),
    /// The log has answered [`Effect::Look`].
    Looked(Attempt, ReadAnswer),
    /// The files as all batches before make them are being copied. It is a batch as others are.
    Snapshot {
        /// Which batch.
        id: BatchId,
        /// Under which name they will be kept.
        reference: SnapshotReference,
    },
    /// All of that copy is kept, durably once a later record stands.
    SnapshotKept {
        /// Where its record stands, as [`Effect::SnapshotBegins`] said.
        at: Position,
        /// The digest of its files.
        digest: Hash,
    },
    /// The workspace is to be given up, behind all that waits.
    Release {
        /// To which node; any, if none is named.
        to: Option<NodeId>,
    },
    /// It is not to be given up after all, if that was not offered to the log yet.
    Keep,
    /// Time has passed.
    Tick,
}

/// What an owner wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Offer a record to the log.
    Put(Attempt, Put),
    /// Read the log from a position on; one record is enough.
    Look(Attempt, Position),
    /// A batch is durable here and stands in the log: tell whoever waits for it.
    Acknowledge(BatchId),
    /// The record of a snapshot that is being copied stands there, and has this hash.
    SnapshotBegins(SnapshotReference, Position, Hash),
    /// The snapshot whose record stands there is kept: what is before it may be forgotten ([`crate::retention`]).
    SnapshotStands(Position),
    /// The workspace is this node's no longer: kill its children, acknowledge nothing, end the machine.
    Fence(Deposed),
}

/// Why a workspace is a node's no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Deposed {
    /// Another node has taken it over.
    #[error(
        "node {by} has taken the workspace over, by the seal of epoch {epoch} at position {position} of the log"
    )]
    Sealed {
        /// Who.
        by: NodeId,
        /// Its epoch.
        epoch: Epoch,
        /// Where the seal stands.
        position: Position,
    },
    /// Others have written so much that the log has forgotten where this node was.
    #[error(
        "others have written to the log beyond position {position}, and what stood there is forgotten by now"
    )]
    Overtaken {
        /// Where this node was to write next.
        position: Position,
    },
    /// It was given up.
    #[error("the workspace was released at position {position} of the log")]
    Released {
        /// Where that stands.
        position: Position,
    },
    /// The log's server has lost acknowledged records, and others stand in their place.
    #[error(
        "the log has lost acknowledged records from position {from} to {to}, and others stand there now: what they \
         held is on this node's disk alone"
    )]
    TailTaken {
        /// The first that is lost.
        from: Position,
        /// The last.
        to: Position,
    },
    /// The log's server has lost more acknowledged records than the owner keeps.
    #[error(
        "the log ends at position {head}, and this node wrote up to {to} and can append again from {kept} on only: \
         what was between is on its disk alone"
    )]
    TailTooLong {
        /// Where the log ends.
        head: Position,
        /// The first that the owner still has.
        kept: Position,
        /// The last it wrote.
        to: Position,
    },
    /// Something stands in the log that no node writes.
    #[error("another program writes to this log, or has altered it: {0}")]
    Strange(ChainFault),
}

#[derive(Debug)]
struct Offered {
    put: Put,
    /// The batches whose last operation it holds.
    completes: Vec<BatchId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is asked.
    Idle,
    /// A record is offered.
    Putting { attempt: Attempt, until_ms: u64 },
    /// The next position is looked at.
    Looking { attempt: Attempt, until_ms: u64 },
    /// The log is asked again then.
    Waiting { until_ms: u64, look_first: bool },
    /// The workspace is another's.
    Over,
}

#[derive(Debug, Default)]
struct Progress {
    is_synced: bool,
    is_appended: bool,
}

/// Who owns a workspace, from its seal on.
#[derive(Debug)]
pub struct Owner {
    chain: Chain,
    queue: Queue,
    /// Until when all that is queued can wait, as nobody waits for it.
    can_wait_until_ms: Option<u64>,
    offered: Option<Offered>,
    kept: Kept,
    progress: HashMap<BatchId, Progress>,
    /// A snapshot that is kept, until the log says so: its record's place and its digest.
    snapshot: Option<(Position, Hash)>,
    release: Option<Option<NodeId>>,
    /// True if the log was offered the record that says so: what was offered once is never taken back.
    offers_release: bool,
    /// While looked for: the first of the acknowledged records known to be lost, others standing in their place.
    taken_from: Option<Position>,
    /// Whether the last record was seen to stand since one was met that does not follow it.
    is_sure: bool,
    phase: Phase,
    attempts: u64,
    /// Questions in a row that came to nothing.
    failures: u32,
    heard_ms: u64,
    /// Since when the log has confirmed nothing of what it was asked.
    unanswered_since_ms: Option<u64>,
    effects: Vec<Effect>,
}

impl Owner {
    /// An owner whose seal is the last record of `chain`; `seal` is that record, `after` what stands before it.
    #[must_use]
    pub fn new(chain: Chain, seal: Put, now_ms: u64) -> Self {
        Self {
            chain,
            queue: Queue::default(),
            can_wait_until_ms: None,
            offered: None,
            kept: Kept::of(seal),
            progress: HashMap::new(),
            snapshot: None,
            release: None,
            offers_release: false,
            taken_from: None,
            is_sure: false,
            phase: Phase::Idle,
            attempts: 0,
            failures: 0,
            heard_ms: now_ms,
            unanswered_since_ms: None,
            effects: Vec::new(),
        }
    }

    /// Where its last record stands that the log has confirmed.
    #[must_use]
    pub fn position(&self) -> Position {
        self.chain.position()
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.chain.epoch()
    }

    /// How far the log has been written, for the standby that this node becomes.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether further batches may begin: else so much waits for the log that clients are to try later.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.phase != Phase::Over
            && self.release.is_none()
            && self.queue.bytes() < QUEUED_BYTES_MAX
            && self.queue.batches() < QUEUED_BATCHES_MAX
    }

    /// Since when the log has confirmed nothing of what it was asked: nothing is acknowledged for that long. A log that
    /// is read all the same does not confirm what waits.
    #[must_use]
    pub fn unanswered_since_ms(&self) -> Option<u64> {
        self.unanswered_since_ms
    }

    /// Whether the files are what the log says: nothing is on its way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.offered.is_none() && self.queue.is_empty() && self.snapshot.is_none()
    }

    /// True if it is being given up.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.release.is_some()
    }

    /// When [`Input::Tick`] is due at the latest, in the milliseconds that are handed in.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Idle => {
                let look_ms = self.heard_ms.saturating_add(HEARTBEAT_MS);
                Some(self.can_wait_until_ms.unwrap_or(look_ms).min(look_ms))
            }
            Phase::Putting { until_ms, .. }
            | Phase::Looking { until_ms, .. }
            | Phase::Waiting { until_ms, .. } => Some(until_ms),
            Phase::Over => None,
        }
    }

    /// Takes in what happened at a time, in running milliseconds; returns what is to be done, in order.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Effect> {
        if self.phase == Phase::Over {
            return Vec::new();
        }
        match input {
            Input::Batch {
                id,
                operations,
                is_awaited,
            } => {
                if is_awaited {
                    self.can_wait_until_ms = None;
                } else if self.queue.is_empty() {
                    self.can_wait_until_ms = Some(now_ms.saturating_add(UNAWAITED_MS));
                }
                self.progress.entry(id).or_default();
                self.queue.push(id, operations);
            }
            Input::Synced(id) => {
                self.progress.entry(id).or_default().is_synced = true;
                self.acknowledge(id);
            }
            Input::Put(attempt, answer) => self.put_answered(now_ms, attempt, answer),
            Input::Looked(attempt, answer) => self.looked(now_ms, attempt, answer),
            Input::Snapshot { id, reference } => {
                self.can_wait_until_ms = None;
                self.progress.entry(id).or_default();
                self.queue.push_snapshot(id, reference);
            }
            Input::SnapshotKept { at, digest } => self.snapshot = Some((at, digest)),
            Input::Release { to } => self.release = Some(to),
            Input::Keep => {
                if !self.offers_release {
                    self.release = None;
                }
            }
            Input::Tick => self.tick(now_ms),
        }
        if self.phase == Phase::Idle {
            self.go_on(now_ms);
        }
        std::mem::take(&mut self.effects)
    }

    fn tick(&mut self, now_ms: u64) {
        match self.phase {
            Phase::Putting { until_ms, .. } | Phase::Looking { until_ms, .. }
                if until_ms <= now_ms =>
            {
                self.failed(now_ms, true);
            }
            Phase::Waiting {
                until_ms,
                look_first,
            } if until_ms <= now_ms => {
                self.phase = Phase::Idle;
                if look_first {
                    self.look(now_ms);
                }
            }
            Phase::Idle if self.heard_ms.saturating_add(HEARTBEAT_MS) <= now_ms => {
                self.look(now_ms);
            }
            Phase::Idle
            | Phase::Putting { .. }
            | Phase::Looking { .. }
            | Phase::Waiting { .. }
            | Phase::Over => {}
        }
    }

    /// Offers what is to be written next, if there is anything.
    fn go_on(&mut self, now_ms: u64) {
        if self.kept.again().is_none() && self.offered.is_none() {
            self.offered = self.next_record(now_ms);
        }
        let next = self
            .kept
            .again()
            .or(self.offered.as_ref().map(|it| &it.put));
        let Some(put) = next.cloned() else {
            return;
        };
        let attempt = self.attempt();
        self.unanswered_since_ms.get_or_insert(now_ms);
        self.phase = Phase::Putting {
            attempt,
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
        };
        self.effects.push(Effect::Put(attempt, put));
    }

    /// The next record: of all that waits, as much as fits.
    fn next_record(&mut self, now_ms: u64) -> Option<Offered> {
        // First, as it waits for nothing that is queued.
        if let Some((at, digest)) = self.snapshot {
            return self.offer(Body::SnapshotKept { at, digest }, Vec::new());
        }
        let can_wait = self
            .can_wait_until_ms
            .is_some_and(|until_ms| until_ms > now_ms);
        if can_wait && self.release.is_none() {
            return None;
        }
        self.can_wait_until_ms = None;
        while !self.queue.is_empty() {
            match self.queue.next() {
                // Batches that did nothing to files have nothing to wait for, once all before them stand.
                Next::Operations(operations, completes) if operations.is_empty() => {
                    for id in completes {
                        self.appended(id);
                    }
                }
                Next::Operations(operations, completes) => {
                    return self.offer(Body::Operations(operations), completes);
                }
                Next::Snapshot(reference, id) => {
                    let Ownership { node, life, .. } = self.chain.owner().cloned()?;
                    let body = Body::Snapshot {
                        reference,
                        node,
                        life,
                    };
                    return self.offer(body, vec![id]);
                }
            }
        }
        let to = self.release.clone()?;
        self.offers_release = true;
        self.offer(Body::Released { to }, Vec::new())
    }

    fn offer(&mut self, body: Body, completes: Vec<BatchId>) -> Option<Offered> {
        match self.chain.next(body) {
            Ok(record) => Some(Offered {
                put: Put {
                    record,
                    after: self.chain.last(),
                },
                completes,
            }),
            Err(fault) => {
                let position = self.chain.position().next();
                self.depose(Deposed::Strange(ChainFault::NoRecord { position, fault }));
                None
            }
        }
    }

    fn look(&mut self, now_ms: u64) {
        let attempt = self.attempt();
        self.phase = Phase::Looking {
            attempt,
            until_ms: now_ms.saturating_add(ANSWER_DEADLINE_MS),
        };
        self.effects.push(Effect::Look(attempt, self.target()));
    }

    /// The position that is to be written next.
    fn target(&self) -> Position {
        let again = self.kept.again().map(|put| put.record.position());
        again.unwrap_or_else(|| self.chain.position().next())
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt(self.attempts)
    }

    fn appended(&mut self, id: BatchId) {
        self.progress.entry(id).or_default().is_appended = true;
        self.acknowledge(id);
    }

    fn acknowledge(&mut self, id: BatchId) {
        let is_done = |it: &Progress| it.is_synced && it.is_appended;
        if self.progress.get(&id).is_some_and(is_done) {
            self.progress.remove(&id);
            self.effects.push(Effect::Acknowledge(id));
        }
    }

    fn depose(&mut self, reason: Deposed) {
        self.phase = Phase::Over;
        self.effects.push(Effect::Fence(reason));
    }
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
