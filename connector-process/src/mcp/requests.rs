//! Requests whose results are parsed part by part, so that one malformed part does not discard the
//! rest.
//!
//! The library parses a result as a whole: a list with one malformed tool, or a result with one
//! unknown content type, becomes a custom result. This module parses its JSON.

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest,
    CustomResult, InputRequiredResult, ListToolsRequest, PaginatedRequestParams, RequestId,
    ServerResult, Tool,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::Value;

/// One page of a server's tools.
pub(super) struct ToolPage {
    pub(super) tools: Vec<Tool>,
    /// Tools that cannot be offered.
    pub(super) left_out: Vec<OmittedTool>,
    pub(super) next_cursor: Option<String>,
}

/// A tool that cannot be offered, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OmittedTool {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Lists one page of tools.
///
/// # Errors
///
/// [`ServiceError`] if the server does not answer, or answers with anything but a list.
pub(super) async fn list_tools(
    peer: &Peer<RoleClient>,
    page: PaginatedRequestParams,
) -> Result<ToolPage, ServiceError> {
    let request = ListToolsRequest {
        params: Some(page),
        ..ListToolsRequest::default()
    };
    match send(peer, ClientRequest::ListToolsRequest(request)).await? {
        ServerResult::ListToolsResult(found) => Ok(ToolPage {
            tools: found.tools,
            left_out: Vec::new(),
            next_cursor: found.next_cursor,
        }),
        ServerResult::CustomResult(CustomResult(found)) => {
            read_tools(&found).ok_or(ServiceError::UnexpectedResponse)
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

fn read_tools(found: &Value) -> Option<ToolPage> {
    let mut page = ToolPage {
        tools: Vec::new(),
        left_out: Vec::new(),
        next_cursor: None,
    };
    for (place, tool) in found.get("tools")?.as_array()?.iter().enumerate() {
        match serde_json::from_value::<Tool>(tool.clone()) {
            Ok(tool) => page.tools.push(tool),
            Err(error) => {
                let name = tool.get("name").and_then(Value::as_str);
                page.left_out.push(OmittedTool {
                    name: name.map_or_else(|| format!("tool {place}"), str::to_owned),
                    reason: error.to_string(),
                });
            }
        }
    }
    let cursor = found.get("nextCursor").and_then(Value::as_str);
    page.next_cursor = cursor.map(str::to_owned);
    Some(page)
}

/// A server's answer to a call.
pub(super) enum CallAnswer {
    Result(Value),
    /// The server asks questions first.
    InputRequired(Box<InputRequiredResult>),
    /// The server created a task for the call.
    Task,
}

/// Calls a tool once.
///
/// # Errors
///
/// [`ServiceError`] if the server does not answer, or answers with anything but a result.
pub(super) async fn call_tool(
    peer: &Peer<RoleClient>,
    params: CallToolRequestParams,
) -> Result<CallAnswer, ServiceError> {
    let request = CallToolRequest::new(params);
    match send(peer, ClientRequest::CallToolRequest(request)).await? {
        ServerResult::CallToolResult(result) => serde_json::to_value(result)
            .map(CallAnswer::Result)
            .map_err(|_| ServiceError::UnexpectedResponse),
        ServerResult::InputRequiredResult(needed) => {
            Ok(CallAnswer::InputRequired(Box::new(needed)))
        }
        ServerResult::CreateTaskResult(_) => Ok(CallAnswer::Task),
        // The call was made, so its result counts even if it is mostly unreadable.
        ServerResult::CustomResult(CustomResult(result)) if result.is_object() => {
            Ok(CallAnswer::Result(result))
        }
        ServerResult::EmptyResult(_) => Ok(CallAnswer::Result(Value::Object(
            serde_json::Map::default(),
        ))),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

async fn send(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let handle = peer
        .send_request_with_option(request, PeerRequestOptions::no_options())
        .await?;
    let mut abandoned = CancelOnDrop {
        peer: peer.clone(),
        id: Some(handle.id.clone()),
    };
    let result = handle.await_response().await;
    abandoned.id = None;
    result
}

/// Notifies the server on drop that the caller has canceled a request.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    #[expect(
        clippy::disallowed_methods,
        reason = "the waiter is gone; the task ends with the connection at the latest"
    )]
    fn drop(&mut self) {
        let Some(id) = self.id.take() else {
            return;
        };
        let peer = self.peer.clone();
        tokio::spawn(async move {
            let reason = "the request was canceled".to_owned();
            let params = CancelledNotificationParam::new(Some(id), Some(reason));
            if let Err(error) = peer.notify_cancelled(params).await {
                tracing::debug!(error = %error, "failed to cancel a request at the MCP server");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prov_1_a_malformed_tool_is_named_and_the_others_stay() {
        let fine = json!({"name": "fine", "inputSchema": {"type": "object"}});
        for odd in [
            json!({"name": "odd", "inputSchema": null}),
            json!({"name": "odd", "inputSchema": "object"}),
            json!({"name": "odd"}),
            json!({"name": "odd", "inputSchema": {}, "annotations": "loud"}),
            json!({"name": "odd", "inputSchema": {}, "annotations": {"readOnlyHint": "yes"}}),
            json!({"name": "odd", "inputSchema": {}, "title": 5}),
            json!({"inputSchema": {"type": "object"}}),
            json!("odd"),
        ] {
            let page = read_tools(&json!({"tools": [odd, fine], "nextCursor": "c"})).unwrap();
            assert_eq!(page.tools.len(), 1, "{odd}");
            assert_eq!(page.left_out.len(), 1, "{odd}");
            assert_eq!(page.next_cursor.as_deref(), Some("c"));
        }
        assert!(read_tools(&json!({"tools": "none"})).is_none());
    }
}
