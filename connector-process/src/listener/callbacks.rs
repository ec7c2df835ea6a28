//! Delivery of replies to a configured address (`MSG-13`).
//!
//! * `target`: the address, and one POST to it.
//!
//! # Invariants
//!
//! * A callback is acknowledged only after it is stored durably with the connection's state, and
//!   stays stored until it is delivered or abandoned. A process killed between delivery and its
//!   record delivers again: at-least-once.
//! * Only the configuration determines the address of a reply.

mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::sleep;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::limits::MAX_CONNECTION_STATE_BYTES;
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

pub(crate) use target::ReplyTarget;

use super::reply_body::told;
use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{
    CALLBACK_PAUSE_FIRST_MS, CALLBACKS_PROMISED_MAX, REQUESTS_IN_FLIGHT_MAX,
    SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS,
};

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
}

/// Stored state of such a connection.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredCallbacks {
    #[serde(default)]
    callbacks: Vec<StoredCallback>,
}

/// A slot for a pending reply.
pub(crate) struct CallbackSlot(OwnedSemaphorePermit);

struct CallbackSubmission {
    promised: PendingCallback,
    trace: TraceContext,
    place: CallbackSlot,
    kept: oneshot::Sender<Result<(), String>>,
}

/// Handle to schedule reply callbacks.
#[derive(Debug)]
pub(crate) struct Callbacks {
    promises: mpsc::Sender<CallbackSubmission>,
    places: Arc<Semaphore>,
}

impl Callbacks {
    /// Creates a handle and its worker for this target.
    pub(crate) fn new(target: ReplyTarget) -> (Self, CallbackWorker) {
        // One slot per request in progress, so no request waits here.
        let (sender, promises) = mpsc::channel(REQUESTS_IN_FLIGHT_MAX);
        let places = Arc::new(Semaphore::new(CALLBACKS_PROMISED_MAX));
        let worker = CallbackWorker {
            target: Arc::new(target),
            promises,
            places: Arc::clone(&places),
            pending: BTreeMap::new(),
            deliveries: JoinSet::new(),
        };
        let callbacks = Self {
            promises: sender,
            places,
        };
        (callbacks, worker)
    }

    /// Reserves a slot, if one is free.
    pub(super) fn place(&self) -> Option<CallbackSlot> {
        Arc::clone(&self.places)
            .try_acquire_owned()
            .ok()
            .map(CallbackSlot)
    }

    /// Schedules the callback for an event's reply. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(super) async fn promise(
        &self,
        place: CallbackSlot,
        accepted: &EventAccepted,
        trace: TraceContext,
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
            trace,
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
    /// `None` for a reply beyond a limit that was lowered since.
    _place: Option<OwnedSemaphorePermit>,
}

/// Stores pending replies and delivers those that are ready.
pub(crate) struct CallbackWorker {
    target: Arc<ReplyTarget>,
    promises: mpsc::Receiver<CallbackSubmission>,
    places: Arc<Semaphore>,
    pending: BTreeMap<PendingCallback, PendingCallbackState>,
    deliveries: JoinSet<PendingCallback>,
}

impl CallbackWorker {
    /// Runs until it is dropped; the next process delivers the remaining replies.
    pub(crate) async fn run(mut self, gateway: Gateway) {
        self.take_up(&gateway).await;
        loop {
            tokio::select! {
                Some(promise) = self.promises.recv() => self.promise(promise, &gateway).await,
                Some(ended) = self.deliveries.join_next() => match ended {
                    Ok(promised) => self.end(promised, &gateway).await,
                    Err(error) => tracing::error!(%error, "failed to deliver a reply; retrying at the next start"),
                },
                else => return,
            }
        }
    }

