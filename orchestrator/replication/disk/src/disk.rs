//! A disk that records changes for replication.

use std::io;
use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Confirmation, Disk, DiskEntry, DiskFile, EntryKind, Stat};
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::operation::{FileOperation, RelativePath};

use crate::confirmations::BatchTicket;
use crate::error::ReplicatedDiskError;
use crate::file::{FileContext, ReplicatedFile};
use crate::indeterminate_ops::IndeterminateOp;
use crate::op_log::OpLog;
use crate::scope::{PathScope, have_one_rule, locate, workspace_of};
use crate::workspace::{ChangeGuard, Workspace};

/// Operation that waits for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmPoint {
    /// Each sync returns after the log contains the preceding changes.
    AtEachSync,
    /// Syncs do not wait; [`Disk::confirm`] does.
    AtConfirm,
}

/// A disk that records changes of replicated workspace files, submits them at each sync, and waits
/// until the log contains them.
///
/// Reads, and operations on files that are not replicated ([`crate::scope`]), pass through. A
/// change in a workspace that the node does not own is refused ([`ReplicatedDiskError`]). Changes are made on
/// disk first and then recorded as they happened: a short write with the bytes that were written,
/// and a failed one as the file's actual content.
#[derive(Debug)]
pub struct ReplicatedDisk {
    inner: Arc<dyn Disk>,
    recording: Arc<OpLog>,
    waits: ConfirmPoint,
}

