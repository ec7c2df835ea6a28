//! Limits and intervals of the daemon's shell.

use goondan_protocol::limits::MAX_FRAME_BYTES;

/// Number of an agent's latest turns whose traces its log lines can have, because a line may be
/// read after its turn.
pub(crate) const AGENT_TRACES_REMEMBERED: usize = 64;

/// Interval of measurements of available descriptors, processes and memory, in ticks.
pub(crate) const TICKS_OF_MEASURE: u64 = 2;
/// Maximum part of the file descriptors that the store keeps for open conversations: one in this
/// number.
pub(crate) const STORE_DESCRIPTORS_PART: u64 = 8;

/// Maximum number of lines in a metrics snapshot (`OBS-3`). The rest is combined as `other`.
pub(crate) const METRIC_LINES_MAX: usize = 2_000;
/// Number of the lines that are reserved for `other`.
pub(crate) const METRIC_LINES_OF_OTHERS: usize = 400;
/// Maximum number of lines of one metric, without `other`.
pub(crate) const METRIC_LINES_EACH_MAX: usize = 400;
const _: () = assert!(METRIC_LINES_OF_OTHERS + METRIC_LINES_EACH_MAX <= METRIC_LINES_MAX);

/// Time without a change after which the files of a watched project are read again, in
/// milliseconds, because a person may save several files, and a switch of branches changes many
/// (`SUP-8`).
pub(crate) const WATCH_QUIET_MS: u64 = 100;
/// Maximum wait for this time without a change, in milliseconds; then the files are read anyway.
pub(crate) const WATCH_QUIET_MAX_MS: u64 = 2_000;
/// Interval of comparisons of a watched project's files where the system cannot report changes, in
/// milliseconds.
pub(crate) const WATCH_POLL_MS: u64 = 5_000;
/// Interval of comparisons where the system can report changes, in milliseconds, because some file
/// systems do not report changes by other machines.
pub(crate) const WATCH_LOOK_MS: u64 = 60_000;

/// Pause between two scans of the processes for watchers, as a multiple of the scan's duration.
pub(crate) const PROCESS_LOOK_REST_FACTOR: u32 = 10;
/// One in this many scans also reads the memory of all processes: at most one in a tick
/// (`goondan_core::limits::TICK_MS`).
pub(crate) const PROCESS_LOOKS_OF_MEMORY: u64 = 4;

/// Interval of checks that the control socket's file still exists, in milliseconds.
pub(crate) const SOCKET_LOOK_MS: u64 = 1_000;

/// Maximum number of frames that wait for one child. A child that does not read them is hung, and
/// is killed.
pub(crate) const CHILD_QUEUE_FRAMES: usize = 1_024;

/// Maximum number of a child's messages that are handed to the core in one batch.
pub(crate) const CHILD_BATCH_MESSAGES: usize = 16;

/// Maximum number of batches of one child that wait for the core. Reading from the child pauses at
/// this number, so that all children take turns (`SEC-8`).
pub(crate) const CHILD_BATCHES_WAITING: usize = 2;

/// Maximum size of the unfinished frames of all children, in bytes (`SEC-8`). A child whose frame
/// exceeds it is killed.
pub(crate) const CHILD_FRAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum size of the unfinished frames of all control connections, in bytes (`SEC-8`). A
/// connection whose frame exceeds it is closed.
pub(crate) const CONTROL_FRAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of a frame that counts toward neither limit, in bytes.
pub(crate) const FRAME_UNCOUNTED_BYTES: usize = 64 * 1024;

/// Maximum number of inputs that wait for the core. Further senders wait.
pub(crate) const CORE_QUEUE_INPUTS: usize = 1_024;

/// Maximum number of events that are handled before the resulting jobs are sent to the store.
pub(crate) const SUPERVISOR_BATCH_EVENTS: usize = 64;

