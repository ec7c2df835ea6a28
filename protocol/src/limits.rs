//! Limits of the protocol.
//!
//! Only limits that two processes share belong here. Limits of a single component, such as the
//! store's queue lengths, are defined in that component.

/// Largest frame body either side accepts, in bytes (`IPC-1`). Larger payloads travel as files in
/// the work directory.
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Length of a frame's length prefix, in bytes: one big-endian `u32`.
pub const FRAME_HEADER_BYTES: usize = 4;

/// Largest `system/format.json`, in bytes (`REL-1`).
pub const STATE_FORMAT_BYTES_MAX: usize = 4 * 1024;

/// Largest single message record (one line of `base.jsonl`), in bytes. Leaves room for the envelope.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Largest `input` text of an event, in bytes.
pub const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// Longest template of a connection's header, in bytes (`CONN-1`).
pub const MAX_HEADER_TEMPLATE_BYTES: usize = 1024;

/// Longest header of an event, in characters. A longer one is cut (`CONN-1`).
pub const MAX_HEADER_CHARS: usize = 400;

/// Longest value in a header, in characters. A longer one is cut (`CONN-1`).
pub const MAX_HEADER_VALUE_CHARS: usize = 80;

/// Target size of a page of conversation history, in bytes of raw records. A page contains at least
/// one record.
pub const HISTORY_PAGE_BYTES: usize = 1024 * 1024;

/// Longest text of a message on a page of a conversation, in bytes; clients request the full
/// message separately (`OBS-1`).
pub const SHOWN_TEXT_BYTES: usize = 4 * 1024;

/// Largest state of one extension, and of all extensions of one instance together, in bytes of JSON
/// (`EXT-4`).
pub const MAX_EXTENSION_STATE_BYTES: usize = 4 * 1024 * 1024;

/// Largest number of audit records per page (`OBS-1`); a page also ends before it exceeds
/// [`HISTORY_PAGE_BYTES`].
pub const MAX_AUDIT_PAGE: usize = 1_000;

/// Largest number of conversations per page (`OBS-1`).
pub const MAX_INSTANCES_PAGE: usize = 1_000;

/// Largest number of processes per page, snapshot part and change notification (`OBS-1`). It is low
/// because a process may list many conversations it waits for.
pub const MAX_PROCESSES_PAGE: usize = 250;

/// Largest number of workspaces per page of `node.list`; each lists all nodes that follow it
/// (`REP-1`).
pub const MAX_NODES_PAGE: usize = 250;

/// Number of events after which a page ends, at the end of a conversation (`OBS-1`).
pub const MAX_EVENTS_PAGE: usize = 1_000;

/// Largest number of tasks per page (`OBS-1`).
pub const MAX_TASKS_PAGE: usize = 1_000;

/// Number of changesets after which a page ends, at the end of a conversation (`OBS-5`).
pub const MAX_CHANGESETS_PAGE: usize = 100;

/// Largest number of workspaces per page and in the daemon's status (`OBS-1`).
pub const MAX_WORKSPACES_PAGE: usize = 100;

/// Largest number of pending approvals per page (`OBS-1`).
pub const MAX_APPROVALS_PAGE: usize = 250;

/// Largest number of standing approvals per page (`OBS-1`).
pub const MAX_STANDING_APPROVALS_PAGE: usize = 50;

/// Largest number of standing approvals of a workspace. A person can revoke old ones.
pub const MAX_STANDING_APPROVALS: usize = 500;

/// Largest arguments of a standing approval, in bytes of JSON. Larger calls can be approved once.
pub const MAX_STANDING_APPROVAL_INPUT_BYTES: usize = 8 * 1024;

/// Largest number of tool calls with an unknown outcome per page (`OBS-1`).
pub const MAX_UNKNOWN_CALLS_PAGE: usize = 500;

/// Largest number of schedules per page (`OBS-1`). With the longest texts, a page stays below the
/// largest frame.
pub const MAX_SCHEDULES_PAGE: usize = 100;

/// Longest text of a scheduled input, in bytes.
pub const MAX_SCHEDULED_INPUT_BYTES: usize = 8 * 1024;

/// Longest delay of a schedule with a single occurrence, in seconds: about five years.
pub const MAX_SCHEDULE_DELAY_SECONDS: u64 = 5 * 366 * 24 * 3600;

