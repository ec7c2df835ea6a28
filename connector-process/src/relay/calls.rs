//! Outgoing calls of agents through the connector on the other machine.
//!
//! Without a link, a call is not made and fails as retryable. If its link breaks, it ends
//! immediately with an unknown outcome (`IPC-2`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{
    CallCancel, CallError, CallErrorCode, CallId, CallOrder, CallOutcome,
};
use goondan_protocol::envelope::Address;
use goondan_protocol::ipc::{EnvelopeHeader, ToConnector};
use goondan_protocol::trace::TraceContext;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::wire::Queue;
use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::limits::RELAY_PIECES_WAITING_MAX;

#[derive(Debug)]
pub(super) enum CallNews {
    /// A piece of its result.
    Piece(Box<RawValue>),
    End(CallOutcome),
}

/// Calls that wait for the other side, and its queue.
#[derive(Debug)]
pub(super) struct RelayedCalls {
    me: Address,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Queue to the other side, if it is connected.
    link: Option<Queue>,
    waiting: HashMap<CallId, mpsc::Sender<CallNews>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RelayedCalls {
    /// Creates an empty set without a link. `me` is the connection's own address.
    pub(super) fn new(me: Address) -> Self {
        Self {
            me,
            state: Arc::default(),
        }
    }

    /// Uses this link for further calls.
    pub(super) fn connect(&self, link: Queue) {
        locked(&self.state).link = Some(link);
    }

    /// Drops the link and aborts in-flight calls.
    pub(super) fn disconnect(&self) {
        *locked(&self.state) = State::default();
    }

    /// Delivers news from the other side to the waiter of a call, if it still exists.
    pub(super) fn tell(&self, call_id: CallId, news: CallNews) {
        let mut state = locked(&self.state);
        let waiting = match &news {
            CallNews::Piece(_) => state.waiting.get(&call_id).cloned(),
            CallNews::End(_) => state.waiting.remove(&call_id),
        };
        // A piece may be dropped; the last slot is reserved for the result.
        let may_fail = waiting.is_none_or(|waiting| match news {
            CallNews::Piece(_) if waiting.capacity() <= 1 => true,
            news => waiting.try_send(news).is_err(),
        });
        if may_fail {
            tracing::debug!(call_id = call_id.0, "no waiter for the result of this call");
        }
    }

    /// Sends a call and returns its receiver.
    fn begin(
        &self,
        order: CallOrder,
        trace: Option<TraceContext>,
    ) -> Result<InFlightCall, CallError> {
        let call_id = order.call_id;
        let head = EnvelopeHeader {
            trace,
            ..EnvelopeHeader::new(Address::Orchestrator, self.me.clone())
        };
        let order = ToConnector::Call(Box::new(order)).to_frame(&head);
        let order = order.map_err(|error| {
            CallError::new(CallErrorCode::Internal, goondan_log::error_chain(&error))
        })?;
        let (sender, news) = mpsc::channel(RELAY_PIECES_WAITING_MAX + 1);
        let mut state = locked(&self.state);
        let handed_over = state
            .link
            .as_ref()
            .is_some_and(|link| link.put(order).is_ok());
        if !handed_over {
            return Err(CallError {
                retryable: true,
                ..CallError::new(
                    CallErrorCode::Unavailable,
                    "the connector on the other machine is not connected",
                )
            });
        }
        state.waiting.insert(call_id, sender);
        let state = Arc::clone(&self.state);
        let me = self.me.clone();
        Ok(InFlightCall {
            news,
            call_id,
            me,
            state,
        })
    }
}

/// An in-flight call. Dropping it cancels the call.
struct InFlightCall {
    news: mpsc::Receiver<CallNews>,
    call_id: CallId,
    me: Address,
    state: Arc<Mutex<State>>,
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let call_id = self.call_id;
        let mut state = locked(&self.state);
        if state.waiting.remove(&call_id).is_none() {
            return;
        }
        let head = EnvelopeHeader::new(Address::Orchestrator, self.me.clone());
        let cancel = ToConnector::CallCancel(CallCancel { call_id }).to_frame(&head);
        if let (Some(link), Ok(cancel)) = (&state.link, cancel) {
            // If the queue is full, the link ends anyway.
            drop(link.put(cancel));
        }
    }
}

impl CallHandler for RelayedCalls {
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let begun = self.begin(call, pieces.trace());
        async move {
            let mut begun = begun?;
            while let Some(news) = begun.news.recv().await {
                match news {
                    CallNews::Piece(piece) => pieces.send(piece).await,
                    CallNews::End(CallOutcome::Ok(value)) => return Ok(value),
                    CallNews::End(CallOutcome::Error(error)) => return Err(error),
                }
            }
            let message = "the link to the other machine broke off; outcome unknown";
            let error = CallError::new(CallErrorCode::Interrupted, message).of_unknown_outcome();
            Err(error.suggest("check if it took effect before you try again"))
        }
        .boxed()
    }
}
