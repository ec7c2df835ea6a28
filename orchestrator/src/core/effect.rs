//! What the core wants done.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::Sources;
use goondan_protocol::JsonObject;
use goondan_protocol::budget::BudgetState;
use goondan_protocol::call::CallPlace;
use goondan_protocol::control::{ControlError, UsageBy};
use goondan_protocol::ids::{ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{ChildRole, Head, ToChild};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::time::{Day, Timestamp};
use goondan_protocol::trace::{TraceContext, TraceId};
use goondan_store::audit::Logs;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::Job;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection_state::StateWork;
use super::secrets::SecretWork;
use super::{ListPurpose, LoadPurpose, ProcessId, RequestToken};

/// Something to be done. The shell does it and decides nothing.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Start a process.
    Spawn(Spawn),
    /// Send a message to a process.
    Send {
        process: ProcessId,
        head: Head,
        message: Box<ToChild>,
    },
    /// Kill a process and its whole group.
    Kill { process: ProcessId },
    /// What a process logs now belongs to this trace; to its own, if to none.
    SetTrace {
        process: ProcessId,
        trace: Option<TraceContext>,
    },
    /// Hand a job to the store.
    Store(Job),
    /// Read a workspace from disk.
    LoadWorkspace {
        purpose: LoadPurpose,
        workspace_id: Option<WorkspaceId>,
        project_root: PathBuf,
    },
    /// Keep the files of a configuration that runs, to fall back to.
    KeepConfiguration {
        workspace_id: WorkspaceId,
        digest: String,
        since: Timestamp,
        sources: Arc<Sources>,
    },
    /// Watch these files of a workspace for changes; none to watch no longer.
    Watch {
        workspace_id: WorkspaceId,
        sources: Option<Arc<Sources>>,
    },
    /// Write a workspace's record.
    WriteWorkspace(Box<WorkspaceRecord>),
    /// Read what a connection remembers, or keep something in its place.
    ConnectionState {
        workspace_id: WorkspaceId,
        connection: ConnectionName,
        work: StateWork,
    },
    /// List the instances of workspaces and answer with them.
    ListInstances {
        token: RequestToken,
        workspaces: Vec<WorkspaceId>,
        /// Instances in a turn, whose files may not say so yet.
        processing: HashSet<InstanceRef>,
    },
    /// List the instances of a workspace for the core.
    ListMetadata {
        purpose: ListPurpose,
        workspace_id: WorkspaceId,
    },
    /// Read something for a client and answer with it.
    Read { token: RequestToken, read: Read },
    /// Look into the secret store, or change it.
    Secrets {
        token: RequestToken,
        at: Timestamp,
        work: SecretWork,
    },
    /// Answer a request.
    Respond {
        token: RequestToken,
        result: Result<Value, ControlError>,
    },
    /// Tell a client of a turn it waits for.
    Progress {
        token: RequestToken,
        /// A `RuntimeEvent`.
        event: Box<RawValue>,
    },
    /// Tell a client of a part of what comes of a call in a turn it waits for.
    Piece {
        token: RequestToken,
        place: Box<CallPlace>,
        piece: Box<RawValue>,
    },
    /// Write a line to the log.
    Log(LogEvent),
    /// Everything has ended; so may the daemon.
    Exit,
}

/// What is read beside the writer threads, since it is not state that they own.
#[derive(Debug)]
pub(crate) enum Read {
    /// The end of audit logs.
    Audit { logs: Logs, records: usize },
    /// What replies of models took in workspaces.
    Usage {
        workspaces: Vec<WorkspaceId>,
        by: UsageBy,
        since: Option<Day>,
        /// How budgets stand, for the answer.
        budgets: Vec<BudgetState>,
    },
    /// A page of what happened in an instance's turns.
    Turns {
        instance: InstanceRef,
        offset: u64,
        busy: bool,
    },
    /// What followed from one event, across agents.
    Trace {
        workspace_id: WorkspaceId,
        of: Option<String>,
    },
}

/// A process to be started.
#[derive(Debug, Clone)]
pub(crate) struct Spawn {
    pub(crate) process: ProcessId,
    pub(crate) role: ChildRole,
    /// What is added to each of its log lines: `workspaceId`, and `agentName` with `instanceKey` or
    /// `connection`.
    pub(crate) identity: JsonObject,
    /// The trace of what it logs outside any turn.
    pub(crate) trace_id: TraceId,
    /// How much of the machine it may take, with all it starts.
    pub(crate) limits: ProcessLimits,
}

/// How serious a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Info,
    Warn,
    Error,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogEvent {
    pub(crate) severity: Severity,
    pub(crate) message: &'static str,
    pub(crate) fields: JsonObject,
    /// The instance it is about, while the name of its agent is still to be looked up.
    pub(super) instance: Option<InstanceRef>,
}

impl LogEvent {
    fn new(severity: Severity, message: &'static str) -> Self {
        Self {
            severity,
            message,
            fields: JsonObject::new(),
            instance: None,
        }
    }

    pub(crate) fn info(message: &'static str) -> Self {
        Self::new(Severity::Info, message)
    }

    pub(crate) fn warn(message: &'static str) -> Self {
        Self::new(Severity::Warn, message)
    }

    pub(crate) fn error(message: &'static str) -> Self {
        Self::new(Severity::Error, message)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn all(mut self, fields: JsonObject) -> Self {
        self.fields.extend(fields);
        self
    }

    pub(crate) fn of(mut self, instance: &InstanceRef) -> Self {
        self.instance = Some(instance.clone());
        self.with("workspaceId", instance.workspace_id.as_str())
            .with("instanceKey", instance.instance_key.as_str())
    }

    pub(crate) fn in_trace(self, trace: Option<TraceContext>) -> Self {
        match trace {
            Some(trace) => self
                .with("traceId", trace.trace_id.to_string())
                .with("spanId", trace.span_id.to_string()),
            None => self,
        }
    }
}
