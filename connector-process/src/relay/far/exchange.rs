//! Open requests between the local connector and the relay. Pure: frames go in, frames come out.
//!
//! Both sides number their requests, and a restarted side counts from the start again. Numbers of
//! one side are therefore never passed to the other unchanged.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use goondan_clock::Instant;
use goondan_protocol::call::{
    CallCancel, CallError, CallErrorCode, CallId, CallOutcome, CallPiece, CallResult,
};
use goondan_protocol::decision::DecisionVerdict;
use goondan_protocol::envelope::{Address, Envelope, MessageError};
use goondan_protocol::ids::EventId;
use goondan_protocol::ipc::{
    EnvelopeHeader, EventRefused, Pong, RefusalCode, StateRefused, Status, ToConnector,
    ToOrchestrator,
};
use goondan_protocol::question::QuestionRefused;
use goondan_protocol::reply::ReplyForget;
use goondan_protocol::trace::TraceContext;
use uuid::Uuid;

use crate::limits::{RELAY_UNANSWERED_BYTES_MAX, RELAY_UNANSWERED_MAX, REPLY_TIMEOUT_MS};
use crate::relay::wire::WireError;

/// Frames to send as a result.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// To the relay, if it is connected.
    pub(super) to_relay: Vec<Bytes>,
    pub(super) to_connector: Vec<Bytes>,
    /// True if the connector has sent its last message.
    pub(super) is_over: bool,
}

/// An unanswered request of the connector to the relay.
#[derive(Debug)]
struct UnansweredRequest {
    /// The connector's own number of the request.
    request: u64,
    kind: ExchangeKind,
    /// The frame to the relay, sent again on each link.
    frame: Bytes,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangeKind {
    Event,
    State,
    /// Can take as long as a turn.
    Reply,
}

/// Open requests and calls.
#[derive(Debug)]
pub(super) struct OpenExchanges {
    me: Address,
    next: u64,
    open: BTreeMap<u64, UnansweredRequest>,
    open_bytes: usize,
    /// The relay's call ids, by the ids that the connector got.
    calls: HashMap<CallId, CallId>,
    /// Latest status of the connector.
    status: Option<Status>,
}

impl OpenExchanges {
    /// Creates an empty exchange for the connection of this address.
    pub(super) fn new(me: Address) -> Self {
        Self {
            me,
            next: 1,
            open: BTreeMap::new(),
            open_bytes: 0,
            calls: HashMap::new(),
            status: None,
        }
    }

    fn up(&self, message: &ToOrchestrator) -> Result<Bytes, MessageError> {
        let head = EnvelopeHeader::new(self.me.clone(), Address::Orchestrator);
        message.to_frame(&head).map(Bytes::from)
    }

