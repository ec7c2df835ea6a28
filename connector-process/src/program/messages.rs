//! Messages between a connector program and goondan, one JSON object per line. Pure.

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode};
use goondan_protocol::lone_surrogates;
use goondan_protocol::trace::TraceContext;
use serde::Deserialize;
use serde_json::{Value, json};

/// The protocol version, sent in the first line.
pub(super) const PROTOCOL: u32 = 1;

#[derive(Debug, PartialEq)]
pub(super) enum ProgramMessage {
    Event(Box<ConnectorEvent>, EventId, Option<TraceContext>),
    /// An invalid event; this is the answer.
    NoEvent(String),
    Status {
        ready: bool,
        detail: String,
    },
}

/// An event as encoded by a program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProgramEvent {
    #[serde(rename = "type")]
    _type: String,
    id: EventId,
    #[serde(default = "usual_name")]
    name: String,
    input: String,
    #[serde(default)]
    instance_key: Option<InstanceKey>,
    #[serde(default)]
    properties: JsonObject,
    #[serde(default)]
    auth: Option<JsonObject>,
    #[serde(default)]
    metadata: JsonObject,
    #[serde(default)]
    traceparent: Option<String>,
}

fn usual_name() -> String {
    "message".to_owned()
}

/// A status as encoded by a program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProgramStatus {
    #[serde(rename = "type")]
    _type: String,
    ready: bool,
    #[serde(default)]
    detail: String,
}

/// Parses a line.
///
/// # Errors
///
/// The reason why it is invalid, without its contents.
pub(super) fn read(line: &[u8]) -> Result<ProgramMessage, String> {
    let value: Value = lone_surrogates::from_json(line)
        .map_err(|error| format!("wrote a line to stdout that is not JSON ({error})"))?;
    match value.get("type").and_then(Value::as_str) {
        Some("event") => Ok(event(value)?),
        Some("status") => {
            let status: ProgramStatus = serde_json::from_value(value)
                .map_err(|error| format!("wrote an invalid `status` ({error})"))?;
            Ok(ProgramMessage::Status {
                ready: status.ready,
                detail: status.detail,
            })
        }
        Some(_) => Err("wrote a line whose `type` is neither `event` nor `status`".to_owned()),
        None => Err("wrote a line without a `type`".to_owned()),
    }
}

fn event(value: Value) -> Result<ProgramMessage, String> {
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    let refused = |id: Option<String>, reason: String| match id {
        Some(id) => Ok(ProgramMessage::NoEvent(invalid(&id, &reason))),
        // Without an id, no answer is possible.
        None => Err(format!("wrote an `event` without a usable `id` ({reason})")),
    };
    let event: ProgramEvent = match serde_json::from_value(value) {
        Ok(event) => event,
        Err(error) => return refused(id, error.to_string()),
    };
    let trace = match event
        .traceparent
        .as_deref()
        .map(TraceContext::from_traceparent)
    {
        None => None,
        Some(Ok(trace)) => Some(trace),
        Some(Err(error)) => return refused(id, format!("`traceparent`: {error}")),
    };
    let made = ConnectorEvent {
        id: Some(event.id.clone()),
        name: event.name,
        input: event.input,
        instance_key: event.instance_key,
        properties: event.properties,
        auth: event.auth,
        metadata: event.metadata,
    };
    Ok(ProgramMessage::Event(Box::new(made), event.id, trace))
}

/// The answer to a durable event.
pub(super) fn accepted(id: &EventId, accepted: &EventAccepted) -> String {
    let duplicate = accepted.duplicate;
    format!(
        "{}\n",
        json!({"type": "accepted", "id": id, "duplicate": duplicate})
    )
}

/// The answer to an event that the orchestrator refuses.
pub(super) fn refused(id: &EventId, refused: &EventRefused) -> String {
    let EventRefused { code, message, .. } = refused;
    let retry = match code {
        RefusalCode::Overloaded | RefusalCode::Unavailable => true,
        RefusalCode::Invalid | RefusalCode::Unroutable | RefusalCode::Damaged => false,
    };
    let answer =
        json!({"type": "refused", "id": id, "code": code, "message": message, "retry": retry});
    format!("{answer}\n")
}

fn invalid(id: &str, message: &str) -> String {
    let answer =
        json!({"type": "refused", "id": id, "code": "invalid", "message": message, "retry": false});
    format!("{answer}\n")
}

/// The last line sent to a program.
pub(super) fn shutdown() -> String {
    format!("{}\n", json!({"type": "shutdown"}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_half_of_a_character_loses_no_event() {
        let line = br#"{"type":"status","ready":true,"detail":"cut \ud83e"}"#;
        let expected = ProgramMessage::Status {
            ready: true,
            detail: "cut \u{fffd}".to_owned(),
        };
        assert_eq!(read(line), Ok(expected));
    }

    #[test]
    fn an_event_is_read_with_all_it_may_have() {
        let line = json!({"type": "event", "id": "m1", "name": "mail", "input": "hi",
            "instanceKey": "mail:ann", "properties": {"folder": "inbox"}, "auth": {"user": "ann"},
            "metadata": {"n": 1},
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
        let ProgramMessage::Event(event, id, trace) = read(line.to_string().as_bytes()).unwrap()
        else {
            panic!("no event");
        };
        assert_eq!(id.as_str(), "m1");
        assert_eq!(event.id, Some(id));
        assert_eq!(event.name, "mail");
        assert_eq!(event.instance_key.unwrap().as_str(), "mail:ann");
        assert!(trace.is_some());
        let least = read(br#"{"type":"event","id":"a","input":"b"}"#).unwrap();
        assert!(matches!(least, ProgramMessage::Event(event, ..) if event.name == "message"));
    }

    #[test]
    fn an_event_that_cannot_be_is_refused_by_its_id() {
        for line in [
            r#"{"type":"event","id":"a"}"#,
            r#"{"type":"event","id":"a","input":"b","inptu":1}"#,
            r#"{"type":"event","id":"a","input":"b","instanceKey":""}"#,
            r#"{"type":"event","id":"a","input":"b","traceparent":"x"}"#,
        ] {
            let ProgramMessage::NoEvent(answer) = read(line.as_bytes()).unwrap() else {
                panic!("{line}");
            };
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(
                (&answer["id"], &answer["code"]),
                (&json!("a"), &json!("invalid"))
            );
            assert_eq!(answer["retry"], false);
        }
    }

    #[test]
    fn invalid_program_line_is_explained_without_its_content() {
        for (line, said) in [
            ("hello", "not JSON"),
            ("[1]", "without a `type`"),
            (r#"{"type":"evnt"}"#, "neither `event` nor `status`"),
            (
                r#"{"type":"event","input":"hunter2"}"#,
                "without a usable `id`",
            ),
            (r#"{"type":"status"}"#, "missing field `ready`"),
        ] {
            let error = read(line.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn answers_are_lines() {
        let id = EventId::new("a").unwrap();
        let yes = EventAccepted {
            event_id: id.clone(),
            duplicate: true,
            instance_key: None,
        };
        assert_eq!(
            accepted(&id, &yes),
            "{\"type\":\"accepted\",\"id\":\"a\",\"duplicate\":true}\n"
        );
        let no = EventRefused::new(RefusalCode::Overloaded, "m");
        assert_eq!(
            refused(&id, &no),
            "{\"type\":\"refused\",\"id\":\"a\",\"code\":\"overloaded\",\"message\":\"m\",\"retry\":true}\n"
        );
    }
}
