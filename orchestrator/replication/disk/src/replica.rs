//! Applies records to a standby's files.
//!
//! Each change has the same effect as on a [`MemoryTree`](goondan_replication::tree::MemoryTree),
//! except that a directory must exist before its content. Paths that are not replicated are only
//! affected by the removal or replacement of a parent directory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::disk::{Disk, DiskFile, EntryKind, append_all};
use goondan_replication::names::Hash;
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::tree::{FileMismatch, MismatchKind};

use crate::limits::OPEN_FILES_MAX;
use crate::redo::Window;

mod digest;
mod non_replicated;
pub(crate) mod restore;

/// Applies changes from records to the files of a standby.
///
/// After a crash, changes that [`follow`](Self::follow) made since the last [`sync`](Self::sync)
/// can be repeated from the note written after that sync.
#[derive(Debug)]
pub struct Replica {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    is_dir_made: bool,
    changed_files: BTreeSet<RelativePath>,
    /// Directories whose entries changed; `None` is the workspace's directory.
    changed_dirs: BTreeSet<Option<RelativePath>>,
    window: Window,
    /// Files that are shorter than in the log, with their expected lengths; see
    /// [`owes`](Self::owes).
    owed: BTreeMap<RelativePath, u64>,
    /// Files that were recently appended to.
    open: HashMap<RelativePath, OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: Box<dyn DiskFile>,
    len: u64,
}

