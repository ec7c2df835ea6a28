//! A directory tree that goondan shares with other programs.
//!
//! A [`Disk`](super::Disk) holds goondan's own files, under names chosen by goondan. A [`Folder`]
//! is one directory with everything below it, where other programs may read, write and create links
//! at any moment. So it supports modes and links, renames without replacing, exchanges two names
//! atomically, and resolves every path beneath its root without following a link.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

use super::DiskFile;

/// Type of a name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    File,
    Directory,
    /// A symbolic link. Never followed.
    Link,
    /// A device, a socket, a named pipe.
    Special,
}

/// Metadata of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStat {
    pub kind: NodeKind,
    /// The permission bits, at most `0o777`; meaningless for a link.
    pub mode: u32,
    /// A file's length in bytes.
    pub len: u64,
    /// Identity and version: device, inode, and change times in nanoseconds. Equal if the entry is
    /// unchanged.
    pub version: [i128; 4],
}

/// A directory and everything below it. Paths are relative to it; an empty path is the directory
/// itself.
///
/// No path leads outside: `..`, an absolute path and a link in the path are errors.
pub trait Folder: fmt::Debug + Send + Sync {
    /// Returns the metadata of a path without following a link; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// I/O errors. A parent that is missing or not a directory is not an error: the path does not
    /// exist then, because no link is followed.
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>>;

    /// Returns the bytes that a file occupies on the disk, at most its length. Less than its length
    /// if it is sparse.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn stored_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(self.look(path)?.map_or(0, |stat| stat.len))
    }

    /// Returns the names in a directory, unordered.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Opens a regular file for reading.
    ///
    /// # Errors
    ///
    /// I/O errors. A link and a special file are errors, of kind [`io::ErrorKind::InvalidInput`] in
    /// a real folder; neither ever blocks.
    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Returns the unmodified target of a link.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn read_link(&self, path: &Path) -> io::Result<OsString>;

    /// Creates a new file with exactly these permission bits.
    ///
    /// # Errors
    ///
    /// I/O errors; an existing name is an error.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a new link.
    ///
    /// # Errors
    ///
    /// I/O errors; an existing name is an error.
    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()>;

    /// Creates a new directory with exactly these permission bits.
    ///
    /// # Errors
    ///
    /// I/O errors; an existing name is an error.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Sets the permission bits of a directory.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Renames to a name that must be free (`RENAME_NOREPLACE`).
    ///
    /// # Errors
    ///
    /// I/O errors; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two names atomically (`RENAME_EXCHANGE`).
    ///
    /// # Errors
    ///
    /// I/O errors; both names must exist.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file or link. A missing one is not an error.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// I/O errors; [`io::ErrorKind::DirectoryNotEmpty`] if it has entries.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file, link or directory recursively, without following links. A missing path is
    /// not an error.
    ///
    /// # Errors
    ///
    /// I/O errors; the removal may be partial then.
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let mut rest = vec![(path.to_owned(), false)];
        while let Some((path, is_emptied)) = rest.pop() {
            if is_emptied {
                self.remove_dir(&path)?;
                continue;
            }
            match self.look(&path)? {
                None => {}
                Some(stat) if stat.kind == NodeKind::Directory => {
                    if stat.mode & 0o700 != 0o700 {
                        self.set_dir_mode(&path, 0o700)?;
                    }
                    let names = self.names(&path)?;
                    rest.push((path.clone(), true));
                    rest.extend(names.into_iter().map(|name| (path.join(name), false)));
                }
                Some(_) => self.remove(&path)?,
            }
        }
        Ok(())
    }

    /// Checks that this process can create, rename and remove names in a directory.
    ///
    /// # Errors
    ///
    /// The reason, such as [`io::ErrorKind::ReadOnlyFilesystem`].
    fn check_writable(&self, path: &Path) -> io::Result<()> {
        self.names(path).map(drop)
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Syncs several new files, unordered. Returns one result for each.
    ///
    /// A real folder syncs them concurrently, because file systems combine concurrent syncs.
    fn sync_files(&self, files: &mut [Box<dyn DiskFile>]) -> Vec<io::Result<()>> {
        files.iter_mut().map(|file| file.sync()).collect()
    }

    /// Opens a subdirectory as a separate folder.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>>;

    /// Returns the free bytes of its file system, if known.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}