    fn down(&self, message: &ToConnector, answers: Option<u64>) -> Result<Bytes, MessageError> {
        let head = EnvelopeHeader::new(Address::Orchestrator, self.me.clone()).answering(answers);
        message.to_frame(&head).map(Bytes::from)
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Handles a frame of the connector. `fresh` becomes the id of an event without one.
    ///
    /// # Errors
    ///
    /// [`WireError`] if a connector may not send it.
    pub(super) fn of_connector(
        &mut self,
        frame: &[u8],
        (now, fresh): (Instant, Uuid),
    ) -> Result<Frames, WireError> {
        let envelope = Envelope::from_frame(frame)?;
        let mut frames = Frames::default();
        match ToOrchestrator::from_envelope(&envelope)? {
            ToOrchestrator::Pong(_) | ToOrchestrator::Confined(_) => {}
            ToOrchestrator::ShutdownAck(_) => frames.is_over = true,
            ToOrchestrator::Status(status) => {
                self.status = Some(status.clone());
                frames
                    .to_relay
                    .push(self.up(&ToOrchestrator::Status(status))?);
            }
            ToOrchestrator::EventIgnored(ignored) => {
                let ignored = ToOrchestrator::EventIgnored(ignored);
                frames.to_relay.push(self.up(&ignored)?);
            }
            ToOrchestrator::CallPiece(CallPiece { call_id, piece }) => {
                if let Some(call_id) = self.calls.get(&call_id).copied() {
                    let piece = ToOrchestrator::CallPiece(CallPiece { call_id, piece });
                    frames.to_relay.push(self.up(&piece)?);
                }
            }
            ToOrchestrator::CallResult(result) => {
                if let Some(call_id) = self.calls.remove(&result.call_id) {
                    let result = ToOrchestrator::CallResult(CallResult { call_id, ..result });
                    frames.to_relay.push(self.up(&result)?);
                }
            }
            ToOrchestrator::ReplyForget(forget) => {
                frames.to_relay.extend(self.forget(&forget.request_ids)?);
            }
            ToOrchestrator::QuestionWithdraw(_) => {}
            ToOrchestrator::DecisionsFollow(_) => {
                tracing::warn!("tool calls that wait for a person are not relayed");
            }
            message => return self.ask(&envelope, message, (now, fresh)),
        }
        Ok(frames)
    }

    /// Keeps a request until it is answered.
    fn ask(
        &mut self,
        envelope: &Envelope,
        message: ToOrchestrator,
        (now, fresh): (Instant, Uuid),
    ) -> Result<Frames, WireError> {
        let out_of_turn = |kind: &str| WireError::OutOfTurn {
            kind: kind.to_owned(),
            when: "in a relay",
        };
        let Some(request) = envelope.id else {
            return Err(out_of_turn(message.kind()));
        };
        let mut frames = Frames::default();
        let mut answer = |exchange: &Self, message| -> Result<Frames, WireError> {
            let answer = exchange.down(&message, Some(request))?;
            frames.to_connector.push(answer);
            Ok(std::mem::take(&mut frames))
        };
        let (kind, message) = match message {
            ToOrchestrator::Event(mut event) => {
                // The event must stay the same when it is sent again.
                event.id = event.id.or_else(|| EventId::new(fresh.to_string()).ok());
                (ExchangeKind::Event, ToOrchestrator::Event(event))
            }
            state @ (ToOrchestrator::StateGet(_) | ToOrchestrator::StateSet(_)) => {
                (ExchangeKind::State, state)
            }
            reply @ ToOrchestrator::ReplyAwait(_) => (ExchangeKind::Reply, reply),
            ToOrchestrator::QuestionAsk(_) => {
                let message = "a question to a person is not relayed".to_owned();
                let refused = ToConnector::QuestionRefused(QuestionRefused { message });
                return answer(self, refused);
            }
            ToOrchestrator::DecisionPress(_) => {
                let message = "an approval is not relayed".to_owned();
                let verdict = ToConnector::DecisionVerdict(DecisionVerdict::NotAllowed { message });
                return answer(self, verdict);
            }
            other => return Err(out_of_turn(other.kind())),
        };
        let number = self.number();
        let head = EnvelopeHeader {
            trace: envelope.trace,
            ..EnvelopeHeader::new(self.me.clone(), Address::Orchestrator).asking(number)
        };
        let frame = Bytes::from(message.to_frame(&head)?);
        let is_full = self.open.len() >= RELAY_UNANSWERED_MAX
            || (!self.open.is_empty()
                && self.open_bytes + frame.len() > RELAY_UNANSWERED_BYTES_MAX);
        if is_full {
            return answer(self, not_now(kind, "too much waits for the relay"));
        }
        self.open_bytes += frame.len();
        let open = UnansweredRequest {
            request,
            kind,
            frame: frame.clone(),
            since: now,
        };
        self.open.insert(number, open);
        frames.to_relay.push(frame);
        Ok(frames)
    }

    fn close(&mut self, number: u64) -> Option<UnansweredRequest> {
        let open = self.open.remove(&number)?;
        self.open_bytes -= open.frame.len();
        Some(open)
    }

    /// Withdraws reply requests at the relay, by the connector's own numbers.
    fn forget(&mut self, requests: &[u64]) -> Result<Option<Bytes>, WireError> {
        let forgotten = self.open.iter().filter(|(_, open)| {
            open.kind == ExchangeKind::Reply && requests.contains(&open.request)
        });
        let request_ids: Vec<u64> = forgotten.map(|(number, _)| *number).collect();
        if request_ids.is_empty() {
            return Ok(None);
        }
        for number in &request_ids {
            self.close(*number);
        }
        let forget = ToOrchestrator::ReplyForget(ReplyForget { request_ids });
        Ok(Some(self.up(&forget)?))
    }

    /// Handles a frame of the relay.
    ///
    /// # Errors
    ///
    /// [`WireError`] if a relay may not send it.
    pub(super) fn of_relay(&mut self, frame: &[u8]) -> Result<Frames, WireError> {
        let envelope = Envelope::from_frame(frame)?;
        let mut frames = Frames::default();
        match ToConnector::from_envelope(&envelope)? {
            ToConnector::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                frames.to_relay.push(self.up(&pong)?);
            }
            ToConnector::Call(mut call) => {
                let number = CallId(self.number());
                self.calls.insert(number, call.call_id);
                call.call_id = number;
                let call = self.in_trace(&ToConnector::Call(call), envelope.trace)?;
                frames.to_connector.push(call);
            }
            ToConnector::CallCancel(cancel) => {
                let mut calls = self.calls.iter();
                let known = calls.find(|(_, theirs)| **theirs == cancel.call_id);
                if let Some(call_id) = known.map(|(own, _)| *own) {
                    self.calls.remove(&call_id);
                    frames.to_connector.push(self.cancel(call_id)?);
                }
            }
            answer @ (ToConnector::EventAccepted(_)
            | ToConnector::EventRefused(_)
            | ToConnector::State(_)
            | ToConnector::StateKept(_)
            | ToConnector::StateRefused(_)
            | ToConnector::Reply(_)) => {
                // The request may have been withdrawn.
                if let Some(open) = envelope.in_reply_to.and_then(|number| self.close(number)) {
                    let answer = self.down(&answer, Some(open.request))?;
                    frames.to_connector.push(answer);
                }
            }
            other => {
                return Err(WireError::OutOfTurn {
                    kind: other.kind().to_owned(),
                    when: "in a relay",
                });
            }
        }
        Ok(frames)
    }

