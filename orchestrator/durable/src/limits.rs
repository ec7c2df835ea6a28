//! The limits of the durable layer.

/// Bytes appended to a file that wait in memory at most, until what was asked for together is written.
pub const JOURNAL_PENDING_BYTES: usize = 256 * 1024;

/// Bytes read at a time when a file is scanned.
pub const READ_CHUNK_BYTES: usize = 256 * 1024;

/// Size of a manifest from which it is written anew, in bytes.
pub const MANIFEST_COMPACT_BYTES: u64 = 256 * 1024;

/// Losses that a manifest remembers until they are acknowledged.
pub const MANIFEST_FINDINGS_MAX: usize = 256;
