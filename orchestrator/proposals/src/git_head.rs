//! Reads the commit of git's HEAD without git (`BOX-4`, `PROP-7`).

use std::io;
use std::path::{Component, Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, read_all};

use crate::limits::{GIT_PACKED_REFS_BYTES_MAX, GIT_REF_BYTES_MAX, GIT_SYMBOLIC_REFS_MAX};

/// The commit of HEAD in the repository that contains a directory; `None` without a repository or a
/// commit, or if references are stored in a format that only git reads (reftable).
///
/// Follows linked worktrees and submodules, whose `.git` is a file, and symbolic and packed
/// references.
///
/// # Errors
///
/// The file system's error, except for missing files.
pub fn git_head(disk: &dyn Disk, directory: &Path) -> io::Result<Option<String>> {
    let Some(git_dir) = git_dir(disk, directory)? else {
        return Ok(None);
    };
    // Worktrees share a common directory.
    let common = match read(disk, &git_dir.join("commondir"), GIT_REF_BYTES_MAX)? {
        Some(text) => git_dir.join(text.trim_end()),
        None => git_dir.clone(),
    };
    let mut name = "HEAD".to_owned();
    for _ in 0..GIT_SYMBOLIC_REFS_MAX {
        let own = read(disk, &git_dir.join(&name), GIT_REF_BYTES_MAX)?;
        let found = match own {
            Some(text) => Some(text),
            None => read(disk, &common.join(&name), GIT_REF_BYTES_MAX)?,
        };
        let Some(text) = found else {
            return packed(disk, &common, &name);
        };
        let text = text.trim_end();
        match text.strip_prefix("ref:") {
            Some(next) if is_reference(next.trim_start()) => {
                next.trim_start().clone_into(&mut name);
            }
            Some(_) => return Ok(None),
            None => return Ok(commit(text)),
        }
    }
    Ok(None)
}

/// The git directory of the repository that contains a directory.
fn git_dir(disk: &dyn Disk, directory: &Path) -> io::Result<Option<PathBuf>> {
    for above in directory.ancestors() {
        let path = above.join(".git");
        match disk.stat(&path)?.map(|stat| stat.kind) {
            None | Some(EntryKind::Other) => {}
            Some(EntryKind::Directory) => return Ok(Some(path)),
            Some(EntryKind::File) => {
                let text = read(disk, &path, GIT_REF_BYTES_MAX)?.unwrap_or_default();
                let named = text.strip_prefix("gitdir:").map(str::trim);
                return Ok(named.map(|named| above.join(named)));
            }
        }
    }
    Ok(None)
}

/// Finds a packed reference.
fn packed(disk: &dyn Disk, common: &Path, name: &str) -> io::Result<Option<String>> {
    let path = common.join("packed-refs");
    let text = read(disk, &path, GIT_PACKED_REFS_BYTES_MAX)?.unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let (id, packed) = line.split_once(' ')?;
        (packed == name).then(|| commit(id)).flatten()
    });
    Ok(found)
}

/// Reads a file as text; `None` if it does not exist or is not a file.
fn read(disk: &dyn Disk, path: &Path, max: usize) -> io::Result<Option<String>> {
    let stat = match disk.stat(path) {
        // With reftable, `refs/heads` is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
        stat => stat?,
    };
    if stat.is_none_or(|stat| stat.kind != EntryKind::File) {
        return Ok(None);
    }
    let mut file = disk.open_read(path)?;
    let bytes = read_all(file.as_mut(), max)?;
    Ok(String::from_utf8(bytes).ok())
}

/// True if a name stays within the directory of references.
fn is_reference(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    name.starts_with("refs/") && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Parses a commit id: SHA-1 or SHA-256.
fn commit(text: &str) -> Option<String> {
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase())
}
