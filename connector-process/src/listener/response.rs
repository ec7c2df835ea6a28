//! Converts an outcome to a response. Pure.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Response};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::answer::{CheckAnswer, DirectResponse, RequestRejection};
use super::callback;
use super::reply_body;
use super::service::{InboundService, StaticPage};

/// The response header with the trace and the span of the request, as defined by W3C Trace Context
/// Level 2.
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Content type of most answers.
const JSON: &str = "application/json";

#[derive(Debug)]
pub(crate) enum RequestOutcome {
    Accepted(EventAccepted),
    /// Its event is durable, and its turn is over.
    Replied(EventAccepted, TurnOutcome),
    /// It was not an event.
    Answered(DirectResponse),
    /// It only checked the address.
    Checked(CheckAnswer),
    /// A user returned from an authorization server.
    CameBack(callback::CallbackPage),
    Page(StaticPage),
    /// It should have produced an event but did not.
    Refused(RequestRejection),
}

/// Formats an outcome as a response.
pub(crate) fn to_response(
    service: &dyn InboundService,
    outcome: &RequestOutcome,
    trace: TraceContext,
) -> Response<Body> {
    let (answer, header) = match outcome {
        RequestOutcome::CameBack(page) => return to_page(*page),
        RequestOutcome::Checked(answer) => return to_check(answer),
        RequestOutcome::Accepted(accepted) => (service.on_accepted(accepted, trace), None),
        RequestOutcome::Replied(accepted, outcome) => {
            (reply_body::answer(accepted, outcome, trace), None)
        }
        RequestOutcome::Answered(answer) => (answer.clone(), None),
        RequestOutcome::Page(_) => (DirectResponse::ok(Value::Null), None),
        RequestOutcome::Refused(refusal) => (service.on_refused(refusal), refusal.header()),
    };
    let (content_type, body) = match (outcome, &answer.body) {
        (RequestOutcome::Page(page), _) => (page.content_type, Body::from(page.text.to_string())),
        (_, Value::Null) => (JSON, Body::empty()),
        (_, body) => (JSON, Body::from(body.to_string())),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(value) = HeaderValue::try_from(trace.to_traceparent()) {
        headers.insert(TRACE_RESPONSE, value);
    }
    headers.extend(header);
    response
}

fn to_check(answer: &CheckAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.text.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    // The sender chose the text.
    let no_sniffing = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, no_sniffing);
    headers.extend(answer.header.clone());
    response
}

fn to_page(page: callback::CallbackPage) -> Response<Body> {
    let mut response = Response::new(Body::from(page.text()));
    *response.status_mut() = page.status();
    let headers = callback::CallbackPage::HEADERS
        .map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::http::StatusCode;
    use axum::http::header::RETRY_AFTER;
    use goondan_protocol::JsonObject;
    use goondan_protocol::ids::EventId;
    use goondan_protocol::ipc::{EventRefused, RefusalCode};
    use goondan_protocol::trace::{SpanId, TraceId};
    use serde_json::json;

    use super::super::answer;
    use super::*;
    use crate::webhook::Webhook;

    fn webhook() -> Webhook {
        Webhook::new(&JsonObject::new(), &BTreeMap::new())
    }

    fn trace() -> TraceContext {
        TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([2; 8]))
    }

    fn refused(code: RefusalCode) -> RequestRejection {
        RequestRejection::ByOrchestrator(EventRefused::new(code, "because"))
    }

    #[test]
    fn each_refusal_of_the_orchestrator_has_its_status() {
        for (code, status, retry_after) in [
            (RefusalCode::Invalid, 400, None),
            (RefusalCode::Unroutable, 422, None),
            (RefusalCode::Overloaded, 429, Some("1")),
            (RefusalCode::Unavailable, 503, Some("5")),
            (RefusalCode::Damaged, 500, None),
        ] {
            let outcome = RequestOutcome::Refused(refused(code));
            let response = to_response(&webhook(), &outcome, trace());
            assert_eq!(response.status().as_u16(), status);
            let found = response.headers().get(RETRY_AFTER);
            assert_eq!(found.map(|value| value.to_str().unwrap()), retry_after);
        }
    }

    #[test]
    fn an_answer_names_the_trace() {
        let accepted = EventAccepted {
            event_id: EventId::new("e").unwrap(),
            duplicate: true,
            instance_key: None,
        };
        let expected = json!({"eventId": "e", "duplicate": true, "traceId": "01".repeat(16)});
        assert_eq!(answer::accepted(&accepted, trace()).body, expected);
        let response = to_response(&webhook(), &RequestOutcome::Accepted(accepted), trace());
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        let header = format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8));
        assert_eq!(response.headers()["traceresponse"], header.as_str());
    }
}
