//! The few file operations the store needs, behind an interface that tests can make fail.
//!
//! [`RealDisk`] is the operating system. [`SimulatedDisk`] lives in memory, keeps what was not synced
//! apart, can fail any call and can crash at any call.
//!
//! The interface is as low as system calls: a write may be short, and nothing is durable before it is
//! synced — a file's content by [`DiskFile::sync`], its name by [`Disk::sync_dir`].
//!
//! Trees that others write, too, are reached through a [`Folder`], such as [`SimulatedDisk::folder`]. The
//! operating system's is in `goondan-trees`: what it needs is nothing that the store and the core need.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

mod folder;
mod real;
mod simulated;

pub use folder::{Folder, NodeKind, NodeStat};
pub use real::RealDisk;
pub use simulated::{Crash, Fault, SimulatedDisk};

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link above all. Never followed.
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name within the directory.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: EntryKind,
    /// A file's length in bytes.
    pub len: u64,
    /// Its number on its file system.
    pub inode: u64,
}

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and appending; makes it if it is missing.
    ///
    /// # Errors
    ///
    /// As the file system says. A symbolic link is an error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes an empty file for appending, in the place of any that is there.
    ///
    /// # Errors
    ///
    /// As the file system says. A symbolic link is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading only.
    ///
    /// # Errors
    ///
    /// As the file system says. A symbolic link is an error.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// What a path names, without following a link; none if it names nothing.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn stat(&self, path: &Path) -> io::Result<Option<Stat>>;

    /// The entries of a directory, in no order.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Makes one directory, open to its owner only. One that is there already is left as it is.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or directory, in the place of any file that is there.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free. Both name the same content from then on, whatever becomes of the
    /// other name.
    ///
    /// # Errors
    ///
    /// As the file system says; [`io::ErrorKind::Unsupported`] on a disk that cannot.
    fn link(&self, _file: &Path, _name: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file. One that is missing is no error.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all it holds, following no link. One that is missing is no error.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Sees to it that all that was changed below a directory gets to wherever else it is kept. What is returned waits
    /// until all of it that was synced stands there; none if there is nothing to wait for, as on a disk that is kept
    /// nowhere else.
    ///
    /// # Errors
    ///
    /// If it is kept elsewhere and will never be known to stand there.
    fn confirmation(&self, _dir: &Path) -> io::Result<Option<Box<dyn Confirmation>>> {
        Ok(None)
    }

    /// Waits for that.
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

/// What is on its way to wherever else a disk is kept.
pub trait Confirmation: fmt::Debug + Send {
    /// Waits until it stands there.
    ///
    /// # Errors
    ///
    /// If that will never be known.
    fn wait(self: Box<Self>) -> io::Result<()>;
}

/// An open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail has no use for `is_empty`"
)]
pub trait DiskFile: fmt::Debug + Send {
    /// Reads from `offset`; fewer bytes than asked for may come, none at the end.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at the end; fewer bytes than given may be taken.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn append(&mut self, buf: &[u8]) -> io::Result<usize>;

    /// Cuts the file to `len` bytes.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether `path` still names this file: it does not once the file was deleted, moved or replaced.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn is_at(&self, path: &Path) -> io::Result<bool>;

    /// The file's number on its file system, as in [`Stat::inode`].
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn inode(&self) -> io::Result<u64>;

    /// Makes the content and length durable.
    ///
    /// # Errors
    ///
    /// As the file system says. The content's fate is then unknown, and a later success would not
    /// say otherwise: the handle must not be used again.
    fn sync(&mut self) -> io::Result<()>;

    /// Takes over the content of another file into this empty one without copying it, if both are on a file
    /// system that lets files share their blocks; else nothing happens, and it returns false.
    ///
    /// # Errors
    ///
    /// As the file system says. That it cannot is no error.
    fn share(&mut self, _source: &dyn DiskFile) -> io::Result<bool> {
        Ok(false)
    }

    /// The kernel's handle of the file, if the kernel has one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Appends all of `buf`, as many writes as that takes.
///
/// # Errors
///
/// As the file system says; a part may have been written then.
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

/// Fills `buf` from `offset` as far as the file goes; returns how many bytes came.
///
/// # Errors
///
/// As the file system says.
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
/// As the file system says, or [`io::ErrorKind::FileTooLarge`] past `max` bytes.
pub fn read_all(file: &mut dyn DiskFile, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).ok().filter(|len| *len <= max);
    let mut buf = vec![0; len.ok_or(io::ErrorKind::FileTooLarge)?];
    let filled = read_full(file, &mut buf, 0)?;
    buf.truncate(filled);
    Ok(buf)
}
