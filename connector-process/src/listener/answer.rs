//! From an outcome to a status code, headers and a body. Pure.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use goondan_log::error_chain;
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode};
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use super::Service;
use super::malformed::Malformed;
use super::signature::NotSigned;
use crate::limits::{RETRY_AFTER_OVERLOADED_S, RETRY_AFTER_UNAVAILABLE_S};

/// The response header that names the trace and the span of the request, as the W3C's Trace Context
/// Level 2 writes it.
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Why a request brought no event. Each is one row of the answers table in `docs/connectors.md`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nothing is at this path.
    #[error("nothing is at this path")]
    NotFound,
    /// Only `POST` means something here.
    #[error("only POST is understood")]
    WrongMethod,
    /// The body is larger than the connector takes.
    #[error("the body is larger than {max} bytes")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// The client took too long over its body.
    #[error("the body did not come within {timeout_ms} ms")]
    TooSlow {
        /// The limit in milliseconds.
        timeout_ms: u128,
    },
    /// The body broke off or is not framed as HTTP asks.
    #[error("the body did not come whole")]
    BrokenBody(#[source] axum::Error),
    /// The signature is missing or wrong.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// No event can be made of it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// As many requests are in progress as this process takes.
    #[error("too many requests are in progress")]
    Busy,
    /// The process begins nothing new.
    #[error("the connector is stopping")]
    Stopping,
    /// The orchestrator refused the event.
    #[error("{}", .0.message)]
    ByOrchestrator(EventRefused),
}

impl Refusal {
    /// The status code, and a stable code for the sender's program.
    pub(crate) fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Self::BrokenBody(_) => (StatusCode::BAD_REQUEST, "broken_body"),
            Self::NotSigned(_) => (StatusCode::UNAUTHORIZED, "not_signed"),
            Self::Malformed(malformed) => (StatusCode::BAD_REQUEST, malformed.code()),
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "overloaded"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Self::ByOrchestrator(refused) => match refused.code {
                RefusalCode::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
                RefusalCode::Unroutable => (StatusCode::UNPROCESSABLE_ENTITY, "unroutable"),
                RefusalCode::Overloaded => (StatusCode::TOO_MANY_REQUESTS, "overloaded"),
                RefusalCode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
                RefusalCode::Damaged => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            },
        }
    }

    /// The header a status code asks for, if it asks for one.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self.status().0 {
            StatusCode::TOO_MANY_REQUESTS => {
                Some((RETRY_AFTER, HeaderValue::from(RETRY_AFTER_OVERLOADED_S)))
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                Some((RETRY_AFTER, HeaderValue::from(RETRY_AFTER_UNAVAILABLE_S)))
            }
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, HeaderValue::from_static("POST"))),
            StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("HMAC-SHA256")))
            }
            _ => None,
        }
    }
}

/// An answer to what is no event: a challenge, a ping, something nobody wants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// Its status code.
    pub(crate) status: StatusCode,
    /// Its body.
    pub(crate) body: Value,
}

impl Answer {
    /// It is well, and this is the body.
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            status: StatusCode::OK,
            body,
        }
    }

    /// It was understood and is left alone, for this reason.
    pub(crate) fn ignored(reason: &str) -> Self {
        Self::ok(json!({"ignored": reason}))
    }
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Its event is durable.
    Accepted(EventAccepted),
    /// It was no event.
    Answered(Answer),
    /// It brought no event, and should have.
    Refused(Refusal),
}

/// The answer to an event that is durable, where a service wants no other.
pub(crate) fn accepted(accepted: &EventAccepted, trace: TraceContext) -> Answer {
    Answer {
        status: StatusCode::ACCEPTED,
        body: accepted_body(accepted, trace),
    }
}

/// The answer to a refusal, where a service wants no other.
pub(crate) fn refused(refusal: &Refusal) -> Answer {
    Answer {
        status: refusal.status().0,
        body: refused_body(refusal),
    }
}

/// Writes an outcome as a response.
pub(crate) fn to_response(
    service: &dyn Service,
    outcome: &Outcome,
    trace: TraceContext,
) -> Response<Body> {
    let (answer, header) = match outcome {
        Outcome::Accepted(accepted) => (service.on_accepted(accepted, trace), None),
        Outcome::Answered(answer) => (answer.clone(), None),
        Outcome::Refused(refusal) => (service.on_refused(refusal), refusal.header()),
    };
    let mut response = Response::new(match &answer.body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    });
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(value) = HeaderValue::try_from(trace.to_traceparent()) {
        headers.insert(TRACE_RESPONSE, value);
    }
    headers.extend(header);
    response
}

fn accepted_body(accepted: &EventAccepted, trace: TraceContext) -> Value {
    json!({
        "eventId": accepted.event_id,
        "duplicate": accepted.duplicate,
        "traceId": trace.trace_id,
    })
}

fn refused_body(refusal: &Refusal) -> Value {
    let (_, code) = refusal.status();
    json!({"error": {"code": code, "message": error_chain(refusal)}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use goondan_protocol::JsonObject;
    use goondan_protocol::ids::{EventId, InstanceKey};
    use goondan_protocol::trace::{SpanId, TraceId};

    use super::*;
    use crate::webhook::Webhook;

    fn webhook() -> Webhook {
        Webhook::new(&JsonObject::new(), &BTreeMap::new())
    }

    fn trace() -> TraceContext {
        TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([2; 8]))
    }

    fn refused(code: RefusalCode) -> Refusal {
        Refusal::ByOrchestrator(EventRefused {
            code,
            message: "because".into(),
        })
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
            let outcome = Outcome::Refused(refused(code));
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
        };
        let expected = json!({"eventId": "e", "duplicate": true, "traceId": "01".repeat(16)});
        assert_eq!(accepted_body(&accepted, trace()), expected);
        let response = to_response(&webhook(), &Outcome::Accepted(accepted), trace());
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        let header = format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8));
        assert_eq!(response.headers()["traceresponse"], header.as_str());
    }

    #[test]
    fn an_error_says_what_and_why_once() {
        let cause = InstanceKey::new("").unwrap_err();
        let body = refused_body(&Malformed::BadKey(cause).into());
        let expected = json!({"error": {
            "code": "bad_instance_key",
            "message": "the instance key cannot be used: instance key must not be empty",
        }});
        assert_eq!(body, expected);
    }
}
