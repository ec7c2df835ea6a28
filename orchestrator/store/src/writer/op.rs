//! What the writer threads can be asked to do, and what they report.

use std::collections::BTreeSet;
use std::path::PathBuf;

use goondan_durable::Verified;
use goondan_protocol::JsonObject;
use goondan_protocol::control::{ExportPart, ExportPosition, Imported};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, ExtensionName, ExtensionStates, InstanceRef, TurnId,
    WorkspaceId,
};
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::StoreError;
use crate::instance::{
    Awaited, EventState, InstanceState, LlmMessage, Metadata, OpenTurn, Page, ParkedEvent,
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

/// An operation of the store.
#[derive(Debug)]
pub enum Op {
    /// Accept an event; makes the instance if it is missing. Reports [`Report::Accepted`].
    Accept {
        /// The instance.
        instance: InstanceRef,
        /// The agent it belongs to, or is to.
        agent: AgentName,
        /// The event.
        event: Box<AgentEvent>,
        /// The id that it had before ids were those of their connection: an event known by that one is
        /// the same.
        former_id: Option<EventId>,
    },
    /// Say by which connections the events came that an instance remembers. Reports
    /// [`Report::Sources`].
    Sources(InstanceRef),
    /// Open an instance and say what it has to do. Reports [`Report::Opened`].
    Open(InstanceRef),
    /// Begin a turn, or another attempt at the open one. Reports [`Report::Began`].
    BeginTurn {
        /// The instance.
        instance: InstanceRef,
        /// The turn's id, if it is a new one.
        turn_id: TurnId,
        /// The event it answers.
        event_id: EventId,
        /// The digest of the configuration it runs under.
        config_digest: Option<String>,
        /// How much of what is observed is kept.
        observation: ObservationBounds,
        /// The time.
        at: Timestamp,
    },
    /// Append a message event. Reports [`Report::Appended`].
    AppendEvent {
        /// The instance.
        instance: InstanceRef,
        /// The turn.
        turn_id: TurnId,
        /// The event's number.
        seq: u64,
        /// The event.
        event: Box<RawValue>,
    },
    /// Commit the turn and fold it. Reports [`Report::Committed`].
    CompleteTurn {
        /// The instance.
        instance: InstanceRef,
        /// The turn.
        turn_id: TurnId,
        /// The number of its last event.
        last_seq: u64,
        /// Other waiting events that it took in on the way: they are over with it.
        also: Vec<EventId>,
        /// What extensions remember from then on, of those that changed it.
        states: ExtensionStates,
        /// How it ended.
        outcome: TurnOutcome,
        /// The time.
        at: Timestamp,
    },
    /// Record that the answer to a question is to come as an event; again without effect. Reports
    /// [`Report::Awaiting`].
    Await {
        /// The instance whose agent asked.
        instance: InstanceRef,
        /// The question.
        awaited: Box<Awaited>,
        /// The time.
        at: Timestamp,
    },
    /// Record that no answer is to come; again without effect. Reports [`Report::Forgone`].
    Forgo {
        /// The instance whose agent asked.
        instance: InstanceRef,
        /// The question.
        question: EventId,
        /// The time.
        at: Timestamp,
    },
    /// Record a runtime event. Reports [`Report::Observed`], without a sync.
    Observe {
        /// The instance.
        instance: InstanceRef,
        /// The line, with its newline.
        line: Vec<u8>,
    },
    /// Record a message that went to a model or came from it (`LLM-1`). Reports
    /// [`Report::LlmLogged`], without a sync.
    LogLlm {
        /// The instance.
        instance: InstanceRef,
        /// The message.
        message: Box<LlmMessage>,
    },
    /// Record how many turns of an event crashed; a number not above the known one changes nothing.
    /// Reports [`Report::Attempts`], once durable: only then may the event be handed out again.
    NoteAttempt {
        /// The instance.
        instance: InstanceRef,
        /// The event.
        event_id: EventId,
        /// How many turns crashed, this one included.
        attempts: u32,
        /// The time.
        at: Timestamp,
    },
    /// Take an event out of the way, with what its turn recorded; again without effect. Reports
    /// [`Report::Parked`].
    Park {
        /// The instance.
        instance: InstanceRef,
        /// The event.
        event_id: EventId,
        /// Why, for people.
        reason: String,
        /// The time.
        at: Timestamp,
    },
    /// Let a parked event wait again, from the start of its turn; again without effect. Reports
    /// [`Report::Retried`].
    Retry {
        /// The instance.
        instance: InstanceRef,
        /// The event.
        event_id: EventId,
        /// The time.
        at: Timestamp,
    },
    /// End a parked event without an answer; again without effect. Reports [`Report::Dropped`].
    Drop {
        /// The instance.
        instance: InstanceRef,
        /// The event.
        event_id: EventId,
        /// The time.
        at: Timestamp,
    },
    /// Read a page of the conversation. Reports [`Report::Page`].
    ReadPage {
        /// The instance.
        instance: InstanceRef,
        /// Where the page begins.
        offset: u64,
        /// The extensions whose states come with it.
        states_of: Vec<ExtensionName>,
    },
    /// What is known of an event. Reports [`Report::EventState`].
    LookUpEvent {
        /// The instance.
        instance: InstanceRef,
        /// The event.
        event_id: EventId,
    },
    /// Everything about an instance. Reports [`Report::Inspected`].
    Inspect(InstanceRef),
    /// Check every file of an instance, and with `repair` set aside what is damaged. The instance is
    /// closed for it and opened anew by what comes next. Reports [`Report::Verified`].
    Verify {
        /// The instance. No process may be working with it if it is to be repaired.
        instance: InstanceRef,
        /// Whether damage is set aside; the findings are then those of before.
        repair: bool,
        /// The time.
        at: Timestamp,
    },
    /// Check the files of a workspace that belong to no instance. Reports [`Report::Verified`].
    VerifyWorkspace {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Whether a person says that they know of what is missing: it is not reported again.
        repair: bool,
    },
    /// Check what belongs to no workspace, and whose each folder of a workspace is. Reports
    /// [`Report::Verified`].
    VerifyRoot {
        /// Whether a person says that they know of what is missing: it is not reported again.
        repair: bool,
    },
    /// Read a part of the conversation's archive. Reports [`Report::Exported`].
    Export {
        /// The instance.
        instance: InstanceRef,
        /// Where the part begins; none for the first.
        position: Option<ExportPosition>,
        /// Whether damaged records are left out; otherwise they are an error.
        skip_damaged: bool,
        /// The time.
        at: Timestamp,
    },
    /// Make an instance from an archive. Reports [`Report::Imported`].
    Import {
        /// The instance; there must be none yet.
        instance: InstanceRef,
        /// The agent it is to belong to.
        agent: AgentName,
        /// The archive.
        archive: PathBuf,
        /// The time.
        at: Timestamp,
    },
    /// Write what is due and forget the open instance. Reports [`Report::Closed`].
    Close(InstanceRef),
    /// Remove an instance and all it holds. Reports [`Report::Deleted`].
    Delete(InstanceRef),
    /// Append to a workspace's audit log. Reports [`Report::Audited`].
    Audit {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The record.
        record: JsonObject,
    },
    /// Put down what a reply of a model took; again without effect. Reports [`Report::UsageRecorded`].
    RecordUsage {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// What it took.
        entry: Box<Entry>,
    },
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

impl Op {
    /// What its report promises to be durable. A turn's beginning promises nothing: it is durable with
    /// the first event of the turn, and one that is lost had not begun.
    pub(super) fn promise(&self) -> Promise {
        match self {
            Self::BeginTurn { .. } | Self::Observe { .. } | Self::LogLlm { .. } => Promise::Nothing,
            Self::Accept { .. } => Promise::Inbox,
            _ => Promise::Everything,
        }
    }

    pub(super) fn instance(&self) -> Option<&InstanceRef> {
        match self {
            Self::Accept { instance, .. }
            | Self::BeginTurn { instance, .. }
            | Self::AppendEvent { instance, .. }
            | Self::CompleteTurn { instance, .. }
            | Self::Await { instance, .. }
            | Self::Forgo { instance, .. }
            | Self::Observe { instance, .. }
            | Self::LogLlm { instance, .. }
            | Self::NoteAttempt { instance, .. }
            | Self::Park { instance, .. }
            | Self::Retry { instance, .. }
            | Self::Drop { instance, .. }
            | Self::Verify { instance, .. }
            | Self::Export { instance, .. }
            | Self::Import { instance, .. }
            | Self::ReadPage { instance, .. }
            | Self::LookUpEvent { instance, .. }
            | Self::Sources(instance)
            | Self::Open(instance)
            | Self::Inspect(instance)
            | Self::Close(instance)
            | Self::Delete(instance) => Some(instance),
            Self::VerifyWorkspace { .. }
            | Self::VerifyRoot { .. }
            | Self::Audit { .. }
            | Self::RecordUsage { .. } => None,
        }
    }
}

/// What came of an operation.
#[derive(Debug)]
pub enum Report {
    /// The event is durable, or was known before.
    Accepted {
        /// What was known of it.
        before: EventState,
        /// Whether the instance was made for it.
        created: bool,
    },
    /// By which connections the events came that the inbox still holds.
    Sources(BTreeSet<ConnectionName>),
    /// What the instance has to do.
    Opened(Box<InstanceState>),
    /// The turn began.
    Began(OpenTurn),
    /// The message event is durable.
    Appended {
        /// The turn.
        turn_id: TurnId,
        /// The event's number.
        seq: u64,
    },
    /// The turn is part of the base.
    Committed {
        /// The turn.
        turn_id: TurnId,
    },
    /// The question is on record.
    Awaiting {
        /// Whether the answer is still to come; otherwise it is there.
        is_open: bool,
    },
    /// The question is off the record.
    Forgone,
    /// The runtime event is written.
    Observed,
    /// The message is in the log of model messages.
    LlmLogged,
    /// How many turns of the event are known to have crashed.
    Attempts {
        /// The event.
        event_id: EventId,
        /// How many.
        attempts: u32,
    },
    /// The event is parked.
    Parked {
        /// The event.
        event_id: EventId,
    },
    /// The event waits again; these are all that wait now, oldest first.
    Retried {
        /// The event.
        event_id: EventId,
        /// All that wait.
        waiting: Vec<AgentEvent>,
    },
    /// The event is over.
    Dropped {
        /// The event.
        event_id: EventId,
    },
    /// A page.
    Page(Box<Page>),
    /// What is known of an event.
    EventState(EventState),
    /// Everything about an instance.
    Inspected(Box<Inspection>),
    /// What checking found.
    Verified(Box<Verified>),
    /// A part of the archive.
    Exported(Box<ExportPart>),
    /// The instance is there.
    Imported(Imported),
    /// The instance is closed.
    Closed,
    /// The instance is gone.
    Deleted {
        /// Whether it was there.
        existed: bool,
    },
    /// The record is in the audit log.
    Audited,
    /// What the reply took is put down.
    UsageRecorded,
}

/// Everything about an instance.
#[derive(Debug)]
pub struct Inspection {
    /// Its metadata.
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
    pub extensions: std::collections::BTreeMap<String, Value>,
}

/// What came of a job.
#[derive(Debug)]
pub struct Completion {
    /// The job's mark.
    pub token: u64,
    /// What came of it.
    pub result: Result<Report, StoreError>,
}
