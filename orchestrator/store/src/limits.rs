//! Limits of the store.

use goondan_durable::limits::READ_CHUNK_BYTES;

/// Most instances one writer thread keeps open for running processes, in addition to those with an
/// open turn. Each takes seven file descriptors. The others are opened on demand.
pub const WRITER_OPEN_INSTANCES_MAX: usize = 128;
/// File descriptors that an open instance takes.
pub const INSTANCE_DESCRIPTORS: u64 = 7;

/// Idle time after which an open instance's files are closed, in milliseconds. The next operation
/// reopens it in less than a millisecond.
pub const INSTANCE_REST_DELAY_MS: u64 = 5_000;

/// Largest `schedules.json` of an instance, in bytes.
pub const SCHEDULES_BYTES_MAX: usize = 1024 * 1024;

/// Minimum time between two writes of one instance's `metadata.json`, in milliseconds. The file is
/// for users and scripts; recovery does not depend on it.
pub const METADATA_INTERVAL_MS: u64 = 1_000;

/// Delay after a sync before the manifest of an instance is updated, in milliseconds; clearing the
/// journal updates it immediately. The manifest is not synced, so a crash of the machine can lose
/// its latest seconds anyway.
pub const MANIFEST_NOTE_DELAY_MS: u64 = 100;

/// Quiet time of a conversation before its base is synced and its journal cleared, in milliseconds.
/// The journal's content is durable before that.
pub const JOURNAL_CLEAR_DELAY_MS: u64 = 10;

/// Folded turns in the journal that trigger a sync of the base before another turn begins. It
/// bounds the folds that opening a conversation repeats after a crash.
pub const JOURNAL_FOLDED_TURNS: usize = 32;

/// Size of a journal with folded turns that triggers the same sync, in bytes.
pub const JOURNAL_FOLDED_BYTES: u64 = 1024 * 1024;

/// Delay before a failed fold is retried, in milliseconds; it doubles with each failure up to
/// [`FOLD_RETRY_MAX_MS`] (`MSG-10`).
pub const FOLD_RETRY_MIN_MS: u64 = 1_000;

/// Longest delay before a failed fold is retried, in milliseconds.
pub const FOLD_RETRY_MAX_MS: u64 = 60_000;

/// Size of `inbox.jsonl` that triggers dropping finished events from it, in bytes.
pub const INBOX_COMPACT_BYTES: u64 = 1024 * 1024;

/// Largest total size of the finished events that an inbox keeps with their contents after
/// compaction, in bytes.
pub const INBOX_KEPT_EVENT_BYTES: u64 = 512 * 1024;

/// Events that a list of an inbox contains: the latest.
pub const INBOX_LISTED_EVENTS: usize = 50;

/// Finished events that an inbox keeps after compaction, so that a repeated event id gets its
/// stored answer.
pub const INBOX_REMEMBERED_EVENTS: usize = 1_000;

/// Largest note of a rewind in progress, in bytes.
pub const REWIND_NOTE_BYTES_MAX: usize = 16 * 1024;

/// Rewinds kept in a conversation's metadata. The audit log keeps every rewind.
pub const REWINDS_REMEMBERED: usize = 16;

/// Size of `usage.jsonl` that triggers compaction to sums, in bytes.
pub const LEDGER_COMPACT_BYTES: u64 = 4 * 1024 * 1024;

/// Replies that keep a line of their own in `usage.jsonl` after compaction, so that a resubmitted
/// reply is recognized.
pub const LEDGER_REMEMBERED_REPLIES: usize = 1_000;

/// Growth of a workspace's `usage.jsonl` after which its manifest is updated, in bytes. A loss
/// after the last manifest update goes unnoticed.
pub const LEDGER_NOTE_BYTES: u64 = 16 * 1024;

/// Lines whose checksums share one record of `base.sums.jsonl`. A record stays far smaller than
/// [`READ_CHUNK_BYTES`], so that reading the file's end finds the last record.
pub const SUMS_RECORD_LINES: usize = 512;

/// Most answered events named by one record of `base.sums.jsonl`.
pub const SUMS_RECORD_ANSWERS: usize = 32;

/// Most messages in one archive of a conversation, because importing keeps the id of each in
/// memory.
pub const ARCHIVE_MESSAGES_MAX: u64 = 2_000_000;

/// Most extension states in one archive of a conversation.
pub const ARCHIVE_EXTENSIONS_MAX: u64 = 1_000;

/// Longest line of an archive, in bytes: the largest message plus its envelope.
pub const ARCHIVE_LINE_BYTES_MAX: usize = 8 * 1024 * 1024 + 64 * 1024;

/// Most bytes of an archive in one part of an export. As JSON text they may take twice as many.
pub const EXPORT_PART_BYTES: usize = 6 * 1024 * 1024;

/// Largest configuration that is kept as a fallback, in bytes.
pub const CONFIGURATION_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Instances searched for a trace, newest first.
pub const TRACE_INSTANCES_MAX: usize = 500;

/// Bytes of each instance's runtime events searched for a trace, from the end.
pub const TRACE_FILE_BYTES: usize = 4 * 1024 * 1024;

/// Size at which a file of runtime events or model messages is compressed, in bytes.
pub const OBSERVATION_SEGMENT_BYTES: u64 = 1024 * 1024;

/// Largest such segment that is read, in bytes, compressed or not. A segment exceeds its target
/// size by at most the last batch.
pub const OBSERVATION_SEGMENT_READ_BYTES: usize = 64 * 1024 * 1024;

const _: () = assert!(
    SUMS_RECORD_LINES * 32
        + SUMS_RECORD_ANSWERS * (2 * goondan_protocol::limits::MAX_ID_BYTES + 64)
        < READ_CHUNK_BYTES / 4
);
const _: () = assert!(ARCHIVE_LINE_BYTES_MAX > goondan_protocol::limits::MAX_MESSAGE_BYTES + 1024);
const _: () = assert!(EXPORT_PART_BYTES * 5 / 2 < goondan_protocol::limits::MAX_FRAME_BYTES);
