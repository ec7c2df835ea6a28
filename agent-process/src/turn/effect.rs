//! Inputs and effects of the engine: plain data.

use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{EventId, ExtensionName, MessageId, StepId, ToolCallId, TurnId};
use goondan_protocol::message::{Message, MessageEvent, ToolCall};
use goondan_protocol::observe::{ModelResponse, RuntimeEventKind};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::ReplyCost;

use crate::middleware::{
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, NextResult,
};
use crate::model::{ModelError, ModelOutcome, ModelReply};
use crate::tool_call::{CallKey, ToolOutcome};

/// An event outside the engine.
#[derive(Debug, Clone)]
pub enum TurnEngineInput {
    /// Every event of the turn up to and including `seq` is durable.
    Durable {
        turn_id: TurnId,
        /// The number of the last durable event.
        seq: u64,
    },
    ModelReplied {
        /// The step it was asked for.
        step: u32,
        reply: ModelReply,
    },
    /// The model answered, and its answer is already durable under the number that
    /// [`TurnEngineEffect::AskModel`] gave.
    ModelRecorded {
        /// The step it was asked for.
        step: u32,
        /// The message as it is recorded.
        message: Box<Message>,
    },
    /// The model failed to answer.
    ModelFailed {
        /// The step it was asked for.
        step: u32,
        error: ModelError,
    },
    /// The model wrote a summary, or failed to. A recorded summary is already durable.
    Summarized {
        /// The summary or the error.
        came: Result<ModelOutcome, ModelError>,
    },
    ToolFinished {
        key: CallKey,
        outcome: ToolOutcome,
    },
    /// A reply to a question of the agent arrived, for the next step.
    Answer {
        /// The event that brings it.
        event: Box<AgentEvent>,
    },
    /// The modules of extensions are ready; `middlewares` lists theirs.
    Assembled {
        middlewares: Vec<Middleware>,
    },
    /// A middleware reported an event.
    MiddlewareActed {
        invocation: InvocationId,
        event: MiddlewareEvent,
    },
    /// The modules of extensions cannot be used, or can no longer be used in this turn.
    ExtensionsLost {
        fault: ExtensionFault,
    },
    Committed {
        turn_id: TurnId,
    },
}

/// An action that the surrounding process must execute.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEngineEffect {
    /// Makes this message event durable.
    Append {
        turn_id: TurnId,
        /// The event's number within the turn, from 1.
        seq: u64,
        event: Box<MessageEvent>,
    },
    /// Asks the model for a step, with the current conversation.
    AskModel {
        /// The step, from 1.
        step: u32,
        /// Number of the event that records the answer, regardless of which process records it.
        seq: u64,
        /// The id of the message that is the answer.
        message_id: MessageId,
    },
    /// Makes the modules of extensions ready for the turn.
    Assemble,
    Enter(Box<Enter>),
    /// Returns the result of `next()` to a middleware.
    Return {
        invocation: InvocationId,
        result: NextResult,
    },
    /// Asks the model for a summary of the old part of the conversation.
    AskSummary {
        /// Id under which the summary is requested.
        step_id: StepId,
        /// Number of the event that records the answer, regardless of which process records it.
        seq: u64,
        /// The id of the message that is the answer.
        message_id: MessageId,
        system: String,
        text: String,
    },
    /// Runs a tool. Its arguments match its schema.
    RunTool {
        /// The call's place in the turn.
        key: CallKey,
        call: ToolCall,
        /// True if an earlier process may have begun the call.
        may_have_begun: bool,
        /// Time of the reply that made the call, if the reply is older than this process.
        asked_at: Option<Timestamp>,
    },
    Observe(Observation),
    /// Writes a log line of an extension.
    Log {
        extension: ExtensionName,
        line: String,
    },
    /// Commits the turn; it is over.
    Complete {
        turn_id: TurnId,
        /// The number of its last event.
        last_seq: u64,
        outcome: TurnOutcome,
        /// Answers that the turn received; their events are completed with the turn.
        answered: Vec<EventId>,
    },
}

/// An event worth recording, before it is given a time and a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub kind: RuntimeEventKind,
    pub scope: Scope,
    /// Spending of the model's reply (at the end of a step) or of all replies of the turn (at its
    /// end).
    pub spent: ReplyCost,
    /// Metadata that the provider returned with the reply, for the end of a step.
    pub response: Option<ModelResponse>,
    /// True for a failed call that may or may not have had its effect.
    pub outcome_unknown: bool,
    /// Access that the sandbox seems to have refused to a tool call, for its end.
    pub refusal: Option<String>,
    /// Short text: the head of the input, the arguments or the result, or the error.
    pub detail: Option<String>,
}

/// Subject of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Turn,
    Step(StepId),
    /// One tool call of a step.
    Call {
        step_id: StepId,
        call_id: ToolCallId,
        /// The tool's full name, as the model wrote it.
        tool_name: String,
    },
}
