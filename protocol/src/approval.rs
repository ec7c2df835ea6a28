//! Approvals of tool calls (`STEER-3`): rules that select the calls which need a person, and
//! decisions about them.
//!
//! The agent process evaluates its rules. It reports a call that needs approval to the orchestrator
//! (`agent.ask`, [`crate::agents::AgentQuestion::Approval`]), which stores it durably until a person
//! decides and delivers the decision once.
//!
//! Some connections show pending approvals with buttons ([`crate::decision`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Treatment of a tool call before it is executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// The call is executed without asking.
    #[default]
    Always,
    /// The call is not executed, and the model is informed.
    Never,
    /// A person must approve the call.
    Ask,
    /// Two different people must approve the call.
    #[serde(rename = "askTwo")]
    AskTwo,
}

impl Approve {
    /// The words of the configuration.
    pub const WORDS: &'static [&'static str] = &["always", "never", "ask", "askTwo"];

    /// Looks up a variant by its word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            "ask" => Some(Self::Ask),
            "askTwo" => Some(Self::AskTwo),
            _ => None,
        }
    }

    /// True if people must approve the call.
    #[must_use]
    pub fn needs_person(self) -> bool {
        matches!(self, Self::Ask | Self::AskTwo)
    }
}

/// Treatment of the tool calls that match. The first matching rule applies; a call that matches no
/// rule needs approval. A tool without rules is always approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproveRule {
    /// The export that is called; matches any export if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Regular expressions by argument name. Each must match its whole argument. An argument that
    /// is not a string is matched as JSON; a missing argument never matches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
    /// Treatment of a matching call.
    pub approve: Approve,
}

impl ApproveRule {
    /// A rule that matches every call.
    #[must_use]
    pub fn of_all(approve: Approve) -> Self {
        Self {
            export: None,
            when: BTreeMap::new(),
            approve,
        }
    }

    /// The expression that matches a whole argument, built from a configured pattern.
    #[must_use]
    pub fn whole(pattern: &str) -> String {
        format!(r"\A(?:{pattern})\z")
    }
}

/// Later calls that a standing approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalScope {
    /// Calls in the same conversation.
    Conversation,
    /// Calls in every conversation of the workspace.
    Workspace,
}

/// A person's decision about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalDecision {
    /// The call is executed.
    Approved,
    /// The call is not executed, and the model is informed.
    Denied,
}

impl ApprovalDecision {
    /// The serialized form of the decision.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
        }
    }
}
