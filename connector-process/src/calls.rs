//! Outgoing calls of agents: each runs concurrently, can be canceled, and ends with one result.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOrder, CallOutcome, CallPiece, CallResult, LookedBack,
};
use goondan_protocol::envelope::{Address, MessageError};
use goondan_protocol::ipc::{EnvelopeHeader, ToOrchestrator};
use goondan_protocol::limits::MAX_FRAME_BYTES;
use goondan_protocol::trace::TraceContext;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::call_clock::{CallClock, DeadlineExceeded};

/// Bytes of a frame reserved for the fields around a result.
const ENVELOPE_BYTES: usize = 64 * 1024;

pub(crate) type RawCallResult = Result<Box<RawValue>, CallError>;

/// Performs calls: the outgoing side of a connector.
pub(crate) trait CallHandler: Send + Sync {
    /// Performs one call. Dropping the future cancels it.
    ///
    /// An error is `retryable` only if the call had no effect.
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult>;
}

/// Sender of partial results before the final result.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    call_id: CallId,
    trace: Option<TraceContext>,
    clock: CallClock,
    looked_back: Arc<Mutex<Option<LookedBack>>>,
    sender: FrameSender,
}

impl Pieces {
    /// Records the result of a look at the service for an earlier attempt. It is sent with the call's
    /// result.
    pub(crate) fn looked_back(&self, found: LookedBack) {
        let mut looked_back = self
            .looked_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *looked_back = Some(found);
    }

    /// The orchestrator's name for the call.
    pub(crate) fn call_id(&self) -> CallId {
        self.call_id
    }

    /// The clock of the call, which is paused while a person is asked on its behalf.
    pub(crate) fn clock(&self) -> &CallClock {
        &self.clock
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.trace
    }

    /// Sends a piece. Waits while the orchestrator is behind.
    pub(crate) async fn send(&self, piece: Box<RawValue>) {
        let call_id = self.call_id;
        let piece = CallPiece { call_id, piece };
        self.sender.send(&ToOrchestrator::CallPiece(piece)).await;
    }
}

/// Sender of frames about calls to the orchestrator.
#[derive(Debug, Clone)]
struct FrameSender {
    me: Address,
    frames: mpsc::Sender<Vec<u8>>,
}

impl FrameSender {
    async fn send(&self, message: &ToOrchestrator) {
        let head = EnvelopeHeader::new(self.me.clone(), Address::Orchestrator);
        match message.to_frame(&head) {
            // The writer ends only with the connection to the orchestrator.
            Ok(frame) => drop(self.frames.send(frame).await),
            Err(error) => log_unwritable(&error),
        }
    }
}

fn log_unwritable(error: &MessageError) {
    let error = goondan_log::error_chain(error);
    tracing::error!(error, "failed to serialize the result of a call");
}

pub(crate) struct Calls {
    sender: FrameSender,
    handler: Option<Arc<dyn CallHandler>>,
    running: JoinSet<CallId>,
    handles: HashMap<CallId, AbortHandle>,
}

impl Calls {
    /// Creates an empty set without a handler; `frames` receives the encoded frames.
    pub(crate) fn new(me: Address, frames: mpsc::Sender<Vec<u8>>) -> Self {
        Self {
            sender: FrameSender { me, frames },
            handler: None,
            running: JoinSet::new(),
            handles: HashMap::new(),
        }
    }

    /// Sets the handler of all further calls.
    pub(crate) fn serve_with(&mut self, handler: Arc<dyn CallHandler>) {
        self.handler = Some(handler);
    }

    /// True if no call is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a call that belongs to a trace.
    pub(crate) fn begin(&mut self, call: CallOrder, trace: Option<TraceContext>) {
        let (call_id, deadline_ms) = (call.call_id, call.deadline_ms);
        let sender = self.sender.clone();
        let clock = CallClock::default();
        let looked_back = Arc::<Mutex<Option<LookedBack>>>::default();
        let made = match &self.handler {
            Some(handler) => {
                let sender = sender.clone();
                let pieces = Pieces {
                    call_id,
                    trace,
                    clock: clock.clone(),
                    looked_back: Arc::clone(&looked_back),
                    sender,
                };
                handler.call(call, pieces)
            }
            None => std::future::ready(Err(no_calls(&self.sender.me))).boxed(),
        };
        let made = AssertUnwindSafe(made).catch_unwind();
        let handle = self.running.spawn(async move {
            let limit = Duration::from_millis(deadline_ms);
            let outcome = match clock.timeout(limit, made).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_panic)) => Err(CallError::new(
                    CallErrorCode::Internal,
                    "the connector failed; see its log",
                )),
                Err(DeadlineExceeded) => Err(CallError::new(
                    CallErrorCode::TimedOut,
                    format!("no answer within {deadline_ms} ms"),
                )),
            };
            let outcome = match outcome.and_then(fitting) {
                Ok(value) => CallOutcome::Ok(value),
                Err(error) => CallOutcome::Error(error),
            };
            let looked_back = *looked_back.lock().unwrap_or_else(PoisonError::into_inner);
            let result = CallResult {
                call_id,
                outcome,
                looked_back,
            };
            sender.send(&ToOrchestrator::CallResult(result)).await;
            call_id
        });
        self.handles.insert(call_id, handle);
    }

    /// Cancels a call that has no caller any longer.
    pub(crate) fn cancel(&mut self, call_id: CallId) {
        if let Some(handle) = self.handles.remove(&call_id) {
            handle.abort();
        }
    }

    /// Waits for the end of a call. Cancel-safe.
    pub(crate) async fn next_end(&mut self) {
        if let Some(Ok(call_id)) = self.running.join_next().await {
            self.handles.remove(&call_id);
        }
    }
}

