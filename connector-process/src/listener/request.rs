//! One request, from its head to its log line.
//!
//! The order of the checks is part of the contract: cheap checks come first, no part of a body is
//! parsed before its signature is verified, and no success is returned before the orchestrator has
//! the event on disk (`MSG-13`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Extension;
use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use futures_util::StreamExt as _;
use goondan_clock::{timeout, timeout_at};
use goondan_protocol::event::{ConnectorEvent, TurnOutcome};
use goondan_protocol::ids::EventId;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::RefusalCode;
use goondan_protocol::trace::TraceContext;
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::{DirectResponse, RequestRejection};
use super::callback::{self, CallbackPage};
use super::connection_limiter::ConnectionPermit;
use super::reply_body::FAILED;
use super::response::{RequestOutcome, to_response};
use super::service::{ButtonPress, InboundRequest, InboundService, PageFormat, RawRequest};
use crate::gateway::{Gateway, span_within};
use crate::limits::{
    BODY_RATE_MIN_BYTES_S, DISCARD_TIMEOUT_MS, DISCARDED_BYTES_MAX, HEADERS_MAX, NOTE_BYTES_MAX,
    REPLY_WAITERS_MAX, REQUESTS_IN_FLIGHT_MAX,
};

/// The header that carries a caller's trace.
const TRACEPARENT: &str = "traceparent";

/// Peer of a connection, and the permit of the connection.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    pub(super) address: SocketAddr,
    pub(super) permit: Arc<ConnectionPermit>,
}

/// Time limits for a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyTimeout {
    /// Limit for the entire body.
    pub(super) whole: Duration,
    /// Time before its mean rate must reach [`BODY_RATE_MIN_BYTES_S`].
    pub(super) grace: Duration,
}

impl BodyTimeout {
    /// Total time granted to a body after `received_bytes` have arrived.
    fn after(self, received_bytes: usize) -> Duration {
        let received_bytes = u64::try_from(received_bytes).unwrap_or(u64::MAX);
        let earned =
            Duration::from_millis(received_bytes.saturating_mul(1_000) / BODY_RATE_MIN_BYTES_S);
        self.whole.min(self.grace.saturating_add(earned))
    }
}

/// Shared state of all requests of one connector.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(super) service: Arc<dyn InboundService>,
    pub(super) gateway: Gateway,
    body_timeout: BodyTimeout,
    slots: Semaphore,
    /// Slots for requests that wait for a reply.
    pub(super) waiting: Semaphore,
    /// Connections, and bodies being discarded.
    pub(crate) tasks: TaskTracker,
    /// Set once the process accepts no new work.
    pub(crate) stop: CancellationToken,
}

