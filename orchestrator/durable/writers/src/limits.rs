//! Limits of writer threads.

/// Most queued operations of one writer thread. A full queue blocks the submitter.
pub const WRITER_QUEUE_OPS: usize = 4096;

/// Most operations of one batch, which bounds the wait of its first one.
pub const WRITER_BATCH_OPS: usize = 512;

/// Most parts of batches of one writer thread that wait for replication. At the limit, the thread
/// waits too.
pub const WAITING_PARTS_MAX: usize = 64;

const _: () = assert!(WRITER_BATCH_OPS <= WRITER_QUEUE_OPS);
