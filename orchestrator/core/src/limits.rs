//! Limits and intervals of the core.

use goondan_protocol::limits::{
    MAX_INPUT_BYTES, MAX_MESSAGE_BYTES, MAX_PENDING_EVENTS_PER_INSTANCE,
    MAX_QUESTIONS_PER_CONNECTION, PAUSE_LOOK_MS,
};

/// Most bytes that a request of an agent says beside its input, as JSON.
pub const REQUEST_NOTE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of a connection event's properties that are stored with it.
pub const KEPT_PROPERTIES_MAX: usize = 64;

/// Longest name or text of such a property, in bytes.
pub const KEPT_PROPERTY_BYTES_MAX: usize = 1024;

/// Maximum number of parts of joins that wait in one conversation; more are refused as `overloaded`,
/// so that other events still have room in its queue.
pub const JOIN_PARTS_WAITING_MAX: usize = 500;

/// Maximum number of events of one set of a join. A further event ends the set, which is delivered
/// without the missing parts, and begins another.
pub const JOIN_SET_EVENTS_MAX: usize = 64;

const _: () = assert!(
    JOIN_PARTS_WAITING_MAX < MAX_PENDING_EVENTS_PER_INSTANCE
        && JOIN_SET_EVENTS_MAX >= goondan_config::limits::MAX_JOIN_PARTS
        && JOIN_SET_BYTES_MAX <= MAX_INPUT_BYTES
);

/// Largest total of the texts of one set of a join, in bytes; a further event ends the set likewise.
pub const JOIN_SET_BYTES_MAX: usize = 1024 * 1024;

/// Wait before a join is stored again after that failed, in milliseconds.
pub(crate) const JOIN_RETRY_MS: u64 = 1_000;

/// Interval at which the core compares desired with actual state (`SUP-5`), in milliseconds.
pub const TICK_MS: u64 = 250;

/// Time between attempts to record that a call is denied because its time limit is over.
pub const DENY_AGAIN_MS: u64 = 30_000;

/// Wait before what a call took is put down in the ledger again after that failed, in milliseconds.
pub(crate) const CHARGE_RETRY_MS: u64 = 2_000;

/// Interval of checks of an idle agent, in ticks, because there may be thousands of them.
pub(crate) const TICKS_OF_REST: u64 = 8;

/// File descriptors of the daemon that one agent in a turn takes, its open conversation among them.
pub(crate) const WORKING_AGENT_DESCRIPTORS: u64 = 9;
/// File descriptors of the daemon that one idle agent takes: its socket, and the pipe of its output.
pub(crate) const IDLE_AGENT_DESCRIPTORS: u64 = 2;
/// Processes and threads that one agent in a turn is taken to need, its tools among them.
pub(crate) const WORKING_AGENT_TASKS: u64 = 8;
/// Memory that one agent in a turn is taken to need, in bytes.
pub(crate) const WORKING_AGENT_MEMORY_BYTES: u64 = 8 * 1024 * 1024;
/// Memory that the end of one idle agent is taken to free, in bytes.
pub(crate) const IDLE_AGENT_MEMORY_BYTES: u64 = 1024 * 1024;
/// Idle agents that are stopped at once to make room for others.
pub(crate) const STOPPED_FOR_ROOM_MAX: usize = 32;
/// Maximum number of starts of agents that are kept possible ahead, by stopping idle ones early;
/// with a low capacity only one of [`SPARE_STARTS_PART`].
pub(crate) const SPARE_STARTS_MAX: u64 = 32;
/// One place is kept free for each this many agents of the capacity.
pub(crate) const SPARE_STARTS_PART: u64 = 16;
/// Maximum number of idle agents that keep running, over all workspaces. Those idle for longest are
/// stopped, because beyond this number their memory and heartbeats cost more than a restart.
pub(crate) const IDLE_AGENTS_MAX: u64 = 2_048;
/// Idle agents that are stopped at one time for places to be free ahead.
pub(crate) const STOPPED_AHEAD_MAX: u64 = 2;
/// Number of longest idle agents that are cached, to avoid a scan of all for each stop.
pub(crate) const LONGEST_IDLE_REMEMBERED: usize = 256;
/// Delay of the next start after a process could not be started for lack of resources, in
/// milliseconds.
pub(crate) const ROOM_RETRY_MS: u64 = 250;
/// Time without shortage after which the log reports that resources are available again, in
/// milliseconds.
pub(crate) const ROOM_QUIET_MS: u64 = 60_000;
/// Crashes in a row after which a process is still started again at once (`SUP-4`).
pub(crate) const IMMEDIATE_RESTARTS: u32 = 5;
/// The first delay after those, in milliseconds; each further crash doubles it (`SUP-4`).
pub(crate) const BACK_OFF_FIRST_MS: u64 = 1_000;
/// The longest delay, in milliseconds (`SUP-4`).
pub(crate) const BACK_OFF_MAX_MS: u64 = 300_000;

