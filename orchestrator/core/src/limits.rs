//! Limits and intervals of the core.

use goondan_protocol::limits::{
    MAX_INPUT_BYTES, MAX_MESSAGE_BYTES, MAX_PENDING_EVENTS_PER_INSTANCE,
    MAX_QUESTIONS_PER_CONNECTION, PAUSE_LOOK_MS,
};

/// Maximum size of a request of an agent without its input, in bytes of JSON.
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

/// Delay before a failed write of a call's usage to the ledger is retried, in milliseconds.
pub(crate) const CHARGE_RETRY_MS: u64 = 2_000;

/// Interval of checks of an idle agent, in ticks, because there may be thousands of idle agents.
pub(crate) const TICKS_OF_REST: u64 = 8;

/// File descriptors of the daemon that one agent in a turn needs, with those of its open
/// conversation.
pub(crate) const WORKING_AGENT_DESCRIPTORS: u64 = 9;
/// File descriptors of the daemon that one idle agent needs: its socket, and the pipe of its
/// output.
pub(crate) const IDLE_AGENT_DESCRIPTORS: u64 = 2;
/// Estimated processes and threads of one agent in a turn, with its tools.
pub(crate) const WORKING_AGENT_TASKS: u64 = 8;
/// Estimated memory of one agent in a turn, in bytes.
pub(crate) const WORKING_AGENT_MEMORY_BYTES: u64 = 8 * 1024 * 1024;
/// Estimated memory that the end of one idle agent frees, in bytes.
pub(crate) const IDLE_AGENT_MEMORY_BYTES: u64 = 1024 * 1024;
/// Maximum number of idle agents that are stopped together to free capacity for others.
pub(crate) const STOPPED_FOR_ROOM_MAX: usize = 32;
/// Maximum number of starts of agents for which capacity is kept free, by stopping idle agents
/// early; with a low capacity, one for each [`SPARE_STARTS_PART`] agents.
pub(crate) const SPARE_STARTS_MAX: u64 = 32;
/// Agents of the capacity for which one place is kept free.
pub(crate) const SPARE_STARTS_PART: u64 = 16;
/// Maximum number of idle agents that keep running, over all workspaces. Those idle for longest are
/// stopped, because beyond this number their memory and heartbeats cost more than a restart.
pub(crate) const IDLE_AGENTS_MAX: u64 = 2_048;
/// Maximum number of idle agents that are stopped together to keep places free.
pub(crate) const STOPPED_AHEAD_MAX: u64 = 2;
/// Number of longest idle agents that are cached, to avoid a scan of all agents for each stop.
pub(crate) const LONGEST_IDLE_REMEMBERED: usize = 256;
/// Delay of the next start after a process could not be started for lack of resources, in
/// milliseconds.
pub(crate) const ROOM_RETRY_MS: u64 = 250;
/// Time without shortage after which the log reports that resources are available again, in
/// milliseconds.
pub(crate) const ROOM_QUIET_MS: u64 = 60_000;
/// Crashes in a row after which a process is still restarted immediately (`SUP-4`).
pub(crate) const IMMEDIATE_RESTARTS: u32 = 5;
/// First delay after more crashes, in milliseconds; each further crash doubles it (`SUP-4`).
pub(crate) const BACK_OFF_FIRST_MS: u64 = 1_000;
/// Longest delay of a restart, in milliseconds (`SUP-4`).
pub(crate) const BACK_OFF_MAX_MS: u64 = 300_000;

/// Minimum time that connections and models of an ending workspace get for their shutdown after the
/// last turn, in milliseconds; less if the grace period is shorter.
pub(crate) const PROVIDER_GRACE_MIN_MS: u64 = 10_000;

/// Interval of heartbeat requests to a child, in milliseconds.
pub(crate) const HEARTBEAT_INTERVAL_MS: u64 = 14_000;
/// Silence after which a child counts as hung and is killed, in milliseconds.
pub(crate) const HEARTBEAT_TIMEOUT_MS: u64 = 30_000;

