//! `http-fetch`: requests through a connection.

use goondan_clock::Instant;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::FetchResult;
use serde_json::{Map, Value, json};

use super::javascript::{self, primitive_text};
use super::services::{DEADLINE_MS, RoutedCall, of, properties};
use super::{invalid, millis_since};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// Default time limit of a request, in milliseconds.
const FETCH_TIMEOUT_MS: i64 = 30_000;
/// Longest time limit of a request, in milliseconds.
const FETCH_TIMEOUT_MAX_MS: i64 = 120_000;
/// Default limit of the returned body.
const FETCH_BYTES: f64 = 500_000.0;
/// Content type of an object.
const JSON: &str = "application/json";
/// Content type of a text, as `fetch` of JavaScript sets it.
const TEXT: &str = "text/plain;charset=UTF-8";

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
    let given = site.args.get("headers").and_then(Value::as_object);
    // Values of other types are left out.
    let headers = given.into_iter().flatten();
    let mut headers: Vec<(String, String)> = headers
        .filter_map(|(name, value)| Some((name.clone(), primitive_text(value)?)))
        .collect();
    let body = match (method, site.args.get("body")) {
        ("POST", Some(body @ Value::Object(_))) => {
            let body = javascript::with_numbers(body.clone());
            add_json_type(&mut headers);
            Some(body.to_string())
        }
        ("POST", _) => site.text("bodyString"),
        _ => None,
    };
    let mut headers = joined(headers);
    if body.is_some() && !headers.contains_key("content-type") {
        headers.insert("content-type".to_owned(), json!(TEXT));
    }
    let number = |name: &str| site.args.get(name).and_then(Value::as_f64);
    let timeout_ms = number("timeoutMs").map_or(FETCH_TIMEOUT_MS, javascript::integer);
    let timeout_ms = u64::try_from(timeout_ms.clamp(1, FETCH_TIMEOUT_MAX_MS)).unwrap_or(1);
    let most = number("maxBytes").unwrap_or(FETCH_BYTES);
    let kept_bytes = u64::try_from(javascript::integer(most)).ok();
    let begun = Instant::now();
    let params = json!({
        "method": method, "url": url, "headers": headers, "whole": true, "timeoutMs": timeout_ms,
        "body": body, "keptBytes": kept_bytes,
    });
    let deadline_ms = timeout_ms.saturating_add(DEADLINE_MS / 2);
    let fetched = site
        .ask_within("fetch", params, method == "GET", deadline_ms)
        .await?;
    let unreadable = |error: serde_json::Error| {
        ToolFault::new(
            "E_TOOL_FAILED",
            format!("failed to read the answer: {error}"),
        )
    };
    let fetched: FetchResult = serde_json::from_value(fetched).map_err(unreadable)?;
    let (text, is_cut) = shortened(&fetched, most)?;
    let fields = json!({
        "url": fetched.requested_url, "method": method, "status": fetched.status,
        "statusText": fetched.status_text, "headers": fetched.headers, "body": text,
        "truncated": is_cut || fetched.is_cut, "durationMs": millis_since(begun),
    });
    Ok(fields)
}

/// Sets the type of a JSON body, unless one of the usual spellings of the header has a value.
fn add_json_type(headers: &mut Vec<(String, String)>) {
    let is_set = |(name, value): &(String, String)| {
        ["content-type", "Content-Type"].contains(&name.as_str()) && !value.is_empty()
    };
    if headers.iter().any(is_set) {
        return;
    }
    match headers.iter_mut().find(|(name, _)| name == "content-type") {
        Some((_, value)) => JSON.clone_into(value),
        None => headers.push(("content-type".to_owned(), JSON.to_owned())),
    }
}

/// Headers by their names in lower case. As in `fetch`, values of one name are joined.
fn joined(headers: Vec<(String, String)>) -> Map<String, Value> {
    let mut joined: Map<String, Value> = Map::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let known = joined.get(&name).and_then(Value::as_str);
        let value = known.map_or_else(|| value.clone(), |known| format!("{known}, {value}"));
        joined.insert(name, json!(value));
    }
    joined
}

/// The body up to `maxBytes`, and true if it is cut: bytes if the server sent the length, which the
/// connection has cut, else UTF-16 code units. Half of a character becomes a replacement character.
fn shortened(fetched: &FetchResult, most: f64) -> Result<(String, bool), ToolFault> {
    let told_len = fetched.headers.get("content-length");
    let told_len = told_len.and_then(|len| len.trim().parse::<u32>().ok());
    if told_len.is_some_and(|len| f64::from(len) > most) {
        if most < 0.0 {
            return Err(invalid("`maxBytes` must not be negative"));
        }
        return Ok((fetched.text.clone(), true));
    }
    let units = javascript::units(&fetched.text);
    let len = u32::try_from(units.len()).unwrap_or(u32::MAX);
    if f64::from(len) > most {
        let shown = javascript::slice(&units, 0.0, Some(most));
        return Ok((String::from_utf16_lossy(shown), true));
    }
    Ok((fetched.text.clone(), false))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn compat_2_bodies_are_cut_by_bytes_or_code_units() {
        let fetched = |text: &str, len: Option<usize>| FetchResult {
            status: 200,
            url: "http://a.org/".to_owned(),
            headers: len
                .map(|len| ("content-length".to_owned(), len.to_string()))
                .into_iter()
                .collect::<BTreeMap<String, String>>(),
            requested_url: None,
            status_text: None,
            is_cut: false,
            text: text.to_owned(),
            bytes: 0,
            note: None,
        };
        for (text, len, most, expected) in [
            ("héllo", Some(6), 6.0, ("héllo", false)),
            // The connection has cut it.
            ("hé", Some(6), 3.0, ("hé", true)),
            ("h\u{fffd}", Some(6), 2.0, ("h\u{fffd}", true)),
            // The decoded body is longer than its `content-length`.
            ("héllo", Some(2), 3.0, ("hél", true)),
            ("héllo", None, 2.0, ("hé", true)),
            ("a😀b", None, 3.0, ("a😀", true)),
            ("a😀b", None, 4.0, ("a😀b", false)),
            ("abc", None, 0.0, ("", true)),
            ("", Some(3), 0.0, ("", true)),
        ] {
            let (shown, is_cut) = shortened(&fetched(text, len), most).unwrap();
            assert_eq!((shown.as_str(), is_cut), expected, "{text} {most}");
        }
        assert!(shortened(&fetched("abc", Some(3)), -1.0).is_err());
    }

    #[test]
    fn compat_2_headers_of_a_call_are_joined_and_typed() {
        let of = |given: &[(&str, &str)], is_json: bool| {
            let given = given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut headers: Vec<(String, String)> = given.collect();
            if is_json {
                add_json_type(&mut headers);
            }
            Value::Object(joined(headers))
        };
        for (given, is_json, expected) in [
            (&[][..], false, json!({})),
            (&[], true, json!({"content-type": JSON})),
            (&[("x-a", "1"), ("X-A", "2")], false, json!({"x-a": "1, 2"})),
            (
                &[("content-type", "a/b")],
                true,
                json!({"content-type": "a/b"}),
            ),
            (
                &[("Content-Type", "a/b")],
                true,
                json!({"content-type": "a/b"}),
            ),
            (&[("content-type", "")], true, json!({"content-type": JSON})),
            (
                &[("CONTENT-TYPE", "a/b")],
                true,
                json!({"content-type": "a/b, application/json"}),
            ),
        ] {
            assert_eq!(of(given, is_json), expected, "{given:?}");
        }
    }
}
