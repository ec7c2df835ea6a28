//! Tools of MCP servers. A connection's connector process talks to the server; this module presents
//! the server's tools to the model.
//!
//! The list of tools is requested before each step, so that the model is offered the current ones.
//! If the list has not changed, the reply does not contain it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallPlace, CallTarget};
use goondan_protocol::definition::{CatalogEntry, ToolDefinition, ToolExport};
use goondan_protocol::ids::{ConnectionName, ResourceName};
use goondan_protocol::message::tool_full_name;
use goondan_protocol::service::{ConnectorRequest, Mcp, McpResult, McpTool, McpTools};
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::connection_tools::{ConnectionRoute, fault_of};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::schema::ArgumentSchema;
use crate::outgoing_calls::{OutboundCall, OutboundCalls};
use crate::tool_call::{CallRejection, ToolOutcome};

/// Time limit for a server's list within a step, in milliseconds. It includes the start of the
/// server.
const LIST_DEADLINE_MS: u64 = 30_000;

/// Time limit of a call, in milliseconds; the connection has its own, shorter one.
const CALL_DEADLINE_MS: u64 = 600_000;

/// A server, reached through one connection.
#[derive(Debug)]
pub(crate) struct McpServerHandle {
    /// First half of the full names.
    tool: ResourceName,
    connection: ConnectionName,
    /// Exports to offer, with their settings; empty offers all unchanged.
    chosen: Vec<ToolExport>,
    pub(super) error_limit_chars: usize,
    listed: Mutex<Option<Arc<ToolListing>>>,
}

/// The server's tools at the last listing.
#[derive(Debug, Default)]
struct ToolListing {
    digest: String,
    tools: BTreeMap<String, ListedTool>,
    /// In the order of the server.
    entries: Vec<CatalogEntry>,
}

#[derive(Debug)]
struct ListedTool {
    /// The tool's name at the server.
    name: String,
    parameters: Value,
    schema: OnceLock<Result<ArgumentSchema, String>>,
}

impl McpServerHandle {
    /// The servers of a tool: one for each of its connections.
    pub(super) fn all_of(definition: &ToolDefinition) -> impl Iterator<Item = Self> {
        definition.connections.iter().map(|connection| Self {
            tool: definition.name.clone(),
            connection: connection.clone(),
            chosen: definition.exports.clone(),
            error_limit_chars: definition.error_message_limit,
            listed: Mutex::default(),
        })
    }

    /// True if only this server can have a tool of this full name.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.tool.as_str());
        rest.is_some_and(|rest| rest.starts_with("__"))
    }

    pub(crate) fn connection(&self) -> &str {
        self.connection.as_str()
    }

    fn listed(&self) -> Option<Arc<ToolListing>> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.clone()
    }

    /// True if the server was listed and offers this tool.
    pub(super) fn has(&self, name: &str) -> bool {
        let listed = self.listed();
        listed.is_some_and(|listed| listed.tools.contains_key(name))
    }

    pub(super) fn entries(&self) -> Vec<CatalogEntry> {
        self.listed()
            .map_or_else(Vec::new, |listed| listed.entries.clone())
    }

    /// True if the project marks the tool as idempotent.
    pub(super) fn is_idempotent(&self, name: &str) -> bool {
        let listed = self.listed();
        let chosen = |original: &str| self.chosen.iter().find(|export| export.name == original);
        listed.is_some_and(|listed| {
            let offered = listed.tools.get(name);
            let export = offered.and_then(|offered| chosen(&offered.name));
            export.is_some_and(|export| export.idempotent == Some(true))
        })
    }

    /// Checks a call against the server's list. If the server has not been listed yet, the call is
    /// checked when it runs.
    pub(super) fn check(&self, name: &str, input: &Value) -> Result<(), CallRejection> {
        let Some(listed) = self.listed() else {
            return Ok(());
        };
        match listed.tools.get(name) {
            None => Err(self.not_there(name, &listed)),
            Some(offered) => {
                let schema = offered.schema.get_or_init(|| {
                    ArgumentSchema::new(&offered.parameters).inspect_err(|reason| {
                        tracing::warn!(
                            tool = name,
                            reason,
                            "invalid schema of an MCP tool; its arguments go out unchecked"
                        );
                    })
                });
                // The model cannot fix the server's schema, and the server validates its arguments
                // itself.
                let checked = match schema {
                    Ok(schema) => schema.check(input),
                    Err(_) => Ok(()),
                };
                checked.map_err(|faults| CallRejection::InvalidArgs(format!("{name}: {faults}")))
            }
        }
    }

    fn not_there(&self, name: &str, listed: &ToolListing) -> CallRejection {
        let names: Vec<_> = listed
            .tools
            .keys()
            .map(|name| format!("`{name}`"))
            .collect();
        CallRejection::NotInCatalog(format!(
            "`{name}` is not a tool of the MCP server of connection `{}`; it has {}",
            self.connection,
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        ))
    }

    /// Requests the server's list. If the server does not answer, the previous list stays.
    pub(crate) async fn refresh(
        &self,
        outgoing: &OutboundCalls,
        place: CallPlace,
        trace: Option<TraceContext>,
    ) -> Result<(), ToolFault> {
        let known = self.listed().map(|listed| listed.digest.clone());
        let unusable = |error: serde_json::Error| {
            ToolFault::new("E_TOOL_FAILED", format!("failed to use its list: {error}"))
        };
        let ConnectorRequest { method, params } = ConnectorRequest::of(&Mcp::Tools { known })?;
        let ask = OutboundCall {
            target: CallTarget::Connection {
                name: self.connection.clone(),
            },
            method,
            params,
            deadline_ms: LIST_DEADLINE_MS,
            idempotent: true,
            place: Some(place),
            record: None,
            trace,
        };
        let answer = outgoing.call(ask).await.map_err(fault_of)?;
        let told: McpTools = serde_json::from_str(answer.get()).map_err(unusable)?;
        if let Some(tools) = told.tools {
            let listed = Arc::new(self.offer(told.digest, tools));
            *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
        }
        Ok(())
    }

    fn offer(&self, digest: String, tools: Vec<McpTool>) -> ToolListing {
        let mut listed = ToolListing {
            digest,
            ..ToolListing::default()
        };
        for tool in tools {
            let export = self.chosen.iter().find(|export| export.name == tool.name);
            if export.is_none() && !self.chosen.is_empty() {
                continue;
            }
            let callable = callable(&tool.name);
            let name = match tool_full_name(self.tool.as_str(), &callable) {
                Ok(name) if !listed.tools.contains_key(name.as_str()) => name,
                Ok(_) | Err(_) => {
                    tracing::warn!(
                        connection = self.connection.as_str(),
                        tool = tool.name,
                        "skipped an MCP tool: models cannot call it by its name, or another tool has the same name"
                    );
                    continue;
                }
            };
            let said = export.and_then(|export| export.description.clone());
            listed.entries.push(CatalogEntry {
                name: name.clone(),
                description: said.unwrap_or(tool.description),
                parameters: tool.parameters.clone(),
            });
            let offered = ListedTool {
                name: tool.name,
                parameters: tool.parameters,
                schema: OnceLock::new(),
            };
            listed.tools.insert(name.to_string(), offered);
        }
        listed
    }

    /// Calls a tool.
    pub(super) fn run(
        self: Arc<Self>,
        name: String,
        call: ToolInvocation,
    ) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            match self.call(&name, &call).await {
                Ok(result) if result.is_error => ToolOutcome::error(result.text),
                Ok(result) => ToolOutcome {
                    images: result.images,
                    ..ToolOutcome::ok(result.text)
                },
                Err(fault) => fault.into(),
            }
        })
    }

    async fn call(&self, name: &str, call: &ToolInvocation) -> Result<McpResult, ToolFault> {
        let route = ConnectionRoute::to(call, &self.connection)?;
        if self.listed().is_none() {
            // An earlier process recorded the call, so the list must be requested now.
            self.refresh(route.outgoing(), route.call_place(), route.trace())
                .await?;
            self.check(name, &call.args)?;
        }
        let listed = self.listed().unwrap_or_default();
        let offered = listed.tools.get(name);
        let offered = offered.ok_or_else(|| self.not_there(name, &listed))?;
        let arguments: JsonObject = call.args()?;
        let action = Mcp::Call {
            name: offered.name.clone(),
            arguments,
        };
        let request = ConnectorRequest::of(&action)?;
        let is_repeatable = self.is_idempotent(name);
        let answer = route.run(request, is_repeatable, CALL_DEADLINE_MS).await?;
        serde_json::from_value(answer).map_err(|error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("failed to read the answer: {error}"),
            )
        })
    }
}

