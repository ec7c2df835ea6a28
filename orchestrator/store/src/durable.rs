//! The one way a file is replaced: temp → fsync → rename → fsync of the directory.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, append_all};
use crate::error::{IoContext as _, StoreError};

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
/// [`StoreError::Io`]; the old content is still there then.
pub fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temp = temp_path(path);
    write_synced(disk, &temp, content)?;
    install(disk, &temp, path)
}

/// Writes a new file and makes its content durable, though not its name.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn write_synced(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let mut file = disk.create(path).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)?;
    file.sync().during("sync", path)
}

/// Renames a complete, synced file into its place and makes the name durable.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn install(disk: &dyn Disk, temp: &Path, path: &Path) -> Result<(), StoreError> {
    disk.rename(temp, path).during("rename into place", path)?;
    disk.sync_dir(parent(path)).during("sync", parent(path))
}

/// Makes a directory and its missing parents below `root`, durably.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn ensure_dir(disk: &dyn Disk, root: &Path, path: &Path) -> Result<(), StoreError> {
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
