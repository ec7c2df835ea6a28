//! Why a provider did not answer, and whether trying again helps.

use std::error::Error as StdError;

use genai::webc::StreamTimeout;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::definition::{HostedModel, HostedProvider};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// Characters of a provider's own words that an error quotes.
const QUOTED_CHARS: usize = 500;

/// Anthropic's "overloaded".
const OVERLOADED: u16 = 529;

/// Words by which providers and servers say that a conversation is too long.
const OVERFLOWS: &[&str] = &[
    "prompt is too long",
    "context_length_exceeded",
    "maximum context length",
    "exceed_context_size",
    "exceeds the available context size",
    "input token count",
    "exceeds the maximum number of tokens",
    "context window",
];

/// An error of the library as one of a call.
pub(super) fn of(model: &HostedModel, error: &genai::Error) -> CallError {
    if let Some(status) = error.status() {
        return of_status(model, status, body_of(error), error.headers());
    }
    match error {
        genai::Error::ChatResponse { body, .. } => of_event(model, body),
        genai::Error::WebStream { error, .. } => of_transport(model, &**error),
        genai::Error::WebModelCall { webc_error, .. } => of_transport(model, webc_error),
        // The last event is there in part.
        genai::Error::StreamParse { serde_error, .. } if serde_error.is_eof() => broken_off(model),
        genai::Error::StreamParse { .. } | genai::Error::InvalidJsonResponseElement { .. } => {
            let message = format!("{} sent what is no reply: {error}", place_of(model));
            CallError::new(CallErrorCode::Internal, quoted(&message)).suggest(
                "look whether `provider` names the protocol that the server at `endpoint` speaks",
            )
        }
        other => CallError::new(CallErrorCode::Invalid, quoted(&other.to_string())),
    }
}

/// The stream ended without saying that it is the end.
pub(super) fn broken_off(model: &HostedModel) -> CallError {
    let message = format!("the reply of `{}` broke off in the middle", model.model);
    CallError::new(CallErrorCode::Interrupted, message)
        .suggest("send the message again")
        .later(None)
}

/// The same, without the key that it may quote.
pub(super) fn without_key(error: CallError, key: Option<&str>) -> CallError {
    match key.filter(|key| !key.is_empty()) {
        Some(key) if error.message.contains(key) => CallError {
            message: error.message.replace(key, "…"),
            ..error
        },
        _ => error,
    }
}

fn place_of(model: &HostedModel) -> String {
    match (&model.endpoint, model.provider) {
        (Some(endpoint), _) => format!("`{endpoint}`"),
        (None, HostedProvider::Anthropic) => "Anthropic".to_owned(),
        (None, HostedProvider::OpenAi) => "OpenAI".to_owned(),
        (None, HostedProvider::Google) => "Google".to_owned(),
    }
}

fn body_of(error: &genai::Error) -> &str {
    use genai::webc::Error as WebError;
    match error {
        genai::Error::HttpError { body, .. } => body,
        genai::Error::WebModelCall {
            webc_error: WebError::ResponseFailedStatus { body, .. },
            ..
        } => body,
        _ => "",
    }
}

fn of_status(
    model: &HostedModel,
    status: StatusCode,
    body: &str,
    headers: Option<&HeaderMap>,
) -> CallError {
    let said = said_in(body);
    let message = match said.as_str() {
        "" => format!("{} answered {status}", place_of(model)),
        said => format!("{} answered {status}: {said}", place_of(model)),
    };
    let error = |code| CallError::new(code, message.as_str());
    let after_ms = headers.and_then(retry_after_ms);
    if is_overflow(body) || status == StatusCode::PAYLOAD_TOO_LARGE {
        return error(CallErrorCode::TooLarge)
            .suggest("begin a new conversation, or choose a model that takes longer ones");
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => error(CallErrorCode::Unauthorized)
            .suggest(format!(
                "check the `apiKey` of Model `{}` and what it may be used for",
                model.name
            )),
        StatusCode::NOT_FOUND => error(CallErrorCode::NotFound).suggest(format!(
            "check `model` (`{}`) and `endpoint` of Model `{}`",
            model.model, model.name
        )),
        StatusCode::PAYMENT_REQUIRED => error(CallErrorCode::Refused)
            .suggest("check the balance of your account with the provider"),
        StatusCode::TOO_MANY_REQUESTS if body.contains("insufficient_quota") => {
            error(CallErrorCode::Refused)
                .suggest("check the balance of your account with the provider")
        }
        StatusCode::TOO_MANY_REQUESTS => error(CallErrorCode::RateLimited)
            .suggest("try again later, or ask the provider for a higher limit")
            .later(after_ms),
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT => {
            error(CallErrorCode::Overloaded).later(after_ms)
        }
        status if status.is_server_error() || status.as_u16() == OVERLOADED => {
            error(CallErrorCode::Overloaded)
                .suggest("try again later; the provider has trouble")
                .later(after_ms)
        }
        _ => error(CallErrorCode::Invalid).suggest(format!(
            "check `params` and `options` of Model `{}`",
            model.name
        )),
    }
}

