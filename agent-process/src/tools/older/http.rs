//! `http-fetch`, by a connection.

use goondan_clock::Instant;
use goondan_protocol::ids::ConnectionName;
use serde_json::{Map, Value, json};

use super::millis_since;
use super::services::{DEADLINE_MS, RoutedCall, of, properties};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// Default time limit of a request, in milliseconds.
const FETCH_TIMEOUT_MS: u64 = 30_000;
/// Longest time limit of a request, in milliseconds.
const FETCH_TIMEOUT_MAX_MS: u64 = 120_000;
/// Default limit of body bytes that are returned.
const FETCH_BYTES: usize = 500_000;

pub(super) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let common = [
        ("url", "string"),
        ("headers", "object"),
        ("timeoutMs", "number"),
        ("maxBytes", "number"),
    ];
    let with_body = [&common[..], &[("body", "object"), ("bodyString", "string")]].concat();
    vec![
        of(
            connections,
            "get",
            "Makes an HTTP GET request.",
            properties(&common),
            &["url"],
            true,
            |site| Box::pin(fetch(site, "GET")),
        ),
        of(
            connections,
            "post",
            "Makes an HTTP POST request.",
            properties(&with_body),
            &["url"],
            false,
            |site| Box::pin(fetch(site, "POST")),
        ),
    ]
}

async fn fetch(site: &RoutedCall, method: &str) -> Result<Value, ToolFault> {
    let url = site.needed(&["url"])?;
    let headers = site
        .args
        .get("headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let headers: Map<String, Value> = headers
        .map(|(name, value)| match value {
            Value::String(_) => (name.clone(), value.clone()),
            other => (name.clone(), json!(other.to_string())),
        })
        .collect();
    let body = site
        .args
        .get("body")
        .filter(|body| !body.is_null())
        .map(Value::to_string);
    let body = body.or_else(|| site.text("bodyString"));
    let timeout_ms = site.args.get("timeoutMs").and_then(Value::as_u64);
    let timeout_ms = timeout_ms
        .unwrap_or(FETCH_TIMEOUT_MS)
        .clamp(1, FETCH_TIMEOUT_MAX_MS);
    let begun = Instant::now();
    let params = json!({
        "method": method, "url": url, "headers": headers, "raw": true, "timeoutMs": timeout_ms,
        "body": body.filter(|_| method == "POST"),
    });
    let deadline_ms = timeout_ms.saturating_add(DEADLINE_MS / 2);
    let fetched = site
        .ask_within("fetch", params, method == "GET", deadline_ms)
        .await?;
    let text = fetched
        .get("text")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let most = site.args.get("maxBytes").and_then(Value::as_u64);
    let most = most
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(FETCH_BYTES);
    let end = text.floor_char_boundary(most);
    let status = fetched
        .get("status")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let bytes = fetched
        .get("bytes")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let whole = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok(json!({
        "url": fetched.get("url"), "method": method, "status": status,
        "statusText": status_text(status), "headers": fetched.get("headers"),
        "body": text.get(..end).unwrap_or_default(), "truncated": end < text.len() || bytes > whole,
        "durationMs": millis_since(begun),
    }))
}

/// Reason phrase of a status code.
fn status_text(status: u64) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
