//! What the writer threads can be asked to do, and what comes of it.
//!
//! `operations!` has one line for each operation: whose it is, what is durable when it is reported, and
//! what it answers. How it is done is its `impl Perform for Worker`. An answer that is not its own cannot
//! be given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use goondan_durable::Verified;
use goondan_protocol::JsonObject;
use goondan_protocol::control::{ExportPart, ExportPosition, Imported, RewindRecord};
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
    ApprovalMark, Arranged, Arrangement, Awaited, Cancelled, EventState, InstanceState, LlmMessage,
    Metadata, OpenTurn, Page, ParkedEvent, Pins, RewindNote,
};
use crate::ledger::Entry;

/// Something to be done, and the mark it is reported under.
#[derive(Debug)]
pub struct Job {
    /// Returned with the report.
    pub token: u64,
    /// What to do.
    pub op: Op,
}

/// What came of a job.
#[derive(Debug)]
pub struct Completion {
    /// The job's mark.
    pub token: u64,
    /// What came of it.
    pub report: Report,
}

/// An operation of the store, and what comes of it.
pub trait Operation: Into<Op> {
    /// What it answers.
    type Output;

    /// Its own answer; none if the report is another operation's.
    fn output(report: Report) -> Option<Result<Self::Output, StoreError>>;
}

/// How the store does an operation.
pub(super) trait Perform<O: Operation> {
    /// Does it, short of syncing what it wrote.
    fn perform(&mut self, operation: O) -> Result<O::Output, StoreError>;
}

/// What must be durable before an operation is reported. The greater covers the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    /// Nothing of it.
    Nothing,
    /// What is in the inbox. That the journal of the last turn was cleared is none of it: a journal
    /// that is there again after a crash is cleared again.
    Inbox,
    /// All that is staged for the instance.
    Everything,
}

