//! Questions of a server to a person (`elicitation/create`): assigns each to a call and forwards
//! it.
//!
//! The protocol does not identify the call that a question belongs to. If exactly one open call
//! does not already wait for an answer, it is that call. A server that works on several calls
//! identifies one by the `traceparent` that it received with the call. Otherwise the question waits
//! briefly until the other calls have ended.

use std::sync::Arc;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_protocol::call::CallId;
use goondan_protocol::limits::MAX_QUESTIONS_PER_CONNECTION;
use goondan_protocol::question::{QuestionAnswered, QuestionAsk};
use goondan_protocol::trace::TraceContext;
use rmcp::model::ErrorData;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use crate::call_clock::{CallClock, ClockPauseGuard};
use crate::calls::Pieces;
use crate::gateway::{Gateway, UserQuestionResult};
use crate::limits::MCP_QUESTION_PLACE_TIMEOUT_MS;
use crate::service::masked;

/// A call in progress at the server.
#[derive(Debug)]
struct OpenCall {
    call_id: CallId,
    trace: Option<TraceContext>,
    clock: CallClock,
    /// Number of its questions that wait for an answer.
    asking: usize,
}

/// Calls in progress at a server. Cloning shares them.
#[derive(Debug, Clone)]
pub(super) struct OpenCalls {
    open: Arc<watch::Sender<Vec<OpenCall>>>,
}

impl Default for OpenCalls {
    fn default() -> Self {
        let (open, _) = watch::channel(Vec::new());
        Self {
            open: Arc::new(open),
        }
    }
}

/// Guard of a call in progress at the server.
#[derive(Debug)]
pub(super) struct OpenCallGuard(OpenCalls, CallId);

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        let call_id = self.1;
        self.0
            .open
            .send_modify(|calls| calls.retain(|call| call.call_id != call_id));
    }
}

/// Guard of a call that waits for an answer, with its clock paused.
#[derive(Debug)]
struct PausedCall {
    calls: OpenCalls,
    call_id: CallId,
    _held: ClockPauseGuard,
}

impl Drop for PausedCall {
    fn drop(&mut self) {
        let call_id = self.call_id;
        self.calls.open.send_modify(|calls| {
            let mut calls = calls.iter_mut();
            if let Some(call) = calls.find(|call| call.call_id == call_id) {
                call.asking = call.asking.saturating_sub(1);
            }
        });
    }
}

/// The call that a question belongs to.
#[derive(Debug, PartialEq, Eq)]
enum CallMatch {
    NoCall,
    Call(CallId),
    /// Any of several calls; their number.
    Ambiguous(usize),
}

/// Selects the open call of a question with this trace context.
fn match_of(calls: &[OpenCall], named: Option<TraceContext>) -> CallMatch {
    let only = |mut found: Vec<&OpenCall>| match (found.pop(), found.is_empty()) {
        (Some(call), true) => Some(CallMatch::Call(call.call_id)),
        _ => None,
    };
    let by_trace = named.and_then(|named| {
        let of_span = calls.iter().filter(|call| {
            let trace = call.trace.as_ref();
            trace.is_some_and(|own| (own.trace_id, own.span_id) == (named.trace_id, named.span_id))
        });
        // A server with its own tracing names its own span in the same trace.
        let of_trace = calls.iter().filter(|call| {
            let trace = call.trace.as_ref();
            trace.is_some_and(|own| own.trace_id == named.trace_id)
        });
        only(of_span.collect()).or_else(|| only(of_trace.collect()))
    });
    let free = calls.iter().filter(|call| call.asking == 0);
    let found = by_trace
        .or_else(|| only(free.collect()))
        .or_else(|| only(calls.iter().collect()));
    found.unwrap_or(match calls.len() {
        0 => CallMatch::NoCall,
        several => CallMatch::Ambiguous(several),
    })
}

impl OpenCalls {
    /// Registers a call in progress at the server.
    pub(super) fn enter(&self, pieces: &Pieces) -> OpenCallGuard {
        let call = OpenCall {
            call_id: pieces.call_id(),
            trace: pieces.trace(),
            clock: pieces.clock().clone(),
            asking: 0,
        };
        let call_id = call.call_id;
        self.open.send_modify(|calls| calls.push(call));
        OpenCallGuard(self.clone(), call_id)
    }

