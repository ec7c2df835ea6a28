//! Size of a tree (`TASK-9`).

use std::io;
use std::path::PathBuf;

use goondan_durable::disk::{Folder, NodeKind};

use crate::error::{IoContext as _, TreeError};
use crate::limits::TREE_SIZE_ENTRIES_MAX;

/// Returns the total length of all files of a tree. The tree may change concurrently; files that
/// disappear are not counted. Links are not followed, and a file with several names counts for
/// each.
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
            Err(error) if is_gone(&error) => continue,
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
                Err(error) if is_gone(&error) => continue,
                stat => stat.during("inspect", path.display())?,
            };
            match stat {
                Some(stat) if stat.kind == NodeKind::Directory => directories.push(path),
                Some(stat) if stat.kind == NodeKind::File => bytes = bytes.saturating_add(stat.len),
                Some(_) | None => {}
            }
        }
    }
    Ok(bytes)
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use goondan_durable::disk::append_all;

    use super::*;
    use crate::RealFolder;

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
    }
}
