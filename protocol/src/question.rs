//! Questions to a person that a tool call needs answered before it continues.
//!
//! MCP servers ask such questions (`elicitation/create`). Its connector sends the question to the
//! orchestrator ([`QuestionAsk`]), which stores it until a person answers through the control API,
//! the question expires, or its call ends. The connector receives exactly one [`QuestionAnswered`],
//! or an immediate [`QuestionRefused`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;
use crate::call::CallId;

mod form;
mod schema;

pub use form::{FieldKind, FormChoice, FormField, QuestionForm, TextFormat};
pub use schema::BadForm;

/// `question.ask`: a connector asks a person a question on behalf of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAsk {
    /// The call, by the orchestrator's id. The question ends with it.
    pub call_id: CallId,
    /// The text of the question: 1 to [`crate::limits::MAX_QUESTION_TEXT_BYTES`].
    pub message: String,
    /// The form of the answer, as the server wrote it: a flat JSON Schema that
    /// [`QuestionForm::of_schema`] accepts.
    pub schema: Value,
    /// Longest wait for an answer, in milliseconds.
    pub timeout_ms: u64,
}

/// `question.withdraw`: the requester withdraws its question. Neither this message nor the question
/// gets a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionWithdraw {
    /// The id of the `question.ask` request.
    pub request_id: u64,
}

/// `question.answered`: outcome of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAnswered {
    /// The decision.
    pub action: QuestionAction,
    /// The answer, which matches the form, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<JsonObject>,
}

/// `question.refused`: the question will not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionRefused {
    /// The reason, and what is supported.
    pub message: String,
}

/// Decision about a question, in the terms of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionAction {
    /// A person answered.
    Accept,
    /// A person declined to answer; the call continues without an answer.
    Decline,
    /// The question expired or was withdrawn.
    Cancel,
}

impl QuestionAction {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}
