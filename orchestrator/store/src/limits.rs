//! The store's own limits.

use goondan_durable::limits::READ_CHUNK_BYTES;

/// Instances one writer thread holds open at most, beside those with an open turn, of those that
/// processes work with; each takes seven file descriptors. The others are opened when they are needed.
pub const WRITER_OPEN_INSTANCES_MAX: usize = 128;
/// File descriptors that an open instance takes.
pub const INSTANCE_DESCRIPTORS: u64 = 7;

/// How long nobody has to need an open instance until its files are closed, in milliseconds. What is
/// done to it next opens it again, in less than a millisecond.
pub const INSTANCE_REST_DELAY_MS: u64 = 5_000;

/// Least time between two writes of one instance's `metadata.json`, in milliseconds. The file tells
/// people and scripts what the daemon knows; recovery does not depend on it.
pub const METADATA_INTERVAL_MS: u64 = 1_000;

/// How long a conversation has to be quiet until its base is made durable and its journal cleared, in
/// milliseconds. What the journal holds is durable before that.
pub const JOURNAL_CLEAR_DELAY_MS: u64 = 10;

/// Turns that are part of the base and still in the journal from which the base is made durable before
/// another begins. Opening a conversation after a crash does so many folds again at most.
pub const JOURNAL_FOLDED_TURNS: usize = 32;

/// Size of a journal with such turns from which the same is done, in bytes.
pub const JOURNAL_FOLDED_BYTES: u64 = 1024 * 1024;

/// Wait before a fold that failed is tried again, in milliseconds; it doubles with each failure up to
/// [`FOLD_RETRY_MAX_MS`] (`MSG-10`).
pub const FOLD_RETRY_MIN_MS: u64 = 1_000;

/// Longest wait before a fold that failed is tried again, in milliseconds.
pub const FOLD_RETRY_MAX_MS: u64 = 60_000;

/// Size of `inbox.jsonl` from which finished events are dropped from it, in bytes.
pub const INBOX_COMPACT_BYTES: u64 = 1024 * 1024;

/// Finished events an inbox remembers after it was compacted, so that a repeated event id is known
/// and gets its stored answer.
pub const INBOX_REMEMBERED_EVENTS: usize = 1_000;

/// Bytes of the note of a rewind that has begun, at most.
pub const REWIND_NOTE_BYTES_MAX: usize = 16 * 1024;

/// Rewinds that a conversation remembers. The audit log has them all.
pub const REWINDS_REMEMBERED: usize = 16;

/// Size of `usage.jsonl` from which sums take the place of its lines, in bytes.
pub const LEDGER_COMPACT_BYTES: u64 = 4 * 1024 * 1024;

/// Replies that keep a line of their own in `usage.jsonl` then, so that one that is handed in again is
/// known.
pub const LEDGER_REMEMBERED_REPLIES: usize = 1_000;

/// Growth of a workspace's `usage.jsonl` from which what is known of it is noted, in bytes. What is
/// missing behind the last note goes unnoticed.
pub const LEDGER_NOTE_BYTES: u64 = 16 * 1024;

/// Lines whose checksums share one record of `base.sums.jsonl`. A record stays far smaller than
/// [`READ_CHUNK_BYTES`], so that the last one is found by reading the file's end.
pub const SUMS_RECORD_LINES: usize = 512;

/// Answered events that one record of `base.sums.jsonl` names.
pub const SUMS_RECORD_ANSWERS: usize = 32;

/// Messages one archive of a conversation may hold: importing remembers the id of each.
pub const ARCHIVE_MESSAGES_MAX: u64 = 2_000_000;

/// Extensions whose state one archive of a conversation may hold.
pub const ARCHIVE_EXTENSIONS_MAX: u64 = 1_000;

/// Longest line of an archive, in bytes: the largest message, and room for what is around it.
pub const ARCHIVE_LINE_BYTES_MAX: usize = 8 * 1024 * 1024 + 64 * 1024;

/// Bytes of an archive that one part of an export hands out at most. Written as a JSON text they
/// may take twice as many.
pub const EXPORT_PART_BYTES: usize = 6 * 1024 * 1024;

/// Largest configuration that is kept to fall back to, in bytes.
pub const CONFIGURATION_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Instances that are looked through for a trace, the latest first.
pub const TRACE_INSTANCES_MAX: usize = 500;

/// Bytes that are looked through of each instance's runtime events for a trace, from the end.
pub const TRACE_FILE_BYTES: usize = 4 * 1024 * 1024;

/// A file of runtime events or of messages of models this long is compressed, in bytes.
pub const OBSERVATION_SEGMENT_BYTES: u64 = 1024 * 1024;

/// Largest such segment that is read, in bytes, compressed or not. One holds at most the last batch more
/// than its share.
pub const OBSERVATION_SEGMENT_READ_BYTES: usize = 64 * 1024 * 1024;

const _: () = assert!(
    SUMS_RECORD_LINES * 32
        + SUMS_RECORD_ANSWERS * (2 * goondan_protocol::limits::MAX_ID_BYTES + 64)
        < READ_CHUNK_BYTES / 4
);
const _: () = assert!(ARCHIVE_LINE_BYTES_MAX > goondan_protocol::limits::MAX_MESSAGE_BYTES + 1024);
const _: () = assert!(EXPORT_PART_BYTES * 5 / 2 < goondan_protocol::limits::MAX_FRAME_BYTES);
