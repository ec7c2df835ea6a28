//! Rehearsals: recorded turns of a conversation, played with another configuration before that is active
//! (`BUNDLE-7`).
//!
//! The daemon has the binary of agents play them ([`RehearsalScript`]), and tells a client what came of it ([`Rehearsal`]).

use serde::{Deserialize, Serialize};

use crate::definition::AgentAssignment;
use crate::ids::{ChangesetId, RevisionId, ToolCallId, ToolName, TurnId};
use crate::message::Message;

/// Turns that are rehearsed if nobody says how many.
pub const DEFAULT_REHEARSAL_TURNS: u32 = 10;

/// What is played. The binary of agents reads it from its standard input, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RehearsalScript {
    /// The agent as it works now.
    pub before: AgentAssignment,
    /// The agent as it is to work.
    pub after: AgentAssignment,
    /// The conversation as it is recorded, the oldest message first.
    pub messages: Vec<Message>,
    /// How many turns are played, from the latest one backwards.
    pub turns: u32,
}

/// What came of playing turns. The binary of agents writes it to its standard output, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Played {
    /// Why nothing could be played.
    pub problems: Vec<String>,
    /// In which tools the two configurations differ.
    pub tools: ToolsDiffer,
    /// The turns, the oldest first.
    pub turns: Vec<RehearsedTurn>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// What `bundle.rehearse` returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// The changeset, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
    /// The revision; none for a changeset that was not committed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// The revision it is compared with: the one that is active.
    pub against: RevisionId,
    /// Whether something would not work any more that works now: there are problems, or findings that break.
    pub breaks: bool,
    /// Why it could not become active: it is stale or refused, does not load, or its modules do not start. Then no
    /// turn was played, but for modules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What becomes of the prompt, as a unified diff; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// What becomes of the model; none if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChange>,
    /// What becomes of the tools.
    #[serde(default, skip_serializing_if = "ToolsDiffer::is_none")]
    pub tools: ToolsDiffer,
    /// The turns, the oldest first.
    pub turns: Vec<RehearsedTurn>,
    /// What could not be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Another model is asked, or the same one otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChange {
    /// The Model it was, and what its provider calls it.
    pub before: String,
    /// The one it is.
    pub after: String,
}

/// In which tools two configurations differ, as a model sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolsDiffer {
    /// New ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<ToolName>,
    /// Those that there are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ToolName>,
    /// Those that are described otherwise, or take other arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ToolName>,
}

impl ToolsDiffer {
    /// Whether they differ in none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// A recorded turn that was played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsedTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// When it began, as its message says.
    pub at: String,
    /// The head of what it was to answer.
    pub input: String,
    /// The requests to the model, each with what of it differs.
    pub steps: Vec<RehearsedStep>,
    /// What is otherwise than it was, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Why it was not played to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl RehearsedTurn {
    /// Whether something of it would not work any more.
    #[must_use]
    pub fn breaks(&self) -> bool {
        self.findings.iter().any(|finding| finding.breaks)
    }
}

/// A request to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsedStep {
    /// The step, from 1.
    pub step: u32,
    /// What of the request differs from the one that the active revision would make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Part>,
}

/// A part of a request to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The system prompt.
    Prompt,
    /// The model, or what it is asked for.
    Model,
    /// The tools it is offered.
    Tools,
    /// The messages.
    Messages,
}

impl Part {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Model => "model",
            Self::Tools => "tools",
            Self::Messages => "messages",
        }
    }
}

/// Something that is otherwise than with the active revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What.
    pub what: FindingKind,
    /// The step.
    pub step: u32,
    /// The recorded call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The tool that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// In words.
    pub detail: String,
    /// Whether it worked and would not any more.
    pub breaks: bool,
}

/// What is otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingKind {
    /// A recorded call is refused: there is no such tool, its arguments do not fit, or a rule is against it.
    CallRefused,
    /// A recorded call that is refused now is taken.
    CallTaken,
    /// A recorded call waits for a person, or waits no more.
    Approval,
    /// The turn fails.
    TurnFails,
    /// The turn ends at another step.
    TurnEnds,
}

impl FindingKind {
    /// The words for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CallRefused => "call refused",
            Self::CallTaken => "call taken",
            Self::Approval => "approval",
            Self::TurnFails => "turn fails",
            Self::TurnEnds => "turn ends",
        }
    }
}