    /// Loads the replies that earlier processes left pending.
    async fn take_up(&mut self, gateway: &Gateway) {
        let mut failures = 0;
        let state = loop {
            match gateway.state().await {
                Ok(state) => break state,
                Err(reason) => {
                    tracing::warn!(reason, "failed to read pending replies; retrying");
                }
            }
            failures += 1;
            let pause = back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
            sleep(pause).await;
        };
        let kept = state.map_or(Ok(StoredCallbacks::default()), |it| {
            serde_json::from_str(it.get())
        });
        let kept = kept.unwrap_or_else(|error: serde_json::Error| {
            tracing::error!(%error, "failed to parse pending replies; earlier replies will not be delivered");
            StoredCallbacks::default()
        });
        for StoredCallback {
            promised,
            traceparent,
        } in kept.callbacks
        {
            let Ok(trace) = TraceContext::from_traceparent(&traceparent) else {
                continue;
            };
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
            let pending = PendingCallbackState {
                trace,
                _place: place,
            };
            self.pending.insert(promised.clone(), pending);
            self.begin(promised, trace, gateway);
        }
    }

    /// Stores a new callback together with all others that wait, with a single sync.
    async fn promise(&mut self, first: CallbackSubmission, gateway: &Gateway) {
        let mut new = Vec::new();
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(promise) = next {
            let (promised, trace) = (promise.promised, promise.trace);
            if !self.pending.contains_key(&promised) {
                let pending = PendingCallbackState {
                    trace,
                    _place: Some(promise.place.0),
                };
                self.pending.insert(promised.clone(), pending);
                new.push((promised, trace));
            }
            told.push(promise.kept);
            next = self.promises.try_recv().ok();
        }
        let kept = if new.is_empty() {
            Ok(())
        } else {
            self.keep(gateway).await
        };
        for (promised, trace) in new {
            match &kept {
                Ok(()) => self.begin(promised, trace, gateway),
                Err(_) => drop(self.pending.remove(&promised)),
            }
        }
        for sender in told {
            // The sender of the event may have disconnected.
            drop(sender.send(kept.clone()));
        }
    }

    fn begin(&mut self, promised: PendingCallback, trace: TraceContext, gateway: &Gateway) {
        let (target, gateway) = (Arc::clone(&self.target), gateway.clone());
        self.deliveries.spawn(async move {
            let outcome = outcome_of(&promised, &gateway).await;
            let body = told(&promised.event_id, trace.trace_id, outcome.as_ref());
            target.hand_over(&promised.event_id, trace, &body).await;
            promised
        });
    }

    /// Removes a reply that was delivered or abandoned. If that cannot be stored, the reply is
    /// delivered again after a restart.
    async fn end(&mut self, promised: PendingCallback, gateway: &Gateway) {
        self.pending.remove(&promised);
        while let Some(Ok(promised)) = self.deliveries.try_join_next() {
            self.pending.remove(&promised);
        }
        if let Err(reason) = self.keep(gateway).await {
            tracing::warn!(reason, "failed to record delivered replies");
        }
    }

    async fn keep(&self, gateway: &Gateway) -> Result<(), String> {
        let callbacks = self
            .pending
            .iter()
            .map(|(promised, pending)| StoredCallback {
                promised: promised.clone(),
                traceparent: pending.trace.to_traceparent(),
            });
        let kept = StoredCallbacks {
            callbacks: callbacks.collect(),
        };
        let state = to_raw_value(&kept).map_err(|error| error.to_string())?;
        if state.get().len() > MAX_CONNECTION_STATE_BYTES {
            return Err("too many replies are pending".to_owned());
        }
        gateway.keep(state).await
    }
}

/// Waits without a time limit for the outcome of an event; `None` if it is no longer known.
async fn outcome_of(promised: &PendingCallback, gateway: &Gateway) -> Option<TurnOutcome> {
    let mut looks = 0;
    loop {
        let asked = ReplyAwait {
            instance_key: promised.instance_key.clone(),
            event_id: promised.event_id.clone(),
        };
        match gateway.reply(asked).await {
            Some(Reply::Over { outcome }) => return Some(outcome),
            Some(Reply::Unknown {}) => return None,
            Some(Reply::Open { message }) => {
                let event_id = promised.event_id.as_str();
                tracing::debug!(event_id, message, "pending reply is not available yet");
            }
            // The process is about to end.
            None => std::future::pending().await,
        }
        looks += 1;
        sleep(pause_after(looks)).await;
    }
}

fn pause_after(tries: u32) -> Duration {
    back_off(tries, CALLBACK_PAUSE_FIRST_MS, SERVICE_BACK_OFF_MAX_MS)
}
