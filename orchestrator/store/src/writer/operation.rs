//! Operations of the writer threads and their results.
//!
//! Each line of `operations!` declares one operation: its subject, the data that is durable when it
//! is reported, and its output type. The implementation is `impl Perform for Worker`. The types
//! rule out a result of another operation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use goondan_durable::VerificationResult;
use goondan_protocol::JsonObject;
use goondan_protocol::control::{ExportPart, ExportPosition, ImportResult, RewindRecord};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, ExtensionName, ExtensionStates, InstanceRef, MessageId,
    TurnId, WorkspaceId,
};
use goondan_protocol::message::Message;
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Worker;
use crate::error::StoreError;
use crate::instance::{
    ApprovalMark, CancelScope, ConversationSlice, EventState, InstanceState, LlmMessage, Metadata,
    OpenTurn, ParkedEvent, PendingReplyRecord, Pins, QueueOp, QueueOrder, RewindNote,
};
use crate::ledger::LedgerEntry;

/// An operation and the token it is reported under.
#[derive(Debug)]
pub struct StoreJob {
    pub token: u64,
    pub op: Op,
}

/// Result of a job.
#[derive(Debug)]
pub struct StoreCompletion {
    pub token: u64,
    pub report: Report,
}

/// An operation of the store and its output type.
pub trait Operation: Into<Op> {
    type Output;

    /// Extracts this operation's output; `None` if the report is another operation's.
    fn output(report: Report) -> Option<Result<Self::Output, StoreError>>;
}

/// Implementation of an operation.
pub(super) trait Perform<O: Operation> {
    /// Executes the operation without syncing its writes.
    fn perform(&mut self, operation: O) -> Result<O::Output, StoreError>;
}

/// Data that must be durable before an operation is reported, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    Nothing,
    /// The inbox. Clearing the last turn's journal is not included, because a journal that
    /// reappears after a crash is cleared again.
    Inbox,
    /// All staged data of the instance.
    Everything,
}

/// Subject of an operation. Operations on one subject run in submission order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject<'a> {
    Instance(&'a InstanceRef),
    /// Files of a workspace that belong to no instance.
    Workspace(&'a WorkspaceId),
    /// Data that belongs to no workspace.
    Root,
}

macro_rules! subject {
    (instance, $operation:ident) => {
        Subject::Instance(&$operation.instance)
    };
    (workspace, $operation:ident) => {
        Subject::Workspace(&$operation.workspace_id)
    };
    (root, $operation:ident) => {
        Subject::Root
    };
}

macro_rules! operations {
    ($($name:ident of $subject:ident promises $promise:ident -> $output:ty;)*) => {
        #[derive(Debug)]
        pub enum Op {
            $($name($name),)*
        }

        /// Result of an operation, by its name.
        #[derive(Debug)]
        pub enum Report {
            $($name(Result<$output, StoreError>),)*
        }

        impl Op {
            /// Returns the durability that the report promises.
            pub(super) fn promise(&self) -> Durability {
                match self {
                    $(Self::$name(_) => Durability::$promise,)*
                }
            }

            pub(super) fn subject(&self) -> Subject<'_> {
                match self {
                    $(Self::$name(_operation) => subject!($subject, _operation),)*
                }
            }

            pub(super) fn perform(self, worker: &mut Worker) -> Report {
                match self {
                    $(Self::$name(operation) => Report::$name(worker.perform(operation)),)*
                }
            }

            /// Returns a report of an operation that failed before it started.
            pub(super) fn refuse(&self, error: StoreError) -> Report {
                match self {
                    $(Self::$name(_) => Report::$name(Err(error)),)*
                }
            }
        }

        impl Report {
            /// Returns the operation's error, if it failed.
            #[must_use]
            pub fn error(&self) -> Option<&StoreError> {
                match self {
                    $(Self::$name(result) => result.as_ref().err(),)*
                }
            }

            /// Converts the report into a result without its output.
            ///
            /// # Errors
            ///
            /// The operation's error.
            pub fn into_done(self) -> Result<(), StoreError> {
                match self {
                    $(Self::$name(result) => result.map(drop),)*
                }
            }

            /// Replaces the result with an error, because the data is not durable.
            pub(super) fn fail(&mut self, error: StoreError) {
                match self {
                    $(Self::$name(result) => *result = Err(error),)*
                }
            }
        }

        $(
            impl From<$name> for Op {
                fn from(operation: $name) -> Self {
                    Self::$name(operation)
                }
            }

            impl Operation for $name {
                type Output = $output;

                fn output(report: Report) -> Option<Result<Self::Output, StoreError>> {
                    match report {
                        Report::$name(result) => Some(result),
                        _ => None,
                    }
                }
            }
        )*
    };
}

