//! Runtime events on their way to a trace collector.
//!
//! The orchestrator sends [`Export`]s to the connections of the connector [`OTLP`] by ordinary
//! calls, one at a time. They contain no text from a person, an agent or a tool.

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::observe::RuntimeEvent;

/// The built-in connector that exports traces.
pub const OTLP: &str = "otlp";

/// Method of the call.
pub const EXPORT: &str = "export";

/// Parameters of [`EXPORT`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Export {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The events, oldest first.
    pub events: Vec<ExportedEvent>,
}

/// A runtime event with related data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportedEvent {
    /// The event. Its `detail` is removed, except for the error code of a failed turn.
    pub event: RuntimeEvent,
    /// The agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ExportedModel>,
}

/// A model, in the terms of trace collectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportedModel {
    /// The provider's name for it.
    pub name: String,
    /// Its provider: `anthropic`, `openai`, `google`, `scripted`, or the platform `azure`, `vertex`
    /// or `bedrock`.
    pub provider: String,
    /// The host of its server, if it is reached over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_address: Option<String>,
    /// The port of its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_port: Option<u16>,
}
