//! Limits of bundles.

/// Most changesets stored for a conversation; older ones are only in the log.
pub const CHANGESETS_MAX: usize = 100;

/// Most open or waiting changesets of a conversation.
pub const UNDECIDED_CHANGESETS_MAX: usize = 10;

/// Most quarantined digests of a conversation; the oldest are dropped first.
pub const QUARANTINED_MAX: usize = 100;

/// Most files of a configuration.
pub const FILES_MAX: usize = 1_000;

/// Most bytes of all files of a configuration.
pub const TREE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most bytes of a reported diff.
pub const DIFF_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a file's path.
pub const PATH_BYTES_MAX: usize = 512;

/// Most bytes of the state file. A larger state is rejected.
pub const CURSOR_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes stored of a changeset's status detail.
pub const DETAIL_BYTES_MAX: usize = 8_000;

/// Most files listed in the summary of a changeset.
pub const SUMMARY_FILES_MAX: usize = 20;

/// Most bytes of a text from a user or agent: purpose of a changeset, reason of a rejection.
pub const TEXT_BYTES_MAX: usize = 2_000;

/// Completed turns that end a revision's probation.
pub const PROBATION_TURNS: u32 = 3;

/// Alternative end of the probation: this time in milliseconds, followed by a completed turn.
pub const PROBATION_MS: u64 = 10 * 60 * 1_000;

/// Failures after which a revision is rolled back.
pub const PROBATION_FAILURES_MAX: u32 = 2;

/// Load timeout of a JavaScript or TypeScript module in the check of a change, in milliseconds.
pub const MODULE_LOAD_MS: u64 = 15_000;

/// Time that a module with its own program must stay alive in the check of a change, in
/// milliseconds.
pub const MODULE_STAY_MS: u64 = 2_000;

/// Start timeout of all modules of a configuration in the check of a change, in milliseconds.
/// Shorter than the timeout of clients.
pub const GATE_MS: u64 = 40_000;

pub const REHEARSAL_TURNS_MAX: u32 = 100;

/// Bytes read by a rehearsal from the end of a conversation.
pub const REHEARSAL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Timeout for the turns of a rehearsal, in milliseconds. They take a fraction of that time, because no
/// model is called and no tool runs.
pub const REHEARSAL_MS: u64 = 30_000;

// All bounded parts fit: mostly the changesets, with JSON escapes.
const _: () = assert!(
    CHANGESETS_MAX * 2 * (DETAIL_BYTES_MAX + SUMMARY_FILES_MAX * PATH_BYTES_MAX)
        < CURSOR_BYTES_MAX / 2
);
const _: () = assert!(UNDECIDED_CHANGESETS_MAX < CHANGESETS_MAX);
