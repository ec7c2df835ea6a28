//! Asking for other agents: the way from a tool to the orchestrator and back.
//!
//! [`AgentClient`] is the handle that tools have; [`AgentRequests`] is its other end, in the process loop.

use std::collections::HashMap;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, Question};
use goondan_protocol::trace::TraceContext;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the process loop. A step has at most
/// [`MAX_CALLS_PER_STEP`](crate::tool_call::MAX_CALLS_PER_STEP) calls, each with one; more wait.
const WAITING_REQUESTS_MAX: usize = 64;

struct AgentRequest {
    ask: AgentAsk,
    trace: Option<TraceContext>,
    waiter: oneshot::Sender<AgentAnswer>,
}

/// The way to other agents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AgentClient(mpsc::Sender<AgentRequest>);

/// The process loop's end.
pub(crate) struct AgentRequests {
    queue: mpsc::Receiver<AgentRequest>,
    /// Who waits for the answer to which request.
    waiting: HashMap<u64, Waiter>,
}

struct Waiter {
    waiter: oneshot::Sender<AgentAnswer>,
    /// Whether a person is to approve something.
    is_approval: bool,
}

impl std::fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentClient")
    }
}

impl AgentClient {
    /// A way to other agents, and where what is asked comes out.
    pub(crate) fn new() -> (Self, AgentRequests) {
        let (sender, queue) = mpsc::channel(WAITING_REQUESTS_MAX);
        let waiting = HashMap::new();
        (Self(sender), AgentRequests { queue, waiting })
    }

    /// Asks and waits for the answer; none if the process ends before it comes. Asking the same again
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
    /// The next question to be sent, with the trace it belongs to; its answer is to name
    /// `request_id`. Cancel-safe.
    pub(crate) async fn next(
        &mut self,
        request_id: u64,
    ) -> Option<(AgentAsk, Option<TraceContext>)> {
        let AgentRequest { ask, trace, waiter } = self.queue.recv().await?;
        let is_approval = matches!(ask.question, Question::Approval { .. });
        let waiter = Waiter {
            waiter,
            is_approval,
        };
        self.waiting.insert(request_id, waiter);
        Some((ask, trace))
    }

    /// Passes on an answer.
    pub(crate) fn settle(&mut self, request_id: Option<u64>, answer: AgentAnswer) {
        if let Some(waiter) = request_id.and_then(|id| self.waiting.remove(&id)) {
            // Whoever waited may be gone.
            drop(waiter.waiter.send(answer));
        }
    }

    /// How many calls wait for a person to approve them.
    pub(crate) fn approvals_waiting(&self) -> usize {
        let waiting = self.waiting.values();
        waiting.filter(|waiter| waiter.is_approval).count()
    }
}