/// Maximum number of greeted control connections without a waiting request. Beyond it, a connection
/// replaces the longest idle one; if each has an open request, it gets a reserved place. One client
/// can use half of the places. At most an eighth of the daemon's file descriptor limit.
pub(crate) const CONTROL_CONNECTIONS: usize = 64;
/// Places reserved in addition: for requests that make a decision, show pending decisions, or
/// administer the daemon. Other requests there, and further connections, are refused as
/// `overloaded`. At most a thirty-second of the daemon's file descriptor limit.
pub(crate) const CONTROL_CONNECTIONS_RESERVED: usize = 16;
/// Maximum number of control connections with a waiting request: for an answer, a restart, a login,
/// or the next event. Further such requests are refused as `overloaded`; other requests are not.
/// One client can use half of the places. At most an eighth of the daemon's file descriptor limit.
pub(crate) const WAITING_CONNECTIONS: usize = 256;
/// Maximum number of open requests of one control connection; further ones are refused as
/// `overloaded`.
pub(crate) const CONTROL_REQUESTS_OPEN: usize = 128;
/// Maximum number of control connections that have not greeted yet. Beyond it, a connection
/// replaces the longest silent one. At most a sixteenth of the daemon's file descriptor limit.
pub(crate) const UNGREETED_CONNECTIONS: usize = 32;
/// Timeout of a client's greeting, in milliseconds; then its connection ends.
pub(crate) const GREETING_TIMEOUT_MS: u64 = 10_000;
/// Pause after a control connection could not be accepted, in milliseconds; it doubles with each further
/// failure up to [`ACCEPT_PAUSE_MAX_MS`].
pub(crate) const ACCEPT_PAUSE_FIRST_MS: u64 = 20;
/// Longest pause after a failed accept, in milliseconds.
pub(crate) const ACCEPT_PAUSE_MAX_MS: u64 = 1_000;
/// Minimum interval of log lines about such failures, in milliseconds.
pub(crate) const ACCEPT_WARNING_INTERVAL_MS: u64 = 60_000;
/// Maximum number of frames that wait for one client. A client that does not read them is
/// disconnected.
pub(crate) const CLIENT_QUEUE_FRAMES: usize = 1_024;

/// Maximum number of log lines that wait for stdout or the log files; further lines are dropped and
/// counted (`LOG-3`).
pub(crate) const LOG_QUEUE_LINES: usize = 16_384;
/// Maximum size of log lines that are written with one call, in bytes.
pub(crate) const LOG_WRITE_BYTES: usize = 64 * 1024;
/// Pause of the log after it has written all waiting lines, in milliseconds, so that lines are
/// written together.
pub(crate) const LOG_PAUSE_MS: u64 = 2;
/// Log lines kept in memory for `gdn logs`.
pub(crate) const LOG_TAIL_LINES: usize = 2_000;
/// Bytes of log lines kept in memory for `gdn logs`.
pub(crate) const LOG_TAIL_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of log lines that a following client may be behind; older ones are dropped and
/// counted.
pub(crate) const LOG_FOLLOW_LINES: usize = 4_096;

/// Timeout of git's check of a patch, in milliseconds, in addition to [`GIT_TIMEOUT_MS_PER_MIB`]. A
/// patch whose check takes longer is not accepted.
pub(crate) const GIT_TIMEOUT_MS: u64 = 60_000;

/// Additional timeout for each MiB of the patch, in milliseconds: it is inflated, applied and
/// hashed.
pub(crate) const GIT_TIMEOUT_MS_PER_MIB: u64 = 500;

/// Timeout of git's copy of a project's repository for a task, in milliseconds.
pub(crate) const GIT_COPY_TIMEOUT_MS: u64 = 600_000;

/// Longest time in seconds in which a transfer of git makes no progress.
pub(crate) const GIT_STALL_TIMEOUT_S: u64 = 60;