// Beginning a turn promises nothing: the begin record becomes durable with the turn's first event.
// A turn that a crash loses before that never began; see `unwritten_begins` for failed writes.
operations! {
    Accept of instance promises Inbox -> AcceptResult;
    JoinEvents of instance promises Inbox -> ();
    ReadSources of instance promises Everything -> BTreeSet<ConnectionName>;
    Open of instance promises Everything -> Box<InstanceState>;
    BeginTurn of instance promises Nothing -> OpenTurn;
    AppendEvent of instance promises Everything -> AppendResult;
    NoteApproval of instance promises Everything -> ();
    CompleteTurn of instance promises Everything -> ();
    CancelEvent of instance promises Everything -> CancelScope;
    AwaitReply of instance promises Everything -> ReplyAwaited;
    ForgoReply of instance promises Everything -> ();
    Observe of instance promises Nothing -> ();
    LogLlm of instance promises Nothing -> ();
    NoteAttempt of instance promises Everything -> u32;
    ParkEvent of instance promises Everything -> ();
    RetryEvent of instance promises Everything -> ();
    DropEvent of instance promises Everything -> ();
    ArrangeEvent of instance promises Everything -> QueueOrder;
    KeepSchedules of instance promises Everything -> bool;
    ReadPage of instance promises Everything -> Box<ConversationSlice>;
    ReadPageBefore of instance promises Everything -> LatestPage;
    ReadMessage of instance promises Everything -> Box<Message>;
    LookUpEvent of instance promises Everything -> EventState;
    ReadEvents of instance promises Everything -> Vec<AgentEvent>;
    Inspect of instance promises Everything -> Box<Inspection>;
    ReadParked of instance promises Everything -> Vec<ParkedEvent>;
    VerifyInstance of instance promises Everything -> Box<VerificationResult>;
    VerifyWorkspaceFiles of workspace promises Everything -> Box<VerificationResult>;
    VerifyRootFiles of root promises Everything -> Box<VerificationResult>;
    Export of instance promises Everything -> Box<ExportPart>;
    Import of instance promises Everything -> ImportResult;
    PinConversation of instance promises Everything -> Pins;
    BeginRewind of instance promises Everything -> ();
    FinishRewind of instance promises Everything -> Option<RewindRecord>;
    AbandonRewind of instance promises Everything -> ();
    Close of instance promises Everything -> ();
    Delete of instance promises Everything -> RemoveResult;
    Audit of workspace promises Everything -> ();
    RecordUsage of workspace promises Everything -> ();
}

/// Accepts an event, and creates the instance if it is missing.
#[derive(Debug)]
pub struct Accept {
    pub instance: InstanceRef,
    /// The agent that owns or will own it.
    pub agent: AgentName,
    pub event: Box<AgentEvent>,
    /// The id that it had before ids were namespaced by connection. An event known under either id
    /// is a duplicate.
    pub former_id: Option<EventId>,
}

/// The event is durable, newly accepted or known from before.
#[derive(Debug)]
pub struct AcceptResult {
    /// State of the event before.
    pub before: EventState,
    /// True if the instance was created for it.
    pub created: bool,
}

/// Returns the connections of all events that an instance remembers.
#[derive(Debug)]
pub struct ReadSources {
    pub instance: InstanceRef,
}

/// Opens an instance and returns its pending work.
#[derive(Debug)]
pub struct Open {
    pub instance: InstanceRef,
}

/// Begins a turn, or another attempt at the open one.
#[derive(Debug, Clone)]
pub struct BeginTurn {
    pub instance: InstanceRef,
    pub turn_id: TurnId,
    pub event_id: EventId,
    /// The digest of the configuration it runs under.
    pub config_digest: Option<String>,
    /// Limits of the runtime events kept.
    pub observation: ObservationBounds,
    pub at: Timestamp,
}

#[derive(Debug)]
pub struct AppendEvent {
    pub instance: InstanceRef,
    pub turn_id: TurnId,
    pub seq: u64,
    pub event: Box<RawValue>,
}

/// The message event is durable.
#[derive(Debug)]
pub struct AppendResult {
    pub turn_id: TurnId,
    pub seq: u64,
}

/// Records an approval event of a tool call of the open turn.
#[derive(Debug)]
pub struct NoteApproval {
    pub instance: InstanceRef,
    pub turn_id: TurnId,
    pub mark: ApprovalMark,
}

