//! The control socket: access control, requests and answers (`CTL-1`, `SEC-4`).
//!
//! Each connection has one task that reads requests and one that writes answers. A client that
//! sends an invalid request, or does not read its answers, loses its connection; others are not
//! affected.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt as _};
use goondan_protocol::control::{
    Call, CallKind, ControlError, EmptyResult, ErrorCode, FollowLogs, JsonRpc, LOG_LINE, LogLine,
    Notification, RpcRequest, RpcResponse, WRITE_HOLD_MS_MAX, WritesReleased,
};
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::VersionMismatch;
use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::traits::StreamCommon as _;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::codec::{FramedRead, FramedWrite};
use tokio_util::sync::CancellationToken;

use accept_backoff::AcceptBackoff;
use client::ControlClient;
use places::{ConnectionSlot, ConnectionSlots, InUse, SlotRefusal};
use socket::Socket;

use super::ancestry::{self, Descent};
use super::descriptors;
use super::event::ShellEvent;
use super::frame_memory::FrameMemory;
use super::logs::LogHub;
use super::write_gate::{WriteGate, WriteHold};
use crate::limits::{CLIENT_QUEUE_FRAMES, GREETING_TIMEOUT_MS, SOCKET_LOOK_MS};
use goondan_core::{CoreInput, Peer, RequestToken, check_person};

mod accept_backoff;
pub(super) mod client;
mod places;
pub(super) mod socket;

/// Hint for a client of another version.
const OTHER_VERSION_HINT: &str =
    "use binaries of one build; `gdn daemon shutdown` stops the daemon";

/// State shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct ControlServer {
    /// Memory for incomplete requests.
    pub(super) frames: FrameMemory,
    pub(super) events: mpsc::Sender<ShellEvent>,
    pub(super) hub: Arc<LogHub>,
    /// Recognizes the daemon's own children, and all of their descendants.
    pub(super) descent: Arc<Descent>,
    /// Gate of the daemon's writes, for backups.
    pub(super) gate: WriteGate,
    pub(super) ending: CancellationToken,
}

