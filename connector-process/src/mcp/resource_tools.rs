//! Tools that goondan adds for a server's resources and prompts: they list and read them. A tool of
//! the server with the same name takes precedence.

use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{McpResult, McpTool};
use rmcp::RoleClient;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResponse, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse,
};
use rmcp::service::{Peer, ServiceError};
use serde::Serialize;
use serde_json::{Value, json};

use super::content::{self, READ_RESOURCE};
use crate::limits::{MCP_LISTED_MAX, MCP_PAGES_MAX};

const LIST_RESOURCES: &str = "list_resources";
const LIST_PROMPTS: &str = "list_prompts";
const GET_PROMPT: &str = "get_prompt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnTool {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// Capabilities of a server besides tools.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Capabilities {
    resources: bool,
    prompts: bool,
}

impl Capabilities {
    /// Reads the capabilities that the server announced.
    pub(super) fn of(peer: &Peer<RoleClient>) -> Self {
        let info = peer.peer_info();
        info.map_or_else(Self::default, |info| Self {
            resources: info.capabilities.resources.is_some(),
            prompts: info.capabilities.prompts.is_some(),
        })
    }

    /// Our tools for the server, without names that it uses itself.
    pub(super) fn tools(self, its: &[McpTool]) -> Vec<McpTool> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let of_resources = [
            tool(
                LIST_RESOURCES,
                "Lists the resources of this server, with their URIs.",
                &json!({}),
                &[],
            ),
            tool(
                READ_RESOURCE,
                "Reads a resource of this server.",
                &json!({"uri": text("Its URI.")}),
                &["uri"],
            ),
        ];
        let of_prompts = [
            tool(
                LIST_PROMPTS,
                "Lists the prompts of this server, with their arguments.",
                &json!({}),
                &[],
            ),
            tool(
                GET_PROMPT,
                "Fills in a prompt of this server and returns it.",
                &json!({"name": text("Its name."), "arguments": {"type": "object",
                    "description": "Its arguments.", "additionalProperties": {"type": "string"}}}),
                &["name"],
            ),
        ];
        let of_resources = of_resources.into_iter().filter(|_| self.resources);
        let ours = of_resources.chain(of_prompts.into_iter().filter(|_| self.prompts));
        ours.filter(|own| its.iter().all(|tool| tool.name != own.name))
            .collect()
    }
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> McpTool {
    McpTool {
        name: name.to_owned(),
        description: description.to_owned(),
        repeatable: true,
        parameters: json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false}),
    }
}

/// Reason why one of our tools failed.
#[derive(Debug)]
pub(super) enum OwnToolFailure {
    /// At the server or in transit.
    Service(Box<ServiceError>),
    /// Before the request was sent.
    Call(CallError),
}

impl From<ServiceError> for OwnToolFailure {
    fn from(error: ServiceError) -> Self {
        Self::Service(Box::new(error))
    }
}

fn invalid(message: &str) -> OwnToolFailure {
    OwnToolFailure::Call(CallError::new(CallErrorCode::Invalid, message))
}

fn value_of(result: &impl Serialize) -> Result<Value, OwnToolFailure> {
    serde_json::to_value(result).map_err(|error| {
        OwnToolFailure::Call(CallError::new(CallErrorCode::Internal, error.to_string()))
    })
}

impl OwnTool {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            LIST_RESOURCES => Some(Self::ListResources),
            READ_RESOURCE => Some(Self::ReadResource),
            LIST_PROMPTS => Some(Self::ListPrompts),
            GET_PROMPT => Some(Self::GetPrompt),
            _ => None,
        }
    }

    pub(super) async fn run(
        self,
        peer: &Peer<RoleClient>,
        arguments: &JsonObject,
    ) -> Result<McpResult, OwnToolFailure> {
        let text = |name: &'static str| arguments.get(name).and_then(Value::as_str);
        match self {
            Self::ListResources => list_resources(peer).await,
            Self::ListPrompts => list_prompts(peer).await,
            Self::ReadResource => {
                let uri = text("uri").ok_or_else(|| invalid("`uri` must be a text"))?;
                let params = ReadResourceRequestParams::new(uri);
                match peer.read_resource_once(params).await? {
                    ReadResourceResponse::Complete(result) => {
                        Ok(content::of_resource(&value_of(&result)?))
                    }
                    _ => Err(asks_somebody()),
                }
            }
            Self::GetPrompt => {
                let name = text("name").ok_or_else(|| invalid("`name` must be a text"))?;
                let mut params = GetPromptRequestParams::new(name);
                if let Some(Value::Object(given)) = arguments.get("arguments") {
                    params = params.with_arguments(given.clone());
                }
                match peer.get_prompt_once(params).await? {
                    GetPromptResponse::Complete(result) => {
                        Ok(content::of_prompt(&value_of(&result)?))
                    }
                    _ => Err(asks_somebody()),
                }
            }
        }
    }
}

