//! The limits of tasks.

/// How long an agent may take to exit after its result, or after it has asked for something, in
/// milliseconds.
pub const EXIT_GRACE_MS: i64 = 30_000;

/// How long an agent may show no sign of life: no byte, no processor time, no child; in milliseconds.
pub const STALL_MS: i64 = 600_000;

/// How long something that is optional is waited for, in milliseconds (`PROTO-2`).
pub const OPTIONAL_WAIT_MS: i64 = 600_000;

/// How long a permission is waited for before it counts as refused, in milliseconds.
pub const PERMISSION_WAIT_MS: i64 = 600_000;

/// From how long a pause on the provider's stream is taken for dead, in milliseconds.
pub const LONG_PAUSE_MS: i64 = 240_000;

/// How long a rate limit is waited for whose end is not told, in milliseconds.
pub const RATE_LIMIT_DEFAULT_MS: i64 = 900_000;

/// How long a rate limit is waited for at least, in milliseconds.
pub const RATE_LIMIT_MIN_MS: i64 = 10_000;

/// How long a rate limit is waited for at most, whatever the agent tells, in milliseconds.
pub const RATE_LIMIT_MAX_MS: i64 = 691_200_000;

/// By how much the beginning of runs after a rate limit is spread, in milliseconds.
pub const RATE_LIMIT_JITTER_MS: i64 = 30_000;

/// How long the first retry of a run that failed waits, in milliseconds; each further one four times as long. So does
/// the second run in a row that follows one whose block was refused, that reported an error, or that lost its session.
pub const RETRY_MS: i64 = 10_000;

/// Runs that may fail in a row before a person is asked; and those that may follow, until something is completed, runs
/// whose block was refused, that reported an error, or that lost their session.
pub const RETRIES_MAX: u32 = 3;

/// Runs in a row that may end at a rate limit before a person is asked.
pub const RATE_LIMITED_RUNS_MAX: u32 = 50;

/// Questions and dependencies of one task at most.
pub const ASKS_MAX: usize = 1000;

/// Questions and dependencies that one run may leave open at most.
pub const OPEN_ASKS_MAX: usize = 20;

/// Facts that one run may tell at most; a run that tells more is ended and has failed.
pub const RUN_FACTS_MAX: usize = 10_000;

/// Percent of a budget from which on people are warned (`TASK-6`).
pub const BUDGET_WARN_PERCENT: u64 = 90;

/// Characters of an answer, a rework or a reason at most.
pub const TEXT_CHARS_MAX: usize = 10_000;

/// Characters of an agent's last words at most.
pub const LAST_WORDS_CHARS_MAX: usize = 1000;

/// Rework notes that are kept for a run without a session, the last ones.
pub const REWORKS_KEPT: usize = 20;

/// Bytes of what is to be done at most: as many as of an input.
pub const DESCRIPTION_BYTES_MAX: usize = 1024 * 1024;

/// Characters of a title, and of the word for the kind of a task, at most.
pub const TITLE_CHARS_MAX: usize = 200;

/// Phases of a task at most.
pub const PHASES_MAX: u32 = 100;

/// Figures that `tokens.json` lists one by one at most; the sums hold all.
pub const TOKEN_HISTORY_MAX: usize = 1000;

/// Characters of what is asked, in a notification, at most.
pub const NOTICE_CHARS_MAX: usize = 1000;

/// Notifications of one task that are on their way at most; one more has failed at once.
pub const NOTIFICATIONS_OPEN_MAX: usize = 64;

/// Notifications that are over and shown with a task; the history has all.
pub const NOTIFICATIONS_KEPT: usize = 10;

/// Lines of its history that are shown with a task.
pub const RECENT_FACTS: usize = 10;

/// Characters of the end of what the commands `setup` and `verify` write that are kept.
pub const CHECK_OUTPUT_CHARS_MAX: usize = 8_000;

/// Characters of it that a person is asked with.
pub(crate) const CHECK_OUTPUT_CHARS_ASKED: usize = 2_000;
