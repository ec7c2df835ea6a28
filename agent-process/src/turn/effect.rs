//! What goes into the engine and what comes out of it: plain data.

use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{EventId, ExtensionName, MessageId, StepId, ToolCallId, TurnId};
use goondan_protocol::message::{Message, MessageEvent, ToolCall};
use goondan_protocol::observe::{ModelResponse, RuntimeEventKind};
use goondan_protocol::usage::Spent;

use crate::middleware::{
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, NextResult,
};
use crate::model::{Answer, ModelError, ModelReply};
use crate::tool_call::{CallKey, ToolOutcome};

/// Something happened outside.
#[derive(Debug, Clone)]
pub enum Input {
    /// Every event of the turn up to and with `seq` is durable.
    Durable {
        /// The turn.
        turn_id: TurnId,
        /// The number of the last durable event.
        seq: u64,
    },
    /// The model answered.
    ModelReplied {
        /// The step it was asked for.
        step: u32,
        /// What it said.
        reply: ModelReply,
    },
    /// The model answered, and its answer is durable already, under the number that
    /// [`Effect::AskModel`] gave.
    ModelRecorded {
        /// The step it was asked for.
        step: u32,
        /// The message as it is recorded.
        message: Box<Message>,
    },
    /// The model could not answer.
    ModelFailed {
        /// The step it was asked for.
        step: u32,
        /// Why.
        error: ModelError,
    },
    /// The model wrote a summary, or could not. One that is recorded is durable already.
    Summarized {
        /// What came.
        came: Result<Answer, ModelError>,
    },
    /// A tool ended.
    ToolFinished {
        /// The call.
        key: CallKey,
        /// How it ended.
        outcome: ToolOutcome,
    },
    /// An answer to a question of the agent came, for the next step.
    Answer {
        /// The event that brings it.
        event: Box<AgentEvent>,
    },
    /// The modules of extensions are ready; these are their middlewares.
    Assembled {
        /// All of them.
        middlewares: Vec<Middleware>,
    },
    /// A middleware did something.
    MiddlewareActed {
        /// The invocation.
        invocation: InvocationId,
        /// What it did.
        event: MiddlewareEvent,
    },
    /// The modules of extensions cannot be used, or not any more in this turn.
    ExtensionsLost {
        /// Why.
        fault: ExtensionFault,
    },
    /// The turn is committed.
    Committed {
        /// The turn.
        turn_id: TurnId,
    },
}

/// Something to be done outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Make this message event durable.
    Append {
        /// The turn.
        turn_id: TurnId,
        /// The event's number within the turn, from 1.
        seq: u64,
        /// The event.
        event: Box<MessageEvent>,
    },
    /// Ask the model for a step, with the conversation as it stands.
    AskModel {
        /// The step, from 1.
        step: u32,
        /// The number of the event that records the answer, whoever records it.
        seq: u64,
        /// The id of the message that is the answer.
        message_id: MessageId,
    },
    /// See to it that the modules of extensions are ready for the turn.
    Assemble,
    /// Enter a middleware.
    Enter(Box<Enter>),
    /// Tell a middleware what came of its `next()`.
    Return {
        /// The invocation.
        invocation: InvocationId,
        /// What came.
        result: NextResult,
    },
    /// Ask the model for a summary of what is long past.
    AskSummary {
        /// What it is asked under.
        step_id: StepId,
        /// The number of the event that records the answer, whoever records it.
        seq: u64,
        /// The id of the message that is the answer.
        message_id: MessageId,
        /// What it is told to do.
        system: String,
        /// What it is to summarize.
        text: String,
    },
    /// Run a tool. Its arguments fit its schema.
    RunTool {
        /// The call's place in the turn.
        key: CallKey,
        /// The call.
        call: ToolCall,
        /// Whether a process before this one may have begun it.
        may_have_begun: bool,
    },
    /// Tell whoever watches.
    Observe(Observation),
    /// Write a line of an extension to the log.
    Log {
        /// The extension.
        extension: ExtensionName,
        /// The line.
        line: String,
    },
    /// The turn is over; commit it.
    Complete {
        /// The turn.
        turn_id: TurnId,
        /// The number of its last event.
        last_seq: u64,
        /// How it ended.
        outcome: TurnOutcome,
        /// Answers it took in on the way: their events are over with it.
        answered: Vec<EventId>,
    },
}

/// Something worth recording, before it has a time and a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What happened.
    pub kind: RuntimeEventKind,
    /// To what.
    pub scope: Scope,
    /// What the model's reply took, or all replies of the turn, for the end of a step or a turn.
    pub spent: Spent,
    /// What the provider says of the model's reply, for the end of a step.
    pub response: Option<ModelResponse>,
    /// Of a call that failed: whether nobody knows if it had its effect.
    pub outcome_unknown: bool,
    /// A short text: the head of the input, the arguments or the result, or what went wrong.
    pub detail: Option<String>,
}

/// What an observation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The turn.
    Turn,
    /// One of its steps.
    Step(StepId),
    /// One tool call of a step.
    Call {
        /// The step.
        step_id: StepId,
        /// The call.
        call_id: ToolCallId,
        /// The tool's full name, as the model wrote it.
        tool_name: String,
    },
}
