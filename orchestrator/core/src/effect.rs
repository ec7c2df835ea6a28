//! Output of the core: operations that the shell executes.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::Sources;
use goondan_protocol::JsonObject;
use goondan_protocol::budget::BudgetState;
use goondan_protocol::call::CallPlace;
use goondan_protocol::control::{
    AccountUsage, ControlError, ListInstances, ListWaitingChangesets, PageTrace, PrunePackages,
    ReadAudit, ReadUsage, StorePackage,
};
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{ChildRole, EnvelopeHeader, ToChild};
use goondan_protocol::metrics::Sample;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{TraceContext, TraceId};
use goondan_store::audit::Logs;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::StoreJob;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::LoadPurpose;
use crate::exchange::joint::JointWork;
use crate::exchange::oauth::OAuthWork;
use crate::exchange::{
    BundleWork, MetricsReader, ProcessId, ProposalWork, RequestToken, SecretWork, StateWork,
    TaskWork,
};
use crate::fleet::watchers::WatchNotification;
use crate::instance_list::ListPurpose;

/// An operation requested by the core. The shell executes it and makes no decisions.
#[derive(Debug)]
pub enum CoreEffect {
    Spawn(Spawn),
    /// Send a message to a process.
    Send {
        process: ProcessId,
        /// Request id and trace of the message.
        head: EnvelopeHeader,
        message: Box<ToChild>,
    },
    /// Kill a process and its process group.
    Kill {
        process: ProcessId,
    },
    /// Assign a process's log lines to a trace.
    SetTrace {
        process: ProcessId,
        /// The trace; `None` restores the process's own trace.
        trace: Option<TraceContext>,
    },
    /// Submit a job to the store.
    Store(StoreJob),
    /// Read a workspace from disk.
    LoadWorkspace {
        purpose: LoadPurpose,
        /// The workspace, if its id is known.
        workspace_id: Option<WorkspaceId>,
        project_root: PathBuf,
    },
    /// Save the files of the running configuration as a fallback.
    KeepConfiguration {
        workspace_id: WorkspaceId,
        /// The digest of the configuration.
        digest: String,
        /// Time at which the configuration became active.
        since: Timestamp,
        /// The files of the configuration.
        sources: Arc<Sources>,
    },
    /// Start or stop watching a workspace's files for changes.
    Watch {
        workspace_id: WorkspaceId,
        /// The files to watch; `None` stops watching.
        sources: Option<Arc<Sources>>,
    },
    WriteWorkspace(Box<WorkspaceRecord>),
    /// Hand a workspace over to another node. None of its processes runs on this node. The result
    /// is sent to the client if `token` is set, otherwise as
    /// [`CoreInput::WorkspaceWritten`](crate::CoreInput::WorkspaceWritten).
    HandOver {
        workspace_id: WorkspaceId,
        to: String,
        /// The client's request, if any.
        token: Option<RequestToken>,
    },
    /// Read or replace a connection's persistent state.
    ConnectionState {
        workspace_id: WorkspaceId,
        connection: ConnectionName,
        work: StateWork,
    },
    /// List instances of workspaces and respond with a page.
    ListInstances {
        token: RequestToken,
        list: ListInstances,
        workspaces: Vec<WorkspaceId>,
        /// Instances with a turn in progress, which their files may not show yet.
        processing: HashSet<InstanceRef>,
    },
    /// List the instances of a workspace for the core.
    ListMetadata {
        purpose: ListPurpose,
        workspace_id: WorkspaceId,
    },
    /// Read data for a client and respond with it.
    Read {
        token: RequestToken,
        read: ReadRequest,
    },
    /// Read or change the secret store.
    Secrets {
        token: RequestToken,
        at: Timestamp,
        work: SecretWork,
    },
    /// Unpack a package into the store and respond with the result.
    StorePackage {
        token: RequestToken,
        request: StorePackage,
    },
    /// Remove unused packages from the store and respond with the removed ones.
    PrunePackages {
        token: RequestToken,
        request: PrunePackages,
    },
    /// Operate on sandboxes and proposals. At most one such operation per workspace is in progress.
    Proposals {
        at: Timestamp,
        /// The Project Root of the workspace.
        project_root: PathBuf,
        work: ProposalWork,
    },
    /// Operate on the bundle of a conversation. At most one such operation per conversation is in
    /// progress.
    Bundle(Box<BundleWork>),
    /// Operate on the work areas of tasks. Operations on one task are executed in order.
    Tasks(Box<TaskWork>),
    /// Operate on the OAuth documents, in order.
    OAuth(OAuthWork),
    /// Operate on the joint checkpoints of conversations, in order.
    Joint(Box<JointWork>),
    Respond {
        token: RequestToken,
        result: Result<Value, ControlError>,
    },
    /// Report an event of a turn to a client that waits for it.
    Progress {
        token: RequestToken,
        /// A `RuntimeEvent`.
        event: Box<RawValue>,
    },
    /// Report a partial call result of a turn to a client that waits for it.
    Piece {
        token: RequestToken,
        /// Position of the call in the turn.
        place: Box<CallPlace>,
        piece: Box<RawValue>,
    },
    /// Notify a client that watches a workspace.
    Tell {
        token: RequestToken,
        workspace_id: WorkspaceId,
        told: Box<WatchNotification>,
    },
    /// Write a line to the log.
    Log(LogEvent),
    Count(Sample),
    TellMetrics {
        reader: MetricsReader,
        samples: Vec<Sample>,
    },
    /// Exit the daemon; everything else has ended.
    Exit,
}

