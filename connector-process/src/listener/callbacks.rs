//! Delivery of replies to a configured address or to the chat of the event (`MSG-13`, `CONN-2`).
//!
//! * `target`: the address, and one POST to it.
//! * `answered_turns`: turns whose agent wrote to the chat itself.
//!
//! # Invariants
//!
//! * A callback is acknowledged only after it is stored durably with the connection's state, and
//!   stays stored until it is delivered or abandoned. A process killed between delivery and its
//!   record delivers again: at-least-once.
//! * Only the configuration determines the address of a reply.

mod answered_turns;
mod target;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use goondan_protocol::JsonObject;
use goondan_protocol::event::{ConnectorEvent, TurnOutcome};
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey};
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::reply::ReplyAwait;
use goondan_protocol::trace::TraceContext;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use answered_turns::EarlyWrite;
pub(crate) use answered_turns::{AnsweredTurns, TurnMark};
pub(crate) use target::ReplyTarget;

use crate::gateway::Gateway;
use crate::limits::{CALLBACKS_PROMISED_MAX, DELIVERED_EVENTS_MAX, REQUESTS_IN_FLIGHT_MAX};

/// Destination of replies.
pub(crate) trait ReplyDelivery: Send + Sync + 'static {
    /// Delivers a reply, or abandons it. Without an outcome, no reply exists or ever will.
    fn deliver(
        self: Arc<Self>,
        reply: PendingReply,
        outcome: Option<TurnOutcome>,
    ) -> BoxFuture<'static, ()>;

    /// The connection, if agents can write to its chats.
    fn connection(&self) -> Option<ConnectionName> {
        None
    }

    /// The location of an event, from its metadata. Turns whose agent wrote there are marked.
    fn place(&self, _facts: &JsonObject) -> Option<String> {
        None
    }

    /// The metadata that [`Self::deliver`] needs; the rest is not stored.
    fn facts(&self) -> &'static [&'static str] {
        &[]
    }

    /// True if a repeated event gets no second reply.
    fn delivers_once(&self) -> bool {
        false
    }
}

/// A reply to deliver.
#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(crate) event_id: EventId,
    pub(crate) trace: TraceContext,
    /// Metadata of the event.
    pub(crate) facts: JsonObject,
    pub(crate) mark: TurnMark,
}

/// A pending reply, as stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingCallback {
    event_id: EventId,
    instance_key: InstanceKey,
}

/// A pending reply with the trace in which the event was first received, as `traceparent` encodes
/// it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCallback {
    #[serde(flatten)]
    promised: PendingCallback,
    traceparent: String,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    facts: JsonObject,
    /// True if the agent has written to the chat in this turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_answered: bool,
}

/// Stored state of such a connection.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredCallbacks {
    #[serde(default)]
    callbacks: Vec<StoredCallback>,
    /// The latest events whose replies were delivered, if each is delivered once.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    delivered: VecDeque<EventId>,
    /// Messages of agents in turns whose reply was not pending yet.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    early: VecDeque<EarlyWrite>,
}

/// A slot for a pending reply.
pub(crate) struct CallbackSlot {
    permit: OwnedSemaphorePermit,
    trace: TraceContext,
    facts: JsonObject,
    mark: TurnMark,
}

struct CallbackSubmission {
    promised: PendingCallback,
    place: CallbackSlot,
    kept: oneshot::Sender<Result<(), String>>,
}

/// Handle to schedule reply callbacks.
pub(crate) struct Callbacks {
    promises: mpsc::Sender<CallbackSubmission>,
    places: Arc<Semaphore>,
    target: Arc<dyn ReplyDelivery>,
    answered: AnsweredTurns,
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

impl Callbacks {
    /// Creates a handle and its worker for this target.
    pub(crate) fn new(target: impl ReplyDelivery) -> (Self, CallbackWorker) {
        let target: Arc<dyn ReplyDelivery> = Arc::new(target);
        let (answered, marked) = AnsweredTurns::new(target.connection());
        // One slot per request in progress, so no request waits here.
        let (sender, promises) = mpsc::channel(REQUESTS_IN_FLIGHT_MAX);
        let places = Arc::new(Semaphore::new(CALLBACKS_PROMISED_MAX));
        let worker = CallbackWorker {
            target: Arc::clone(&target),
            promises,
            places: Arc::clone(&places),
            answered: answered.clone(),
            marked,
            pending: BTreeMap::new(),
            delivered: VecDeque::new(),
            deliveries: JoinSet::new(),
        };
        let callbacks = Self {
            promises: sender,
            places,
            target,
            answered,
        };
        (callbacks, worker)
    }