    /// Pauses the call that a question belongs to.
    async fn wait_under(&self, named: Option<TraceContext>) -> Result<PausedCall, ErrorData> {
        let mut changes = self.open.subscribe();
        let settled = async {
            loop {
                let found = match_of(&changes.borrow_and_update(), named);
                match found {
                    CallMatch::Ambiguous(_) => drop(changes.changed().await),
                    settled => return settled,
                }
            }
        };
        let time_limit = Duration::from_millis(MCP_QUESTION_PLACE_TIMEOUT_MS);
        // Not inside the match, which would hold the borrow.
        let settled = timeout(time_limit, settled).await;
        let found = settled.unwrap_or_else(|_elapsed| match_of(&self.open.borrow(), named));
        match found {
            CallMatch::Call(call_id) => self.hold(call_id).ok_or_else(no_call),
            CallMatch::NoCall => Err(no_call()),
            CallMatch::Ambiguous(count) => Err(refused(format!(
                "{count} calls are open, and the request does not identify its call: put the \
                 `traceparent` of the call's `_meta` into the `_meta` of the request"
            ))),
        }
    }

    fn hold(&self, call_id: CallId) -> Option<PausedCall> {
        let mut held = None;
        self.open.send_modify(|calls| {
            let mut calls = calls.iter_mut();
            if let Some(call) = calls.find(|call| call.call_id == call_id) {
                call.asking = call.asking.saturating_add(1);
                held = Some(call.clock.hold());
            }
        });
        Some(PausedCall {
            calls: self.clone(),
            call_id,
            _held: held?,
        })
    }
}

fn no_call() -> ErrorData {
    refused(
        "no call is open: a person is asked only while the server works on a tool call".to_owned(),
    )
}

fn refused(message: String) -> ErrorData {
    ErrorData::invalid_request(message, None)
}

#[derive(Debug)]
pub(super) struct ServerQuestion {
    pub(super) message: String,
    pub(super) schema: Value,
    /// The trace context that the server sent with it.
    pub(super) traceparent: Option<String>,
}

/// Handle for a server's questions to people. Cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct QuestionRelay {
    pub(super) gateway: Gateway,
    pub(super) calls: OpenCalls,
    /// Time limit of a question.
    answer_timeout: Duration,
    /// Values that must not be shown.
    secrets: Arc<[String]>,
    permits: Arc<Semaphore>,
}

impl QuestionRelay {
    pub(super) fn new(
        gateway: Gateway,
        calls: OpenCalls,
        answer_timeout: Duration,
        secrets: &[String],
    ) -> Self {
        Self {
            gateway,
            calls,
            answer_timeout,
            secrets: secrets.into(),
            permits: Arc::new(Semaphore::new(MAX_QUESTIONS_PER_CONNECTION)),
        }
    }

    /// Asks a person and waits for the answer, unless the server cancels.
    pub(super) async fn ask(
        &self,
        question: ServerQuestion,
        given_up: CancellationToken,
    ) -> Result<QuestionAnswered, ErrorData> {
        let _permit = self.take_permit()?;
        let named = question.traceparent.as_deref();
        let named = named.and_then(|named| TraceContext::from_traceparent(named).ok());
        let waiting = tokio::select! {
            waiting = self.calls.wait_under(named) => waiting?,
            () = given_up.cancelled() => return Err(refused("the request was canceled".to_owned())),
        };
        self.ask_under(waiting, question, given_up).await
    }

    /// Asks a person for a call that the server has identified.
    pub(super) async fn ask_for(
        &self,
        call_id: CallId,
        question: ServerQuestion,
    ) -> Result<QuestionAnswered, ErrorData> {
        let _permit = self.take_permit()?;
        let waiting = self.calls.hold(call_id).ok_or_else(no_call)?;
        // Canceling the call also withdraws the question.
        self.ask_under(waiting, question, CancellationToken::new())
            .await
    }

