//! The mark of a state root that was restored from a backup. While it exists, the daemon starts no
//! process, so that a person can check the state before anything continues.

use std::io::{ErrorKind, Read as _};

use goondan_durable::disk::Disk;
use goondan_durable::{FileError, IoContext as _};
use goondan_log::unix_millis_now;
use goondan_protocol::control::{ControlError, ErrorCode, RestoredFrom};
use goondan_protocol::state_root::RESTORE_MARK;
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;

/// Largest mark, in bytes.
const MARK_BYTES_MAX: u64 = 64 * 1024;

/// Reads the mark. One that cannot be read also pauses the daemon.
pub(super) fn read(layout: &Layout) -> Option<RestoredFrom> {
    let path = layout.root().join(RESTORE_MARK);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(_) => return Some(unknown()),
    };
    let mut text = String::new();
    let read = file.take(MARK_BYTES_MAX).read_to_string(&mut text);
    let mark = read.ok().and_then(|_| serde_json::from_str(&text).ok());
    let mark: RestoredFrom = mark.unwrap_or_else(unknown);
    tracing::warn!(
        backup_id = mark.backup_id,
        taken_at = %mark.taken_at,
        "paused after a restore: no process starts before `gdn daemon backup resume`"
    );
    Some(mark)
}

fn unknown() -> RestoredFrom {
    let now = Timestamp::from_unix_millis(unix_millis_now());
    RestoredFrom {
        backup_id: "unknown".to_owned(),
        taken_at: now,
        restored_at: now,
    }
}

/// Removes the mark durably.
pub(super) fn remove(disk: &dyn Disk, layout: &Layout) -> Result<(), ControlError> {
    let path = layout.root().join(RESTORE_MARK);
    let removed = || -> Result<(), FileError> {
        disk.remove_file(&path).during("remove", &path)?;
        let system = layout.system();
        disk.sync_dir(&system).during("sync", &system)
    };
    removed().map_err(|error| {
        ControlError::new(ErrorCode::Storage, goondan_log::error_chain(&error))
            .suggest("check the space and the permissions of the state root, then try again")
    })
}
