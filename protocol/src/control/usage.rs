//! `workspace.usage`: what replies of models took.

use serde::{Deserialize, Serialize};

use crate::budget::BudgetState;
use crate::ids::{AgentName, WorkspaceId};
use crate::time::Day;
use crate::usage::Spending;

/// `workspace.usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadUsage {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// What is summed up together.
    pub by: UsageBy,
    /// Only replies of this day (in UTC) and later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Day>,
}

/// What is summed up together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsageBy {
    /// The replies to one agent.
    Agent,
    /// Those in one conversation.
    Instance,
    /// Those of one day, in UTC.
    Day,
    /// Those of one Model.
    Model,
    /// Those with one revision of a conversation's own configuration (`BUNDLE-7`); `project` where there was none.
    Revision,
}

impl UsageBy {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Instance => "instance",
            Self::Day => "day",
            Self::Model => "model",
            Self::Revision => "revision",
        }
    }
}

/// Result of `workspace.usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// The sums: days by time, everything else by what it took, the most first. At most
    /// [`crate::limits::MAX_USAGE_ROWS`].
    pub rows: Vec<UsageRow>,
    /// Sums that are left out of `rows`, since there are more.
    pub left_out: u64,
    /// All together, what is left out included.
    pub total: Spending,
    /// Records that cannot be read and are not counted.
    pub unreadable: u64,
    /// How budgets stand now: those of whole workspaces, then those nearest to their limits.
    pub budgets: Vec<BudgetState>,
}

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent's name, the conversation's key, the day or the Model's name.
    pub key: String,
    /// The conversation's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// What it took.
    pub spending: Spending,
}
