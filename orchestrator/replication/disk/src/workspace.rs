//! One workspace: its ownership, its captured operations, and the waits for them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use goondan_durable::disk::{Disk, DiskFile};
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::owner::BatchId;
use goondan_replication::record::SnapshotReference;

use crate::capture::Capture;
use crate::captured_ops::CapturedOps;
use crate::confirmations::{BatchTicket, Confirmations, Term};
use crate::error::ReplicatedDiskError;
use crate::indeterminate_ops::IndeterminateOp;
use crate::pending_copies::PendingCopies;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBatch {
    pub workspace: WorkspaceId,
    /// Number of the batch: starts at 1 and increases by 1, even if ownership changes in between.
    pub batch: BatchId,
    pub content: BatchContent,
    /// True if a caller waits for the batch.
    pub is_awaited: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchContent {
    /// The operations, in order. Empty if a caller waits for an earlier batch that no caller was
    /// waiting for.
    Operations(Vec<FileOperation>),
    /// A snapshot of the files with the changes of all earlier batches, which is stored under this
    /// name.
    Snapshot(SnapshotReference),
}

pub type BatchReceiver = dyn Fn(LogBatch) + Send + Sync;

/// A workspace that was named, or in which a change was attempted.
pub(crate) struct Workspace {
    id: WorkspaceId,
    dir: PathBuf,
    outlet: Arc<BatchReceiver>,
    record: Mutex<WorkspaceState>,
    /// Signaled when a removal ends.
    removed: Condvar,
    pub(crate) confirmations: Confirmations,
}

/// State under the workspace's lock. The lock is held during changes of the disk, so that
/// operations are captured in the order in which they take effect.
#[derive(Debug)]
struct WorkspaceState {
    term: Term,
    /// Reason why this node does not own the workspace; `None` if it does.
    refused: Option<ReplicatedDiskError>,
    taken: CapturedOps,
    /// True if an operation was captured since this node took ownership.
    has_taken: bool,
    unsettled: Vec<IndeterminateOp>,
    /// Directories that are being removed.
    removals: usize,
    /// Files of the last capture that are not copied yet.
    uncopied: PendingCopies,
}

impl WorkspaceState {
    fn is_handed_over(&self) -> bool {
        self.taken.is_empty() && self.unsettled.is_empty() && self.removals == 0
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace")
            .field("id", &self.id)
            .field("confirmations", &self.confirmations)
            .finish_non_exhaustive()
    }
}

impl Workspace {
    /// A workspace that this node does not own.
    pub(crate) fn new(id: WorkspaceId, dir: PathBuf, outlet: Arc<BatchReceiver>) -> Self {
        let refused = ReplicatedDiskError::NotOwned {
            workspace: id.clone(),
            why: "this node has not taken it over".to_owned(),
        };
        Self {
            record: Mutex::new(WorkspaceState {
                term: Term::default(),
                refused: Some(refused.clone()),
                taken: CapturedOps::default(),
                has_taken: false,
                unsettled: Vec::new(),
                removals: 0,
                uncopied: PendingCopies::default(),
            }),
            removed: Condvar::new(),
            confirmations: Confirmations::new(refused),
            id,
            dir,
            outlet,
        }
    }

    fn record(&self) -> MutexGuard<'_, WorkspaceState> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own(&self) {
        let mut record = self.record();
        if record.refused.is_none() {
            return;
        }
        record.term = Term(record.term.0.saturating_add(1));
        record.refused = None;
        record.has_taken = false;
        self.confirmations.begin(record.term);
    }

    pub(crate) fn disown(&self, why: String) {
        let workspace = self.id.clone();
        let refused = ReplicatedDiskError::NotOwned { workspace, why };
        // Ends the waits first, because a change in progress may take a while.
        self.confirmations.end(refused.clone());
        let mut record = self.record();
        record.refused = Some(refused);
        while record.removals > 0 {
            let waited = self.removed.wait(record);
            record = waited.unwrap_or_else(PoisonError::into_inner);
        }
        record.taken.clear();
        record.unsettled.clear();
    }

    pub(crate) fn give_up(&self, why: String) -> bool {
        let mut record = self.record();
        let is_quiet = record.is_handed_over() && self.confirmations.are_complete();
        if is_quiet {
            let workspace = self.id.clone();
            let refused = ReplicatedDiskError::NotOwned { workspace, why };
            self.confirmations.end(refused.clone());
            record.refused = Some(refused);
        }
        is_quiet
    }

    pub(crate) fn end(&self, why: &str) {
        self.confirmations.end(ReplicatedDiskError::Ended {
            workspace: self.id.clone(),
            why: why.to_owned(),
        });
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let record = self.record();
        record.is_handed_over() && self.confirmations.are_complete()
    }

    /// Begins a change, and excludes all others until the returned guard is dropped.
    ///
    /// # Errors
    ///
    /// [`ReplicatedDiskError`] if this node does not own the workspace, or the error of the disk if the outcome
    /// of an earlier change cannot be determined.
    pub(crate) fn change<'a>(&'a self, disk: &'a dyn Disk) -> io::Result<ChangeGuard<'a>> {
        let record = self.record();
        if let Some(refused) = &record.refused {
            return Err(refused.clone().into());
        }
        let mut changing = ChangeGuard {
            workspace: self,
            record,
            disk,
        };
        changing.settle()?;
        Ok(changing)
    }

    /// As [`change`](Self::change), for a file that was opened in a term; `None` if this node did
    /// not own the workspace then.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change).
    pub(crate) fn change_in<'a>(
        &'a self,
        term: Option<Term>,
        disk: &'a dyn Disk,
    ) -> io::Result<ChangeGuard<'a>> {
        let changing = self.change(disk)?;
        if term == Some(changing.record.term) {
            Ok(changing)
        } else {
            Err(self.given_up())
        }
    }

    fn given_up(&self) -> io::Error {
        let workspace = self.id.clone();
        ReplicatedDiskError::GivenUpSince { workspace }.into()
    }

    /// Removes a directory. A large one takes a while, so the workspace's lock is released
    /// meanwhile: no caller may create anything at this path until the end.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change), or as `remove`.
    pub(crate) fn remove_tree(
        &self,
        path: &RelativePath,
        disk: &dyn Disk,
        remove: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.change(disk)?.record.removals += 1;
        let removed = remove();
        let mut record = self.record();
        record.removals -= 1;
        self.removed.notify_all();
        // Without ownership, the removal is not captured.
        if record.refused.is_some() {
            return removed;
        }
        let mut changing = ChangeGuard {
            workspace: self,
            record,
            disk,
        };
        match &removed {
            Ok(()) => changing.push(FileOperation::RemoveTree { path: path.clone() }),
            Err(_) => changing.look_at(IndeterminateOp::Removal(path.clone())),
        }
        removed
    }

    /// Hands over the captured operations; `is_awaited` if a caller waits for them. Returns the
    /// handle to wait for all awaited batches so far. `None` if this node does not own the
    /// workspace and has changed nothing while it did. `opened` is the term in which the caller's
    /// file was opened.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change).
    pub(crate) fn hand_over(
        &self,
        disk: &dyn Disk,
        opened: Option<Term>,
        is_awaited: bool,
    ) -> io::Result<Option<BatchTicket>> {
        let record = self.record();
        if opened.is_some_and(|opened| opened != record.term) {
            return Err(self.given_up());
        }
        if record.refused.is_some() && !record.has_taken {
            return Ok(None);
        }
        drop(record);
        let mut changing = self.change(disk)?;
        changing.hand_over(is_awaited);
        Ok(Some(self.confirmations.awaited()))
    }

    /// Submits captured operations that no caller has synced, unless a change of the workspace is
    /// in progress.
    pub(crate) fn hand_over_rest(&self) {
        let mut record = match self.record.try_lock() {
            Ok(record) => record,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if record.refused.is_none() {
            self.give(&mut record.taken, false);
        }
    }

    /// Submits the captured operations if there are many.
    fn relieve(&self, taken: &mut CapturedOps) {
        if taken.is_much() {
            self.give(taken, false);
        }
    }

    fn give(&self, taken: &mut CapturedOps, is_awaited: bool) {
        // An empty batch expedites earlier batches that no caller was waiting for.
        if taken.is_empty() && !(is_awaited && self.confirmations.has_unawaited()) {
            return;
        }
        (self.outlet)(LogBatch {
            workspace: self.id.clone(),
            batch: self.confirmations.hand_over(is_awaited),
            content: BatchContent::Operations(taken.take_out()),
            is_awaited,
        });
    }

    /// Captures all files in `dir`, and hands over a batch that records it after all earlier
    /// changes. Blocks changes meanwhile.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change), or the error of the disk.
    pub(crate) fn capture(
        &self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        reference: SnapshotReference,
    ) -> io::Result<Capture> {
        let mut changing = self.change(disk.as_ref())?;
        while changing.record.removals > 0 {
            let waited = self.removed.wait(changing.record);
            changing.record = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(refused) = &changing.record.refused {
            return Err(refused.clone().into());
        }
        changing.settle()?;
        changing.hand_over(false);
        let capture = Capture::take(Arc::clone(disk), &self.dir, dir)?;
        changing.record.uncopied = capture.uncopied();
        changing.record.has_taken = true;
        (self.outlet)(LogBatch {
            workspace: self.id.clone(),
            batch: self.confirmations.hand_over(false),
            content: BatchContent::Snapshot(reference),
            is_awaited: false,
        });
        Ok(capture)
    }

    /// Waits until the submitted operations are acknowledged.
    ///
    /// # Errors
    ///
    /// [`ReplicatedDiskError`] if the outcome will never be known.
    pub(crate) fn wait(&self, awaited: BatchTicket) -> io::Result<()> {
        self.confirmations.wait(&self.id, awaited)
    }

    /// Forgets an open file.
    pub(crate) fn close(&self, term: Term, open: u64) {
        let mut record = self.record();
        if record.term == term {
            record.taken.close(open);
        }
    }
}

pub(crate) struct ChangeGuard<'a> {
    workspace: &'a Workspace,
    record: MutexGuard<'a, WorkspaceState>,
    disk: &'a dyn Disk,
}

