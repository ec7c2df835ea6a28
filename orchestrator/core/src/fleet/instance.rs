//! State of an agent instance that is or was active.

use std::collections::BTreeMap;

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey};
use goondan_protocol::trace::TraceContext;

use super::agent_replies::pending_replies::PendingReply;
use super::approvals::Approvals;
use super::bundles::Overlay;
use super::changes::RunningAgent;
use super::freeze::Freeze;
use super::inbox::Inbox;
use super::indeterminate_calls::BufferedReports;
use super::self_restart::SelfRestarts;
use super::slot::Slot;
use super::start_faults::StartFaults;
use super::turn::{ActiveTurn, TurnContext};
use super::waiters::Waiters;
use crate::limits::CRASH_MEMORY_MS;
use crate::{ClockTime, RequestToken};

/// Progress of giving a process its work.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The process has the whole conversation.
    pub(super) is_loaded: bool,
    /// The turn that the store was asked to begin.
    pub(super) beginning: Option<TurnContext>,
}

/// An agent instance that is or was active.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) agent: AgentName,
    pub(super) slot: Slot,
    pub(super) inbox: Inbox,
    pub(super) turn: Option<ActiveTurn>,
    pub(super) progress: Progress,
    /// Start configuration of the current or the last process.
    pub(super) running: Option<RunningAgent>,
    pub(super) waiters: Waiters,
    /// The questions its running turn waits for, and their target instances. Kept while the turn is
    /// open without a process, because the next process asks again.
    pub(super) asking: BTreeMap<EventId, InstanceKey>,
    /// Approvals of its open turn. Kept while the turn has no process.
    pub(super) approvals: Approvals,
    /// Questions whose answers will arrive as events, by the ids of those events.
    pub(super) awaiting: BTreeMap<EventId, PendingReply>,
    pub(super) idle_since_ms: u64,
    /// True if its process was stopped because the store failed, which counts against no event.
    pub(super) is_failed_by_store: bool,
    /// Failed starts of its process with a permanent cause.
    pub(super) start_faults: StartFaults,
    /// Restarts requested by its agent.
    pub(super) restarts: SelfRestarts,
    /// Recipients of the deletion's result; `None` unless it is being deleted.
    pub(super) deleting: Option<Vec<DeleteReply>>,
    /// The operation that holds it and blocks new turns.
    pub(super) hold: Option<Freeze>,
    /// Its own configuration, on top of the project's.
    pub(super) overlay: Overlay,
    /// Messages of its process that wait until an interrupted call is in the audit log.
    pub(super) held_back: Option<BufferedReports>,
}

impl Instance {
    pub(super) fn new(agent: AgentName, now_ms: u64) -> Self {
        Self {
            agent,
            slot: Slot::default(),
            inbox: Inbox::empty(),
            turn: None,
            progress: Progress::default(),
            running: None,
            waiters: Waiters::default(),
            asking: BTreeMap::new(),
            approvals: Approvals::default(),
            awaiting: BTreeMap::new(),
            idle_since_ms: now_ms,
            is_failed_by_store: false,
            start_faults: StartFaults::default(),
            restarts: SelfRestarts::default(),
            deleting: None,
            hold: None,
            overlay: Overlay::default(),
            held_back: None,
        }
    }

    /// The other conversations that requested its turn in progress.
    pub(super) fn asked_by(&self, own: &InstanceKey) -> Vec<InstanceKey> {
        let turn = self.turn.as_ref();
        let event_id = turn.map(|turn| &turn.context.event_id);
        let event = event_id.and_then(|id| self.inbox.get(id));
        event.map_or_else(Vec::new, |event| event.asked_by(own))
    }

    /// Reason no process will start for its next turn, if that is so.
    pub(super) fn why_none_starts(&self, now: ClockTime) -> Option<&str> {
        let is_down = self.slot.up().is_none();
        let why = self.start_faults.why_none_starts(self.slot.may_start(now));
        why.filter(|_| is_down)
    }

    /// True if its process runs and has no work.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turn.is_none()
            && self.inbox.has_nothing_ready()
            && self.awaiting.is_empty()
            && self.deleting.is_none()
            && self.hold.is_none()
            && self.slot.ready().is_some()
    }

    /// True if no turn is in progress, ready or about to be requested.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.turn.is_none() && self.inbox.has_nothing_ready() && !self.inbox.is_accepting()
    }

    /// True if its process may be stopped to free resources.
    pub(super) fn may_leave(&self) -> bool {
        self.is_at_rest() && !self.inbox.is_accepting()
    }

    /// The event of the next turn: the one after the turn in progress if that is being committed;
    /// `None` while a turn continues.
    pub(super) fn next_event(&self) -> Option<&AgentEvent> {
        let Some(turn) = &self.turn else {
            return self.inbox.ready().next();
        };
        let taken_in = turn.taken_in.as_ref()?;
        let is_over = |id: &EventId| *id == turn.context.event_id || taken_in.contains(id);
        self.inbox.ready().find(|event| !is_over(&event.id))
    }

    /// The events of the turns in progress or about to begin. With two, the second begins after the
    /// first is committed.
    pub(super) fn worked_on(&self) -> impl Iterator<Item = &EventId> {
        let turn = self.turn.as_ref().filter(|turn| turn.taken_in.is_none());
        let turn = turn.map(|turn| &turn.context);
        let contexts = turn.into_iter().chain(&self.progress.beginning);
        contexts.map(|context| &context.event_id)
    }

    /// Makes later messages about the turn of this event be ignored. Returns the turn's trace;
    /// `None` if the event is not being worked on.
    pub(super) fn end_work_on(&mut self, event_id: &EventId) -> Option<TraceContext> {
        if let Some(turn) = &mut self.turn
            && turn.context.event_id == *event_id
            && turn.taken_in.is_none()
        {
            turn.taken_in = Some(Vec::new());
            return Some(turn.context.trace);
        }
        let beginning = self.progress.beginning.as_ref();
        let beginning = beginning.filter(|context| context.event_id == *event_id);
        beginning.map(|context| context.trace)
    }

    pub(crate) fn pending(&self) -> usize {
        self.inbox.pending()
    }

    pub(super) fn paused(&self) -> usize {
        self.inbox.paused()
    }

    /// True if it has no work and no state to keep. Crashes are kept for a while.
    pub(super) fn is_forgettable(&self, now_ms: u64) -> bool {
        let is_well =
            self.slot.crashes == 0 || now_ms.saturating_sub(self.idle_since_ms) >= CRASH_MEMORY_MS;
        is_well
            && !self.restarts.any_counts(now_ms)
            && self.slot.up().is_none()
            && self.pending() == 0
            && self.waiters.is_empty()
            && self.asking.is_empty()
            && self.approvals.is_empty()
            && self.awaiting.is_empty()
            && self.deleting.is_none()
            && self.hold.is_none()
            && self.inbox.is_read()
    }
}

/// Recipient of a deletion's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteReply {
    Client(RequestToken),
    /// A request that deletes several instances.
    Sweep(RequestToken),
    /// None, because the policy deletes it.
    Policy,
}
