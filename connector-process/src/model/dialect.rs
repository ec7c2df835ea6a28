//! The interface shared by the readers of all providers.

use goondan_protocol::lone_surrogates;
use serde_json::Value;

use super::draft::{Draft, Excess};
use super::events::{NoEvent, SseEvent};

/// State after an event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamProgress {
    More,
    /// The provider's protocol does not define the event; more events follow.
    Unknown,
    Done,
}

/// Reason why the response is not a reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplyFault {
    /// It exceeds the limits of a reply.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// It is not an event stream.
    #[error(transparent)]
    NoEvent(#[from] NoEvent),
    /// An event is not JSON.
    #[error("an event of its stream is not JSON")]
    NoJson(#[source] serde_json::Error),
    /// The provider reports an error.
    #[error("the provider reported a failure")]
    Said(Value),
    /// It does not follow the provider's protocol.
    #[error("the reply does not follow the protocol")]
    Strange,
}

/// Reads a reply in one provider's protocol.
pub(super) trait Dialect: Send {
    /// Takes one event of a stream.
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault>;

    /// Takes a non-streamed reply.
    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault>;

    /// True if a stream without an end marker is complete, because its reply contains a finish
    /// reason.
    fn may_just_end(&self) -> bool {
        false
    }

    /// Completes a reply whose stream has no end marker.
    fn close(&mut self, _draft: &mut Draft) -> Result<(), ReplyFault> {
        Ok(())
    }

    /// True if the finish reason marks the reply as a refusal.
    fn is_declined(&self, draft: &Draft) -> bool;

    /// True if the reply ended because a tool call was unreadable and is missing from it.
    fn lost_a_call(&self, _draft: &Draft) -> bool {
        false
    }
}

/// True if the data of an event is only a keep-alive: servers and gateways send nothing, a word, or
/// a word in brackets between the events of the protocol.
pub(super) fn is_keep_alive(event: &SseEvent) -> bool {
    const WORDS_BYTES_MAX: usize = 64;
    let data = event.data.trim();
    let words = data
        .strip_prefix('[')
        .and_then(|data| data.strip_suffix(']'));
    let words = words.unwrap_or(data);
    let is_word_char =
        |c: char| c.is_ascii_alphabetic() || matches!(c, ' ' | '-' | '_' | ':' | '.');
    words.len() <= WORDS_BYTES_MAX
        && !words.eq_ignore_ascii_case("done")
        && words.chars().all(is_word_char)
}

pub(super) fn json(event: &SseEvent) -> Result<Value, ReplyFault> {
    // Some servers cut a text in the middle of a character.
    lone_surrogates::from_json(&event.data).map_err(ReplyFault::NoJson)
}

/// The error of an event or a body. Some servers send an empty one with each event.
pub(super) fn error_at(said: &Value) -> Option<&Value> {
    let error = said.get("error")?;
    let is_empty = match error {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => false,
    };
    (!is_empty).then_some(error)
}

/// A string at a pointer in JSON.
pub(super) fn text_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

/// True if the string at a pointer equals `expected`.
pub(super) fn is_text(value: &Value, pointer: &str, expected: &str) -> bool {
    text_at(value, pointer) == Some(expected)
}

/// A token count at a pointer in JSON. Some servers write it as a fraction or as a text.
pub(super) fn tokens_at(value: &Value, pointer: &str) -> Option<u64> {
    let number = value.pointer(pointer)?;
    number.as_u64().or_else(|| {
        let number = number.as_f64().or_else(|| number.as_str()?.parse().ok());
        let number = number.filter(|n| n.is_finite() && *n >= 0.0)?;
        format!("{number:.0}").parse().ok()
    })
}
