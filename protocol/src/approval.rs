//! Approvals of tool calls (`STEER-3`): rules that select the calls which need a person, and
//! decisions about them.
//!
//! The agent process evaluates its rules. It reports a call that needs approval to the orchestrator
//! (`agent.ask`, [`crate::agents::AgentQuestion::Approval`]), which stores it durably until a person
//! decides and delivers the decision once.
//!
//! Some connections show pending approvals with buttons. The messages at the end of this file carry
//! the displayed calls and the button presses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AgentName, ApprovalId, InstanceKey};
use crate::time::Timestamp;

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
}

impl Approve {
    /// The words of the configuration.
    pub const WORDS: &'static [&'static str] = &["always", "never", "ask"];

    /// Looks up a variant by its word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            "ask" => Some(Self::Ask),
            _ => None,
        }
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

/// `approvals.follow`: a connection that may ask people subscribes to pending approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalsFollow {
    /// Approvals it already shows, by its own records: at most
    /// [`crate::limits::MAX_APPROVALS_SHOWN`].
    pub known: Vec<ApprovalId>,
}

/// `approval.show`: a pending call to show to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalShow {
    /// The id to decide it with.
    pub approval_id: ApprovalId,
    /// The conversation whose turn waits.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The tool's full name.
    pub tool_name: String,
    /// The arguments, without secrets. They are untrusted because a model wrote them.
    pub input: Value,
    /// True if a previous process, running with different rules, may have begun the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// True if the call may be approved there; false if it is too long to show in full. It may
    /// always be denied.
    pub may_approve: bool,
    /// Time at which an undecided call is denied; absent if it waits without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_at: Option<Timestamp>,
}

/// `approval.closed`: a displayed approval is no longer pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalClosed {
    /// The id it was decided with.
    pub approval_id: ApprovalId,
    /// The outcome, for people to read.
    pub how: String,
}

/// `approval.press`: a person outside pressed a button; `approval.verdict` is the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalPress {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The decision.
    pub decision: ApprovalDecision,
    /// The person who pressed it, by the service's user id.
    pub user: String,
}

/// `approval.verdict`: result of a button press.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ApprovalVerdict {
    /// The decision is durable.
    Decided {
        /// The decision.
        decision: ApprovalDecision,
    },
    /// The approval was already decided, or another decision is in progress; nothing changed.
    DecidedBefore {
        /// The outcome, for people to read.
        how: String,
    },
    /// The approval is not pending, or never existed; nothing changed.
    Over {},
    /// The user is not allowed to decide it; nothing changed.
    NotAllowed {
        /// Why, for people to read.
        message: String,
    },
    /// A temporary failure; nothing changed, and the user may press again later.
    NotNow {
        /// Why, for people to read.
        message: String,
    },
}