impl ReplicatedDisk {
    /// Creates a disk over `inner` that records changes in `recording`.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, recording: Arc<OpLog>, waits: ConfirmPoint) -> Self {
        Self {
            inner,
            recording,
            waits,
        }
    }

    fn locate(&self, path: &Path) -> io::Result<PathScope> {
        locate(self.recording.workspaces(), path)
    }

    /// The workspace and the path in it, if `path` is replicated.
    fn replicated(&self, path: &Path) -> io::Result<Option<(Arc<Workspace>, RelativePath)>> {
        Ok(match self.locate(path)? {
            PathScope::Replicated(workspace, path) => {
                Some((self.recording.known(&workspace), path))
            }
            PathScope::Outside | PathScope::Root(_) | PathScope::Apart => None,
        })
    }

    fn opened(
        &self,
        file: Box<dyn DiskFile>,
        workspace: &Arc<Workspace>,
        changing: Option<(&mut ChangeGuard<'_>, RelativePath)>,
    ) -> Box<dyn DiskFile> {
        let opened = changing.map(|(changing, path)| changing.open(path));
        let shared = FileContext {
            disk: Arc::clone(&self.inner),
            workspace: Arc::clone(workspace),
            waits_at_sync: self.waits == ConfirmPoint::AtEachSync,
        };
        Box::new(ReplicatedFile::new(file, shared, opened))
    }

    /// Renames within the replicated part of a workspace.
    fn rename_within(
        &self,
        workspace: &Workspace,
        (from_path, from): (&Path, &RelativePath),
        (to_path, to): (&Path, &RelativePath),
    ) -> io::Result<()> {
        let mut changing = workspace.change(self.inner.as_ref())?;
        let rename = || self.inner.rename(from_path, to_path);
        let kind = self.inner.stat(from_path)?.map(|stat| stat.kind);
        match kind {
            None => rename(),
            Some(_) if from == to => rename(),
            Some(EntryKind::Directory) if !have_one_rule(from, to) => Err(unsupported(
                to_path,
                "this name is reserved for other parts of a replicated directory",
            )),
            Some(EntryKind::File | EntryKind::Directory) => {
                let operation = FileOperation::Rename {
                    from: from.clone(),
                    to: to.clone(),
                };
                changing.make(operation, rename)
            }
            // The log does not contain the source, but it contains the replaced target.
            Some(EntryKind::Other) => {
                match self.inner.stat(to_path)?.and_then(|stat| gone(stat, to)) {
                    Some(operation) => changing.make(operation, rename),
                    None => rename(),
                }
            }
        }
    }

    /// Renames a replicated path to one that is not replicated.
    fn rename_out(
        &self,
        workspace: &Workspace,
        (from_path, from): (&Path, &RelativePath),
        to_path: &Path,
    ) -> io::Result<()> {
        let mut changing = workspace.change(self.inner.as_ref())?;
        let rename = || self.inner.rename(from_path, to_path);
        match self
            .inner
            .stat(from_path)?
            .and_then(|stat| gone(stat, from))
        {
            Some(operation) => changing.make(operation, rename),
            None => rename(),
        }
    }

    /// Renames a path that is not replicated to a replicated one; its content is recorded as new.
    fn rename_in(
        &self,
        workspace: &Workspace,
        from_path: &Path,
        (to_path, to): (&Path, &RelativePath),
    ) -> io::Result<()> {
        let mut changing = workspace.change(self.inner.as_ref())?;
        if self.inner.stat(to_path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let renamed = self.inner.rename(from_path, to_path);
        changing.look_at(IndeterminateOp::Arrival(to.clone()));
        renamed
    }

    /// Submits the recorded changes of the workspace that contains `dir`.
    fn sync_names(&self, workspace: &WorkspaceId, dir: &Path) -> io::Result<()> {
        let workspace = self.recording.known(workspace);
        let awaited = workspace.hand_over(self.inner.as_ref(), None, true)?;
        self.inner.sync_dir(dir)?;
        match awaited {
            Some(awaited) if self.waits == ConfirmPoint::AtEachSync => workspace.wait(awaited),
            Some(_) | None => Ok(()),
        }
    }
}

/// Operations to add to a workspace's log.
#[derive(Debug)]
struct QueuedOps {
    workspace: Arc<Workspace>,
    awaited: BatchTicket,
}

impl Confirmation for QueuedOps {
    fn wait(self: Box<Self>) -> io::Result<()> {
        self.workspace.wait(self.awaited)
    }
}

/// The operation that removes `path`; `None` if the log does not contain it.
fn gone(stat: Stat, path: &RelativePath) -> Option<FileOperation> {
    let path = path.clone();
    match stat.kind {
        EntryKind::File => Some(FileOperation::RemoveFile { path }),
        EntryKind::Directory => Some(FileOperation::RemoveTree { path }),
        EntryKind::Other => None,
    }
}

fn unsupported(path: &Path, why: &'static str) -> io::Error {
    let path = path.to_owned();
    ReplicatedDiskError::Unsupported { path, why }.into()
}

impl Disk for ReplicatedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some((workspace, relative)) = self.replicated(path)? else {
            return self.inner.open(path);
        };
        let mut changing = match workspace.change(self.inner.as_ref()) {
            Ok(changing) => changing,
            // Existing files may be read.
            Err(error)
                if ReplicatedDiskError::is_in(&error) && self.inner.stat(path)?.is_some() =>
            {
                return Ok(self.opened(self.inner.open_read(path)?, &workspace, None));
            }
            Err(error) => return Err(error),
        };
        let open = || self.inner.open(path);
        let file = if self.inner.stat(path)?.is_some() {
            open()?
        } else {
            let path = relative.clone();
            changing.make(FileOperation::Create { path }, open)?
        };
        Ok(self.opened(file, &workspace, Some((&mut changing, relative))))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some((workspace, relative)) = self.replicated(path)? else {
            return self.inner.create(path);
        };
        let mut changing = workspace.change(self.inner.as_ref())?;
        if changing.is_copied() && self.inner.stat(path)?.is_some() {
            changing.cuts(self.inner.open_read(path)?.as_mut(), 0);
        }
        let operation = FileOperation::Create {
            path: relative.clone(),
        };
        let file = changing.make(operation, || self.inner.create(path))?;
        Ok(self.opened(file, &workspace, Some((&mut changing, relative))))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open_read(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        self.inner.stat(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        self.inner.list(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let create = || self.inner.create_dir(path);
        match self.locate(path)? {
            PathScope::Outside | PathScope::Apart => create(),
            PathScope::Root(workspace) => {
                let workspace = self.recording.known(&workspace);
                let _changing = workspace.change(self.inner.as_ref())?;
                create()
            }
            PathScope::Replicated(workspace, relative) => {
                let workspace = self.recording.known(&workspace);
                let mut changing = workspace.change(self.inner.as_ref())?;
                if self.inner.stat(path)?.is_some() {
                    return create();
                }
                changing.make(FileOperation::CreateDir { path: relative }, create)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.locate(from)?, self.locate(to)?) {
            (PathScope::Outside | PathScope::Apart, PathScope::Outside | PathScope::Apart) => {
                self.inner.rename(from, to)
            }
            (PathScope::Replicated(one, from_path), PathScope::Replicated(other, to_path))
                if one == other =>
            {
                let workspace = self.recording.known(&one);
                self.rename_within(&workspace, (from, &from_path), (to, &to_path))
            }
            (
                PathScope::Replicated(workspace, from_path),
                PathScope::Outside | PathScope::Apart,
            ) => {
                let workspace = self.recording.known(&workspace);
                self.rename_out(&workspace, (from, &from_path), to)
            }
            (PathScope::Root(_), _) | (_, PathScope::Root(_)) => Err(unsupported(
                from,
                "a workspace's directory cannot be renamed or replaced",
            )),
            (PathScope::Outside | PathScope::Apart, PathScope::Replicated(workspace, to_path)) => {
                let workspace = self.recording.known(&workspace);
                self.rename_in(&workspace, from, (to, &to_path))
            }
            (_, PathScope::Replicated(..)) => {
                Err(unsupported(to, "a file cannot move to another workspace"))
            }
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some((workspace, relative)) = self.replicated(path)? else {
            return self.inner.remove_file(path);
        };
        let mut changing = workspace.change(self.inner.as_ref())?;
        let operation = FileOperation::RemoveFile { path: relative };
        changing.make(operation, || self.inner.remove_file(path))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match self.locate(path)? {
            PathScope::Outside | PathScope::Apart => self.inner.remove_tree(path),
            PathScope::Root(_) => Err(unsupported(
                path,
                "a workspace's directory cannot be removed",
            )),
            PathScope::Replicated(workspace, relative) => {
                let workspace = self.recording.known(&workspace);
                workspace.remove_tree(&relative, self.inner.as_ref(), || {
                    self.inner.remove_tree(path)
                })
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.locate(path)? {
            PathScope::Outside | PathScope::Apart => self.inner.sync_dir(path),
            PathScope::Root(workspace) | PathScope::Replicated(workspace, _) => {
                self.sync_names(&workspace, path)
            }
        }
    }

    fn confirmation(&self, dir: &Path) -> io::Result<Option<Box<dyn Confirmation>>> {
        let workspace = workspace_of(self.recording.workspaces(), dir);
        // In an unknown workspace, nothing was ever changed.
        let Some(workspace) = workspace.and_then(|workspace| self.recording.get(&workspace)) else {
            return Ok(None);
        };
        // No thread waits for changes without a sync.
        let awaited = workspace.hand_over(self.inner.as_ref(), None, false)?;
        Ok(awaited
            .map(|awaited| -> Box<dyn Confirmation> { Box::new(QueuedOps { workspace, awaited }) }))
    }
}
