//! HTTP: requests to hosts that the project allows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Error, Value, json};

use super::action::{ActionCall, ActionPlan, ActionSpec, PlanError, ServiceSpec};
use super::recovery::Recovery;
use crate::limits::MAX_INPUT_BYTES;

/// Default request timeout, in milliseconds.
const TIMEOUT_DEFAULT_MS: u64 = 30_000;

/// Longest request timeout, in milliseconds.
const TIMEOUT_MAX_MS: u64 = 120_000;

/// Time that the call may additionally wait in the queue, in milliseconds.
const QUEUE_MS: u64 = 60_000;

/// The `http` tool.
pub const HTTP: ServiceSpec = ServiceSpec {
    tool: "http-fetch",
    connector: "http",
    secret: None,
    actions: &[
        ActionSpec {
            name: "get",
            description: "Gets a page or a document by its URL.",
            arguments: || {
                json!({
                    "url": url_schema(), "headers": headers_schema(), "raw": raw_schema(),
                    "timeoutMs": timeout_schema(),
                    "headOnly": {"type": "boolean", "description": "True to get only status and headers (HEAD). Default: false"},
                })
            },
            required: &["url"],
            recovery: Recovery::Repeatable,
            plan: get,
        },
        ActionSpec {
            name: "request",
            description: "Makes an HTTP request that may change something.",
            arguments: || {
                json!({
                    "url": url_schema(),
                    "method": {"enum": ["POST", "PUT", "PATCH", "DELETE"], "description": "POST if not given"},
                    "headers": headers_schema(),
                    "body": {"type": "string", "maxLength": MAX_INPUT_BYTES, "description": "The body. Name its type in the header content-type; JSON if not given"},
                    "raw": raw_schema(), "timeoutMs": timeout_schema(),
                })
            },
            required: &["url"],
            recovery: Recovery::LookBack(
                "as the settings `idempotencyKey` and `lookBack` of the Connection say",
            ),
            plan: change,
        },
    ],
};

/// Methods of a connection of the connector `http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Http {
    /// Sends a request and follows redirects.
    Fetch {
        /// The method.
        method: String,
        /// The URL.
        url: String,
        /// Headers by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// True to return HTML unchanged instead of the text it displays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        raw: bool,
        /// True to return all headers, and the body as UTF-8 text even if it is binary.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
        /// With `whole`: number of bytes returned of a body whose `content-length` is greater.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_bytes: Option<u64>,
        /// The timeout, in milliseconds.
        timeout_ms: u64,
        /// Identifies the request if the action is repeated; empty for none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        mark: String,
    },
}

/// Result of [`Http::Fetch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchResult {
    /// The status code.
    pub status: u16,
    /// The final URL, after redirects.
    pub url: String,
    /// The informative headers, by name; with `whole`, all.
    pub headers: BTreeMap<String, String>,
    /// The requested URL in its normal form, with `whole`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_url: Option<String>,
    /// The reason phrase of the status, with `whole`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_text: Option<String>,
    /// True if the body has more bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The body as text; empty if it is not text.
    pub text: String,
    /// Size of the received body, in bytes.
    pub bytes: u64,
    /// Note about a change to the body, or the reason why it is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

fn url_schema() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 8192, "description": "The URL"})
}

fn headers_schema() -> Value {
    json!({
        "type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 64,
        "description": "Headers by name",
    })
}

fn raw_schema() -> Value {
    json!({
        "type": "boolean",
        "description": "True to return HTML unchanged instead of as text. Default: false",
    })
}

fn timeout_schema() -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX_MS,
        "description": format!("Timeout in milliseconds. Default: {TIMEOUT_DEFAULT_MS}"),
    })
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

fn get(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    let method = if args.head_only { "HEAD" } else { "GET" };
    fetch(method.to_owned(), args, String::new())
}

fn change(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let mut args: Args = call.args()?;
    let method = args.method.take();
    let method = method.unwrap_or_else(|| "POST".to_owned());
    fetch(method, args, format!("{}/0", call.call_id))
}

fn fetch(method: String, args: Args, mark: String) -> Result<ActionPlan, PlanError> {
    let timeout_ms = args.timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS);
    let action = Http::Fetch {
        method,
        url: args.url,
        headers: args.headers,
        body: args.body,
        raw: args.raw,
        whole: false,
        kept_bytes: None,
        timeout_ms,
        mark,
    };
    Ok(ActionPlan::formatted_by(&action, result_text)?.within(timeout_ms + QUEUE_MS))
}

/// Text for the model: status, final URL, headers, and the body after an empty line.
fn result_text(answer: Value) -> Result<String, Error> {
    let fetched: FetchResult = serde_json::from_value(answer)?;
    let mut text = format!("status: {}\nurl: {}\n", fetched.status, fetched.url);
    for (name, value) in &fetched.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    if let Some(note) = &fetched.note {
        text.push_str(&format!("[{note}]\n"));
    }
    text.push('\n');
    text.push_str(&fetched.text);
    Ok(text)
}
