//! What a service that speaks to us over HTTP has to say of itself.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::approval::ApprovalPress;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;

use super::answer::{self, Answer, Refusal, refused};
use super::callbacks::Callbacks;
use super::http_endpoint::HttpEndpoint;
use super::outbox::Outbox;
use crate::gateway::Gateway;
use crate::limits::REPLY_TIMEOUT_MS;

/// One service's way of speaking to us over HTTP.
pub(crate) trait Service: fmt::Debug + Send + Sync {
    /// Where it reaches us.
    fn http_endpoint(&self) -> &HttpEndpoint;

    /// The one method that means something.
    fn method(&self) -> &'static str {
        "POST"
    }

    /// What is warned of if it listens beyond this machine and requests need not be signed.
    fn exposed(&self) -> &'static str {
        "anybody who reaches this address can speak to the agents: set the secret that requests are signed with"
    }

    /// The page that was asked for.
    fn page(
        &self,
        _gateway: Gateway,
        _format: PageFormat,
    ) -> BoxFuture<'static, Result<Page, Refusal>> {
        async { Err(Refusal::NotFound) }.boxed()
    }

    /// Somebody pressed a button about a tool call. What came of it is durable when this ends well.
    fn press(&self, _pressed: Pressed) -> BoxFuture<'static, Result<(), Refusal>> {
        async { Err(Refusal::NotFound) }.boxed()
    }

    /// Whether requests must be signed.
    fn is_guarded(&self) -> bool {
        true
    }

    /// The path on which people come back from authorization servers, if it hears them.
    fn callback_path(&self) -> Option<&str> {
        None
    }

    /// How long the orchestrator may take over an event. A service that waits for less than
    /// [`REPLY_TIMEOUT_MS`] says so here, and asks again.
    fn reply_timeout(&self) -> Duration {
        Duration::from_millis(REPLY_TIMEOUT_MS)
    }

    /// Checks a request and says what it means. Nothing of the body is looked at before its signature
    /// fits.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is not signed, or means nothing.
    fn read(&self, received: &Received<'_>) -> Result<Meaning, Refusal>;

    /// How long whoever brought an event may wait for what the agent answers, if it may.
    fn reply_wait(&self) -> Option<Duration> {
        None
    }

    /// Where replies are handed over, if they are.
    fn callbacks(&self) -> Option<&Callbacks> {
        None
    }

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
    /// No event, but a button about a tool call, and an empty answer.
    Pressed(Box<Pressed>),
    /// No event; the answer is the service's page.
    Page(PageFormat),
}

/// The format of a page that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFormat {
    /// The service's own.
    Usual,
    /// Plain text, for older clients.
    Plain,
}

/// A button about a tool call that somebody pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pressed {
    /// Which, and who.
    pub(crate) press: ApprovalPress,
    /// The message that it belongs to.
    pub(crate) place: String,
    /// Whom to tell what came of it.
    pub(crate) to: String,
}

/// A page that somebody asked for.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// What it is.
    pub(crate) content_type: &'static str,
    /// What it says.
    pub(crate) text: Arc<str>,
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