/// Least time that connections and models of a workspace that ends have for their own end, once its turns are over, in
/// milliseconds; less if the grace period is shorter.
pub(crate) const PROVIDER_GRACE_MIN_MS: u64 = 10_000;

/// Interval of heartbeat requests to a child, in milliseconds.
pub(crate) const HEARTBEAT_INTERVAL_MS: u64 = 14_000;
/// Silence after which a child counts as hung and is killed, in milliseconds.
pub(crate) const HEARTBEAT_TIMEOUT_MS: u64 = 30_000;

/// Processes that may crash in the turn of one event before the event is parked.
pub(crate) const MAX_TURN_CRASHES: u32 = 3;

/// Parked events of one conversation that are kept in memory for lists.
pub(crate) const KNOWN_PARKED_MAX: usize = 64;

/// Starts of an agent's process that may fail in a row, for a reason that it gives, before what waits is parked.
pub(crate) const MAX_START_FAULTS: u32 = 3;

/// Maximum number of pending requests about sandboxes and proposals of one workspace; further ones
/// must be retried.
pub(crate) const PROPOSAL_REQUESTS_MAX: usize = 64;

/// Files of a task's proposal that the task remembers by name; further ones are counted.
pub(crate) const TASK_PROPOSAL_FILES_TOLD: usize = 100;

/// Maximum number of pending requests about the configuration of one conversation; further ones
/// must be retried.
pub(crate) const BUNDLE_REQUESTS_MAX: usize = 32;

