//! What the daemon tells of itself.

use super::{
    AgentName, ChildRole, Deserialize, InstanceKey, PathBuf, Serialize, Timestamp, TraceId, TurnId,
    Value, Version, WorkspaceId,
};

/// The daemon's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// Its exact version.
    pub version: Version,
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// The System Root it owns.
    pub state_root: PathBuf,
    /// Where it writes its log: a directory, or none when it writes to stdout only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// Log lines dropped because stdout was read too slowly.
    pub dropped_log_lines: u64,
    /// Whether it is stopping.
    pub stopping: bool,
    /// The registered workspaces.
    pub workspaces: Vec<WorkspaceInfo>,
}

/// One registered workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceInfo {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its Project Root.
    pub project_root: PathBuf,
    /// The package's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The agent that gets what names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_agent: Option<AgentName>,
    /// Every agent.
    pub agents: Vec<AgentName>,
    /// Every connection.
    pub connections: Vec<String>,
    /// Agent processes that run.
    pub running_agents: usize,
    /// Events that wait for their turn or are in it.
    pub pending_events: usize,
    /// Why it does not run as it should, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<WorkspaceProblem>,
}

/// Why a workspace does not run as it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceProblem {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub suggestion: String,
}

/// The state of a child process (`SUP-2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// Started; its handshake is not done.
    Spawning,
    /// Ready, with nothing to do.
    Idle,
    /// In a turn. A connector at work is always processing.
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
    /// What it says it does, or how the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One instance, in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSummary {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The agent.
    pub agent_name: AgentName,
    /// `idle` or `processing`.
    pub status: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One instance, in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: InstanceSummary,
    /// Its directory.
    pub directory: PathBuf,
    /// Where its tools work.
    pub work_dir: PathBuf,
    /// Confirmed messages.
    pub messages: u64,
    /// Bytes of the confirmed messages.
    pub base_bytes: u64,
    /// Events that wait for their turn or are in it.
    pub pending_events: usize,
    /// Its process, if one runs or is to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// State of its extensions, by name.
    pub extensions: std::collections::BTreeMap<String, Value>,
}