impl ControlServer {
    /// Accepts connections until the daemon ends.
    pub(super) async fn serve(self, mut socket: Socket) {
        let mut looks = tokio::time::interval(Duration::from_millis(SOCKET_LOOK_MS));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let places = ConnectionSlots::within(descriptors::limit());
        let mut accepting = AcceptBackoff::default();
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                stream = socket.accept() => stream,
                _ = looks.tick() => {
                    socket.restore();
                    continue;
                }
                () = self.ending.cancelled() => break,
            };
            match stream {
                Ok(stream) => {
                    accepting.worked();
                    let (server, end, in_use) =
                        (self.clone(), self.ending.child_token(), InUse::default());
                    let place = places.enter(end.clone(), in_use.clone());
                    connections.spawn(async move {
                        server.connection(stream, place, end, in_use).await;
                    });
                }
                Err(error) => {
                    let pause = accepting.failed(&error);
                    if descriptors::is_shortage(&error) {
                        places.make_room();
                    }
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.ending.cancelled() => break,
                    }
                }
            }
            while connections.try_join_next().is_some() {}
        }
        // Each connection detects the end of the daemon itself and writes its remaining frames.
        while connections.join_next().await.is_some() {}
    }

    async fn connection(
        &self,
        stream: Stream,
        mut place: ConnectionSlot,
        connection: CancellationToken,
        in_use: InUse,
    ) {
        let peer = match check_peer(&stream, &self.descent) {
            Ok(peer) => peer,
            Err(problem) => {
                tracing::warn!(problem, "control connection refused");
                return;
            }
        };
        // Both directions share the stream; it closes when both tasks have dropped it.
        let stream = Arc::new(stream);
        let (read, write) = (SharedStream(stream.clone()), SharedStream(stream));
        let (outgoing, frames) = mpsc::channel(CLIENT_QUEUE_FRAMES);
        let client = ControlClient {
            outgoing,
            connection: connection.clone(),
            peer,
            _in_use: in_use,
            _wait: None,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(write_frames(write, frames));
        let mut requests = FramedRead::new(read, self.frames.codec());
        let mut spoken = ClientDialogue::default();
        let greet_by = Instant::now() + Duration::from_millis(GREETING_TIMEOUT_MS);
        loop {
            let next = requests.next();
            let frame = tokio::select! {
                frame = async {
                    if spoken.greeting != GreetingState::None {
                        return next.await;
                    }
                    // Received frames are read before the greeting deadline is checked.
                    timeout_at(greet_by, next).await.unwrap_or(None)
                } => frame,
                () = connection.cancelled() => {
                    if place.is_replaced() {
                        // The client reads this as the answer to its next request.
                        let error = overloaded(SlotRefusal::Replaced);
                        client.send(&RpcResponse::new(None, Err(error)));
                    }
                    None
                }
            };
            let Some(frame) = frame else { break };
            if !self.on_frame(&client, &mut place, &mut spoken, frame).await {
                break;
            }
        }
        // The next steps wait for the supervisor, which can itself wait for a held write.
        drop(spoken.hold.take());
        spoken.followers.shutdown().await;
        let tokens = spoken.tokens;
        drop(
            self.events
                .send(ShellEvent::Input(CoreInput::ClientGone { tokens }))
                .await,
        );
        drop(client);
        // The supervisor releases its own handles when it is notified of the client's end.
        while tasks.join_next().await.is_some() {}
    }

    /// Handles a frame of a client; false to end the connection.
    async fn on_frame(
        &self,
        client: &ControlClient,
        place: &mut ConnectionSlot,
        spoken: &mut ClientDialogue,
        frame: Result<Bytes, FrameError>,
    ) -> bool {
        let request = match frame {
            Ok(body) => read_request(&body),
            Err(error) => Err((None, invalid(&goondan_log::error_chain(&error)))),
        };
        let RpcRequest { id, call, .. } = match request {
            Ok(request) => request,
            Err((id, error)) => {
                let is_other = error.code == ErrorCode::VersionMismatch;
                client.send(&RpcResponse::new(id, Err(error)));
                return is_other && spoken.is_of_another_version(place, client.peer);
            }
        };
        match (&call, &spoken.greeting) {
            (Call::Connect(connect), _) => {
                if let Err(mismatch) = connect.version.check() {
                    client.respond(id, Err(mismatch_error(&mismatch)));
                    return spoken.is_of_another_version(place, client.peer);
                }
            }
            (_, GreetingState::None) => {
                let error = invalid("the first request must be `daemon.connect`");
                client.respond(id, Err(error));
                return false;
            }
            (_, GreetingState::Same) | (Call::Status(_) | Call::Stop(_), GreetingState::Other) => {}
            (_, GreetingState::Other) => {
                let problem = "a client of another version can use only `daemon.status` and `daemon.shutdown`";
                let error = ControlError::new(ErrorCode::VersionMismatch, problem);
                client.respond(id, Err(error.suggest(OTHER_VERSION_HINT)));
                return false;
            }
        }
        let is_greeting = spoken.greeting == GreetingState::None;
        let placed = if is_greeting {
            place.greet(client.peer)
        } else {
            Ok(())
        };
        let client = match placed.and_then(|()| place.begin(CallKind::from(&call))) {
            Ok((wait, _in_use)) => client.waiting(wait),
            Err(no_place) => {
                client.respond(id, Err(overloaded(no_place)));
                // An admitted client stays, and may send another request.
                return !is_greeting && no_place != SlotRefusal::Replaced;
            }
        };
        if matches!(call, Call::Connect(_)) {
            spoken.greeting = GreetingState::Same;
        }
        match call {
            Call::FollowLogs(follow) => {
                let hub = self.hub.clone();
                let following = async move { follow_logs(&hub, &client, id, &follow).await };
                spoken.followers.spawn(following);
            }
            Call::HoldWrites(hold) => {
                let held = match check_person(client.peer, &Call::HoldWrites(hold)) {
                    Ok(()) => self.hold_writes(hold.max_ms).await,
                    Err(error) => Err(error),
                };
                let result = held.map(|held| spoken.hold = Some(held));
                client.respond(id, result.map(|()| json!({})));
            }
            Call::ReleaseWrites(_) => {
                let hold = spoken.hold.take();
                let held = hold.is_some_and(WriteHold::release);
                client.respond(id, Ok(json!(WritesReleased { held })));
            }
            call => spoken.tokens.push(self.forward(&client, id, call).await),
        }
        true
    }

    /// Holds the daemon's writes for a client.
    async fn hold_writes(&self, max_ms: u64) -> Result<WriteHold, ControlError> {
        if max_ms > WRITE_HOLD_MS_MAX {
            return Err(invalid(&format!(
                "`maxMs` must be at most {WRITE_HOLD_MS_MAX}"
            )));
        }
        let gate = self.gate.clone();
        let holding = tokio::task::spawn_blocking(move || gate.hold(Duration::from_millis(max_ms)));
        match holding.await {
            Ok(Ok(hold)) => {
                tracing::info!(max_ms, "writes are held for a backup");
                Ok(hold)
            }
            Ok(Err(refusal)) => {
                let error = ControlError::new(ErrorCode::Overloaded, refusal.to_string());
                Err(error.suggest("try again in a moment"))
            }
            Err(error) => Err(ControlError::new(ErrorCode::Internal, error.to_string())),
        }
    }

    async fn forward(&self, client: &ControlClient, id: u64, call: Call) -> RequestToken {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = RequestToken(NEXT.fetch_add(1, Ordering::Relaxed));
        let event = ShellEvent::Request {
            token,
            client: client.clone(),
            id,
            call: Box::new(call),
        };
        drop(self.events.send(event).await);
        token
    }
}