/// Maximum depth of a chain of agents that give each other work (`IPC-3`); requests of the last one
/// are refused.
pub(crate) const MAX_CHAIN_DEPTH: u32 = 32;
/// Questions of one instance whose answers are still to come as events; one more is refused.
pub(crate) const MAX_OPEN_QUESTIONS: usize = 100;
/// Other conversations that one step may give work to; one more is refused (`SEC-8`).
pub(crate) const REACHED_PER_STEP_MAX: usize = 16;
/// Other conversations that one turn may give work to (`SEC-8`).
pub(crate) const REACHED_PER_TURN_MAX: usize = 32;
/// Maximum number of conversations that can receive work from all turns caused by one external
/// event (`SEC-8`). No turn may use more than half of the rest.
pub(crate) const REACHED_PER_TREE_MAX: usize = 64;
/// Time for which the consequences of an external event are tracked after the last one, in
/// milliseconds.
pub(crate) const TREE_MEMORY_MS: u64 = 3_600_000;
/// Conversations that the agents of one workspace may give work to at once, beside those they had given
/// work to for the same event (`SEC-8`).
pub(crate) const WORKSPACE_REACH_BURST: u64 = 256;
/// Refill of this burst, per second.
pub(crate) const WORKSPACE_REACH_PER_S: u64 = 16;
/// Bytes that one turn may append to its conversation. With more, it fails (`SEC-8`).
pub(crate) const TURN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Reports (`observe`) of one turn that are recorded however fast they come (`SEC-8`).
pub(crate) const OBSERVATIONS_PER_TURN_BURST: u64 = 4_096;
/// Maximum rate of recorded reports, per second. Others are dropped and counted.
pub(crate) const OBSERVATIONS_PER_S: u64 = 100;
/// Dropped reports of one turn after which its process is killed.
pub(crate) const OBSERVATIONS_DROPPED_MAX: u64 = 65_536;
/// Maximum number of keys of one connection for which the result of the search for a legacy
/// conversation is cached.
pub(crate) const FORMER_KEYS_REMEMBERED: usize = 4_096;
/// Maximum number of replies that the process of one connection can wait for; further requests must
/// be retried.
pub(crate) const REPLIES_AWAITED_MAX: usize = 1_024;
/// Child processes at one time (`SEC-8`). An agent's process starts when another has ended; those idle for
/// longest are ended for it.
pub(crate) const CHILD_PROCESSES_MAX: usize = 16_384;
/// Agents' processes that are being started at one time; further ones wait, those with work from another
/// agent behind the others (`SEC-8`).
pub(crate) const AGENT_STARTS_AT_ONCE_MAX: usize = 16;
/// Runs of tasks at one time; further ones wait, the longest waiting first.
pub(crate) const TASK_RUNS_AT_ONCE_MAX: usize = 20;
/// Tasks of one workspace, those that have ended among them. One more is refused.
pub(crate) const TASKS_PER_WORKSPACE_MAX: usize = 10_000;
/// Tasks that one conversation's agent has had made and that have not ended. One more is refused.
pub(crate) const TASKS_PER_CONVERSATION_MAX: usize = 20;
/// Maximum number of requests about tasks of one workspace that wait until its tasks are loaded;
/// further ones must be retried.
pub(crate) const TASK_REQUESTS_MAX: usize = 64;
/// Maximum number of bytes of output of a task's program that are not in its log yet; further
/// output is dropped, which the log reports.
pub(crate) const TASK_OUTPUT_WAITING_MAX: usize = 1024 * 1024;
/// Maximum number of items of a task's stream that are not written yet; further items are dropped,
/// which the stream reports.
pub(crate) const TASK_ITEMS_WAITING_MAX: usize = 1000;
/// Bytes of the work area of a task whose agent names no `diskMiB` (`TASK-9`).
pub(crate) const TASK_DISK_BYTES_DEFAULT: u64 = 20 * 1024 * 1024 * 1024;
/// Interval of disk usage checks of a work area during a run, in milliseconds.
pub(crate) const TASK_DISK_EACH_MS: u64 = 120_000;
/// Maximum age of a reported disk usage, in milliseconds; then it is measured again.
pub(crate) const TASK_DISK_FRESH_MS: u64 = 60_000;
/// The pause between two restore drills that a policy asks for, in milliseconds.
pub(crate) const TASK_DRILL_PAUSE_MS: u64 = 30_000;
/// Minimum time between two restore drills of the same task by policy, in milliseconds.
pub(crate) const TASK_DRILL_AGAIN_MS: u64 = 3_600_000;
/// Checkpoints of one task that are being made or wait: one more would hold what the one that waits will.
pub(crate) const TASK_CHECKPOINTS_WAITING_MAX: usize = 2;
/// Timeout of a task's notification that waits for its connection, in milliseconds; then it has
/// failed.
pub(crate) const TASK_NOTIFICATION_WAIT_MS: u64 = 600_000;
/// Timeout of the request that opens a pull request for a task, in milliseconds, with the wait for
/// its connection and for rate limits.
pub(crate) const TASK_PULL_REQUEST_WAIT_MS: u64 = 120_000;
/// Characters of the reason for which a person holds or drops a proposal in a merge queue.
pub(crate) const QUEUE_REASON_CHARS_MAX: usize = 1_000;
/// Delay before a failed operation of a merge queue is repeated, in milliseconds.
pub(crate) const QUEUE_RETRY_MS: u64 = 10_000;
/// Delay before the work area of a task is read again after an error, in milliseconds.
pub(crate) const TASK_RELOAD_MS: u64 = 30_000;
/// Grace period of a task's program after a stop request, in milliseconds; then it is killed.
pub(crate) const RUN_END_GRACE_MS: u64 = 10_000;
/// Additional grace period of its process, in milliseconds.
pub(crate) const RUN_END_MARGIN_MS: u64 = 5_000;
/// Delay before the store is asked again about the outcome of a request, in milliseconds.
pub(crate) const LOOK_AGAIN_MS: u64 = 5_000;
/// Instances that one answer to an agent holds at most.
pub(crate) const LISTED_INSTANCES_MAX: usize = 200;