/// Timeout of a client that waits until this node owns a workspace, in milliseconds: the maximum
/// duration of a takeover.
pub(crate) const ACQUIRE_TIMEOUT_MS: u64 = 15_000;
/// Maximum number of checks that the log has all changes of a workspace before its release is
/// canceled.
pub(crate) const RELEASE_TRIES: u32 = 10;
/// Pause between two checks before a release, in milliseconds, in which writes in progress can end.
pub(crate) const RELEASE_PAUSE_MS: u64 = 50;
/// Maximum wait of the daemon's shutdown for a log that does not answer, in milliseconds.
pub(crate) const REPLICATION_STOP_MS: u64 = 5_000;
/// Timeout for writing or reading one part of a snapshot, in milliseconds; then the snapshot is
/// abandoned.
pub(crate) const SNAPSHOT_PART_TIMEOUT_MS: u64 = 60_000;
/// Delay before a part of a snapshot is offered or requested again, in milliseconds.
pub(crate) const SNAPSHOT_PART_PAUSE_MS: u64 = 500;
/// Delay of a restart of goondan-replica, in milliseconds; it doubles with each further failed
/// start, up to [`REPLICA_RESTART_MAX_MS`].
pub(crate) const REPLICA_RESTART_FIRST_MS: u64 = 100;
/// Longest delay of a restart of goondan-replica, in milliseconds.
pub(crate) const REPLICA_RESTART_MAX_MS: u64 = 5_000;
/// Interval of checks that this node could run the workspaces that it follows, in milliseconds.
pub(crate) const FITNESS_LOOK_MS: u64 = 2_000;
/// Maximum age of facts about this machine in fitness checks, in milliseconds: the kernel's
/// confinement rights, and the node version for modules.
pub(crate) const FITNESS_MACHINE_MS: u64 = 60_000;
/// Delay before a workspace that cannot be loaded here is moved again to a node that could run it,
/// in milliseconds.
pub(crate) const HAND_ON_PAUSE_MS: u64 = 30_000;
/// Time for which a node that failed to load a workspace does not take it over, even if no
/// requirement is missing, in milliseconds.
pub(crate) const NOT_LOADED_MS: u64 = 600_000;
/// Interval of checks for a changed URL of the log's server in `config.json`, in milliseconds.
pub(crate) const REPLICA_CONFIG_LOOK_MS: u64 = 2_000;
/// Time without confirmation by a log before users are notified that nothing is acknowledged, in
/// milliseconds.
pub(crate) const UNACKNOWLEDGED_TOLD_MS: u64 = 3_000;
/// Interval of checks that logs confirm requests, in milliseconds.
pub(crate) const UNACKNOWLEDGED_LOOK_MS: u64 = 500;

pub(crate) const WRITER_THREADS: usize = 4;

const _: () = assert!(MAX_FRAME_BYTES <= CONTROL_FRAMES_BYTES_MAX);
const _: () = assert!(MAX_FRAME_BYTES <= CHILD_FRAMES_BYTES_MAX);
const _: () = assert!(ACCEPT_PAUSE_FIRST_MS < ACCEPT_PAUSE_MAX_MS);
const _: () = assert!(REPLICA_RESTART_FIRST_MS < REPLICA_RESTART_MAX_MS);
const _: () = assert!(WATCH_QUIET_MS < WATCH_QUIET_MAX_MS);
const _: () = assert!(WATCH_POLL_MS < WATCH_LOOK_MS);

/// Maximum number of open work areas of tasks. Each needs a descriptor.
pub(crate) const TASK_AREAS_OPEN_MAX: usize = 64;
/// Maximum size of a task's log, in bytes; further output is dropped, which the log reports.
pub(crate) const TASK_LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum size of a file of a task's stream, in bytes. There are two: the older one is replaced when the current one is
/// full.
pub(crate) const TASK_STREAM_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum size of a part of a task's stream in one answer, in bytes.
pub(crate) const TASK_STREAM_PART_BYTES: usize = 256 * 1024;
/// Maximum size of a part of a task's log in one answer, in bytes.
pub(crate) const TASK_LOG_PART_BYTES: usize = 64 * 1024;
/// Maximum number of backups of removed tasks with one id; then a task can only be removed without
/// a backup.
pub(crate) const TASK_BACKUPS_OF_ONE_ID_MAX: usize = 1000;

/// Size of all joint checkpoints of a conversation, in bytes, beyond which the oldest are removed;
/// never the newest, and none with a name.
pub(crate) const JOINT_CHECKPOINT_BYTES_KEPT: u64 = 2 * 1024 * 1024 * 1024;
/// Maximum number of removed messages that a rewind lists individually; the others are counted.
pub(crate) const REWIND_MESSAGES_TOLD: usize = 50;
