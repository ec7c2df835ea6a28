//! A directory tree that goondan shares with people: what [`Disk`](super::Disk) leaves out.
//!
//! A [`Disk`](super::Disk) keeps goondan's own files, whose names goondan chose. A [`Folder`] is one
//! directory with everything below it, where others may read, write and lay links at any moment. So it
//! knows modes and links, renames without replacing, exchanges two names at once, and resolves every
//! path beneath its root without following a link.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

use super::DiskFile;

/// What a name in a folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link. Never followed.
    Link,
    /// A device, a socket, a named pipe.
    Special,
}

/// What is known of a name without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStat {
    /// What it is.
    pub kind: NodeKind,
    /// The permission bits, at most `0o777`; of a link, no meaning.
    pub mode: u32,
    /// A file's length in bytes.
    pub len: u64,
    /// Tells whether it is still the same, unchanged: device, inode, times of change in nanoseconds.
    pub version: [i128; 4],
}

/// A directory and everything below it. Paths are relative to it; an empty path is itself.
///
/// No path leads out of it: `..`, an absolute path and a link on the way are errors.
pub trait Folder: fmt::Debug + Send + Sync {
    /// What a path names, without following a link; none if it names nothing.
    ///
    /// # Errors
    ///
    /// As the file system says. A parent that is missing, or anything but a directory, is no error: the path
    /// names nothing then, since no link is followed.
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>>;

    /// The names in a directory, in no order.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Opens a regular file for reading.
    ///
    /// # Errors
    ///
    /// As the file system says. A link and a special file are errors, of kind [`io::ErrorKind::InvalidInput`] in a
    /// real folder; neither is ever waited for.
    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Where a link points, as it was written.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn read_link(&self, path: &Path) -> io::Result<OsString>;

    /// Makes a new file with exactly these permission bits.
    ///
    /// # Errors
    ///
    /// As the file system says; a name that is taken is an error.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a new link.
    ///
    /// # Errors
    ///
    /// As the file system says; a name that is taken is an error.
    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()>;

    /// Makes a new directory with exactly these permission bits.
    ///
    /// # Errors
    ///
    /// As the file system says; a name that is taken is an error.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Sets the permission bits of a directory.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Renames to a name that must be free (`RENAME_NOREPLACE`).
    ///
    /// # Errors
    ///
    /// As the file system says; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Lets two names change places at once (`RENAME_EXCHANGE`).
    ///
    /// # Errors
    ///
    /// As the file system says; both must be there.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file or link. One that is missing is no error.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// As the file system says; [`io::ErrorKind::DirectoryNotEmpty`] if it holds anything.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file, link or directory with all it holds, following no link. One that is missing is no error.
    ///
    /// # Errors
    ///
    /// As the file system says; a part may be gone then.
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

    /// Checks that names in a directory can be made, renamed and removed by this process.
    ///
    /// # Errors
    ///
    /// Why they cannot, such as [`io::ErrorKind::ReadOnlyFilesystem`].
    fn check_writable(&self, path: &Path) -> io::Result<()> {
        self.names(path).map(drop)
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the content of several new files durable, in no order. One result for each.
    ///
    /// Of a real folder they are synced at once, since a file system writes down together what is asked for
    /// together.
    fn sync_files(&self, files: &mut [Box<dyn DiskFile>]) -> Vec<io::Result<()>> {
        files.iter_mut().map(|file| file.sync()).collect()
    }

    /// A directory below, as a folder of its own.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>>;

    /// Bytes that may still be written to the file system it is on; none if that is not known.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}
