//! Decisions of people in chats (`NEED-2`): tool calls that need approval, questions, reviews,
//! proposals without a task, and logins.
//!
//! A connection with `approvals` shows each pending decision as one message with buttons, and
//! reports presses and replies. The orchestrator checks the user and decides once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AgentName, DecisionId, InstanceKey};
use crate::limits::MAX_DECISION_LABEL_CHARS;
use crate::time::Timestamp;

/// `decisions.follow`: a connection that may ask people subscribes to pending decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionsFollow {
    /// Decisions it already shows, by its own records: at most
    /// [`crate::limits::MAX_DECISIONS_SHOWN`].
    pub known: Vec<DecisionId>,
}

/// `decision.show`: a pending decision to show to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionShow {
    /// The id to decide it with.
    pub decision_id: DecisionId,
    /// The subject of the decision.
    pub about: DecisionSubject,
    /// The answers that are offered.
    pub form: DecisionForm,
    /// Outcome without a decision; absent if it waits without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<DecisionDefault>,
}

/// Subject of a decision, without secrets. It is untrusted because a model or a program wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum DecisionSubject {
    /// A tool call that needs approval.
    Call {
        /// The conversation whose turn waits.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: AgentName,
        /// The tool's full name.
        tool_name: String,
        /// The arguments.
        input: Value,
        /// True if a previous process, running with different rules, may have begun the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_begun: bool,
        /// True if two different people must approve it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_two: bool,
        /// The approval of the first of two people, in words: `1 of 2, by telegram:12345`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_approval: Option<String>,
    },
    /// A question of an agent, of its program, or of a tool server.
    Question(DecisionText),
    /// The work of a task that waits for a review.
    Review(DecisionText),
    /// A proposal without a task.
    Proposal(DecisionNotice),
    /// A login at an authorization server, which a person makes outside the chat.
    Login(DecisionNotice),
}

/// Subject of a decision as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionText {
    /// The agent that asks.
    pub agent_name: AgentName,
    /// The task or conversation that waits, with its kind: `task shop`.
    pub of: String,
    /// The question, or a summary of the work.
    pub text: String,
    /// The command that shows everything, without `gdn`.
    pub command: String,
}

/// Subject of a decision that belongs to the project, and to no agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionNotice {
    /// The thing that waits, with its kind: `proposal r1/coder`.
    pub of: String,
    /// A summary of the changes, or the effect of the wait.
    pub text: String,
    /// The command that shows everything, or that makes the login, without `gdn`.
    pub command: String,
}

/// The answers that are offered for a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionForm {
    /// One button for each; at most [`crate::limits::MAX_DECISION_CHOICES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<DecisionChoice>,
    /// Meaning of a reply with text, as an infinitive: `answer`; absent if replies are not
    /// accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

/// A button.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionChoice {
    /// The answer that a press gives.
    pub answer: DecisionButton,
    /// Its label.
    pub label: String,
}

impl DecisionChoice {
    /// True if a text can be the label of a button: it is not blank and short enough.
    #[must_use]
    pub fn is_label(text: &str) -> bool {
        !text.trim().is_empty() && text.chars().nth(MAX_DECISION_LABEL_CHARS).is_none()
    }
}

/// Answer of a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DecisionButton {
    /// Approve the call or the work.
    Approve,
    /// Deny the call, decline to answer, or request changes.
    Deny,
    /// Answer with one of the options, from 0.
    Option(u8),
}

impl DecisionButton {
    /// The answer with this name: `approve`, `deny`, or the number of an option.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "approve" => Some(Self::Approve),
            "deny" => Some(Self::Deny),
            number => {
                let option: u8 = number.parse().ok()?;
                // Only one spelling of each number.
                (option.to_string() == number).then_some(Self::Option(option))
            }
        }
    }
}

impl std::fmt::Display for DecisionButton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Approve => f.write_str("approve"),
            Self::Deny => f.write_str("deny"),
            Self::Option(number) => write!(f, "{number}"),
        }
    }
}

impl From<DecisionButton> for String {
    fn from(button: DecisionButton) -> Self {
        button.to_string()
    }
}

impl TryFrom<String> for DecisionButton {
    type Error = String;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        let button = Self::of_word(&word);
        button.ok_or_else(|| format!("expected `approve`, `deny` or a number, found `{word}`"))
    }
}

/// Outcome of a decision that is not made in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionDefault {
    /// The time.
    pub at: Timestamp,
    /// The outcome, such as `it is denied`.
    pub outcome: String,
}

/// `decision.closed`: a displayed decision is no longer pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionClosed {
    /// The id it was decided with.
    pub decision_id: DecisionId,
    /// The outcome, for people to read.
    pub how: String,
}

/// `decision.press`: a person outside pressed a button or replied; `decision.verdict` is the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionPress {
    /// The decision.
    pub decision_id: DecisionId,
    /// The answer.
    pub answer: DecisionAnswer,
    /// The person who answers, by the service's user id.
    pub user: String,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DecisionAnswer {
    /// A button.
    Button(DecisionButton),
    /// The text of a reply.
    Text(String),
}

/// `decision.verdict`: result of a button press or a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum DecisionVerdict {
    /// The decision is durable.
    Decided {
        /// The outcome, for people to read.
        how: String,
    },
    /// The approval is durable, and another person must approve, too.
    Counted {
        /// The state, for people to read.
        message: String,
    },
    /// It was already decided, or is being decided; nothing changed.
    DecidedBefore {
        /// The outcome, for people to read.
        how: String,
    },
    /// It is not pending, or never existed; nothing changed.
    Over {},
    /// The user is not allowed to decide it, or the answer does not fit; nothing changed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn need_2_words_of_buttons_are_unique() {
        for button in [
            DecisionButton::Approve,
            DecisionButton::Deny,
            DecisionButton::Option(0),
            DecisionButton::Option(12),
        ] {
            assert_eq!(DecisionButton::of_word(&button.to_string()), Some(button));
        }
        for word in ["", "Approve", "00", "+1", "256", "-1"] {
            assert_eq!(DecisionButton::of_word(word), None, "{word}");
        }
    }
}