/// Time for which the crashes of an idle instance are remembered, in milliseconds.
pub(crate) const CRASH_MEMORY_MS: u64 = 600_000;

/// Restarts of its own process that an agent may ask for within [`SELF_RESTART_WINDOW_MS`]; one more is
/// refused.
pub(crate) const SELF_RESTARTS_MAX: usize = 5;
/// Time for which such a restart counts, in milliseconds.
pub(crate) const SELF_RESTART_WINDOW_MS: u64 = 600_000;

/// Interval of scans for expired conversations (`INST-7`) and old ended tasks (`TASK-10`), in
/// milliseconds. One is deleted when it is due in two scans in a row.
pub(crate) const RETENTION_INTERVAL_MS: u64 = 600_000;

/// Calls with one credential that run at one time; further ones wait.
pub(crate) const CALLS_IN_FLIGHT_PER_CREDENTIAL: usize = 16;
/// Calls with one credential that wait. One more ends in `overloaded`.
pub(crate) const CALLS_WAITING_PER_CREDENTIAL: usize = 1_024;
/// Calls one agent process waits for at one time. One more ends in `overloaded`.
pub(crate) const CALLS_OPEN_PER_AGENT: usize = 128;
/// Maximum number of attempts of a call, including failures without effect and crashes of its
/// connector.
pub(crate) const CALL_ATTEMPTS_MAX: u32 = 5;
/// Time that a call waits for a connection that reports a problem, in milliseconds. A call with less
/// than twice this time fails immediately.
pub(crate) const CALL_RECOVERY_WAIT_MS: u64 = 10_000;
/// Delay before the second attempt of a call, in milliseconds; it doubles each time. A longer
/// `Retry-After` of the other side takes precedence.
pub(crate) const CALL_RETRY_FIRST_MS: u64 = 500;
/// The longest such pause, in milliseconds.
pub(crate) const CALL_RETRY_MAX_MS: u64 = 30_000;
/// Outages of a model in a row after which it is not called until a probe succeeds.
pub(crate) const BREAKER_OUTAGES: u32 = 5;
/// Minimum time between the first and the last of them, in milliseconds, because many calls can fail
/// in one moment.
pub(crate) const BREAKER_SPAN_MIN_MS: u64 = 5_000;
/// Pause before the first probe, in milliseconds; it doubles after each failed probe. A longer
/// `Retry-After` takes precedence. Calls without a fallback never wait longer for a probe.
pub(crate) const BREAKER_PAUSE_FIRST_MS: u64 = 10_000;
/// The longest such pause, in milliseconds.
pub(crate) const BREAKER_PAUSE_MAX_MS: u64 = 300_000;
/// Calls of a model in a row that fail until a person acts, after which people see it.
pub(crate) const LASTING_FAILURES_SHOWN: u32 = 3;
/// Maximum duration of a call, in milliseconds. Longer requested timeouts are reduced to it.
pub(crate) const CALL_DEADLINE_MAX_MS: u64 = 3_600_000;

/// Questions to a person that wait at one time, of all workspaces. One more is refused.
pub(crate) const QUESTIONS_OPEN_MAX: usize = 256;
/// Questions that one call asks at most; one more is refused. A call waits for as long as its questions do.
pub(crate) const QUESTIONS_PER_CALL_MAX: u32 = 16;

/// Lifecycle events of a workspace that are kept for those who come back to watch it.
pub(crate) const WATCH_BACKLOG_EVENTS: usize = 512;

