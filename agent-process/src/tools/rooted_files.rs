//! Access to files strictly beneath a directory.
//!
//! A [`Root`] is an open directory. On Linux the kernel keeps every lookup beneath it (`openat2`
//! with `RESOLVE_BENEATH`): it refuses `..`, absolute links and links that lead out, and a running
//! tool cannot defeat this by renaming a directory between a check and its use. On other systems
//! the path is resolved and compared first, which a tool that renames directories at the right
//! moment could bypass.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_protocol::task::KEPT_DIRECTORIES;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};

use super::fault::ToolFault;
use super::secret_files::SecretFiles;

/// Mode of a directory that a tool creates.
const NEW_DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o777);

/// A directory that a tool may use, with everything beneath it.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    path: PathBuf,
    canonical: PathBuf,
    secret_files: Arc<SecretFiles>,
    /// Top-level directories that are read-only. With such directories or paths no link is followed
    /// on writes, because it might lead into one.
    kept: &'static [&'static str],
    /// Paths beneath the root that are read-only, too, with everything beneath them.
    protected: Vec<PathBuf>,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(Self {
            dir: nix::fcntl::open(path, flags, Mode::empty())?,
            path: path.to_owned(),
            canonical: path.canonicalize()?,
            secret_files: Arc::default(),
            kept: &[],
            protected: Vec::new(),
        })
    }

    /// Sets the secret files that must not be opened.
    pub(crate) fn keeping(self, secret_files: Arc<SecretFiles>) -> Self {
        Self {
            secret_files,
            ..self
        }
    }

    /// Sets the read-only directories of a task's work area, to which only the daemon writes.
    pub(crate) fn kept_for(self, is_work_area: bool) -> Self {
        let kept: &[&str] = if is_work_area { &KEPT_DIRECTORIES } else { &[] };
        Self { kept, ..self }
    }

    /// Sets the read-only paths of a project that the agent may otherwise change.
    pub(crate) fn protecting(self, protected: Vec<PathBuf>) -> Self {
        Self { protected, ..self }
    }

    /// True if a path is read-only for an agent that can change the project.
    pub(super) fn protects(&self, path: &Path) -> bool {
        let mut protected = self.protected.iter();
        protected.any(|protected| path.starts_with(protected))
            || (!self.protected.is_empty() && self.secret_files.refuses_path(path))
    }

    /// True if a path beneath the root is read-only.
    pub(super) fn keeps(&self, path: &Path) -> bool {
        let first = path.components().next();
        first.is_some_and(|first| self.kept.iter().any(|kept| first.as_os_str() == *kept))
    }

    /// The secret files that must not be opened.
    pub(super) fn secret_files(&self) -> &SecretFiles {
        &self.secret_files
    }

    /// Path of the directory as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The part of an absolute path beneath this directory.
    pub(super) fn beneath<'a>(&self, absolute: &'a Path) -> Option<&'a Path> {
        [&self.path, &self.canonical]
            .into_iter()
            .find_map(|root| absolute.strip_prefix(root).ok())
    }

    /// Opens a relative path; creates a file with `mode` if `flags` request it.
    pub(crate) fn open_beneath(
        &self,
        path: &Path,
        flags: OFlag,
        mode: Mode,
    ) -> nix::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        open_beneath(self, path, flags, mode)
    }

    /// Opens the directory at a relative path.
    pub(crate) fn directory(&self, path: &Path) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
        self.open_beneath(path, flags, Mode::empty())
    }

    /// Opens the directory at a relative path and creates missing components.
    pub(crate) fn make_directory(&self, path: &Path) -> nix::Result<OwnedFd> {
        let mut directory = self.directory(Path::new(""))?;
        let mut reached = PathBuf::new();
        for part in path {
            match mkdirat(directory.as_fd(), part, NEW_DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
            reached.push(part);
            directory = self.directory(&reached)?;
        }
        Ok(directory)
    }
}

#[cfg(target_os = "linux")]
fn open_beneath(root: &Root, path: &Path, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let mut resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    if !root.kept.is_empty() || !root.protected.is_empty() {
        resolve |= ResolveFlag::RESOLVE_NO_SYMLINKS;
    }
    let how = OpenHow::new().flags(flags).resolve(resolve);
    // The kernel rejects a mode unless the call creates a file.
    let how = if flags.contains(OFlag::O_CREAT) {
        how.mode(mode)
    } else {
        how
    };
    openat2(root.dir.as_fd(), path, how)
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(root: &Root, path: &Path, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let full = root.canonical.join(path);
    let resolved = match full.canonicalize() {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
                return Err(Errno::ENOENT);
            };
            parent.canonicalize().map_err(errno)?.join(name)
        }
        Err(error) => return Err(errno(error)),
    };
    if !resolved.starts_with(&root.canonical) {
        return Err(Errno::EXDEV);
    }
    nix::fcntl::open(&resolved, flags | OFlag::O_NOFOLLOW, mode)
}

/// A path's parent directory and its last name.
pub(crate) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// Describes a failed system call.
pub(crate) fn fault_of(path: &str, errno: Errno) -> ToolFault {
    let (code, why) = match errno {
        Errno::ENOENT => (
            "E_FILE_NOT_FOUND",
            "does not exist; list its directory for the existing files",
        ),
        Errno::EXDEV | Errno::ELOOP => (
            "E_PATH_OUTSIDE",
            "is behind a symbolic link that leads outside and is not followed",
        ),
        Errno::ENOTDIR => ("E_NOT_A_DIRECTORY", "is not a directory, or lies in a file"),
        Errno::EISDIR => ("E_NOT_A_FILE", "is a directory"),
        Errno::ENXIO => ("E_NOT_A_FILE", "is not a regular file"),
        Errno::EACCES | Errno::EPERM => ("E_PERMISSION", "may not be used by this agent"),
        other => ("E_IO", other.desc()),
    };
    ToolFault::new(code, format!("`{path}` {why}"))
}