impl Listener {
    pub(crate) fn new(
        service: Arc<dyn InboundService>,
        gateway: Gateway,
        body_timeout: BodyTimeout,
        stop: CancellationToken,
    ) -> Self {
        Self {
            service,
            gateway,
            body_timeout,
            slots: Semaphore::new(REQUESTS_IN_FLIGHT_MAX),
            waiting: Semaphore::new(REPLY_WAITERS_MAX),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// Processes one request. The future is dropped if the client disconnects.
    async fn take(
        &self,
        request: Request,
        remote: &Remote,
        record: &mut RequestLog,
    ) -> Result<RequestOutcome, RequestRejection> {
        let (head, body) = request.into_parts();
        let callback_path = self.service.callback_path();
        if head.method == Method::GET && callback_path == Some(head.uri.path()) {
            return self.come_back(&head, remote, record.trace).await;
        }
        if head.uri.path() == self.service.http_endpoint().path
            && let Some(answer) = self.service.answer_to_check(&head)
        {
            self.discard(body.into_data_stream());
            return Ok(RequestOutcome::Checked(answer));
        }
        if let Err(refusal) = self.admit(&head, &body) {
            self.discard(body.into_data_stream());
            return Err(refusal);
        }
        let body = self.read(body, &remote.permit, record).await?;
        let received = RawRequest {
            method: head.method.as_str(),
            path: head.uri.path(),
            remote: remote.address,
            headers: &head.headers,
            body: &body,
            now_s: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        };
        self.service.authenticate(&received, &head.uri).await?;
        let (event, thanks, is_answered) = match self.service.read(&received)? {
            InboundRequest::Event(event) => (*event, None, true),
            InboundRequest::Notice(event) => (*event, None, false),
            InboundRequest::Asked(event, thanks) => (*event, Some(thanks), true),
            InboundRequest::Batch(events) => return self.batch(events, remote, record).await,
            InboundRequest::Answer(answer) => {
                if let Some(reason) = answer.ignored {
                    record.ignored = Some(reason);
                    self.gateway.ignored(reason).await;
                }
                return Ok(RequestOutcome::Answered(answer));
            }
            InboundRequest::Pressed(pressed) => return self.press(*pressed, remote).await,
            InboundRequest::Confirmation(url) => return self.confirm(url, remote).await,
            InboundRequest::Page(format) => return self.page(format, remote).await,
        };
        // Acquired only now, so that slow or unauthenticated clients take no slot from others.
        let slot = self.slot()?;
        let place = match is_answered {
            true => self.place_for_reply(record.trace, &event)?,
            false => None,
        };
        remote.permit.set_working();
        // The event holds the text, so the body is freed while the orchestrator works.
        drop(body);
        record.event_id.clone_from(&event.id);
        let reply_timeout = self.service.reply_timeout();
        let submission = self
            .gateway
            .submit_within(reply_timeout, event, record.trace);
        let accepted = match submission.await {
            Ok(accepted) => accepted,
            // An error would cause the service to repeat the event, or to end the subscription.
            Err(refused)
                if refused.code == RefusalCode::Unroutable
                    && thanks.is_none()
                    && self.service.acknowledges_unroutable() =>
            {
                record.ignored = refused.ignored;
                let answer = DirectResponse::unheeded(&refused.message);
                return Ok(RequestOutcome::Answered(answer));
            }
            Err(refused) => return Err(RequestRejection::ByOrchestrator(refused)),
        };
        record.event_id = Some(accepted.event_id.clone());
        if let Some(place) = place {
            self.promise(place, &accepted).await?;
        }
        self.service.settle(self.gateway.clone()).await;
        // A request that waits for an agent takes no slot from those that wait for the
        // orchestrator.
        drop(slot);
        Ok(match thanks {
            Some(thanks) => RequestOutcome::Answered(thanks),
            None => self.replied(accepted).await,
        })
    }

    /// Submits the events of a batch in order. After an error, the sender repeats the batch, in
    /// which the accepted events are duplicates. It is answered without waiting for replies.
    async fn batch(
        &self,
        events: Vec<ConnectorEvent>,
        remote: &Remote,
        record: &mut RequestLog,
    ) -> Result<RequestOutcome, RequestRejection> {
        let _slot = self.slot()?;
        remote.permit.set_working();
        let mut results = Vec::with_capacity(events.len());
        for event in events {
            let trace = span_within(Some(record.trace), uuid::Uuid::now_v7());
            let id = event.id.clone();
            let place = self.place_for_reply(trace, &event)?;
            let reply_timeout = self.service.reply_timeout();
            let submission = self.gateway.submit_within(reply_timeout, event, trace);
            results.push(match submission.await {
                Ok(accepted) => {
                    if let Some(place) = place {
                        self.promise(place, &accepted).await?;
                    }
                    json!({"eventId": accepted.event_id, "duplicate": accepted.duplicate})
                }
                Err(refused)
                    if refused.code == RefusalCode::Unroutable
                        && self.service.acknowledges_unroutable() =>
                {
                    record.ignored = refused.ignored;
                    json!({"eventId": id, "ignored": refused.message})
                }
                Err(refused) => return Err(RequestRejection::ByOrchestrator(refused)),
            });
        }
        self.service.settle(self.gateway.clone()).await;
        Ok(RequestOutcome::Answered(DirectResponse {
            status: StatusCode::ACCEPTED,
            ..DirectResponse::ok(json!({"events": results, "traceId": record.trace.trace_id}))
        }))
    }

    /// Handles a user's return from an authorization server.
    async fn come_back(
        &self,
        head: &Parts,
        remote: &Remote,
        trace: TraceContext,
    ) -> Result<RequestOutcome, RequestRejection> {
        if self.stop.is_cancelled() {
            return Err(RequestRejection::Stopping);
        }
        let Some(event) = callback::event_of(head.uri.query().unwrap_or_default()) else {
            return Ok(RequestOutcome::CameBack(CallbackPage::NotTaken));
        };
        let _slot = self.slot()?;
        remote.permit.set_working();
        let reply_timeout = self.service.reply_timeout();
        let submission = self.gateway.submit_within(reply_timeout, event, trace);
        callback::page_of(submission.await).map(RequestOutcome::CameBack)
    }

    /// A place among the requests in progress. Acquired after the sender is authenticated.
    fn slot(&self) -> Result<SemaphorePermit<'_>, RequestRejection> {
        let slot = self.slots.try_acquire();
        slot.map_err(|_none_free| RequestRejection::Busy)
    }

    /// Handles a button press about a tool call.
    async fn press(
        &self,
        pressed: ButtonPress,
        remote: &Remote,
    ) -> Result<RequestOutcome, RequestRejection> {
        let _slot = self.slot()?;
        remote.permit.set_working();
        self.service.press(pressed).await?;
        Ok(RequestOutcome::Answered(self.service.on_pressed()))
    }

    /// Confirms a subscription of the service.
    async fn confirm(
        &self,
        url: String,
        remote: &Remote,
    ) -> Result<RequestOutcome, RequestRejection> {
        let _slot = self.slot()?;
        remote.permit.set_working();
        self.service.confirm(url).await?;
        let answer = DirectResponse::ok(json!({"confirmed": true}));
        Ok(RequestOutcome::Answered(answer))
    }

    async fn page(
        &self,
        format: PageFormat,
        remote: &Remote,
    ) -> Result<RequestOutcome, RequestRejection> {
        let _slot = self.slot()?;
        remote.permit.set_working();
        let page = self.service.page(self.gateway.clone(), format).await?;
        Ok(RequestOutcome::Page(page))
    }

    /// Decides by the head alone if the body is read.
    fn admit(&self, head: &Parts, body: &Body) -> Result<(), RequestRejection> {
        let path = head.uri.path();
        if path != self.service.http_endpoint().path
            && !self.service.further_paths().contains(&path)
        {
            return Err(RequestRejection::NotFound);
        }
        let allowed = self.service.method();
        let is_head = head.method == Method::HEAD && allowed == Method::GET.as_str();
        if head.method.as_str() != allowed && !is_head {
            return Err(RequestRejection::WrongMethod { allowed });
        }
        if self.stop.is_cancelled() {
            return Err(RequestRejection::Stopping);
        }
        if head.headers.len() > HEADERS_MAX {
            return Err(RequestRejection::TooManyHeaders { max: HEADERS_MAX });
        }
        let max = self.service.http_endpoint().body_bytes_max;
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > max {
            return Err(RequestRejection::TooLarge { max });
        }
        Ok(())
    }

    /// Reads the body; at most the limit plus one read buffer is held in memory.
    async fn read(
        &self,
        body: Body,
        permit: &ConnectionPermit,
        record: &mut RequestLog,
    ) -> Result<Vec<u8>, RequestRejection> {
        let max = self.service.http_endpoint().body_bytes_max;
        let mut stream = body.into_data_stream();
        let mut whole = Vec::new();
        let begun = goondan_clock::Instant::now();
        permit.set_sending(0);
        loop {
            let until = begun + self.body_timeout.after(whole.len());
            let Ok(next) = timeout_at(until, stream.next()).await else {
                let timeout_ms = (until - begun).as_millis();
                return Err(RequestRejection::TooSlow { timeout_ms });
            };
            let Some(chunk) = next else {
                return Ok(whole);
            };
            let chunk = chunk.map_err(RequestRejection::BrokenBody)?;
            record.body_bytes += chunk.len();
            if chunk.len() > max - whole.len() {
                self.discard(stream);
                return Err(RequestRejection::TooLarge { max });
            }
            whole.extend_from_slice(&chunk);
            permit.set_sending(whole.len());
        }
    }

    /// Reads the rest of a refused body and discards it, while the answer is already being sent.
    ///
    /// Closing a socket with unread bytes resets the connection, and the reset overtakes the
    /// answer: most clients would report a broken connection instead of the 413. A client that sent
    /// `Expect` gets the answer instead of a permission to send its body.
    fn discard(&self, mut stream: BodyDataStream) {
        let reading = async move {
            let mut discarded_bytes = 0;
            while let Some(Ok(chunk)) = stream.next().await {
                discarded_bytes += chunk.len();
                if discarded_bytes > DISCARDED_BYTES_MAX {
                    break;
                }
            }
        };
        self.tasks.spawn(async move {
            // The connection of a slower sender is closed; this is only best effort.
            timeout(Duration::from_millis(DISCARD_TIMEOUT_MS), reading)
                .await
                .ok();
        });
    }
}

/// Answers one request and logs it.
pub(crate) async fn receive(
    State(listener): State<Arc<Listener>>,
    Extension(remote): Extension<Remote>,
    request: Request,
) -> Response<Body> {
    let trace = trace_of(request.headers(), uuid::Uuid::now_v7());
    let mut record = RequestLog::open(&request, remote.address, trace);
    let outcome = listener.take(request, &remote, &mut record).await;
    remote.permit.set_waiting();
    let outcome = outcome.unwrap_or_else(RequestOutcome::Refused);
    let response = to_response(listener.service.as_ref(), &outcome, trace);
    record.close(&outcome, response.status());
    response
}

/// The span of a request: within the caller's trace if its head names exactly one, otherwise the
/// root of a new trace. `fresh` supplies the new ids.
fn trace_of(headers: &HeaderMap, fresh: uuid::Uuid) -> TraceContext {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let caller = match (values.next(), values.next()) {
        (Some(value), None) => value
            .to_str()
            .ok()
            .and_then(|text| TraceContext::from_traceparent(text).ok()),
        _ => None,
    };
    span_within(caller, fresh)
}

/// Log record of one request: never its body, its query or its headers.
#[derive(Debug)]
struct RequestLog {
    trace: TraceContext,
    remote: SocketAddr,
    method: Method,
    path: String,
    since: Instant,
    event_id: Option<EventId>,
    /// Reason why the request had no effect.
    ignored: Option<IgnoreReason>,
    body_bytes: usize,
    answered: bool,
}

impl RequestLog {
    fn open(request: &Request, remote: SocketAddr, trace: TraceContext) -> Self {
        Self {
            trace,
            remote,
            method: request.method().clone(),
            path: shortened(request.uri().path()).to_owned(),
            since: Instant::now(),
            event_id: None,
            ignored: None,
            body_bytes: 0,
            answered: false,
        }
    }

