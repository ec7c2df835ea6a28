//! The shared part of connectors that act at a service for an agent: one request, its answer, and
//! its failure. The orchestrator retries, because it tracks all calls with the same credential.

use std::time::Duration;

use goondan_clock::timeout;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder, TokenVerdict};
use goondan_protocol::service::of_call;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::calls::RawCallResult;
use crate::content_encoding::{BodyDecoder, ContentEncoding};
use crate::http::ForbiddenAddress;
use crate::limits::{SERVICE_ANSWER_BYTES_MAX, SERVICE_TIMEOUT_MS};
use crate::payload::is_allowed;
use crate::server_time::time_of_answer;

/// Longest text of a service that an error repeats, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;

#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The decoded body. A body in an unsupported encoding is not decoded.
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// The body as JSON; `null` if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Delay that the service requests before the next request, in milliseconds: a number of
    /// seconds, or a date.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        let after = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let Ok(seconds) = after.parse::<f64>() else {
            let at = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
            let ms = at.as_millisecond() - time_of_answer(&self.headers).as_millisecond();
            return u64::try_from(ms).ok();
        };
        let after = Duration::try_from_secs_f64(seconds).ok()?;
        u64::try_from(after.as_millis()).ok()
    }
}

/// Reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeFailure {
    /// The request was not sent.
    #[error("it cannot be reached: {0}")]
    NotSent(String),
    /// The connection broke or timed out after the request may have been sent.
    #[error("the connection broke: {0}")]
    Lost(String),
    /// The answer exceeds the limit.
    #[error("it answered with more than {0} bytes")]
    TooLong(usize),
    /// The name resolved to a forbidden address.
    #[error("{0}")]
    Forbidden(String),
}

/// Sends one request and reads the answer. Errors omit the URL, which may contain a token.
///
/// # Errors
///
/// [`ExchangeFailure`] if no answer was received.
pub(crate) async fn exchange(
    request: reqwest::RequestBuilder,
    request_timeout: Duration,
) -> Result<HttpAnswer, ExchangeFailure> {
    exchange_within(request, request_timeout, SERVICE_ANSWER_BYTES_MAX).await
}

/// Sends one request and reads an answer of at most `bytes_max`.
///
/// # Errors
///
/// [`ExchangeFailure`] if no answer was received.
pub(crate) async fn exchange_within(
    request: reqwest::RequestBuilder,
    request_timeout: Duration,
    bytes_max: usize,
) -> Result<HttpAnswer, ExchangeFailure> {
    let broken = |error: reqwest::Error| {
        if let Some(forbidden) = ForbiddenAddress::of(&error) {
            return ExchangeFailure::Forbidden(forbidden.to_string());
        }
        let is_unsent = error.is_connect() || error.is_builder();
        let reason = goondan_outbound::error_text(error);
        if is_unsent {
            ExchangeFailure::NotSent(reason)
        } else {
            ExchangeFailure::Lost(reason)
        }
    };
    let exchange = async {
        let mut response = request.send().await.map_err(broken)?;
        if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            && let Some(problem) = goondan_outbound::rejection_by_proxy(response.url())
        {
            return Err(ExchangeFailure::NotSent(problem.to_string()));
        }
        // Some servers and proxies compress although no request asks for it. Status and headers
        // count even if the encoding is unknown.
        let encoding = ContentEncoding::of(response.headers());
        let mut decoder = BodyDecoder::new(encoding.unwrap_or(ContentEncoding::Identity));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            let has_more = decoder.decode_to(&mut body, bytes_max, &chunk);
            let has_more = has_more.map_err(|error| {
                ExchangeFailure::Lost(format!("the compressed answer is damaged: {error}"))
            })?;
            if has_more {
                return Err(ExchangeFailure::TooLong(bytes_max));
            }
        }
        Ok(HttpAnswer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body,
        })
    };
    let exchanged = timeout(request_timeout, exchange).await;
    exchanged.unwrap_or_else(|_elapsed| {
        let ms = request_timeout.as_millis();
        Err(ExchangeFailure::Lost(format!("no answer within {ms} ms")))
    })
}

