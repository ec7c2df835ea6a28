//! `system/format.json`: the format of the System Root, and the check that this program supports it
//! (`REL-1`).

use std::path::Path;

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::limits::STATE_FORMAT_BYTES_MAX;
use goondan_protocol::state_format::StateFormat;

use crate::error::StoreError;

/// Reads the format of the System Root `root` from `file`; `None` if `root` does not exist or is
/// older than the format file. Changes nothing.
///
/// # Errors
///
/// [`StoreError::NewerFormat`], [`StoreError::UnknownFormat`], [`FileError::Io`].
pub(crate) fn read(
    disk: &dyn Disk,
    root: &Path,
    file: &Path,
) -> Result<Option<StateFormat>, StoreError> {
    if disk.stat(file).during("inspect", file)?.is_none() {
        return Ok(None);
    }
    let mut open = disk.open_read(file).during("open", file)?;
    let text = read_all(open.as_mut(), STATE_FORMAT_BYTES_MAX).during("read", file)?;
    let format = StateFormat::parse(&text).map_err(|source| StoreError::UnknownFormat {
        path: file.to_owned(),
        source,
    })?;
    format.check().map_err(|source| StoreError::NewerFormat {
        path: root.to_owned(),
        source,
    })?;
    Ok(Some(format))
}

/// Records that this program version writes here. Durable when it returns. The caller must own the
/// System Root.
///
/// # Errors
///
/// As [`read`], before anything is written.
pub(crate) fn bring_up(disk: &dyn Disk, root: &Path, file: &Path) -> Result<(), StoreError> {
    let found = read(disk, root, file)?;
    let Some(ours) = StateFormat::brought_up(found.as_ref()) else {
        return Ok(());
    };
    let text = ours.render().map_err(|error| FileError::Unwritable {
        problem: error.to_string(),
    })?;
    files::replace(disk, file, text.as_bytes())?;
    Ok(())
}
