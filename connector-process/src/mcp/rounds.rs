//! Calls with several rounds: since protocol version 2026-07-28, a server can answer a call with
//! questions (`input_required`), and the call is repeated with the answers.

use std::time::Duration;

use goondan_protocol::call::{CallError, CallErrorCode, CallId};
use rmcp::RoleClient;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use tokio::time::sleep;

use super::client::McpClientHandler;
use super::requests::{self, CallAnswer};
use crate::limits::{MCP_ROUND_PAUSE_MS, MCP_ROUNDS_MAX};

/// Reason why a call failed.
#[derive(Debug)]
pub(super) enum McpCallFailure {
    /// At the server or in transit.
    Service(ServiceError),
    Call(CallError),
}

/// Calls a tool and answers the server's questions.
pub(super) async fn call_tool(
    peer: &Peer<RoleClient>,
    client: &McpClientHandler,
    call_id: CallId,
    mut params: CallToolRequestParams,
) -> Result<Value, McpCallFailure> {
    for _ in 0..MCP_ROUNDS_MAX {
        let answer = requests::call_tool(peer, params.clone()).await;
        let needed = match answer.map_err(McpCallFailure::Service)? {
            CallAnswer::Result(result) => return Ok(result),
            CallAnswer::InputRequired(needed) => needed,
            CallAnswer::Task => {
                return Err(refused(
                    "the server created a task for the call, which is not supported",
                ));
            }
        };
        params.request_state = needed.request_state;
        let requests = needed.input_requests.unwrap_or_default();
        if requests.is_empty() {
            // The server requests a repetition without questions.
            params.input_responses = None;
            sleep(Duration::from_millis(MCP_ROUND_PAUSE_MS)).await;
            continue;
        }
        let responses = client.respond_all(call_id, requests).await;
        params.input_responses = Some(responses.map_err(|error| {
            refused(&format!(
                "the server asks a question first, which failed: {}",
                error.message
            ))
        })?);
    }
    Err(refused(&format!(
        "the server asked questions more than {MCP_ROUNDS_MAX} times"
    )))
}

fn refused(message: &str) -> McpCallFailure {
    McpCallFailure::Call(CallError::new(CallErrorCode::Refused, message))
}
