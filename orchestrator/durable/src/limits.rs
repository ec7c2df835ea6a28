//! Limits of the durable layer.

/// Most appended bytes buffered in memory before a write.
pub const JOURNAL_PENDING_BYTES: usize = 256 * 1024;

/// Chunk size when a file is scanned, in bytes.
pub const READ_CHUNK_BYTES: usize = 256 * 1024;

/// Size of a manifest that triggers compaction, in bytes.
pub const MANIFEST_COMPACT_BYTES: u64 = 256 * 1024;

/// Most unacknowledged losses kept in a manifest.
pub const MANIFEST_FINDINGS_MAX: usize = 256;
