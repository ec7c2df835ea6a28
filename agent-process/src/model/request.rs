//! A model's request and its answer.

use futures_util::future::BoxFuture;
use goondan_protocol::conversation::{Conversation, UnreadableMessage};
use goondan_protocol::definition::CatalogEntry;
use goondan_protocol::ids::{MessageId, StepId, TurnId};
use goondan_protocol::message::{Message, ToolCall};
use goondan_protocol::trace::TraceContext;

#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The system prompt, if the agent has one.
    pub system: Option<&'a str>,
    /// The conversation, oldest message first.
    pub messages: &'a Conversation,
    /// The tools the model may call.
    pub catalog: &'a [CatalogEntry],
    pub turn_id: &'a TurnId,
    /// Id of the step. Asking the same step twice is the same request.
    pub step_id: &'a StepId,
    /// Number of the turn's event that will hold the answer.
    pub seq: u64,
    /// Id of the message that will be the answer.
    pub message_id: &'a MessageId,
    pub trace: Option<TraceContext>,
    /// Number of the step within its turn, from 1.
    pub step: u32,
}

/// A model's answer: text, tool calls, or both. An answer without calls ends the turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelReply {
    pub text: String,
    /// The tool calls, with distinct ids.
    pub calls: Vec<ToolCall>,
}

/// Result of a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelOutcome {
    /// A reply that must still be recorded.
    Reply(ModelReply),
    /// A reply that the orchestrator has already written durably to the turn's journal.
    Recorded(Box<Message>),
}

/// A model's failure, described for the person who runs the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Error code of the turn.
    pub code: &'static str,
    /// The failure and its fix.
    pub message: String,
}

impl ModelError {
    /// A failure without a code of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: "E_MODEL",
            message: message.into(),
        }
    }
}

impl From<UnreadableMessage> for ModelError {
    fn from(unreadable: UnreadableMessage) -> Self {
        Self::new(goondan_log::error_chain(&unreadable))
    }
}

/// Answers steps.
pub trait Model: Send {
    /// Asks for a step. The model takes all needed data from the request before it returns the
    /// future, so that the conversation is not copied. Dropping the future cancels the request.
    fn ask(
        &self,
        request: ModelRequest<'_>,
    ) -> BoxFuture<'static, Result<ModelOutcome, ModelError>>;

    fn place(&self) -> ModelLocation;
}

/// Location of a model: whether asking it touches anything outside this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelLocation {
    /// The reply is computed here from the conversation; asking twice leaves no trace.
    Inside,
    /// A request costs money and may be stored.
    Outside,
}