fn no_calls(me: &Address) -> CallError {
    CallError::new(CallErrorCode::NotFound, format!("`{me}` makes no calls"))
}

fn fitting(value: Box<RawValue>) -> RawCallResult {
    let bytes = value.get().len();
    if bytes + ENVELOPE_BYTES > MAX_FRAME_BYTES {
        let message = format!("the result has {bytes} bytes, more than a frame carries");
        return Err(CallError::new(CallErrorCode::TooLarge, message));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::Caller;
    use goondan_protocol::envelope::Envelope;

    use super::*;

    /// Answers `echo` with its parameters after a piece, waits forever on `hang`, panics on
    /// `panic`.
    struct Echo;

    impl CallHandler for Echo {
        fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
            async move {
                assert_ne!(call.method, "panic");
                if call.method == "hang" {
                    std::future::pending::<()>().await;
                }
                pieces.send(call.params.clone()).await;
                Ok(call.params)
            }
            .boxed()
        }
    }

    fn order(call_id: u64, method: &str) -> CallOrder {
        CallOrder {
            call_id: CallId(call_id),
            caller: Caller {
                agent: "a".parse().unwrap(),
                instance_key: "k".parse().unwrap(),
            },
            event_id: None,
            method: method.to_owned(),
            params: RawValue::from_string(format!("[{call_id}]")).unwrap(),
            deadline_ms: 60_000,
            again_since: None,
        }
    }

    fn calls() -> (Calls, mpsc::Receiver<Vec<u8>>) {
        let (frames, written) = mpsc::channel(16);
        (
            Calls::new("connector:bot".parse().unwrap(), frames),
            written,
        )
    }

    async fn message_sent(written: &mut mpsc::Receiver<Vec<u8>>) -> ToOrchestrator {
        let frame = written.recv().await.unwrap();
        ToOrchestrator::from_envelope(&Envelope::from_frame(&frame).unwrap()).unwrap()
    }

    async fn error_of(written: &mut mpsc::Receiver<Vec<u8>>) -> (u64, CallErrorCode) {
        match message_sent(written).await {
            ToOrchestrator::CallResult(CallResult {
                call_id,
                outcome: CallOutcome::Error(error),
                ..
            }) => (call_id.0, error.code),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_run_beside_each_other_and_each_ends_in_one_result() {
        let (mut calls, mut written) = calls();
        calls.begin(order(1, "echo"), None);
        let refused = error_of(&mut written).await;
        assert_eq!(refused, (1, CallErrorCode::NotFound), "no handler yet");
        calls.serve_with(Arc::new(Echo));
        calls.begin(order(2, "hang"), None);
        calls.begin(order(3, "echo"), None);
        let piece = message_sent(&mut written).await;
        assert!(matches!(piece, ToOrchestrator::CallPiece(piece) if piece.piece.get() == "[3]"));
        let result = message_sent(&mut written).await;
        assert!(
            matches!(result, ToOrchestrator::CallResult(result) if result.call_id == CallId(3))
        );
        let late = error_of(&mut written).await;
        assert_eq!(late, (2, CallErrorCode::TimedOut));
        for _ in 0..3 {
            calls.next_end().await;
        }
        assert!(calls.is_empty());
        assert!(calls.handles.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn canceled_call_ends_silently_and_a_panic_ends_only_its_call() {
        let (mut calls, mut written) = calls();
        calls.serve_with(Arc::new(Echo));
        calls.begin(order(1, "hang"), None);
        tokio::task::yield_now().await;
        calls.cancel(CallId(1));
        calls.next_end().await;
        assert!(calls.is_empty());
        assert!(written.try_recv().is_err());
        calls.begin(order(2, "panic"), None);
        let fault = error_of(&mut written).await;
        assert_eq!(fault, (2, CallErrorCode::Internal));
    }

    #[test]
    fn a_result_that_fits_no_frame_is_an_error() {
        let text = format!("\"{}\"", "x".repeat(MAX_FRAME_BYTES));
        let error = fitting(RawValue::from_string(text).unwrap()).unwrap_err();
        assert_eq!(error.code, CallErrorCode::TooLarge);
    }
}
