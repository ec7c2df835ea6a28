//! Approvals of tool calls (`STEER-3`): which calls of an agent's tools need a person, and what was decided.
//!
//! An agent's process looks its rules up. A call that is to be asked about is told to the orchestrator
//! (`agent.ask`, [`crate::agents::Question::Approval`]), which keeps it durably until a person decides, and
//! hands the decision over once.
//!
//! Some connections show people what waits, with buttons to decide by. What is shown and what was pressed are told
//! as the messages at the end of this file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AgentName, ApprovalId, InstanceKey};

/// What becomes of a tool call before it is carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// It is carried out, and nobody is asked.
    #[default]
    Always,
    /// It is not carried out; the model is told so.
    Never,
    /// A person is asked.
    Ask,
}

impl Approve {
    /// The words of the configuration.
    pub const WORDS: &'static [&'static str] = &["always", "never", "ask"];

    /// The one of this word.
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

/// What becomes of those calls of a tool that fit. The first rule that fits a call holds; a call that none
/// fits is asked about. A tool without rules is always approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproveRule {
    /// The export that is called; any if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Regular expressions that arguments fit from beginning to end, by the names of these. An argument that
    /// is no text is looked at as JSON; one that is not there fits nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
    /// What becomes of the call.
    pub approve: Approve,
}

impl ApproveRule {
    /// A rule that fits every call.
    #[must_use]
    pub fn of_all(approve: Approve) -> Self {
        Self {
            export: None,
            when: BTreeMap::new(),
            approve,
        }
    }

    /// The expression that a whole argument is held against, for a pattern as it is written.
    #[must_use]
    pub fn whole(pattern: &str) -> String {
        format!(r"\A(?:{pattern})\z")
    }
}

/// What a person decided about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalDecision {
    /// It is carried out.
    Approved,
    /// It is not; the model is told so.
    Denied,
}

impl ApprovalDecision {
    /// The decision as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
        }
    }
}

/// `approvals.follow`: a connection that may ask people wants to show what waits, from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalsFollow {
    /// What it shows already, as it remembers: at most [`crate::limits::MAX_APPROVALS_SHOWN`].
    pub known: Vec<ApprovalId>,
}

/// `approval.show`: a call that waits, to be shown to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalShow {
    /// What it is approved by.
    pub approval_id: ApprovalId,
    /// The conversation whose turn waits.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The tool's full name.
    pub tool_name: String,
    /// The arguments, without secrets. A model wrote them: they are not to be trusted.
    pub input: Value,
    /// Whether a process before this one may have begun the call: its rule was another then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// Whether it may be approved there: not if it is too long to be shown whole. It may be denied in any case.
    pub may_approve: bool,
}

/// `approval.closed`: what was shown waits no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalClosed {
    /// What it was approved by.
    pub approval_id: ApprovalId,
    /// What became of it, for people to read.
    pub how: String,
}

/// `approval.press`: somebody outside pressed a button; `approval.verdict` is the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalPress {
    /// What it is about.
    pub approval_id: ApprovalId,
    /// What is decided.
    pub decision: ApprovalDecision,
    /// Who pressed it, by the id that the service gives people.
    pub user: String,
}

/// `approval.verdict`: what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ApprovalVerdict {
    /// It is decided so, durably.
    Decided {
        /// What.
        decision: ApprovalDecision,
    },
    /// It was decided before, or is being decided: nothing changed.
    DecidedBefore {
        /// What became of it, for people to read.
        how: String,
    },
    /// It waits no more, or never did: nothing changed.
    Over {},
    /// Who pressed may not decide this: nothing changed.
    NotAllowed {
        /// Why, for people to read.
        message: String,
    },
    /// Nothing changed; to press again later is of use.
    NotNow {
        /// Why, for people to read.
        message: String,
    },
}
