//! Sends requests of tools about other agents to the orchestrator, and returns the answers.
//!
//! [`AgentClient`] is the handle that tools hold; [`AgentRequests`] is its other end, in the
//! process loop.

use std::collections::HashMap;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::trace::TraceContext;
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of requests to the process loop. A step has at most
/// [`MAX_CALLS_PER_STEP`](crate::tool_call::MAX_CALLS_PER_STEP) calls with one request each;
/// further senders wait.
const WAITING_REQUESTS_MAX: usize = 64;

struct AgentRequest {
    ask: AgentAsk,
    trace: Option<TraceContext>,
    waiter: oneshot::Sender<AgentAnswer>,
}

/// Client for questions to other agents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AgentClient(mpsc::Sender<AgentRequest>);

/// The process loop's end.
pub(crate) struct AgentRequests {
    queue: mpsc::Receiver<AgentRequest>,
    waiting: HashMap<u64, PendingAgentReply>,
}

struct PendingAgentReply {
    waiter: oneshot::Sender<AgentAnswer>,
    /// True if the request is for a person's approval.
    is_approval: bool,
}

impl std::fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentClient")
    }
}

impl AgentClient {
    /// Creates a client and its other end.
    pub(crate) fn new() -> (Self, AgentRequests) {
        let (sender, queue) = mpsc::channel(WAITING_REQUESTS_MAX);
        let waiting = HashMap::new();
        (Self(sender), AgentRequests { queue, waiting })
    }

    /// Asks and waits for the answer; `None` if the process ends first. The same question repeated
    /// after a crash gets the same answer.
    pub(crate) async fn ask(
        &self,
        ask: AgentAsk,
        trace: Option<TraceContext>,
    ) -> Option<AgentAnswer> {
        let (waiter, answer) = oneshot::channel();
        let request = AgentRequest { ask, trace, waiter };
        self.0.send(request).await.ok()?;
        answer.await.ok()
    }
}

impl AgentRequests {
    /// Receives the next question to send, with its trace. The answer must carry `request_id`.
    /// Cancel-safe.
    pub(crate) async fn next(
        &mut self,
        request_id: u64,
    ) -> Option<(AgentAsk, Option<TraceContext>)> {
        let AgentRequest { ask, trace, waiter } = self.queue.recv().await?;
        let is_approval = matches!(ask.question, AgentQuestion::Approval { .. });
        let waiter = PendingAgentReply {
            waiter,
            is_approval,
        };
        self.waiting.insert(request_id, waiter);
        Some((ask, trace))
    }

    pub(crate) fn settle(&mut self, request_id: Option<u64>, answer: AgentAnswer) {
        if let Some(waiter) = request_id.and_then(|id| self.waiting.remove(&id)) {
            // The waiter may have been dropped.
            drop(waiter.waiter.send(answer));
        }
    }

    /// Number of calls that wait for a person's approval.
    pub(crate) fn approvals_waiting(&self) -> usize {
        let waiting = self.waiting.values();
        waiting.filter(|waiter| waiter.is_approval).count()
    }
}
