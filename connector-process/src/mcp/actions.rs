//! Actions of agents at a server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::timeout;
use goondan_confinement::Denials;
use goondan_log::error_chain;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder};
use goondan_protocol::sandbox::SandboxPolicy;
use goondan_protocol::service::{MCP, Mcp as Action, McpResult, McpTool, McpTools};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, PaginatedRequestParams, RequestParamsMeta as _};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, watch};

use super::client::McpClientHandler;
use super::questions::OpenCalls;
use super::requests::{self, OmittedTool, ToolPage};
use super::resource_tools::{Capabilities, OwnTool, OwnToolFailure};
use super::{content, error_texts, rounds};
use crate::call_clock::DeadlineExceeded;
use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::gateway::Gateway;
use crate::limits::{MCP_PAGES_MAX, MCP_TOOLS_MAX, NOTE_BYTES_MAX};
use crate::service;

#[derive(Clone)]
pub(super) struct RunningServer {
    pub(super) peer: Peer<RoleClient>,
    pub(super) client: McpClientHandler,
    /// Name and version of the server, for people.
    pub(super) introduction: Arc<str>,
}

/// Performs the actions of agents.
#[derive(Clone)]
pub(super) struct Actions {
    gateway: Gateway,
    server: watch::Receiver<Option<RunningServer>>,
    calls: OpenCalls,
    call_timeout: Duration,
    secrets: Arc<[String]>,
    /// Sandbox policy of the server, if it is a program.
    policy: Option<Arc<SandboxPolicy>>,
    listed: Arc<Mutex<Option<ServerToolList>>>,
}

/// The server's tools at the last listing.
struct ServerToolList {
    /// Number of list changes at that time.
    changes: u64,
    of: McpClientHandler,
    digest: String,
    tools: Vec<McpTool>,
    /// Names of the tools that goondan provides.
    has_own: BTreeSet<String>,
}

impl CallHandler for Actions {
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let actions = self.clone();
        async move {
            let secrets: Vec<&str> = actions.secrets.iter().map(String::as_str).collect();
            service::outcome(actions.run(&call, &pieces).await, &secrets)
        }
        .boxed()
    }
}

impl Actions {
    pub(super) fn new(
        gateway: Gateway,
        server: watch::Receiver<Option<RunningServer>>,
        calls: OpenCalls,
        call_timeout: Duration,
        secrets: Vec<String>,
        policy: Option<SandboxPolicy>,
    ) -> Self {
        Self {
            gateway,
            server,
            calls,
            call_timeout,
            secrets: secrets.into(),
            policy: policy.map(Arc::new),
            listed: Arc::default(),
        }
    }

    async fn run(&self, call: &CallOrder, pieces: &Pieces) -> Result<Value, CallError> {
        let action: Action = service::action(MCP.connector, call)?;
        let serving = self.server.borrow().clone();
        let serving = serving.ok_or_else(|| {
            CallError::new(
                CallErrorCode::Unavailable,
                "the MCP server is not available",
            )
            .later(None)
        })?;
        match action {
            Action::Tools { known } => to_value(&self.tools(&serving, known.as_deref()).await?),
            Action::Call { name, arguments } => {
                let _entered = self.calls.enter(pieces);
                let clock = pieces.clock();
                if let Some(own) = self.own(&name).await {
                    let made = own.run(&serving.peer, &arguments);
                    let made = clock.timeout(self.call_timeout, made).await;
                    return match made.map_err(|DeadlineExceeded| self.too_late())? {
                        Ok(result) => to_value(&result),
                        Err(OwnToolFailure::Service(error)) => Err(to_error(&error)),
                        Err(OwnToolFailure::Call(error)) => Err(error),
                    };
                }
                let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
                if let Some(trace) = pieces.trace() {
                    params.set_traceparent(&trace.to_traceparent());
                }
                let RunningServer { peer, client, .. } = &serving;
                let made = rounds::call_tool(peer, client, pieces.call_id(), params);
                let made = clock.timeout(self.call_timeout, made).await;
                match made.map_err(|DeadlineExceeded| self.too_late())? {
                    Ok(result) => to_value(&self.explained(content::of_call(&result))),
                    Err(rounds::McpCallFailure::Service(error)) => Err(to_error(&error)),
                    Err(rounds::McpCallFailure::Call(error)) => Err(error),
                }
            }
        }
    }