    /// Turns whose agents write to the chat.
    pub(crate) fn answered(&self) -> AnsweredTurns {
        self.answered.clone()
    }

    /// Reserves a slot for this event, if one is free.
    pub(crate) fn place(
        &self,
        trace: TraceContext,
        event: &ConnectorEvent,
    ) -> Option<CallbackSlot> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let place = self.target.place(&event.metadata);
        let mark = self.answered.begin(event.id.as_ref(), place);
        let mut facts = event.metadata.clone();
        facts.retain(|name, _| self.target.facts().contains(&name.as_str()));
        Some(CallbackSlot {
            permit,
            trace,
            facts,
            mark,
        })
    }

    /// Schedules the callback for an event's reply. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(crate) async fn promise(
        &self,
        place: CallbackSlot,
        accepted: &EventAccepted,
    ) -> Result<(), String> {
        let stopping = || "the connector is stopping".to_owned();
        let Some(instance_key) = accepted.instance_key.clone() else {
            return Err("the event has no conversation".to_owned());
        };
        let promised = PendingCallback {
            event_id: accepted.event_id.clone(),
            instance_key,
        };
        let (kept, answer) = oneshot::channel();
        let promise = CallbackSubmission {
            promised,
            place,
            kept,
        };
        let sent = self.promises.send(promise).await;
        sent.map_err(|_closed| stopping())?;
        answer.await.map_err(|_closed| stopping())?
    }
}

/// Runtime state of a pending reply.
#[derive(Debug)]
struct PendingCallbackState {
    trace: TraceContext,
    facts: JsonObject,
    mark: TurnMark,
    /// `None` for a reply beyond a limit that was lowered since.
    _place: Option<OwnedSemaphorePermit>,
}

/// Stores pending replies and delivers those that are ready.
pub(crate) struct CallbackWorker {
    target: Arc<dyn ReplyDelivery>,
    promises: mpsc::Receiver<CallbackSubmission>,
    places: Arc<Semaphore>,
    answered: AnsweredTurns,
    /// Requests to store that a turn was marked.
    marked: mpsc::Receiver<oneshot::Sender<()>>,
    pending: BTreeMap<PendingCallback, PendingCallbackState>,
    delivered: VecDeque<EventId>,
    deliveries: JoinSet<PendingCallback>,
}

impl CallbackWorker {
    /// Runs until it is dropped; the next process delivers the remaining replies.
    pub(crate) async fn run(mut self, gateway: Gateway) {
        self.take_up(&gateway).await;
        loop {
            tokio::select! {
                Some(promise) = self.promises.recv() => self.promise(promise, &gateway).await,
                Some(first) = self.marked.recv() => self.keep_marks(first, &gateway).await,
                Some(ended) = self.deliveries.join_next() => match ended {
                    Ok(promised) => self.end(promised, &gateway).await,
                    Err(error) => tracing::error!(%error, "failed to deliver a reply; retrying at the next start"),
                },
            }
        }
    }

    /// Loads the replies that earlier processes left pending.
    async fn take_up(&mut self, gateway: &Gateway) {
        let kept: StoredCallbacks = gateway.stored("pending replies").await;
        self.delivered = kept.delivered;
        self.answered.load_early(kept.early);
        for StoredCallback {
            promised,
            traceparent,
            facts,
            is_answered,
        } in kept.callbacks
        {
            let Ok(trace) = TraceContext::from_traceparent(&traceparent) else {
                continue;
            };
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
            let home = self.target.place(&facts);
            let mark = self.answered.begin(Some(&promised.event_id), home);
            if is_answered {
                mark.set();
            }
            let pending = PendingCallbackState {
                trace,
                facts,
                mark,
                _place: place,
            };
            self.pending.insert(promised.clone(), pending);
            self.begin(promised, gateway);
        }
    }

