//! Limits and intervals of replication.

/// Most bytes of a record, encoded: three of them fit into a frame.
pub const RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most file operations of a record.
pub const RECORD_OPERATIONS_MAX: usize = 16_384;
/// Most bytes of a file that one operation appends; a longer append is several operations.
pub const APPEND_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of a path, relative to the workspace's directory.
pub const PATH_BYTES_MAX: usize = 1_024;
/// Most bytes of one name within a path: what file systems allow.
pub const PATH_NAME_BYTES_MAX: usize = 255;
/// Most bytes of a node's name.
pub const NODE_BYTES_MAX: usize = 64;
/// Most nodes that a workspace is placed on.
pub const NODES_MAX: usize = 64;
/// Most bytes of the name under which a snapshot is kept.
pub const REFERENCE_BYTES_MAX: usize = 512;

/// Bytes of batches that wait for the log from which on no further one is begun.
pub const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Batches that wait for the log from which on no further one is begun.
pub const QUEUED_BATCHES_MAX: usize = 4_096;
/// Acknowledged records that an owner keeps, to append them again if a fail-over of the log's server loses its tail.
pub const KEPT_RECORDS_MAX: usize = 1_024;
/// Bytes of those records.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long an answer of the log is waited for before it counts as lost, in milliseconds.
pub const ANSWER_DEADLINE_MS: u64 = 3_000;
/// First wait before the log is asked again after it could not be reached, in milliseconds; each further one doubles.
pub const RETRY_FIRST_MS: u64 = 50;
/// Longest of those waits, in milliseconds.
pub const RETRY_MAX_MS: u64 = 2_000;
/// How often an owner lets itself be heard, in milliseconds.
pub const HEARTBEAT_MS: u64 = 1_000;
/// Silence of an owner after which the first standby tries to take over, in milliseconds.
pub const TAKE_OVER_AFTER_MS: u64 = 5_000;
/// How long others wait for the node that a workspace was given up to while that node is heard, in milliseconds: it checks
/// its files before it takes them. One that is not heard is waited for as long as an owner.
pub const TAKEN_WITHIN_MS: u64 = 30_000;
/// How much longer each further standby waits, in milliseconds, so that they do not all try at once.
pub const TAKE_OVER_STEP_MS: u64 = 1_000;
/// How long a batch that nobody waits for waits for one to go with, in milliseconds.
pub const UNAWAITED_MS: u64 = 20;
/// How often a standby that is told of nothing asks the log for new records, in milliseconds.
pub const POLL_MS: u64 = 500;
/// Records that are read at once.
pub const READ_RECORDS_MAX: usize = 256;
/// Bytes of records that are read at once; one record is read whatever its size.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often a node asks how far the logs are written, and who was heard of them, in milliseconds.
pub const HEADS_MS: u64 = 500;
/// How often a node asks which workspaces have a log, in milliseconds.
pub const LIST_MS: u64 = 5_000;
/// How often a node that owns a workspace and writes nothing makes a commit to find out whether the log's server confirms
/// any, in milliseconds.
pub const PROBE_MS: u64 = 5_000;
/// Silence of a node after which it is none of those that workspaces are placed on, in milliseconds.
pub const NODE_GONE_AFTER_MS: u64 = 15_000;
/// How far a node may be behind to be a good one to move a workspace to, in records; one that is further is far behind.
pub const NEAR_RECORDS: u64 = 1_000;
/// How often it is noted durably how far a log has been followed, in milliseconds.
pub const NOTE_MS: u64 = 1_000;
/// The same for a node that is far behind: what it follows meanwhile would be followed again.
pub const NOTE_BEHIND_MS: u64 = 10_000;
/// How long a node leaves a workspace alone when its disk has failed, in milliseconds; then it begins anew. Longer than
/// another node needs to take the workspace over.
pub const LEFT_MS: u64 = 15_000;

/// Workspaces whose heads are asked for, or whose heartbeats are published, at once.
pub const HEADS_MAX: usize = 256;
/// Most bytes of one part of a snapshot.
pub const PART_BYTES_MAX: usize = RECORD_BYTES_MAX;
/// Most bytes of what stands in a frame before records: 256 workspaces, each with what 64 nodes say.
pub const HEAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Records since the last snapshot after which the next is due.
pub const SNAPSHOT_RECORDS: u64 = 100_000;
/// Bytes of records since the last snapshot after which the next is due.
pub const SNAPSHOT_BYTES: u64 = 256 * 1024 * 1024;
/// How long it takes until a snapshot is tried again that failed, in milliseconds.
pub const SNAPSHOT_RETRY_MS: u64 = 60_000;
/// How far a standby may be behind for the log to be kept for it, in records; one further behind takes a snapshot.
pub const KEPT_FOR_STANDBY_RECORDS: u64 = 200_000;

const _: () = assert!(APPEND_BYTES_MAX + 2 * PATH_BYTES_MAX < RECORD_BYTES_MAX / 2);
const _: () = assert!(2 * RECORD_BYTES_MAX <= READ_BYTES_MAX);
const _: () = assert!(READ_BYTES_MAX + HEAD_BYTES_MAX < goondan_protocol::limits::MAX_FRAME_BYTES);
// A beat of one node is some 250 bytes of JSON.
const _: () = assert!(HEADS_MAX * NODES_MAX * 250 <= HEAD_BYTES_MAX);
const _: () = assert!(RETRY_FIRST_MS <= RETRY_MAX_MS);
const _: () = assert!(2 * HEARTBEAT_MS < TAKE_OVER_AFTER_MS);
const _: () = assert!(TAKE_OVER_AFTER_MS < TAKEN_WITHIN_MS);
const _: () = assert!(TAKE_OVER_AFTER_MS + ANSWER_DEADLINE_MS + POLL_MS < 10_000);