/// What an operation is about. Operations about the same are done in the order they were handed over in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject<'a> {
    Instance(&'a InstanceRef),
    /// Files of a workspace that belong to no instance.
    Workspace(&'a WorkspaceId),
    /// What belongs to no workspace.
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
        /// Any operation of the store.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "each is documented with its type")]
        pub enum Op {
            $($name($name),)*
        }

        /// What came of an operation, under its name.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "each is documented with its operation")]
        pub enum Report {
            $($name(Result<$output, StoreError>),)*
        }

        impl Op {
            /// What its report promises to be durable.
            pub(super) fn promise(&self) -> Promise {
                match self {
                    $(Self::$name(_) => Promise::$promise,)*
                }
            }

            /// What it is about.
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

            /// Its report when it is not even tried.
            pub(super) fn refuse(&self, error: StoreError) -> Report {
                match self {
                    $(Self::$name(_) => Report::$name(Err(error)),)*
                }
            }
        }

        impl Report {
            /// Why nothing came of the operation, if nothing did.
            #[must_use]
            pub fn error(&self) -> Option<&StoreError> {
                match self {
                    $(Self::$name(result) => result.as_ref().err(),)*
                }
            }

            /// The same, taken out of the report.
            ///
            /// # Errors
            ///
            /// Why nothing came of the operation.
            pub fn into_done(self) -> Result<(), StoreError> {
                match self {
                    $(Self::$name(result) => result.map(drop),)*
                }
            }

            /// What was done turned out not to be durable.
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

// A turn's beginning promises nothing: it is durable with the first event of the turn, and one that is lost
// had not begun.
operations! {
    Accept of instance promises Inbox -> Accepted;
    ReadSources of instance promises Everything -> BTreeSet<ConnectionName>;
    Open of instance promises Everything -> Box<InstanceState>;
    BeginTurn of instance promises Nothing -> OpenTurn;
    AppendEvent of instance promises Everything -> Appended;
    NoteApproval of instance promises Everything -> ();
    CompleteTurn of instance promises Everything -> ();
    CancelEvent of instance promises Everything -> Cancelled;
    AwaitReply of instance promises Everything -> ReplyAwaited;
    ForgoReply of instance promises Everything -> ();
    Observe of instance promises Nothing -> ();
    LogLlm of instance promises Nothing -> ();
    NoteAttempt of instance promises Everything -> u32;
    ParkEvent of instance promises Everything -> ();
    RetryEvent of instance promises Everything -> ();
    DropEvent of instance promises Everything -> ();
    ArrangeEvent of instance promises Everything -> Arranged;
    ReadPage of instance promises Everything -> Box<Page>;
    ReadPageBefore of instance promises Everything -> LatestPage;
    ReadMessage of instance promises Everything -> Box<Message>;
    LookUpEvent of instance promises Everything -> EventState;
    Inspect of instance promises Everything -> Box<Inspection>;
    VerifyInstance of instance promises Everything -> Box<Verified>;
    VerifyWorkspaceFiles of workspace promises Everything -> Box<Verified>;
    VerifyRootFiles of root promises Everything -> Box<Verified>;
    Export of instance promises Everything -> Box<ExportPart>;
    Import of instance promises Everything -> Imported;
    PinConversation of instance promises Everything -> Pins;
    BeginRewind of instance promises Everything -> ();
    FinishRewind of instance promises Everything -> Option<RewindRecord>;
    AbandonRewind of instance promises Everything -> ();
    Close of instance promises Everything -> ();
    Delete of instance promises Everything -> Removed;
    Audit of workspace promises Everything -> ();
    RecordUsage of workspace promises Everything -> ();
}

/// Accepts an event; makes the instance if it is missing.
#[derive(Debug)]
pub struct Accept {
    /// The instance.
    pub instance: InstanceRef,
    /// The agent it belongs to, or is to.
    pub agent: AgentName,
    /// The event.
    pub event: Box<AgentEvent>,
    /// The id that it had before ids were those of their connection: an event known by that one is
    /// the same.
    pub former_id: Option<EventId>,
}

/// The event is durable, or was known before.
#[derive(Debug)]
pub struct Accepted {
    /// What was known of it.
    pub before: EventState,
    /// Whether the instance was made for it.
    pub created: bool,
}

/// Says by which connections the events came that an instance remembers.
#[derive(Debug)]
pub struct ReadSources {
    /// The instance.
    pub instance: InstanceRef,
}

/// Opens an instance and says what it has to do.
#[derive(Debug)]
pub struct Open {
    /// The instance.
    pub instance: InstanceRef,
}

/// Begins a turn, or another attempt at the open one.
#[derive(Debug)]
pub struct BeginTurn {
    /// The instance.
    pub instance: InstanceRef,
    /// The turn's id, if it is a new one.
    pub turn_id: TurnId,
    /// The event it answers.
    pub event_id: EventId,
    /// The digest of the configuration it runs under.
    pub config_digest: Option<String>,
    /// How much of what is observed is kept.
    pub observation: ObservationBounds,
    /// The time.
    pub at: Timestamp,
}

/// Appends a message event.
#[derive(Debug)]
pub struct AppendEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The turn.
    pub turn_id: TurnId,
    /// The event's number.
    pub seq: u64,
    /// The event.
    pub event: Box<RawValue>,
}

/// The message event is durable.
#[derive(Debug)]
pub struct Appended {
    /// The turn.
    pub turn_id: TurnId,
    /// The event's number.
    pub seq: u64,
}

/// Records something of a tool call of the open turn that needs a person.
#[derive(Debug)]
pub struct NoteApproval {
    /// The instance.
    pub instance: InstanceRef,
    /// The turn.
    pub turn_id: TurnId,
    /// What happened.
    pub mark: ApprovalMark,
}

/// Commits the turn; its events become part of the base afterwards.
#[derive(Debug)]
pub struct CompleteTurn {
    /// The instance.
    pub instance: InstanceRef,
    /// The turn.
    pub turn_id: TurnId,
    /// The number of its last event.
    pub last_seq: u64,
    /// Other waiting events that it took in on the way: they are over with it.
    pub also: Vec<EventId>,
    /// What extensions remember from then on, of those that changed it.
    pub states: ExtensionStates,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// The time.
    pub at: Timestamp,
}

/// Ends an event because a person wants it so: commits its turn as it stands if it is open, else ends the event
/// that waits.
#[derive(Debug)]
pub struct CancelEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// How its turn ended.
    pub outcome: TurnOutcome,
    /// Why, for the model and for people.
    pub reason: String,
    /// The time.
    pub at: Timestamp,
}

/// Records that the answer to a question is to come as an event; again without effect.
#[derive(Debug)]
pub struct AwaitReply {
    /// The instance whose agent asked.
    pub instance: InstanceRef,
    /// The question.
    pub awaited: Box<Awaited>,
    /// The time.
    pub at: Timestamp,
}

/// The question is on record.
#[derive(Debug)]
pub struct ReplyAwaited {
    /// Whether the answer is still to come; otherwise it is there.
    pub is_open: bool,
}

/// Records that no answer is to come; again without effect.
#[derive(Debug)]
pub struct ForgoReply {
    /// The instance whose agent asked.
    pub instance: InstanceRef,
    /// The question.
    pub question: EventId,
    /// The time.
    pub at: Timestamp,
}

/// Records a runtime event.
#[derive(Debug)]
pub struct Observe {
    /// The instance.
    pub instance: InstanceRef,
    /// The line, with its newline.
    pub line: Vec<u8>,
}

/// Records a message that went to a model or came from it (`LLM-1`).
#[derive(Debug)]
pub struct LogLlm {
    /// The instance.
    pub instance: InstanceRef,
    /// The message.
    pub message: Box<LlmMessage>,
}

/// Records how many turns of an event crashed; a number not above the known one changes nothing. Answers how
/// many are known to have crashed: only now may the event be handed out again.
#[derive(Debug)]
pub struct NoteAttempt {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// How many turns crashed, this one included.
    pub attempts: u32,
    /// The time.
    pub at: Timestamp,
}

/// Takes an event out of the way, with what its turn recorded; again without effect.
#[derive(Debug)]
pub struct ParkEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// Why, for people.
    pub reason: String,
    /// The time.
    pub at: Timestamp,
}

