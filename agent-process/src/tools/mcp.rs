//! Tools of MCP servers. A connection's connector process talks to the server; this module presents
//! the server's tools to the model.
//!
//! The list of tools is requested before each step, so that the model is offered the current ones.
//! If the list has not changed, the reply does not contain it. A server that is starting delays no
//! step: in place of its tools, the model is offered one that waits for the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallErrorCode, CallPlace, CallTarget};
use goondan_protocol::definition::{CatalogEntry, ToolDefinition, ToolExport};
use goondan_protocol::ids::{ConnectionName, ResourceName};
use goondan_protocol::message::tool_full_name;
use goondan_protocol::service::{ConnectorRequest, Mcp, McpResult, McpTool, McpTools};
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use super::connection_tools::{ConnectionRoute, Repetition, fault_of, interrupted};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::schema::ArgumentSchema;
use crate::outgoing_calls::{OutboundCall, OutboundCalls};
use crate::tool_call::{CallRejection, ToolOutcome};

/// Time limit for the list of a server that is ready, in milliseconds.
const LIST_DEADLINE_MS: u64 = 2_000;

/// Time limit for the start and the list of a server that a call needs, in milliseconds.
const START_DEADLINE_MS: u64 = 60_000;

/// Export that waits for a server that is starting.
const WAIT_EXPORT: &str = "wait_until_ready";

/// Maximum number of a server's tools that an agent gets. `exports` choose first.
const TOOLS_MAX: usize = 256;

/// Longest name of a server's tool that is used unchanged, in bytes.
const EXPORT_BYTES_MAX: usize = 100;

/// Tools that a log line names.
const NAMED_TOOLS_MAX: usize = 20;

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
    /// Reason why the server was not listed at the latest attempt.
    problem: Mutex<Option<ListFailure>>,
}

/// Failure to list a server.
#[derive(Debug, Clone)]
struct ListFailure {
    fault: ToolFault,
    /// True if the server may become ready without a person.
    is_temporary: bool,
}

/// Behavior of a list request while the server is starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhileStarting {
    Fail,
    Wait,
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
    /// True if the server says that it is read-only or idempotent.
    is_repeatable: bool,
    schema: OnceLock<Result<ArgumentSchema, String>>,
}

impl ToolListing {
    /// The names of the tools, for a message.
    fn names(&self) -> String {
        let names: Vec<String> = self.tools.keys().map(|name| format!("`{name}`")).collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    }
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
            problem: Mutex::default(),
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

    pub(super) fn is_listed(&self) -> bool {
        self.listed().is_some()
    }

    pub(super) fn entries(&self) -> Vec<CatalogEntry> {
        match self.listed() {
            Some(listed) => listed.entries.clone(),
            None => self.wait_entry().into_iter().collect(),
        }
    }

    /// The tool that waits for the server, while it is starting.
    fn wait_entry(&self) -> Option<CatalogEntry> {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        problem.as_ref().filter(|problem| problem.is_temporary)?;
        let tool = self.tool.as_str();
        let description = format!(
            "Waits until the MCP server of the tools `{tool}__…` is ready, at most {} s, and \
             returns their names. They can be called from the next step on. Call it only if you \
             need them.",
            START_DEADLINE_MS / 1_000
        );
        Some(CatalogEntry {
            name: tool_full_name(tool, WAIT_EXPORT).ok()?,
            description,
            parameters: json!({"type": "object", "properties": {}}),
        })
    }

    /// Name of the tool that waits for the server, while it is starting.
    pub(crate) fn wait_tool(&self) -> Option<String> {
        let entry = self.wait_entry().filter(|_| !self.is_listed())?;
        Some(entry.name.to_string())
    }

