//! The limits of tasks.

/// Time that an agent has to exit after its result or after a request, in milliseconds.
pub const EXIT_GRACE_MS: i64 = 30_000;

/// Time that an agent has to exit after a request by a tool, in milliseconds: its model has to read
/// the tool's result and end its turn.
pub const TOOL_EXIT_GRACE_MS: i64 = 180_000;

/// Time without a sign of life (output, processor time, a child process) before a run counts as
/// stalled, in milliseconds.
pub const STALL_MS: i64 = 600_000;

/// Longest time that a program can continue its work after its result, in milliseconds.
pub const WORK_AFTER_RESULT_MS: i64 = 3_600_000;

/// Input tokens, without cached ones, of one session. The next run then starts a new session, with
/// the task and its status.
pub const SESSION_INPUT_TOKENS_MAX: u64 = 5_000_000;

/// Wait for an optional request before its default is used, in milliseconds (`PROTO-2`).
pub const OPTIONAL_WAIT_MS: i64 = 600_000;

/// Wait for a permission before it counts as refused, in milliseconds.
pub const PERMISSION_WAIT_MS: i64 = 600_000;

/// Pause in the provider's stream after which it counts as dead, in milliseconds.
pub const LONG_PAUSE_MS: i64 = 240_000;

/// Wait at a rate limit without a known end, in milliseconds.
pub const RATE_LIMIT_DEFAULT_MS: i64 = 900_000;

/// Minimum wait at a rate limit, in milliseconds.
pub const RATE_LIMIT_MIN_MS: i64 = 10_000;

/// Maximum wait at a rate limit, regardless of the agent's report, in milliseconds.
pub const RATE_LIMIT_MAX_MS: i64 = 691_200_000;

/// Maximum random delay of runs after a rate limit, in milliseconds.
pub const RATE_LIMIT_JITTER_MS: i64 = 30_000;

/// Delay of the first retry of a failed run, in milliseconds; each further delay is four times as
/// long. The same delays apply from the second consecutive restart after a refused block, a
/// reported error, or a lost session.
pub const RETRY_MS: i64 = 10_000;

/// Consecutive failed runs before a person is asked. Also the number of consecutive restarts after
/// a refused block, a reported error, or a lost session without any progress.
pub const RETRIES_MAX: u32 = 3;

/// Consecutive runs that may end at a rate limit before a person is asked.
pub const RATE_LIMITED_RUNS_MAX: u32 = 50;

/// Maximum questions and dependencies of one task.
pub const ASKS_MAX: usize = 1000;

/// Maximum open questions and dependencies of one run.
pub const OPEN_ASKS_MAX: usize = 20;

/// Maximum facts per run; a run that reports more is ended and counts as failed.
pub const RUN_FACTS_MAX: usize = 10_000;

/// Percentage of a budget at which people are warned (`TASK-6`).
pub const BUDGET_WARN_PERCENT: u64 = 90;

/// Maximum characters of an answer, a rework, a message or a reason.
pub const TEXT_CHARS_MAX: usize = 10_000;

/// Maximum characters of an agent's last message.
pub const LAST_WORDS_CHARS_MAX: usize = 1000;

/// Maximum changed files that are listed for the agent that continues a task.
pub const CHANGED_FILES_MAX: usize = 200;

/// Maximum characters of the path of a changed file that is listed.
pub const CHANGED_FILE_CHARS_MAX: usize = 400;

/// Span within which an agent's usage is recorded as one amount, in milliseconds.
pub const USAGE_SLOT_MS: i64 = 300_000;

/// Maximum such amounts per agent of a task: eight days, the longest wait at a limit.
pub const USAGE_SLOTS_MAX: usize = 2_304;

/// Maximum rework notes, and messages, kept for runs without a session; the latest are kept.
pub const REWORKS_KEPT: usize = 20;

/// Maximum bytes of a description: the same limit as for an input.
pub const DESCRIPTION_BYTES_MAX: usize = 1024 * 1024;

/// Maximum characters of a title, and of a task's type.
pub const TITLE_CHARS_MAX: usize = 200;

/// Maximum phases of a task.
pub const PHASES_MAX: u32 = 100;

/// Maximum entries in `tokens.json`; the sums include all usage.
pub const TOKEN_HISTORY_MAX: usize = 1000;

/// Maximum characters of the request text in a notification.
pub const NOTICE_CHARS_MAX: usize = 1000;

/// Maximum open notifications of one task; further ones fail immediately.
pub const NOTIFICATIONS_OPEN_MAX: usize = 64;

/// Maximum closed notifications shown with a task; the history has all.
pub const NOTIFICATIONS_KEPT: usize = 10;

/// Number of recent facts shown with a task.
pub const RECENT_FACTS: usize = 10;

/// Maximum characters kept from the end of the output of `setup` and `verify`.
pub const CHECK_OUTPUT_CHARS_MAX: usize = 8_000;

/// Maximum characters of that output in a question to a person.
pub(crate) const CHECK_OUTPUT_CHARS_ASKED: usize = 2_000;
