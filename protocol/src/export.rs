//! What happens in turns, on its way to a collector of traces.
//!
//! The orchestrator hands [`Export`]s to the connections of the connector [`OTLP`] by ordinary calls, one
//! at a time. They hold no text that a person, an agent or a tool has said.

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::observe::RuntimeEvent;

/// The built-in connector that exports traces.
pub const OTLP: &str = "otlp";

/// The method of the call.
pub const EXPORT: &str = "export";

/// What a connection of [`OTLP`] is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Export {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What happened, oldest first.
    pub events: Vec<ExportedEvent>,
}

/// Something that happened in a turn, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportedEvent {
    /// What happened. Of its `detail` only the code of a turn's failure is left.
    pub event: RuntimeEvent,
    /// The agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ExportedModel>,
}

/// A model, as collectors know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportedModel {
    /// The provider's own name of it.
    pub name: String,
    /// Whose protocol it speaks: `anthropic`, `openai`, `google` or `scripted`.
    pub provider: String,
    /// The host it is reached at, if it is reached over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_address: Option<String>,
    /// The port there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_port: Option<u16>,
}
