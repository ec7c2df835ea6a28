//! Atomic replacement of files: temp → fsync → rename → fsync of the directory. All replacements
//! use this module.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, append_all, read_all};
use crate::error::{FileError, IoContext as _};

/// Suffix of temporary files. A file left by a crash is overwritten by the next replacement of the
/// same file.
pub const TEMP_SUFFIX: &str = ".tmp";

/// Returns the path of the temporary file for `path`.
#[must_use]
pub fn temp_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(TEMP_SUFFIX);
    path.with_file_name(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Replaces `path` by `content`: after a crash at any moment the file has the complete old or new
/// content. Durable when it returns.
///
/// # Errors
///
/// [`FileError::Io`]; the old content is unchanged then.
pub fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temp = temp_path(path);
    write_synced(disk, &temp, content)?;
    install(disk, &temp, path)
}

/// Writes a new file and syncs its content, but not its name.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write_synced(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut file = disk.create(path).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)?;
    file.sync().during("sync", path)
}

/// Renames a complete, synced file into place and makes the name durable.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn install(disk: &dyn Disk, temp: &Path, path: &Path) -> Result<(), FileError> {
    disk.rename(temp, path).during("rename into place", path)?;
    disk.sync_dir(parent(path)).during("sync", parent(path))
}

/// Keeps a copy of `content` from `path` beside it: `<name>.<label>`, with a number appended if
/// another content has that name. Never overwrites an earlier copy, and keeps equal content only
/// once. Durable when it returns.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn keep_aside(
    disk: &dyn Disk,
    path: &Path,
    label: &str,
    content: &[u8],
) -> Result<PathBuf, FileError> {
    let (kept, is_there) = aside_name(disk, path, label, Some(content))?;
    if is_there {
        // The name may come from a process that died before it was durable.
        disk.sync_dir(parent(path)).during("sync", parent(path))?;
    } else {
        replace(disk, &kept, content)?;
    }
    Ok(kept)
}

/// Returns a name beside `path` for a copy: a free name, or the name that already holds `content`;
/// and true in the second case.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn aside_name(
    disk: &dyn Disk,
    path: &Path,
    label: &str,
    content: Option<&[u8]>,
) -> Result<(PathBuf, bool), FileError> {
    let mut number = 1;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{label}"));
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let kept = path.with_file_name(name);
        let Some(stat) = disk.stat(&kept).during("inspect", &kept)? else {
            return Ok((kept, false));
        };
        if let Some(content) = content
            && stat.len == content.len() as u64
        {
            let mut file = disk.open_read(&kept).during("open", &kept)?;
            if read_all(file.as_mut(), content.len()).during("read", &kept)? == content {
                return Ok((kept, true));
            }
        }
        number += 1;
    }
}

/// Creates a directory and its missing parents below `root`, durably.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn ensure_dir(disk: &dyn Disk, root: &Path, path: &Path) -> Result<(), FileError> {
    if disk.stat(path).during("inspect", path)?.is_some() {
        return Ok(());
    }
    if path != root
        && let Some(above) = path.parent()
    {
        ensure_dir(disk, root, above)?;
    }
    disk.create_dir(path).during("create", path)?;
    disk.sync_dir(parent(path)).during("sync", parent(path))
}