/// Lets a parked event wait again, from the start of its turn; again without effect.
#[derive(Debug)]
pub struct RetryEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// The time.
    pub at: Timestamp,
}

/// Has an event that waits have its turn at another time (`STEER-2`); again without effect. Answers how those that
/// wait stand then.
#[derive(Debug)]
pub struct ArrangeEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// What is wanted of it.
    pub arrangement: Arrangement,
    /// The time.
    pub at: Timestamp,
}

/// Ends a parked event without an answer; again without effect.
#[derive(Debug)]
pub struct DropEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
    /// The time.
    pub at: Timestamp,
}

/// Reads a page of the conversation.
#[derive(Debug)]
pub struct ReadPage {
    /// The instance.
    pub instance: InstanceRef,
    /// Where the page begins.
    pub offset: u64,
    /// The extensions whose states come with it.
    pub states_of: Vec<ExtensionName>,
}

/// Reads a page of the conversation from its end on.
#[derive(Debug)]
pub struct ReadPageBefore {
    /// The instance.
    pub instance: InstanceRef,
    /// Where the page ends; none for the end of the conversation.
    pub before: Option<u64>,
    /// Most messages on it.
    pub limit: u64,
}

/// A page of a conversation from its end on.
#[derive(Debug)]
pub struct LatestPage {
    /// The page.
    pub page: Box<Page>,
    /// Confirmed messages there are.
    pub total: u64,
}

/// Reads one message of the conversation, whole.
#[derive(Debug)]
pub struct ReadMessage {
    /// The instance.
    pub instance: InstanceRef,
    /// The message.
    pub message_id: MessageId,
    /// Where it begins in the base; none if it is of the open turn.
    pub offset: Option<u64>,
}

/// Says what is known of an event.
#[derive(Debug)]
pub struct LookUpEvent {
    /// The instance.
    pub instance: InstanceRef,
    /// The event.
    pub event_id: EventId,
}

