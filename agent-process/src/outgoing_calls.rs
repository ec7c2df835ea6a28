//! Outgoing calls of this process, which the orchestrator forwards to a connector.
//!
//! [`OutboundCalls`] is the handle that models and tools hold; [`CallReceiver`] is its other end, in the
//! process loop. Dropping the future of a call cancels it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use goondan_protocol::call::{
    CallCancel, CallError, CallErrorCode, CallId, CallOutcome, CallPlace, CallRecord, CallResult,
    CallTarget, OutgoingCall,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Maximum number of concurrent calls of this process; further calls wait here. The orchestrator
/// accepts the same number.
const OPEN_CALLS_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct OutboundCall {
    /// The connection or model that performs it.
    pub(crate) target: CallTarget,
    /// The method, as the target names it.
    pub(crate) method: String,
    pub(crate) params: Box<RawValue>,
    /// Its time limit, in milliseconds.
    pub(crate) deadline_ms: u64,
    /// True if it can be repeated when its outcome is unknown.
    pub(crate) idempotent: bool,
    /// True if the target can find out whether an earlier attempt took effect.
    pub(crate) recoverable: bool,
    /// Set if an earlier process may have made it, at this time or later.
    pub(crate) again_since: Option<Timestamp>,
    /// True to fail immediately while the target's process is not ready.
    pub(crate) only_if_ready: bool,
    /// Its position in the turn.
    pub(crate) place: Option<CallPlace>,
    /// Record that will hold its result, if any.
    pub(crate) record: Option<CallRecord>,
    pub(crate) trace: Option<TraceContext>,
}

/// A frame for the process loop to send.
#[derive(Debug)]
pub(crate) enum OutboundFrame {
    Call {
        call: Box<OutgoingCall>,
        trace: Option<TraceContext>,
    },
    /// The caller has dropped a call.
    Cancel(CallCancel),
}

#[derive(Debug)]
enum CallCommand {
    Call {
        ask: Box<OutboundCall>,
        call_id: CallId,
        waiter: oneshot::Sender<CallOutcome>,
    },
    /// Frees the slot of the call once the loop has processed this.
    Cancel {
        call_id: CallId,
        _place: OwnedSemaphorePermit,
    },
}

/// Handle for outgoing calls. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct OutboundCalls {
    commands: mpsc::Sender<CallCommand>,
    places: Arc<Semaphore>,
    next_id: Arc<AtomicU64>,
}

/// The process loop's end.
#[derive(Debug)]
pub(crate) struct CallReceiver {
    commands: mpsc::Receiver<CallCommand>,
    waiting: HashMap<CallId, oneshot::Sender<CallOutcome>>,
}

/// Cancels a call on drop unless it was settled.
struct Guard {
    commands: mpsc::Sender<CallCommand>,
    call_id: CallId,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // Each slot sends at most two commands, so the queue has room. A loop that ended needs
            // none.
            drop(self.commands.try_send(CallCommand::Cancel {
                call_id: self.call_id,
                _place: place,
            }));
        }
    }
}

impl OutboundCalls {
    /// Creates a handle and its other end.
    pub(crate) fn new() -> (Self, CallReceiver) {
        let (sender, commands) = mpsc::channel(2 * OPEN_CALLS_MAX);
        let outgoing = Self {
            commands: sender,
            places: Arc::new(Semaphore::new(OPEN_CALLS_MAX)),
            next_id: Arc::new(AtomicU64::new(1)),
        };
        let waiting = HashMap::new();
        (outgoing, CallReceiver { commands, waiting })
    }

    /// Sends an outgoing call and waits for its result. Dropping the future cancels the call; its
    /// outcome is then unknown.
    ///
    /// # Errors
    ///
    /// [`CallError`] from the connector or the orchestrator.
    pub(crate) async fn call(&self, ask: OutboundCall) -> Result<Box<RawValue>, CallError> {
        let ended = || CallError::new(CallErrorCode::Cancelled, "the agent process is ending");
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_closed| ended())?;
        let call_id = CallId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (waiter, outcome) = oneshot::channel();
        let ask = Box::new(ask);
        let command = CallCommand::Call {
            ask,
            call_id,
            waiter,
        };
        self.commands
            .send(command)
            .await
            .map_err(|_closed| ended())?;
        let mut guard = Guard {
            commands: self.commands.clone(),
            call_id,
            place: Some(place),
        };
        let outcome = outcome.await;
        guard.place = None;
        match outcome {
            Ok(CallOutcome::Ok(value)) => Ok(value),
            Ok(CallOutcome::Error(error)) => Err(error),
            Err(_closed) => Err(ended()),
        }
    }
}

