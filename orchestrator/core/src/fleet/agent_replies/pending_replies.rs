//! Agents that wait for answers to their questions.

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::InstanceRef;
use goondan_store::instance::PendingReplyRecord;

use crate::ProcessId;

/// A tool call that asked a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The instance of its turn.
    pub(crate) at: InstanceRef,
    pub(crate) process: ProcessId,
    pub(crate) request_id: Option<u64>,
}

/// Delivery of the answer to the requester.
#[derive(Debug, Clone)]
pub(crate) enum ReplyMode {
    Hand,
    /// As the result of the call, if it arrives in time.
    Wait {
        until_ms: u64,
    },
    /// As an event. `note` explains why a call that wanted to wait does not.
    Later {
        note: Option<String>,
    },
}

/// An agent that waits for an event's turn.
#[derive(Debug)]
pub(crate) struct AgentWaiter {
    pub(crate) requester: InstanceRef,
    /// The event that delivers the answer, if it arrives as one.
    pub(super) reply: Box<AgentEvent>,
    pub(super) mode: Mode,
}

impl AgentWaiter {
    /// True if a call has timed out. Delivery by event has no timeout.
    pub(crate) fn is_late(&self, now_ms: u64) -> bool {
        matches!(self.mode, Mode::Call { until_ms, .. } if until_ms <= now_ms)
    }
}

/// Delivery mode of a waiting agent.
#[derive(Debug)]
pub(super) enum Mode {
    Call { requester: Requester, until_ms: u64 },
    Event,
}

/// A question whose answer will arrive as an event.
#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(in crate::fleet) awaited: PendingReplyRecord,
    pub(in crate::fleet) watch: ReplyWatch,
}

/// Tracks if the answer's arrival will be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fleet) enum ReplyWatch {
    /// A waiter of the other instance or a pending store job reports it.
    Somebody,
    /// Unwatched: the question may not have been sent. If its turn is open, the turn asks again.
    Nobody,
    /// Unwatched until this time, because the store failed.
    From(u64),
}

/// State of a question without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionStatus {
    /// The question is open and will be answered later.
    Stands,
    /// The question will not be answered.
    Lost,
}
