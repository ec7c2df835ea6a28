//! Capture of file operations, for all workspaces of a daemon.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use goondan_durable::disk::Disk;
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::owner::BatchId;
use goondan_replication::record::SnapshotReference;

use crate::capture::Capture;
use crate::workspace::{BatchReceiver, Workspace};

/// Captured operations, shared by all disks of the daemon and the client of the log.
///
/// A workspace that was never named is not owned by this node.
pub struct OpLog {
    workspaces: PathBuf,
    outlet: Arc<BatchReceiver>,
    known: RwLock<OpLogState>,
}

#[derive(Debug, Default)]
struct OpLogState {
    workspaces: HashMap<WorkspaceId, Arc<Workspace>>,
    ended: Option<String>,
}

impl fmt::Debug for OpLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("workspaces", &self.workspaces)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl OpLog {
    /// Creates a log for `workspaces`, the directory of all workspaces.
    ///
    /// `outlet` receives each batch, in order for each workspace. It is called while the
    /// workspace's files cannot be changed, so it must not block, and of this log it may only call
    /// [`acknowledge`](Self::acknowledge).
    #[must_use]
    pub fn new(workspaces: PathBuf, outlet: Box<BatchReceiver>) -> Self {
        Self {
            workspaces,
            outlet: outlet.into(),
            known: RwLock::default(),
        }
    }

    /// This node owns the workspace: its files may be changed, and changes are captured. No effect
    /// if the node owns it already.
    pub fn own(&self, workspace: &WorkspaceId) {
        self.known(workspace).own();
        // The log may have ended since then.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let (Some(why), Some(known)) = (&known.ended, known.workspaces.get(workspace)) {
            known.end(why);
        }
    }

    /// Releases a workspace if all captured operations are in the log: from then on every change
    /// fails with `why`. False if an operation is still in flight.
    #[must_use]
    pub fn give_up(&self, workspace: &WorkspaceId, why: String) -> bool {
        self.known(workspace).give_up(why)
    }

    /// Marks a workspace as not owned: every change and every wait fails with `why`. Operations
    /// that were not handed over are dropped. When it returns, no change is in progress and none
    /// will be handed over.
    pub fn disown(&self, workspace: &WorkspaceId, why: String) {
        self.known(workspace).disown(why);
    }

    /// Captures the files of an owned workspace as hard links in `dir`, which is recreated on the
    /// same file system; its parent must exist. `disk` is the disk of all changes. A batch records
    /// that the files will be stored as `reference`. Blocks changes meanwhile: some microseconds
    /// for each file.
    ///
    /// # Errors
    ///
    /// [`ReplicatedDiskError`](crate::ReplicatedDiskError) if this node does not own the workspace, or the error of the
    /// disk.
    pub fn capture(
        &self,
        workspace: &WorkspaceId,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        reference: SnapshotReference,
    ) -> io::Result<Capture> {
        self.known(workspace).capture(disk, dir, reference)
    }

    /// Acknowledges all batches up to this one. A batch that was not handed over is ignored.
    pub fn acknowledge(&self, workspace: &WorkspaceId, batch: BatchId) {
        if let Some(known) = self.get(workspace) {
            known.confirmations.acknowledge(batch);
        }
    }

    /// Submits changes that no sync follows, such as the last note of a durable position; otherwise
    /// they would wait for the next synced change. Skips a workspace with a change in progress, so
    /// that it never blocks; the next call submits those changes.
    pub fn hand_over_rest(&self) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        for workspace in known.workspaces.values() {
            workspace.hand_over_rest();
        }
    }

    /// Ends acknowledgments: every current and future wait fails.
    pub fn end(&self, why: String) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for workspace in known.workspaces.values() {
            workspace.end(&why);
        }
        known.ended = Some(why);
    }

    /// True if all captured operations were handed over and acknowledged. Waits for changes in
    /// progress.
    #[must_use]
    pub fn is_quiet(&self, workspace: &WorkspaceId) -> bool {
        self.get(workspace).is_none_or(|known| known.is_quiet())
    }

    pub(crate) fn workspaces(&self) -> &Path {
        &self.workspaces
    }

    /// A workspace that was named before, or in which a change was attempted.
    pub(crate) fn get(&self, workspace: &WorkspaceId) -> Option<Arc<Workspace>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.workspaces.get(workspace).cloned()
    }

    pub(crate) fn known(&self, workspace: &WorkspaceId) -> Arc<Workspace> {
        if let Some(known) = self.get(workspace) {
            return known;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let entry = known.workspaces.entry(workspace.clone());
        let made = entry.or_insert_with(|| {
            Arc::new(Workspace::new(
                workspace.clone(),
                self.workspaces.join(workspace.as_str()),
                Arc::clone(&self.outlet),
            ))
        });
        Arc::clone(made)
    }
}
