//! All limits of a merge queue.

/// Most proposals in one queue, including those whose outcome is not acknowledged.
pub const ENTRIES_MAX: usize = 1_000;

/// Most proposals that one proof covers.
pub const BATCH_MAX: usize = 8;

/// Repetitions of a step that fails for reasons other than the proposal; then a person decides.
pub const RETRIES_MAX: u32 = 3;

/// Delay before the first repetition, in milliseconds. It doubles with each failure.
pub const RETRY_MS: i64 = 2_000;

/// Outcomes that are kept for people, the newest.
pub const ENDED_KEPT: usize = 100;
