//! The protocol of extension hosts: one JSON object per line.

use std::path::Path;

use goondan_protocol::JsonObject;
use goondan_protocol::agents::RequestNote;
use goondan_protocol::base_package::BaseContract;
use goondan_protocol::definition::{CatalogEntry, SwarmView};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{
    AgentName, ExtensionName, ExtensionStates, InstanceKey, StepId, TurnId,
};
use goondan_protocol::message::{Message, MessageEvent, ToolCall, ToolResult};
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::TraceId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::middleware::{InvocationId, Middleware, NextResult};
use crate::tools::extension_tools::RegisteredTool;
use crate::tools::host::wire::{HandlerError, LogLevel};

/// A message from the agent to the host.
#[derive(Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum ExtensionHostRequest<'a> {
    /// Part of the conversation before the turn, oldest first.
    Messages { messages: &'a [Message] },
    /// Loads the modules and lets them register.
    Register {
        /// The extensions, in the agent's order.
        extensions: Vec<ExtensionRegistration<'a>>,
        /// Limits of a module's messages.
        limits: Limits,
        /// The contract that the modules are written for.
        contract: BaseContract,
        /// The agent, in the form of the older contract.
        about: HostAgentInfo<'a>,
    },
    /// A turn begins. The results of the previous turn are part of the conversation.
    Turn {
        turn_id: &'a TurnId,
        trace_id: TraceId,
        agent_name: &'a AgentName,
        instance_key: &'a InstanceKey,
        event: &'a AgentEvent,
        states: ExtensionStates,
    },
    Enter {
        #[serde(rename = "visit")]
        invocation: InvocationId,
        extension: &'a ExtensionName,
        /// Its number within the extension.
        number: u32,
        /// Prefix of the ids of messages it creates.
        id_prefix: &'a str,
        /// Events of the turn that the host has not received yet.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        events: &'a [MessageEvent],
        /// Number of the step, from 1; `None` for a turn.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        catalog: Option<&'a [CatalogEntry]>,
        /// The tool that is called.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<&'a Value>,
    },
    /// The result of a middleware's `next()`.
    Return {
        #[serde(rename = "visit")]
        invocation: InvocationId,
        /// Events of the turn that the host has not received yet.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        events: &'a [MessageEvent],
        #[serde(rename = "came")]
        result: NextResultLine<'a>,
    },
    /// A runtime event of the turn.
    Event { event: &'a RuntimeEvent },
    /// Calls a tool that a module has registered.
    Call {
        /// Identifies the call while the host lives.
        id: u64,
        tool_name: &'a str,
        /// The call's id in the conversation.
        tool_call_id: &'a str,
        /// The step of the call; `None` outside of a turn.
        #[serde(skip_serializing_if = "Option::is_none")]
        step_id: Option<StepId>,
        args: &'a Value,
        work_dir: &'a Path,
    },
    /// Cancels a call that has no caller any longer.
    Cancel { id: u64, reason: &'a str },
    /// The answer to a question to other agents.
    Answer {
        id: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// The reason for a missing answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<AgentRequestFailure>,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct ExtensionRegistration<'a> {
    pub(super) name: &'a ExtensionName,
    pub(super) module: &'a Path,
    pub(super) config: &'a JsonObject,
    pub(super) state: Option<&'a Value>,
}

/// The agent, in the form of the older contract.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostAgentInfo<'a> {
    pub(super) agent_name: &'a AgentName,
    pub(super) bundle_root: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swarm: Option<&'a SwarmView>,
}

/// Limits of a module's messages.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) event_bytes: usize,
    pub(super) events: usize,
    pub(super) state_bytes: usize,
    pub(super) line_bytes: usize,
}

/// Reason for a missing answer.
#[derive(Debug, Serialize)]
pub(super) struct AgentRequestFailure {
    pub(super) code: String,
    pub(super) message: String,
}

/// The result of a middleware's `next()`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum NextResultLine<'a> {
    Completed {
        reply: &'a str,
    },
    Failed {
        code: &'a str,
        message: &'a str,
    },
    #[serde(rename_all = "camelCase")]
    Step {
        calls: Vec<CallLine<'a>>,
        results: Vec<ResultLine<'a>>,
        goes_on: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    Call {
        text: &'a str,
        is_error: bool,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallLine<'a> {
    id: &'a str,
    tool_name: &'a str,
    input: &'a Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultLine<'a> {
    id: &'a str,
    tool_name: &'a str,
    text: &'a str,
    is_error: bool,
}

impl<'a> From<&'a NextResult> for NextResultLine<'a> {
    fn from(result: &'a NextResult) -> Self {
        match result {
            NextResult::Turn(TurnOutcome::Completed { reply }) => Self::Completed { reply },
            NextResult::Turn(TurnOutcome::Failed { code, message }) => {
                Self::Failed { code, message }
            }
            NextResult::Step {
                calls,
                results,
                goes_on,
                error,
            } => Self::Step {
                calls: calls.iter().map(line_of_call).collect(),
                results: results.iter().map(line_of_result).collect(),
                goes_on: *goes_on,
                error: error.as_deref(),
            },
            NextResult::Call(outcome) => Self::Call {
                text: &outcome.text,
                is_error: outcome.is_error,
            },
        }
    }
}

fn line_of_call(call: &ToolCall) -> CallLine<'_> {
    CallLine {
        id: call.id.as_str(),
        tool_name: &call.tool_name,
        input: &call.input,
    }
}

fn line_of_result(result: &ToolResult) -> ResultLine<'_> {
    ResultLine {
        id: result.tool_call_id.as_str(),
        tool_name: &result.tool_name,
        text: &result.text,
        is_error: result.is_error,
    }
}