/// State of the conversation with a client.
#[derive(Default)]
struct ClientDialogue {
    greeting: GreetingState,
    tokens: Vec<RequestToken>,
    followers: JoinSet<()>,
    /// Ends with the connection.
    hold: Option<WriteHold>,
}

/// Version of a client, according to its greeting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GreetingState {
    /// The client has not greeted.
    #[default]
    None,
    Same,
    /// Another version, or an unreadable one. Requests with the same form in all versions are
    /// allowed (`REL-1`).
    Other,
}

impl ClientDialogue {
    /// Handles a client of another version; false to end the connection.
    fn is_of_another_version(&mut self, place: &mut ConnectionSlot, peer: Peer) -> bool {
        // The client needs this notice only once.
        let is_first = self.greeting == GreetingState::None;
        self.greeting = GreetingState::Other;
        is_first && place.greet(peer).is_ok()
    }
}

/// One direction of a stream that two tasks use.
struct SharedStream(Arc<Stream>);

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_shutdown(cx)
    }
}

/// Identifies a connecting client, if it is allowed.
fn check_peer(stream: &Stream, descent: &Descent) -> Result<Peer, String> {
    let ours = nix::unistd::geteuid().as_raw();
    let peer = stream
        .peer_creds()
        .map_err(|error| format!("unknown peer: {error}"))?;
    match peer.euid() {
        Some(theirs) if theirs == ours => {
            let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
            let Stream::UdSocket(socket) = stream;
            let standing = ancestry::standing(socket, pid, descent);
            Ok(Peer { pid, standing })
        }
        Some(theirs) => Err(format!("the peer is user {theirs}, not {ours}")),
        None => Err("the peer's user is unknown".to_owned()),
    }
}

fn invalid(problem: &str) -> ControlError {
    ControlError::new(ErrorCode::InvalidRequest, problem)
}

/// Error for a request or connection without a place, with the next step.
fn overloaded(no_place: SlotRefusal) -> ControlError {
    let suggestion = match no_place {
        SlotRefusal::Waiting(_) | SlotRefusal::OfOneClient(_) => {
            "try again in a moment, or do not wait: `gdn send --no-wait`; end unneeded clients, \
             such as `gdn logs -f` and `gdn workspace watch`"
        }
        SlotRefusal::Brief(_) | SlotRefusal::OfOneConnection(_) | SlotRefusal::Replaced => {
            "try again in a moment"
        }
    };
    ControlError::new(ErrorCode::Overloaded, no_place.to_string()).suggest(suggestion)
}

