//! A folder of the operating system. Every path is resolved beneath the handle of its root, so that
//! concurrent renames cannot redirect a call out of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{self, Access, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, NodeStat};

use crate::limits::SYNC_THREADS;
use crate::open_beneath;
use crate::removal;

const PERMISSIONS: u32 = 0o777;

/// A handle of a directory. It refers to the same directory even if that is renamed.
#[derive(Debug)]
pub struct RealFolder {
    root: OwnedFd,
}

impl RealFolder {
    /// Opens a directory. Links in the path are followed, because the caller chose it.
    ///
    /// # Errors
    ///
    /// I/O errors.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens the parent directory of a path and returns it with the name.
    fn place<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((
            open_beneath::open_directory(&self.root, parent, OFlags::PATH)?,
            name,
        ))
    }

    fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        open_beneath::open_directory(&self.root, path, OFlags::RDONLY)
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        let (from_dir, from) = self.place(from)?;
        let (to_dir, to) = self.place(to)?;
        Ok(fs::renameat_with(from_dir, from, to_dir, to, flags)?)
    }
}

/// Unit of `st_blocks`, whatever the file system's own blocks are.
const BLOCK_BYTES: u64 = 512;

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & PERMISSIONS)
}

fn node_stat(found: &fs::Stat) -> NodeStat {
    let kind = match fs::FileType::from_raw_mode(found.st_mode) {
        fs::FileType::RegularFile => NodeKind::File,
        fs::FileType::Directory => NodeKind::Directory,
        fs::FileType::Symlink => NodeKind::Link,
        _ => NodeKind::Special,
    };
    let time = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    NodeStat {
        kind,
        mode: found.st_mode & PERMISSIONS,
        len: u64::try_from(found.st_size).unwrap_or(0),
        version: [
            i128::from(found.st_dev),
            i128::from(found.st_ino),
            time(found.st_mtime, found.st_mtime_nsec),
            time(found.st_ctime, found.st_ctime_nsec),
        ],
    }
}

