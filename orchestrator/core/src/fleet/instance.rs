//! What is known of one agent instance that has or had something to do.

use std::collections::BTreeMap;

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey};
use goondan_protocol::trace::TraceContext;

use super::answers::waiting::Awaiting;
use super::approvals::Approvals;
use super::bundles::Overlay;
use super::changes::RunningAgent;
use super::holding::Hold;
use super::inbox::Inbox;
use super::restarting::SelfRestarts;
use super::slot::Slot;
use super::start_faults::StartFaults;
use super::turn::{Turn, TurnContext};
use super::unknown_calls::HeldBack;
use super::waiters::Waiters;
use crate::limits::CRASH_MEMORY_MS;
use crate::{Now, RequestToken};

/// How far a process is with being given its work.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The process has the whole conversation.
    pub(super) is_loaded: bool,
    /// The turn that the store was asked to begin.
    pub(super) beginning: Option<TurnContext>,
}

/// One agent instance that has or had something to do.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) agent: AgentName,
    pub(super) slot: Slot,
    pub(super) inbox: Inbox,
    pub(super) turn: Option<Turn>,
    pub(super) progress: Progress,
    /// What its process, or the last one, was started with.
    pub(super) running: Option<RunningAgent>,
    pub(super) waiters: Waiters,
    /// The questions its running turn waits for, and whom it asked. They stay while the turn is open,
    /// also while it has no process: it will ask again.
    pub(super) asking: BTreeMap<EventId, InstanceKey>,
    /// The calls of its open turn that need a person; also while it has no process.
    pub(super) approvals: Approvals,
    /// Questions whose answers are to come as events, by the ids of those events.
    pub(super) awaiting: BTreeMap<EventId, Awaiting>,
    pub(super) idle_since_ms: u64,
    /// Whether its process was ended because the store could not serve it: that counts against no event.
    pub(super) is_failed_by_store: bool,
    /// Its process's starts that failed for a reason that stays.
    pub(super) start_faults: StartFaults,
    /// The restarts that its agent asked for.
    pub(super) restarts: SelfRestarts,
    /// Who waits for it to be deleted; none while it is to stay.
    pub(super) deleting: Option<Vec<DeleteReply>>,
    /// What it is held for: no turn begins meanwhile.
    pub(super) hold: Option<Hold>,
    /// What it works with besides what the project says.
    pub(super) overlay: Overlay,
    /// What its process says of its turn while a call that was cut short is not in the audit log yet.
    pub(super) held_back: Option<HeldBack>,
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

    /// The other conversations that its turn in progress works for.
    pub(super) fn asked_by(&self, own: &InstanceKey) -> Vec<InstanceKey> {
        let turn = self.turn.as_ref();
        let event_id = turn.map(|turn| &turn.context.event_id);
        let event = event_id.and_then(|id| self.inbox.get(id));
        event.map_or_else(Vec::new, |event| event.asked_by(own))
    }

    /// Why no process will begin its next turn, if none will.
    pub(super) fn why_none_starts(&self, now: Now) -> Option<&str> {
        let is_down = self.slot.up().is_none();
        let why = self.start_faults.why_none_starts(self.slot.may_start(now));
        why.filter(|_| is_down)
    }

    /// Whether its process runs and nothing at all is expected of it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turn.is_none()
            && self.inbox.has_nothing_ready()
            && self.awaiting.is_empty()
            && self.deleting.is_none()
            && self.hold.is_none()
            && self.slot.ready().is_some()
    }

    /// Whether no turn is in progress, can begin or is about to be asked for.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.turn.is_none() && self.inbox.has_nothing_ready() && !self.inbox.is_accepting()
    }

    /// Whether its process may end for another to have its place.
    pub(super) fn may_leave(&self) -> bool {
        self.is_at_rest() && !self.inbox.is_accepting()
    }

    /// The event whose turn is next: behind the turn in progress if its commit is on the way, none while
    /// it goes on.
    pub(super) fn next_event(&self) -> Option<&AgentEvent> {
        let Some(turn) = &self.turn else {
            return self.inbox.ready().next();
        };
        let taken_in = turn.taken_in.as_ref()?;
        let is_over = |id: &EventId| *id == turn.context.event_id || taken_in.contains(id);
        self.inbox.ready().find(|event| !is_over(&event.id))
    }

    /// The events whose turns are in progress or about to be: of two, the second begins behind the commit of the first.
    pub(super) fn worked_on(&self) -> impl Iterator<Item = &EventId> {
        let turn = self.turn.as_ref().filter(|turn| turn.taken_in.is_none());
        let turn = turn.map(|turn| &turn.context);
        let contexts = turn.into_iter().chain(&self.progress.beginning);
        contexts.map(|context| &context.event_id)
    }

    /// What its process still says of the turn of this event comes too late. Where that belongs; none if it is not
    /// worked on.
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

    /// Whether it has nothing to do and nothing to remember. A crash is remembered for a
    /// while.
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

/// Who is told that an instance is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteReply {
    /// A client that asked for just that.
    Client(RequestToken),
    /// A request that deletes several.
    Sweep(RequestToken),
    /// Nobody: the policy has it so.
    Policy,
}
