//! All limits of a merge queue.

/// Most proposals in one queue, including those whose outcome is not acknowledged.
pub const ENTRIES_MAX: usize = 1_000;

/// Most proposals that one proof covers.
pub const BATCH_MAX: usize = 8;

/// Repetitions of a step that fails for reasons other than the proposal; then a person decides.
pub const RETRIES_MAX: u32 = 3;

/// Delay before the first repetition, in milliseconds. It doubles with each failure.
pub const RETRY_MS: i64 = 2_000;

/// Most open pull requests of the queue at one branch: each is part of the next one's proof.
pub const PULL_REQUESTS_MAX: usize = 50;

/// Commits of one task's pull request that are known as the queue's, the newest.
pub const COMMITS_KNOWN: usize = 20;

/// Outcomes that are kept for people, the newest.
pub const ENDED_KEPT: usize = 100;