    /// Adds to the result of a failed call the accesses that the server's sandbox may have denied.
    fn explained(&self, mut result: McpResult) -> McpResult {
        let policy = self.policy.as_ref().filter(|_| result.is_error);
        let denial = policy.and_then(|policy| Denials::of_connection(policy).explain(&result.text));
        if let Some(denial) = denial {
            result.text.push('\n');
            result.text.push_str(denial.trim_end());
        }
        result
    }

    /// Lists the server's tools after its start, and reports the server. False if that failed.
    pub(super) async fn list_first(&self, serving: &RunningServer) -> bool {
        let listed = self.tools(serving, None).await;
        listed
            .inspect_err(|error| {
                let reason = service::masked(error.message.clone(), &self.secrets);
                tracing::warn!(reason, "failed to list the tools of the MCP server");
            })
            .is_ok()
    }

    async fn tools(
        &self,
        serving: &RunningServer,
        known: Option<&str>,
    ) -> Result<McpTools, CallError> {
        let mut listed = self.listed.lock().await;
        let changes = serving.client.changes();
        let is_current = listed
            .as_ref()
            .is_some_and(|listed| listed.changes == changes && listed.of.is_same(&serving.client));
        if !is_current {
            let asked = timeout(self.call_timeout, all_tools(&serving.peer)).await;
            let found = asked.map_err(|_elapsed| self.too_late())?;
            let (mut tools, left_out) = found.map_err(|error| to_error(&error))?;
            self.report_left_out(serving, &left_out).await;
            let own = Capabilities::of(&serving.peer).tools(&tools);
            let has_own = own.iter().map(|tool| tool.name.clone()).collect();
            tools.extend(own);
            let digest = hex::encode(Sha256::digest(
                serde_json::to_vec(&tools).map_err(|error| unreadable(&error))?,
            ));
            *listed = Some(ServerToolList {
                changes,
                of: serving.client.clone(),
                digest,
                tools,
                has_own,
            });
        }
        let Some(listed) = listed.as_ref() else {
            return Err(CallError::new(
                CallErrorCode::Internal,
                "the tools have not been listed",
            ));
        };
        let is_known = known == Some(&listed.digest);
        Ok(McpTools {
            digest: listed.digest.clone(),
            tools: (!is_known).then(|| listed.tools.clone()),
        })
    }

    /// Reports the omitted tools in the log and in `gdn ps`.
    async fn report_left_out(&self, serving: &RunningServer, left_out: &[OmittedTool]) {
        for OmittedTool { name, reason } in left_out {
            tracing::warn!(tool = name, reason, "left out a tool of the MCP server");
        }
        let introduction = serving.introduction.as_ref();
        let Some(first) = left_out.first() else {
            self.gateway.report(true, introduction).await;
            return;
        };
        let others = match left_out.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let note = format!(
            "{introduction}; left out: {} ({}){others}",
            first.name, first.reason
        );
        let note: String = note.chars().take(NOTE_BYTES_MAX).collect();
        self.gateway.report(true, note).await;
    }

    /// Our own tool of this name, unless the server has one.
    async fn own(&self, name: &str) -> Option<OwnTool> {
        let listed = self.listed.lock().await;
        let is_ours = listed.as_ref()?.has_own.contains(name);
        OwnTool::of_name(name).filter(|_| is_ours)
    }

    fn too_late(&self) -> CallError {
        let message = format!(
            "the MCP server did not answer within {} s",
            self.call_timeout.as_secs()
        );
        CallError::new(CallErrorCode::TimedOut, message)
    }
}

/// Lists the server's tools, separated into valid and invalid ones.
async fn all_tools(
    peer: &Peer<RoleClient>,
) -> Result<(Vec<McpTool>, Vec<OmittedTool>), ServiceError> {
    let mut listing = ToolPages::default();
    let mut cursor = None;
    for _ in 0..MCP_PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        cursor = listing.add(requests::list_tools(peer, page).await?);
        if cursor.is_none() || listing.tools.len() >= MCP_TOOLS_MAX {
            break;
        }
    }
    Ok(listing.limited())
}