/// Longest cron expression of an agent, in bytes.
pub const MAX_CRON_BYTES: usize = 200;

/// Largest number of questions per page (`OBS-1`). It is low because each contains its text.
pub const MAX_QUESTIONS_PAGE: usize = 250;

/// Largest number of proposals per page (`OBS-1`). It is low because each is read from its folder,
/// with its notes.
pub const MAX_PROPOSALS_PAGE: usize = 250;

/// Largest number of sandboxes per page (`OBS-1`).
pub const MAX_SANDBOXES_PAGE: usize = 1_000;

/// Largest number of checkpoints of a conversation or task per page (`OBS-1`).
pub const MAX_CHECKPOINTS_PAGE: usize = 1_000;

/// Largest number of trace events per page (`OBS-1`); a page also ends after [`HISTORY_PAGE_BYTES`]
/// of records.
pub const MAX_TRACE_PAGE: usize = 2_000;

/// Largest number of usage sums per page (`OBS-1`).
pub const MAX_USAGE_PAGE: usize = 1_000;

/// Longest instance key, in bytes of UTF-8 (`INST-1`).
pub const MAX_INSTANCE_KEY_BYTES: usize = 1024;

/// Largest state of one connection, in bytes of JSON.
pub const MAX_CONNECTION_STATE_BYTES: usize = 256 * 1024;

/// Longest resource name (agent, connection, model, tool …), in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Longest key of one entry of a secret, in bytes.
pub const MAX_SECRET_KEY_BYTES: usize = 128;

/// Longest value of one entry of a secret, in bytes.
pub const MAX_SECRET_VALUE_BYTES: usize = 64 * 1024;

/// Largest number of entries per secret.
pub const MAX_SECRET_KEYS: usize = 64;

/// Largest number of secrets in the store.
pub const MAX_SECRETS: usize = 256;

/// Largest number of files, connections or commands that a person's permission covers.
pub const MAX_PERMISSION_COVERS: usize = 512;

/// Longest description of a command that a person's permission covers, in bytes.
pub const MAX_COMMAND_COVER_BYTES: usize = 1024;

/// Longest event, turn, step, message or tool-call id, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// Longest workspace id, in bytes (`ROOT-9`).
pub const MAX_WORKSPACE_ID_BYTES: usize = 120;

/// Largest number of accepted but unfinished events per instance. Further events are refused as
/// `overloaded` (a webhook responds with 429).
pub const MAX_PENDING_EVENTS_PER_INSTANCE: usize = 1_000;

/// Default timeout of a request to another agent, in milliseconds.
pub const DEFAULT_REQUEST_TIMEOUT_MS: u64 = 60_000;

/// Longest timeout of a request to another agent, in milliseconds. After that its answer arrives as
/// an event.
pub const MAX_REQUEST_TIMEOUT_MS: u64 = 600_000;

/// Longest text of a question to a person, in bytes. Longer questions are refused.
pub const MAX_QUESTION_TEXT_BYTES: usize = 4 * 1024;

/// Largest schema of an answer to a question, in bytes of JSON. Questions with a larger schema are
/// refused.
pub const MAX_QUESTION_SCHEMA_BYTES: usize = 16 * 1024;

/// Largest number of fields of an answer. Questions with more fields are refused.
pub const MAX_QUESTION_FIELDS: usize = 32;

/// Largest number of choices of a field. Questions with more choices are refused.
pub const MAX_QUESTION_CHOICES: usize = 256;

/// Largest answer to a question, in bytes of JSON. Larger answers are refused.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Largest number of open questions per connection. Further questions are refused.
pub const MAX_QUESTIONS_PER_CONNECTION: usize = 16;

/// Longest timeout of a question to a person, in milliseconds.
pub const MAX_QUESTION_TIMEOUT_MS: u64 = 3_600_000;

/// Largest arguments of a tool call that a person can approve, in bytes of JSON, so that they can
/// be shown in full. A call with larger arguments is refused to the model.
pub const MAX_APPROVAL_INPUT_BYTES: usize = 64 * 1024;