    fn close(mut self, outcome: &RequestOutcome, status: StatusCode) {
        self.answered = true;
        let code = match outcome {
            RequestOutcome::Refused(refusal) => Some(refusal.status().1),
            RequestOutcome::CameBack(CallbackPage::NotTaken) => Some("not_taken"),
            RequestOutcome::Replied(_, TurnOutcome::Failed { .. }) => Some(FAILED),
            RequestOutcome::CameBack(CallbackPage::Taken)
            | RequestOutcome::Accepted(_)
            | RequestOutcome::Replied(..)
            | RequestOutcome::Answered(_)
            | RequestOutcome::Checked(_)
            | RequestOutcome::Page(_) => None,
        };
        self.log("request answered", Some(status), code);
    }

    fn log(&self, message: &str, status: Option<StatusCode>, code: Option<&str>) {
        tracing::info!(
            trace_id = %self.trace.trace_id,
            span_id = %self.trace.span_id,
            remote = %self.remote,
            method = self.method.as_str(),
            path = self.path,
            status = status.map(|status| status.as_u16()),
            code,
            event_id = self.event_id.as_ref().map(EventId::as_str),
            ignored = self.ignored.map(IgnoreReason::as_str),
            bytes = self.body_bytes,
            duration_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            "{message}"
        );
    }
}

/// A request whose client disconnects is dropped in progress and still gets its log line.
impl Drop for RequestLog {
    fn drop(&mut self) {
        if !self.answered {
            self.log("client disconnected before its answer", None, None);
        }
    }
}

/// Truncates a text to [`NOTE_BYTES_MAX`].
pub(crate) fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(NOTE_BYTES_MAX);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use goondan_protocol::trace::TraceId;