/// Processes that may crash in the turn of one event before the event is parked.
pub(crate) const MAX_TURN_CRASHES: u32 = 3;

/// Parked events of one conversation that are kept in memory for lists.
pub(crate) const KNOWN_PARKED_MAX: usize = 64;

/// Failed starts of an agent's process in a row, with a reported reason, after which its queued
/// events are parked.
pub(crate) const MAX_START_FAULTS: u32 = 3;

/// Maximum number of pending requests about sandboxes and proposals of one workspace; further ones
/// must be retried.
pub(crate) const PROPOSAL_REQUESTS_MAX: usize = 64;

/// Files of a proposal whose names a message in a chat has; further ones are counted.
pub(crate) const CHAT_PROPOSAL_FILES_MAX: usize = 20;

/// Length of the summary of a proposal in a chat, in characters.
pub(crate) const CHAT_PROPOSAL_SUMMARY_CHARS_MAX: usize = 1_000;

/// Files of a task's proposal whose names the task stores; further ones are counted.
pub(crate) const TASK_PROPOSAL_FILES_TOLD: usize = 100;

/// Maximum number of pending requests about the configuration of one conversation; further ones
/// must be retried.
pub(crate) const BUNDLE_REQUESTS_MAX: usize = 32;

/// Maximum depth of a chain of agents that send each other work (`IPC-3`); requests of the last
/// agent are refused.
pub(crate) const MAX_CHAIN_DEPTH: u32 = 32;
/// Maximum number of questions of one instance whose answers will arrive as events
/// (`E_TOO_MANY_QUESTIONS`).
pub(crate) const MAX_OPEN_QUESTIONS: usize = 100;
/// Maximum number of other conversations to which one step can send work (`SEC-8`).
pub(crate) const REACHED_PER_STEP_MAX: usize = 16;
/// Maximum number of other conversations to which one turn can send work (`SEC-8`).
pub(crate) const REACHED_PER_TURN_MAX: usize = 32;
/// Maximum number of conversations that can receive work from all turns caused by one external
/// event (`SEC-8`). No turn may use more than half of the rest.
pub(crate) const REACHED_PER_TREE_MAX: usize = 64;
/// Time for which the consequences of an external event are tracked after the last one, in
/// milliseconds.
pub(crate) const TREE_MEMORY_MS: u64 = 3_600_000;
/// Burst of new conversations to which the agents of one workspace can send work, without those
/// that the same event has reached before (`SEC-8`).
pub(crate) const WORKSPACE_REACH_BURST: u64 = 256;
/// Refill of this burst, per second.
pub(crate) const WORKSPACE_REACH_PER_S: u64 = 16;
/// Bytes that one turn may append to its conversation; beyond this, the turn fails (`SEC-8`).
pub(crate) const TURN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Reports (`observe`) of one turn that are recorded at any rate (`SEC-8`).
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
/// Maximum number of child processes (`SEC-8`). At the limit, an agent's process starts when
/// another one has ended, and the longest idle agents are stopped.
pub(crate) const CHILD_PROCESSES_MAX: usize = 16_384;
/// Maximum number of agents' processes that start at the same time; further ones wait, those with
/// work from another agent last (`SEC-8`).
pub(crate) const AGENT_STARTS_AT_ONCE_MAX: usize = 16;
/// Maximum number of concurrent runs of tasks; further runs wait in order.
pub(crate) const TASK_RUNS_AT_ONCE_MAX: usize = 20;
/// Maximum number of tasks of one workspace, including ended ones.
pub(crate) const TASKS_PER_WORKSPACE_MAX: usize = 10_000;
/// Maximum number of open tasks that the agent of one conversation has created.
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
/// Disk quota of a task whose agent has no `diskMiB`, in bytes (`TASK-9`).
pub(crate) const TASK_DISK_BYTES_DEFAULT: u64 = 20 * 1024 * 1024 * 1024;
/// Interval of disk usage checks of a work area during a run, in milliseconds.
pub(crate) const TASK_DISK_EACH_MS: u64 = 120_000;
/// Maximum age of a reported disk usage, in milliseconds; then it is measured again.
pub(crate) const TASK_DISK_FRESH_MS: u64 = 60_000;
/// Pause between two restore drills by policy, in milliseconds.
pub(crate) const TASK_DRILL_PAUSE_MS: u64 = 30_000;
/// Minimum time between two restore drills of the same task by policy, in milliseconds.
pub(crate) const TASK_DRILL_AGAIN_MS: u64 = 3_600_000;
/// Maximum number of checkpoints of one task in progress or queued. A third one would contain the
/// same files as the queued one.
pub(crate) const TASK_CHECKPOINTS_WAITING_MAX: usize = 2;
/// Timeout of a task's notification that waits for its connection, in milliseconds; then it has
/// failed.
pub(crate) const TASK_NOTIFICATION_WAIT_MS: u64 = 600_000;
/// Timeout of the request that opens a pull request for a task, in milliseconds, with the wait for
/// its connection and for rate limits.
pub(crate) const TASK_PULL_REQUEST_WAIT_MS: u64 = 120_000;
/// Time between two looks for decisions that a chat shows only after some time, in milliseconds.
pub(crate) const DECISION_LOOK_MS: u64 = 10_000;
/// Maximum length of a person's reason to hold or drop a proposal in a merge queue, in characters.
pub(crate) const QUEUE_REASON_CHARS_MAX: usize = 1_000;
/// Delay before a failed operation of a merge queue is repeated, in milliseconds.
pub(crate) const QUEUE_RETRY_MS: u64 = 10_000;
/// Delay before the work area of a task is read again after an error, in milliseconds.
pub(crate) const TASK_RELOAD_MS: u64 = 30_000;
/// Grace period of a task's program after a stop request, in milliseconds; then it is killed.
pub(crate) const RUN_END_GRACE_MS: u64 = 10_000;
/// Additional grace period of the program's agent process, in milliseconds.
pub(crate) const RUN_END_MARGIN_MS: u64 = 5_000;
/// Delay before the core requests the outcome of an event from the store again, in milliseconds.
pub(crate) const LOOK_AGAIN_MS: u64 = 5_000;
/// Maximum number of instances in one answer to an agent.
pub(crate) const LISTED_INSTANCES_MAX: usize = 200;