/// The pages of a list so far.
#[derive(Debug, Default)]
struct ToolPages {
    tools: Vec<McpTool>,
    left_out: Vec<OmittedTool>,
    names: BTreeSet<String>,
    cursors: BTreeSet<String>,
}

impl ToolPages {
    /// Adds a page; returns the cursor of the next one. Some servers return a cursor with the last
    /// page, and the same page for it again, so a known cursor ends the list.
    fn add(&mut self, page: ToolPage) -> Option<String> {
        for tool in page.tools.into_iter().map(to_tool) {
            if self.names.insert(tool.name.clone()) {
                self.tools.push(tool);
            }
        }
        for omitted in page.left_out {
            if !self.left_out.contains(&omitted) {
                self.left_out.push(omitted);
            }
        }
        page.next_cursor
            .filter(|cursor| self.cursors.insert(cursor.clone()))
    }

    fn limited(mut self) -> (Vec<McpTool>, Vec<OmittedTool>) {
        let surplus = self.tools.split_off(MCP_TOOLS_MAX.min(self.tools.len()));
        let surplus = surplus.into_iter().map(|tool| OmittedTool {
            name: tool.name,
            reason: format!("more than {MCP_TOOLS_MAX} tools"),
        });
        self.left_out.extend(surplus);
        (self.tools, self.left_out)
    }
}

fn to_tool(tool: rmcp::model::Tool) -> McpTool {
    let hints = tool.annotations.as_ref();
    McpTool {
        repeatable: hints.is_some_and(|hints| {
            hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)
        }),
        name: tool.name.into_owned(),
        description: tool
            .description
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default(),
        parameters: Value::Object(tool.input_schema.as_ref().clone()),
    }
}

/// Converts a failed request; `retryable` only if it had no effect.
fn to_error(error: &ServiceError) -> CallError {
    match error {
        ServiceError::McpError(said) => CallError::new(
            CallErrorCode::Invalid,
            format!(
                "the MCP server rejected the request: {} ({})",
                said.message, said.code.0
            ),
        ),
        unsent if error_texts::is_unsent(unsent) => {
            let reason = error_texts::of_request(unsent);
            let message = format!("failed to connect to the MCP server: {reason}");
            CallError::new(CallErrorCode::Unavailable, message).later(None)
        }
        declined if error_texts::verdict_of(declined).is_some() => {
            let reason = error_texts::of_request(declined);
            let message = format!("the MCP server rejected the token: {reason}");
            CallError::new(CallErrorCode::Unauthorized, message)
                .of_token(error_texts::verdict_of(declined))
        }
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => CallError::new(
            CallErrorCode::Interrupted,
            format!(
                "the connection to the MCP server broke: {}; outcome unknown",
                error_texts::of_request(error)
            ),
        ),
        other => CallError::new(
            CallErrorCode::Internal,
            format!(
                "the MCP server violated the protocol: {}",
                error_chain(other)
            ),
        ),
    }
}

fn to_value(answer: &impl serde::Serialize) -> Result<Value, CallError> {
    serde_json::to_value(answer).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> CallError {
    CallError::new(CallErrorCode::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(names: &[&str], next_cursor: Option<&str>) -> ToolPage {
        let tools = names.iter().map(|name| {
            let tool = json!({"name": name, "inputSchema": {"type": "object"}});
            serde_json::from_value(tool).unwrap()
        });
        ToolPage {
            tools: tools.collect(),
            left_out: vec![OmittedTool {
                name: "odd".to_owned(),
                reason: "no schema".to_owned(),
            }],
            next_cursor: next_cursor.map(str::to_owned),
        }
    }

    #[test]
    fn prov_1_a_cursor_that_does_not_advance_ends_the_list() {
        let mut pages = ToolPages::default();
        // An empty cursor is valid.
        assert_eq!(pages.add(page(&["a"], Some(""))).as_deref(), Some(""));
        assert_eq!(pages.add(page(&["b"], Some("2"))).as_deref(), Some("2"));
        assert_eq!(pages.add(page(&["b"], Some("2"))), None);
        let (tools, left_out) = pages.limited();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names, left_out.len()), (vec!["a", "b"], 1));
    }
}
