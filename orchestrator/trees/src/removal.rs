//! Removal of a tree written by other programs: any depth, any modes, no links followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::limits::{REMOVAL_DEPTH, REMOVAL_ROUNDS};

/// Name prefix of a directory that was moved up because it was nested too deep.
const MOVED_UP: &str = ".removing-";

/// A directory that is being emptied.
struct Frame {
    directory: OwnedFd,
    /// Its name in the parent directory.
    name: OsString,
    names: Vec<OsString>,
    /// Number of listings so far.
    rounds: usize,
}

/// Removes a name and everything below it. A missing name is not an error.
///
/// Keeps at most [`REMOVAL_DEPTH`] nested directories open; deeper ones are first moved up.
///
/// # Errors
///
/// I/O errors; the removal may be partial then.
pub(crate) fn remove(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    let parent = parent.as_fd();
    let Some(directory) = remove_leaf(parent, name)? else {
        return Ok(());
    };
    let mut moved_up = 0_u64;
    let mut frames = vec![Frame::new(directory, name.to_owned())?];
    while let Some(frame) = frames.last_mut() {
        if let Some(name) = frame.names.pop() {
            let Some(directory) = remove_leaf(frame.directory.as_fd(), &name)? else {
                continue;
            };
            if frames.len() < REMOVAL_DEPTH {
                frames.push(Frame::new(directory, name)?);
                continue;
            }
            move_up(&mut frames, &name, &mut moved_up)?;
            continue;
        }
        let Some(mut frame) = frames.pop() else {
            break;
        };
        let above = frames
            .last()
            .map_or(parent, |above| above.directory.as_fd());
        match fs::unlinkat(above, &*frame.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Another program added an entry in the meantime.
            Err(Errno::NOTEMPTY | Errno::EXIST) if frame.rounds < REMOVAL_ROUNDS => {
                frame.list()?;
                frames.push(frame);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes a name that is not a directory; returns a handle if it is a directory.
fn remove_leaf(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let refused = match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(error @ (Errno::ISDIR | Errno::PERM)) => error,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(parent, name, flags | OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        // It is a file now, and cannot be removed.
        Err(Errno::NOTDIR | Errno::LOOP) => Err(refused.into()),
        Err(error) => Err(error.into()),
        Ok(handle) => {
            let mode = Mode::from_raw_mode(fs::fstat(&handle)?.st_mode);
            if !mode.contains(Mode::RWXU) {
                set_mode(&handle, Mode::RWXU)?;
            }
            let flags = flags | OFlags::RDONLY;
            Ok(Some(fs::openat(&handle, ".", flags, Mode::empty())?))
        }
    }
}

/// Sets permission bits through a handle that may lack read access.
pub(crate) fn set_mode(handle: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    fs::chmod(
        format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()),
        mode,
    )
}

/// Moves a directory from the innermost frame to the outermost.
fn move_up(frames: &mut [Frame], name: &OsStr, moved_up: &mut u64) -> io::Result<()> {
    let (Some((outermost, _)), Some(innermost)) = (frames.split_first(), frames.last()) else {
        return Ok(());
    };
    let free = loop {
        *moved_up += 1;
        let free = OsString::from(format!("{MOVED_UP}{moved_up}"));
        let (from, to) = (&innermost.directory, &outermost.directory);
        match fs::renameat_with(from, name, to, &*free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => break free,
        }
    };
    if let Some(outermost) = frames.first_mut() {
        outermost.names.push(free);
    }
    Ok(())
}

impl Frame {
    fn new(directory: OwnedFd, name: OsString) -> io::Result<Self> {
        let mut frame = Self {
            directory,
            name,
            names: Vec::new(),
            rounds: 0,
        };
        frame.list()?;
        Ok(frame)
    }

    fn list(&mut self) -> io::Result<()> {
        self.rounds += 1;
        for entry in fs::Dir::read_from(&self.directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                self.names.push(OsString::from_vec(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;

    /// Creates nested directories deeper than any path can be.
    fn nest(root: &Path, depth: usize) {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut directory = fs::open(root, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
            let file = OFlags::CREATE | OFlags::WRONLY;
            fs::openat(&directory, "f", file, Mode::RUSR).unwrap();
            directory = fs::openat(&directory, "d", flags, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        File::create_new(tree.join(".removing-1")).unwrap();
        nest(&tree, 5_000);
        let parent = File::open(place.path()).unwrap();
        remove(&parent, OsStr::new("tree")).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        remove(&parent, OsStr::new("tree")).unwrap();
    }

    #[test]
    fn links_pipes_and_closed_directories_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        File::create_new(outside.join("file")).unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir_all(tree.join("closed/inner")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink("none", tree.join("closed/dangling")).unwrap();
        let pipe = fs::FileType::Fifo;
        let at = File::open(&tree).unwrap();
        fs::mknodat(&at, "pipe", pipe, Mode::RUSR, 0).unwrap();
        set_permissions(tree.join("closed/inner"), Permissions::from_mode(0o0)).unwrap();
        set_permissions(tree.join("closed"), Permissions::from_mode(0o0)).unwrap();
        let parent = File::open(place.path()).unwrap();
        remove(&parent, OsStr::new("tree")).unwrap();
        assert!(!tree.exists() && outside.join("file").exists());
        // A link must be removed itself.
        symlink(&outside, &tree).unwrap();
        remove(&parent, OsStr::new("tree")).unwrap();
        assert!(tree.symlink_metadata().is_err() && outside.join("file").exists());
    }
}
