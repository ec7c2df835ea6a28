//! Parses payloads of services: JSON with only a few relevant fields.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName};
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::ids::{EventId, InstanceKey};
use serde_json::Value;

use crate::limits::PROPERTY_BYTES_MAX;
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

/// Parses a JSON body, or a form with JSON in its field `payload`.
///
/// # Errors
///
/// [`MalformedRequest`] if it is neither.
pub(crate) fn json_or_form(headers: &HeaderMap, body: &[u8]) -> Result<Value, MalformedRequest> {
    if !is_form(headers) {
        return json(body);
    }
    let form = form(body)?;
    let payload = text(&form, "/payload").ok_or(MalformedRequest::NoField { field: "payload" })?;
    serde_json::from_str(payload).map_err(MalformedRequest::NotJson)
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
