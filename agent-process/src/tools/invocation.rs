//! One tool invocation and its position in a turn.

use std::sync::Arc;

use goondan_protocol::ids::TurnId;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::fault::ToolFault;
use super::origin::Origin;
use crate::agent_client::AgentClient;
use crate::outgoing_calls::OutboundCalls;
use crate::tool_call::CallKey;

/// A call to run.
#[derive(Debug, Clone)]
pub(crate) struct ToolInvocation {
    /// Identifies the call; names the file its long output goes to.
    pub(crate) call_id: String,
    pub(crate) args: Value,
    /// The span for its log lines.
    pub(crate) span: tracing::Span,
    /// Its position in a turn; `None` outside of a turn.
    pub(crate) site: Option<CallSite>,
}

/// Position of a call in a turn.
#[derive(Debug, Clone)]
pub(crate) struct CallSite {
    pub(crate) turn_id: TurnId,
    /// The call's place in it.
    pub(crate) key: CallKey,
    pub(crate) trace: Option<TraceContext>,
    /// Client for questions to other agents.
    pub(crate) agent_client: AgentClient,
    pub(crate) outgoing: OutboundCalls,
    /// Origin of the event that the turn answers.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Set if an earlier process may have begun the call, at this time or later.
    pub(crate) again_since: Option<Timestamp>,
}

impl ToolInvocation {
    /// Deserializes the arguments. They match the schema, so a failure is a bug of this program;
    /// the model gets it as an error anyway.
    pub(crate) fn args<T: serde::de::DeserializeOwned>(&self) -> Result<T, ToolFault> {
        serde_json::from_value(self.args.clone())
            .map_err(|error| ToolFault::new("E_TOOL_INVALID_ARGS", error.to_string()))
    }
}
