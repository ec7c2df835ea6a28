//! The limits of checkpoints.

use goondan_trees::limits::Limits;

/// Maximum number of files, directories and links in one checkpoint.
pub const CHECKPOINT_ENTRIES_MAX: usize = 250_000;

/// Maximum size of all files in one checkpoint, in bytes.
pub const CHECKPOINT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Maximum size of `metadata.json`, in bytes.
pub const CHECKPOINT_METADATA_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Maximum size of `latest.json` and of the record of a restore, in bytes.
pub const CHECKPOINT_NOTE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of the file index, in bytes. A larger one is ignored.
pub const CHECKPOINT_INDEX_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Default number of checkpoints to keep (`CKPT-5`).
pub const CHECKPOINTS_KEPT: usize = 10;

/// Maximum number of checkpoints in one work area. More require removing some first.
pub const CHECKPOINTS_MAX: usize = 1000;

/// Maximum length of a checkpoint's name, in characters.
pub const CHECKPOINT_NAME_CHARS_MAX: usize = 100;

/// Maximum length of a checkpoint's type, in characters.
pub const CHECKPOINT_TYPE_CHARS_MAX: usize = 40;

/// Bytes that must stay free on the file system after a checkpoint (`TASK-9`).
pub const CHECKPOINT_FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Minimum size of a group's entries, in bytes.
pub const GROUP_BYTES_MIN: u64 = 96 * 1024;

/// Average number of bytes after [`GROUP_BYTES_MIN`] at which a group ends.
pub const GROUP_BYTES_MORE: u64 = 96 * 1024;

/// Size at which a group always ends, in bytes. A single file can be larger.
pub const GROUP_BYTES_MAX: u64 = 1024 * 1024;

/// Write buffer size of an archive, in bytes.
pub const ARCHIVE_WRITE_BYTES: usize = 1024 * 1024;

/// Maximum number of attempts to read a file that is written concurrently.
pub const FILE_READ_ATTEMPTS: usize = 3;

const _: () = assert!(GROUP_BYTES_MIN + GROUP_BYTES_MORE < GROUP_BYTES_MAX);

pub(crate) fn tree_limits() -> Limits {
    Limits::new(CHECKPOINT_ENTRIES_MAX, CHECKPOINT_BYTES_MAX)
}