/// Events of traces that wait for one connection of `otlp`. One more is lost, which is counted.
pub(crate) const EXPORT_QUEUE_EVENTS: usize = 8_192;
/// Events of traces that are handed to such a connection at one time.
pub(crate) const EXPORT_BATCH_EVENTS: usize = 512;
/// Deadline of such a connection for them, in milliseconds; then they are lost, which is counted.
pub(crate) const EXPORT_DEADLINE_MS: u64 = 60_000;

/// Bytes of a question that are taken for one token when it is reserved what a call may take.
pub(crate) const ESTIMATE_BYTES_PER_TOKEN: u64 = 2;
/// Tokens that are reserved for a reply without a `maxTokens` limit.
pub(crate) const ESTIMATE_REPLY_TOKENS: u64 = 8_192;
/// Share of a budget, in percent, at which a warning is sent.
pub(crate) const BUDGET_WARNING_PERCENT: u128 = 90;
/// Budgets of one workspace that are shown, those nearest to their limits first.
pub(crate) const BUDGET_STATES_SHOWN: usize = 50;

/// Processes of one workspace that do not do their work and are named in `gdn daemon status`; the others are
/// counted.
pub(crate) const UNHEALTHY_SHOWN: usize = 20;

/// Tasks of one workspace whose newest checkpoint could not be restored and that are named in `gdn daemon status`; the
/// others are counted.
pub(crate) const FAILED_DRILLS_SHOWN: usize = 20;

/// Maximum number of conversations with bundle problems of one workspace that `gdn daemon status` names;
/// the others are counted.
pub(crate) const BUNDLE_PROBLEMS_SHOWN: usize = 20;

/// Watched files of one workspace that are named to clients; the others are counted.
pub(crate) const WATCHED_FILES_SHOWN: usize = 20;

const _: () = assert!(BACK_OFF_FIRST_MS <= BACK_OFF_MAX_MS);
const _: () = assert!(HEARTBEAT_INTERVAL_MS * 2 < HEARTBEAT_TIMEOUT_MS);
const _: () = assert!(CALL_RETRY_FIRST_MS <= CALL_RETRY_MAX_MS);
const _: () = assert!(CALL_RETRY_MAX_MS < CALL_DEADLINE_MAX_MS);
const _: () = assert!(TICK_MS <= BACK_OFF_FIRST_MS);
const _: () = assert!(MAX_QUESTIONS_PER_CONNECTION <= QUESTIONS_OPEN_MAX);
const _: () = assert!(REACHED_PER_STEP_MAX <= REACHED_PER_TURN_MAX);
const _: () = assert!(REACHED_PER_TURN_MAX * 2 <= REACHED_PER_TREE_MAX);
const _: () = assert!(MAX_MESSAGE_BYTES as u64 * 2 <= TURN_BYTES_MAX);
const _: () = assert!(TICK_MS <= PAUSE_LOOK_MS);

/// Maximum number of schedules of one conversation.
pub(crate) const SCHEDULES_PER_CONVERSATION_MAX: usize = 20;
/// Maximum number of schedules of one workspace, which are kept in memory.
pub(crate) const SCHEDULES_PER_WORKSPACE_MAX: usize = 1_000;
/// Missed occurrences of a schedule that run with the policy `all`: as many as with the default of
/// the connector `cron`.
pub(crate) const SCHEDULE_CATCH_UP_MAX: u64 = 10;
/// Largest metadata and identity of an event that are stored with a schedule, in bytes of JSON.
pub(crate) const SCHEDULE_METADATA_BYTES_MAX: usize = 16 * 1024;
/// Ended schedules of one conversation that are remembered, so that a repeated tool call does not
/// create them again.
pub(crate) const SCHEDULES_ENDED_REMEMBERED: usize = 64;
/// Delay before an occurrence that could not be submitted or recorded is tried again, in
/// milliseconds.
pub(crate) const SCHEDULE_RETRY_MS: i64 = 10_000;

/// Maximum number of listed tool calls with an unknown outcome of one workspace; older ones are
/// only in the audit log (`OBS-5`).
pub const UNKNOWN_CALLS_MAX: usize = 10_000;
