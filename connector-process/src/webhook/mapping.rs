//! From a request to an event. Pure: no clock, no sockets.
//!
//! **The input.** A body that is a JSON object is read as one, whatever its content type says, and
//! the input is the first of its fields `input`, `text` and `message` that holds a text. Any other
//! body, and an object without such a field, is the input as it stands. With `inputField` set, only
//! that field counts. A content type of JSON makes bad JSON an error.
//!
//! **The conversation** is `keyField` of the body, else the header `X-Goondan-Instance-Key`, else left
//! to the connection's ingress rules. **The event id** is `idField`, else `X-Goondan-Event-Id`, else
//! `Idempotency-Key`, else the orchestrator's choice. The body comes first because only the body is
//! signed.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::{EventId, InstanceKey};
use serde_json::{Value, json};

use super::settings::{FieldPath, Settings};
use crate::limits::{PROPERTIES_MAX, PROPERTY_BYTES_MAX};
use crate::listener::{Malformed, Received, shortened};

/// The name of every event a webhook makes.
pub(crate) const EVENT_NAME: &str = "request";

/// The header that names the conversation.
pub(crate) const KEY_HEADER: HeaderName = HeaderName::from_static("x-goondan-instance-key");

/// The headers that name the event, in the order they are asked.
pub(crate) const ID_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-goondan-event-id"),
    HeaderName::from_static("idempotency-key"),
];

/// The fields of a JSON object that may hold the input, in the order they are asked.
pub(crate) const INPUT_FIELDS: [&str; 3] = ["input", "text", "message"];

/// Makes the event of a request.
///
/// # Errors
///
/// [`Malformed`] if it has no usable input, key or id.
pub(crate) fn to_event(
    settings: &Settings,
    received: &Received<'_>,
) -> Result<ConnectorEvent, Malformed> {
    let text = std::str::from_utf8(received.body).map_err(Malformed::NotText)?;
    let json = json_body(content_type(received.headers), text)?;
    let input = input(settings.input_field.as_ref(), json.as_ref(), text)?;
    if input.trim().is_empty() {
        return Err(Malformed::EmptyInput);
    }
    let key = match named_by_field(settings.key_field.as_ref(), json.as_ref())? {
        Some(key) => Some(key),
        None => named_by_header(received.headers, &KEY_HEADER)?,
    };
    let mut id = named_by_field(settings.id_field.as_ref(), json.as_ref())?;
    for header in &ID_HEADERS {
        if id.is_none() {
            id = named_by_header(received.headers, header)?;
        }
    }
    Ok(ConnectorEvent {
        id: id.map(EventId::new).transpose().map_err(Malformed::BadId)?,
        name: EVENT_NAME.to_owned(),
        input: input.to_owned(),
        instance_key: key
            .map(InstanceKey::new)
            .transpose()
            .map_err(Malformed::BadKey)?,
        properties: properties(json.as_ref(), received),
        auth: None,
        metadata: metadata(received),
    })
}

fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
}

fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or("").trim();
    let media_type = media_type.to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

/// The body as JSON, if it says or shows that it is. What merely looks like JSON is a text.
fn json_body(content_type: &str, text: &str) -> Result<Option<Value>, Malformed> {
    if is_json(content_type) {
        serde_json::from_str(text)
            .map(Some)
            .map_err(Malformed::NotJson)
    } else if text.trim_start().starts_with('{') {
        Ok(serde_json::from_str(text).ok())
    } else {
        Ok(None)
    }
}

fn input<'a>(
    field: Option<&FieldPath>,
    json: Option<&'a Value>,
    text: &'a str,
) -> Result<&'a str, Malformed> {
    if let Some(field) = field {
        let value = json.and_then(|body| field.find(body));
        return value
            .and_then(Value::as_str)
            .ok_or_else(|| Malformed::NoInput {
                field: field.to_string(),
            });
    }
    let by_rule = json.and_then(|body| {
        let mut values = INPUT_FIELDS.iter().map(|field| body.get(field));
        values.find_map(|value| value?.as_str())
    });
    Ok(by_rule.unwrap_or(text))
}

