//! The tool `http-fetch`: requests to hosts that the project allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::service::{Fetched, Http};
use serde::Deserialize;
use serde_json::json;

use super::{ConnectionRoute, Connections, Offer, export};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// How long a request may take if nothing is said, in milliseconds.
const TIMEOUT_DEFAULT_MS: u64 = 30_000;

/// How long a request may take at most, in milliseconds.
const TIMEOUT_MAX_MS: u64 = 120_000;

/// How much longer the call waits than the request may take, in milliseconds: for its turn.
const QUEUE_MS: u64 = 60_000;

/// The exports of the tool.
pub(crate) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let connections: Connections = Arc::from(connections);
    let url =
        json!({"type": "string", "minLength": 1, "maxLength": 8192, "description": "The URL"});
    let headers = json!({
        "type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 64,
        "description": "Headers by name",
    });
    let raw = json!({
        "type": "boolean",
        "description": "Whether HTML is returned as it is, not as the text it shows; false if not given",
    });
    let timeout = json!({
        "type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX_MS,
        "description": format!("How many milliseconds it may take; {TIMEOUT_DEFAULT_MS} if not given"),
    });
    vec![
        export(
            Offer {
                name: "get",
                description: "Gets a page or a document by its URL.",
                properties: json!({
                    "url": url, "headers": headers, "raw": raw, "timeoutMs": timeout,
                    "headOnly": {"type": "boolean", "description": "Whether only status and headers are asked for (HEAD); false if not given"},
                }),
                required: &["url"],
                is_idempotent: true,
            },
            &connections,
            get,
        ),
        export(
            Offer {
                name: "request",
                description: "Makes an HTTP request that may change something.",
                properties: json!({
                    "url": url,
                    "method": {"enum": ["POST", "PUT", "PATCH", "DELETE"], "description": "POST if not given"},
                    "headers": headers,
                    "body": {"type": "string", "maxLength": MAX_INPUT_BYTES, "description": "The body. Name its type in the header content-type; JSON if not given"},
                    "raw": raw, "timeoutMs": timeout,
                }),
                required: &["url"],
                is_idempotent: false,
            },
            &connections,
            request,
        ),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    head_only: bool,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

async fn get(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let method = if args.head_only { "HEAD" } else { "GET" };
    fetch(&route, method.to_owned(), args, true).await
}

async fn request(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let method = args.method.clone().unwrap_or_else(|| "POST".to_owned());
    fetch(&route, method, args, false).await
}

async fn fetch(
    route: &ConnectionRoute,
    method: String,
    args: Args,
    is_repeatable: bool,
) -> Result<String, ToolFault> {
    let timeout_ms = args.timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS);
    let errand = Http::Fetch {
        method,
        url: args.url,
        headers: args.headers,
        body: args.body,
        raw: args.raw,
        timeout_ms,
    };
    let answer = route
        .run_for(&errand, is_repeatable, timeout_ms + QUEUE_MS)
        .await?;
    let fetched: Fetched = serde_json::from_value(answer).map_err(|error| {
        ToolFault::new(
            "E_TOOL_FAILED",
            format!("the answer cannot be read: {error}"),
        )
    })?;
    Ok(told(&fetched))
}

/// What the model reads: status, where it was, headers, and the body behind an empty line.
fn told(fetched: &Fetched) -> String {
    let mut text = format!("status: {}\nurl: {}\n", fetched.status, fetched.url);
    for (name, value) in &fetched.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    if let Some(note) = &fetched.note {
        text.push_str(&format!("[{note}]\n"));
    }
    text.push('\n');
    text.push_str(&fetched.text);
    text
}
