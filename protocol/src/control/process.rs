//! What clients are told of child processes.

use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, InstanceKey, QuestionId, TurnId, WorkspaceId};
use crate::ipc::ChildRole;
use crate::process_limits::ProcessLimits;
use crate::sandbox::{Facts, Level};
use crate::time::Timestamp;
use crate::trace::TraceId;

/// `daemon.processes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProcesses {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// The state of a child process (`SUP-2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// Started; its handshake is not done.
    Spawning,
    /// Ready, with nothing to do.
    Idle,
    /// An agent in a turn; a connector or a model with an outgoing call.
    Processing,
    /// Told to stop; finishes what is in progress.
    Draining,
    /// Ended as it was asked to.
    Terminated,
    /// Ended as it was not asked to; a new one starts at once.
    Crashed,
    /// Crashed too often; a new one starts after a delay.
    CrashLoopBackOff,
}

impl ProcessState {
    /// The state as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spawning => "spawning",
            Self::Idle => "idle",
            Self::Processing => "processing",
            Self::Draining => "draining",
            Self::Terminated => "terminated",
            Self::Crashed => "crashed",
            Self::CrashLoopBackOff => "crashLoopBackOff",
        }
    }
}

/// What a connector or the process of a model says of its own work (`OBS-6`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// It has said nothing yet.
    Starting,
    /// It does its work: it listens, or is connected.
    Ready,
    /// It runs and cannot do its work; `detail` says why.
    NotReady,
}

impl Readiness {
    /// The word as people read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::NotReady => "not ready",
        }
    }
}

/// One child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What it is.
    pub role: ChildRole,
    /// The agent's or the connection's name.
    pub name: String,
    /// An agent's conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its state.
    pub state: ProcessState,
    /// Of a connector or a model that runs: whether it can do its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Its process id, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When the running process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Crashes since the last completed turn.
    pub consecutive_crashes: u32,
    /// When the next start is due, in back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_start_at: Option<Timestamp>,
    /// Events waiting, the one in its turn included.
    pub pending_events: usize,
    /// The turn in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Its trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Whose answers its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<InstanceKey>,
    /// The logins at authorization servers that its turn waits for, such as `OAuthApp/github`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<String>,
    /// The tool calls of its turn that wait for a person to approve them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// The questions whose answers by a person its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// What it says it does, or how the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Memory it takes now, in bytes, the parts it shares with others included; only where the system
    /// tells. What its tools take is in it where it has a control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How much of its memory counts against its limit, in bytes, if it has one: what it asked for of its
    /// own, or where it has a control group, all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_memory_bytes: Option<u64>,
    /// How much of the machine it may take; none while it does not run.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
    /// How it and what it starts are confined, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// How a process that runs is confined, right by right (`SEC-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confinement {
    /// What the kernel holds the process itself to, as it says.
    pub own: Facts,
    /// Why that is not all that a process of its kind holds itself to; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The programs that it starts; absent if it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Achieved>,
}

/// A level, and what the kernel holds for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Achieved {
    /// The level.
    pub level: Level,
    /// What is held.
    pub rights: Facts,
}
