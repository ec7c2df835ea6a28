//! One run of a tool, and where in a turn it stands.

use std::sync::Arc;

use goondan_protocol::ids::TurnId;
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::fault::ToolFault;
use super::origin::Origin;
use crate::agent_client::AgentClient;
use crate::outgoing::Outgoing;
use crate::tool_call::CallKey;

/// One call that is to be run.
#[derive(Debug, Clone)]
pub(crate) struct ToolInvocation {
    /// Identifies the call; names the file its long output goes to.
    pub(crate) call_id: String,
    /// The arguments.
    pub(crate) args: Value,
    /// What the call is logged under.
    pub(crate) span: tracing::Span,
    /// Where in a turn it stands; none outside of one.
    pub(crate) site: Option<CallSite>,
}

/// Where in a turn a call stands.
#[derive(Debug, Clone)]
pub(crate) struct CallSite {
    /// The turn.
    pub(crate) turn_id: TurnId,
    /// The call's place in it.
    pub(crate) key: CallKey,
    /// Its span.
    pub(crate) trace: Option<TraceContext>,
    /// The way to other agents.
    pub(crate) agent_client: AgentClient,
    /// The way outside.
    pub(crate) outgoing: Outgoing,
    /// Where the event came from that the turn answers.
    pub(crate) origin: Option<Arc<Origin>>,
}

impl ToolInvocation {
    /// Reads the arguments. They fit the schema, so that a mistake here is one of this program; the
    /// model is told all the same.
    pub(crate) fn args<T: serde::de::DeserializeOwned>(&self) -> Result<T, ToolFault> {
        serde_json::from_value(self.args.clone())
            .map_err(|error| ToolFault::new("E_TOOL_INVALID_ARGS", error.to_string()))
    }
}
