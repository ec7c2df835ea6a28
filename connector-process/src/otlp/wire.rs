//! Spans in the JSON encoding of OTLP: names in camel case, ids as hexadecimal digits, 64-bit
//! numbers as strings.

use goondan_protocol::version::GOONDAN_VERSION;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtlpSpanKind {
    Internal,
    /// A request to another service.
    Client,
}

impl OtlpSpanKind {
    fn number(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Client => 3,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) enum Attribute {
    #[serde(rename = "stringValue")]
    Text(String),
    /// A whole number, as a string.
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "arrayValue")]
    All(Values),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Values {
    values: Vec<Attribute>,
}

impl Attribute {
    /// A list of strings.
    pub(super) fn texts(texts: &[&str]) -> Self {
        let values = texts.iter().map(|text| Self::from(*text)).collect();
        Self::All(Values { values })
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        // OTLP integers are signed.
        Self::Number(number.min(i64::MAX as u64).to_string())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: Option<String>,
    pub(super) name: String,
    pub(super) kind: OtlpSpanKind,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) failed: bool,
}

pub(super) fn attributes(pairs: &[(&'static str, Attribute)]) -> Value {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect()
}

fn nanoseconds(ms: u64) -> String {
    (u128::from(ms) * 1_000_000).to_string()
}

impl Span {
    fn to_json(&self) -> Value {
        let mut span = json!({
            "traceId": self.trace_id,
            "spanId": self.span_id,
            "name": self.name,
            "kind": self.kind.number(),
            "startTimeUnixNano": nanoseconds(self.start_ms),
            "endTimeUnixNano": nanoseconds(self.end_ms),
            "attributes": attributes(&self.attributes),
            "status": if self.failed { json!({ "code": 2 }) } else { json!({}) },
        });
        if let (Some(parent), Some(fields)) = (&self.parent_span_id, span.as_object_mut()) {
            fields.insert("parentSpanId".to_owned(), json!(parent));
        }
        span
    }
}

/// The body of a request with these spans.
pub(super) fn request(service: &str, spans: &[Span]) -> String {
    let resource = [
        ("service.name", Attribute::from(service)),
        ("service.version", Attribute::from(GOONDAN_VERSION)),
    ];
    let spans: Vec<Value> = spans.iter().map(Span::to_json).collect();
    let body = json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeSpans": [{
                "scope": { "name": "goondan", "version": GOONDAN_VERSION },
                "spans": spans,
            }],
        }],
    });
    body.to_string()
}
