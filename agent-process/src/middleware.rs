//! Messages between the engine and the modules of extensions: plain data.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::message::{MessageEvent, ToolCall, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool_call::ToolOutcome;

/// The scope that a middleware wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MiddlewareScope {
    Turn,
    /// A step: the model's reply and the calls it leads to.
    Step,
    ToolCall,
}

/// A middleware registered by a module.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Middleware {
    pub extension: ExtensionName,
    /// The scope that it wraps.
    #[serde(rename = "type")]
    pub scope: MiddlewareScope,
    /// Its index within the extension, from 0.
    pub number: u32,
    /// A lower priority is further out.
    #[serde(default)]
    pub priority: i64,
}

/// One entry into a middleware, unique during the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InvocationId(pub u64);

/// A request to enter a middleware.
#[derive(Debug, Clone, PartialEq)]
pub struct Enter {
    pub invocation: InvocationId,
    pub extension: ExtensionName,
    /// Its index within the extension.
    pub number: u32,
    /// The turn, step or call that it wraps.
    pub moment: MiddlewareTarget,
    /// Prefix of the ids of messages it creates.
    pub id_prefix: String,
}

/// The turn, step or call that a middleware wraps.
#[derive(Debug, Clone, PartialEq)]
pub enum MiddlewareTarget {
    Turn,
    Step {
        /// Its number, from 1.
        step: u32,
    },
    Call {
        /// The number of its step, from 1.
        step: u32,
        /// The call, as modified by outer middlewares.
        call: ToolCall,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum MiddlewareEvent {
    /// It called `next()`.
    Next {
        notes: Notes,
        /// The tools that it removes from the step's catalog.
        hidden: Vec<String>,
        /// The call's arguments, if it changed them.
        args: Option<Value>,
    },
    Left {
        notes: Notes,
        returned: MiddlewareReturn,
    },
    Threw {
        notes: Notes,
        /// Its own error code, if any.
        code: Option<String>,
        message: String,
    },
}

/// Notes of a middleware since its last event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// The message events it emitted.
    pub events: Vec<MessageEvent>,
    /// New state of its extension, if it changed.
    pub state: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MiddlewareReturn {
    Turn(TurnOutcome),
    /// For a step: the decision about another step, if it differs from the one that the middleware
    /// received.
    Step {
        /// True asks the model again, false ends the turn.
        goes_on: Option<bool>,
    },
    /// For a call: its result.
    Call(ToolOutcome),
}

/// Result of `next()`.
#[derive(Debug, Clone, PartialEq)]
pub enum NextResult {
    Turn(TurnOutcome),
    Step {
        /// The calls of the model's reply.
        calls: Vec<ToolCall>,
        results: Vec<ToolResult>,
        /// True if the model is asked again afterwards.
        goes_on: bool,
        /// The reason for its failure, if it failed.
        error: Option<String>,
    },
    Call(ToolOutcome),
}

/// Failure of the modules of extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionFault {
    pub code: String,
    /// The extension, the failure and the fix.
    pub message: String,
}