impl CallReceiver {
    /// Receives the next frame to send. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<OutboundFrame> {
        Some(match self.commands.recv().await? {
            CallCommand::Call {
                ask,
                call_id,
                waiter,
            } => {
                self.waiting.insert(call_id, waiter);
                let trace = ask.trace;
                let call = Box::new(OutgoingCall {
                    call_id,
                    target: ask.target,
                    method: ask.method,
                    params: ask.params,
                    deadline_ms: ask.deadline_ms,
                    pieces: false,
                    idempotent: ask.idempotent,
                    recoverable: ask.recoverable,
                    again_since: ask.again_since,
                    only_if_ready: ask.only_if_ready,
                    place: ask.place,
                    record: ask.record,
                });
                OutboundFrame::Call { call, trace }
            }
            CallCommand::Cancel { call_id, .. } => {
                self.waiting.remove(&call_id);
                OutboundFrame::Cancel(CallCancel { call_id })
            }
        })
    }

    /// Delivers the result of a call unless it was canceled.
    pub(crate) fn settle(&mut self, result: CallResult) {
        if let Some(waiter) = self.waiting.remove(&result.call_id) {
            // The waiter may be gone; its cancellation is in flight then.
            drop(waiter.send(result.outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use super::*;

    fn ask() -> OutboundCall {
        OutboundCall {
            target: CallTarget::Connection {
                name: "bot".parse().unwrap(),
            },
            method: "send".into(),
            params: RawValue::from_string("{}".to_owned()).unwrap(),
            deadline_ms: 1_000,
            idempotent: false,
            recoverable: false,
            again_since: None,
            only_if_ready: false,
            place: None,
            record: None,
            trace: None,
        }
    }

    #[tokio::test]
    async fn each_result_reaches_its_own_call() {
        let (outgoing, mut receiver) = OutboundCalls::new();
        let both = async {
            let first = outgoing.call(ask());
            let second = outgoing.call(ask());
            tokio::join!(first, second)
        };
        let orchestrator = async {
            let mut ids = Vec::new();
            for _ in 0..2 {
                let Some(OutboundFrame::Call { call, .. }) = receiver.next().await else {
                    panic!("expected a call");
                };
                ids.push(call.call_id);
            }
            for call_id in ids.into_iter().rev() {
                let value = RawValue::from_string(call_id.0.to_string()).unwrap();
                let outcome = CallOutcome::Ok(value);
                receiver.settle(CallResult {
                    call_id,
                    outcome,
                    looked_back: None,
                });
            }
        };
        let ((first, second), ()) = tokio::join!(both, orchestrator);
        assert_ne!(first.unwrap().get(), second.unwrap().get());
        assert!(receiver.waiting.is_empty());
    }

    #[tokio::test]
    async fn dropped_call_is_canceled_and_frees_its_slot() {
        let (outgoing, mut receiver) = OutboundCalls::new();
        for _ in 0..3 * OPEN_CALLS_MAX {
            let mut call = Box::pin(outgoing.call(ask()));
            // A future polled by hand must not be made to yield by the task budget.
            let mut first = Box::pin(tokio::task::unconstrained(&mut call));
            let polled = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            drop(first);
            let Some(OutboundFrame::Call { call: sent, .. }) = receiver.next().await else {
                panic!("expected a call");
            };
            drop(call);
            let Some(OutboundFrame::Cancel(cancel)) = receiver.next().await else {
                panic!("expected a cancellation");
            };
            assert_eq!(cancel.call_id, sent.call_id);
        }
        assert!(receiver.waiting.is_empty());
        assert_eq!(outgoing.places.available_permits(), OPEN_CALLS_MAX);
    }
}
