//! The daemon's end of a link: forwards messages of the connector on the other machine to the
//! orchestrator, and the answers back.
//!
//! The other side has the trust of any connector of this connection: it submits events in the
//! connection's name and stores its state. A message that no connector may send ends the link.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use goondan_clock::sleep;
use goondan_protocol::decision::DecisionVerdict;
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::ipc::{
    EnvelopeHeader, EventRefused, Ping, RefusalCode, State, StateKept, StateRefused, Status,
    ToConnector, ToOrchestrator,
};
use goondan_protocol::question::QuestionRefused;
use goondan_protocol::reply::Reply;
use goondan_protocol::trace::TraceContext;
use tokio_util::sync::CancellationToken;

use super::calls::{CallNews, RelayedCalls};
use super::wire::{Queue, Wire, WireError, next_frame, write_all};
use crate::gateway::{Gateway, StatusReporter, span_within};
use crate::limits::{
    NOTE_BYTES_MAX, RELAY_PING_MS, RELAY_UNANSWERED_BYTES_MAX, RELAY_UNANSWERED_MAX,
    REPLY_TIMEOUT_MS,
};

/// Relay state that every link uses.
pub(super) struct RelayContext<'n> {
    pub(super) me: &'n Address,
    pub(super) gateway: &'n Gateway,
    pub(super) calls: &'n RelayedCalls,
    /// Status prefix that names the connected client.
    pub(super) who: String,
}

/// A request of the other side with a pending answer.
type PendingPeerReply = BoxFuture<'static, PeerReply>;

/// An answered request of the other side.
struct PeerReply {
    request: u64,
    bytes: usize,
    answer: ToConnector,
}

struct ClientLink<'n> {
    near: &'n RelayContext<'n>,
    queue: Queue,
    answering: FuturesUnordered<PendingPeerReply>,
    /// Total size of the frames of pending requests.
    answering_bytes: usize,
    /// Status reports of the other side.
    telling: StatusReporter,
    /// Reply requests that can be withdrawn.
    replies: HashMap<u64, CancellationToken>,
}

impl RelayContext<'_> {
    /// Serves a welcomed link until it ends or `cut` is canceled. No request is lost with it,
    /// because the other side sends open requests again.
    ///
    /// # Errors
    ///
    /// The reason for the end, unless it was cut.
    pub(super) async fn serve(&self, wire: Wire, cut: &CancellationToken) -> Result<(), WireError> {
        let (queue, frames) = Queue::new();
        let Wire {
            mut incoming,
            outgoing,
            heard,
        } = wire;
        let mut link = ClientLink {
            near: self,
            queue: queue.clone(),
            answering: FuturesUnordered::new(),
            answering_bytes: 0,
            telling: self.gateway.telling(),
            replies: HashMap::new(),
        };
        self.calls.connect(queue);
        let serving = async {
            let mut writing = std::pin::pin!(write_all(frames, outgoing));
            let mut pinging = std::pin::pin!(sleep(Duration::from_millis(RELAY_PING_MS)));
            loop {
                tokio::select! {
                    () = cut.cancelled() => return Ok(()),
                    frame = next_frame(&mut incoming) => link.hear(&frame?)?,
                    Some(answered) = link.answering.next() => link.answer(&answered)?,
                    () = link.telling.reported() => {}
                    result = &mut writing => return result,
                    () = heard.silence() => return Err(WireError::Silent),
                    () = &mut pinging => {
                        link.say(&ToConnector::Ping(Ping { nonce: 0 }), None)?;
                        pinging.set(sleep(Duration::from_millis(RELAY_PING_MS)));
                    }
                }
            }
        };
        let result = serving.await;
        self.calls.disconnect();
        result
    }

    /// The status shown to people, based on the other side's report.
    fn shown_status(&self, said: Status) -> Status {
        let Status {
            ready,
            detail,
            token,
        } = said;
        let detail: String = detail.chars().take(NOTE_BYTES_MAX).collect();
        Status {
            ready,
            detail: format!("{}: {detail}", self.who),
            // A client with a rejected token is not ready.
            token: token.filter(|_| !ready),
        }
    }
}

