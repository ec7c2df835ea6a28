//! What is known of one agent instance that has or had something to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::control::Sent;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};
use goondan_protocol::trace::TraceContext;

use super::answers::waiting::{AgentWaiter, Awaiting};
use super::ceilings::TurnUse;
use super::changes::RunningAgent;
use super::restarting::SelfRestarts;
use super::slot::Slot;
use crate::RequestToken;
use crate::limits::CRASH_MEMORY_MS;

/// Who waits for an event's turn.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A client.
    Client {
        token: RequestToken,
        sent: Box<Sent>,
    },
    /// An agent that asked.
    Agent(AgentWaiter),
}

impl Waiter {
    /// The client it is, if it is one.
    pub(super) fn client(&self) -> Option<RequestToken> {
        match self {
            Self::Client { token, .. } => Some(*token),
            Self::Agent(_) => None,
        }
    }
}

/// What a turn belongs to.
#[derive(Debug, Clone)]
pub(crate) struct TurnContext {
    pub(crate) event_id: EventId,
    pub(crate) trace: TraceContext,
    /// The digest of the configuration it runs under.
    pub(super) config_digest: Option<String>,
}

/// The turn in progress.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) turn_id: TurnId,
    pub(crate) context: TurnContext,
    /// What it has used of what a turn may.
    pub(super) used: TurnUse,
    /// When its process was handed it.
    pub(super) handed_over_ms: u64,
    /// Answers its process was given on the way; it takes them in, or they wait for a turn.
    pub(super) inputs: BTreeSet<EventId>,
    /// Why its agent wants its process restarted afterwards, if it does.
    pub(super) restart: Option<String>,
    /// What it took in, once its commit is on the way: whoever hears of that needs to hear of nothing
    /// before it.
    pub(super) taken_in: Option<Vec<EventId>>,
}

/// Whether it is known what an instance has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbox {
    /// Not since the store was last asked, or it could not say.
    Unread,
    /// The store is asked.
    Reading,
    /// `Instance::waiting` is what its inbox holds.
    Read,
}

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
    /// Durable events that are not done, oldest first; the turn in progress answers the first.
    pub(super) waiting: VecDeque<AgentEvent>,
    pub(super) inbox: Inbox,
    /// How many processes crashed in the turns of waiting events, where any did.
    pub(super) turn_crashes: BTreeMap<EventId, u32>,
    /// The turn in which the latest process crashed, and how.
    pub(super) last_crash: Option<(Turn, String)>,
    /// Events handed to the store and not reported yet.
    pub(super) accepting: usize,
    pub(super) turn: Option<Turn>,
    pub(super) progress: Progress,
    /// What its process, or the last one, was started with.
    pub(super) running: Option<RunningAgent>,
    pub(super) waiters: BTreeMap<EventId, Vec<Waiter>>,
    /// The questions its running turn waits for, and whom it asked. They stay while the turn is open,
    /// also while it has no process: it will ask again.
    pub(super) asking: BTreeMap<EventId, InstanceKey>,
    /// Questions whose answers are to come as events, by the ids of those events.
    pub(super) awaiting: BTreeMap<EventId, Awaiting>,
    pub(super) idle_since_ms: u64,
    /// The restarts that its agent asked for.
    pub(super) restarts: SelfRestarts,
    /// Who waits for it to be deleted; none while it is to stay.
    pub(super) deleting: Option<Vec<DeleteReply>>,
}

impl Instance {
    pub(super) fn new(agent: AgentName, now_ms: u64) -> Self {
        Self {
            agent,
            slot: Slot::default(),
            waiting: VecDeque::new(),
            inbox: Inbox::Read,
            turn_crashes: BTreeMap::new(),
            last_crash: None,
            accepting: 0,
            turn: None,
            progress: Progress::default(),
            running: None,
            waiters: BTreeMap::new(),
            asking: BTreeMap::new(),
            awaiting: BTreeMap::new(),
            idle_since_ms: now_ms,
            restarts: SelfRestarts::default(),
            deleting: None,
        }
    }

    /// The other conversations that its turn in progress works for.
    pub(super) fn asked_by(&self, own: &InstanceKey) -> Vec<InstanceKey> {
        let turn = self.turn.as_ref();
        let event_id = turn.map(|turn| &turn.context.event_id);
        let mut waiting = self.waiting.iter();
        let event = waiting.find(|event| Some(&event.id) == event_id);
        event.map_or_else(Vec::new, |event| event.asked_by(own))
    }

    /// Whether its process runs and nothing at all is expected of it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turn.is_none()
            && self.waiting.is_empty()
            && self.awaiting.is_empty()
            && self.deleting.is_none()
            && self.slot.ready().is_some()
    }

    /// Whether its process may end for another to have its place.
    pub(super) fn may_leave(&self) -> bool {
        self.is_at_rest() && self.accepting == 0
    }

    /// The event whose turn is next: behind the turn in progress if its commit is on the way, none while
    /// it goes on.
    pub(super) fn next_event(&self) -> Option<&AgentEvent> {
        let Some(turn) = &self.turn else {
            return self.waiting.front();
        };
        let taken_in = turn.taken_in.as_ref()?;
        let is_over = |id: &EventId| *id == turn.context.event_id || taken_in.contains(id);
        self.waiting.iter().find(|event| !is_over(&event.id))
    }

    pub(crate) fn pending(&self) -> usize {
        self.waiting.len() + self.accepting
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
            && self.awaiting.is_empty()
            && self.deleting.is_none()
            && self.inbox == Inbox::Read
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
