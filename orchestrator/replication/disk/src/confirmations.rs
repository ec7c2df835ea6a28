//! Progress of a workspace's log, and the threads that wait for it.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::owner::BatchId;

use crate::error::ReplicatedDiskError;

/// Number of the current ownership period of the workspace. Files opened in an earlier period are
/// invalid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Term(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchTicket {
    pub(crate) term: Term,
    pub(crate) batch: BatchId,
}

#[derive(Debug)]
struct State {
    term: Term,
    handed: BatchId,
    /// The last batch with a waiter.
    awaited: BatchId,
    acknowledged: BatchId,
    /// Reason why no further batch will be acknowledged.
    over: Option<ReplicatedDiskError>,
}

/// Submitted and acknowledged batches of a workspace. The lock is only held briefly, never during a
/// call to a disk.
#[derive(Debug)]
pub(crate) struct Confirmations {
    state: Mutex<State>,
    changed: Condvar,
}

impl Confirmations {
    pub(crate) fn new(over: ReplicatedDiskError) -> Self {
        Self {
            state: Mutex::new(State {
                term: Term::default(),
                handed: BatchId(0),
                awaited: BatchId(0),
                acknowledged: BatchId(0),
                over: Some(over),
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new term. Batch numbers continue, so that acknowledgements of an earlier term do
    /// not apply to this one.
    pub(crate) fn begin(&self, term: Term) {
        let mut state = self.state();
        state.term = term;
        state.awaited = state.handed;
        state.acknowledged = state.handed;
        state.over = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the term: every wait fails.
    pub(crate) fn end(&self, over: ReplicatedDiskError) {
        self.state().over = Some(over);
        self.changed.notify_all();
    }

    /// Returns the number of the next batch, which is submitted now. `is_awaited` is true if a
    /// thread waits for all batches up to this one.
    pub(crate) fn hand_over(&self, is_awaited: bool) -> BatchId {
        let mut state = self.state();
        state.handed = BatchId(state.handed.0.saturating_add(1));
        if is_awaited {
            state.awaited = state.handed;
        }
        state.handed
    }

    /// True if a batch without a waiter was submitted and is not acknowledged yet.
    pub(crate) fn has_unawaited(&self) -> bool {
        let state = self.state();
        state.handed > state.awaited && state.handed > state.acknowledged
    }

    /// The last batch submitted with a waiter, which includes all earlier ones.
    pub(crate) fn awaited(&self) -> BatchTicket {
        let state = self.state();
        BatchTicket {
            term: state.term,
            batch: state.awaited,
        }
    }

    pub(crate) fn acknowledge(&self, batch: BatchId) {
        let mut state = self.state();
        // A batch that was never submitted cannot be in the log.
        state.acknowledged = state.acknowledged.max(batch.min(state.handed));
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn are_complete(&self) -> bool {
        let state = self.state();
        state.acknowledged == state.handed
    }

    /// Waits until all batches up to this one are acknowledged.
    ///
    /// # Errors
    ///
    /// [`ReplicatedDiskError`] if the acknowledgement can no longer arrive.
    pub(crate) fn wait(&self, workspace: &WorkspaceId, awaited: BatchTicket) -> io::Result<()> {
        let mut state = self.state();
        loop {
            if state.term != awaited.term {
                let workspace = workspace.clone();
                return Err(ReplicatedDiskError::GivenUpSince { workspace }.into());
            }
            if state.acknowledged >= awaited.batch {
                return Ok(());
            }
            if let Some(over) = &state.over {
                return Err(over.clone().into());
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
