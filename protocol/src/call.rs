//! Outgoing calls and their results.
//!
//! Only connector processes hold credentials and use the network. An agent requests a call from the
//! orchestrator ([`OutgoingCall`]), which forwards it to the ConnectorProcess of the named model or
//! connection ([`CallOrder`]). The result travels back the same way: any number of [`CallPiece`]s,
//! then exactly one [`CallResult`]. Intermediate processes pass parameters, pieces and results
//! through as raw JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::JsonObject;
pub use crate::call_error::CallErrorCode;
use crate::definition::{CatalogEntry, ModelParams};
use crate::ids::{
    AgentName, ConnectionName, EventId, InstanceKey, MessageId, ResourceName, StepId, ToolCallId,
    TurnId,
};
use crate::message::{MessageContent, MessageRole};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Method that requests a model's next reply: takes a [`CompletionRequest`] and returns a [`ModelAnswer`].
pub const COMPLETE: &str = "complete";

/// Identifies one call between the orchestrator and one child. The sender of `call` chooses it and
/// never reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// Resource that makes a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum CallTarget {
    /// A Model resource.
    Model {
        /// Its name.
        name: ResourceName,
    },
    /// A Connection resource.
    Connection {
        /// Its name.
        name: ConnectionName,
    },
}

impl std::fmt::Display for CallTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model { name } => write!(f, "model `{name}`"),
            Self::Connection { name } => write!(f, "connection `{name}`"),
        }
    }
}

/// Position in a turn on whose behalf a call is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPlace {
    /// The running turn.
    pub turn_id: TurnId,
    /// The step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
}

/// `call`, from an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingCall {
    /// Id that the agent chose.
    pub call_id: CallId,
    /// The resource that makes the call.
    pub target: CallTarget,
    /// The method, as defined by the target.
    pub method: String,
    /// The parameters.
    pub params: Box<RawValue>,
    /// Deadline, in milliseconds.
    pub deadline_ms: u64,
    /// True if the agent wants to receive the pieces. Clients that watch the turn receive them
    /// anyway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pieces: bool,
    /// True if the call may be repeated when its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// True if the target finds out whether an earlier attempt took effect, so that the call may be
    /// made again with [`CallOrder::again_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recoverable: bool,
    /// Set if an earlier process may have made this call, at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_since: Option<Timestamp>,
    /// True to fail immediately with `unavailable` while the target's process is not ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_if_ready: bool,
    /// The position in a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<CallPlace>,
    /// Journal entry to write before the agent receives the result. Only replies of models are
    /// recorded; `place` must then contain the turn and the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<CallRecord>,
}

/// Journal entry for a model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// The sequence number of the `append` event that records it.
    pub seq: u64,
    /// The id of the assistant's message.
    pub message_id: MessageId,
}

/// `call`, to a connector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallOrder {
    /// Id that the orchestrator chose.
    pub call_id: CallId,
    /// The agent and conversation that requested the call.
    pub caller: Caller,
    /// The event of the turn that requested the call, as the orchestrator stores it; absent if the
    /// orchestrator makes the call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// The method.
    pub method: String,
    /// The parameters.
    pub params: Box<RawValue>,
    /// Deadline, in milliseconds.
    pub deadline_ms: u64,
    /// Set if an earlier attempt, made at this time or later, may have taken effect. The target
    /// finds out before it repeats a call that is not repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_since: Option<Timestamp>,
}

/// Agent and conversation that requested a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// `call.piece`: a partial result of a call. Pieces are never recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPiece {
    /// The call.
    pub call_id: CallId,
    /// The piece; for models, a [`ModelPiece`].
    pub piece: Box<RawValue>,
}

/// `call.result`: the end of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The call.
    pub call_id: CallId,
    /// The outcome.
    pub outcome: CallOutcome,
    /// Result of a look at the service for an earlier attempt with an unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_back: Option<LookedBack>,
}

/// Finding about an earlier attempt of a call whose outcome was unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LookedBack {
    /// It took effect; the result is that of the attempt.
    Happened,
    /// It took no effect, so the call was made again.
    NotHappened,
    /// The call was made again with the same key, by which the service recognizes a repetition.
    SameKey,
}

impl LookedBack {
    /// Its name, as on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::NotHappened => "notHappened",
            Self::SameKey => "sameKey",
        }
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// The call succeeded with this result. For a call with [`OutgoingCall::record`] the agent
    /// receives a [`RecordedResult`].
    Ok(Box<RawValue>),
    /// The call was not made, or failed.
    Error(CallError),
}

/// `call.cancel`: no caller waits for the call any longer. It has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCancel {
    /// The call.
    pub call_id: CallId,
}