    /// Stores a new callback together with all others that wait, with a single sync.
    async fn promise(&mut self, first: CallbackSubmission, gateway: &Gateway) {
        let mut new = Vec::new();
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(promise) = next {
            let CallbackSubmission {
                promised,
                place,
                kept,
            } = promise;
            let is_over = self.delivered.contains(&promised.event_id);
            if !is_over && !self.pending.contains_key(&promised) {
                let pending = PendingCallbackState {
                    trace: place.trace,
                    facts: place.facts,
                    mark: place.mark,
                    _place: Some(place.permit),
                };
                self.pending.insert(promised.clone(), pending);
                new.push(promised);
            }
            told.push(kept);
            next = self.promises.try_recv().ok();
        }
        let kept = if new.is_empty() {
            Ok(())
        } else {
            self.keep(gateway).await
        };
        for promised in new {
            match &kept {
                Ok(()) => self.begin(promised, gateway),
                Err(_) => drop(self.pending.remove(&promised)),
            }
        }
        for sender in told {
            // The sender of the event may have disconnected.
            drop(sender.send(kept.clone()));
        }
    }

    /// Stores all new marks with a single sync.
    async fn keep_marks(&mut self, first: oneshot::Sender<()>, gateway: &Gateway) {
        let mut told = vec![first];
        told.extend(std::iter::from_fn(|| self.marked.try_recv().ok()));
        if let Err(reason) = self.keep(gateway).await {
            tracing::warn!(reason, "failed to record that an agent wrote to a chat");
        }
        for sender in told {
            // The call may have been canceled.
            sender.send(()).ok();
        }
    }

    fn begin(&mut self, promised: PendingCallback, gateway: &Gateway) {
        let Some(pending) = self.pending.get(&promised) else {
            return;
        };
        let reply = PendingReply {
            event_id: promised.event_id.clone(),
            trace: pending.trace,
            facts: pending.facts.clone(),
            mark: pending.mark.clone(),
        };
        let (target, gateway) = (Arc::clone(&self.target), gateway.clone());
        self.deliveries.spawn(async move {
            let asked = ReplyAwait {
                instance_key: promised.instance_key.clone(),
                event_id: promised.event_id.clone(),
            };
            let outcome = gateway.outcome(&asked).await;
            target.deliver(reply, outcome).await;
            promised
        });
    }

    /// Removes a reply that was delivered or abandoned. If that cannot be stored, the reply is
    /// delivered again after a restart.
    async fn end(&mut self, promised: PendingCallback, gateway: &Gateway) {
        self.remove(promised);
        while let Some(Ok(promised)) = self.deliveries.try_join_next() {
            self.remove(promised);
        }
        if let Err(reason) = self.keep(gateway).await {
            tracing::warn!(reason, "failed to record delivered replies");
        }
    }

    fn remove(&mut self, promised: PendingCallback) {
        self.pending.remove(&promised);
        self.answered.end(&promised.event_id);
        if self.target.delivers_once() {
            if self.delivered.len() >= DELIVERED_EVENTS_MAX {
                self.delivered.pop_front();
            }
            self.delivered.push_back(promised.event_id);
        }
    }

    async fn keep(&self, gateway: &Gateway) -> Result<(), String> {
        let callbacks = self
            .pending
            .iter()
            .map(|(promised, pending)| StoredCallback {
                promised: promised.clone(),
                traceparent: pending.trace.to_traceparent(),
                facts: pending.facts.clone(),
                is_answered: pending.mark.is_set(),
            });
        let kept = StoredCallbacks {
            callbacks: callbacks.collect(),
            delivered: self.delivered.clone(),
            early: self.answered.early(),
        };
        gateway.keep_fields(&kept).await
    }
}
