//! Rehearsals: replays of a conversation's recorded turns with a new configuration before it
//! becomes active (`BUNDLE-7`).
//!
//! The daemon starts the agent binary with a [`RehearsalScript`], and returns a [`Rehearsal`] to
//! the client.

use serde::{Deserialize, Serialize};

use crate::definition::AgentAssignment;
use crate::ids::{ChangesetId, RevisionId, ToolCallId, ToolName, TurnId};
use crate::message::Message;

/// Default number of turns to replay.
pub const DEFAULT_REHEARSAL_TURNS: u32 = 10;

/// Input of a rehearsal. The agent binary reads it from standard input, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RehearsalScript {
    /// The agent with the active configuration.
    pub before: AgentAssignment,
    /// The agent with the new configuration.
    pub after: AgentAssignment,
    /// The recorded conversation, oldest message first.
    pub messages: Vec<Message>,
    /// Number of turns to replay, counted back from the latest one.
    pub turns: u32,
}

/// Result of a replay. The agent binary writes it to standard output, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayResult {
    /// Problems that prevented the replay.
    pub problems: Vec<String>,
    /// Differences between the tools of the two configurations.
    pub tools: ToolDifferences,
    /// The turns, oldest first.
    pub turns: Vec<RehearsedTurn>,
    /// Notes about parts that could not be checked.
    pub notes: Vec<String>,
}

/// Result of `bundle.rehearse`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// The changeset, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
    /// The revision; absent for a changeset that is not committed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// The active revision, which it is compared with.
    pub against: RevisionId,
    /// True if something that works now would break: there are problems or breaking findings.
    pub breaks: bool,
    /// Reasons why it cannot become active: it is stale or refused, does not load, or its modules
    /// do not start. Turns are then only replayed if the problem is in the modules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Change of the prompt, as a unified diff; empty if unchanged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Change of the model; absent if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChange>,
    /// Changes of the tools.
    #[serde(default, skip_serializing_if = "ToolDifferences::is_none")]
    pub tools: ToolDifferences,
    /// The turns, oldest first.
    pub turns: Vec<RehearsedTurn>,
    /// Notes about parts that could not be checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Change of the model or its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChange {
    /// The previous Model, with the provider's name for it.
    pub before: String,
    /// The new Model, with the provider's name for it.
    pub after: String,
}

/// Differences between the tools of two configurations, as shown to a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDifferences {
    /// Added tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<ToolName>,
    /// Removed tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ToolName>,
    /// Tools with a changed description or changed arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ToolName>,
}

impl ToolDifferences {
    /// True if there are no differences.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// A replayed turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsedTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// Start time of the turn, as recorded in its message.
    pub at: String,
    /// The beginning of its input.
    pub input: String,
    /// The requests to the model, with their differences.
    pub steps: Vec<RehearsedStep>,
    /// The findings, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<RehearsalFinding>,
    /// Reason why the replay stopped before the end of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl RehearsedTurn {
    /// True if a finding of the turn breaks something.
    #[must_use]
    pub fn breaks(&self) -> bool {
        self.findings.iter().any(|finding| finding.breaks)
    }
}

/// A request to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsedStep {
    /// The step, counted from 1.
    pub step: u32,
    /// Parts that differ from the request of the active revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<RequestPart>,
}

/// A part of a request to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestPart {
    /// The system prompt.
    Prompt,
    /// The model or its parameters.
    Model,
    /// The offered tools.
    Tools,
    /// The messages.
    Messages,
}

impl RequestPart {
    /// The name shown to people.
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

/// A difference from the active revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalFinding {
    /// The kind of difference.
    pub what: FindingKind,
    /// The step.
    pub step: u32,
    /// The recorded call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The tool that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Details, for people to read.
    pub detail: String,
    /// True if something that worked would fail.
    pub breaks: bool,
}

/// Kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingKind {
    /// A recorded call is refused: the tool does not exist, its arguments are invalid, or a rule
    /// forbids it.
    CallRefused,
    /// A recorded call that is refused now would be accepted.
    CallTaken,
    /// A recorded call starts or stops requiring approval.
    Approval,
    /// The turn fails.
    TurnFails,
    /// The turn ends at another step.
    TurnEnds,
}

impl FindingKind {
    /// The description shown to people.
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
