//! CloudEvents 1.0 over HTTP: attributes in `ce-` headers (binary mode), or around the data in a
//! JSON envelope (structured mode).

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::ids::EventId;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::limits::{PROPERTIES_MAX, PROPERTY_BYTES_MAX};

/// Prefix of the headers in binary mode.
const PREFIX: &str = "ce-";

/// Members of an envelope that are not attributes.
const DATA: [&str; 2] = ["data", "data_base64"];

/// The attributes of an event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CloudEvent {
    attributes: JsonObject,
}

/// The data of an event in structured mode.
#[derive(Debug, PartialEq)]
pub(super) enum Data {
    None,
    Json(Value),
    Bytes(Vec<u8>),
}

impl CloudEvent {
    /// The event in the headers, if they contain one.
    pub(super) fn in_headers(headers: &HeaderMap) -> Option<Self> {
        let mut attributes = JsonObject::new();
        for (name, value) in headers {
            if let Some(name) = name.as_str().strip_prefix(PREFIX)
                && let Ok(value) = std::str::from_utf8(value.as_bytes())
            {
                attributes.insert(name.to_owned(), Value::String(percent_decoded(value)));
            }
        }
        Self::new(attributes)
    }

    /// The event in an envelope, and its data; `None` if it is another document.
    pub(super) fn in_envelope(envelope: &Value) -> Option<(Self, Data)> {
        let envelope = envelope.as_object()?;
        envelope.get("specversion")?.as_str()?;
        let data = match (envelope.get("data"), envelope.get("data_base64")) {
            (_, Some(Value::String(digits))) => Data::Bytes(STANDARD.decode(digits).ok()?),
            (Some(data), _) if !data.is_null() => Data::Json(data.clone()),
            _ => Data::None,
        };
        let members = envelope.iter();
        let attributes = members
            .filter(|(name, _)| !DATA.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Some((Self::new(attributes)?, data))
    }

    fn new(attributes: JsonObject) -> Option<Self> {
        let is_short = |value: &Value| match value {
            Value::String(text) => text.len() <= PROPERTY_BYTES_MAX,
            Value::Number(_) | Value::Bool(_) => true,
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        let attributes: JsonObject = attributes
            .into_iter()
            .filter(|(name, value)| name.len() <= PROPERTY_BYTES_MAX && is_short(value))
            .take(PROPERTIES_MAX)
            .collect();
        attributes.contains_key("id").then_some(Self { attributes })
    }

    /// A text attribute.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).and_then(Value::as_str)
    }

    /// All attributes.
    pub(crate) fn attributes(&self) -> &JsonObject {
        &self.attributes
    }

    /// The event id: unique together with the source, as the specification demands.
    pub(crate) fn event_id(&self) -> Option<String> {
        let id = self.text("id")?;
        let Some(source) = self.text("source") else {
            return Some(id.to_owned());
        };
        let joined = format!("{source}#{id}");
        if EventId::new(&joined).is_ok() {
            return Some(joined);
        }
        let digest = Sha256::digest(format!("{source}\n{id}"));
        Some(format!("ce:{}", hex::encode(digest)))
    }
}

/// The text of a header value: `%XX` is one byte of UTF-8. Invalid escapes remain.
fn percent_decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.split_at_checked(2);
        let decoded = digits.and_then(|(digits, behind)| Some((hex::decode(digits).ok()?, behind)));
        match decoded {
            Some((byte, behind)) => {
                bytes.extend(byte);
                rest = behind;
            }
            None => {
                bytes.push(b'%');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).unwrap_or_else(|_not_text| value.to_owned())
}