fn asks_somebody() -> OwnToolFailure {
    let message = "the server requires a person's answer first, which this tool does not support";
    OwnToolFailure::Call(CallError::new(CallErrorCode::Refused, message))
}

fn page(cursor: Option<String>) -> Option<PaginatedRequestParams> {
    Some(PaginatedRequestParams::default().with_cursor(cursor))
}

async fn list_resources(peer: &Peer<RoleClient>) -> Result<McpResult, OwnToolFailure> {
    let mut lines = Vec::new();
    let mut cursor = None;
    for _ in 0..MCP_PAGES_MAX {
        let found = peer.list_resources(page(cursor)).await?;
        for resource in &found.resources {
            lines.push(line_of(&value_of(resource)?, "uri"));
        }
        cursor = found.next_cursor;
        if cursor.is_none() || lines.len() >= MCP_LISTED_MAX {
            break;
        }
    }
    let mut cursor = None;
    for _ in 0..MCP_PAGES_MAX {
        // Templates are optional, so an error is ignored.
        let Ok(found) = peer.list_resource_templates(page(cursor)).await else {
            break;
        };
        for template in &found.resource_templates {
            lines.push(line_of(&value_of(template)?, "uriTemplate"));
        }
        cursor = found.next_cursor;
        if cursor.is_none() || lines.len() >= MCP_LISTED_MAX {
            break;
        }
    }
    Ok(listed(lines, "resources"))
}

async fn list_prompts(peer: &Peer<RoleClient>) -> Result<McpResult, OwnToolFailure> {
    let mut lines = Vec::new();
    let mut cursor = None;
    for _ in 0..MCP_PAGES_MAX {
        let found = peer.list_prompts(page(cursor)).await?;
        for prompt in &found.prompts {
            let prompt = value_of(prompt)?;
            let arguments = prompt.get("arguments").and_then(Value::as_array);
            let names = arguments.into_iter().flatten().filter_map(|argument| {
                let name = argument.get("name")?.as_str()?;
                let is_required = argument.get("required") == Some(&Value::Bool(true));
                Some(if is_required {
                    format!("{name} (required)")
                } else {
                    name.to_owned()
                })
            });
            let names: Vec<String> = names.collect();
            let mut line = line_of(&prompt, "name");
            if !names.is_empty() {
                line.push_str(&format!("; arguments: {}", names.join(", ")));
            }
            lines.push(line);
        }
        cursor = found.next_cursor;
        if cursor.is_none() || lines.len() >= MCP_LISTED_MAX {
            break;
        }
    }
    Ok(listed(lines, "prompts"))
}

/// Formats an item of a list: its name and its properties.
fn line_of(item: &Value, name: &str) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let title = text("title")
        .or_else(|| text("name"))
        .filter(|_| name != "name");
    let facts = [title, text("mimeType"), text("description")];
    let facts: Vec<&str> = facts.into_iter().flatten().collect();
    let named = text(name).unwrap_or_default();
    if facts.is_empty() {
        named.to_owned()
    } else {
        format!("{named}: {}", facts.join("; "))
    }
}

fn listed(mut lines: Vec<String>, what: &str) -> McpResult {
    if lines.len() > MCP_LISTED_MAX {
        lines.truncate(MCP_LISTED_MAX);
        lines.push(format!("… and more {what} than can be listed"));
    }
    let text = if lines.is_empty() {
        format!("the server has no {what}")
    } else {
        lines.join("\n")
    };
    McpResult {
        text,
        images: Vec::new(),
        is_error: false,
    }
}
