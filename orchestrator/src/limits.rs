//! The orchestrator's own limits and intervals.

use goondan_protocol::limits::{
    MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, MAX_QUESTIONS_PER_CONNECTION, PAUSE_LOOK_MS,
};

/// How often the core compares desired with actual (`SUP-5`), in milliseconds.
pub(crate) const TICK_MS: u64 = 250;

/// Wait before what a call took is put down in the ledger again after that failed, in milliseconds.
pub(crate) const CHARGE_RETRY_MS: u64 = 2_000;

/// Traces of an agent's latest turns that its log lines may name: one may be read after its turn.
pub(crate) const AGENT_TRACES_REMEMBERED: usize = 64;

/// An agent that has nothing to do is looked at once in so many ticks: there may be thousands of them.
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
/// Starts of agents that are kept possible ahead, by stopping idle ones before somebody needs their place;
/// fewer where there is room for few: one of [`SPARE_STARTS_PART`].
pub(crate) const SPARE_STARTS_MAX: u64 = 32;
/// Of how many agents that there is room for one place is kept free ahead.
pub(crate) const SPARE_STARTS_PART: u64 = 16;
/// Idle agents that go on running, of all workspaces: further ones cost memory and heartbeats for longer than
/// it takes to start them again, and those idle for longest are stopped.
pub(crate) const IDLE_AGENTS_MAX: u64 = 2_048;
/// Idle agents that are stopped at one time for places to be free ahead.
pub(crate) const STOPPED_AHEAD_MAX: u64 = 2;
/// Agents idle for longest that are noted at once, so that all are not looked through for each.
pub(crate) const LONGEST_IDLE_REMEMBERED: usize = 256;
/// How long after a process could not be started for want of room the next start is tried, in
/// milliseconds.
pub(crate) const ROOM_RETRY_MS: u64 = 250;
/// How long nothing has to be short for the log to say that there is room again, in milliseconds.
pub(crate) const ROOM_QUIET_MS: u64 = 60_000;
/// How often it is measured what there is of descriptors, processes and memory, in ticks.
pub(crate) const TICKS_OF_MEASURE: u64 = 2;
/// Part of the file descriptors that the store keeps for open conversations at most: one in so many.
pub(crate) const STORE_DESCRIPTORS_PART: u64 = 8;

/// Crashes in a row after which a process is still started again at once (`SUP-4`).
pub(crate) const IMMEDIATE_RESTARTS: u32 = 5;
/// The first delay after those, in milliseconds; each further crash doubles it (`SUP-4`).
pub(crate) const BACK_OFF_FIRST_MS: u64 = 1_000;
/// The longest delay, in milliseconds (`SUP-4`).
pub(crate) const BACK_OFF_MAX_MS: u64 = 300_000;

/// How often a child is asked whether it is there, in milliseconds.
pub(crate) const HEARTBEAT_INTERVAL_MS: u64 = 14_000;
/// Silence after which a child counts as hung and is killed, in milliseconds.
pub(crate) const HEARTBEAT_TIMEOUT_MS: u64 = 30_000;

/// Processes that may crash in the turn of one event before the event is parked.
pub(crate) const MAX_TURN_CRASHES: u32 = 3;

/// Agents that may give each other work in one chain (`IPC-3`); what the last one of them asks is
/// refused.
pub(crate) const MAX_CHAIN_DEPTH: u32 = 32;
/// Questions of one instance whose answers are still to come as events; one more is refused.
pub(crate) const MAX_OPEN_QUESTIONS: usize = 100;
/// Other conversations that one step may give work to; one more is refused (`SEC-8`).
pub(crate) const REACHED_PER_STEP_MAX: usize = 16;
/// Other conversations that one turn may give work to (`SEC-8`).
pub(crate) const REACHED_PER_TURN_MAX: usize = 32;
/// Conversations that all turns one event of the outside led to may give work to (`SEC-8`). No turn takes
/// more than half of what is left.
pub(crate) const REACHED_PER_TREE_MAX: usize = 64;
/// How long it is remembered what such an event led to, after the last of it, in milliseconds.
pub(crate) const TREE_MEMORY_MS: u64 = 3_600_000;
/// Conversations that the agents of one workspace may give work to at once, beside those they had given
/// work to for the same event (`SEC-8`).
pub(crate) const WORKSPACE_REACH_BURST: u64 = 256;
/// How many more of them there may be each second.
pub(crate) const WORKSPACE_REACH_PER_S: u64 = 16;
/// Bytes that one turn may append to its conversation. With more, it fails (`SEC-8`).
pub(crate) const TURN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Reports (`observe`) of one turn that are recorded however fast they come (`SEC-8`).
pub(crate) const OBSERVATIONS_PER_TURN_BURST: u64 = 4_096;
/// How many more of them are recorded each second. Others are dropped and counted.
pub(crate) const OBSERVATIONS_PER_S: u64 = 100;
/// Dropped reports of one turn after which its process is killed.
pub(crate) const OBSERVATIONS_DROPPED_MAX: u64 = 65_536;
/// Keys of one connection of which it is remembered whether they name a conversation from before keys
/// were those of their connection.
pub(crate) const FORMER_KEYS_REMEMBERED: usize = 4_096;
/// Child processes at one time (`SEC-8`). An agent's process starts when another has ended; those idle for
/// longest are ended for it.
pub(crate) const CHILD_PROCESSES_MAX: usize = 16_384;
/// Agents' processes that are being started at one time; further ones wait, those with work from another
/// agent behind the others (`SEC-8`).
pub(crate) const AGENT_STARTS_AT_ONCE_MAX: usize = 16;
/// How long after the store could not say what became of a question it is asked again, in
/// milliseconds.
pub(crate) const LOOK_AGAIN_MS: u64 = 5_000;
/// Instances that one answer to an agent holds at most.
pub(crate) const LISTED_INSTANCES_MAX: usize = 200;

