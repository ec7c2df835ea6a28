//! Limits and intervals of replication.

/// Maximum size of an encoded record, in bytes: three of them fit into a frame.
pub const RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of file operations in a record.
pub const RECORD_OPERATIONS_MAX: usize = 16_384;
/// Maximum number of bytes that one operation appends; a longer append becomes several operations.
pub const APPEND_BYTES_MAX: usize = 1024 * 1024;
/// Maximum length of a path relative to the workspace's directory, in bytes.
pub const PATH_BYTES_MAX: usize = 1_024;
/// Maximum length of one name within a path, in bytes: the limit of file systems.
pub const PATH_NAME_BYTES_MAX: usize = 255;
/// Maximum length of a node's name, in bytes.
pub const NODE_BYTES_MAX: usize = 64;
/// Maximum number of nodes on which a workspace is placed.
pub const NODES_MAX: usize = 64;
/// Maximum length of the name of a stored snapshot, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 512;

/// Size of the batches that wait for the log, in bytes, at which new ones must wait.
pub const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Number of batches that wait for the log at which new ones must wait.
pub const QUEUED_BATCHES_MAX: usize = 4_096;
/// Number of acknowledged records that an owner stores, to append them again if a fail-over of the
/// log's server loses its tail.
pub const KEPT_RECORDS_MAX: usize = 1_024;
/// Maximum size of the acknowledged records that an owner stores, in bytes.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Deadline of an answer of the log, in milliseconds. A later answer counts as lost.
pub const ANSWER_DEADLINE_MS: u64 = 3_000;
/// First delay before a request to the log is repeated after a failure, in milliseconds; each
/// further one doubles.
pub const RETRY_FIRST_MS: u64 = 50;
/// Maximum delay before a repeated request, in milliseconds.
pub const RETRY_MAX_MS: u64 = 2_000;
/// Interval of an owner's heartbeats, in milliseconds.
pub const HEARTBEAT_MS: u64 = 1_000;
/// Silence of an owner after which the first standby tries to take over, in milliseconds.
pub const TAKE_OVER_AFTER_MS: u64 = 5_000;
/// Maximum wait for the node to which a workspace was released, while that node sends heartbeats,
/// in milliseconds: it checks its files before it takes the workspace. Without heartbeats, the wait
/// is the same as for an owner.
pub const TAKEN_WITHIN_MS: u64 = 30_000;
/// Additional delay of each further standby, in milliseconds, so that they do not all try at the
/// same time.
pub const TAKE_OVER_STEP_MS: u64 = 1_000;
/// Maximum delay of a batch that no caller waits for, to combine it with others, in milliseconds.
pub const UNAWAITED_MS: u64 = 20;
/// Poll interval of a standby that gets no notifications, in milliseconds.
pub const POLL_MS: u64 = 500;
/// Maximum number of records in one read.
pub const READ_RECORDS_MAX: usize = 256;
/// Maximum size of the records in one read, in bytes; the first record is read regardless of its
/// size.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Interval of requests for the last positions of logs and the heartbeats of their nodes, in
/// milliseconds.
pub const HEADS_MS: u64 = 500;
/// Interval of requests for the list of workspaces that have a log, in milliseconds.
pub const LIST_MS: u64 = 5_000;
/// Interval of empty commits by which an idle owner checks if the log's server confirms commits, in
/// milliseconds.
pub const PROBE_MS: u64 = 5_000;
/// Silence after which a node is not considered for the placement of workspaces, in milliseconds.
pub const NODE_GONE_AFTER_MS: u64 = 15_000;
/// Maximum lag of a preferred node for a workspace, in records; a node beyond it is far behind.
pub const NEAR_RECORDS: u64 = 1_000;
/// Interval of durable notes of the applied position, in milliseconds.
pub const NOTE_MS: u64 = 1_000;
/// The same for a node that is far behind; after a crash, everything since the last note is applied
/// again.
pub const NOTE_BEHIND_MS: u64 = 10_000;
/// Pause of all work on a workspace after its disk failed, in milliseconds. Longer than a takeover
/// by another node.
pub const LEFT_MS: u64 = 15_000;

/// Maximum number of workspaces in one request for heads, or with heartbeats.
pub const HEADS_MAX: usize = 256;
/// Maximum size of one part of a snapshot, in bytes.
pub const PART_BYTES_MAX: usize = RECORD_BYTES_MAX;
/// Maximum size of a frame's head, in bytes: 256 workspaces, each with the heartbeats of 64 nodes.
pub const HEAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Records since the last snapshot after which the next is due.
pub const SNAPSHOT_RECORDS: u64 = 100_000;
/// Bytes of records since the last snapshot after which the next is due.
pub const SNAPSHOT_BYTES: u64 = 256 * 1024 * 1024;
/// Delay before a failed snapshot is retried, in milliseconds.
pub const SNAPSHOT_RETRY_MS: u64 = 60_000;
/// Maximum lag of a standby for which the log is kept, in records; a standby further behind uses a
/// snapshot.
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
