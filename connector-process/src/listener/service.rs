//! The interface of a service that sends HTTP requests to a connector.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::decision::DecisionPress;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::answer::{self, CheckAnswer, DirectResponse, RequestRejection, refused};
use super::callbacks::Callbacks;
use super::http_endpoint::HttpEndpoint;
use super::outbox::Outbox;
use crate::gateway::Gateway;
use crate::limits::REPLY_TIMEOUT_MS;

/// One service's HTTP protocol.
pub(crate) trait InboundService: fmt::Debug + Send + Sync {
    fn http_endpoint(&self) -> &HttpEndpoint;

    /// The only supported method.
    fn method(&self) -> &'static str {
        "POST"
    }

    /// Warning for an endpoint that is reachable from other machines without signatures.
    fn exposed(&self) -> &'static str {
        "any client that can reach this address can talk to the agents; set the secret that signs requests"
    }

    /// Creates the requested page.
    fn page(
        &self,
        _gateway: Gateway,
        _format: PageFormat,
    ) -> BoxFuture<'static, Result<StaticPage, RequestRejection>> {
        async { Err(RequestRejection::NotFound) }.boxed()
    }

    /// Handles a button press about a tool call. On success, its result is durable.
    fn press(&self, _pressed: ButtonPress) -> BoxFuture<'static, Result<(), RequestRejection>> {
        async { Err(RequestRejection::NotFound) }.boxed()
    }

    /// The answer to a button press whose result is durable.
    fn on_pressed(&self) -> DirectResponse {
        DirectResponse::ok(Value::Null)
    }

    /// True if requests must be signed.
    fn is_guarded(&self) -> bool {
        true
    }

    /// Path to which users return from authorization servers, if supported.
    fn callback_path(&self) -> Option<&str> {
        None
    }

    /// Paths that it serves beside that of its endpoint.
    fn further_paths(&self) -> &'static [&'static str] {
        &[]
    }

    /// Time limit for the orchestrator to accept an event. A service that waits for less than
    /// [`REPLY_TIMEOUT_MS`] returns a lower limit, and retries.
    fn reply_timeout(&self) -> Duration {
        Duration::from_millis(REPLY_TIMEOUT_MS)
    }

    /// The answer to a request for the endpoint's path that only checks if there is one. It gets no
    /// other treatment: no signature is verified, and no body is read.
    fn answer_to_check(&self, _head: &Parts) -> Option<CheckAnswer> {
        None
    }

    /// Checks of a request before [`InboundService::read`] that need its whole URL or the network.
    fn authenticate<'a>(
        &'a self,
        _received: &'a RawRequest<'a>,
        _uri: &'a Uri,
    ) -> BoxFuture<'a, Result<(), RequestRejection>> {
        async { Ok(()) }.boxed()
    }

    /// Confirms a subscription of the service by requesting its address.
    fn confirm(&self, _url: String) -> BoxFuture<'_, Result<(), RequestRejection>> {
        async { Err(RequestRejection::NotFound) }.boxed()
    }

    /// Checks a request and parses it. No part of the body is parsed before its signature is
    /// verified.
    ///
    /// # Errors
    ///
    /// [`RequestRejection`] if the request is not signed or is invalid.
    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection>;

    /// True if an event that no rule routes is acknowledged: a service would repeat it, or end the
    /// subscription after several errors.
    fn acknowledges_unroutable(&self) -> bool {
        true
    }

    /// Stores what the service learned from an event that was accepted. Its sender is answered only
    /// afterwards.
    fn settle(&self, _gateway: Gateway) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }

    /// Time for which the sender of an event may wait for the agent's reply, if it may.
    fn reply_wait(&self) -> Option<Duration> {
        None
    }

    /// Reply callbacks, if configured.
    fn callbacks(&self) -> Option<&Callbacks> {
        None
    }

    /// Formats the acknowledgment of a durable event.
    fn on_accepted(&self, accepted: &EventAccepted, trace: TraceContext) -> DirectResponse {
        answer::accepted(accepted, trace)
    }

    /// Its actions for agents, if any.
    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        None
    }

    /// Formats the answer to a request that produced no event.
    fn on_refused(&self, refusal: &RequestRejection) -> DirectResponse {
        refused(refusal)
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum InboundRequest {
    Event(Box<ConnectorEvent>),
    /// An event whose reply is not posted, because another program would get it.
    Notice(Box<ConnectorEvent>),
    /// Several events. Their sender repeats all after an error, so each has an id.
    Batch(Vec<ConnectorEvent>),
    /// An event whose sender gets this answer once the event is durable.
    Asked(Box<ConnectorEvent>, DirectResponse),
    /// Not an event; this is the answer.
    Answer(DirectResponse),
    /// Not an event but a button press about a tool call, with an empty answer.
    Pressed(Box<ButtonPress>),
    /// Not an event; the service asks that this address is requested.
    Confirmation(String),
    /// Not an event; the answer is the service's page.
    Page(PageFormat),
}

/// The page that a client requests, and its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFormat {
    Usual,
    /// Plain text, for older clients.
    Plain,
    /// Answer to a liveness probe.
    Live,
    /// Answer to a readiness probe.
    Ready,
}

/// A button press about a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ButtonPress {
    /// The button and the user.
    pub(crate) press: DecisionPress,
    pub(crate) place: String,
    pub(crate) to: String,
}

#[derive(Debug, Clone)]
pub(crate) struct StaticPage {
    pub(crate) content_type: &'static str,
    pub(crate) text: Arc<str>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRequest<'a> {
    pub(crate) method: &'a str,
    /// Its path, without the query.
    pub(crate) path: &'a str,
    pub(crate) remote: SocketAddr,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// The time, in seconds since 1970-01-01T00:00:00Z.
    pub(crate) now_s: u64,
}
