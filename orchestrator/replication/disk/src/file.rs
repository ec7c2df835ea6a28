//! An open file whose changes are recorded.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Disk, DiskFile};
use goondan_replication::operation::{FileOperation, RelativePath};

use crate::confirmations::Term;
use crate::indeterminate_ops::IndeterminateOp;
use crate::workspace::{ChangeGuard, Workspace};

/// State that a file shares with the disk it was opened on.
#[derive(Debug)]
pub(crate) struct FileContext {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) waits_at_sync: bool,
}

/// An open file of a workspace. It is tracked across renames. After it is removed or replaced, its
/// changes no longer belong to the workspace.
#[derive(Debug)]
pub(crate) struct ReplicatedFile {
    file: Box<dyn DiskFile>,
    shared: FileContext,
    /// Term and number of the open file; `None` if the node did not own the workspace.
    opened: Option<(Term, u64)>,
}

impl ReplicatedFile {
    pub(crate) fn new(
        file: Box<dyn DiskFile>,
        shared: FileContext,
        opened: Option<(Term, u64)>,
    ) -> Self {
        Self {
            file,
            shared,
            opened,
        }
    }

    fn term(&self) -> Option<Term> {
        self.opened.map(|(term, _)| term)
    }
}

/// Starts a change of a file and returns its current path.
fn changing<'a>(
    shared: &'a FileContext,
    opened: Option<(Term, u64)>,
) -> io::Result<(ChangeGuard<'a>, Option<RelativePath>)> {
    let term = opened.map(|(term, _)| term);
    let changing = shared.workspace.change_in(term, shared.disk.as_ref())?;
    let path = opened.and_then(|(_, open)| changing.name_of(open));
    Ok((changing, path))
}

impl Drop for ReplicatedFile {
    fn drop(&mut self) {
        if let Some((term, open)) = self.opened {
            self.shared.workspace.close(term, open);
        }
    }
}

impl DiskFile for ReplicatedFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (mut changing, path) = changing(&self.shared, self.opened)?;
        let Some(path) = path else {
            return self.file.append(buf);
        };
        let before = self.file.len()?;
        let appended = self.file.append(buf);
        match &appended {
            Ok(len) => changing.append(&path, before, buf.get(..*len).unwrap_or(buf)),
            Err(_) => changing.look_at(IndeterminateOp::Length(path, before)),
        }
        appended
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let (mut changing, path) = changing(&self.shared, self.opened)?;
        changing.cuts(self.file.as_mut(), len);
        let Some(path) = path else {
            return self.file.set_len(len);
        };
        let before = self.file.len()?;
        let set = self.file.set_len(len);
        if set.is_ok() && len < before {
            changing.push(FileOperation::SetLen { path, len });
        } else if set.is_err() || len > before {
            changing.look_at(IndeterminateOp::Length(path, before));
        }
        set
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn inode(&self) -> io::Result<u64> {
        self.file.inode()
    }

    fn sync(&mut self) -> io::Result<()> {
        let workspace = &self.shared.workspace;
        let awaited = workspace.hand_over(self.shared.disk.as_ref(), self.term(), true)?;
        self.file.sync()?;
        match awaited {
            Some(awaited) if self.shared.waits_at_sync => workspace.wait(awaited),
            Some(_) | None => Ok(()),
        }
    }

    fn share(&mut self, source: &dyn DiskFile) -> io::Result<bool> {
        let (mut changing, path) = changing(&self.shared, self.opened)?;
        let Some(path) = path else {
            return self.file.share(source);
        };
        let before = self.file.len()?;
        let shared = self.file.share(source);
        if !matches!(shared, Ok(false)) {
            changing.look_at(IndeterminateOp::Length(path, before));
        }
        shared
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}
