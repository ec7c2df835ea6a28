//! The limits of writer threads.

/// Operations one writer thread may have waiting. A full queue holds back whoever submits.
pub const WRITER_QUEUE_OPS: usize = 4096;

/// Operations one batch takes at most, so that the first of them is not kept waiting for ever.
pub const WRITER_BATCH_OPS: usize = 512;

/// Parts of batches of one writer thread that may wait for being kept elsewhere, too. When there are as many, the thread
/// waits with them.
pub const WAITING_PARTS_MAX: usize = 64;

const _: () = assert!(WRITER_BATCH_OPS <= WRITER_QUEUE_OPS);