/// Time after which the crashes of an idle instance no longer count, in milliseconds.
pub(crate) const CRASH_MEMORY_MS: u64 = 600_000;

/// Maximum number of restarts of its own process that an agent can request within
/// [`SELF_RESTART_WINDOW_MS`].
pub(crate) const SELF_RESTARTS_MAX: usize = 5;
/// Time for which a requested restart counts, in milliseconds.
pub(crate) const SELF_RESTART_WINDOW_MS: u64 = 600_000;

/// Interval of scans for expired conversations (`INST-7`) and old ended tasks (`TASK-10`), in
/// milliseconds. One is deleted when it is due in two scans in a row.
pub(crate) const RETENTION_INTERVAL_MS: u64 = 600_000;

/// Maximum number of concurrent calls with one credential; further calls wait.
pub(crate) const CALLS_IN_FLIGHT_PER_CREDENTIAL: usize = 16;
/// Maximum number of waiting calls with one credential; further calls fail with `overloaded`.
pub(crate) const CALLS_WAITING_PER_CREDENTIAL: usize = 1_024;
/// Maximum number of open calls of one agent process; further calls fail with `overloaded`.
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
/// Longest delay between two attempts of a call, in milliseconds.
pub(crate) const CALL_RETRY_MAX_MS: u64 = 30_000;
/// Outages of a model in a row after which it is not called until a probe succeeds.
pub(crate) const BREAKER_OUTAGES: u32 = 5;
/// Minimum time between the first and the last outage in a row, in milliseconds, because many calls
/// can fail in one moment.
pub(crate) const BREAKER_SPAN_MIN_MS: u64 = 5_000;
/// Pause before the first probe, in milliseconds; it doubles after each failed probe. A longer
/// `Retry-After` takes precedence. Calls without a fallback never wait longer for a probe.
pub(crate) const BREAKER_PAUSE_FIRST_MS: u64 = 10_000;
/// Longest pause between two probes, in milliseconds.
pub(crate) const BREAKER_PAUSE_MAX_MS: u64 = 300_000;
/// Failed calls of a model in a row, for reasons that only a person can end, after which the model
/// is shown as unhealthy.
pub(crate) const LASTING_FAILURES_SHOWN: u32 = 3;
/// Maximum duration of a call, in milliseconds. Longer requested timeouts are reduced to it.
pub(crate) const CALL_DEADLINE_MAX_MS: u64 = 3_600_000;