/// An error within a stream that had begun well.
fn of_event(model: &HostedModel, body: &Value) -> CallError {
    let text = body.to_string();
    let message = format!(
        "{} broke its reply off: {}",
        place_of(model),
        said_in(&text)
    );
    let error = |code| CallError::new(code, message.as_str());
    if is_overflow(&text) {
        error(CallErrorCode::TooLarge)
    } else if text.contains("rate_limit") {
        error(CallErrorCode::RateLimited).later(None)
    } else {
        error(CallErrorCode::Overloaded)
            .suggest("send the message again")
            .later(None)
    }
}

/// An error and all that led to it.
fn chain<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn of_transport(model: &HostedModel, error: &(dyn StdError + 'static)) -> CallError {
    if let Some(inner) = chain(error).find_map(|error| error.downcast_ref::<genai::Error>())
        && let Some(status) = inner.status()
    {
        return of_status(model, status, body_of(inner), inner.headers());
    }
    let place = place_of(model);
    if let Some(timeout) = chain(error).find_map(|error| error.downcast_ref::<StreamTimeout>()) {
        let timeouts = &model.timeouts;
        let message = match timeout {
            StreamTimeout::Headers => {
                let ms = timeouts.first_byte_ms;
                format!("{place} did not begin to answer within {ms} ms")
            }
            StreamTimeout::Read => {
                let ms = timeouts.stall_ms;
                format!("{place} went silent in the middle of its reply for {ms} ms")
            }
        };
        return CallError::new(CallErrorCode::TimedOut, message)
            .suggest(format!(
                "raise `timeouts` of Model `{}`, or try again",
                model.name
            ))
            .later(None);
    }
    let text = goondan_log::error_chain(error);
    let is_connect = chain(error)
        .filter_map(|error| error.downcast_ref::<reqwest::Error>())
        .any(reqwest::Error::is_connect);
    if is_connect {
        let message = format!("{place} cannot be reached: {text}");
        return CallError::new(CallErrorCode::Unavailable, quoted(&message))
            .suggest(format!(
                "check the network and `endpoint` of Model `{}`",
                model.name
            ))
            .later(None);
    }
    let message = format!("the reply of {place} broke off in the middle: {text}");
    CallError::new(CallErrorCode::Interrupted, quoted(&message))
        .suggest("send the message again")
        .later(None)
}

fn is_overflow(body: &str) -> bool {
    let body = body.to_lowercase();
    OVERFLOWS.iter().any(|words| body.contains(words))
}

/// The provider's own words in a body: its message, if it has the usual form.
fn said_in(body: &str) -> String {
    let json: Option<Value> = serde_json::from_str(body).ok();
    let message = json.as_ref().and_then(|json| {
        let places = ["/error/message", "/message", "/0/error/message", "/error"];
        places
            .iter()
            .find_map(|place| json.pointer(place).and_then(Value::as_str))
    });
    quoted(message.unwrap_or(body).trim())
}

fn quoted(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED_CHARS)
        .collect();
    if text.chars().nth(QUOTED_CHARS).is_some() {
        out.push('…');
    }
    out
}

/// How long the provider asks to wait, in milliseconds.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let field = |name: &str| headers.get(name)?.to_str().ok();
    if let Some(ms) = field("retry-after-ms").and_then(|ms| ms.trim().parse().ok()) {
        return Some(ms);
    }
    let after = field("retry-after")?.trim();
    if let Ok(seconds) = after.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let at = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
    let ms = at.as_millisecond() - jiff::Timestamp::now().as_millisecond();
    u64::try_from(ms).ok()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn retry_after_is_seconds_milliseconds_or_a_date() {
        assert_eq!(retry_after_ms(&headers("retry-after", "2")), Some(2_000));
        assert_eq!(retry_after_ms(&headers("retry-after-ms", "250")), Some(250));
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&soon)
            .unwrap();
        let ms = retry_after_ms(&headers("retry-after", &date)).unwrap();
        assert!((50_000..=60_000).contains(&ms), "{ms}");
        assert_eq!(retry_after_ms(&headers("retry-after", "soon")), None);
    }

    #[test]
    fn a_key_in_an_error_is_not_shown() {
        let error = CallError::new(CallErrorCode::Unauthorized, "bad key sk-1 sk-1");
        assert_eq!(without_key(error, Some("sk-1")).message, "bad key … …");
    }
}