/// Converts a server's tool name to one that models can call.
fn callable(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(chosen: &[&str]) -> McpServerHandle {
        let export = |name: &&str| ToolExport {
            name: (*name).to_owned(),
            description: Some("said by the project".to_owned()),
            parameters: None,
            idempotent: Some(true),
        };
        McpServerHandle {
            tool: "notes".parse().unwrap(),
            connection: "notes".parse().unwrap(),
            chosen: chosen.iter().map(export).collect(),
            error_limit_chars: 100,
            listed: Mutex::default(),
        }
    }

    fn listed(server: &McpServerHandle, names: &[&str]) {
        let tool = |name: &&str| McpTool {
            name: (*name).to_owned(),
            description: "said by the server".to_owned(),
            parameters: json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}),
        };
        let tools = names.iter().map(tool).collect();
        let found = server.offer("d".to_owned(), tools);
        *server.listed.lock().unwrap() = Some(Arc::new(found));
    }

    #[test]
    fn unlisted_server_may_have_any_tool_with_its_prefix() {
        let server = server(&[]);
        assert!(server.may_have("notes__add"));
        assert!(!server.may_have("notes"));
        assert!(!server.may_have("notebook__add"));
        assert_eq!(server.check("notes__add", &json!({})), Ok(()));
        assert!(!server.has("notes__add"));
    }

    #[test]
    fn uncallable_tool_names_are_rewritten_and_duplicates_dropped() {
        let server = server(&[]);
        listed(
            &server,
            &["files/read", "files.read", "ok", &"x".repeat(200)],
        );
        let names: Vec<String> = server
            .entries()
            .iter()
            .map(|e| e.name.to_string())
            .collect();
        assert_eq!(names, ["notes__files_read", "notes__ok"]);
        assert!(!server.is_idempotent("notes__ok"));
    }

    #[test]
    fn a_project_chooses_and_arguments_are_checked() {
        let server = server(&["add"]);
        listed(&server, &["add", "drop"]);
        let entries = server.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].description, "said by the project");
        assert!(server.is_idempotent("notes__add"));
        assert_eq!(server.check("notes__add", &json!({"n": 1})), Ok(()));
        let wrong = server
            .check("notes__add", &json!({"n": "x"}))
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("E_TOOL_INVALID_ARGS") && wrong.contains("/n"),
            "{wrong}"
        );
        let gone = server
            .check("notes__drop", &json!({}))
            .unwrap_err()
            .to_string();
        assert!(
            gone.contains("E_TOOL_NOT_IN_CATALOG") && gone.contains("`notes__add`"),
            "{gone}"
        );
    }
}
