//! Limits and intervals of the daemon's shell.

use goondan_protocol::limits::MAX_FRAME_BYTES;

/// Traces of an agent's latest turns that its log lines may name: one may be read after its turn.
pub(crate) const AGENT_TRACES_REMEMBERED: usize = 64;

/// Interval of measurements of available descriptors, processes and memory, in ticks.
pub(crate) const TICKS_OF_MEASURE: u64 = 2;
/// Part of the file descriptors that the store keeps for open conversations at most: one in so many.
pub(crate) const STORE_DESCRIPTORS_PART: u64 = 8;

/// Maximum number of lines in a metrics snapshot (`OBS-3`). The rest is combined as `other`.
pub(crate) const METRIC_LINES_MAX: usize = 2_000;
/// Number of these lines that are reserved for `other`.
pub(crate) const METRIC_LINES_OF_OTHERS: usize = 400;
/// Maximum number of lines of one metric, without `other`.
pub(crate) const METRIC_LINES_EACH_MAX: usize = 400;
const _: () = assert!(METRIC_LINES_OF_OTHERS + METRIC_LINES_EACH_MAX <= METRIC_LINES_MAX);

/// Time without a change after which the files of a watched project are read again, in milliseconds:
/// who saves changes several, who switches a branch many (`SUP-8`).
pub(crate) const WATCH_QUIET_MS: u64 = 100;
/// Longest wait for that, in milliseconds: files that never rest are read nevertheless.
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

/// Frames that may wait for one child. A child that does not read them is not working: it is killed.
pub(crate) const CHILD_QUEUE_FRAMES: usize = 1_024;

/// Maximum number of a child's messages that are handed to the core in one batch.
pub(crate) const CHILD_BATCH_MESSAGES: usize = 16;

/// Maximum number of batches of one child that wait for the core. Reading from the child pauses at
/// this number, so that all children take turns (`SEC-8`).
pub(crate) const CHILD_BATCHES_WAITING: usize = 2;

/// Bytes that unfinished frames of all children may hold together (`SEC-8`). A child whose frame finds no
/// room is killed.
pub(crate) const CHILD_FRAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes that unfinished frames of all control connections may hold together (`SEC-8`). A connection whose
/// frame finds no room is closed.
pub(crate) const CONTROL_FRAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest frame that counts towards neither, in bytes.
pub(crate) const FRAME_UNCOUNTED_BYTES: usize = 64 * 1024;

/// Maximum number of inputs that wait for the core. Further senders wait.
pub(crate) const CORE_QUEUE_INPUTS: usize = 1_024;

/// Maximum number of events that are handled before the resulting jobs are sent to the store.
pub(crate) const SUPERVISOR_BATCH_EVENTS: usize = 64;

/// Maximum number of greeted control connections without a waiting request. One more replaces the
/// one that has been idle for longest; if each has an open request, it gets a reserved place. One
/// client can use half of them. At most an eighth of the daemon's file descriptor limit.
pub(crate) const CONTROL_CONNECTIONS: usize = 64;
/// Reserved places beside these: for requests that decide something, show what waits for a decision, or administer
/// the daemon. Another request there, and another connection, is refused as `overloaded`. A thirty-second of the file
/// descriptors the daemon may have, if that is less.
pub(crate) const CONTROL_CONNECTIONS_RESERVED: usize = 16;
/// Maximum number of control connections with a waiting request: for an answer, a restart, a login,
/// or the next event. One more such request is refused as `overloaded`; other requests are not. One
/// client can use half of them. At most an eighth of the daemon's file descriptor limit.
pub(crate) const WAITING_CONNECTIONS: usize = 256;
/// Requests that one control connection may have open. One more is refused as `overloaded`.
pub(crate) const CONTROL_REQUESTS_OPEN: usize = 128;
/// Control connections at a time that have not greeted yet. One more takes the place of the one that has
/// been silent for longest. A sixteenth of the file descriptors the daemon may have, if that is less.
pub(crate) const UNGREETED_CONNECTIONS: usize = 32;
/// Time a client has from its connection to its greeting, in milliseconds. Then its connection ends.
pub(crate) const GREETING_TIMEOUT_MS: u64 = 10_000;
/// Pause after a control connection could not be accepted, in milliseconds; it doubles with each further
/// failure up to [`ACCEPT_PAUSE_MAX_MS`].
pub(crate) const ACCEPT_PAUSE_FIRST_MS: u64 = 20;
/// Longest such pause, in milliseconds.
pub(crate) const ACCEPT_PAUSE_MAX_MS: u64 = 1_000;
/// Minimum interval of log lines about such failures, in milliseconds.
pub(crate) const ACCEPT_WARNING_INTERVAL_MS: u64 = 60_000;
/// Frames that may wait for one client. A client that does not read them is cut off.
pub(crate) const CLIENT_QUEUE_FRAMES: usize = 1_024;