    /// True if the tool of this name waits for the server, and is not the server's own.
    pub(super) fn is_wait(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.tool.as_str());
        rest.and_then(|rest| rest.strip_prefix("__")) == Some(WAIT_EXPORT) && !self.has(name)
    }

    /// True if the project marks the tool as idempotent, or if only the server declares it.
    pub(super) fn is_idempotent(&self, name: &str) -> bool {
        if self.is_wait(name) {
            return true;
        }
        let listed = self.listed();
        let chosen = |original: &str| self.chosen.iter().find(|export| export.name == original);
        listed.is_some_and(|listed| {
            let offered = listed.tools.get(name);
            offered.is_some_and(|offered| {
                let said = chosen(&offered.name).and_then(|export| export.idempotent);
                said.unwrap_or(offered.is_repeatable)
            })
        })
    }

    /// Checks a call against the server's list. If the server has not been listed yet, the call is
    /// checked when it runs.
    pub(super) fn check(&self, name: &str, input: &Value) -> Result<(), CallRejection> {
        let Some(listed) = self.listed() else {
            return Ok(());
        };
        match listed.tools.get(name) {
            None if self.is_wait(name) => Ok(()),
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
        CallRejection::NotInCatalog(format!(
            "`{name}` is not a tool of the MCP server of connection `{}`; it has {}",
            self.connection,
            listed.names()
        ))
    }

    /// Requests the server's list. If the server does not answer, the previous list stays.
    pub(crate) async fn refresh(
        &self,
        outgoing: &OutboundCalls,
        (place, trace): (CallPlace, Option<TraceContext>),
        starting: WhileStarting,
    ) -> Result<(), ToolFault> {
        let refreshed = self.request_list(outgoing, (place, trace), starting).await;
        let problem = refreshed.as_ref().err().cloned();
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
        refreshed.map_err(|failure| failure.fault)
    }

    /// Message about tools that the server has, but has not listed yet; `None` once it is listed.
    pub(crate) fn missing(&self) -> Option<String> {
        if self.is_listed() {
            return None;
        }
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = &problem.as_ref()?.fault.message;
        Some(format!(
            "the tools of connection `{}` are not available yet: {reason}",
            self.connection
        ))
    }

    async fn request_list(
        &self,
        outgoing: &OutboundCalls,
        (place, trace): (CallPlace, Option<TraceContext>),
        starting: WhileStarting,
    ) -> Result<(), ListFailure> {
        let lasting = |fault| ListFailure {
            fault,
            is_temporary: false,
        };
        let may_start = {
            let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
            problem.as_ref().is_none_or(|problem| problem.is_temporary)
        };
        let known = self.listed().map(|listed| listed.digest.clone());
        let request = ConnectorRequest::of(&Mcp::Tools { known });
        let ConnectorRequest { method, params } =
            request.map_err(|error| lasting(ToolFault::from(error)))?;
        let ask = OutboundCall {
            target: CallTarget::Connection {
                name: self.connection.clone(),
            },
            method,
            params,
            deadline_ms: match starting {
                WhileStarting::Wait if may_start => START_DEADLINE_MS,
                WhileStarting::Wait | WhileStarting::Fail => LIST_DEADLINE_MS,
            },
            idempotent: true,
            recoverable: false,
            again_since: None,
            only_if_ready: starting == WhileStarting::Fail,
            place: Some(place),
            record: None,
            trace,
        };
        let answer = outgoing.call(ask).await.map_err(|error| ListFailure {
            is_temporary: error.retryable || error.code == CallErrorCode::TimedOut,
            fault: fault_of(error),
        })?;
        let answer: McpTools = serde_json::from_str(answer.get()).map_err(|error| {
            let message = format!("failed to use its list: {error}");
            lasting(ToolFault::new("E_TOOL_FAILED", message))
        })?;
        if let Some(tools) = answer.tools {
            let listed = Arc::new(self.offer(answer.digest, tools));
            *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
        }
        Ok(())
    }

    fn offer(&self, digest: String, tools: Vec<McpTool>) -> ToolListing {
        let mut listed = ToolListing {
            digest,
            ..ToolListing::default()
        };
        let mut chosen: Vec<McpTool> = tools
            .into_iter()
            .filter(|tool| self.chosen.is_empty() || self.export(&tool.name).is_some())
            .collect();
        let surplus = chosen.split_off(chosen.len().min(TOOLS_MAX));
        self.report_surplus(&surplus);
        // The names that need no change come first, so that a changed one never shadows them.
        let originals = chosen.iter().map(|tool| tool.name.clone());
        let mut taken: BTreeSet<String> = originals.filter(|name| is_callable(name)).collect();
        for tool in chosen {
            let export = self.export(&tool.name);
            let callable = match is_callable(&tool.name) {
                true => tool.name.clone(),
                false => callable(&tool.name, &taken),
            };
            taken.insert(callable.clone());
            let name = match tool_full_name(self.tool.as_str(), &callable) {
                Ok(name) if !listed.tools.contains_key(name.as_str()) => name,
                Ok(_) | Err(_) => {
                    tracing::warn!(
                        connection = self.connection.as_str(),
                        tool = tool.name,
                        "skipped an MCP tool: the server lists it twice, or no model can call it"
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
                is_repeatable: tool.repeatable,
                schema: OnceLock::new(),
            };
            listed.tools.insert(name.to_string(), offered);
        }
        listed
    }

    /// The project's settings of a tool, by the server's name.
    fn export(&self, name: &str) -> Option<&ToolExport> {
        self.chosen.iter().find(|export| export.name == name)
    }

    fn report_surplus(&self, surplus: &[McpTool]) {
        if surplus.is_empty() {
            return;
        }
        let names = surplus.iter().take(NAMED_TOOLS_MAX);
        let names: Vec<&str> = names.map(|tool| tool.name.as_str()).collect();
        tracing::warn!(
            connection = self.connection.as_str(),
            tools = surplus.len(),
            names = names.join(", "),
            "left out tools of an MCP server: an agent gets at most {TOOLS_MAX} of them; choose \
             them with `exports` of the Tool"
        );
    }

    /// Calls a tool.
    pub(super) fn run(
        self: Arc<Self>,
        name: String,
        call: ToolInvocation,
    ) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            if self.is_wait(&name) {
                let waited = self.wait_until_ready(&call).await;
                return waited.map_or_else(ToolOutcome::from, ToolOutcome::ok);
            }
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

    /// Waits for the server's first list, and returns the names of its tools.
    async fn wait_until_ready(&self, call: &ToolInvocation) -> Result<String, ToolFault> {
        let route = ConnectionRoute::to(call, &self.connection)?;
        self.list_first(&route).await?;
        let listed = self.listed().unwrap_or_default();
        Ok(format!(
            "connection `{}` is ready; its tools: {}",
            self.connection,
            listed.names()
        ))
    }

    /// Requests the list if there is none, and waits for a server that is starting.
    async fn list_first(&self, route: &ConnectionRoute) -> Result<(), ToolFault> {
        if self.is_listed() {
            return Ok(());
        }
        tracing::info!(
            connection = self.connection.as_str(),
            "waiting for the MCP server"
        );
        let place = (route.call_place(), route.trace());
        self.refresh(route.outgoing(), place, WhileStarting::Wait)
            .await
    }

    async fn call(&self, name: &str, call: &ToolInvocation) -> Result<McpResult, ToolFault> {
        let route = ConnectionRoute::to(call, &self.connection)?;
        if !self.is_listed() {
            // An earlier process recorded the call, or the model guessed the tool's name.
            let checked = match self.list_first(&route).await {
                Ok(()) => self.check(name, &call.args).map_err(ToolFault::from),
                Err(fault) => Err(fault),
            };
            checked.map_err(|fault| match route.is_again() {
                true => interrupted(&fault.to_string()),
                false => fault,
            })?;
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
        if route.is_again() && !is_repeatable {
            let why = "the MCP server does not say that the tool is read-only or idempotent";
            return Err(interrupted(why));
        }
        let answer = route
            .run(request, Repetition::of(is_repeatable), CALL_DEADLINE_MS)
            .await?;
        serde_json::from_value(answer).map_err(|error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("failed to read the answer: {error}"),
            )
        })
    }
}

/// True for characters that all providers accept in a tool's name.
fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_callable(name: &str) -> bool {
    !name.is_empty() && name.len() <= EXPORT_BYTES_MAX && name.chars().all(fits)
}

/// Converts a server's tool name to one that models can call, and that is not taken. The same name
/// gives the same result unless the server's other names change.
fn callable(name: &str, taken: &BTreeSet<String>) -> String {
    let cleaned: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    let is_short = is_callable(&cleaned);
    if is_short && !taken.contains(&cleaned) {
        return cleaned;
    }
    let digest = fnv1a(name);
    let room = EXPORT_BYTES_MAX - 9;
    let beginning: String = cleaned.chars().take(room).collect();
    format!("{beginning}_{digest:08x}")
}

/// FNV-1a hash of a name.
fn fnv1a(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
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
            problem: Mutex::default(),
        }
    }

    fn listed(server: &McpServerHandle, names: &[&str]) {
        let tool = |name: &&str| McpTool {
            name: (*name).to_owned(),
            description: "said by the server".to_owned(),
            repeatable: *name == "read",
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
    fn prov_1_rewritten_mcp_names_never_shadow_true_ones() {
        let server = server(&[]);
        listed(
            &server,
            &[
                "files/read",
                "files.read",
                "files_read",
                "ok",
                "ok",
                &"x".repeat(200),
                "",
            ],
        );
        let names: Vec<String> = server
            .entries()
            .iter()
            .map(|e| e.name.to_string())
            .collect();
        assert_eq!(names[2], "notes__files_read", "{names:?}");
        assert!(names[0].starts_with("notes__files_read_"), "{names:?}");
        assert!(names[4].starts_with("notes__xxx"), "{names:?}");
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), distinct.len()), (6, 6), "{names:?}");
        let listed = server.listed().unwrap();
        assert_eq!(listed.tools[&names[0]].name, "files/read");
        assert_eq!(listed.tools["notes__files_read"].name, "files_read");
        assert!(!server.is_idempotent("notes__ok"));
    }

    #[test]
    fn prov_1_exports_choose_before_the_limit_of_mcp_tools() {
        let names: Vec<String> = (0..TOOLS_MAX + 10).map(|n| format!("t{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (all, last) = (server(&[]), *names.last().unwrap());
        listed(&all, &names);
        assert_eq!(all.entries().len(), TOOLS_MAX);
        let one = server(&[last]);
        listed(&one, &names);
        assert_eq!(one.entries()[0].name.as_str(), format!("notes__{last}"));
    }

    #[test]
    fn prov_1_a_server_without_a_list_is_reported() {
        let server = server(&[]);
        assert_eq!(server.missing(), None, "it has not been asked");
        let problem = |is_temporary| ListFailure {
            fault: ToolFault::new("E_UNAVAILABLE", "it is starting"),
            is_temporary,
        };
        *server.problem.lock().unwrap() = Some(problem(false));
        assert!(server.missing().unwrap().contains("`notes`"));
        assert!(server.entries().is_empty(), "waiting would not help");
        *server.problem.lock().unwrap() = Some(problem(true));
        listed(&server, &["add"]);
        assert_eq!(server.missing(), None);
    }

    #[test]
    fn prov_1_a_starting_server_offers_one_tool_that_waits_for_it() {
        const WAIT: &str = "notes__wait_until_ready";
        let server = server(&[]);
        assert_eq!((server.wait_tool(), server.entries().len()), (None, 0));
        *server.problem.lock().unwrap() = Some(ListFailure {
            fault: ToolFault::new("E_UNAVAILABLE", "it is starting"),
            is_temporary: true,
        });
        assert_eq!(server.wait_tool().as_deref(), Some(WAIT));
        assert_eq!(server.entries()[0].name.as_str(), WAIT);
        assert!(server.is_idempotent(WAIT));
        // Once it is listed, its own tools take the place, and a late call is still answered.
        listed(&server, &["add"]);
        assert_eq!(server.wait_tool(), None);
        assert_eq!(server.entries()[0].name.as_str(), "notes__add");
        assert_eq!(server.check(WAIT, &json!({})), Ok(()));
        listed(&server, &[WAIT_EXPORT]);
        assert!(!server.is_wait(WAIT), "it is the server's own");
    }

    #[test]
    fn a_project_chooses_and_arguments_are_checked() {
        let server = server(&["add"]);
        listed(&server, &["add", "drop"]);
        let entries = server.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].description, "said by the project");
        assert!(server.is_idempotent("notes__add"));
        // Without a word of the project, that of the server counts.
        let unsaid = self::server(&[]);
        listed(&unsaid, &["add", "read"]);
        assert!(unsaid.is_idempotent("notes__read") && !unsaid.is_idempotent("notes__add"));
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