impl ClientLink<'_> {
    fn say(&self, message: &ToConnector, in_reply_to: Option<u64>) -> Result<(), WireError> {
        let head =
            EnvelopeHeader::new(Address::Orchestrator, self.near.me.clone()).answering(in_reply_to);
        self.queue.put(message.to_frame(&head)?)
    }

    /// Sends the answer to a request.
    fn answer(&mut self, answered: &PeerReply) -> Result<(), WireError> {
        self.answering_bytes -= answered.bytes;
        self.replies.remove(&answered.request);
        self.say(&answered.answer, Some(answered.request))
    }

    /// Handles one frame without waiting, because the answers to earlier frames would wait too.
    fn hear(&mut self, frame: &[u8]) -> Result<(), WireError> {
        let envelope = Envelope::from_frame(frame)?;
        match ToOrchestrator::from_envelope(&envelope)? {
            ToOrchestrator::Pong(_) | ToOrchestrator::Confined(_) => Ok(()),
            ToOrchestrator::Status(status) => {
                self.telling.tell(self.near.shown_status(status));
                Ok(())
            }
            ToOrchestrator::EventIgnored(it) => {
                self.near.gateway.try_ignored(it.reason);
                Ok(())
            }
            ToOrchestrator::CallPiece(it) => {
                self.near.calls.tell(it.call_id, CallNews::Piece(it.piece));
                Ok(())
            }
            ToOrchestrator::CallResult(it) => {
                self.near.calls.tell(it.call_id, CallNews::End(it.outcome));
                Ok(())
            }
            ToOrchestrator::ReplyForget(forget) => {
                for request in forget.request_ids {
                    if let Some(forgotten) = self.replies.remove(&request) {
                        forgotten.cancel();
                    }
                }
                Ok(())
            }
            message => self.ask(&envelope, message, frame.len()),
        }
    }

    /// Forwards a request whose frame has `bytes` bytes.
    fn ask(
        &mut self,
        envelope: &Envelope,
        message: ToOrchestrator,
        bytes: usize,
    ) -> Result<(), WireError> {
        let out_of_turn = |kind: &str| WireError::OutOfTurn {
            kind: kind.to_owned(),
            when: "in a relay",
        };
        let Some(request) = envelope.id else {
            return Err(out_of_turn(message.kind()));
        };
        if !self.has_room_for(bytes) {
            return Err(WireError::TooMuch);
        }
        let gateway = self.near.gateway.clone();
        let trace = envelope.trace;
        let answer: BoxFuture<'static, ToConnector> = match message {
            ToOrchestrator::Event(_) if gateway.intake_over().is_cancelled() => {
                // The other side keeps the event and sends it again.
                let refused = ToConnector::EventRefused(EventRefused::new(
                    RefusalCode::Unavailable,
                    "the relay is stopping",
                ));
                Box::pin(std::future::ready(refused))
            }
            ToOrchestrator::Event(event) => {
                Box::pin(async move { submit(&gateway, *event, trace).await })
            }
            ToOrchestrator::StateGet(_) => Box::pin(async move {
                match gateway.state().await {
                    Ok(state) => ToConnector::State(State { state }),
                    Err(message) => ToConnector::StateRefused(StateRefused { message }),
                }
            }),
            ToOrchestrator::StateSet(set) => Box::pin(async move {
                match gateway.keep(set.state).await {
                    Ok(()) => ToConnector::StateKept(StateKept {}),
                    Err(message) => ToConnector::StateRefused(StateRefused { message }),
                }
            }),
            ToOrchestrator::ReplyAwait(asked) => {
                let forgotten = CancellationToken::new();
                self.replies.insert(request, forgotten.clone());
                Box::pin(async move {
                    let reply = tokio::select! {
                        reply = gateway.reply(asked) => reply,
                        () = forgotten.cancelled() => None,
                    };
                    let message = "the relay is stopping".to_owned();
                    ToConnector::Reply(Box::new(reply.unwrap_or(Reply::Open { message })))
                })
            }
            ToOrchestrator::QuestionAsk(_) => {
                let message = "a relay does not forward questions to people".to_owned();
                let refused = ToConnector::QuestionRefused(QuestionRefused { message });
                Box::pin(std::future::ready(refused))
            }
            ToOrchestrator::DecisionPress(_) => {
                let message = "a relay does not forward approvals".to_owned();
                let verdict = DecisionVerdict::NotAllowed { message };
                Box::pin(std::future::ready(ToConnector::DecisionVerdict(verdict)))
            }
            other => return Err(out_of_turn(other.kind())),
        };
        self.answering_bytes += bytes;
        self.answering.push(Box::pin(async move {
            let answer = answer.await;
            PeerReply {
                request,
                bytes,
                answer,
            }
        }));
        Ok(())
    }

    /// True if another request of this size may be open. The other side observes the same limit.
    fn has_room_for(&self, bytes: usize) -> bool {
        let fits = self.answering_bytes + bytes <= RELAY_UNANSWERED_BYTES_MAX;
        self.answering.len() < RELAY_UNANSWERED_MAX && (fits || self.answering.is_empty())
    }
}

async fn submit(
    gateway: &Gateway,
    event: goondan_protocol::event::ConnectorEvent,
    seen: Option<TraceContext>,
) -> ToConnector {
    if event.id.is_none() {
        // It would become a different event when sent again.
        return ToConnector::EventRefused(EventRefused::new(
            RefusalCode::Invalid,
            "an event without an id is not relayed",
        ));
    }
    let trace = seen.unwrap_or_else(|| span_within(None, uuid::Uuid::now_v7()));
    let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
    match gateway.submit_within(reply_timeout, event, trace).await {
        Ok(accepted) => ToConnector::EventAccepted(accepted),
        Err(refused) => ToConnector::EventRefused(refused),
    }
}
