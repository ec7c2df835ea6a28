//! What there may be of anything. `docs/limits.md` has the table.

/// Changesets of a conversation that are remembered; older ones are in the log alone.
pub const CHANGESETS_MAX: usize = 100;

/// Changesets of a conversation that may be open or wait at once.
pub const UNDECIDED_CHANGESETS_MAX: usize = 10;

/// Digests of a conversation that are refused at most; the oldest are forgotten first.
pub const QUARANTINED_MAX: usize = 100;

/// Files of a configuration.
pub const FILES_MAX: usize = 1_000;

/// Bytes of all files of a configuration.
pub const TREE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a diff that is told of.
pub const DIFF_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the path of a file in it.
pub const PATH_BYTES_MAX: usize = 512;

/// Bytes of the file that says how a bundle stands. What would make it larger is not done.
pub const CURSOR_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that are kept of why a changeset stands as it does.
pub const DETAIL_BYTES_MAX: usize = 8_000;

/// Files that are named in the summary of a changeset.
pub const SUMMARY_FILES_MAX: usize = 20;

/// Bytes of a text that somebody says: what a changeset is for, why it is turned down.
pub const TEXT_BYTES_MAX: usize = 2_000;

/// Turns that a revision has to complete to prove itself.
pub const PROBATION_TURNS: u32 = 3;

/// Or so long, in milliseconds, with a turn completed after it.
pub const PROBATION_MS: u64 = 10 * 60 * 1_000;

/// Failures after which a revision is taken back.
pub const PROBATION_FAILURES_MAX: u32 = 2;

/// How long a module in JavaScript or TypeScript may take to be loaded before it counts, in milliseconds.
pub const MODULE_LOAD_MS: u64 = 15_000;

/// How long a module that is a program of its own has to go on before it counts, in milliseconds.
pub const MODULE_STAY_MS: u64 = 2_000;

/// How long all modules of a configuration may take to be started before it counts, in milliseconds. Shorter than
/// clients wait.
pub const GATE_MS: u64 = 40_000;

/// Turns that are rehearsed at most.
pub const REHEARSAL_TURNS_MAX: u32 = 100;

/// Bytes of a conversation, from its end, that a rehearsal looks at.
pub const REHEARSAL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long the turns of a rehearsal may take to be played, in milliseconds. Nobody is asked and nothing runs, so
/// that they take a fraction of it.
pub const REHEARSAL_MS: u64 = 30_000;

// What is bounded by itself always fits: the changesets above all, with their JSON escaped once.
const _: () = assert!(
    CHANGESETS_MAX * 2 * (DETAIL_BYTES_MAX + SUMMARY_FILES_MAX * PATH_BYTES_MAX)
        < CURSOR_BYTES_MAX / 2
);
const _: () = assert!(UNDECIDED_CHANGESETS_MAX < CHANGESETS_MAX);
