//! Opening of paths beneath a directory, safe against concurrent renames. No other code of the
//! daemon does this.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens a path beneath a directory, following no link and no `..` out of it.
///
/// The kernel resolves the path (`openat2`, Linux 5.6). Where a system call filter blocks that,
/// such as systemd's `RestrictSUIDSGID=`, each name is opened from the handle of the previous one.
pub(crate) fn open(
    root: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    loop {
        match fs::openat2(&root, path, flags, mode, resolve) {
            // The kernel saw a concurrent rename.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_by_names(root, path, flags, mode),
            other => return other,
        }
    }
}

/// As [`open`], one name at a time.
fn open_by_names(
    root: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::XDEV);
            }
        }
    }
    let Some((last, above)) = names.split_last() else {
        return fs::openat(root, ".", flags, mode);
    };
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = None;
    for name in above {
        let opened = match &directory {
            None => fs::openat(&root, *name, step, Mode::empty()),
            Some(directory) => fs::openat(directory, *name, step, Mode::empty()),
        };
        directory = Some(opened?);
    }
    let flags = flags | OFlags::NOFOLLOW;
    match &directory {
        None => fs::openat(&root, *last, flags, mode),
        Some(directory) => fs::openat(directory, *last, flags, mode),
    }
}

/// Opens a directory beneath another one. A link anywhere in the path is an error.
pub(crate) fn open_directory(
    root: impl AsFd,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    match open(root, path, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::LOOP) => Err(Errno::NOTDIR),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, create_dir_all};
    use std::os::unix::fs::symlink;

    use super::*;

    type OpenFn = fn(&File, &Path, OFlags, Mode) -> Result<OwnedFd, Errno>;

    #[test]
    fn sec_7_both_ways_of_opening_stay_beneath_and_agree() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        create_dir_all(root.join("a/b")).unwrap();
        File::create_new(root.join("a/b/file")).unwrap();
        File::create_new(place.path().join("outside")).unwrap();
        symlink("b", root.join("a/link")).unwrap();
        symlink("../../outside", root.join("a/out")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        let root = File::open(&root).unwrap();
        let ways: [OpenFn; 2] = [
            |root, path, flags, mode| open(root, path, flags, mode),
            |root, path, flags, mode| open_by_names(root, path, flags | OFlags::CLOEXEC, mode),
        ];
        for way in ways {
            let read = |path: &str| way(&root, Path::new(path), OFlags::RDONLY, Mode::empty());
            for path in ["", ".", "a", "a/b", "a/b/file", "a/./b/file"] {
                assert!(read(path).is_ok(), "{path}");
            }
            for path in [
                "a/link",
                "a/link/file",
                "a/out",
                "magic",
                "magic/etc",
                "..",
                "../outside",
                "/etc",
                "a/none",
                "a/b/file/x",
            ] {
                assert!(read(path).is_err(), "{path}");
            }
            let directory = OFlags::RDONLY | OFlags::DIRECTORY;
            let file = way(&root, Path::new("a/b/file"), directory, Mode::empty());
            assert_eq!(file.err(), Some(Errno::NOTDIR));
        }
    }
}
