//! `workspace.usage`: usage and cost of models.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetState;
use crate::ids::{AgentName, WorkspaceId};
use crate::limits::MAX_USAGE_PAGE;
use crate::task::AgentAccount;
use crate::time::{Day, Timestamp};
use crate::usage::{MicroUsd, Usage, UsageTotal};

use super::pages::page_of;

/// `workspace.usage`: one page of the usage of models (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadUsage {
    /// Return only usage of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Grouping of the sums.
    pub by: UsageGrouping,
    /// Count only replies of this day (in UTC) and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Day>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<UsageCursor>,
    /// Page size; defaults to and is capped at [`MAX_USAGE_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The last sum of a page. Opaque to clients, which return it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsageCursor {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its key.
    pub key: String,
    /// The agent of its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// Its cost.
    pub cost_micro_usd: MicroUsd,
    /// Its tokens.
    pub tokens: u64,
}

/// Grouping of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsageGrouping {
    /// By agent.
    Agent,
    /// By conversation.
    Instance,
    /// By day, in UTC.
    Day,
    /// By Model.
    Model,
    /// By revision of the conversation's own configuration (`BUNDLE-7`); `project` if it had none.
    Revision,
}

impl UsageGrouping {
    /// The serialized form.
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
    /// The sums: days from the latest to the earliest, everything else from the largest sum to the
    /// smallest.
    pub rows: Vec<UsageRow>,
    /// Number of sums on further pages.
    pub left_out: u64,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UsageCursor>,
    /// Total of all pages.
    pub total: UsageTotal,
    /// Number of unreadable records, which are not counted.
    pub unreadable: u64,
    /// Current state of the budgets: those of whole workspaces first, then those closest to their
    /// limits.
    pub budgets: Vec<BudgetState>,
    /// Accounts of the coding agents, by program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountUsage>,
}

/// Current usage window of a coding agent's account (`AGENT-8`). It begins when the account's last
/// known limit was reset, and counts the tasks of all workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountUsage {
    /// The account.
    pub account: AgentAccount,
    /// Agents that use it.
    pub agents: Vec<AgentName>,
    /// Reset time of its limit; absent if no limit is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
    /// Start of the window; absent if no limit was reset yet. Usage is known for eight days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Tokens in the window.
    pub usage: Usage,
    /// Cost in the window, as far as the program reports it.
    pub cost_micro_usd: MicroUsd,
}

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent's name, the conversation's key, the day or the Model's name.
    pub key: String,
    /// The agent of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// Its usage.
    pub spending: UsageTotal,
}

/// Sort key of sums, in ascending order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UsageSortKey<'a> {
    day: Reverse<&'a str>,
    took: Reverse<(MicroUsd, u64)>,
    name: (&'a WorkspaceId, &'a str, Option<&'a AgentName>),
}

impl UsageGrouping {
    fn place<'a>(
        self,
        took: (MicroUsd, u64),
        name: (&'a WorkspaceId, &'a str, Option<&'a AgentName>),
    ) -> UsageSortKey<'a> {
        let is_day = self == Self::Day;
        UsageSortKey {
            day: Reverse(if is_day { name.1 } else { "" }),
            took: Reverse(if is_day { (MicroUsd(0), 0) } else { took }),
            name,
        }
    }
}

impl UsageRow {
    fn took(&self) -> (MicroUsd, u64) {
        let spending = &self.spending;
        (spending.cost_micro_usd, spending.usage.total())
    }

    fn place(&self, by: UsageGrouping) -> UsageSortKey<'_> {
        let name = (
            &self.workspace_id,
            self.key.as_str(),
            self.agent_name.as_ref(),
        );
        by.place(self.took(), name)
    }

    fn cursor(&self) -> UsageCursor {
        let (cost_micro_usd, tokens) = self.took();
        UsageCursor {
            workspace_id: self.workspace_id.clone(),
            key: self.key.clone(),
            agent_name: self.agent_name.clone(),
            cost_micro_usd,
            tokens,
        }
    }
}

impl ReadUsage {
    /// The requested page of all sums. A sum that grows meanwhile moves to an earlier page, except when
    /// grouped by day.
    #[must_use]
    pub fn page_of(&self, mut all: Vec<UsageRow>, total: UsageTotal) -> UsageReport {
        if let Some(after) = &self.after {
            let took = (after.cost_micro_usd, after.tokens);
            let name = (
                &after.workspace_id,
                after.key.as_str(),
                after.agent_name.as_ref(),
            );
            let after = self.by.place(took, name);
            all.retain(|row| row.place(self.by) > after);
        }
        all.sort_by(|one, other| one.place(self.by).cmp(&other.place(self.by)));
        let behind = all.len();
        let (rows, next) = page_of(
            all.into_iter(),
            self.limit,
            MAX_USAGE_PAGE,
            UsageRow::cursor,
        );
        UsageReport {
            left_out: (behind - rows.len()) as u64,
            rows,
            next,
            total,
            unreadable: 0,
            budgets: Vec::new(),
            accounts: Vec::new(),
        }
    }
}