impl ChangeGuard<'_> {
    /// Makes an atomic change, and captures it if it took effect.
    ///
    /// # Errors
    ///
    /// As `call`.
    pub(crate) fn make<T>(
        &mut self,
        operation: FileOperation,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let made = call();
        match &made {
            Ok(_) => self.push(operation),
            Err(_) => self.look_at(IndeterminateOp::Whole(operation)),
        }
        made
    }

    pub(crate) fn append(&mut self, path: &RelativePath, offset: u64, bytes: &[u8]) {
        self.record.has_taken = true;
        self.record.taken.append(path, offset, bytes);
        self.workspace.relieve(&mut self.record.taken);
    }

    pub(crate) fn push(&mut self, operation: FileOperation) {
        self.record.has_taken = true;
        self.record.taken.push(operation);
        self.workspace.relieve(&mut self.record.taken);
    }

    /// Determines the outcome of a change; on failure, the next change tries again.
    pub(crate) fn look_at(&mut self, unsettled: IndeterminateOp) {
        self.record.unsettled.push(unsettled);
        if let Err(error) = self.settle() {
            tracing::warn!(
                workspace = %self.workspace.id,
                %error,
                "the outcome of a file change is not known yet; further changes wait for it"
            );
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        let workspace = self.workspace;
        let relieve = |taken: &mut CapturedOps| workspace.relieve(taken);
        let record = &mut *self.record;
        while let Some(first) = record.unsettled.first() {
            record.has_taken = true;
            first.settle(self.disk, &workspace.dir, &mut record.taken, &relieve)?;
            record.unsettled.remove(0);
        }
        Ok(())
    }

    /// Submits the captured operations, if there are any.
    fn hand_over(&mut self, is_awaited: bool) {
        self.workspace.give(&mut self.record.taken, is_awaited);
    }

    /// Assigns a number to an opened file, for the term in which it is opened.
    pub(crate) fn open(&mut self, path: RelativePath) -> (Term, u64) {
        (self.record.term, self.record.taken.open(path))
    }

    /// True if captured files are still being copied.
    pub(crate) fn is_copied(&self) -> bool {
        !self.record.uncopied.is_empty()
    }

    /// Saves the captured content of a file that is about to be truncated to `len` bytes.
    pub(crate) fn cuts(&self, file: &mut dyn DiskFile, len: u64) {
        self.record.uncopied.keep(file, len);
    }

    /// Current name of an open file; `None` if it was removed or replaced.
    pub(crate) fn name_of(&self, open: u64) -> Option<RelativePath> {
        self.record.taken.name_of(open).cloned()
    }
}
