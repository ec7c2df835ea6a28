//! Agents that wait for what comes of their questions.

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::InstanceRef;
use goondan_store::instance::Awaited;

use crate::ProcessId;

/// A tool call that asked something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The instance whose turn it is part of.
    pub(crate) at: InstanceRef,
    /// Its process.
    pub(crate) process: ProcessId,
    /// The request to be answered.
    pub(crate) request_id: Option<u64>,
}

/// How the requester is to hear of the answer.
#[derive(Debug, Clone)]
pub(crate) enum ReplyMode {
    /// Not at all.
    Hand,
    /// As the result of its call, if it comes in time.
    Wait { until_ms: u64 },
    /// As an event. With a note, the call was to wait, and this is why it does not.
    Later { note: Option<String> },
}

/// An agent that waits for an event's turn.
#[derive(Debug)]
pub(crate) struct AgentWaiter {
    pub(crate) requester: InstanceRef,
    /// The event that brings the answer, if it comes as one.
    pub(super) reply: Box<AgentEvent>,
    pub(super) mode: Mode,
}

impl AgentWaiter {
    /// Whether a call has waited for long enough. Who hears by an event has no limit.
    pub(crate) fn is_late(&self, now_ms: u64) -> bool {
        matches!(self.mode, Mode::Call { until_ms, .. } if until_ms <= now_ms)
    }
}

/// How it hears of the answer.
#[derive(Debug)]
pub(super) enum Mode {
    Call { requester: Requester, until_ms: u64 },
    Event,
}

/// A question whose answer is to come as an event.
#[derive(Debug)]
pub(crate) struct Awaiting {
    pub(super) awaited: Awaited,
    pub(super) watch: Watch,
}

/// Who will notice that the answer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Somebody: a waiter of the other instance, or a job of the store.
    Somebody,
    /// Nobody: the question may not have gone out. If its turn is open, it will be asked again.
    Nobody,
    /// Nobody until this time, since the store could not say.
    From(u64),
}

/// What becomes of a question that is not answered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionStatus {
    /// It stands, and is answered some day.
    Stands,
    /// Nothing comes of it.
    Lost,
}
