//! What whoever made a request is answered: a status code and a body. Pure.

use axum::http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use goondan_log::error_chain;
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode};
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use super::malformed::Malformed;
use super::signature::NotSigned;
use crate::limits::{RETRY_AFTER_OVERLOADED_S, RETRY_AFTER_UNAVAILABLE_S};

/// Why a request brought no event. Each is one row of the answers table in `docs/connectors.md`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nothing is at this path.
    #[error("nothing is at this path")]
    NotFound,
    /// Another method than the one that means something here.
    #[error("only {allowed} is understood")]
    WrongMethod {
        /// The one that does.
        allowed: &'static str,
    },
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
    /// As many replies are promised as can be.
    #[error("as many replies are promised as can be; some must be handed over first")]
    NoPlace,
    /// Its reply could not be promised.
    #[error("the event is taken, but its reply cannot be promised: {reason}")]
    NotPromised {
        /// Why, in words.
        reason: String,
    },
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
            Self::WrongMethod { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Self::BrokenBody(_) => (StatusCode::BAD_REQUEST, "broken_body"),
            Self::NotSigned(_) => (StatusCode::UNAUTHORIZED, "not_signed"),
            Self::Malformed(malformed) => (StatusCode::BAD_REQUEST, malformed.code()),
            Self::Busy | Self::NoPlace => (StatusCode::TOO_MANY_REQUESTS, "overloaded"),
            Self::NotPromised { .. } | Self::Stopping => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
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
    pub(super) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        if let Self::WrongMethod { allowed } = self {
            return Some((ALLOW, HeaderValue::from_static(allowed)));
        }
        match self.status().0 {
            StatusCode::TOO_MANY_REQUESTS => {
                Some((RETRY_AFTER, HeaderValue::from(RETRY_AFTER_OVERLOADED_S)))
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                Some((RETRY_AFTER, HeaderValue::from(RETRY_AFTER_UNAVAILABLE_S)))
            }
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
    use goondan_protocol::ids::InstanceKey;

    use super::*;

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