/// How long the crashes of an instance without work are remembered, in milliseconds.
pub(crate) const CRASH_MEMORY_MS: u64 = 600_000;

/// Restarts of its own process that an agent may ask for within [`SELF_RESTART_WINDOW_MS`]; one more is
/// refused.
pub(crate) const SELF_RESTARTS_MAX: usize = 5;
/// How long such a restart counts, in milliseconds.
pub(crate) const SELF_RESTART_WINDOW_MS: u64 = 600_000;

/// How often expired conversations are looked for, in milliseconds (`INST-7`). One is deleted when
/// it was due in two looks in a row.
pub(crate) const RETENTION_INTERVAL_MS: u64 = 600_000;

/// Time without a change after which the files of a watched project are read again, in milliseconds:
/// who saves changes several, who switches a branch many (`SUP-8`).
pub(crate) const WATCH_QUIET_MS: u64 = 100;
/// Longest wait for that, in milliseconds: files that never rest are read nevertheless.
pub(crate) const WATCH_QUIET_MAX_MS: u64 = 2_000;
/// How often the files of a watched project are compared where the system cannot tell of changes, in
/// milliseconds.
pub(crate) const WATCH_POLL_MS: u64 = 5_000;
/// How often they are compared where it can, in milliseconds: some file systems tell nothing of what
/// other machines change.
pub(crate) const WATCH_LOOK_MS: u64 = 60_000;

/// Frames that may wait for one child. A child that does not read them is not working: it is killed.
pub(crate) const CHILD_QUEUE_FRAMES: usize = 1_024;

/// Messages of a child that are handed to the core at once, if so many have come.
pub(crate) const CHILD_BATCH_MESSAGES: usize = 16;

/// Batches of one child that wait for the core. Only then is more read of it, so that all children take
/// turns (`SEC-8`).
pub(crate) const CHILD_BATCHES_WAITING: usize = 2;

/// Bytes that unfinished frames of all children may hold together (`SEC-8`). A child whose frame finds no
/// room is killed.
pub(crate) const CHILD_FRAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes that unfinished frames of all control connections may hold together (`SEC-8`). A connection whose
/// frame finds no room is closed.
pub(crate) const CONTROL_FRAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest frame that counts towards neither, in bytes.
pub(crate) const FRAME_UNCOUNTED_BYTES: usize = 64 * 1024;

/// What happened and waits for the core. Whoever reports more waits.
pub(crate) const CORE_QUEUE_INPUTS: usize = 1_024;

/// How much of what has happened is dealt with at most before the store hears what follows from it.
pub(crate) const SUPERVISOR_BATCH_EVENTS: usize = 64;

/// Control connections at a time that have greeted. One more takes the place of the one that has had no
/// request open for longest; if each has one open, it is refused as `overloaded`. An eighth of the file
/// descriptors the daemon may have, if that is less.
pub(crate) const CONTROL_CONNECTIONS: usize = 64;
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
/// Least time between two lines of the log that tell of such failures, in milliseconds.
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