/// Data that can be read outside the writer threads, because they do not own it.
#[derive(Debug)]
pub enum ReadRequest {
    /// A page of audit logs.
    Audit { logs: Logs, page: ReadAudit },
    /// Usage of model replies in workspaces.
    Usage {
        workspaces: Vec<WorkspaceId>,
        /// The requested page and grouping.
        page: ReadUsage,
        /// Current budget states, for the response.
        budgets: Vec<BudgetState>,
        /// Accounts of coding agents, for the response.
        accounts: Vec<AccountUsage>,
    },
    /// A page of the events of an instance's turns.
    Turns {
        instance: InstanceRef,
        /// Byte offset in its log to start from.
        offset: u64,
        /// Byte offset in its log to end at; takes precedence.
        before: Option<u64>,
        /// True if a turn is in progress.
        busy: bool,
    },
    /// A page of the events that one event caused, across agents.
    Trace(PageTrace),
    /// A page of the changesets that await approval.
    WaitingChangesets(ListWaitingChangesets),
}

/// A process to start.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// Id of the process in the shell.
    pub process: ProcessId,
    pub role: ChildRole,
    /// Fields added to each of its log lines: `workspaceId`, and either `agentName` and
    /// `instanceKey` or `connection`.
    pub identity: JsonObject,
    /// True for the process of a model-based agent that works on a task.
    pub works_for_task: bool,
    /// Trace of the log lines outside any turn.
    pub trace_id: TraceId,
    /// Resource limits of the process and its descendants.
    pub limits: ProcessLimits,
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A detail, which the default level of the log omits.
    Debug,
    Info,
    /// A problem that may need attention.
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    pub severity: Severity,
    /// The message, constant for each kind of event.
    pub message: &'static str,
    pub fields: JsonObject,
    /// The instance, until the name of its agent is resolved.
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

    /// Creates an informational line.
    pub fn info(message: &'static str) -> Self {
        Self::new(Severity::Info, message)
    }

    pub fn warn(message: &'static str) -> Self {
        Self::new(Severity::Warn, message)
    }

    /// Creates an error line.
    pub fn error(message: &'static str) -> Self {
        Self::new(Severity::Error, message)
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    pub fn all(mut self, fields: JsonObject) -> Self {
        self.fields.extend(fields);
        self
    }

    pub fn of(mut self, instance: &InstanceRef) -> Self {
        self.instance = Some(instance.clone());
        self.with("workspaceId", instance.workspace_id.as_str())
            .with("instanceKey", instance.instance_key.as_str())
    }

    /// Adds the fields of a conversation, with the name of its agent (`LOG-3`).
    pub(crate) fn about(self, instance: &InstanceRef, agent: Option<&AgentName>) -> Self {
        let event = Self {
            instance: None,
            ..self.of(instance)
        };
        match agent {
            Some(agent) => event.with("agentName", agent.as_str()),
            None => event,
        }
    }

    pub fn in_trace(self, trace: Option<TraceContext>) -> Self {
        match trace {
            Some(trace) => self
                .with("traceId", trace.trace_id.to_string())
                .with("spanId", trace.span_id.to_string()),
            None => self,
        }
    }
}