    fn in_trace(
        &self,
        message: &ToConnector,
        trace: Option<TraceContext>,
    ) -> Result<Bytes, MessageError> {
        let head = EnvelopeHeader::new(Address::Orchestrator, self.me.clone());
        message
            .to_frame(&EnvelopeHeader { trace, ..head })
            .map(Bytes::from)
    }

    fn cancel(&self, call_id: CallId) -> Result<Bytes, MessageError> {
        self.down(&ToConnector::CallCancel(CallCancel { call_id }), None)
    }

    /// First frames on a new link: the connector's status and all open requests, in order.
    ///
    /// # Errors
    ///
    /// [`WireError`] if serialization fails.
    pub(super) fn again(&self) -> Result<Vec<Bytes>, WireError> {
        let status = self.status.clone().map(ToOrchestrator::Status);
        let status = status.map(|status| self.up(&status)).transpose()?;
        let open = self.open.values().map(|open| open.frame.clone());
        Ok(status.into_iter().chain(open).collect())
    }

    /// Handles the loss of the link: cancels the relay's calls. Returns frames for the connector.
    ///
    /// # Errors
    ///
    /// [`WireError`] if serialization fails.
    pub(super) fn lose_link(&mut self) -> Result<Vec<Bytes>, WireError> {
        let calls = std::mem::take(&mut self.calls);
        let cancelled = calls.into_keys().map(|call_id| Ok(self.cancel(call_id)?));
        cancelled.collect()
    }

    /// Handles the exit of the connector: drops its requests and aborts the calls it worked on.
    /// Returns frames for the relay.
    ///
    /// # Errors
    ///
    /// [`WireError`] if serialization fails.
    pub(super) fn lose_connector(&mut self, reason: &str) -> Result<Vec<Bytes>, WireError> {
        let replies = self
            .open
            .iter()
            .filter(|(_, open)| open.kind == ExchangeKind::Reply);
        let request_ids: Vec<u64> = replies.map(|(number, _)| *number).collect();
        self.open.clear();
        self.open_bytes = 0;
        let mut told = Vec::new();
        if !request_ids.is_empty() {
            let forget = ToOrchestrator::ReplyForget(ReplyForget { request_ids });
            told.push(self.up(&forget)?);
        }
        for (_, call_id) in std::mem::take(&mut self.calls) {
            let message = format!("the connector {reason}; outcome unknown");
            let error = CallError::new(CallErrorCode::Interrupted, message);
            let outcome = CallOutcome::Error(error.of_unknown_outcome());
            let result = ToOrchestrator::CallResult(CallResult {
                call_id,
                outcome,
                looked_back: None,
            });
            told.push(self.up(&result)?);
        }
        let status = Status {
            ready: false,
            detail: format!("the connector {reason}"),
            token: None,
        };
        self.status = Some(status.clone());
        told.push(self.up(&ToOrchestrator::Status(status))?);
        Ok(told)
    }

    /// Refuses requests that exceeded the connector's own time limit. The daemon may have accepted
    /// an event anyway, so the connector must send the same event again.
    ///
    /// # Errors
    ///
    /// [`WireError`] if serialization fails.
    pub(super) fn expire(&mut self, now: Instant) -> Result<Vec<Bytes>, WireError> {
        let limit = Duration::from_millis(REPLY_TIMEOUT_MS);
        let late = self
            .open
            .iter()
            .filter(|(_, open)| open.kind != ExchangeKind::Reply && now - open.since >= limit);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        let closed: Vec<UnansweredRequest> =
            late.into_iter().filter_map(|it| self.close(it)).collect();
        let refused = closed.into_iter().map(|open| {
            let refused = not_now(open.kind, "the relay did not answer in time");
            Ok(self.down(&refused, Some(open.request))?)
        });
        refused.collect()
    }
}

/// A refusal that allows a later retry.
fn not_now(kind: ExchangeKind, message: &str) -> ToConnector {
    let message = message.to_owned();
    match kind {
        ExchangeKind::Event => {
            ToConnector::EventRefused(EventRefused::new(RefusalCode::Unavailable, message))
        }
        ExchangeKind::State => ToConnector::StateRefused(StateRefused { message }),
        ExchangeKind::Reply => {
            ToConnector::Reply(Box::new(goondan_protocol::reply::Reply::Open { message }))
        }
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