/// Parses the action of a call, with its parameters.
///
/// # Errors
///
/// [`CallError`] if a connection of `service` does not support the action.
pub(crate) fn action<T: DeserializeOwned>(service: &str, call: &CallOrder) -> Result<T, CallError> {
    of_call(&call.method, &call.params).map_err(|error| {
        let message = format!(
            "the connector `{service}` cannot do `{}`: {error}",
            call.method
        );
        CallError::new(CallErrorCode::Invalid, message)
    })
}

/// Checks that agents may write to a place of this kind, such as a channel. `setting` names the
/// places that the connector listens to; `None` for `allowed` permits all.
///
/// # Errors
///
/// [`CallError`] if the place is not permitted.
pub(crate) fn check_place(
    kind: &str,
    place: &str,
    allowed: Option<&[String]>,
    setting: &str,
) -> Result<(), CallError> {
    if is_allowed(allowed, place) {
        return Ok(());
    }
    Err(other_place(kind, place, setting))
}

/// Error of an action at a place that the Connection does not permit.
pub(crate) fn other_place(kind: &str, place: &str, setting: &str) -> CallError {
    let message = format!("{kind} {place} is not one of `{setting}` or `sendTo` of the Connection");
    CallError::new(CallErrorCode::Refused, message)
}

/// Properties of a failed request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailureContext<'a> {
    /// Display name of the service.
    pub(crate) service: &'a str,
    /// True if repeating the request is harmless.
    pub(crate) is_repeatable: bool,
}

impl FailureContext<'_> {
    /// Sends a request to a service's API, within [`SERVICE_TIMEOUT_MS`].
    ///
    /// # Errors
    ///
    /// [`CallError`] if no answer was received; the caller interprets the answer.
    pub(crate) async fn answer_to(
        self,
        request: reqwest::RequestBuilder,
    ) -> Result<HttpAnswer, CallError> {
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let answered = exchange(request, request_timeout).await;
        answered.map_err(|broken| self.without_answer(&broken))
    }

    /// Error of a request without an answer.
    pub(crate) fn without_answer(self, broken: &ExchangeFailure) -> CallError {
        let message = format!("{}: {broken}", self.service);
        match broken {
            ExchangeFailure::NotSent(_) => {
                CallError::new(CallErrorCode::Unavailable, message).later(None)
            }
            ExchangeFailure::Lost(_) => self.unknown(message),
            ExchangeFailure::Forbidden(_) => CallError::new(CallErrorCode::Refused, message),
            ExchangeFailure::TooLong(_) => CallError::new(CallErrorCode::Internal, message),
        }
    }

    /// Error of a request that the service rejected, from its status and message.
    pub(crate) fn by_status(
        self,
        status: u16,
        said: &str,
        retry_after_ms: Option<u64>,
    ) -> CallError {
        let said: String = said.chars().take(DESCRIPTION_CHARS_MAX).collect();
        let message = format!("{} answered {status}: {said}", self.service);
        let error = |code| CallError::new(code, message.clone());
        match status {
            401 => error(CallErrorCode::Unauthorized).of_token(Some(TokenVerdict::Declined)),
            403 => error(CallErrorCode::Refused),
            404 | 410 => error(CallErrorCode::NotFound),
            413 => error(CallErrorCode::TooLarge),
            429 => error(CallErrorCode::RateLimited).later(retry_after_ms),
            // The service states that it did nothing.
            503 => error(CallErrorCode::Unavailable).later(retry_after_ms),
            500.. => self.unknown(message),
            400..500 => error(CallErrorCode::Invalid),
            _ => error(CallErrorCode::Internal),
        }
    }

    /// Error of a request with an unknown outcome: a repeatable one is retried.
    pub(crate) fn unknown(self, message: String) -> CallError {
        if self.is_repeatable {
            return CallError::new(CallErrorCode::Unavailable, message).later(None);
        }
        let message = format!("{message}; outcome unknown");
        CallError::new(CallErrorCode::Interrupted, message)
            .suggest("check if it took effect before you try again")
    }
}

