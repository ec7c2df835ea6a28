//! `workspace.usage`: what replies of models took.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetState;
use crate::ids::{AgentName, WorkspaceId};
use crate::limits::MAX_USAGE_PAGE;
use crate::time::Day;
use crate::usage::{MicroUsd, Spending};

use super::paging::page_of;

/// `workspace.usage`: one page of what replies of models took (`OBS-1`).
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
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<UsageCursor>,
    /// Most sums on the page, at most and if it is not said [`MAX_USAGE_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The last sum of a page. A client hands it back as it got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsageCursor {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its key.
    pub key: String,
    /// Its conversation's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// What it had cost.
    pub cost_micro_usd: MicroUsd,
    /// The tokens it had taken.
    pub tokens: u64,
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
    /// The sums: the latest day first, of everything else what took most.
    pub rows: Vec<UsageRow>,
    /// How many follow on further pages.
    pub left_out: u64,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UsageCursor>,
    /// All together, on all pages.
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

/// What sums are ordered by: the least comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    day: Reverse<&'a str>,
    took: Reverse<(MicroUsd, u64)>,
    name: (&'a WorkspaceId, &'a str, Option<&'a AgentName>),
}

impl UsageBy {
    fn place<'a>(
        self,
        took: (MicroUsd, u64),
        name: (&'a WorkspaceId, &'a str, Option<&'a AgentName>),
    ) -> Place<'a> {
        let is_day = self == Self::Day;
        Place {
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

    fn place(&self, by: UsageBy) -> Place<'_> {
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
    /// The page that is asked for of all sums. What takes more meanwhile moves to an earlier page, but for days.
    #[must_use]
    pub fn page_of(&self, mut all: Vec<UsageRow>, total: Spending) -> UsageReport {
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
        }
    }
}
