//! Every limit of the protocol, with its name and its one home.
//!
//! Limits of one component only (the store's queue lengths, a tool's output) live beside that
//! component; what two processes must agree on lives here.

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

/// Bytes of raw records one page of conversation history aims at. A page holds at least one record.
pub const HISTORY_PAGE_BYTES: usize = 1024 * 1024;

/// Bytes of a text of a message that a page of a conversation shows; the whole message is asked for by itself
/// (`OBS-1`).
pub const SHOWN_TEXT_BYTES: usize = 4 * 1024;

/// Largest state of one extension, and of all extensions of one instance together, in bytes of JSON
/// (`EXT-4`).
pub const MAX_EXTENSION_STATE_BYTES: usize = 4 * 1024 * 1024;

/// Records of audit logs that one page holds at most (`OBS-1`); a page also ends before [`HISTORY_PAGE_BYTES`] of
/// them.
pub const MAX_AUDIT_PAGE: usize = 1_000;

/// Conversations that one page of a list holds at most (`OBS-1`).
pub const MAX_INSTANCES_PAGE: usize = 1_000;

/// Processes that one page of a list, one part of a snapshot and one part of what changed hold at most
/// (`OBS-1`): each may name many conversations it waits for.
pub const MAX_PROCESSES_PAGE: usize = 250;

/// Workspaces that one page of `node.list` holds at most: each names all nodes that follow it (`REP-1`).
pub const MAX_NODES_PAGE: usize = 250;

/// Events from which on a page of a list of them ends with its conversation (`OBS-1`).
pub const MAX_EVENTS_PAGE: usize = 1_000;

/// Tasks that one page of a list holds at most (`OBS-1`).
pub const MAX_TASKS_PAGE: usize = 1_000;

/// Changesets from which on a page of a list of them ends with its conversation (`OBS-5`).
pub const MAX_CHANGESETS_PAGE: usize = 100;

/// Workspaces that one page of a list and the state of the daemon hold at most (`OBS-1`).
pub const MAX_WORKSPACES_PAGE: usize = 100;

/// Tool calls that wait for approval, on one page of a list at most (`OBS-1`).
pub const MAX_APPROVALS_PAGE: usize = 250;

/// Tool calls of which nobody knows if they had their effect, on one page of a list at most (`OBS-1`).
pub const MAX_UNKNOWN_CALLS_PAGE: usize = 500;

/// Questions that one page of a list holds at most (`OBS-1`): each has its text.
pub const MAX_QUESTIONS_PAGE: usize = 250;

/// Proposals that one page of a list holds at most (`OBS-1`): each is read from its folder, with its notes.
pub const MAX_PROPOSALS_PAGE: usize = 250;

/// Sandboxes that one page of a list holds at most (`OBS-1`).
pub const MAX_SANDBOXES_PAGE: usize = 1_000;

/// Checkpoints of one conversation or task that one page of a list holds at most (`OBS-1`).
pub const MAX_CHECKPOINTS_PAGE: usize = 1_000;

/// Events of a trace that one page holds at most (`OBS-1`); a page also ends behind [`HISTORY_PAGE_BYTES`] of
/// records.
pub const MAX_TRACE_PAGE: usize = 2_000;

/// Sums that one page of what replies of models took holds at most (`OBS-1`).
pub const MAX_USAGE_PAGE: usize = 1_000;

/// Longest instance key, in bytes of UTF-8 (`INST-1`).
pub const MAX_INSTANCE_KEY_BYTES: usize = 1024;

/// The most that one connection may keep, in bytes of JSON.
pub const MAX_CONNECTION_STATE_BYTES: usize = 256 * 1024;

/// Longest resource name (agent, connection, model, tool …), in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Longest key of one entry of a secret, in bytes.
pub const MAX_SECRET_KEY_BYTES: usize = 128;

/// Longest value of one entry of a secret, in bytes.
pub const MAX_SECRET_VALUE_BYTES: usize = 64 * 1024;

/// Entries one secret holds at most.
pub const MAX_SECRET_KEYS: usize = 64;

/// Secrets the store holds at most.
pub const MAX_SECRETS: usize = 256;

/// Longest event, turn, step, message or tool-call id, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// Longest workspace id, in bytes (`ROOT-9`).
pub const MAX_WORKSPACE_ID_BYTES: usize = 120;

/// Accepted but unfinished events one instance may hold. One more is refused as `overloaded`
/// (a webhook answers 429).
pub const MAX_PENDING_EVENTS_PER_INSTANCE: usize = 1_000;

