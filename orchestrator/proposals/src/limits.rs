//! The limits of sandboxes and proposals.

/// Files, directories and links of one sandbox at most.
pub const SANDBOX_ENTRIES_MAX: usize = 20_000;
/// Bytes of all files of one sandbox at most.
pub const SANDBOX_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum number of listed paths that were not given, or that were left out.
pub const LEFT_OUT_MAX: usize = 1_000;
/// Bytes of `summary.md` at most, and of notes and reasons.
pub const SUMMARY_BYTES_MAX: usize = 256 * 1024;
/// Maximum size of the stored end of `test.log`, in bytes.
pub const TEST_LOG_BYTES_MAX: usize = 1024 * 1024;
/// Comments that one sandbox can have, removed ones included.
pub const COMMENTS_MAX: usize = 500;
/// Comments on one proposal that wait to be sent to its agent.
pub const COMMENTS_OPEN_MAX: usize = 50;
/// Bytes of a comment.
pub const COMMENT_BYTES_MAX: usize = 2 * 1024;
/// Stored characters of the line that a comment is about.
pub const COMMENT_LINE_CHARS_MAX: usize = 200;
/// Bytes of a file whose lines can be commented on.
pub const COMMENTED_FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Room for the line that says that the beginning of a text is missing.
pub(crate) const CUT_LINE_BYTES: usize = 200;
/// Bytes of a record (`sandbox.json`, `proposal.json`) at most.
pub const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a patch in one answer.
pub const DIFF_PART_BYTES: usize = 512 * 1024;
/// Maximum number of reasons in an error message; a check lists all.
pub const REFUSALS_TOLD_MAX: usize = 20;
/// Maximum number of files of one tree that a verification lists individually.
pub const TREE_FINDINGS_MAX: usize = 100;
/// Merged proposals of one worker that are named after it at most.
pub const MERGED_NAMES_MAX: usize = 99;
/// Bytes of a file of git's that names a commit at most.
pub(crate) const GIT_REF_BYTES_MAX: usize = 64 * 1024;
/// Bytes of git's `packed-refs` at most.
pub(crate) const GIT_PACKED_REFS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a proposal that is packed for other nodes after which it is made durable as far as it is written.
pub(crate) const HANDED_ON_SYNC_BYTES: usize = 4 * 1024 * 1024;
/// Names that git's HEAD may lead through.
pub(crate) const GIT_SYMBOLIC_REFS_MAX: usize = 5;

/// Bytes of a `.gitignore` that are read.
pub(crate) const IGNORE_FILE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of lines in all of these files.
pub(crate) const IGNORE_LINES_MAX: usize = 20_000;

/// Bytes of the text of a commit, below its title. The message is one argument of git.
pub(crate) const COMMIT_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a task's summary in the pull request of the merge queue, which adds its own paragraph.
pub(crate) const QUEUED_SUMMARY_BYTES_MAX: usize = 32 * 1024;

/// Landings of the merge queue that can be reverted, the newest.
pub const LANDINGS_KEPT: usize = 20;
