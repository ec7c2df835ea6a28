//! How far the log of a workspace has what was handed over, and whoever waits for it.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::owner::BatchId;

use crate::error::Refused;

/// Which time it is that the workspace is this node's: what was opened in an earlier one is of no use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Term(pub(crate) u64);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) term: Term,
    pub(crate) batch: BatchId,
}

#[derive(Debug)]
struct State {
    term: Term,
    handed: BatchId,
    /// The last of those that somebody waits for.
    awaited: BatchId,
    acknowledged: BatchId,
    /// Why nothing more will be acknowledged.
    over: Option<Refused>,
}

/// What was handed over of a workspace, and what of it was acknowledged. Its lock is held for moments only, and never
/// over a call of a disk.
#[derive(Debug)]
pub(crate) struct Confirmations {
    state: Mutex<State>,
    changed: Condvar,
}

impl Confirmations {
    pub(crate) fn new(over: Refused) -> Self {
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

    /// A new term begins. Numbers of batches go on, so that what is said of an earlier term says nothing of this one.
    pub(crate) fn begin(&self, term: Term) {
        let mut state = self.state();
        state.term = term;
        state.awaited = state.handed;
        state.acknowledged = state.handed;
        state.over = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing is acknowledged any more: every wait ends.
    pub(crate) fn end(&self, over: Refused) {
        self.state().over = Some(over);
        self.changed.notify_all();
    }

    /// The number of the next batch, which is handed over now, for somebody who waits for all up to it or for nobody.
    pub(crate) fn hand_over(&self, is_awaited: bool) -> BatchId {
        let mut state = self.state();
        state.handed = BatchId(state.handed.0.saturating_add(1));
        if is_awaited {
            state.awaited = state.handed;
        }
        state.handed
    }

    /// Whether something was handed over that nobody waits for, and is not acknowledged.
    pub(crate) fn has_unawaited(&self) -> bool {
        let state = self.state();
        state.handed > state.awaited && state.handed > state.acknowledged
    }

    /// All that was handed over for somebody who waits.
    pub(crate) fn awaited(&self) -> Awaited {
        let state = self.state();
        Awaited {
            term: state.term,
            batch: state.awaited,
        }
    }

    pub(crate) fn acknowledge(&self, batch: BatchId) {
        let mut state = self.state();
        // A batch that nobody handed over cannot stand anywhere.
        state.acknowledged = state.acknowledged.max(batch.min(state.handed));
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn are_complete(&self) -> bool {
        let state = self.state();
        state.acknowledged == state.handed
    }

    /// Waits until all up to a batch is acknowledged.
    ///
    /// # Errors
    ///
    /// [`Refused`] if that will never be known.
    pub(crate) fn wait(&self, workspace: &WorkspaceId, awaited: Awaited) -> io::Result<()> {
        let mut state = self.state();
        loop {
            if state.term != awaited.term {
                let workspace = workspace.clone();
                return Err(Refused::GivenUpSince { workspace }.into());
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