/// Maximum number of open questions to people, over all workspaces.
pub(crate) const QUESTIONS_OPEN_MAX: usize = 256;
/// Maximum number of questions of one call, which waits for their answers.
pub(crate) const QUESTIONS_PER_CALL_MAX: u32 = 16;

/// Number of lifecycle events of a workspace that are stored for watchers that reconnect.
pub(crate) const WATCH_BACKLOG_EVENTS: usize = 512;

/// Maximum number of trace events that wait for one connection of `otlp`; further events are lost
/// and counted.
pub(crate) const EXPORT_QUEUE_EVENTS: usize = 8_192;
/// Maximum number of trace events in one batch for a connection of `otlp`.
pub(crate) const EXPORT_BATCH_EVENTS: usize = 512;
/// Deadline for the delivery of a batch, in milliseconds; then its events are lost and counted.
pub(crate) const EXPORT_DEADLINE_MS: u64 = 60_000;

/// Bytes of a request that count as one token in a reservation.
pub(crate) const ESTIMATE_BYTES_PER_TOKEN: u64 = 2;
/// Tokens that are reserved for a reply without a `maxTokens` limit.
pub(crate) const ESTIMATE_REPLY_TOKENS: u64 = 8_192;
/// Share of a budget, in percent, at which a warning is sent.
pub(crate) const BUDGET_WARNING_PERCENT: u128 = 90;
/// Maximum number of budgets of one workspace that are shown, those nearest to their limits first.
pub(crate) const BUDGET_STATES_SHOWN: usize = 50;

/// Maximum number of unhealthy processes of one workspace that `gdn daemon status` names; the
/// others are counted.
pub(crate) const UNHEALTHY_SHOWN: usize = 20;

/// Maximum number of tasks of one workspace with a failed restore drill that `gdn daemon status`
/// names; the others are counted.
pub(crate) const FAILED_DRILLS_SHOWN: usize = 20;

/// Maximum number of conversations with bundle problems of one workspace that `gdn daemon status` names;
/// the others are counted.
pub(crate) const BUNDLE_PROBLEMS_SHOWN: usize = 20;

/// Maximum number of watched files of one workspace that clients receive by name; the others are
/// counted.
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
/// Maximum number of missed occurrences of a schedule that run with the policy `all`: the default
/// of the connector `cron`.
pub(crate) const SCHEDULE_CATCH_UP_MAX: u64 = 10;
/// Maximum size of the metadata and identity of an event that are stored with a schedule, in bytes
/// of JSON.
pub(crate) const SCHEDULE_METADATA_BYTES_MAX: usize = 16 * 1024;
/// Number of ended schedules of one conversation that are stored, so that a repeated tool call does
/// not create them again.
pub(crate) const SCHEDULES_ENDED_REMEMBERED: usize = 64;
/// Delay before a failed submission or record of an occurrence is retried, in milliseconds.
pub(crate) const SCHEDULE_RETRY_MS: i64 = 10_000;

/// Pairs of sender and receiver in a workspace whose events and calls are counted separately.
pub const TRAFFIC_FLOWS_MAX: usize = 1_000;

/// Maximum number of listed tool calls with an unknown outcome of one workspace; older ones are
/// only in the audit log (`OBS-5`).
pub const UNKNOWN_CALLS_MAX: usize = 10_000;