/// Commits the turn. Its events are folded into the base later.
#[derive(Debug)]
pub struct CompleteTurn {
    pub instance: InstanceRef,
    pub turn_id: TurnId,
    /// The number of its last event.
    pub last_seq: u64,
    /// Other waiting events that the turn consumed; they end with it.
    pub also: Vec<EventId>,
    /// New states of the extensions that changed theirs.
    pub states: ExtensionStates,
    pub outcome: TurnOutcome,
    pub at: Timestamp,
}

/// Cancels an event at a user's request. If its turn is open, commits the turn with its current
/// records; otherwise ends the waiting event.
#[derive(Debug)]
pub struct CancelEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
    pub outcome: TurnOutcome,
    /// Reason shown to the model and to users.
    pub reason: String,
    pub at: Timestamp,
}

/// Records that the answer to a question will arrive as an event. Idempotent.
#[derive(Debug)]
pub struct AwaitReply {
    /// The instance of the asking agent.
    pub instance: InstanceRef,
    pub awaited: Box<PendingReplyRecord>,
    pub at: Timestamp,
}

/// The question is recorded.
#[derive(Debug)]
pub struct ReplyAwaited {
    /// True if the answer is still pending; false if it has arrived.
    pub is_open: bool,
}

/// Records that a question will get no answer. Idempotent.
#[derive(Debug)]
pub struct ForgoReply {
    /// The instance of the asking agent.
    pub instance: InstanceRef,
    pub question: EventId,
    pub at: Timestamp,
}

/// Records a runtime event.
#[derive(Debug)]
pub struct Observe {
    pub instance: InstanceRef,
    /// The line, with its newline.
    pub line: Vec<u8>,
}

/// Records a message sent to or received from a model (`LLM-1`).
#[derive(Debug)]
pub struct LogLlm {
    pub instance: InstanceRef,
    pub message: Box<LlmMessage>,
}

/// Records the number of an event's crashed turns, if it exceeds the known one. Returns the known
/// number. Only then can a process receive the event again.
#[derive(Debug)]
pub struct NoteAttempt {
    pub instance: InstanceRef,
    pub event_id: EventId,
    /// Number of crashed turns, including this one.
    pub attempts: u32,
    pub at: Timestamp,
}

/// Parks an event with its turn's records. Idempotent.
#[derive(Debug)]
pub struct ParkEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
    pub reason: String,
    pub at: Timestamp,
}

/// Requeues a parked event; its turn will start from the beginning. Idempotent.
#[derive(Debug)]
pub struct RetryEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
    pub at: Timestamp,
}

/// Makes one input of the waiting parts of a join. Idempotent.
#[derive(Debug)]
pub struct JoinEvents {
    pub instance: InstanceRef,
    /// The last part with the texts of all.
    pub event: Box<AgentEvent>,
    pub at: Timestamp,
}

/// Changes when a waiting event gets its turn (`STEER-2`). Idempotent. Returns the new order of the
/// waiting events.
#[derive(Debug)]
pub struct ArrangeEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
    pub arrangement: QueueOp,
    pub at: Timestamp,
}

/// Ends a parked event without an answer. Idempotent.
#[derive(Debug)]
pub struct DropEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
    pub at: Timestamp,
}

/// Replaces the schedules of the instance. Reports whether the instance was created for them.
#[derive(Debug)]
pub struct KeepSchedules {
    pub instance: InstanceRef,
    /// The agent that owns or will own the instance, and the time, if it may be created.
    pub created_for: Option<(AgentName, Timestamp)>,
    /// All of them.
    pub schedules: Box<RawValue>,
}

/// Reads a page of the conversation.
#[derive(Debug)]
pub struct ReadPage {
    pub instance: InstanceRef,
    /// Offset where the page begins.
    pub offset: u64,
    /// Extensions whose states are returned with it.
    pub states_of: Vec<ExtensionName>,
}

/// Reads a page of the conversation backwards from an offset.
#[derive(Debug)]
pub struct ReadPageBefore {
    pub instance: InstanceRef,
    /// Offset where the page ends; `None` for the end of the conversation.
    pub before: Option<u64>,
    pub limit: u64,
}

/// A page read backwards from an offset.
#[derive(Debug)]
pub struct LatestPage {
    pub page: Box<ConversationSlice>,
    pub total: u64,
}

