//! Answers to requests: a status code and a body. Pure.

use axum::http::header::{ALLOW, AUTHORIZATION, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use goondan_log::error_chain;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode};
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use super::request_problems::MalformedRequest;
use super::signature::SignatureError;
use crate::limits::{RETRY_AFTER_OVERLOADED_S, RETRY_AFTER_UNAVAILABLE_S};

/// Reason why a request produced no event. Each is one row of the answers table in
/// `docs/connectors.md`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestRejection {
    /// The path does not exist.
    #[error("the path does not exist")]
    NotFound,
    /// The method is not supported.
    #[error("only {allowed} is understood")]
    WrongMethod { allowed: &'static str },
    /// The body exceeds the connector's limit.
    #[error("the body is larger than {max} bytes")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// The client sent the body too slowly.
    #[error("the body did not arrive within {timeout_ms} ms")]
    TooSlow {
        /// The limit in milliseconds.
        timeout_ms: u128,
    },
    /// The body was cut off or violates HTTP framing.
    #[error("the body is incomplete")]
    BrokenBody(#[source] axum::Error),
    /// The signature is missing or wrong.
    #[error(transparent)]
    NotSigned(#[from] SignatureError),
    /// The body is compressed in an unsupported way.
    #[error("`content-encoding` must be `gzip`, `deflate` or `identity`")]
    UnknownEncoding,
    /// The request has too many headers.
    #[error("the request has more than {max} headers")]
    TooManyHeaders {
        /// The limit.
        max: usize,
    },
    /// The service that must confirm the request could not be reached.
    #[error("failed to {purpose}: {reason}")]
    ServiceUnreachable {
        /// Purpose of the request to the service.
        purpose: &'static str,
        /// A description of the failure.
        reason: String,
    },
    /// The request cannot be converted to an event.
    #[error(transparent)]
    Malformed(#[from] MalformedRequest),
    /// Too many requests are in progress.
    #[error("too many requests are in progress")]
    Busy,
    /// Too many replies are pending.
    #[error("too many replies are pending; try again later")]
    NoPlace,
    /// Its reply callback could not be stored.
    #[error("the event was accepted, but its reply could not be scheduled: {reason}")]
    NotPromised {
        /// A description of the failure.
        reason: String,
    },
    /// The process accepts no new work.
    #[error("the connector is stopping")]
    Stopping,
    #[error("{}", .0.message)]
    ByOrchestrator(EventRefused),
}

impl RequestRejection {
    /// The status code, and a stable code for programs.
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
            Self::UnknownEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown_encoding"),
            Self::TooManyHeaders { .. } => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_many_headers",
            ),
            Self::NotPromised { .. } | Self::ServiceUnreachable { .. } | Self::Stopping => {
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

    /// The header that a status code requires, if any.
    pub(super) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        if let Self::WrongMethod { allowed } = self {
            return Some((ALLOW, HeaderValue::from_static(allowed)));
        }
        if let Self::NotSigned(
            SignatureError::Missing { header } | SignatureError::WrongSecret { header },
        ) = self
            && header == AUTHORIZATION
        {
            let challenge = HeaderValue::from_static("Basic realm=\"goondan\"");
            return Some((WWW_AUTHENTICATE, challenge));
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

/// Answer to a request that is not an event: a challenge, a ping, an unwanted notification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirectResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    /// Reason under which the request is counted as passed over.
    pub(crate) ignored: Option<IgnoreReason>,
}

impl DirectResponse {
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            status: StatusCode::OK,
            body,
            ignored: None,
        }
    }

    /// A valid request that is passed over, with an explanation for its sender.
    pub(crate) fn ignored(reason: IgnoreReason, explanation: &str) -> Self {
        Self::unheeded(explanation).counted_as(reason)
    }

    /// As [`Self::ignored`], for an event that the orchestrator has counted.
    pub(crate) fn unheeded(explanation: &str) -> Self {
        Self::ok(json!({"ignored": explanation}))
    }

    /// Counts the request as passed over.
    pub(crate) fn counted_as(self, reason: IgnoreReason) -> Self {
        Self {
            ignored: Some(reason),
            ..self
        }
    }
}

/// Answer to a service that checks if the address exists and wants its events.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckAnswer {
    pub(crate) content_type: &'static str,
    pub(crate) text: String,
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
}

impl CheckAnswer {
    /// A text that no client takes for a page.
    pub(crate) fn text(text: &str) -> Self {
        Self {
            content_type: "text/plain; charset=utf-8",
            text: text.to_owned(),
            header: None,
        }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self {
            content_type: "application/json",
            text: value.to_string(),
            header: None,
        }
    }

    /// Adds a header.
    pub(crate) fn with(self, name: HeaderName, value: HeaderValue) -> Self {
        Self {
            header: Some((name, value)),
            ..self
        }
    }
}

/// Default answer to a durable event.
pub(crate) fn accepted(accepted: &EventAccepted, trace: TraceContext) -> DirectResponse {
    DirectResponse {
        status: StatusCode::ACCEPTED,
        body: accepted_body(accepted, trace),
        ignored: None,
    }
}

/// Default answer to a refusal.
pub(crate) fn refused(refusal: &RequestRejection) -> DirectResponse {
    DirectResponse {
        status: refusal.status().0,
        body: refused_body(refusal),
        ignored: None,
    }
}

fn accepted_body(accepted: &EventAccepted, trace: TraceContext) -> Value {
    json!({
        "eventId": accepted.event_id,
        "duplicate": accepted.duplicate,
        "traceId": trace.trace_id,
    })
}

fn refused_body(refusal: &RequestRejection) -> Value {
    let (_, code) = refusal.status();
    json!({"error": {"code": code, "message": error_chain(refusal)}})
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::InstanceKey;

    use super::*;

    #[test]
    fn error_body_has_its_code_and_message_once() {
        let cause = InstanceKey::new("").unwrap_err();
        let body = refused_body(&MalformedRequest::BadKey(cause).into());
        let expected = json!({"error": {
            "code": "bad_instance_key",
            "message": "the instance key is invalid: instance key must not be empty",
        }});
        assert_eq!(body, expected);
    }
}
