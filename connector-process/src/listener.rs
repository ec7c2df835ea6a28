//! What every connector shares that is spoken to over HTTP.
//!
//! * [`Service`]: one service's way of speaking to us: what its requests mean, and how it wants to be
//!   answered. Pure, but for what a service remembers.
//! * `signature`: whether a request comes from who knows the secret. Pure.
//! * `malformed`, `answer`: from an outcome to a status code and a body. Pure.
//! * `request`: one request from its head to its log line.
//! * `outbox`: what a service does for agents.
//! * `server`: sockets, time-outs and bounds.
//!
//! # Invariant
//!
//! A service is told that its event was taken only after the orchestrator said that the event is
//! durable (`MSG-13`).

mod answer;
mod malformed;
mod outbox;
mod places;
mod request;
mod server;
mod signature;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use goondan_connectors::Values;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;

pub(crate) use answer::{Answer, Refusal, refused};
pub(crate) use malformed::Malformed;
pub(crate) use outbox::Outbox;
pub(crate) use server::run;
pub(crate) use signature::{NotSigned, SignatureCheck, only_value};

use crate::limits::{NOTE_BYTES_MAX, REPLY_TIMEOUT_MS};

/// One service's way of speaking to us over HTTP.
pub(crate) trait Service: fmt::Debug + Send + Sync {
    /// Where it reaches us.
    fn door(&self) -> &Door;

    /// Whether requests must be signed.
    fn is_guarded(&self) -> bool {
        true
    }

    /// How long the orchestrator may take over an event. A service that waits for less than
    /// [`REPLY_TIMEOUT_MS`] says so here, and asks again.
    fn patience(&self) -> Duration {
        Duration::from_millis(REPLY_TIMEOUT_MS)
    }

    /// Checks a request and says what it means. Nothing of the body is looked at before its signature
    /// fits.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is not signed, or means nothing.
    fn read(&self, received: &Received<'_>) -> Result<Meaning, Refusal>;

    /// How it wants to hear that its event is durable.
    fn on_accepted(&self, accepted: &EventAccepted, trace: TraceContext) -> Answer {
        answer::accepted(accepted, trace)
    }

    /// What it does for agents, if it does anything.
    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        None
    }

    /// How it wants to hear that a request brought no event.
    fn on_refused(&self, refusal: &Refusal) -> Answer {
        refused(refusal)
    }
}

/// What a request means.
#[derive(Debug, PartialEq)]
pub(crate) enum Meaning {
    /// An event.
    Event(Box<ConnectorEvent>),
    /// An event whose sender hears this once it is durable.
    Asked(Box<ConnectorEvent>, Answer),
    /// No event; this is the answer.
    Answer(Answer),
}

/// Where a connector listens, and how much it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Door {
    /// The host or address it listens on.
    pub(crate) host: String,
    /// The port; 0 is any free one.
    pub(crate) port: u16,
    /// The one path it answers on.
    pub(crate) path: String,
    /// Largest body it takes, in bytes.
    pub(crate) body_bytes_max: usize,
}

impl Door {
    /// The door that settings describe.
    pub(crate) fn new(values: &Values<'_>) -> Self {
        let number = |name| values.number(name).unwrap_or_default();
        let text = |name| values.text(name).unwrap_or_default().to_owned();
        Self {
            host: text("host"),
            port: u16::try_from(number("port")).unwrap_or_default(),
            path: text("path"),
            body_bytes_max: usize::try_from(number("maxBodyBytes")).unwrap_or_default(),
        }
    }
}

/// One request, read whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    /// Its method.
    pub(crate) method: &'a str,
    /// Its path, without the query.
    pub(crate) path: &'a str,
    /// Who is at the other end of the connection.
    pub(crate) remote: SocketAddr,
    /// Its headers.
    pub(crate) headers: &'a HeaderMap,
    /// Its body.
    pub(crate) body: &'a [u8],
    /// The time, in seconds since 1970-01-01T00:00:00Z.
    pub(crate) now_s: u64,
}

/// The text, cut to at most [`NOTE_BYTES_MAX`].
pub(crate) fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(NOTE_BYTES_MAX);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_cut_between_characters() {
        let text = "가".repeat(NOTE_BYTES_MAX);
        let cut = shortened(&text);
        assert!(cut.len() <= NOTE_BYTES_MAX && cut.len() > NOTE_BYTES_MAX - 3);
        assert!(text.starts_with(cut));
    }
}
