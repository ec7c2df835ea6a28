//! Reading what services send: JSON of which only a few fields matter.

use axum::http::{HeaderMap, HeaderName};
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::ids::{EventId, InstanceKey};
use serde_json::Value;

use crate::limits::PROPERTY_BYTES_MAX;
use crate::listener::Malformed;

/// A body that is JSON.
///
/// # Errors
///
/// [`Malformed`] if it is none.
pub(crate) fn json(body: &[u8]) -> Result<Value, Malformed> {
    let text = std::str::from_utf8(body).map_err(Malformed::NotText)?;
    serde_json::from_str(text).map_err(Malformed::NotJson)
}

/// A header that every request has.
///
/// # Errors
///
/// [`Malformed`] if it is missing or is no text.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h str, Malformed> {
    let value = headers.get(name).ok_or_else(|| Malformed::NoHeader {
        header: name.clone(),
    })?;
    value.to_str().map_err(|_not_text| Malformed::BadHeader {
        header: name.clone(),
    })
}

/// The text at a JSON Pointer.
pub(crate) fn text<'v>(body: &'v Value, pointer: &str) -> Option<&'v str> {
    body.pointer(pointer).and_then(Value::as_str)
}

/// The text at a JSON Pointer that every request has.
///
/// # Errors
///
/// [`Malformed`] if it is missing, or no text.
pub(crate) fn required<'v>(body: &'v Value, pointer: &'static str) -> Result<&'v str, Malformed> {
    text(body, pointer).ok_or(Malformed::NoField { field: pointer })
}

/// An id for an event.
///
/// # Errors
///
/// [`Malformed`] if it cannot be one.
pub(crate) fn event_id(text: &str) -> Result<EventId, Malformed> {
    EventId::new(text).map_err(Malformed::BadId)
}

/// A key for a conversation.
///
/// # Errors
///
/// [`Malformed`] if it cannot be one.
pub(crate) fn instance_key(text: &str) -> Result<InstanceKey, Malformed> {
    InstanceKey::new(text).map_err(Malformed::BadKey)
}

/// Facts for ingress rules: those that are there and are short.
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

/// Whether a place is one of those that are listened to.
pub(crate) fn is_allowed(allowed: Option<&[String]>, place: &str) -> bool {
    allowed.is_none_or(|allowed| allowed.iter().any(|name| name == place))
}

/// The only places that agents may write to: those that are listened to, and further ones. None if all
/// are listened to.
pub(crate) fn written_to(values: &Values<'_>, listened_to: &str) -> Option<Vec<String>> {
    let mut places = values.names(listened_to)?;
    places.extend(values.names("sendTo").unwrap_or_default());
    Some(places)
}
