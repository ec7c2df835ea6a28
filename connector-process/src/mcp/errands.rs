//! What agents have a server do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_log::error_chain;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder};
use goondan_protocol::service::{Mcp as Errand, McpResult, McpTool, McpTools};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::client::Client;
use super::wording;
use crate::calls::{CallHandler, Outcome, Pieces};
use crate::limits::MCP_TOOLS_MAX;
use crate::service;

/// A server that is there.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) peer: Peer<RoleClient>,
    pub(super) client: Client,
}

/// Does what agents ask for.
#[derive(Clone)]
pub(super) struct Errands {
    server: watch::Receiver<Option<Serving>>,
    patience: Duration,
    secrets: Arc<[String]>,
    listed: Arc<Mutex<Option<Listed>>>,
}

/// What the server offered when it was asked last.
struct Listed {
    /// How often its list had changed by then.
    changes: u64,
    of: Client,
    digest: String,
    tools: Vec<McpTool>,
}

impl CallHandler for Errands {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, Outcome> {
        let errands = self.clone();
        async move {
            let secrets: Vec<&str> = errands.secrets.iter().map(String::as_str).collect();
            service::outcome(errands.run(&call).await, &secrets)
        }
        .boxed()
    }
}

impl Errands {
    pub(super) fn new(
        server: watch::Receiver<Option<Serving>>,
        patience: Duration,
        secrets: Vec<String>,
    ) -> Self {
        Self {
            server,
            patience,
            secrets: secrets.into(),
            listed: Arc::default(),
        }
    }

    async fn run(&self, call: &CallOrder) -> Result<Value, CallError> {
        let errand: Errand = service::errand("mcp", call)?;
        let serving = self.server.borrow().clone();
        let serving = serving.ok_or_else(|| {
            CallError::new(CallErrorCode::Unavailable, "the MCP server is not there").later(None)
        })?;
        match errand {
            Errand::Tools { known } => to_value(&self.tools(&serving, known.as_deref()).await?),
            Errand::Call { name, arguments } => {
                let params = CallToolRequestParams::new(name).with_arguments(arguments);
                let made = timeout(self.patience, serving.peer.call_tool_once(params)).await;
                let response = made.map_err(|_elapsed| self.too_late())?;
                match response.map_err(|error| to_error(&error))? {
                    CallToolResponse::Complete(result) => {
                        let result =
                            serde_json::to_value(result).map_err(|error| unreadable(&error))?;
                        to_value(&to_result(&result))
                    }
                    _ => Err(CallError::new(
                        CallErrorCode::Refused,
                        "the server wants to ask somebody something before it answers, and nobody is there",
                    )),
                }
            }
        }
    }

    async fn tools(&self, serving: &Serving, known: Option<&str>) -> Result<McpTools, CallError> {
        let mut listed = self.listed.lock().await;
        let changes = serving.client.changes();
        let is_current = listed
            .as_ref()
            .is_some_and(|listed| listed.changes == changes && listed.of.is_same(&serving.client));
        if !is_current {
            let asked = timeout(self.patience, serving.peer.list_all_tools()).await;
            let found = asked.map_err(|_elapsed| self.too_late())?;
            let found = found.map_err(|error| to_error(&error))?;
            let tools: Vec<McpTool> = found.into_iter().take(MCP_TOOLS_MAX).map(to_tool).collect();
            let digest = hex::encode(Sha256::digest(
                serde_json::to_vec(&tools).map_err(|error| unreadable(&error))?,
            ));
            *listed = Some(Listed {
                changes,
                of: serving.client.clone(),
                digest,
                tools,
            });
        }
        let Some(listed) = listed.as_ref() else {
            return Err(CallError::new(
                CallErrorCode::Internal,
                "nothing was listed",
            ));
        };
        let is_known = known == Some(&listed.digest);
        Ok(McpTools {
            digest: listed.digest.clone(),
            tools: (!is_known).then(|| listed.tools.clone()),
        })
    }

    fn too_late(&self) -> CallError {
        let message = format!(
            "the MCP server did not answer within {} s",
            self.patience.as_secs()
        );
        CallError::new(CallErrorCode::TimedOut, message)
    }
}

fn to_tool(tool: rmcp::model::Tool) -> McpTool {
    McpTool {
        name: tool.name.into_owned(),
        description: tool
            .description
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default(),
        parameters: Value::Object(tool.input_schema.as_ref().clone()),
    }
}

/// What a tool returned, for a model that reads text.
fn to_result(result: &Value) -> McpResult {
    let content = result.get("content").and_then(Value::as_array);
    let mut parts: Vec<String> = content.into_iter().flatten().map(in_words).collect();
    if parts.is_empty()
        && let Some(structured) = result.get("structuredContent")
    {
        parts.push(structured.to_string());
    }
    McpResult {
        text: parts.join("\n\n"),
        is_error: result.get("isError") == Some(&Value::Bool(true)),
    }
}

/// One part of a result. What is no text is named, so that the model knows that it is there.
fn in_words(part: &Value) -> String {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    let kind = text("/type").unwrap_or("part");
    let bytes = |pointer: &str| text(pointer).map_or(0, |base64| base64.len() / 4 * 3);
    match kind {
        "text" => text("/text").unwrap_or_default().to_owned(),
        "resource" => match text("/resource/text") {
            Some(text) => text.to_owned(),
            None => format!(
                "[resource {}, {} bytes that are no text]",
                text("/resource/uri").unwrap_or_default(),
                bytes("/resource/blob")
            ),
        },
        "resource_link" => format!("[resource {}]", text("/uri").unwrap_or_default()),
        _ => format!(
            "[{kind} {}, {} bytes]",
            text("/mimeType").unwrap_or_default(),
            bytes("/data")
        ),
    }
}

/// Why a request failed; `retryable` only where it had no effect.
fn to_error(error: &ServiceError) -> CallError {
    match error {
        ServiceError::McpError(said) => CallError::new(
            CallErrorCode::Invalid,
            format!(
                "the MCP server refuses it: {} ({})",
                said.message, said.code.0
            ),
        ),
        unsent if wording::is_unsent(unsent) => {
            let reason = wording::of_request(unsent);
            let message = format!("the MCP server cannot be reached: {reason}");
            CallError::new(CallErrorCode::Unavailable, message).later(None)
        }
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => CallError::new(
            CallErrorCode::Interrupted,
            format!(
                "the connection to the MCP server broke: {}; outcome unknown",
                wording::of_request(error)
            ),
        ),
        other => CallError::new(
            CallErrorCode::Internal,
            format!(
                "the MCP server does not keep to its protocol: {}",
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

    #[test]
    fn every_kind_of_content_is_told_to_a_model_that_reads_text() {
        let result = to_result(&json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAAAAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ], "isError": true}));
        assert!(result.is_error);
        let expected = "one\n\n[image image/png, 3 bytes]\n\ninside\n\n\
                        [resource file:///b, 6 bytes that are no text]\n\n[resource file:///c]";
        assert_eq!(result.text, expected);
        let structured = to_result(&json!({"content": [], "structuredContent": {"n": 1}}));
        assert_eq!(
            (structured.text.as_str(), structured.is_error),
            (r#"{"n":1}"#, false)
        );
    }
}
