//! The limits of checkpoints.

use goondan_trees::limits::Limits;

/// Files, directories and links of one checkpoint at most.
pub const CHECKPOINT_ENTRIES_MAX: usize = 250_000;

/// Bytes of all files of one checkpoint at most.
pub const CHECKPOINT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Bytes of `metadata.json` at most.
pub const CHECKPOINT_METADATA_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of `latest.json`, and of the note about a restore, at most.
pub const CHECKPOINT_NOTE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the index of files at most. A larger one is not believed.
pub const CHECKPOINT_INDEX_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Checkpoints that are kept where nobody says how many (`CKPT-5`).
pub const CHECKPOINTS_KEPT: usize = 10;

/// Checkpoints of one work area at most that are looked at. Later ones cannot be made before some are removed.
pub const CHECKPOINTS_MAX: usize = 1000;

/// Characters of a checkpoint's name at most.
pub const CHECKPOINT_NAME_CHARS_MAX: usize = 100;

/// Characters of a checkpoint's type at most.
pub const CHECKPOINT_TYPE_CHARS_MAX: usize = 40;

/// Bytes that must stay free on the file system when a checkpoint was made (`TASK-9`).
pub const CHECKPOINT_FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Bytes of entries from which a group may end.
pub const GROUP_BYTES_MIN: u64 = 96 * 1024;

/// Bytes behind [`GROUP_BYTES_MIN`] after which a group has ended, on average.
pub const GROUP_BYTES_MORE: u64 = 96 * 1024;

/// Bytes from which a group ends, whatever comes next. A single file may be longer.
pub const GROUP_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes that are written to an archive at a time.
pub const ARCHIVE_WRITE_BYTES: usize = 1024 * 1024;

/// Times that a file is read anew because it was written meanwhile.
pub const FILE_READ_ATTEMPTS: usize = 3;

const _: () = assert!(GROUP_BYTES_MIN + GROUP_BYTES_MORE < GROUP_BYTES_MAX);

/// What one checkpoint may hold.
pub(crate) fn tree_limits() -> Limits {
    Limits::new(CHECKPOINT_ENTRIES_MAX, CHECKPOINT_BYTES_MAX)
}
