//! The file operations the store needs, behind an interface that can fail in tests.
//!
//! [`RealDisk`] is the operating system. [`SimulatedDisk`] is in memory, tracks unsynced data
//! separately, and can fail or crash at any call.
//!
//! The interface is as low-level as system calls: a write may be short, and nothing is durable
//! before a sync: a file's content by [`DiskFile::sync`], its name by [`Disk::sync_dir`].
//!
//! A [`Folder`], such as [`SimulatedDisk::folder`], is a tree that other programs write too. The
//! implementation for the operating system is in `goondan-trees`, because store and core do not
//! need its dependencies.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

mod folder;
mod real;
mod simulated_disk;

pub use folder::{Folder, NodeKind, NodeStat};
pub use real::RealDisk;
pub use simulated_disk::{CallFault, Crash, SimulatedDisk};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// Any other type, mostly a symbolic link. Never followed.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its name within the directory.
    pub name: OsString,
    pub kind: EntryKind,
}

/// Metadata of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: EntryKind,
    /// A file's length in bytes.
    pub len: u64,
    pub inode: u64,
}

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and appending; creates it if it is missing.
    ///
    /// # Errors
    ///
    /// I/O errors. A symbolic link is an error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file for appending, replacing an existing one.
    ///
    /// # Errors
    ///
    /// I/O errors. A symbolic link is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading only.
    ///
    /// # Errors
    ///
    /// I/O errors. A symbolic link is an error.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Returns the metadata of a path without following a link; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn stat(&self, path: &Path) -> io::Result<Option<Stat>>;

    /// Returns the entries of a directory, unordered.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>>;

    /// Creates one directory, accessible to its owner only. An existing one is unchanged.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or directory, replacing an existing file.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link under a free name. Both names refer to the same content, even if one is
    /// removed.
    ///
    /// # Errors
    ///
    /// I/O errors; [`io::ErrorKind::Unsupported`] on a disk without hard links.
    fn link(&self, _file: &Path, _name: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory recursively, without following links. A missing directory is not an
    /// error.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Starts the replication of all changes below a directory. The returned value waits until the
    /// synced changes are replicated; `None` if there is nothing to wait for, such as on a disk
    /// without replication.
    ///
    /// # Errors
    ///
    /// If replication failed permanently.
    fn confirmation(&self, _dir: &Path) -> io::Result<Option<Box<dyn Confirmation>>> {
        Ok(None)
    }

    /// Waits for replication.
    ///
    /// # Errors
    ///
    /// As [`confirmation`](Self::confirmation) and [`Confirmation::wait`].
    fn confirm(&self, dir: &Path) -> io::Result<()> {
        match self.confirmation(dir)? {
            Some(confirmation) => confirmation.wait(),
            None => Ok(()),
        }
    }
}

/// Pending replication of a disk.
pub trait Confirmation: fmt::Debug + Send {
    /// Waits until the changes are replicated.
    ///
    /// # Errors
    ///
    /// If replication failed permanently.
    fn wait(self: Box<Self>) -> io::Result<()>;
}

/// An open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail has no use for `is_empty`"
)]
pub trait DiskFile: fmt::Debug + Send {
    /// Reads from `offset`. May return fewer bytes than requested, and none at the end.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at the end. May accept fewer bytes than given.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn append(&mut self, buf: &[u8]) -> io::Result<usize>;

    /// Truncates the file to `len` bytes.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn len(&self) -> io::Result<u64>;

    /// True if `path` still names this file, which was not deleted, moved or replaced.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn is_at(&self, path: &Path) -> io::Result<bool>;

    /// Returns the file's inode number, as in [`Stat::inode`].
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn inode(&self) -> io::Result<u64>;

    /// Makes content and length durable.
    ///
    /// # Errors
    ///
    /// I/O errors. The durability of the content is then unknown, and a later success would not
    /// prove it: the handle must not be used again.
    fn sync(&mut self) -> io::Result<()>;

    /// Clones the content of another file into this empty one by sharing its blocks. Returns false
    /// and does nothing if the file system does not support it.
    ///
    /// # Errors
    ///
    /// I/O errors. A missing capability is not an error.
    fn share(&mut self, _source: &dyn DiskFile) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns the kernel's file descriptor, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Appends all of `buf`, with as many writes as necessary.
///
/// # Errors
///
/// I/O errors; the write may be partial then.
pub fn append_all(file: &mut dyn DiskFile, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match file.append(buf) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => buf = buf.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buf` from `offset` until it is full or the file ends; returns the number of bytes read.
///
/// # Errors
///
/// I/O errors.
pub fn read_full(file: &mut dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a whole file.
///
/// # Errors
///
/// I/O errors, or [`io::ErrorKind::FileTooLarge`] past `max` bytes.
pub fn read_all(file: &mut dyn DiskFile, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).ok().filter(|len| *len <= max);
    let mut buf = vec![0; len.ok_or(io::ErrorKind::FileTooLarge)?];
    let filled = read_full(file, &mut buf, 0)?;
    buf.truncate(filled);
    Ok(buf)
}
