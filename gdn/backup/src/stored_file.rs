//! Opens the files of a directory of backups, whose content is not trusted.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::{BackupError, During as _};

/// Opens a backup or a pack for reading. Another kind of file is damage: reading a pipe would block.
pub(crate) fn open_stored(path: &Path) -> Result<File, BackupError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .during("open", path)?;
    if file.metadata().during("inspect", path)?.is_file() {
        Ok(file)
    } else {
        Err(BackupError::damaged(path, "it is not a file"))
    }
}