/// Log lines that may wait for stdout or the log files. One more is dropped and counted (`LOG-3`).
pub(crate) const LOG_QUEUE_LINES: usize = 16_384;
/// Bytes of log lines that are written with one call, if so many wait.
pub(crate) const LOG_WRITE_BYTES: usize = 64 * 1024;
/// Pause of the log after it wrote all that waited, in milliseconds, so that lines are written together.
pub(crate) const LOG_PAUSE_MS: u64 = 2;
/// Log lines kept in memory for `gdn logs`.
pub(crate) const LOG_TAIL_LINES: usize = 2_000;
/// Bytes of log lines kept in memory for `gdn logs`.
pub(crate) const LOG_TAIL_BYTES: usize = 4 * 1024 * 1024;
/// Log lines a following client may be behind. Older ones are dropped for it and counted.
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
/// Maximum number of checks that the log has all of a workspace before its release is canceled.
pub(crate) const RELEASE_TRIES: u32 = 10;
/// Pause between two of these checks, in milliseconds: a write that is still in progress ends.
pub(crate) const RELEASE_PAUSE_MS: u64 = 50;
/// Maximum wait of the daemon's shutdown for a log that does not answer, in milliseconds.
pub(crate) const REPLICATION_STOP_MS: u64 = 5_000;
/// Timeout for writing or reading one part of a snapshot, in milliseconds; then the snapshot is
/// abandoned.
pub(crate) const SNAPSHOT_PART_TIMEOUT_MS: u64 = 60_000;
/// Pause before a part of a snapshot is offered or asked for again, in milliseconds.
pub(crate) const SNAPSHOT_PART_PAUSE_MS: u64 = 500;
/// Pause before goondan-replica is started again, in milliseconds; it doubles with each further end that follows its
/// start up to [`REPLICA_RESTART_MAX_MS`].
pub(crate) const REPLICA_RESTART_FIRST_MS: u64 = 100;
/// Longest such pause, in milliseconds.
pub(crate) const REPLICA_RESTART_MAX_MS: u64 = 5_000;
/// Interval of checks that this node could run the workspaces that it follows, in milliseconds.
pub(crate) const FITNESS_LOOK_MS: u64 = 2_000;
/// Maximum age of facts about this machine in these checks, in milliseconds: the kernel's
/// confinement rights, and the node version for modules.
pub(crate) const FITNESS_MACHINE_MS: u64 = 60_000;
/// Pause before a workspace that cannot be loaded here is handed on again to a node that could run it, in milliseconds.
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

/// Work areas of tasks that are open at one time; each takes a descriptor.
pub(crate) const TASK_AREAS_OPEN_MAX: usize = 64;
/// Maximum size of a task's log, in bytes; further output is dropped, which the log reports.
pub(crate) const TASK_LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum size of a file of a task's stream, in bytes. There are two: the older one is replaced when the current one is
/// full.
pub(crate) const TASK_STREAM_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of a task's stream that one answer holds.
pub(crate) const TASK_STREAM_PART_BYTES: usize = 256 * 1024;
/// Bytes of a log of a task that one answer holds.
pub(crate) const TASK_LOG_PART_BYTES: usize = 64 * 1024;
/// Backups of removed tasks of one id; with more, one is removed without only.
pub(crate) const TASK_BACKUPS_OF_ONE_ID_MAX: usize = 1000;

/// Bytes of all joint checkpoints of a conversation from which the oldest go; never the newest, and none with a name.
pub(crate) const JOINT_CHECKPOINT_BYTES_KEPT: u64 = 2 * 1024 * 1024 * 1024;
/// Maximum number of removed messages that a rewind lists individually; the others are counted.
pub(crate) const REWIND_MESSAGES_TOLD: usize = 50;
