//! What a model is asked and what comes of it.

use futures_util::future::BoxFuture;
use goondan_protocol::conversation::{Conversation, UnreadableMessage};
use goondan_protocol::definition::CatalogEntry;
use goondan_protocol::ids::{MessageId, StepId, TurnId};
use goondan_protocol::message::{Message, ToolCall};
use goondan_protocol::trace::TraceContext;

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The system prompt, if the agent has one.
    pub system: Option<&'a str>,
    /// The conversation, oldest message first.
    pub messages: &'a Conversation,
    /// The tools the model may call.
    pub catalog: &'a [CatalogEntry],
    /// The turn.
    pub turn_id: &'a TurnId,
    /// Identifies the step. The same step asked twice is the same question.
    pub step_id: &'a StepId,
    /// The number of the turn's event that will hold the answer.
    pub seq: u64,
    /// The id of the message that will be the answer.
    pub message_id: &'a MessageId,
    /// Where in a trace the question belongs.
    pub trace: Option<TraceContext>,
    /// The step's number within its turn, from 1.
    pub step: u32,
}

/// What a model answers: text, tool calls, or both. No calls end the turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelReply {
    /// What it says.
    pub text: String,
    /// The tools it calls. Their ids differ from each other.
    pub calls: Vec<ToolCall>,
}

/// What comes of asking a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is still to be recorded.
    Reply(ModelReply),
    /// It is in the turn's journal, durable: the orchestrator put it there.
    Recorded(Box<Message>),
}

/// Why a model cannot answer, in words for the person who runs the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The turn's code.
    pub code: &'static str,
    /// What failed and what to do.
    pub message: String,
}

impl ModelError {
    /// A failure that has no code of its own.
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
    /// Asks for a step. Whatever the model needs of the request it takes before it returns the
    /// future, so that the conversation is not copied; dropping the future gives the call up.
    fn ask(&self, request: ModelRequest<'_>) -> BoxFuture<'static, Result<Answer, ModelError>>;

    /// Whether asking it touches anything outside this process.
    fn place(&self) -> ModelPlace;
}

/// Whether asking the model touches anything outside this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelPlace {
    /// Its replies follow from the conversation, here; asking twice leaves no trace.
    Inside,
    /// It costs, and may remember.
    Outside,
}