/// Reason why a change was not made.
enum Stop {
    Disk(io::Error),
    Misfit(FileMismatch),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

fn misfit(path: &RelativePath, why: MismatchKind) -> Stop {
    Stop::Misfit(FileMismatch {
        path: path.clone(),
        why,
    })
}

impl Replica {
    /// Creates a replica in a workspace's directory, which is created if missing. `disk` must not
    /// record changes. No other code may change replicated files meanwhile.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self {
            disk,
            dir,
            is_dir_made: false,
            changed_files: BTreeSet::new(),
            changed_dirs: BTreeSet::new(),
            window: Window::default(),
            owed: BTreeMap::new(),
            open: HashMap::new(),
        }
    }

    /// Applies changes in order and returns their number. It stops early if a crash after the next
    /// change could leave files on which the previous ones cannot be repeated. The caller must then
    /// [`sync`](Self::sync) and write a durable note. Directly after a sync, at least one change is
    /// applied.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub fn follow(
        &mut self,
        operations: &[FileOperation],
    ) -> io::Result<Result<usize, FileMismatch>> {
        for (made, operation) in operations.iter().enumerate() {
            if !self.window.admits(operation) {
                return Ok(self.owes().map(|()| made));
            }
            if let Err(misfit) = self.apply(std::slice::from_ref(operation))? {
                return Ok(Err(misfit));
            }
        }
        Ok(Ok(operations.len()))
    }

    /// Succeeds if the files match the applied changes. After a crash some may not match
    /// temporarily: a file that a later change truncates can be shorter than earlier changes
    /// require. No note may be written meanwhile.
    ///
    /// # Errors
    ///
    /// The first file that is too short.
    pub fn owes(&self) -> Result<(), FileMismatch> {
        self.owed.keys().next().map_or(Ok(()), |path| {
            Err(FileMismatch {
                path: path.clone(),
                why: MismatchKind::Shorter,
            })
        })
    }

    /// Applies changes in order.
    ///
    /// # Errors
    ///
    /// The outer error comes from the disk; the inner one names the change that does not match the
    /// files. The changes before it are applied.
    pub fn apply(&mut self, operations: &[FileOperation]) -> io::Result<Result<(), FileMismatch>> {
        self.make_dir()?;
        for operation in operations {
            // Added first, because a failed change may have been made in part.
            self.window.add(operation);
            match self.make(operation) {
                Ok(()) => {}
                Err(Stop::Disk(error)) => return Err(error),
                Err(Stop::Misfit(misfit)) => return Ok(Err(misfit)),
            }
        }
        Ok(Ok(()))
    }

    /// Makes all changes since the last call durable: content first, then directory entries.
    ///
    /// # Errors
    ///
    /// The error of the disk. It is then unknown which changes are durable: resume at the last
    /// note, with a new replica.
    pub fn sync(&mut self) -> io::Result<()> {
        for path in &self.changed_files {
            if let Some(open) = self.open.get_mut(path) {
                open.file.sync()?;
                continue;
            }
            let path = self.at(path);
            if kind_at(self.disk.as_ref(), &path)? == Some(EntryKind::File) {
                self.disk.open(&path)?.sync()?;
            }
        }
        for path in &self.changed_dirs {
            self.sync_names(path.as_ref())?;
        }
        self.begin_window();
        Ok(())
    }

    fn begin_window(&mut self) {
        self.changed_files.clear();
        self.changed_dirs.clear();
        self.window = Window::default();
        self.open.clear();
    }

    /// Digest of all replicated files in their current state, equal to that of a
    /// [`MemoryTree`](goondan_replication::tree::MemoryTree) with the same files.
    ///
    /// # Errors
    ///
    /// The error of the disk, or [`io::ErrorKind::InvalidData`] for a name that no record can
    /// contain.
    pub fn digest(&self) -> io::Result<Hash> {
        digest::of(self.disk.as_ref(), &self.dir)
    }

    /// Durably removes all replicated files. Everything else is moved to `aside`, a directory on
    /// the same file system and outside this one, whose parent must exist. Existing content of
    /// `aside` is never replaced.
    ///
    /// After a crash nothing is lost: call it again.
    ///
    /// # Errors
    ///
    /// The error of the disk.
    pub fn clear(&mut self, aside: &Path) -> io::Result<()> {
        self.make_dir()?;
        self.begin_window();
        self.owed.clear();
        non_replicated::clear(self.disk.as_ref(), &self.dir, aside)
    }

    /// Durably moves files that [`clear`](Self::clear) moved aside back to their place, if their
    /// directory exists again and the place is free. Of several copies, the latest is moved. The
    /// rest stays aside.
    ///
    /// Call this after the log was replayed and that was noted, because a repeated record could
    /// replace files that are put back.
    ///
    /// After a crash nothing is lost: call it again.
    ///
    /// # Errors
    ///
    /// The error of the disk.
    pub fn put_back(&mut self, aside: &Path) -> io::Result<()> {
        self.make_dir()?;
        non_replicated::put_back(self.disk.as_ref(), &self.dir, aside)
    }

    fn at(&self, path: &RelativePath) -> PathBuf {
        self.dir.join(path.as_str())
    }

    /// Makes the entries of a directory durable, if it exists; `None` is the workspace's directory.
    fn sync_names(&self, path: Option<&RelativePath>) -> io::Result<()> {
        let path = path.map_or_else(|| self.dir.clone(), |path| self.at(path));
        if kind_at(self.disk.as_ref(), &path)? == Some(EntryKind::Directory) {
            self.disk.sync_dir(&path)?;
        }
        Ok(())
    }

    fn kind(&self, path: &RelativePath) -> io::Result<Option<EntryKind>> {
        kind_at(self.disk.as_ref(), &self.at(path))
    }

    fn make_dir(&mut self) -> io::Result<()> {
        if self.is_dir_made {
            return Ok(());
        }
        if self.disk.stat(&self.dir)?.is_none() {
            self.disk.create_dir(&self.dir)?;
        }
        self.disk
            .sync_dir(self.dir.parent().unwrap_or(Path::new("/")))?;
        self.is_dir_made = true;
        Ok(())
    }

    fn make(&mut self, operation: &FileOperation) -> Result<(), Stop> {
        match operation {
            FileOperation::Create { path } => {
                self.is_file_or_free(path)?;
                self.forget(path);
                let file = self.disk.create(&self.at(path))?;
                self.keep_open(path, file, 0);
                self.file_changed(path);
                self.name_changed(path);
            }
            FileOperation::Append {
                path,
                offset,
                bytes,
            } => self.append(path, *offset, bytes)?,
            FileOperation::SetLen { path, len } => self.cut(path, *len)?,
            FileOperation::Rename { from, to } => self.rename(from, to)?,
            FileOperation::RemoveFile { path } => {
                self.forget(path);
                if self.is_file_or_free_anywhere(path)? {
                    self.disk.remove_file(&self.at(path))?;
                }
                self.name_changed(path);
            }
            FileOperation::CreateDir { path } => {
                match self.kind(path)? {
                    Some(EntryKind::Directory) => {}
                    Some(EntryKind::File | EntryKind::Other) => {
                        return Err(misfit(path, MismatchKind::OtherKind));
                    }
                    None => {
                        self.has_parent(path)?;
                        self.disk.create_dir(&self.at(path))?;
                    }
                }
                self.changed_dirs.insert(Some(path.clone()));
                self.name_changed(path);
            }
            FileOperation::RemoveTree { path } => {
                self.forget(path);
                self.remove(path)?;
                self.name_changed(path);
            }
        }
        Ok(())
    }

    fn append(&mut self, path: &RelativePath, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.file_changed(path);
        if offset == 0 {
            // An earlier life may have created it without syncing its entry.
            self.name_changed(path);
        }
        // Its new length is only known after the append.
        let open = self.open.remove(path).filter(|open| open.len == offset);
        let mut file = match open {
            Some(open) => open.file,
            None => {
                if self.len_of(path, offset)? < offset {
                    let should = self.owed.get(path).copied().unwrap_or(offset);
                    if should < offset {
                        return Err(misfit(path, MismatchKind::Shorter));
                    }
                    self.owed.insert(path.clone(), offset + bytes.len() as u64);
                    return Ok(());
                }
                self.owed.remove(path);
                let mut file = self.disk.open(&self.at(path))?;
                if file.len()? > offset {
                    file.set_len(offset)?;
                }
                file
            }
        };
        append_all(file.as_mut(), bytes)?;
        self.keep_open(path, file, offset + bytes.len() as u64);
        Ok(())
    }

    /// Length of a file to append to; 0 if the append creates it.
    fn len_of(&self, path: &RelativePath, offset: u64) -> Result<u64, Stop> {
        match self.disk.stat(&self.at(path))? {
            None if offset == 0 => {
                self.has_parent(path)?;
                Ok(0)
            }
            None => Err(misfit(path, MismatchKind::Missing)),
            Some(stat) if stat.kind != EntryKind::File => {
                Err(misfit(path, MismatchKind::OtherKind))
            }
            Some(stat) => Ok(stat.len),
        }
    }

    fn cut(&mut self, path: &RelativePath, len: u64) -> Result<(), Stop> {
        let mut file = match self.open.remove(path) {
            Some(open) => open.file,
            None => match self.disk.stat(&self.at(path))? {
                None => return Err(misfit(path, MismatchKind::Missing)),
                Some(stat) if stat.kind != EntryKind::File => {
                    return Err(misfit(path, MismatchKind::OtherKind));
                }
                Some(_) => self.disk.open(&self.at(path))?,
            },
        };
        self.file_changed(path);
        if file.len()? < len {
            let should = self.owed.get(path).copied().unwrap_or(len);
            if should < len {
                return Err(misfit(path, MismatchKind::Shorter));
            }
            self.owed.insert(path.clone(), len);
            return Ok(());
        }
        self.owed.remove(path);
        file.set_len(len)?;
        self.keep_open(path, file, len);
        Ok(())
    }

    /// Keeps the file open for the next append. At the limit all files are closed; active ones are
    /// reopened soon.
    fn keep_open(&mut self, path: &RelativePath, file: Box<dyn DiskFile>, len: u64) {
        if self.open.len() >= OPEN_FILES_MAX {
            self.open.clear();
        }
        self.open.insert(path.clone(), OpenFile { file, len });
    }

    /// Forgets cached state of the path and everything in it.
    fn forget(&mut self, path: &RelativePath) {
        self.open.retain(|open, _| !open.is_within(path));
        self.owed.retain(|owed, _| !owed.is_within(path));
    }

    fn rename(&mut self, from: &RelativePath, to: &RelativePath) -> Result<(), Stop> {
        let Some(kind) = self.kind(from)? else {
            // The files already contain the change.
            return if self.kind(to)?.is_some() {
                Ok(self.renamed(from, to)?)
            } else {
                Err(misfit(from, MismatchKind::Missing))
            };
        };
        if to.is_within(from) {
            let is_same = to == from;
            return if is_same {
                Ok(())
            } else {
                Err(misfit(to, MismatchKind::OtherKind))
            };
        }
        if let Some(owed) = self.owed.keys().find(|owed| owed.is_within(from)) {
            return Err(misfit(owed, MismatchKind::Shorter));
        }
        self.forget(from);
        self.forget(to);
        self.has_parent(to)?;
        let replaced = self.kind(to)?;
        // Only a file can atomically replace a file.
        if replaced.is_some() && (kind, replaced) != (EntryKind::File, Some(EntryKind::File)) {
            if from.is_within(to) {
                return Err(misfit(to, MismatchKind::OtherKind));
            }
            self.remove(to)?;
        }
        if from.parent() != to.parent() {
            self.sync_above(to)?;
        }
        self.disk.rename(&self.at(from), &self.at(to))?;
        self.changed_files = moved(&self.changed_files, from, to);
        let dirs = self.changed_dirs.iter().flatten().cloned().collect();
        let own = self.changed_dirs.take(&None);
        self.changed_dirs = moved(&dirs, from, to).into_iter().map(Some).collect();
        self.changed_dirs.extend(own);
        Ok(self.renamed(from, to)?)
    }

    /// Schedules a sync of the directories that a rename changed. Two directories are synced
    /// together, so that after a crash one entry does not exist without the other.
    fn renamed(&mut self, from: &RelativePath, to: &RelativePath) -> io::Result<()> {
        self.name_changed(from);
        self.name_changed(to);
        if from.parent() != to.parent() {
            for dir in [to.parent(), from.parent()] {
                self.sync_names(dir.as_ref())?;
            }
        }
        Ok(())
    }

    /// Makes the directory entries of the target's ancestors durable, because a crash could lose
    /// them together with the moved file. All of them, because an earlier life may have created
    /// some without a sync.
    fn sync_above(&self, to: &RelativePath) -> io::Result<()> {
        let mut dir = to.parent();
        while let Some(inner) = dir {
            dir = inner.parent();
            let above = dir
                .as_ref()
                .map_or_else(|| self.dir.clone(), |dir| self.at(dir));
            self.disk.sync_dir(&above)?;
        }
        Ok(())
    }

    /// Removes a file or directory.
    fn remove(&mut self, path: &RelativePath) -> io::Result<()> {
        match self.kind(path)? {
            None => Ok(()),
            Some(EntryKind::Directory) => self.disk.remove_tree(&self.at(path)),
            Some(EntryKind::File | EntryKind::Other) => self.disk.remove_file(&self.at(path)),
        }
    }

    /// True if the path is a file, false if it is free; anything else is an error.
    fn is_file_or_free_anywhere(&self, path: &RelativePath) -> Result<bool, Stop> {
        match self.kind(path)? {
            None => Ok(false),
            Some(EntryKind::File) => Ok(true),
            Some(EntryKind::Directory | EntryKind::Other) => {
                Err(misfit(path, MismatchKind::OtherKind))
            }
        }
    }

    /// Succeeds if the path is a file or can become one.
    fn is_file_or_free(&self, path: &RelativePath) -> Result<(), Stop> {
        if self.is_file_or_free_anywhere(path)? {
            return Ok(());
        }
        self.has_parent(path)
    }

    fn has_parent(&self, path: &RelativePath) -> Result<(), Stop> {
        let Some(parent) = path.parent() else {
            return Ok(());
        };
        match self.kind(&parent)? {
            Some(EntryKind::Directory) => Ok(()),
            Some(EntryKind::File | EntryKind::Other) => {
                Err(misfit(&parent, MismatchKind::OtherKind))
            }
            None => Err(misfit(&parent, MismatchKind::Missing)),
        }
    }

    fn file_changed(&mut self, path: &RelativePath) {
        self.changed_files.insert(path.clone());
    }

    fn name_changed(&mut self, path: &RelativePath) {
        self.changed_dirs.insert(path.parent());
    }
}

/// Kind of a path; `None` if a parent is not a directory.
fn kind_at(disk: &dyn Disk, path: &Path) -> io::Result<Option<EntryKind>> {
    match disk.stat(path) {
        Ok(stat) => Ok(stat.map(|stat| stat.kind)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changed paths with their names after a rename.
fn moved(
    changed: &BTreeSet<RelativePath>,
    from: &RelativePath,
    to: &RelativePath,
) -> BTreeSet<RelativePath> {
    let new = |path: &RelativePath| path.moved(from, to).unwrap_or_else(|| path.clone());
    changed.iter().map(new).collect()
}