/// Calls with one credential that run at one time; further ones wait.
pub(crate) const CALLS_IN_FLIGHT_PER_CREDENTIAL: usize = 16;
/// Calls with one credential that wait. One more ends in `overloaded`.
pub(crate) const CALLS_WAITING_PER_CREDENTIAL: usize = 1_024;
/// Calls one agent process waits for at one time. One more ends in `overloaded`.
pub(crate) const CALLS_OPEN_PER_AGENT: usize = 128;
/// How often one call is begun: failures without effect and crashes of its connector together.
pub(crate) const CALL_ATTEMPTS_MAX: u32 = 5;
/// The pause before a call is made for the second time, in milliseconds; it doubles each time. What
/// the other side asks for with `Retry-After` counts if it is longer.
pub(crate) const CALL_RETRY_FIRST_MS: u64 = 500;
/// The longest such pause, in milliseconds.
pub(crate) const CALL_RETRY_MAX_MS: u64 = 30_000;
/// The longest a call may take, whatever its agent asks for, in milliseconds.
pub(crate) const CALL_DEADLINE_MAX_MS: u64 = 3_600_000;

/// Questions to a person that wait at one time, of all workspaces. One more is refused.
pub(crate) const QUESTIONS_OPEN_MAX: usize = 256;
/// Questions that one call asks at most; one more is refused. A call waits for as long as its questions do.
pub(crate) const QUESTIONS_PER_CALL_MAX: u32 = 16;

/// Events of traces that wait for one connection of `otlp`. One more is lost, which is counted.
pub(crate) const EXPORT_QUEUE_EVENTS: usize = 8_192;
/// Events of traces that are handed to such a connection at one time.
pub(crate) const EXPORT_BATCH_EVENTS: usize = 512;
/// How long such a connection has for them, in milliseconds; then they are lost, which is counted.
pub(crate) const EXPORT_DEADLINE_MS: u64 = 60_000;

/// Bytes of a question that are taken for one token when it is reserved what a call may take.
pub(crate) const ESTIMATE_BYTES_PER_TOKEN: u64 = 2;
/// Tokens that are reserved for a reply whose length nobody limits with `maxTokens`.
pub(crate) const ESTIMATE_REPLY_TOKENS: u64 = 8_192;
/// Share of a budget, in percent, at which whoever spends it is warned.
pub(crate) const BUDGET_WARNING_PERCENT: u128 = 90;
/// Budgets of one workspace that are shown, those nearest to their limits first.
pub(crate) const BUDGET_STATES_SHOWN: usize = 50;

/// Processes of one workspace that do not do their work and are named in `gdn status`; the others are
/// counted.
pub(crate) const UNHEALTHY_SHOWN: usize = 20;

/// Watched files of one workspace that are named to clients; the others are counted.
pub(crate) const WATCHED_FILES_SHOWN: usize = 20;

/// Shortest value of a configuration that is masked where it turns up, in bytes (`SEC-2`). A shorter
/// one is found in too much that has nothing to do with it.
pub(crate) const MASKED_VALUE_BYTES_MIN: usize = 6;
/// Shortest line of a value of several lines that is masked where it turns up on its own, in bytes (`SEC-2`).
/// Shorter ones are brackets and names.
pub(crate) const MASKED_LINE_BYTES_MIN: usize = 16;
/// Pieces in which a value is looked for that may be longer than what can be kept of a log line, in bytes
/// (`SEC-2`). Of a value cut in two, less than this is left at the cut.
pub(crate) const MASKED_PIECE_BYTES: usize = 64;

/// Writer threads of the store.
pub(crate) const WRITER_THREADS: usize = 4;

const _: () = assert!(BACK_OFF_FIRST_MS <= BACK_OFF_MAX_MS);
const _: () = assert!(HEARTBEAT_INTERVAL_MS * 2 < HEARTBEAT_TIMEOUT_MS);
const _: () = assert!(CALL_RETRY_FIRST_MS <= CALL_RETRY_MAX_MS);
const _: () = assert!(CALL_RETRY_MAX_MS < CALL_DEADLINE_MAX_MS);
const _: () = assert!(TICK_MS <= BACK_OFF_FIRST_MS);
const _: () = assert!(MAX_QUESTIONS_PER_CONNECTION <= QUESTIONS_OPEN_MAX);
const _: () = assert!(REACHED_PER_STEP_MAX <= REACHED_PER_TURN_MAX);
const _: () = assert!(REACHED_PER_TURN_MAX * 2 <= REACHED_PER_TREE_MAX);
const _: () = assert!(MAX_FRAME_BYTES <= CONTROL_FRAMES_BYTES_MAX);
const _: () = assert!(MAX_FRAME_BYTES <= CHILD_FRAMES_BYTES_MAX);
const _: () = assert!(MAX_MESSAGE_BYTES as u64 * 2 <= TURN_BYTES_MAX);
const _: () = assert!(TICK_MS <= PAUSE_LOOK_MS);
const _: () = assert!(ACCEPT_PAUSE_FIRST_MS < ACCEPT_PAUSE_MAX_MS);
const _: () = assert!(WATCH_QUIET_MS < WATCH_QUIET_MAX_MS);
const _: () = assert!(WATCH_POLL_MS < WATCH_LOOK_MS);
