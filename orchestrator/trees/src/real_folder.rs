//! A folder of the operating system, through `openat2`: Linux 5.6 and later.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, NodeStat};

const PERMISSIONS: u32 = 0o777;

/// A directory of the operating system, by a handle: it stays the same directory whatever becomes of its
/// name.
#[derive(Debug)]
pub struct RealFolder {
    root: OwnedFd,
}

impl RealFolder {
    /// Opens a directory. Links on the way to it are followed: the caller chose it.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        Ok(Self { root })
    }

    fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        loop {
            match fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve) {
                // Something was renamed meanwhile, so that the kernel could not be sure.
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// The directory that a path stands in, and its name there.
    fn place<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        Ok((self.beneath(parent, directory, Mode::empty())?, name))
    }

    fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        let (from_dir, from) = self.place(from)?;
        let (to_dir, to) = self.place(to)?;
        Ok(fs::renameat_with(from_dir, from, to_dir, to, flags)?)
    }
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
        // A pipe without a writer would make the opening wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.beneath(path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            ));
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
        let file = self.beneath(path, flags, Mode::from_raw_mode(0o600))?;
        // The mask of the process does not apply to this.
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
        Ok(fs::fchmod(self.directory(path)?, mode_of(mode))?)
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

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        Ok(fs::fsync(self.directory(path)?)?)
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

    fn sync(&mut self) -> io::Result<()> {
        // The mode is to last, too, which is no data.
        self.0.sync_all()
    }
}