/// Replaces the secrets in a text.
pub(crate) fn masked<S: AsRef<str>>(text: String, secrets: &[S]) -> String {
    let secrets = secrets.iter().map(AsRef::as_ref);
    let secrets = secrets.filter(|secret| !secret.is_empty());
    secrets.fold(text, |text, secret| text.replace(secret, "…"))
}

/// Result of a call for the orchestrator, with all secrets masked.
pub(crate) fn outcome(result: Result<Value, CallError>, secrets: &[&str]) -> RawCallResult {
    match result {
        Ok(value) => to_raw_value(&value)
            .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string())),
        Err(error) => Err(CallError {
            message: masked(error.message, secrets),
            ..error
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_calls_without_effect_are_retryable() {
        let failed = |is_repeatable| FailureContext {
            service: "Slack",
            is_repeatable,
        };
        let lost = ExchangeFailure::Lost("reset".into());
        for (error, code, retryable) in [
            (
                failed(false).without_answer(&ExchangeFailure::NotSent("x".into())),
                CallErrorCode::Unavailable,
                true,
            ),
            (
                failed(false).without_answer(&lost),
                CallErrorCode::Interrupted,
                false,
            ),
            (
                failed(true).without_answer(&lost),
                CallErrorCode::Unavailable,
                true,
            ),
            (
                failed(false).by_status(500, "x", None),
                CallErrorCode::Interrupted,
                false,
            ),
            (
                failed(true).by_status(502, "x", None),
                CallErrorCode::Unavailable,
                true,
            ),
            (
                failed(false).by_status(503, "x", None),
                CallErrorCode::Unavailable,
                true,
            ),
            (
                failed(false).by_status(429, "x", Some(7_000)),
                CallErrorCode::RateLimited,
                true,
            ),
            (
                failed(true).by_status(401, "x", None),
                CallErrorCode::Unauthorized,
                false,
            ),
            (
                failed(true).by_status(422, "x", None),
                CallErrorCode::Invalid,
                false,
            ),
        ] {
            assert_eq!((error.code, error.retryable), (code, retryable), "{error}");
        }
    }

    #[tokio::test]
    async fn prov_1_a_compressed_answer_of_a_service_is_read() {
        let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"{\"ok\": true}").unwrap();
        let body = gzip.finish().unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let damaged = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 12\r\n\r\n\
                       not gzipped!";
        let answers = [[head.as_bytes(), &body].concat(), damaged.into()];
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", socket.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = socket.accept().unwrap();
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(&answer).unwrap();
            }
        });
        let client = crate::http::service_client().unwrap();
        let within = Duration::from_secs(10);
        let answer = exchange(client.get(&url), within).await.unwrap();
        assert_eq!(answer.json(), json!({"ok": true}));
        let client = crate::http::service_client().unwrap();
        let failure = exchange(client.get(&url), within).await.unwrap_err();
        assert!(matches!(failure, ExchangeFailure::Lost(_)), "{failure:?}");
        server.join().unwrap();
    }

    #[test]
    fn retry_after_is_read_and_secrets_in_errors_are_masked() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "1.5".parse().unwrap());
        let answered = HttpAnswer {
            status: 429,
            headers,
            body: b"[1]".to_vec(),
        };
        assert_eq!(answered.retry_after_ms(), Some(1_500));
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&soon)
            .unwrap();
        let mut dated = HeaderMap::new();
        dated.insert(RETRY_AFTER, date.parse().unwrap());
        let ms = HttpAnswer {
            status: 503,
            headers: dated,
            body: Vec::new(),
        }
        .retry_after_ms();
        assert!((50_000..=60_000).contains(&ms.unwrap()), "{ms:?}");
        assert_eq!(answered.json(), json!([1]));
        let error = CallError::new(CallErrorCode::Invalid, "token hunter2 is bad");
        let masked = outcome(Err(error), &["", "hunter2"]).unwrap_err();
        assert_eq!(masked.message, "token … is bad");
    }
}
