//! Parses payloads of services: JSON with only a few relevant fields. `bounded`: large bodies.

mod bounded_json;

use std::borrow::Cow;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName};
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::event::{PAYLOAD, PAYLOAD_BYTES};
use goondan_protocol::ids::{EventId, InstanceKey};
use serde_json::Value;

use self::bounded_json::{JsonBounds, shrunk};
use crate::limits::{PAYLOAD_BYTES_MAX, PROPERTY_BYTES_MAX, QUOTE_CHARS_MAX};
use crate::listener::MalformedRequest;

/// Parses a JSON body.
///
/// # Errors
///
/// [`MalformedRequest`] if it is not JSON.
pub(crate) fn json(body: &[u8]) -> Result<Value, MalformedRequest> {
    let text = std::str::from_utf8(body).map_err(MalformedRequest::NotText)?;
    serde_json::from_str(text).map_err(MalformedRequest::NotJson)
}

/// True if the content type is a form.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &str = "application/x-www-form-urlencoded";
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM))
}

/// Parses a form body to an object; of duplicate fields, the last one counts.
///
/// # Errors
///
/// [`MalformedRequest`] if it is not text.
pub(crate) fn form(body: &[u8]) -> Result<Value, MalformedRequest> {
    let text = std::str::from_utf8(body).map_err(MalformedRequest::NotText)?;
    let fields = form_pairs(text).into_iter();
    let fields = fields.map(|(name, value)| (name, Value::String(value)));
    Ok(Value::Object(fields.collect()))
}

/// The fields of a form or a query, in order.
pub(crate) fn form_pairs(text: &str) -> Vec<(String, String)> {
    let Ok(mut url) = reqwest::Url::parse("http://form") else {
        return Vec::new();
    };
    url.set_query(Some(text));
    let fields = url.query_pairs();
    fields
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

/// Parses a large JSON body, or a form with JSON in its field `payload`, into bounded memory.
///
/// # Errors
///
/// [`MalformedRequest`] if it is neither.
pub(crate) fn json_or_form(headers: &HeaderMap, body: &[u8]) -> Result<Value, MalformedRequest> {
    let payload = if is_form(headers) {
        let payload = form_field(body, b"payload");
        Cow::Owned(payload.ok_or(MalformedRequest::NoField { field: "payload" })?)
    } else {
        Cow::Borrowed(body)
    };
    std::str::from_utf8(&payload).map_err(MalformedRequest::NotText)?;
    bounded_json::parse(&payload).map_err(MalformedRequest::NotJson)
}

/// The last field of a form with this name, decoded in one pass.
fn form_field(body: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let fields = body.rsplit(|byte| *byte == b'&');
    let mut values = fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix(b"="));
    let mut rest = values.next()?.iter();
    let mut decoded = Vec::new();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [*rest.next()?, *rest.next()?];
                let [value]: [u8; 1] = hex::decode(digits).ok()?.try_into().ok()?;
                value
            }
            other => *other,
        });
    }
    Some(decoded)
}

/// The items of the list at a JSON Pointer that are not omitted.
pub(crate) fn items<'v>(body: &'v Value, pointer: &str) -> std::slice::Iter<'v, Value> {
    list(body, pointer).0.iter()
}

/// The number of items that [`json_or_form`] omitted from the list at a JSON Pointer.
pub(crate) fn omitted(body: &Value, pointer: &str) -> usize {
    list(body, pointer).1
}

fn list<'v>(body: &'v Value, pointer: &str) -> (&'v [Value], usize) {
    let list = body.pointer(pointer).and_then(Value::as_array);
    bounded_json::without_mark(list.map_or(&[], Vec::as_slice))
}

/// A required header.
///
/// # Errors
///
/// [`MalformedRequest`] if it is missing or not text.
pub(crate) fn header<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<&'h str, MalformedRequest> {
    let value = headers
        .get(name)
        .ok_or_else(|| MalformedRequest::NoHeader {
            header: name.clone(),
        })?;
    value
        .to_str()
        .map_err(|_not_text| MalformedRequest::BadHeader {
            header: name.clone(),
        })
}

