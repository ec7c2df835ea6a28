//! The process's agent: the state that the loop and its work share.

use std::sync::Arc;

use goondan_log::unix_millis_now;
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ids::MessageId;
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::agent_client::{AgentClient, AgentRequests};
use crate::extension_host::ExtensionHost;
use crate::link::OrchestratorLink;
use crate::middleware::Enter;
use crate::model::{Model, ModelError, ModelOutcome};
use crate::outgoing_calls::{CallReceiver, OutboundCalls};
use crate::recorder::Recorder;
use crate::tool_call::{CallKey, ToolOutcome};
use crate::tools::host::HostProgram;
use crate::tools::{Origin, ToolFault, Toolbox};
use crate::turn::Engine;

/// Result of a question to other agents: an answer, or an error code and its description.
pub(super) type AgentRequestResult = Result<Value, (String, String)>;

/// Result of a task of the process.
pub(super) enum BackgroundResult {
    Model {
        step: u32,
        answer: Result<ModelOutcome, ModelError>,
    },
    Summary {
        came: Result<ModelOutcome, ModelError>,
    },
    Tool {
        key: CallKey,
        outcome: ToolOutcome,
    },
    /// The MCP servers have been asked for their tools, so the model can be asked.
    Offered {
        step: u32,
        seq: u64,
        message_id: MessageId,
    },
    /// The MCP servers have been asked for their tools, so a middleware can be entered.
    OfferedTo {
        enter: Box<Enter>,
    },
    /// The host program of the modules of extensions.
    HostOfModules {
        program: Result<Option<HostProgram>, ToolFault>,
    },
    /// The answer to a module's question to other agents.
    Answered {
        id: u64,
        answer: AgentRequestResult,
    },
}

/// The agent of this process and its parts.
pub(super) struct Agent {
    pub(super) engine: Engine<Toolbox>,
    pub(super) link: OrchestratorLink,
    pub(super) assignment: AgentAssignment,
    pub(super) toolbox: Toolbox,
    pub(super) model: Box<dyn Model>,
    pub(super) outgoing: OutboundCalls,
    /// Origin of the turn's event.
    pub(super) origin: Option<Arc<Origin>>,
    /// Outgoing calls of models and tools.
    pub(super) call_receiver: CallReceiver,
    pub(super) agent_client: AgentClient,
    pub(super) agent_requests: AgentRequests,
    pub(super) next_request: u64,
    pub(super) recorder: Option<Recorder>,
    /// The extensions that are modules, if there are any.
    pub(super) extension_host: Option<ExtensionHost>,
    /// The latest step of the turn for which MCP servers were asked for their tools.
    pub(super) asked_servers: Option<u32>,
    /// Reports of missing tools in the current turn.
    pub(super) reported_missing: Vec<String>,
    /// Model and tool calls. Dropping a task ends the processes of its tool.
    pub(super) work: JoinSet<BackgroundResult>,
    pub(super) is_draining: bool,
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_unix_millis(unix_millis_now())
}
