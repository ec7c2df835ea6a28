//! What the core wants done.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::Sources;
use goondan_protocol::JsonObject;
use goondan_protocol::budget::BudgetState;
use goondan_protocol::call::CallPlace;
use goondan_protocol::control::{
    ControlError, ListInstances, ListWaitingChangesets, PageTrace, PrunePackages, ReadAudit,
    ReadUsage, StorePackage,
};
use goondan_protocol::ids::{ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{ChildRole, Head, ToChild};
use goondan_protocol::metrics::Sample;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{TraceContext, TraceId};
use goondan_store::audit::Logs;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::Job;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::LoadPurpose;
use crate::exchange::joint::JointWork;
use crate::exchange::oauth::OAuthWork;
use crate::exchange::{
    BundleWork, MetricsReader, ProcessId, ProposalWork, RequestToken, SecretWork, StateWork,
    TaskWork,
};
use crate::fleet::watchers::Told;
use crate::listing::ListPurpose;

/// Something to be done. The shell does it and decides nothing.
#[derive(Debug)]
pub enum Effect {
    /// Start a process.
    Spawn(Spawn),
    /// Send a message to a process.
    Send {
        /// The process.
        process: ProcessId,
        /// Request id and trace that go with it.
        head: Head,
        /// What it is told.
        message: Box<ToChild>,
    },
    /// Kill a process and its whole group.
    Kill {
        /// The process.
        process: ProcessId,
    },
    /// What a process logs now belongs to this trace; to its own, if to none.
    SetTrace {
        /// The process.
        process: ProcessId,
        /// The trace; none for its own.
        trace: Option<TraceContext>,
    },
    /// Hand a job to the store.
    Store(Job),
    /// Read a workspace from disk.
    LoadWorkspace {
        /// What it is for.
        purpose: LoadPurpose,
        /// The workspace, if its id is known already.
        workspace_id: Option<WorkspaceId>,
        /// Its Project Root.
        project_root: PathBuf,
    },
    /// Keep the files of a configuration that runs, to fall back to.
    KeepConfiguration {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The digest of the configuration.
        digest: String,
        /// Since when it runs.
        since: Timestamp,
        /// The files it was read from.
        sources: Arc<Sources>,
    },
    /// Watch these files of a workspace for changes; none to watch no longer.
    Watch {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The files to watch.
        sources: Option<Arc<Sources>>,
    },
    /// Write a workspace's record.
    WriteWorkspace(Box<WorkspaceRecord>),
    /// Give a workspace up to another node: nothing of it runs here. Answered by a client's answer if a token is named,
    /// else by [`Input::WorkspaceWritten`](crate::Input::WorkspaceWritten).
    HandOver {
        /// Which.
        workspace_id: WorkspaceId,
        /// To which node.
        to: String,
        /// Who is answered.
        token: Option<RequestToken>,
    },
    /// Read what a connection remembers, or keep something in its place.
    ConnectionState {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The connection.
        connection: ConnectionName,
        /// What is to be done.
        work: StateWork,
    },
    /// List the instances of workspaces and answer with a page of them.
    ListInstances {
        /// The request that waits for it.
        token: RequestToken,
        /// Which page.
        list: ListInstances,
        /// Which workspaces.
        workspaces: Vec<WorkspaceId>,
        /// Instances in a turn, whose files may not say so yet.
        processing: HashSet<InstanceRef>,
    },
    /// List the instances of a workspace for the core.
    ListMetadata {
        /// What it is for.
        purpose: ListPurpose,
        /// The workspace.
        workspace_id: WorkspaceId,
    },
    /// Read something for a client and answer with it.
    Read {
        /// The request that waits for it.
        token: RequestToken,
        /// What is read.
        read: Read,
    },
    /// Look into the secret store, or change it.
    Secrets {
        /// The request that waits for it.
        token: RequestToken,
        /// The time, for what is recorded.
        at: Timestamp,
        /// What is to be done.
        work: SecretWork,
    },
    /// Unpack a package into the store, and answer with what came of it.
    StorePackage {
        /// The request that waits for it.
        token: RequestToken,
        /// What is to be unpacked.
        request: StorePackage,
    },
    /// Remove packages from the store that nobody uses, and answer with what went.
    PrunePackages {
        /// The request that waits for it.
        token: RequestToken,
        /// What is to stay.
        request: PrunePackages,
    },
    /// Do something about sandboxes and proposals. Of one workspace only one of these is under way.
    Proposals {
        /// The time, for what is recorded.
        at: Timestamp,
        /// The Project Root of the workspace.
        project_root: PathBuf,
        /// What is to be done.
        work: ProposalWork,
    },
    /// Do something about the bundle of a conversation. Of one conversation only one of these is under way.
    Bundle(Box<BundleWork>),
    /// Do something about the work areas of tasks. Everything about one task is done in the order in which it
    /// is asked for.
    Tasks(Box<TaskWork>),
    /// Do something about the documents of OAuth, one after the other.
    OAuth(OAuthWork),
    /// Do something about the joint checkpoints of conversations, one after the other.
    Joint(Box<JointWork>),
    /// Answer a request.
    Respond {
        /// The request that waits for it.
        token: RequestToken,
        /// The answer.
        result: Result<Value, ControlError>,
    },
    /// Tell a client of a turn it waits for.
    Progress {
        /// The request that waits for it.
        token: RequestToken,
        /// A `RuntimeEvent`.
        event: Box<RawValue>,
    },
    /// Tell a client of a part of what comes of a call in a turn it waits for.
    Piece {
        /// The request that waits for it.
        token: RequestToken,
        /// Where in the turn the call stands.
        place: Box<CallPlace>,
        /// The part.
        piece: Box<RawValue>,
    },
    /// Tell a client that watches a workspace.
    Tell {
        /// The request that watches.
        token: RequestToken,
        /// What it is told.
        told: Box<Told>,
    },
    /// Write a line to the log.
    Log(LogEvent),
    /// Count something that happened.
    Count(Sample),
    /// Tell what is counted.
    TellMetrics {
        /// Who waits for it.
        reader: MetricsReader,
        /// What the core knows of it now.
        samples: Vec<Sample>,
    },
    /// Everything has ended; so may the daemon.
    Exit,
}

/// What is read beside the writer threads, since it is not state that they own.
#[derive(Debug)]
pub enum Read {
    /// A page of audit logs.
    Audit {
        /// Which logs.
        logs: Logs,
        /// Which page of them.
        page: ReadAudit,
    },
    /// What replies of models took in workspaces.
    Usage {
        /// Which workspaces.
        workspaces: Vec<WorkspaceId>,
        /// Which page of which sums.
        page: ReadUsage,
        /// How budgets stand, for the answer.
        budgets: Vec<BudgetState>,
    },
    /// A page of what happened in an instance's turns.
    Turns {
        /// The conversation.
        instance: InstanceRef,
        /// From which byte of its log on.
        offset: u64,
        /// Whether a turn is in progress.
        busy: bool,
    },
    /// A page of what followed from one event, across agents.
    Trace(PageTrace),
    /// A page of the changesets that wait for a person.
    WaitingChangesets(ListWaitingChangesets),
}

/// A process to be started.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// Names it towards the shell.
    pub process: ProcessId,
    /// Which program it is.
    pub role: ChildRole,
    /// What is added to each of its log lines: `workspaceId`, and `agentName` with `instanceKey` or
    /// `connection`.
    pub identity: JsonObject,
    /// True if it is the process of an agent with a model that works for a task.
    pub works_for_task: bool,
    /// The trace of what it logs outside any turn.
    pub trace_id: TraceId,
    /// How much of the machine it may take, with all it starts.
    pub limits: ProcessLimits,
}

