//! Budgets: limits on the usage of models.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, WorkspaceId};
use crate::usage::{Charge, MicroUsd};

/// A limit on the usage of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Scope of the budget.
    pub scope: BudgetScope,
    /// The agent that the budget applies to, including its conversations; `None` for a separate
    /// budget per agent or conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Period of the budget.
    pub period: BudgetPeriod,
    /// Token limit, input and output combined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
}

/// Scope in which usage is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetScope {
    /// The whole workspace.
    Workspace,
    /// An agent, across its conversations.
    Agent,
    /// A conversation, including the agents that work on its requests.
    Instance,
}

/// Period in which usage is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetPeriod {
    /// Since the beginning.
    Ever,
    /// A day, in UTC.
    Day,
}

/// State of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Scope of the budget.
    pub scope: BudgetScope,
    /// The agent, or the agent of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Period of the budget.
    pub period: BudgetPeriod,
    /// The limit.
    pub limit: Amount,
    /// Usage so far.
    pub spent: Amount,
    /// Estimated maximum usage of running calls.
    pub reserved: Amount,
}

/// An amount in the unit that a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// Tokens, input and output.
    Tokens(u64),
    /// Cost.
    MicroUsd(MicroUsd),
}

impl Amount {
    /// The part of a charge in the same unit.
    #[must_use]
    pub fn of(self, charge: &Charge) -> Self {
        match self {
            Self::Tokens(_) => Self::Tokens(charge.tokens),
            Self::MicroUsd(_) => Self::MicroUsd(charge.micro_usd),
        }
    }

    /// The plain number: tokens, or millionths of a dollar.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::MicroUsd(MicroUsd(micro_usd)) => micro_usd,
        }
    }

    /// Percentage of a limit, rounded down.
    #[must_use]
    pub fn percent_of(self, limit: Self) -> u64 {
        let share = u128::from(self.number()) * 100 / u128::from(limit.number().max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(1) => f.write_str("1 token"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::MicroUsd(amount) => write!(f, "{amount}"),
        }
    }
}

impl Budget {
    /// Its limits, one per unit.
    pub fn limits(&self) -> impl Iterator<Item = Amount> {
        let tokens = self.tokens.map(Amount::Tokens);
        tokens
            .into_iter()
            .chain(self.micro_usd.map(Amount::MicroUsd))
    }
}
