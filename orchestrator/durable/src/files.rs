//! The one way a file is replaced: temp → fsync → rename → fsync of the directory.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, append_all, read_all};
use crate::error::{FileError, IoContext as _};

/// Ending of the temporary files this module makes. One that a crash left is overwritten by the next
/// replacement of the same file.
pub const TEMP_SUFFIX: &str = ".tmp";

/// The temporary file that stands in for `path` until it is complete.
#[must_use]
pub fn temp_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(TEMP_SUFFIX);
    path.with_file_name(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Puts `content` in the place of `path`: after a crash at any moment the file holds the old content
/// or the new, whole. Durable when it returns.
///
/// # Errors
///
/// [`FileError::Io`]; the old content is still there then.
pub fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temp = temp_path(path);
    write_synced(disk, &temp, content)?;
    install(disk, &temp, path)
}

/// Writes a new file and makes its content durable, though not its name.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write_synced(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut file = disk.create(path).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)?;
    file.sync().during("sync", path)
}

/// Renames a complete, synced file into its place and makes the name durable.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn install(disk: &dyn Disk, temp: &Path, path: &Path) -> Result<(), FileError> {
    disk.rename(temp, path).during("rename into place", path)?;
    disk.sync_dir(parent(path)).during("sync", parent(path))
}

/// Keeps a copy of `content`, which came from `path`, beside it: `<name>.<label>`, or with a number
/// behind if that name holds something else. Nothing kept earlier is ever overwritten, and keeping the
/// same content again makes no second copy. Durable when it returns.
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
        // Its name may have been made by a process that died before it was durable.
        disk.sync_dir(parent(path)).during("sync", parent(path))?;
    } else {
        replace(disk, &kept, content)?;
    }
    Ok(kept)
}

/// A name beside `path` for what is set aside: one that is free, or the one that holds `content`
/// already; and whether it does.
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
        let Some(stat) = disk.stat(&kept).during("look at", &kept)? else {
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

/// Makes a directory and its missing parents below `root`, durably.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn ensure_dir(disk: &dyn Disk, root: &Path, path: &Path) -> Result<(), FileError> {
    if disk.stat(path).during("look at", path)?.is_some() {
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