/// How long a request to another agent waits when it does not say, in milliseconds.
pub const DEFAULT_REQUEST_TIMEOUT_MS: u64 = 60_000;

/// Longest time a request to another agent waits, in milliseconds. After that its answer comes as an
/// event.
pub const MAX_REQUEST_TIMEOUT_MS: u64 = 600_000;

/// Longest text of a question to a person, in bytes. A longer one is refused.
pub const MAX_QUESTION_TEXT_BYTES: usize = 4 * 1024;

/// Largest schema of an answer to a question, in bytes of JSON. With a larger one the question is refused.
pub const MAX_QUESTION_SCHEMA_BYTES: usize = 16 * 1024;

/// Fields that an answer to a question has at most. A question that wants more is refused.
pub const MAX_QUESTION_FIELDS: usize = 32;

/// Choices of one field of an answer at most. A question that offers more is refused.
pub const MAX_QUESTION_CHOICES: usize = 256;

/// Largest answer to a question, in bytes of JSON. A larger one is refused.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Questions of one connection that may be open at one time. One more is refused.
pub const MAX_QUESTIONS_PER_CONNECTION: usize = 16;

/// Longest time a question to a person waits, in milliseconds.
pub const MAX_QUESTION_TIMEOUT_MS: u64 = 3_600_000;

/// Largest arguments of a tool call that a person is asked to approve, in bytes of JSON: so much can be shown
/// whole. A call with more is refused to the model.
pub const MAX_APPROVAL_INPUT_BYTES: usize = 64 * 1024;

/// Largest arguments of a tool call that a person may approve by a button of a chat service, in bytes of JSON: so much
/// a message there shows whole. A call with more is shown in part, and can be denied there, or decided elsewhere.
pub const MAX_APPROVAL_BUTTON_BYTES: usize = 2 * 1024;

/// Tool calls that wait and that one connection shows at a time. Further ones are shown when one of these is decided.
pub const MAX_APPROVALS_SHOWN: usize = 100;

/// Longest reason that a person gives for a decision about a tool call, in bytes. A longer one is refused.
pub const MAX_APPROVAL_REASON_BYTES: usize = 4 * 1024;

/// Rules by which calls of one tool are approved at most. More are an error of the configuration.
pub const MAX_APPROVE_RULES: usize = 64;

/// Longest reason that an agent gives for a restart of its process, in characters.
pub const MAX_RESTART_REASON_CHARS: usize = 500;

/// Steps of one turn when the swarm's policy names no number (`maxStepsPerTurn`).
pub const DEFAULT_MAX_STEPS_PER_TURN: u32 = 32;

/// Steps in a row with the same calls and results after which a turn fails, when the swarm's policy
/// names no number (`loopBreaker.sameCallsMax`).
pub const DEFAULT_SAME_CALLS_MAX: u32 = 8;

/// Steps in a row without anything new after which a turn fails, when the swarm's policy names no number
/// (`loopBreaker.noProgressStepsMax`).
pub const DEFAULT_NO_PROGRESS_STEPS_MAX: u32 = 16;

/// Grace period of a stop when the swarm's policy names none, in milliseconds (`SUP-6`).
pub const DEFAULT_GRACE_PERIOD_MS: u64 = 300_000;

/// Bytes of compressed segments that a conversation keeps of each of its two logs of what was observed,
/// when a Swarm names no `observation.maxMiB`.
pub const DEFAULT_OBSERVATION_BYTES: u64 = 32 * 1024 * 1024;

/// Days that a conversation keeps such a segment when a Swarm names no `observation.maxDays`.
pub const DEFAULT_OBSERVATION_DAYS: u32 = 90;

/// Longest line a child may log, in bytes; longer lines are split and marked (`LOG-3`).
pub const MAX_LOG_LINE_BYTES: usize = 64 * 1024;

/// Time a child has from its start to its `hello`, in milliseconds.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// How often a process that waits for a deadline looks at the clock at least, in milliseconds (`SUP-9`).
pub const PAUSE_LOOK_MS: u64 = 500;

/// Time without such a look from which a process counts as paused, in milliseconds. No deadline counts a
/// pause.
pub const PAUSE_MIN_MS: u64 = 1_000;

/// How long after a pause the deadlines of a process go on standing still, in milliseconds, so that what has
/// come meanwhile is read, and those that were paused too can answer, before anybody is judged.
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
