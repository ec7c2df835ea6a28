//! Formats an agent's reply for the sender of the event. Pure.

use axum::http::StatusCode;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::EventId;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::{TraceContext, TraceId};
use serde_json::{Value, json};

use super::answer::DirectResponse;

/// Code of an answer whose agent failed.
pub(super) const FAILED: &str = "failed";

/// Answer to a sender that waited.
pub(super) fn answer(
    accepted: &EventAccepted,
    outcome: &TurnOutcome,
    trace: TraceContext,
) -> DirectResponse {
    let mut body = reply_body(&accepted.event_id, trace.trace_id, Some(outcome));
    let mut add = |name: &str, value: Value| {
        if let Some(body) = body.as_object_mut() {
            body.insert(name.to_owned(), value);
        }
    };
    add("duplicate", json!(accepted.duplicate));
    let status = match outcome {
        TurnOutcome::Completed { .. } => StatusCode::OK,
        TurnOutcome::Failed { .. } => {
            let message =
                "the agent could not answer; operators can find the reason by the event id";
            add("error", json!({"code": FAILED, "message": message}));
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    DirectResponse {
        status,
        body,
        ignored: None,
    }
}

/// A reply in its external form; without an outcome, no reply exists or ever will. The reason for a
/// failure is only for the operators.
pub(super) fn reply_body(
    event_id: &EventId,
    trace_id: TraceId,
    outcome: Option<&TurnOutcome>,
) -> Value {
    let outcome = match outcome {
        Some(TurnOutcome::Completed { reply }) => json!({"status": "completed", "reply": reply}),
        Some(TurnOutcome::Failed { code, .. }) => json!({"status": "failed", "code": code}),
        None => json!({"status": "unknown"}),
    };
    json!({"eventId": event_id, "traceId": trace_id, "outcome": outcome})
}

#[cfg(test)]
mod tests {
    use goondan_protocol::trace::SpanId;

    use super::*;

    #[test]
    fn msg_13_caller_gets_the_reply_or_only_the_failure_code() {
        let accepted = EventAccepted {
            event_id: "e".parse().unwrap(),
            duplicate: true,
            instance_key: None,
        };
        let trace = TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([1; 8]));
        let completed = TurnOutcome::Completed {
            reply: "hi".to_owned(),
        };
        let expected = json!({
            "eventId": "e", "duplicate": true, "traceId": "01".repeat(16),
            "outcome": {"status": "completed", "reply": "hi"},
        });
        let answered = answer(&accepted, &completed, trace);
        assert_eq!((answered.status, answered.body), (StatusCode::OK, expected));

        let failed = TurnOutcome::Failed {
            code: "E_MODEL".to_owned(),
            message: "/home/ada: no such key".to_owned(),
        };
        let answered = answer(&accepted, &failed, trace);
        assert_eq!(answered.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answered.body["outcome"]["code"], "E_MODEL");
        assert_eq!(answered.body["error"]["code"], FAILED);
        assert!(
            !answered.body.to_string().contains("ada"),
            "{}",
            answered.body
        );
    }
}
