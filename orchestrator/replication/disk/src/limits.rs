//! Limits of recorded changes and notes.

use goondan_replication::limits::APPEND_BYTES_MAX;

/// Amount of recorded changes of a workspace that triggers a submission without a sync, in bytes.
pub const TAKEN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest amount of memory for content that was truncated before a snapshot had copied it, in
/// bytes.
pub const CUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Chunk size when a file is read back, in bytes.
pub const READ_BACK_BYTES: usize = 256 * 1024;
/// Largest number of changes that a standby makes between two notes.
pub const WINDOW_OPERATIONS_MAX: usize = 1_048_576;
/// Largest number of files that a standby keeps open for appends between two notes.
pub const OPEN_FILES_MAX: usize = 256;
/// Largest size of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(APPEND_BYTES_MAX < TAKEN_BYTES_MAX);
const _: () = assert!(READ_BACK_BYTES <= APPEND_BYTES_MAX);