/// The text or whole number in `field`; nothing if the field is missing.
fn named_by_field(
    field: Option<&FieldPath>,
    json: Option<&Value>,
) -> Result<Option<String>, Malformed> {
    let Some((field, body)) = field.zip(json) else {
        return Ok(None);
    };
    match field.find(body) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) if !number.is_f64() => Ok(Some(number.to_string())),
        Some(_) => Err(Malformed::NotAName {
            field: field.to_string(),
        }),
    }
}

fn named_by_header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Malformed> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) if values.next().is_none() => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => Err(Malformed::BadHeader {
            header: name.clone(),
        }),
    }
}

/// What ingress rules match on: the body's top-level texts, numbers and truth values, then the
/// request's own facts, which no body can pretend.
fn properties(json: Option<&Value>, received: &Received<'_>) -> JsonObject {
    let fields = json.and_then(Value::as_object).into_iter().flatten();
    let mut properties: JsonObject = fields
        .filter(|(name, value)| name.len() <= PROPERTY_BYTES_MAX && is_small_scalar(value))
        .take(PROPERTIES_MAX)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // What 0.0.3 called where a request came in, unless the body says so (`COMPAT-1`).
    let route = properties.entry("route");
    route.or_insert_with(|| json!(received.path));
    properties.insert("method".into(), json!(received.method));
    properties.insert("path".into(), json!(received.path));
    properties
}

