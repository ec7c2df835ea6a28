//! Limits of what is taken down and noted.

use goondan_replication::limits::APPEND_BYTES_MAX;

/// Bytes taken down of a workspace from which on they are handed over without waiting for a sync.
pub const TAKEN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes in memory of files that were cut before a snapshot had copied them.
pub const CUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes read at a time when a file is read back.
pub const READ_BACK_BYTES: usize = 256 * 1024;
/// Changes that a standby makes between two notes at most.
pub const WINDOW_OPERATIONS_MAX: usize = 1_048_576;
/// Files that a standby keeps open between two notes, to append to them.
pub const OPEN_FILES_MAX: usize = 256;
/// Most bytes of a note of how far a log was read.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(APPEND_BYTES_MAX < TAKEN_BYTES_MAX);
const _: () = assert!(READ_BACK_BYTES <= APPEND_BYTES_MAX);