    use super::*;

    #[test]
    fn notes_are_cut_between_characters() {
        let text = "가".repeat(NOTE_BYTES_MAX);
        let cut = shortened(&text);
        assert!(cut.len() <= NOTE_BYTES_MAX && cut.len() > NOTE_BYTES_MAX - 3);
        assert!(text.starts_with(cut));
    }

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn trace(headers: &[&str]) -> TraceContext {
        let mut map = HeaderMap::new();
        for value in headers {
            map.append(TRACEPARENT, value.parse().unwrap());
        }
        trace_of(&map, uuid::Uuid::from_u128(7))
    }

    #[test]
    fn body_timeout_grows_with_received_bytes() {
        let timeout = BodyTimeout {
            whole: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        };
        let rate = usize::try_from(BODY_RATE_MIN_BYTES_S).unwrap();
        for (received_bytes, seconds) in [(0, 5), (rate, 6), (25 * rate, 30), (usize::MAX, 30)] {
            let allowed = timeout.after(received_bytes);
            assert_eq!(allowed, Duration::from_secs(seconds), "{received_bytes}");
        }
    }

    #[test]
    fn request_span_is_a_child_of_the_callers_trace() {
        let ours = trace(&[CALLER]);
        let caller = TraceContext::from_traceparent(CALLER).unwrap();
        assert_eq!(ours.trace_id, caller.trace_id);
        assert_eq!(ours.parent_span_id, Some(caller.span_id));
        assert_ne!(ours.span_id, caller.span_id);
    }

    #[test]
    fn without_one_usable_trace_a_new_one_begins() {
        for headers in [&[][..], &["garbage"], &[CALLER, CALLER]] {
            let ours = trace(headers);
            assert_eq!(ours.trace_id, TraceId::from_uuid(uuid::Uuid::from_u128(7)));
            assert_eq!(ours.parent_span_id, None);
        }
    }
}
