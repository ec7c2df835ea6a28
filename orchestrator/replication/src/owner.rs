//! The owner of a workspace, which turns batches into consecutive records.
//!
//! **One record is in flight at a time.** Batches that arrive meanwhile are combined in the next
//! record. Many batches thus share one append, as they share one sync, and a batch waits for at
//! most two appends. Several records in flight would shorten this wait a little, but the position
//! in doubt would no longer be obvious. With one, a lost answer concerns one position, and a
//! deposed owner cannot leave anything after the seal.
//!
//! A batch without a waiter is added to the next record of a batch with one, or is written alone
//! after [`UNAWAITED_MS`], because its own append would delay others.
//!
//! A batch's files may be synced before or after its record is stored; it is acknowledged when both
//! have happened.
//!
//! # Reactions to answers
//!
//! | answer | reaction |
//! | --- | --- |
//! | done, or the owner's own record is found | acknowledge |
//! | a seal is found | depose: nothing is acknowledged any longer |
//! | lost | read the position; if it is free, offer the same bytes again |
//! | the previous record is missing | offer the lost tail again, as far as it is kept; stop if a position is taken |
//! | the log is unreachable | acknowledge nothing, retry with increasing delay |
//!
//! An owner with nothing to write reads its next position from time to time, so that it notices
//! when it was deposed.

use std::collections::HashMap;

use crate::chain::{Chain, ChainFault, Ownership};
use crate::limits::{
    ANSWER_DEADLINE_MS, HEARTBEAT_MS, QUEUED_BATCHES_MAX, QUEUED_BYTES_MAX, UNAWAITED_MS,
};
use crate::log::{Attempt, PutAnswer, PutRequest, ReadAnswer};
use crate::names::{Epoch, Hash, NodeId, Position};
use crate::operation::FileOperation;
use crate::record::{Body, SnapshotReference};

mod answers;
mod queue;
mod retained_records;

use queue::{NextRecord, Queue};
use retained_records::ConfirmedRecords;

/// Id of a writer batch, chosen by its creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

#[derive(Debug, Clone)]
pub enum OwnerInput {
    /// A writer batch: its changes of files, in order. They may already be on disk.
    Batch {
        id: BatchId,
        operations: Vec<FileOperation>,
        /// True if a caller waits for the batch. If false, it may be combined with a later one.
        is_awaited: bool,
    },
    /// The files of a batch are synced.
    Synced(BatchId),
    Put(Attempt, PutAnswer),
    Looked(Attempt, ReadAnswer),
    /// A copy of the files in their state after all previous batches has started. It is handled
    /// like a batch.
    Snapshot {
        id: BatchId,
        reference: SnapshotReference,
    },
    /// The copy is complete. A later record makes this durable.
    SnapshotKept {
        /// Position of the snapshot's record, from [`OwnerEffect::SnapshotBegins`].
        at: Position,
        digest: Hash,
    },
    /// Release the workspace after all pending batches.
    Release {
        /// The node to release it to; any node if absent.
        to: Option<NodeId>,
    },
    /// Cancel the release, unless it was already offered to the log.
    Keep,
    Tick,
}

/// Action requested by an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerEffect {
    /// Offer a record to the log.
    Put(Attempt, PutRequest),
    /// Read the log from a position on; one record suffices.
    Look(Attempt, Position),
    /// A batch is durable on this node and in the log; notify its waiter.
    Acknowledge(BatchId),
    /// The record of a snapshot in progress is in the log, at this position and with this hash.
    SnapshotBegins(SnapshotReference, Position, Hash),
    /// The snapshot with the record at this position is stored; the log may be truncated before it
    /// ([`crate::retention`]).
    SnapshotStands(Position),
    /// The node no longer owns the workspace: kill its child processes, acknowledge nothing, end
    /// the state machine.
    Fence(OwnershipLoss),
}

/// Reason why a node no longer owns a workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnershipLoss {
    /// Another node has taken over.
    #[error(
        "node {by} has taken the workspace over with the seal of epoch {epoch} at position {position} of the log"
    )]
    Sealed {
        by: NodeId,
        epoch: Epoch,
        position: Position,
    },
    /// The log was truncated beyond this node's position after others wrote to it.
    #[error(
        "other nodes have written to the log after position {position}, and those records are already truncated"
    )]
    Overtaken {
        /// The next position of this node.
        position: Position,
    },
    #[error("the workspace was released at position {position} of the log")]
    Released { position: Position },
    /// The log's server lost acknowledged records, and other records took their positions.
    #[error(
        "the log has lost the acknowledged records from position {from} to {to} and has other \
         records there: the lost content exists only on this node's disk"
    )]
    TailTaken { from: Position, to: Position },
    /// The log's server lost more acknowledged records than the owner keeps.
    #[error(
        "the log ends at position {head}, but this node wrote up to {to} and can append again only \
         from {kept}: the records between exist only on its disk"
    )]
    TailTooLong {
        /// Position of the log's last record.
        head: Position,
        /// The first position that the owner still has.
        kept: Position,
        /// The last position that this node wrote.
        to: Position,
    },
    /// The log contains a record that no node writes.
    #[error("another program writes to this log or has altered it: {0}")]
    Strange(ChainFault),
}

#[derive(Debug)]
struct OfferedRecord {
    put: PutRequest,
    /// Batches whose last operation the record contains.
    completes: Vec<BatchId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Putting {
        attempt: Attempt,
        until_ms: u64,
    },
    /// The next position is being read.
    Looking {
        attempt: Attempt,
        until_ms: u64,
    },
    /// The next request waits for this time.
    Waiting {
        until_ms: u64,
        look_first: bool,
    },
    /// The node no longer owns the workspace.
    Over,
}

