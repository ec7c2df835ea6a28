//! Size of a tree (`TASK-9`).

use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind};

use crate::error::{IoContext as _, TreeError};
use crate::limits::{SPARSE_BYTES_MIN, TREE_SIZE_ENTRIES_MAX};

/// Returns the total size of all files of a tree, without the holes of sparse files. The tree may
/// change concurrently; files that disappear are not counted, nor what the user has no right to
/// read. Links are not followed, and a file with several names counts for each.
///
/// # Errors
///
/// [`TreeError::Io`], and [`TreeError::Limit`] for a tree with more than [`TREE_SIZE_ENTRIES_MAX`]
/// entries.
pub fn size(source: &dyn Folder) -> Result<u64, TreeError> {
    let mut bytes = 0_u64;
    let mut entries = 0_usize;
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let names = match source.names(&directory) {
            Err(error) if is_gone(&error) || is_forbidden(&error) => continue,
            names => names.during("list", directory.display())?,
        };
        for name in names {
            let path = directory.join(name);
            entries += 1;
            if entries > TREE_SIZE_ENTRIES_MAX {
                let limit = TREE_SIZE_ENTRIES_MAX as u64;
                return Err(TreeError::Limit {
                    what: "entries",
                    limit,
                    path: path.display().to_string(),
                });
            }
            let stat = match source.look(&path) {
                Err(error) if is_gone(&error) || is_forbidden(&error) => continue,
                stat => stat.during("inspect", path.display())?,
            };
            match stat {
                Some(stat) if stat.kind == NodeKind::Directory => directories.push(path),
                Some(stat) if stat.kind == NodeKind::File => {
                    let stored = stored_bytes(source, &path, stat.len);
                    bytes = bytes.saturating_add(stored.during("inspect", path.display())?);
                }
                Some(_) | None => {}
            }
        }
    }
    Ok(bytes)
}

/// The bytes of a file on the disk. A short file counts with its length, which saves a system call.
pub(crate) fn stored_bytes(source: &dyn Folder, path: &Path, len: u64) -> io::Result<u64> {
    if len < SPARSE_BYTES_MIN {
        return Ok(len);
    }
    match source.stored_bytes(path) {
        Err(error) if is_gone(&error) => Ok(0),
        stored => stored,
    }
}

/// True if the user has no right to read a path.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "test files need not be durable")]
mod tests {
    use std::fs;

    use goondan_durable::disk::append_all;

    use super::*;
    use crate::RealFolder;
    use crate::excludes::{Excludes, Reason};
    use crate::limits::Limits;
    use crate::survey::{Unreadable, Writers, survey};

    fn file(folder: &dyn Folder, path: &str, bytes: usize) {
        let mut file = folder.create(path.as_ref(), 0o600).unwrap();
        append_all(file.as_mut(), &vec![0; bytes]).unwrap();
    }

    #[test]
    fn task_9_tree_size_is_the_sum_of_file_lengths_without_links() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        fs::create_dir_all(path.join("tree/.a/b")).unwrap();
        let above = RealFolder::open(path).unwrap();
        file(&above, "outside", 1_000);
        file(&above, "tree/.a/b/c", 100);
        file(&above, "tree/new\nline", 10);
        std::os::unix::fs::symlink("../outside", path.join("tree/link")).unwrap();
        std::os::unix::fs::symlink("..", path.join("tree/out")).unwrap();
        let folder = RealFolder::open(&path.join("tree")).unwrap();
        assert_eq!(size(&folder).unwrap(), 110);
        let sparse = fs::File::create(path.join("tree/sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(size(&folder).unwrap(), 110);
    }

    #[test]
    fn ckpt_3_sparse_file_beyond_the_limit_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(root.path()).unwrap();
        file(&folder, "kept", 10);
        for (name, bytes) in [("long", 1 << 40), ("short", 2 << 20)] {
            let sparse = fs::File::create(root.path().join(name)).unwrap();
            sparse.set_len(bytes).unwrap();
        }
        let surveyed = |limit_bytes| {
            survey(
                &folder,
                &Excludes::new::<&str>(&[]).unwrap(),
                Limits::new(10, limit_bytes),
                Writers::AtRest,
                Unreadable::LeftOut,
            )
        };
        let found = surveyed(4 << 20).unwrap();
        let paths = found
            .found
            .iter()
            .map(|it| (it.path.to_string(), it.stored));
        let paths: Vec<_> = paths.collect();
        assert_eq!(paths, [("kept".to_owned(), 10), ("short".to_owned(), 0)]);
        let [left] = found.left_out.try_into().unwrap();
        assert_eq!(left.reason, Reason::Sparse { bytes: 1 << 40 });
        // A file without holes is an error, as before.
        file(&folder, "dense", 3 << 20);
        assert!(surveyed(2 << 20).is_err());
    }
}
