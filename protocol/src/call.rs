//! Outgoing calls: what an agent wants done outside, and what came of it.
//!
//! Only connector processes hold credentials and speak to the network. An agent asks the orchestrator
//! for a call ([`OutgoingCall`]); the orchestrator has the ConnectorProcess of the named model or
//! connection make it ([`CallOrder`]). What comes of it goes the same way back: any number of
//! [`CallPiece`]s, then exactly one [`CallResult`]. Parameters, pieces and results stay raw JSON on the
//! way through.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::JsonObject;
pub use crate::call_error::CallErrorCode;
use crate::definition::{CatalogEntry, ModelParams};
use crate::ids::{
    AgentName, ConnectionName, InstanceKey, MessageId, ResourceName, StepId, ToolCallId, TurnId,
};
use crate::message::{Content, Role};
use crate::usage::Usage;

/// The method by which a model is asked for its next reply: from a [`Completion`] to a
/// [`ModelAnswer`].
pub const COMPLETE: &str = "complete";

/// Names one call between the orchestrator and one child. Whoever sends `call` chooses it and never
/// uses it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// Who is to make a call.
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

/// What in a turn a call is made for.
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
    /// The agent's own name for it.
    pub call_id: CallId,
    /// Who is to make it.
    pub target: CallTarget,
    /// What is to be done, in the target's own words.
    pub method: String,
    /// With what.
    pub params: Box<RawValue>,
    /// How long the agent waits, in milliseconds.
    pub deadline_ms: u64,
    /// Whether the agent wants to hear of the pieces. Whoever watches the turn hears of them anyway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pieces: bool,
    /// Whether the call may be made again when nobody knows whether it was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// What in a turn it is made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<CallPlace>,
    /// Where the result is recorded before the agent sees it. Only a model's replies are; `place`
    /// must name the turn and the step then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<CallRecord>,
}

/// Where in a turn's journal a model's reply is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// The number of the `append` event that records it.
    pub seq: u64,
    /// The id of the assistant's message.
    pub message_id: MessageId,
}

/// `call`, to a connector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallOrder {
    /// The orchestrator's own name for it.
    pub call_id: CallId,
    /// For whom it is made.
    pub caller: Caller,
    /// What is to be done.
    pub method: String,
    /// With what.
    pub params: Box<RawValue>,
    /// How long anybody waits, in milliseconds.
    pub deadline_ms: u64,
}

/// For whom a call is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// `call.piece`: a part of what comes of a call. Never recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPiece {
    /// The call.
    pub call_id: CallId,
    /// The part; a model's are [`ModelPiece`]s.
    pub piece: Box<RawValue>,
}

/// `call.result`: the end of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The call.
    pub call_id: CallId,
    /// What came of it.
    pub outcome: CallOutcome,
}

/// What came of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// It was made; what it returned. For a call with [`OutgoingCall::record`] the agent gets a
    /// [`Recorded`].
    Ok(Box<RawValue>),
    /// It was not made, or failed.
    Error(CallError),
}

/// `call.cancel`: nobody waits any more. There is no answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCancel {
    /// The call.
    pub call_id: CallId,
}

/// Why a call failed, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct CallError {
    /// The stable code.
    pub code: CallErrorCode,
    /// What failed, and where.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Whether the same call may succeed later and had no effect yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// How long to wait before that, in milliseconds, if the other side says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What a model took all the same, if its provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// What the other side says of the token of an authorization server that it was called with. It did nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<TokenVerdict>>,
    /// Whether nobody knows if the call had its effect: it broke off in the middle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
}

/// What the other side says of the token that it was called with (RFC 6750, 3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TokenVerdict {
    /// It does not take it (401).
    Declined,
    /// It allows too little (403, `insufficient_scope`).
    TooLittle {
        /// What it would have to allow, as far as the other side says.
        scopes: Vec<String>,
    },
}

impl CallError {
    /// An error that trying again does not mend.
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
        }
    }

    /// The same of a call that broke off in the middle: nobody knows if it had its effect.
    #[must_use]
    pub fn of_unknown_outcome(self) -> Self {
        Self {
            outcome_unknown: true,
            ..self
        }
    }

    /// The same, with what to do next.
    #[must_use]
    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self {
            suggestion: Some(suggestion.into()),
            ..self
        }
    }

    /// The same of a model that took so much all the same.
    #[must_use]
    pub fn having_taken(self, usage: Option<Usage>) -> Self {
        let usage = usage.map(Box::new);
        Self { usage, ..self }
    }

    /// The same of a call whose token the other side does not like.
    #[must_use]
    pub fn of_token(self, token: Option<TokenVerdict>) -> Self {
        let token = token.map(Box::new);
        Self { token, ..self }
    }

    /// The same, but it may succeed later: after `after_ms`, if that is known.
    #[must_use]
    pub fn later(self, after_ms: Option<u64>) -> Self {
        Self {
            retryable: true,
            retry_after_ms: after_ms,
            ..self
        }
    }
}

/// What a model's connector returns for [`COMPLETE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelAnswer {
    /// The assistant's [`crate::message::Content`], raw. No two of its tool calls share an id.
    pub content: Box<RawValue>,
    /// What else is kept with the message: reasoning, [`crate::usage::USAGE`], the model that answered.
    #[serde(default)]
    pub metadata: JsonObject,
}

/// What an agent gets for a call that was recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The [`crate::message::Message`] as it is in the journal, raw.
    pub message: Box<RawValue>,
}

/// A part of a model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ModelPiece {
    /// More of what it says.
    Text {
        /// The text.
        text: String,
    },
    /// More of what it thinks.
    Reasoning {
        /// The text.
        text: String,
    },
    /// The call is made again: what came of it so far does not count.
    Again,
    /// The call waits until a person has logged in. Only clients that wait for the turn are told.
    Consent {
        /// For what, such as `OAuthApp/github`.
        need: String,
        /// What the person runs.
        command: String,
    },
    /// The model before it could not answer, and this one is asked instead (`STEER-5`). Only clients that wait for the
    /// turn are told.
    Instead {
        /// Who is asked, such as `model spare`.
        target: String,
    },
    /// The call failed and is made again after a pause. Only clients that wait for the turn are told.
    Retry(CallRetry),
}

/// A call that failed and is made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRetry {
    /// Whom the call is for, such as `model main`.
    pub target: String,
    /// The number of the attempt that comes, from 2 on.
    pub attempt: u32,
    /// How many attempts there are at most.
    pub attempts_max: u32,
    /// The pause before it, in milliseconds.
    pub delay_ms: u64,
    /// Why the last one failed.
    pub code: CallErrorCode,
    /// The same, in words.
    pub reason: String,
}

/// What a model's connector is given for [`COMPLETE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The conversation, oldest message first.
    pub messages: Vec<CompletionMessage>,
    /// The tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<CatalogEntry>,
    /// What the agent asks for, before what the Model says.
    #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
    pub params: ModelParams,
}

/// One message of a [`Completion`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletionMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
    /// What the model thought, as its connector had it kept in [`ModelAnswer::metadata`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
}

/// The field of [`ModelAnswer::metadata`] that holds what the model thought.
pub const REASONING: &str = "reasoning";