fn is_small_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= PROPERTY_BYTES_MAX,
        Value::Number(_) | Value::Bool(_) => true,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn metadata(received: &Received<'_>) -> JsonObject {
    let mut metadata = JsonObject::new();
    metadata.insert("remoteAddress".into(), json!(received.remote.to_string()));
    let content_type = content_type(received.headers);
    if !content_type.is_empty() {
        metadata.insert("contentType".into(), json!(shortened(content_type)));
    }
    metadata
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Maps a request with `config`; headers are pairs of name and value.
    fn map(
        config: &Value,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<ConnectorEvent, Malformed> {
        let config = config.as_object().unwrap().clone();
        let settings = Settings::new(&config, &BTreeMap::new());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, axum::http::HeaderValue::from_bytes(value).unwrap());
        }
        let received = Received {
            method: "POST",
            path: "/hook",
            remote: "127.0.0.1:5".parse().unwrap(),
            headers: &map,
            body,
            now_s: 0,
        };
        to_event(&settings, &received)
    }

    fn input_of(content_type: &str, body: &str) -> String {
        let headers: [(&str, &[u8]); 1] = [("content-type", content_type.as_bytes())];
        map(&json!({}), &headers, body.as_bytes()).unwrap().input
    }

    #[test]
    fn the_input_is_the_named_text_or_the_whole_body() {
        for content_type in [
            "application/json",
            "text/plain",
            "application/x-www-form-urlencoded",
        ] {
            assert_eq!(input_of(content_type, r#"{"input":"hi"}"#), "hi");
            assert_eq!(input_of(content_type, r#" {"text":"t"}"#), "t");
            assert_eq!(input_of(content_type, r#"{"message":"m","text":"t"}"#), "t");
            assert_eq!(input_of(content_type, r#"{"input":1,"message":"m"}"#), "m");
            assert_eq!(input_of(content_type, r#"{"note":"n"}"#), r#"{"note":"n"}"#);
        }
        assert_eq!(input_of("text/plain", "안녕 {"), "안녕 {");
        assert_eq!(input_of("text/plain", "{not json"), "{not json");
        assert_eq!(
            input_of("application/cloudevents+json; charset=utf-8", "[1]"),
            "[1]"
        );
    }

    #[test]
    fn a_named_input_field_is_the_only_one() {
        let config = json!({"inputField": "/a/b"});
        let event = map(&config, &[], br#"{"a":{"b":"x"},"input":"y"}"#).unwrap();
        assert_eq!(event.input, "x");
        for body in [r#"{"input":"y"}"#, r#"{"a":{"b":1}}"#, "plain"] {
            let error = map(&config, &[], body.as_bytes()).unwrap_err();
            assert!(
                matches!(error, Malformed::NoInput { .. }),
                "{body}: {error}"
            );
        }
    }

    #[test]
    fn what_is_no_text_or_says_nothing_is_refused() {
        let json_type: [(&str, &[u8]); 1] = [("content-type", b"Application/JSON; charset=utf-8")];
        for (headers, body, code) in [
            (&[][..], &b"\xff\xfe"[..], "bad_encoding"),
            (&json_type, b"{\"input\":", "bad_json"),
            (&json_type, b"", "bad_json"),
            (&[], b"", "no_input"),
            (&[], b" \n\t", "no_input"),
            (&[], br#"{"input":""}"#, "no_input"),
        ] {
            let error = map(&json!({}), headers, body).unwrap_err();
            assert_eq!(error.code(), code, "{body:?}");
        }
    }

    #[test]
    fn key_and_id_come_from_the_body_before_the_headers() {
        let headers: [(&str, &[u8]); 3] = [
            ("X-Goondan-Instance-Key", "가나다".as_bytes()),
            ("Idempotency-Key", b"i-1"),
            ("X-Goondan-Event-Id", b"e-1"),
        ];
        let by_header = map(&json!({}), &headers, br#"{"input":"x","who":"k","n":7}"#).unwrap();
        assert_eq!(by_header.instance_key.unwrap().as_str(), "가나다");
        assert_eq!(by_header.id.unwrap().as_str(), "e-1");

        let config = json!({"keyField": "who", "idField": "n"});
        let by_body = map(&config, &headers, br#"{"input":"x","who":"../../x","n":7}"#).unwrap();
        assert_eq!(by_body.instance_key.unwrap().as_str(), "../../x");
        assert_eq!(by_body.id.unwrap().as_str(), "7");

        let missing = map(&config, &[headers[1]], b"plain").unwrap();
        assert_eq!(missing.instance_key, None);
        assert_eq!(missing.id.unwrap().as_str(), "i-1");
    }

    #[test]
    fn keys_and_ids_that_cannot_be_are_refused() {
        let long = "k".repeat(1025);
        let config = json!({"keyField": "key", "idField": "id"});
        for (headers, body, code) in [
            (
                &[("x-goondan-instance-key", &b""[..])][..],
                "x",
                "bad_instance_key",
            ),
            (
                &[("x-goondan-instance-key", long.as_bytes())],
                "x",
                "bad_instance_key",
            ),
            (&[("x-goondan-instance-key", b"\xff")], "x", "bad_header"),
            (
                &[("idempotency-key", b"a"), ("idempotency-key", b"b")],
                "x",
                "bad_header",
            ),
            (&[("idempotency-key", b"")], "x", "bad_event_id"),
            (&[], r#"{"input":"x","key":null}"#, "bad_field"),
            (&[], r#"{"input":"x","id":1.5}"#, "bad_field"),
            (&[], r#"{"input":"x","id":"a\nb"}"#, "bad_event_id"),
        ] {
            let error = map(&config, headers, body.as_bytes()).unwrap_err();
            assert_eq!(error.code(), code, "{headers:?} {body}");
        }
    }

    #[test]
    fn properties_are_small_scalars_and_cannot_pretend_the_path() {
        let long = "x".repeat(PROPERTY_BYTES_MAX + 1);
        let body = json!({
            "action": "opened", "n": 1, "draft": false, "nothing": null, "list": [1], "long": long,
            "path": "/admin", "method": "GET", "input": "hi",
        });
        let event = map(&json!({}), &[], body.to_string().as_bytes()).unwrap();
        let expected = json!({
            "action": "opened", "n": 1, "draft": false, "input": "hi",
            "path": "/hook", "route": "/hook", "method": "POST",
        });
        assert_eq!(Value::Object(event.properties), expected);
        assert_eq!(event.metadata["remoteAddress"], "127.0.0.1:5");

        let many: JsonObject = (0..200).map(|n| (format!("f{n}"), json!(n))).collect();
        let event = map(&json!({}), &[], json!(many).to_string().as_bytes()).unwrap();
        assert_eq!(event.properties.len(), PROPERTIES_MAX + 3);
    }
}
