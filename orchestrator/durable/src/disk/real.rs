//! The operating system's file system.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::OnceLock;

use nix::fcntl::OFlag;

use super::{Disk, DiskEntry, DiskFile, EntryKind, Stat};

/// Files are accessible to their owner only (`SEC-4`).
const FILE_MODE: u32 = 0o600;
/// Directories are accessible to their owner only (`ROOT-8`).
const DIRECTORY_MODE: u32 = 0o700;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl RealDisk {
    /// Wraps a file that was opened elsewhere.
    #[must_use]
    pub fn file(file: File) -> Box<dyn DiskFile> {
        Box::new(RealFile::new(file))
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .mode(FILE_MODE)
        // A named pipe may never get another end. So the open does not block, and reading fails.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    options
}

fn ignore(kind: io::ErrorKind, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => other,
    }
}

fn kind_of(file_type: fs::FileType) -> EntryKind {
    if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Directory
    } else {
        EntryKind::Other
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile::new(
            options().append(true).create(true).open(path)?,
        )))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = options().append(true).create(true).open(path)?;
        file.set_len(0)?;
        Ok(Box::new(RealFile::new(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile::new(options().open(path)?)))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Stat {
                kind: kind_of(found.file_type()),
                len: found.len(),
                inode: found.ino(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(DiskEntry {
                    name: entry.file_name(),
                    kind: kind_of(entry.file_type()?),
                })
            })
            .collect()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let made = DirBuilder::new().mode(DIRECTORY_MODE).create(path);
        ignore(io::ErrorKind::AlreadyExists, made)
    }

    #[expect(clippy::disallowed_methods, reason = "only this function may rename")]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore(io::ErrorKind::NotFound, fs::remove_file(path))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        // The standard library descends by directory handles and unlinks links, so it does not
        // follow a link that is created concurrently.
        ignore(io::ErrorKind::NotFound, fs::remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// Its device and inode, which an open file keeps.
    identity: OnceLock<(u64, u64)>,
}

impl RealFile {
    fn new(file: File) -> Self {
        Self {
            file,
            identity: OnceLock::new(),
        }
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let own = self.file.metadata()?;
        Ok(*self.identity.get_or_init(|| (own.dev(), own.ino())))
    }
}

impl DiskFile for RealFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let named = match fs::symlink_metadata(path) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(self.identity()? == (named.dev(), named.ino()))
    }

    fn inode(&self) -> io::Result<u64> {
        self.identity().map(|(_, inode)| inode)
    }

    fn sync(&mut self) -> io::Result<()> {
        // fdatasync persists length changes; it only omits times.
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn named_pipe_in_place_of_a_file_fails_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let mut read = RealDisk.open_read(&path).unwrap();
        assert!(read.read_at(&mut [0; 1], 0).is_err());
        let mut appended = RealDisk.open(&path).unwrap();
        assert!(appended.read_at(&mut [0; 1], 0).is_err());
    }
}