/// Says everything about an instance.
#[derive(Debug)]
pub struct Inspect {
    /// The instance.
    pub instance: InstanceRef,
}

/// Everything about an instance.
#[derive(Debug)]
pub struct Inspection {
    /// Its metadata, with the rewinds it remembers.
    pub metadata: Metadata,
    /// Its directory.
    pub dir: PathBuf,
    /// Confirmed messages.
    pub messages: u64,
    /// Their size in bytes.
    pub base_bytes: u64,
    /// Events that wait.
    pub waiting: usize,
    /// Events that were taken out of the way, oldest first.
    pub parked: Vec<ParkedEvent>,
    /// State of its extensions.
    pub extensions: BTreeMap<String, Value>,
}

/// Checks every file of an instance, and with `repair` sets aside what is damaged. The instance is closed
/// for it and opened anew by what comes next.
#[derive(Debug)]
pub struct VerifyInstance {
    /// The instance. No process may be working with it if it is to be repaired.
    pub instance: InstanceRef,
    /// Whether damage is set aside; the findings are then those of before.
    pub repair: bool,
    /// The time.
    pub at: Timestamp,
}

/// Checks the files of a workspace that belong to no instance.
#[derive(Debug)]
pub struct VerifyWorkspaceFiles {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Whether a person says that they know of what is missing: it is not reported again.
    pub repair: bool,
}

/// Checks what belongs to no workspace, and whose each folder of a workspace is.
#[derive(Debug)]
pub struct VerifyRootFiles {
    /// Whether a person says that they know of what is missing: it is not reported again.
    pub repair: bool,
}

/// Reads a part of the conversation's archive.
#[derive(Debug)]
pub struct Export {
    /// The instance.
    pub instance: InstanceRef,
    /// Where the part begins; none for the first.
    pub position: Option<ExportPosition>,
    /// Whether damaged records are left out; otherwise they are an error.
    pub skip_damaged: bool,
    /// The time.
    pub at: Timestamp,
}

/// Makes an instance from an archive.
#[derive(Debug)]
pub struct Import {
    /// The instance; there must be none yet.
    pub instance: InstanceRef,
    /// The agent it is to belong to.
    pub agent: AgentName,
    /// The archive.
    pub archive: PathBuf,
    /// The time.
    pub at: Timestamp,
}

/// Brings all of a conversation into its base, and says what of it a joint checkpoint pins (`CKPT-6`).
#[derive(Debug)]
pub struct PinConversation {
    /// The instance. No turn of it may be in progress.
    pub instance: InstanceRef,
}

/// Notes that a rewind has begun.
#[derive(Debug)]
pub struct BeginRewind {
    /// The instance. No turn of it may be in progress.
    pub instance: InstanceRef,
    /// To where.
    pub note: RewindNote,
}

/// Takes the conversation back, whose files have been; again without effect.
#[derive(Debug)]
pub struct FinishRewind {
    /// The instance.
    pub instance: InstanceRef,
    /// Where the conversation as it was is unpacked, below the instance's directory.
    pub unpacked: PathBuf,
}

/// Gives a rewind up whose files are as they were; again without effect.
#[derive(Debug)]
pub struct AbandonRewind {
    /// The instance.
    pub instance: InstanceRef,
}

/// Writes what is due and forgets the open instance.
#[derive(Debug)]
pub struct Close {
    /// The instance.
    pub instance: InstanceRef,
}

/// Removes an instance and all it holds.
#[derive(Debug)]
pub struct Delete {
    /// The instance.
    pub instance: InstanceRef,
}

/// The instance is gone.
#[derive(Debug)]
pub struct Removed {
    /// Whether it was there.
    pub existed: bool,
}

/// Appends to a workspace's audit log.
#[derive(Debug)]
pub struct Audit {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The record.
    pub record: JsonObject,
}

/// Puts down what a reply of a model took; again without effect.
#[derive(Debug)]
pub struct RecordUsage {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What it took.
    pub entry: Box<Entry>,
}
