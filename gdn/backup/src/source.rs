//! Reads a tree of files that other programs change at the same time.
//!
//! Every name is opened relative to its directory, without following links: agents can replace a
//! directory of their own by a link while it is read.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use goondan_protocol::state_root::RESTORE_MARK;

use crate::error::{BackupError, During as _};
use crate::format::{
    DEPTH_MAX, FileState, LINK_BYTES_MAX, MODE_BITS, NAME_BYTES_MAX, NOT_COPIED, PATH_BYTES_MAX,
    SPARSE_BYTES_MAX,
};

/// Reason why a file or a directory is not copied. Agents can withdraw the right to read their own.
pub(crate) const UNREADABLE: &str = "the user of this command cannot read it";

/// A path that was found.
pub(crate) struct Found<'a> {
    /// Its path below the root.
    pub(crate) path: &'a [u8],
    pub(crate) mode: u32,
    pub(crate) kind: FoundKind<'a>,
}

pub(crate) enum FoundKind<'a> {
    Directory {
        modified: (i64, u32),
    },
    File {
        state: FileState,
        opener: Opener<'a>,
    },
    Link(Vec<u8>),
    /// A path that is not copied, with the reason.
    Other(&'static str),
}

/// Opens a file that was found.
pub(crate) struct Opener<'a> {
    dir: BorrowedFd<'a>,
    name: &'a CStr,
}

impl Opener<'_> {
    /// Opens the file; `None` if it is gone, or no longer a file.
    pub(crate) fn open(&self) -> Result<Option<(OwnedFd, FileState)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(self.dir, self.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let state = state_of(&stat);
        Ok(Some((file, state)))
    }
}

fn time(seconds: impl TryInto<i64>, nanoseconds: impl TryInto<u32>) -> (i64, u32) {
    (
        seconds.try_into().unwrap_or(0),
        nanoseconds.try_into().unwrap_or(0),
    )
}

/// State of an open file.
pub(crate) fn state_of(stat: &Stat) -> FileState {
    FileState {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
        inode: stat.st_ino,
    }
}

/// Calls `visit` for everything below `root`. A directory precedes its contents.
pub(crate) fn walk(
    root: &Path,
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(root, flags, Mode::empty()).during("open", root)?;
    let mut walk = Walk { root, visit };
    walk.directory(&dir, &mut Vec::new(), 0)
}

struct Walk<'w> {
    root: &'w Path,
    visit: &'w mut dyn FnMut(Found<'_>) -> Result<(), BackupError>,
}

impl Walk<'_> {
    fn place(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn directory(
        &mut self,
        dir: &OwnedFd,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), BackupError> {
        let listed = match Dir::read_from(dir) {
            Err(Errno::ACCESS) if !path.is_empty() => return self.skip(path, UNREADABLE),
            listed => listed.during("list", &self.place(path))?,
        };
        let mut names: Vec<CString> = Vec::new();
        for entry in listed {
            let entry = entry.during("list", &self.place(path))?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        }
        names.sort();
        for name in names {
            let bytes = name.to_bytes();
            if path.is_empty() && NOT_COPIED.contains(&bytes) {
                continue;
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(bytes);
            if path.as_slice() != RESTORE_MARK.as_bytes() {
                self.entry(dir, &name, path, depth)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn skip(&mut self, path: &[u8], why: &'static str) -> Result<(), BackupError> {
        let (mode, kind) = (0, FoundKind::Other(why));
        (self.visit)(Found { path, mode, kind })
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &CStr,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), BackupError> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since the directory was listed.
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ACCESS) => return self.skip(path, UNREADABLE),
            Err(error) => return Err(error).during("inspect", &self.place(path)),
        };
        let mode = stat.st_mode & MODE_BITS;
        let is_long = name.to_bytes().len() > NAME_BYTES_MAX || path.len() > PATH_BYTES_MAX;
        if is_long || depth >= DEPTH_MAX {
            return self.skip(path, "its path is too long");
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
                    Ok(below) => below,
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                    Err(Errno::ACCESS) => return self.skip(path, UNREADABLE),
                    Err(error) => return Err(error).during("open", &self.place(path)),
                };
                let modified = state_of(&stat).modified;
                (self.visit)(Found {
                    path,
                    mode,
                    kind: FoundKind::Directory { modified },
                })?;
                self.directory(&below, path, depth + 1)
            }
            FileType::RegularFile => {
                let state = state_of(&stat);
                let on_disk = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                if state.size > SPARSE_BYTES_MAX && on_disk < state.size / 2 {
                    return self.skip(path, "it is sparse and larger than 16 GiB");
                }
                let opener = Opener {
                    dir: dir.as_fd(),
                    name,
                };
                (self.visit)(Found {
                    path,
                    mode,
                    kind: FoundKind::File { state, opener },
                })
            }
            FileType::Symlink => {
                let target = match rustix::fs::readlinkat(dir, name, Vec::new()) {
                    Ok(target) => target.into_bytes(),
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
                    Err(error) => return Err(error).during("read", &self.place(path)),
                };
                if target.is_empty() || target.len() > LINK_BYTES_MAX {
                    return self.skip(path, "its target is empty or too long");
                }
                (self.visit)(Found {
                    path,
                    mode,
                    kind: FoundKind::Link(target),
                })
            }
            _ => self.skip(path, "it is a socket, a pipe or a device"),
        }
    }
}