/// Reads one complete message of the conversation.
#[derive(Debug)]
pub struct ReadMessage {
    pub instance: InstanceRef,
    pub message_id: MessageId,
    /// Its offset in the base; `None` if it belongs to the open turn.
    pub offset: Option<u64>,
}

/// Returns the state of an event.
#[derive(Debug)]
pub struct LookUpEvent {
    pub instance: InstanceRef,
    pub event_id: EventId,
}

/// Returns one stored event, or the latest ones, latest first. Empty if the event is not stored.
#[derive(Debug)]
pub struct ReadEvents {
    pub instance: InstanceRef,
    pub event_id: Option<EventId>,
}

/// Returns all information about an instance.
#[derive(Debug)]
pub struct Inspect {
    pub instance: InstanceRef,
}

/// Returns the parked events of an instance, oldest first, if possible without opening it.
#[derive(Debug)]
pub struct ReadParked {
    pub instance: InstanceRef,
}

/// All information about an instance.
#[derive(Debug)]
pub struct Inspection {
    /// Its metadata, including its latest rewinds.
    pub metadata: Metadata,
    pub dir: PathBuf,
    pub messages: u64,
    /// Their size in bytes.
    pub base_bytes: u64,
    pub waiting: usize,
    /// Parked events, oldest first.
    pub parked: Vec<ParkedEvent>,
    pub extensions: BTreeMap<String, Value>,
}

/// Checks every file of an instance, and moves damaged files aside if `repair` is set. The instance
/// is closed, and the next operation reopens it.
#[derive(Debug)]
pub struct VerifyInstance {
    /// The instance. For a repair, no process may be working with it.
    pub instance: InstanceRef,
    /// True to move damaged files aside. The findings describe the state before the repair.
    pub repair: bool,
    pub at: Timestamp,
}

/// Checks the files of a workspace that belong to no instance.
#[derive(Debug)]
pub struct VerifyWorkspaceFiles {
    pub workspace_id: WorkspaceId,
    /// True to acknowledge losses, so that they are not reported again.
    pub repair: bool,
}

/// Checks files that belong to no workspace, and the owner of each workspace folder.
#[derive(Debug)]
pub struct VerifyRootFiles {
    /// True to acknowledge losses, so that they are not reported again.
    pub repair: bool,
}

/// Reads a part of the conversation's archive.
#[derive(Debug)]
pub struct Export {
    pub instance: InstanceRef,
    /// Position where the part begins; `None` for the first.
    pub position: Option<ExportPosition>,
    /// True to skip damaged records; false makes them an error.
    pub skip_damaged: bool,
    pub at: Timestamp,
}

/// Creates an instance from an archive.
#[derive(Debug)]
pub struct Import {
    /// The instance; it must not exist.
    pub instance: InstanceRef,
    pub agent: AgentName,
    pub archive: PathBuf,
    pub at: Timestamp,
}

/// Folds the whole conversation into its base, and returns the state that a joint checkpoint pins
/// (`CKPT-6`).
#[derive(Debug)]
pub struct PinConversation {
    /// The instance. It must not have a turn in progress.
    pub instance: InstanceRef,
}

/// Records the begin of a rewind.
#[derive(Debug)]
pub struct BeginRewind {
    /// The instance. It must not have a turn in progress.
    pub instance: InstanceRef,
    /// The target and the previous state.
    pub note: RewindNote,
}

/// Rewinds the conversation after its files were rewound. Idempotent.
#[derive(Debug)]
pub struct FinishRewind {
    pub instance: InstanceRef,
    /// Directory below the instance's directory with the unpacked conversation of the checkpoint.
    pub unpacked: PathBuf,
}

/// Abandons a rewind whose files are unchanged. Idempotent.
#[derive(Debug)]
pub struct AbandonRewind {
    pub instance: InstanceRef,
}

/// Writes pending metadata and closes the instance.
#[derive(Debug)]
pub struct Close {
    pub instance: InstanceRef,
}

/// Deletes an instance and all its data.
#[derive(Debug)]
pub struct Delete {
    pub instance: InstanceRef,
}

/// The instance does not exist any longer.
#[derive(Debug)]
pub struct RemoveResult {
    /// True if it existed.
    pub existed: bool,
}

/// Appends to a workspace's audit log.
#[derive(Debug)]
pub struct Audit {
    pub workspace_id: WorkspaceId,
    pub record: JsonObject,
}

/// Records the usage of a model reply. Idempotent.
#[derive(Debug)]
pub struct RecordUsage {
    pub workspace_id: WorkspaceId,
    pub entry: Box<LedgerEntry>,
}