/// A message from the host to the agent.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum ExtensionHostReply {
    /// The runtime is up and starts to load the modules.
    Started,
    Registered {
        middlewares: Vec<Middleware>,
        #[serde(default)]
        tools: Vec<RegisteredTool>,
    },
    /// A module has registered a tool later.
    Tools { tools: Vec<RegisteredTool> },
    Result {
        id: u64,
        #[serde(default)]
        output: Value,
    },
    Error {
        id: u64,
        #[serde(flatten)]
        thrown: HandlerError,
    },
    /// A tool asks other agents.
    AskOfCall {
        /// Identifies the question while the host lives.
        id: u64,
        call: u64,
        /// Position of the question among those of its call, from 1.
        place: u32,
        question: MiddlewareAgentRequest,
    },
    /// A module could not be loaded or registered.
    Unfit {
        extension: ExtensionName,
        /// `E_EXT_LOAD` or `E_EXT_INIT`.
        code: String,
        message: String,
    },
    /// A middleware called `next()`.
    Next {
        #[serde(rename = "visit")]
        invocation: InvocationId,
        #[serde(flatten)]
        notes: RawNotes,
        /// The tools that it keeps in the step's catalog.
        #[serde(default)]
        tools: Option<Vec<String>>,
        /// The call's arguments, if it changed them.
        #[serde(default)]
        args: Option<Value>,
    },
    Leave {
        #[serde(rename = "visit")]
        invocation: InvocationId,
        #[serde(flatten)]
        notes: RawNotes,
        /// The return value; `None` for the result of `next()`.
        #[serde(default)]
        result: Option<MiddlewareResult>,
    },
    Throw {
        #[serde(rename = "visit")]
        invocation: InvocationId,
        #[serde(flatten)]
        notes: RawNotes,
        /// Its own error code, if any.
        #[serde(default)]
        code: Option<String>,
        message: String,
    },
    /// A middleware asks other agents.
    Ask {
        /// Identifies the question while the host lives.
        id: u64,
        #[serde(rename = "visit")]
        invocation: InvocationId,
        /// Position of the question among those of its invocation, from 1.
        place: u32,
        question: MiddlewareAgentRequest,
    },
    Log {
        #[serde(default)]
        level: LogLevel,
        message: String,
        /// The extension it comes from.
        #[serde(default)]
        extension: Option<String>,
    },
}

/// Notes of a middleware since its last report, not validated.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RawNotes {
    #[serde(default)]
    pub(super) events: Vec<Value>,
    /// `null` is a valid state.
    #[serde(default, deserialize_with = "present")]
    pub(super) state: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MiddlewareResult {
    pub(super) reply: Option<String>,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    pub(super) text: Option<String>,
    pub(super) is_error: bool,
    pub(super) goes_on: Option<bool>,
}

/// A middleware's question to other agents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MiddlewareAgentRequest {
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) input: String,
    #[serde(default)]
    pub(crate) instance_key: Option<String>,
    #[serde(default)]
    pub(crate) wait: Option<bool>,
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) scope: Option<String>,
    #[serde(default)]
    pub(crate) note: RequestNote,
}