/// Largest arguments of a tool call that a person can approve by a button of a chat service, in
/// bytes of JSON, because a message must show them in full. Larger arguments are shown in part; the
/// call can be denied there or decided elsewhere.
pub const MAX_APPROVAL_BUTTON_BYTES: usize = 2 * 1024;

/// Largest number of pending decisions that a connection shows. Further ones are shown as these are
/// decided.
pub const MAX_DECISIONS_SHOWN: usize = 100;

/// Largest number of buttons of a decision that a connection shows. A question with more options is
/// answered by a reply.
pub const MAX_DECISION_CHOICES: usize = 10;

/// Longest label of a button of a decision, in characters. A question with a longer option is
/// answered by a reply.
pub const MAX_DECISION_LABEL_CHARS: usize = 60;

/// Longest reason for a decision about a tool call, in bytes. Longer reasons are refused.
pub const MAX_APPROVAL_REASON_BYTES: usize = 4 * 1024;

/// Largest number of approval rules per tool. More rules are a configuration error.
pub const MAX_APPROVE_RULES: usize = 64;

/// Longest reason for a restart that an agent requests, in characters.
pub const MAX_RESTART_REASON_CHARS: usize = 500;

/// Most agents that continue a task after its first agent.
pub const MAX_FALLBACK_AGENTS: usize = 8;

/// Default number of steps per turn (`maxStepsPerTurn` of the swarm's policy).
pub const DEFAULT_MAX_STEPS_PER_TURN: u32 = 32;

/// Default number of consecutive steps with the same calls and results after which a turn fails
/// (`loopBreaker.sameCallsMax` of the swarm's policy).
pub const DEFAULT_SAME_CALLS_MAX: u32 = 8;

/// Default number of consecutive steps without anything new after which a turn fails
/// (`loopBreaker.noProgressStepsMax` of the swarm's policy).
pub const DEFAULT_NO_PROGRESS_STEPS_MAX: u32 = 16;

/// Default grace period of a stop, in milliseconds (`SUP-6`).
pub const DEFAULT_GRACE_PERIOD_MS: u64 = 300_000;

/// Default size of the compressed segments that a conversation keeps of each of its two observation
/// logs, in bytes (`observation.maxMiB` of a Swarm).
pub const DEFAULT_OBSERVATION_BYTES: u64 = 32 * 1024 * 1024;

/// Default age limit of such a segment, in days (`observation.maxDays` of a Swarm).
pub const DEFAULT_OBSERVATION_DAYS: u32 = 90;

/// Longest log line of a child, in bytes; longer lines are split and marked (`LOG-3`).
pub const MAX_LOG_LINE_BYTES: usize = 64 * 1024;

/// Timeout of a child's `hello` after its start, in milliseconds.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// Longest interval between clock checks of a process that waits for a deadline, in milliseconds
/// (`SUP-9`).
pub const PAUSE_LOOK_MS: u64 = 500;

/// Interval between clock checks from which a process counts as having been paused, in
/// milliseconds. Pauses do not count toward deadlines.
pub const PAUSE_MIN_MS: u64 = 1_000;

/// Time after a pause during which deadlines remain frozen, in milliseconds. Pending input can be
/// read and other resumed processes can respond before deadlines are enforced.
pub const PAUSE_CATCH_UP_MS: u64 = 2_000;

const _: () = assert!(PAUSE_LOOK_MS * 2 <= PAUSE_MIN_MS);
const _: () = assert!(PAUSE_LOOK_MS * 2 <= PAUSE_CATCH_UP_MS);
const _: () = assert!(MAX_MESSAGE_BYTES * 2 <= MAX_FRAME_BYTES);
const _: () = assert!(DEFAULT_REQUEST_TIMEOUT_MS <= MAX_REQUEST_TIMEOUT_MS);
const _: () = assert!(HISTORY_PAGE_BYTES + MAX_MESSAGE_BYTES < MAX_FRAME_BYTES);
const _: () = assert!(MAX_EXTENSION_STATE_BYTES * 2 < MAX_FRAME_BYTES);
const _: () = assert!(MAX_INPUT_BYTES < MAX_MESSAGE_BYTES);
const _: () = assert!(MAX_LOG_LINE_BYTES < MAX_FRAME_BYTES);
const _: () = assert!(MAX_FRAME_BYTES <= u32::MAX as usize);
