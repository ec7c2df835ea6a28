//! Servers of the Model Context Protocol: what they offer is known only when they run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Service;
use crate::JsonObject;
use crate::images::Image;

/// What agents do by servers of the Model Context Protocol.
pub const MCP: Service = Service {
    tool: "mcp",
    connector: "mcp",
    secret: None,
    actions: &[],
};

/// What a connection of the connector `mcp` does: it speaks to one server of the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Mcp {
    /// Tells what tools the server has: [`McpTools`].
    Tools {
        /// The digest of the list that is known already; it is not told again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<String>,
    },
    /// Calls a tool: [`McpResult`].
    Call {
        /// The tool, by the server's name.
        name: String,
        /// Its arguments.
        arguments: JsonObject,
    },
}

/// The tools of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpTools {
    /// Tells this list from any other of the server.
    pub digest: String,
    /// The tools in the server's order; none if the list is the one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<McpTool>>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpTool {
    /// The server's name of it, which may be none that models can call.
    pub name: String,
    /// What it does, in the server's words.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a tool of a server returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpResult {
    /// For the model.
    pub text: String,
    /// Images for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the tool itself says that it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}
