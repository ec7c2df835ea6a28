//! Budgets: bounds on what replies of models may take.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, WorkspaceId};
use crate::usage::{Charge, MicroUsd};

/// A bound on what replies of models may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Whose replies count together.
    pub scope: BudgetScope,
    /// Only this agent, or only its conversations; `None`: each one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Within what time.
    pub period: BudgetPeriod,
    /// Most tokens, in and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Most money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
}

/// Whose replies count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetScope {
    /// All of the workspace.
    Workspace,
    /// All of an agent, in whichever conversation.
    Agent,
    /// All of a conversation, and of the agents that work because it asked them.
    Instance,
}

/// Within what time replies count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetPeriod {
    /// From the beginning on.
    Ever,
    /// A day, in UTC.
    Day,
}

/// How a budget stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Whose replies count together.
    pub scope: BudgetScope,
    /// The agent, or the conversation's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Within what time.
    pub period: BudgetPeriod,
    /// The bound.
    pub limit: Amount,
    /// What was taken of it.
    pub spent: Amount,
    /// What calls that are being made may take of it at most.
    pub reserved: Amount,
}

/// So much of what a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// Tokens, in and out.
    Tokens(u64),
    /// Money.
    MicroUsd(MicroUsd),
}

impl Amount {
    /// So much of a charge as is counted in the same way.
    #[must_use]
    pub fn of(self, charge: &Charge) -> Self {
        match self {
            Self::Tokens(_) => Self::Tokens(charge.tokens),
            Self::MicroUsd(_) => Self::MicroUsd(charge.micro_usd),
        }
    }

    /// The bare number: tokens, or millionths of a dollar.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::MicroUsd(MicroUsd(micro_usd)) => micro_usd,
        }
    }

    /// This share of a limit, in percent, rounded down.
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
    /// The bounds it sets, each in what it counts.
    pub fn limits(&self) -> impl Iterator<Item = Amount> {
        let tokens = self.tokens.map(Amount::Tokens);
        tokens
            .into_iter()
            .chain(self.micro_usd.map(Amount::MicroUsd))
    }
}