/// Error of a failed call, with a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct CallError {
    /// The stable code.
    pub code: CallErrorCode,
    /// The cause and the place of the failure.
    pub message: String,
    /// A suggested next action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// True if the call had no effect and a retry may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// Delay before the retry, in milliseconds, if the remote server requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Usage that the model consumed despite the failure, if its provider reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// The remote server's verdict on the access token of the call. The server then did nothing
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<TokenVerdict>>,
    /// True if the call was interrupted and its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
    /// True if the failure affects all models of the endpoint: it is unreachable, silent or broken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endpoint_down: bool,
    /// True if calls fail in the same way until a person changes the configuration or the account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting: bool,
}

/// A remote server's verdict on an access token (RFC 6750, 3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TokenVerdict {
    /// The token is rejected (401).
    Declined,
    /// The token lacks permission (403, `insufficient_scope`).
    TooLittle {
        /// The required scopes, if the server names them.
        scopes: Vec<String>,
    },
}

impl CallError {
    /// An error that a retry cannot fix.
    #[must_use]
    pub fn new(code: CallErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            suggestion: None,
            retryable: false,
            retry_after_ms: None,
            usage: None,
            token: None,
            outcome_unknown: false,
            endpoint_down: false,
            lasting: false,
        }
    }

    /// Marks the failure as one that only a person can end.
    #[must_use]
    pub fn until_a_person_acts(self) -> Self {
        Self {
            lasting: true,
            ..self
        }
    }

    /// Marks the failure as one of the model's endpoint, and not only of the model.
    #[must_use]
    pub fn of_endpoint(self) -> Self {
        Self {
            endpoint_down: true,
            ..self
        }
    }

    /// Marks the call as interrupted with an unknown outcome.
    #[must_use]
    pub fn of_unknown_outcome(self) -> Self {
        Self {
            outcome_unknown: true,
            ..self
        }
    }

    /// Adds a suggestion.
    #[must_use]
    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self {
            suggestion: Some(suggestion.into()),
            ..self
        }
    }

    /// Adds the usage that a model consumed despite the failure.
    #[must_use]
    pub fn having_taken(self, usage: Option<Usage>) -> Self {
        let usage = usage.map(Box::new);
        Self { usage, ..self }
    }

    /// Adds the remote server's verdict on the token.
    #[must_use]
    pub fn of_token(self, token: Option<TokenVerdict>) -> Self {
        let token = token.map(Box::new);
        Self { token, ..self }
    }

    /// Marks the error as retryable, after `after_ms` if known.
    #[must_use]
    pub fn later(self, after_ms: Option<u64>) -> Self {
        Self {
            retryable: true,
            retry_after_ms: after_ms,
            ..self
        }
    }
}

/// Result of [`COMPLETE`] from a model's connector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelAnswer {
    /// The assistant's [`crate::message::MessageContent`], raw. No two of its tool calls share an id.
    pub content: Box<RawValue>,
    /// Metadata stored with the message: reasoning, [`crate::usage::USAGE`], the model that
    /// answered.
    #[serde(default)]
    pub metadata: JsonObject,
}

/// Result that an agent receives for a recorded call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedResult {
    /// The stored [`crate::message::Message`] of the journal, raw.
    pub message: Box<RawValue>,
}

/// A piece of a model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ModelPiece {
    /// More text of the reply.
    Text {
        /// The text.
        text: String,
    },
    /// More reasoning text.
    Reasoning {
        /// The text.
        text: String,
    },
    /// The call is retried; earlier pieces are void.
    Again,
    /// The call waits until a person has logged in. Only clients that wait for the turn are
    /// notified.
    Consent {
        /// The required login, such as `OAuthApp/github`.
        need: String,
        /// The command for the person to run.
        command: String,
    },
    /// The previous model failed, and a fallback is used instead (`STEER-5`). Only clients that
    /// wait for the turn are notified.
    Instead {
        /// The fallback, such as `model spare`.
        target: String,
    },
    /// The call failed and is retried after a pause. Only clients that wait for the turn are
    /// notified.
    Retry(CallRetry),
}

/// Retry of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRetry {
    /// The target of the call, such as `model main`.
    pub target: String,
    /// The number of the next attempt, from 2 on.
    pub attempt: u32,
    /// The largest number of attempts.
    pub attempts_max: u32,
    /// The pause before it, in milliseconds.
    pub delay_ms: u64,
    /// The error code of the last attempt.
    pub code: CallErrorCode,
    /// The error message of the last attempt.
    pub reason: String,
}

/// Parameters of [`COMPLETE`] for a model's connector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletionRequest {
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The conversation, oldest message first.
    pub messages: Vec<CompletionMessage>,
    /// The tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<CatalogEntry>,
    /// Parameters that the agent sets; they override those of the Model resource.
    #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
    pub params: ModelParams,
}

/// One message of a [`CompletionRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletionMessage {
    /// The author of the message.
    pub role: MessageRole,
    /// The content.
    pub content: MessageContent,
    /// The model's reasoning, which its connector stored in [`ModelAnswer::metadata`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
}

/// Field of [`ModelAnswer::metadata`] that holds the model's reasoning.
pub const REASONING: &str = "reasoning";