#[derive(Debug, Default)]
struct Progress {
    is_synced: bool,
    is_appended: bool,
}

/// State machine of a workspace's owner, from its seal on.
#[derive(Debug)]
pub struct WorkspaceOwner {
    chain: Chain,
    queue: Queue,
    /// Time until which all queued batches can wait, because they have no waiter.
    can_wait_until_ms: Option<u64>,
    offered: Option<OfferedRecord>,
    kept: ConfirmedRecords,
    progress: HashMap<BatchId, Progress>,
    /// Position of the record and digest of a stored snapshot that the log does not confirm yet.
    snapshot: Option<(Position, Hash)>,
    release: Option<Option<NodeId>>,
    /// True if a release record was offered to the log. An offer is never withdrawn.
    offers_release: bool,
    /// Position of the first known acknowledged record that was replaced by another one, while the
    /// search continues.
    taken_from: Option<Position>,
    /// True if the last record was verified after a record that does not follow it was found.
    is_sure: bool,
    phase: Phase,
    attempts: u64,
    /// Number of consecutive failed requests.
    failures: u32,
    heard_ms: u64,
    /// Time since which the log has confirmed no request.
    unanswered_since_ms: Option<u64>,
    effects: Vec<OwnerEffect>,
}

impl WorkspaceOwner {
    /// Creates the owner after its seal. `seal` is the last record of `chain`, and `after` in it
    /// the hash before it.
    #[must_use]
    pub fn new(chain: Chain, seal: PutRequest, now_ms: u64) -> Self {
        Self {
            chain,
            queue: Queue::default(),
            can_wait_until_ms: None,
            offered: None,
            kept: ConfirmedRecords::of(seal),
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

    /// Position of its last confirmed record.
    #[must_use]
    pub fn position(&self) -> Position {
        self.chain.position()
    }

    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.chain.epoch()
    }

    /// The chain of records, for the standby that this node becomes.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// True if the queue accepts further batches. If false, clients must retry later.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.phase != Phase::Over
            && self.release.is_none()
            && self.queue.bytes() < QUEUED_BYTES_MAX
            && self.queue.batches() < QUEUED_BATCHES_MAX
    }

    /// Time since which the log has confirmed no request, and so nothing was acknowledged.
    /// Successful reads do not count while records are pending.
    #[must_use]
    pub fn unanswered_since_ms(&self) -> Option<u64> {
        self.unanswered_since_ms
    }

    /// True if nothing is in flight, so that the files match the log.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.offered.is_none() && self.queue.is_empty() && self.snapshot.is_none()
    }

    /// True if it is being released.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.release.is_some()
    }

    /// Latest time for the next [`OwnerInput::Tick`], in milliseconds of the caller's clock.
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

    /// Handles an input at a time, in milliseconds of a monotonic clock; returns the effects, in
    /// order.
    pub fn handle(&mut self, now_ms: u64, input: OwnerInput) -> Vec<OwnerEffect> {
        if self.phase == Phase::Over {
            return Vec::new();
        }
        match input {
            OwnerInput::Batch {
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
            OwnerInput::Synced(id) => {
                self.progress.entry(id).or_default().is_synced = true;
                self.acknowledge(id);
            }
            OwnerInput::Put(attempt, answer) => self.put_answered(now_ms, attempt, answer),
            OwnerInput::Looked(attempt, answer) => self.looked(now_ms, attempt, answer),
            OwnerInput::Snapshot { id, reference } => {
                self.can_wait_until_ms = None;
                self.progress.entry(id).or_default();
                self.queue.push_snapshot(id, reference);
            }
            OwnerInput::SnapshotKept { at, digest } => self.snapshot = Some((at, digest)),
            OwnerInput::Release { to } => self.release = Some(to),
            OwnerInput::Keep => {
                if !self.offers_release {
                    self.release = None;
                }
            }
            OwnerInput::Tick => self.tick(now_ms),
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

    /// Offers the next record, if there is one.
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
        self.effects.push(OwnerEffect::Put(attempt, put));
    }

    /// The next record, with as many pending batches as fit.
    fn next_record(&mut self, now_ms: u64) -> Option<OfferedRecord> {
        // This comes first because it depends on nothing in the queue.
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
                // Batches without file operations need no record once all earlier ones are stored.
                NextRecord::Operations(operations, completes) if operations.is_empty() => {
                    for id in completes {
                        self.appended(id);
                    }
                }
                NextRecord::Operations(operations, completes) => {
                    return self.offer(Body::Operations(operations), completes);
                }
                NextRecord::Snapshot(reference, id) => {
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

    fn offer(&mut self, body: Body, completes: Vec<BatchId>) -> Option<OfferedRecord> {
        match self.chain.next(body) {
            Ok(record) => Some(OfferedRecord {
                put: PutRequest {
                    record,
                    after: self.chain.last(),
                },
                completes,
            }),
            Err(fault) => {
                let position = self.chain.position().next();
                self.depose(OwnershipLoss::Strange(ChainFault::NoRecord {
                    position,
                    fault,
                }));
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
        self.effects.push(OwnerEffect::Look(attempt, self.target()));
    }

    /// The next position to write.
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
            self.effects.push(OwnerEffect::Acknowledge(id));
        }
    }

    fn depose(&mut self, reason: OwnershipLoss) {
        self.phase = Phase::Over;
        self.effects.push(OwnerEffect::Fence(reason));
    }
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
