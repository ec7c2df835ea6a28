//! Questions to a person: what a tool call wants to know before it goes on.
//!
//! Today an MCP server asks (`elicitation/create`); its connector hands the question to the orchestrator
//! ([`QuestionAsk`]), which keeps it until a person answers it over the control API, its time is up, or
//! the call it came under is over. Either way the connector hears exactly one [`QuestionAnswered`], or at
//! once a [`QuestionRefused`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;
use crate::call::CallId;

mod form;
mod schema;

pub use form::{Choice, FieldKind, FormField, QuestionForm, TextFormat};
pub use schema::BadForm;

/// `question.ask`: a connector asks a person something, for the sake of a call that it makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAsk {
    /// The call, by the orchestrator's name: the question lives as long as it does.
    pub call_id: CallId,
    /// What is asked, in words: 1 to [`crate::limits::MAX_QUESTION_TEXT_BYTES`].
    pub message: String,
    /// The form of the answer, as the server wrote it: a flat JSON Schema that
    /// [`QuestionForm::of_schema`] takes.
    pub schema: Value,
    /// How long the question may wait, in milliseconds.
    pub timeout_ms: u64,
}

/// `question.withdraw`: whoever asked does not want to know any more. There is no answer to it, nor to the
/// question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionWithdraw {
    /// The id of the request that asked.
    pub request_id: u64,
}

/// `question.answered`: what came of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAnswered {
    /// What was decided.
    pub action: QuestionAction,
    /// The answer, which fits the form, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<JsonObject>,
}

/// `question.refused`: nobody will be asked that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionRefused {
    /// Why, and what would be taken.
    pub message: String,
}

/// What was decided about a question, in MCP's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionAction {
    /// A person answered.
    Accept,
    /// A person does not want to answer; the call goes on without.
    Decline,
    /// Nobody decided: the time was up, or the question was withdrawn.
    Cancel,
}

impl QuestionAction {
    /// The action as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}
