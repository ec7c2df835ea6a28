//! `workspace.*`: projects that the daemon runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{AgentName, InstanceKey, WorkspaceId};

/// `workspace.open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenWorkspace {
    /// The Project Root, absolute.
    pub project_root: PathBuf,
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

/// `workspace.list`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListWorkspaces {}

/// `workspace.close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloseWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restart {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only this agent's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only this conversation's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Removes the conversations of what is restarted, so that they begin anew.
    #[serde(default)]
    pub fresh: bool,
}

/// Result of `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarted {
    /// How many processes are being restarted.
    pub processes: usize,
    /// Conversations that were removed (`fresh`).
    pub removed: Vec<InstanceKey>,
}

/// `workspace.audit` (`INST-6`, `SEC-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadAudit {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// The latest so many records; at most [`crate::limits::MAX_AUDIT_RECORDS`].
    pub records: usize,
}

/// Result of `workspace.audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    /// The latest records, newest last.
    pub records: Vec<AuditRecord>,
    /// Whether there are earlier ones.
    pub earlier: bool,
    /// Lines among them that cannot be read and were passed over.
    pub unreadable: u64,
}

/// One line of an audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The line: `at`, `event`, and what belongs to the event.
    pub record: JsonObject,
}