/// How serious a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Worth a look.
    Warn,
    /// Something is wrong.
    Error,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    /// How serious it is.
    pub severity: Severity,
    /// The message, always the same for the same thing.
    pub message: &'static str,
    /// What it is about.
    pub fields: JsonObject,
    /// The instance it is about, while the name of its agent is still to be looked up.
    pub(super) instance: Option<InstanceRef>,
}

impl LogEvent {
    pub(super) fn new(severity: Severity, message: &'static str) -> Self {
        Self {
            severity,
            message,
            fields: JsonObject::new(),
            instance: None,
        }
    }

    /// A line worth knowing.
    pub fn info(message: &'static str) -> Self {
        Self::new(Severity::Info, message)
    }

    /// A line worth a look.
    pub fn warn(message: &'static str) -> Self {
        Self::new(Severity::Warn, message)
    }

    /// A line about something wrong.
    pub fn error(message: &'static str) -> Self {
        Self::new(Severity::Error, message)
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Adds fields.
    pub fn all(mut self, fields: JsonObject) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Says which conversation it is about.
    pub fn of(mut self, instance: &InstanceRef) -> Self {
        self.instance = Some(instance.clone());
        self.with("workspaceId", instance.workspace_id.as_str())
            .with("instanceKey", instance.instance_key.as_str())
    }

    /// Says to which trace it belongs.
    pub fn in_trace(self, trace: Option<TraceContext>) -> Self {
        match trace {
            Some(trace) => self
                .with("traceId", trace.trace_id.to_string())
                .with("spanId", trace.span_id.to_string()),
            None => self,
        }
    }
}