    fn take_permit(&self) -> Result<SemaphorePermit<'_>, ErrorData> {
        let permit = self.permits.try_acquire();
        permit.map_err(|_full| {
            refused(format!(
                "{MAX_QUESTIONS_PER_CONNECTION} questions are already pending"
            ))
        })
    }

    async fn ask_under(
        &self,
        waiting: PausedCall,
        question: ServerQuestion,
        given_up: CancellationToken,
    ) -> Result<QuestionAnswered, ErrorData> {
        let ask = QuestionAsk {
            call_id: waiting.call_id,
            message: self.masked(question.message),
            schema: self.masked_all(question.schema),
            timeout_ms: u64::try_from(self.answer_timeout.as_millis()).unwrap_or(u64::MAX),
        };
        match self.gateway.ask_person(ask, given_up).await {
            UserQuestionResult::Answered(answered) => Ok(answered),
            UserQuestionResult::Refused(message) => Err(ErrorData::invalid_params(message, None)),
        }
    }

    fn masked(&self, text: String) -> String {
        masked(text, &self.secrets)
    }

    /// Masks every string within a value.
    fn masked_all(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.masked(text)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.masked_all(item))
                .collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let masked =
                    fields.map(|(name, value)| (self.masked(name), self.masked_all(value)));
                Value::Object(masked.collect())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::trace::{SpanId, TraceId};

    use super::*;

    fn trace(trace: u8, span: u8) -> TraceContext {
        TraceContext::root(
            TraceId::from_random([trace; 16]),
            SpanId::from_random([span; 8]),
        )
    }

    fn call(id: u64, of: (u8, u8), asking: usize) -> OpenCall {
        OpenCall {
            call_id: CallId(id),
            trace: Some(trace(of.0, of.1)),
            clock: CallClock::default(),
            asking,
        }
    }

    #[test]
    fn mcp_question_is_matched_to_its_only_possible_call() {
        let under = |id| CallMatch::Call(CallId(id));
        assert_eq!(match_of(&[], Some(trace(1, 1))), CallMatch::NoCall);
        assert_eq!(match_of(&[call(1, (1, 1), 0)], None), under(1));
        // With a single call, a second question or a foreign trace changes nothing.
        assert_eq!(match_of(&[call(1, (1, 1), 2)], Some(trace(9, 9))), under(1));
        // A call that waits for an answer asks nothing else in the meantime.
        let two = [call(1, (1, 1), 1), call(2, (2, 2), 0)];
        assert_eq!(match_of(&two, None), under(2));
        let both_free = [call(1, (1, 1), 0), call(2, (1, 2), 0), call(3, (3, 3), 0)];
        assert_eq!(match_of(&both_free, None), CallMatch::Ambiguous(3));
        assert_eq!(match_of(&both_free, Some(trace(1, 2))), under(2));
        assert_eq!(match_of(&both_free, Some(trace(3, 7))), under(3));
        assert_eq!(
            match_of(&both_free, Some(trace(1, 7))),
            CallMatch::Ambiguous(3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn ambiguous_question_waits_for_a_single_call_or_is_refused() {
        let calls = OpenCalls::default();
        let told = calls.wait_under(None).await.unwrap_err().message;
        assert!(told.contains("no call is open"), "{told}");
        let enter = |id| {
            calls
                .open
                .send_modify(|open| open.push(call(id, (1, 1), 0)));
            OpenCallGuard(calls.clone(), CallId(id))
        };
        let (_first, second) = (enter(1), enter(2));
        let error = calls.wait_under(None).await.unwrap_err().message;
        assert!(
            error.contains("2 calls are open") && error.contains("traceparent"),
            "{error}"
        );
        let waiting = {
            let (waiting, ()) = tokio::join!(calls.wait_under(None), async { drop(second) });
            waiting.unwrap()
        };
        assert_eq!(waiting.call_id, CallId(1));
        assert_eq!(calls.open.borrow()[0].asking, 1);
        drop(waiting);
        assert_eq!(calls.open.borrow()[0].asking, 0);
    }
}