impl Folder for RealFolder {
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(node_stat(&fs::fstat(&self.root)?)));
        }
        let found = self
            .place(path)
            .and_then(|(dir, name)| fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(found) => Ok(Some(node_stat(&found))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn stored_bytes(&self, path: &Path) -> io::Result<u64> {
        let (dir, name) = self.place(path)?;
        let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let [len, blocks] =
            [found.st_size, found.st_blocks].map(|it| u64::try_from(it).unwrap_or(0));
        Ok(len.min(blocks.saturating_mul(BLOCK_BYTES)))
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::new(self.directory(path)?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (dir, name) = self.place(path)?;
        // Opening a pipe without a writer would block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = fs::openat(
            dir,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let file = match opened {
            Ok(file) => File::from(file),
            // A link, a socket, or a device without a driver.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Err(not_a_file()),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(not_a_file());
        }
        Ok(Box::new(FolderFile(file)))
    }

    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let (dir, name) = self.place(path)?;
        let target = fs::readlinkat(dir, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = open_beneath::open(&self.root, path, flags, Mode::from_raw_mode(0o600))?;
        // The umask does not apply to this call.
        fs::fchmod(&file, mode_of(mode))?;
        Ok(Box::new(FolderFile(File::from(file))))
    }

    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(fs::symlinkat(target, dir, name)?)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        fs::mkdirat(dir, name, Mode::from_raw_mode(0o700))?;
        self.set_dir_mode(path, mode)
    }

    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        // Such a handle also works for a directory that its owner cannot read.
        let directory = open_beneath::open_directory(&self.root, path, OFlags::PATH)?;
        Ok(removal::set_mode(directory, mode_of(mode))?)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename(from, to, RenameFlags::NOREPLACE)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.rename(one, other, RenameFlags::EXCHANGE)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self
            .place(path)
            .and_then(|(dir, name)| fs::unlinkat(dir, name, AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Ok((dir, name)) => removal::remove(dir, name),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        let directory = open_beneath::open_directory(&self.root, path, OFlags::PATH)?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        Ok(fs::accessat(directory, ".", access, AtFlags::EACCESS)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        Ok(fs::fsync(self.directory(path)?)?)
    }

    fn sync_files(&self, files: &mut [Box<dyn DiskFile>]) -> Vec<io::Result<()>> {
        let share = files.len().div_ceil(SYNC_THREADS).max(1);
        let sync_each = |files: &mut [Box<dyn DiskFile>]| -> Vec<io::Result<()>> {
            files.iter_mut().map(|file| file.sync()).collect()
        };
        if files.len() <= 1 {
            return sync_each(files);
        }
        std::thread::scope(|scope| {
            let shares: Vec<_> = files
                .chunks_mut(share)
                .map(|files| {
                    let count = files.len();
                    (count, scope.spawn(move || sync_each(files)))
                })
                .collect();
            let results = shares.into_iter().flat_map(|(count, share)| {
                share.join().unwrap_or_else(|_| {
                    let failed = || Err(io::Error::other("a sync thread panicked"));
                    (0..count).map(|_| failed()).collect()
                })
            });
            results.collect()
        })
    }

    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        let root = self.directory(path)?;
        Ok(Box::new(Self { root }))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let found = fs::fstatvfs(&self.root)?;
        Ok(found.f_bavail.checked_mul(found.f_frsize))
    }
}

#[derive(Debug)]
struct FolderFile(File);

impl DiskFile for FolderFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut self.0, buf)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|found| found.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let named = match std::fs::symlink_metadata(path) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let own = self.0.metadata()?;
        Ok((own.dev(), own.ino()) == (named.dev(), named.ino()))
    }

    fn inode(&self) -> io::Result<u64> {
        self.0.metadata().map(|found| found.ino())
    }

    fn sync(&mut self) -> io::Result<()> {
        // `sync_data` would not persist the mode.
        self.0.sync_all()
    }

    fn share(&mut self, source: &dyn DiskFile) -> io::Result<bool> {
        let Some(source) = source.descriptor() else {
            return Ok(false);
        };
        // The kernel does not clone into an append-only handle.
        let flags = fs::fcntl_getfl(&self.0)?;
        fs::fcntl_setfl(&self.0, flags - OFlags::APPEND)?;
        let shared = fs::ioctl_ficlone(&self.0, source);
        fs::fcntl_setfl(&self.0, flags)?;
        match shared {
            Ok(()) => Ok(true),
            // Unsupported by the file system, not possible between the two, or blocked by a system
            // call filter.
            Err(
                Errno::OPNOTSUPP
                | Errno::XDEV
                | Errno::INVAL
                | Errno::NOTTY
                | Errno::NOSYS
                | Errno::PERM
                | Errno::ACCESS
                | Errno::TXTBSY,
            ) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::{append_all, read_all};

    use super::*;
    use crate::read::copy;
    use crate::{Digest, TreeEntry};

    /// A directory on a file system with reflinks (btrfs, XFS) for an additional test run.
    const REFLINK_DIR_VAR: &str = "GOONDAN_TEST_REFLINK_DIR";

    fn written(folder: &RealFolder, name: &str, content: &[u8]) {
        let mut file = folder.create(Path::new(name), 0o644).unwrap();
        append_all(file.as_mut(), content).unwrap();
    }

    fn content(folder: &RealFolder, name: &str) -> Vec<u8> {
        let mut file = folder.read(Path::new(name)).unwrap();
        read_all(file.as_mut(), 1 << 20).unwrap()
    }

    /// True if a new file cloned another one. Appends to it afterwards.
    fn is_shared(source: &RealFolder, folder: &RealFolder) -> bool {
        let text = vec![7; 20_000];
        written(source, "source", &text);
        let from = source.read(Path::new("source")).unwrap();
        let mut file = folder.create(Path::new("new"), 0o600).unwrap();
        let is_shared = file.share(from.as_ref()).unwrap();
        let taken = if is_shared { text } else { Vec::new() };
        assert_eq!(content(folder, "new"), taken);
        append_all(file.as_mut(), b"more").unwrap();
        assert_eq!(content(folder, "new"), [taken.as_slice(), b"more"].concat());
        is_shared
    }

    #[test]
    fn file_shares_blocks_with_another_or_reports_that_it_cannot() {
        let one = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(one.path()).unwrap();
        is_shared(&folder, &folder);
        // Files on different file systems cannot share blocks.
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let memory = RealFolder::open(memory.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        let other = RealFolder::open(other.path()).unwrap();
        assert!(!is_shared(&memory, &other));
        if let Some(dir) = std::env::var_os(REFLINK_DIR_VAR) {
            let dir = tempfile::tempdir_in(dir).unwrap();
            let folder = RealFolder::open(dir.path()).unwrap();
            assert!(is_shared(&folder, &folder));
        }
    }

    #[test]
    fn copied_file_is_reported_and_independent_of_its_source() {
        let mut places = vec![tempfile::tempdir().unwrap()];
        if let Some(dir) = std::env::var_os(REFLINK_DIR_VAR) {
            places.push(tempfile::tempdir_in(dir).unwrap());
        }
        for place in places {
            let folder = RealFolder::open(place.path()).unwrap();
            for (name, text) in [("empty", vec![]), ("long", vec![b'x'; 300_000])] {
                written(&folder, name, &text);
                let new = format!("{name}.copy");
                let (from, to) = (Path::new(name), Path::new(&new));
                let copied = copy((&folder, from), (&folder, to), 0o640, u64::MAX);
                let (entry, file) = copied.unwrap();
                let expected = TreeEntry::File {
                    mode: 0o640,
                    bytes: text.len() as u64,
                    sha256: Digest::of(&text),
                };
                assert_eq!(entry, expected);
                let results = folder.sync_files(&mut [file.unwrap()]);
                assert!(results.iter().all(Result::is_ok));
                folder.remove(from).unwrap();
                written(&folder, name, b"another");
                assert_eq!(content(&folder, &new), text);
            }
            let refused = copy(
                (&folder, Path::new("long.copy")),
                (&folder, Path::new("too-long")),
                0o600,
                299_999,
            );
            let error = refused.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
    }

    #[test]
    fn files_that_are_synced_together_have_each_its_result() {
        let place = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(place.path()).unwrap();
        for count in [0, 1, 2, 7, SYNC_THREADS + 1, 3 * SYNC_THREADS] {
            let mut files: Vec<_> = (0..count)
                .map(|number| {
                    let name = format!("{count}-{number}");
                    folder.create(Path::new(&name), 0o600).unwrap()
                })
                .collect();
            let results = folder.sync_files(&mut files);
            assert_eq!(results.len(), count);
            assert!(results.iter().all(Result::is_ok));
        }
    }
}
