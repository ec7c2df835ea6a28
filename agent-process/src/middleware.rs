//! What the engine and the modules of extensions say to each other: plain data.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::message::{MessageEvent, ToolCall, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool_call::ToolOutcome;

/// What a middleware stands around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MiddlewareScope {
    /// A whole turn.
    Turn,
    /// A step: the model's reply and the calls it leads to.
    Step,
    /// One tool call.
    ToolCall,
}

/// A middleware that a module has registered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Middleware {
    /// Whose it is.
    pub extension: ExtensionName,
    /// What it stands around.
    #[serde(rename = "type")]
    pub scope: MiddlewareScope,
    /// Its place among those of its extension, from 0.
    pub number: u32,
    /// The lower, the further out.
    #[serde(default)]
    pub priority: i64,
}

/// One time that a middleware is entered, as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InvocationId(pub u64);

/// A middleware is to be entered.
#[derive(Debug, Clone, PartialEq)]
pub struct Enter {
    /// The invocation.
    pub invocation: InvocationId,
    /// Whose middleware.
    pub extension: ExtensionName,
    /// Which of them.
    pub number: u32,
    /// What it stands around.
    pub moment: Moment,
    /// How the ids of messages begin that it makes.
    pub id_prefix: String,
}

/// What a middleware stands around.
#[derive(Debug, Clone, PartialEq)]
pub enum Moment {
    /// The turn.
    Turn,
    /// A step.
    Step {
        /// Its number, from 1.
        step: u32,
    },
    /// A tool call.
    Call {
        /// The number of its step, from 1.
        step: u32,
        /// The call, as middlewares further out have left it.
        call: ToolCall,
    },
}

/// What a middleware did.
#[derive(Debug, Clone, PartialEq)]
pub enum MiddlewareEvent {
    /// It asked for what lies further in.
    Next {
        /// What it did before.
        notes: Notes,
        /// The tools it takes from the step's catalog.
        hidden: Vec<String>,
        /// The call's arguments, if it changed them.
        args: Option<Value>,
    },
    /// It is done.
    Left {
        /// What it did before.
        notes: Notes,
        /// What it returned.
        returned: MiddlewareReturn,
    },
    /// It has failed.
    Threw {
        /// What it did before.
        notes: Notes,
        /// A code of its own.
        code: Option<String>,
        /// Why.
        message: String,
    },
}

/// What a middleware did since it was last heard of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// The message events it emitted.
    pub events: Vec<MessageEvent>,
    /// What its extension is to remember, if that changed.
    pub state: Option<Value>,
}

/// What a middleware returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MiddlewareReturn {
    /// Of a turn: how it ends.
    Turn(TurnOutcome),
    /// Of a step: whether the turn goes on after it, if the middleware says otherwise than what it was told.
    Step {
        /// True asks the model again, false ends the turn.
        goes_on: Option<bool>,
    },
    /// Of a call: its result.
    Call(ToolOutcome),
}

/// What came of `next()`.
#[derive(Debug, Clone, PartialEq)]
pub enum NextResult {
    /// Of a turn: how it ends.
    Turn(TurnOutcome),
    /// Of a step.
    Step {
        /// The calls of the model's reply.
        calls: Vec<ToolCall>,
        /// Their results.
        results: Vec<ToolResult>,
        /// Whether the model is asked again after it.
        goes_on: bool,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// Of a call: its result.
    Call(ToolOutcome),
}

/// Why the modules of extensions cannot do their work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionFault {
    /// A stable code.
    pub code: String,
    /// Which extension, what happened, and what to do.
    pub message: String,
}
