//! Approvals of tool calls (`STEER-3`): which calls of an agent's tools need a person, and what was decided.
//!
//! An agent's process looks its rules up. A call that is to be asked about is told to the orchestrator
//! (`agent.ask`, [`crate::agents::Question::Approval`]), which keeps it durably until a person decides, and
//! hands the decision over once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