/// A text without line breaks and repeated spaces.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// The start of a text, in quotation marks.
pub(crate) fn shortened(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("\"{}…\"", line.get(..end).unwrap_or_default()),
        None => format!("\"{line}\""),
    }
}

/// The string at a JSON Pointer.
pub(crate) fn text<'v>(body: &'v Value, pointer: &str) -> Option<&'v str> {
    body.pointer(pointer).and_then(Value::as_str)
}

/// The required string at a JSON Pointer.
///
/// # Errors
///
/// [`MalformedRequest`] if it is missing or not a string.
pub(crate) fn required<'v>(
    body: &'v Value,
    pointer: &'static str,
) -> Result<&'v str, MalformedRequest> {
    text(body, pointer).ok_or(MalformedRequest::NoField { field: pointer })
}

/// Parses an event id.
///
/// # Errors
///
/// [`MalformedRequest`] if it is invalid.
pub(crate) fn event_id(text: &str) -> Result<EventId, MalformedRequest> {
    EventId::new(text).map_err(MalformedRequest::BadId)
}

/// Parses an instance key.
///
/// # Errors
///
/// [`MalformedRequest`] if it is invalid.
pub(crate) fn instance_key(text: &str) -> Result<InstanceKey, MalformedRequest> {
    InstanceKey::new(text).map_err(MalformedRequest::BadKey)
}

