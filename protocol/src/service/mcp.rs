//! Model Context Protocol servers. Their tools are only known at run time.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::ServiceSpec;
use crate::JsonObject;
use crate::images::Image;

/// The `mcp` tool.
pub const MCP: ServiceSpec = ServiceSpec {
    tool: "mcp",
    connector: "mcp",
    secret: None,
    actions: &[],
};

/// Methods of a connection of the connector `mcp`, which connects to one MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Mcp {
    /// Lists the server's tools: [`McpTools`].
    Tools {
        /// Digest of the list that the caller already has. An unchanged list is not returned again.
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
    /// Digest that identifies this list among the server's lists.
    pub digest: String,
    /// The tools in the server's order; absent if the caller already has the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<McpTool>>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpTool {
    /// The server's name for it, which may not be a valid tool name for models.
    pub name: String,
    /// The server's description.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// True if the server says that it changes nothing, or that repeating it has no further effect
    /// (`readOnlyHint`, `idempotentHint`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
}

/// Result of a server's tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpResult {
    /// Text for the model.
    pub text: String,
    /// Images for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// True if the tool reports an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}
