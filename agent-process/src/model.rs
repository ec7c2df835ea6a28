//! Models: who answers a step.

mod pattern;
pub mod scripted;
mod template;

use futures_util::future::BoxFuture;
use goondan_protocol::conversation::{Conversation, UnreadableMessage};
use goondan_protocol::definition::{CatalogEntry, ModelProvider};
use goondan_protocol::ids::StepId;
use goondan_protocol::message::ToolCall;

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The system prompt, if the agent has one.
    pub system: Option<&'a str>,
    /// The conversation, oldest message first.
    pub messages: &'a Conversation,
    /// The tools the model may call.
    pub catalog: &'a [CatalogEntry],
    /// Identifies the step. The same step asked twice is the same question.
    pub step_id: &'a StepId,
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

/// Why a model cannot answer, in words for the person who runs the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub String);

impl From<UnreadableMessage> for ModelError {
    fn from(unreadable: UnreadableMessage) -> Self {
        Self(goondan_log::error_chain(&unreadable))
    }
}

/// Answers steps.
pub trait Model: Send {
    /// Asks for a step. Whatever the model needs of the request it takes before it returns the
    /// future, so that the conversation is not copied; dropping the future gives the call up.
    fn ask(&self, request: ModelRequest<'_>) -> BoxFuture<'static, Result<ModelReply, ModelError>>;
}

/// The model of an agent.
#[must_use]
pub fn of_provider(provider: &ModelProvider) -> Box<dyn Model> {
    match provider {
        ModelProvider::Scripted { script } => Box::new(scripted::ScriptedModel::new(script)),
    }
}