/// Properties for ingress rules: those that exist and are short.
pub(crate) fn properties<const N: usize>(facts: [(&str, Option<&Value>); N]) -> JsonObject {
    facts
        .into_iter()
        .filter_map(|(name, value)| {
            let value = match value? {
                Value::String(text) if text.len() > PROPERTY_BYTES_MAX => return None,
                scalar @ (Value::String(_) | Value::Number(_) | Value::Bool(_)) => scalar,
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((name.to_owned(), value.clone()))
        })
        .collect()
}

/// Properties together with some under their names of 0.0.3.
pub(crate) fn with_older<const N: usize>(
    mut facts: JsonObject,
    older: [(&str, Option<&Value>); N],
) -> JsonObject {
    facts.extend(older_properties(older));
    facts
}

/// Properties under their names of 0.0.3, as strings like then (`COMPAT-1`).
pub(crate) fn older_properties<const N: usize>(facts: [(&str, Option<&Value>); N]) -> JsonObject {
    let found = properties(facts).into_iter();
    let texts = found.map(|(name, value)| match value {
        Value::String(text) => (name, Value::String(text)),
        other => (name, Value::String(other.to_string())),
    });
    texts.collect()
}

/// True if the connector listens to a place.
pub(crate) fn is_allowed(allowed: Option<&[String]>, place: &str) -> bool {
    allowed.is_none_or(|allowed| allowed.iter().any(|name| name == place))
}

/// The only places that agents may write to: those listened to, and additional ones. `None` if the
/// connector listens to all places.
pub(crate) fn written_to(values: &Values<'_>, listened_to: &str) -> Option<Vec<String>> {
    let mut places = values.names(listened_to)?;
    places.extend(values.names("sendTo").unwrap_or_default());
    Some(places)
}

/// Fields of services' payloads with credentials, which permit an action or answer in another's
/// name.
const CREDENTIAL_FIELDS: [&str; 12] = [
    "access_token",
    "authorization",
    "client_secret",
    "password",
    "private_key",
    "refresh_token",
    "response_url",
    "response_urls",
    "secret",
    "token",
    "trigger_id",
    "webhook_secret",
];

/// Replacement of a credential, as in the daemon's masked texts.
const MASKED: &str = "[masked]";

/// Bounds that shorten a payload more and more.
const PAYLOAD_BOUNDS: [JsonBounds; 5] = [
    JsonBounds {
        text_bytes: 16 * 1024,
        items: 250,
    },
    JsonBounds {
        text_bytes: 4 * 1024,
        items: 100,
    },
    JsonBounds {
        text_bytes: 1_024,
        items: 30,
    },
    JsonBounds {
        text_bytes: 256,
        items: 10,
    },
    JsonBounds {
        text_bytes: 64,
        items: 3,
    },
];

/// Adds what the service sent to an event's metadata: without credentials, and shortened to
/// [`PAYLOAD_BYTES_MAX`].
pub(crate) fn add_payload(metadata: &mut JsonObject, payload: &Value) {
    let masked = without_credentials(payload);
    let bytes = masked.to_string().len();
    if bytes <= PAYLOAD_BYTES_MAX {
        metadata.insert(PAYLOAD.to_owned(), masked);
        return;
    }
    metadata.insert(PAYLOAD_BYTES.to_owned(), Value::from(bytes));
    let shortened = PAYLOAD_BOUNDS.iter().map(|bounds| shrunk(&masked, *bounds));
    let mut fitting = shortened.filter(|it| it.to_string().len() <= PAYLOAD_BYTES_MAX);
    if let Some(fitting) = fitting.next() {
        metadata.insert(PAYLOAD.to_owned(), fitting);
    }
}

fn without_credentials(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let is_credential = CREDENTIAL_FIELDS.contains(&name.to_ascii_lowercase().as_str());
                let value = match value {
                    Value::String(_) | Value::Array(_) if is_credential => MASKED.into(),
                    other => without_credentials(other),
                };
                (name.clone(), value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.iter().map(without_credentials).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            plain.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(payload: &Value) -> JsonObject {
        let mut metadata = JsonObject::new();
        add_payload(&mut metadata, payload);
        metadata
    }

    #[test]
    fn conn_1_payload_is_stored_without_credentials() {
        let payload = json!({"token": "t", "user": {"id": "U1", "Token": ["x"]}, "secret": {"id": 1},
            "response_url": "https://hooks.example/1", "items": [{"trigger_id": "7"}]});
        let kept = json!({"token": "[masked]", "user": {"id": "U1", "Token": "[masked]"},
            "secret": {"id": 1}, "response_url": "[masked]", "items": [{"trigger_id": "[masked]"}]});
        let metadata = added(&payload);
        assert_eq!(metadata[PAYLOAD], kept);
        assert_eq!(metadata.get(PAYLOAD_BYTES), None);
    }

    #[test]
    fn conn_1_large_payload_keeps_its_shape_and_names_the_rest() {
        let commits: Vec<Value> = (0..5_000)
            .map(|n| json!({"id": n, "message": "가".repeat(200)}))
            .collect();
        let payload = json!({"ref": "main", "log": "x".repeat(1_000_000), "commits": commits});
        let metadata = added(&payload);
        let kept = &metadata[PAYLOAD];
        assert!(kept.to_string().len() <= PAYLOAD_BYTES_MAX);
        assert_eq!(metadata[PAYLOAD_BYTES], payload.to_string().len());
        assert_eq!(kept["ref"], "main");
        assert_eq!(kept["commits"][2]["id"], 2);
        let log = kept["log"].as_str().unwrap();
        assert!(log.ends_with('…'), "{}", log.len());
        let commits = kept["commits"].as_array().unwrap();
        let (last, others) = commits.split_last().unwrap();
        assert_eq!(last["omitted"], 5_000 - others.len());
    }

    #[test]
    fn conn_1_payload_that_cannot_be_shortened_leaves_its_size() {
        let mut payload = json!("x".repeat(60));
        for _ in 0..9 {
            payload = json!([payload, payload, payload, payload]);
        }
        let metadata = added(&payload);
        assert_eq!(metadata.get(PAYLOAD), None);
        assert!(metadata[PAYLOAD_BYTES].is_u64());
    }

    #[test]
    fn conn_1_form_payload_is_decoded_like_a_json_body() {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            "application/x-www-form-urlencoded; charset=utf-8"
                .parse()
                .unwrap(),
        );
        let form = b"x=1&payload=%7B%22a%22%3A+%22b%26c%22%7D&payloads=2";
        assert_eq!(json_or_form(&headers, form).unwrap(), json!({"a": "b&c"}));
        for wrong in [
            &b"a=1"[..],
            b"payload=%7",
            b"payload=%zz",
            b"payload=%ff",
            b"payload=",
        ] {
            assert!(json_or_form(&headers, wrong).is_err(), "{wrong:?}");
        }
    }
}