fn mismatch_error(mismatch: &VersionMismatch) -> ControlError {
    let text = format!(
        "this daemon is goondan {}, the client is goondan {}",
        mismatch.ours, mismatch.theirs
    );
    ControlError::new(ErrorCode::VersionMismatch, text).suggest(OTHER_VERSION_HINT)
}

/// Reads a request. An error contains the request's id if it could be read.
fn read_request(body: &[u8]) -> Result<RpcRequest, (Option<u64>, ControlError)> {
    #[derive(Deserialize)]
    struct RequestHeader {
        id: Option<u64>,
        method: Option<String>,
        #[serde(default)]
        params: Option<Box<RawValue>>,
    }
    serde_json::from_slice(body).map_err(|error| {
        let head: Option<RequestHeader> = serde_json::from_slice(body).ok();
        let id = head.as_ref().and_then(|head| head.id);
        let known = head.as_ref().and_then(|head| head.method.as_deref());
        // A client of another build may greet in a form that this build cannot read.
        let problem = match known {
            Some(method) if !Call::NAMES.contains(&method) => format!("unknown method `{method}`"),
            _ => format!("the request is not valid: {error}"),
        };
        let is_greeting = known == Some("daemon.connect");
        let has_params = head.is_some_and(|head| head.params.is_some());
        let error = if is_greeting && has_params {
            ControlError::new(ErrorCode::VersionMismatch, problem)
        } else {
            invalid(&problem)
        };
        (id, error)
    })
}

async fn write_frames(write: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    let mut sink = FramedWrite::new(write, FrameCodec::new());
    while let Some(frame) = frames.recv().await {
        if sink.feed(frame).await.is_err() {
            return;
        }
        // Waiting frames are written with one call.
        while let Ok(frame) = frames.try_recv() {
            if sink.feed(frame).await.is_err() {
                return;
            }
        }
        if SinkExt::<Bytes>::flush(&mut sink).await.is_err() {
            return;
        }
    }
}

async fn follow_logs(hub: &LogHub, client: &ControlClient, id: u64, follow: &FollowLogs) {
    use tokio::sync::broadcast::error::RecvError;
    let (tail, mut lines) = hub.follow();
    let chosen: Vec<Bytes> = tail.into_iter().filter(|line| follow.takes(line)).collect();
    let surplus = chosen.len().saturating_sub(follow.tail);
    for line in chosen.into_iter().skip(surplus) {
        send_line(client, id, &line).await;
    }
    if follow.follow {
        // Ends with the connection or the daemon, because this task belongs to both.
        loop {
            match lines.recv().await {
                Ok(line) if follow.takes(&line) => send_line(client, id, &line).await,
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    let at = Timestamp::from_unix_millis(goondan_log::unix_millis_now());
                    let text = format!("{missed} lines dropped: this client reads too slowly");
                    let line = goondan_log::line_head(at, "warn", &text);
                    send_line(client, id, &goondan_log::line_bytes(&line)).await;
                }
                Err(RecvError::Closed) => break,
            }
        }
    }
    let done = serde_json::to_value(EmptyResult {});
    client.respond(id, done.map_err(|error| invalid(&error.to_string())));
}

async fn send_line(client: &ControlClient, request_id: u64, line: &[u8]) {
    let Ok(line) = serde_json::from_slice::<Box<RawValue>>(line) else {
        return;
    };
    let params = LogLine { request_id, line };
    let notification = Notification {
        jsonrpc: JsonRpc,
        method: LOG_LINE,
        params,
    };
    let Ok(body) = serde_json::to_vec(&notification) else {
        return;
    };
    // Unlike an answer, a log line may wait for its reader: missed lines are counted.
    drop(client.outgoing.send(Bytes::from(body)).await);
}
