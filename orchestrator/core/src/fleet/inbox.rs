//! Queue of an instance, as far as known: the events that wait for their turns, and the number of
//! crashes that each caused.
//!
//! The store owns the inbox on disk. This is a copy of its reported content, and of later
//! additions. The conversation tracks if the copy is current.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;
use goondan_store::instance::QueueOrder;

use super::join_sets::{self, EndedSet, JoinSet};
use super::turn::ActiveTurn;
use crate::ClockTime;
use crate::limits::JOIN_RETRY_MS;

/// A time that is over.
fn immediately() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

/// True if the event waits for the other parts of a join.
fn is_part(event: &AgentEvent) -> bool {
    event.waits_as().is_some()
}

/// Pending events of an instance.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Durable events that are not done, in the order of their turns; the turn in progress answers the first.
    waiting: VecDeque<AgentEvent>,
    /// Events that a user has paused.
    paused: BTreeSet<EventId>,
    /// Those that a person wants to wait, while that is on its way to the disk.
    pausing: BTreeSet<EventId>,
    /// Parts of joins whose end is on its way to the disk.
    joining: BTreeSet<EventId>,
    /// Time at which the next join may end; `None` without parts that wait for others.
    join_check: Option<Timestamp>,
    /// No join is stored before this time, because that failed.
    join_not_before_ms: u64,
    /// Submission times of events that the store has not reported yet, oldest first, which is the
    /// order of the reports.
    accepting: VecDeque<Timestamp>,
    /// Number of process crashes in the turns of each waiting event, if there were any.
    crashes: BTreeMap<EventId, u32>,
    /// The turn in which the latest process crashed, and how.
    last_crash: Option<(ActiveTurn, String)>,
}

impl Inbox {
    /// The store has reported the content of the inbox. The event of the open turn is first.
    pub(super) fn load(
        &mut self,
        waiting: Vec<AgentEvent>,
        paused: BTreeSet<EventId>,
        crashes: BTreeMap<EventId, u32>,
        open: Option<&EventId>,
    ) {
        self.waiting = waiting.into();
        self.joining.clear();
        self.join_check = self.waiting.iter().any(is_part).then(immediately);
        self.paused = paused;
        self.crashes = crashes;
        let place = |open: &EventId| self.waiting.iter().position(|event| event.id == *open);
        if let Some(place) = open.and_then(place).filter(|place| *place > 0)
            && let Some(event) = self.waiting.remove(place)
        {
            self.waiting.push_front(event);
        }
    }

    /// Drops waiting events, which will not get a turn.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The events whose turns may begin, in their order; that of the turn in progress is the first.
    pub(super) fn ready(&self) -> impl Iterator<Item = &AgentEvent> {
        self.waiting
            .iter()
            .filter(|event| !self.is_paused(&event.id) && !is_part(event))
    }

    /// True if no turn is in progress or may begin.
    pub(super) fn has_nothing_ready(&self) -> bool {
        self.ready().next().is_none()
    }

    /// True if a user has paused an event.
    pub(super) fn is_paused(&self, id: &EventId) -> bool {
        self.paused.contains(id) || self.pausing.contains(id)
    }

    pub(super) fn paused(&self) -> usize {
        let paused = self.waiting.iter().filter(|event| !is_part(event));
        paused.filter(|event| self.is_paused(&event.id)).count()
    }

    /// Number of events that wait for the other parts of a join.
    pub(super) fn parts(&self) -> usize {
        self.waiting.iter().filter(|event| is_part(event)).count()
    }

    /// True if joins may have to end now.
    pub(super) fn is_join_due(&self, now: ClockTime) -> bool {
        let is_due = self.join_check.is_some_and(|at| at <= now.wall);
        is_due && now.mono_ms >= self.join_not_before_ms
    }

    /// The sets of joins in the queue, except those whose end is on its way to the disk.
    pub(super) fn join_sets(&self, now: Timestamp) -> Vec<JoinSet<'_>> {
        let parts = self.waiting.iter();
        join_sets::sets_of(parts.filter(|event| !self.joining.contains(&event.id)), now)
    }

    /// Takes the sets that have ended: they are on their way to the disk from now on.
    pub(super) fn take_ended_sets(&mut self, now: Timestamp) -> Vec<EndedSet> {
        let sets = self.join_sets(now);
        let open = sets.iter().filter(|set| set.end().is_none());
        let check = open.map(JoinSet::until).min();
        let ended: Vec<EndedSet> = sets.iter().filter_map(JoinSet::to_ended).collect();
        self.join_check = check;
        for set in &ended {
            self.begin_joining(set);
        }
        ended
    }

    /// The end of a set is on its way to the disk.
    pub(super) fn begin_joining(&mut self, set: &EndedSet) {
        self.joining.extend(set.events().cloned());
    }

    /// True if the end of the event's set is on its way to the disk.
    pub(super) fn is_joining(&self, id: &EventId) -> bool {
        self.joining.contains(id)
    }

    /// The end of a set could not be stored.
    pub(super) fn on_not_joined(&mut self, set: &EndedSet, now_ms: u64) {
        set.events().for_each(|id| {
            self.joining.remove(id);
        });
        self.join_check = Some(immediately());
        self.join_not_before_ms = now_ms.saturating_add(JOIN_RETRY_MS);
    }

    /// The set is durable as one input, in the place of its last part.
    pub(super) fn joined(&mut self, set: EndedSet) {
        let EndedSet { whole, parts, .. } = set;
        self.joining.remove(&whole.id);
        for part in &parts {
            self.joining.remove(part);
        }
        self.done(|id| parts.contains(id));
        let mut waiting = self.waiting.iter_mut();
        if let Some(last) = waiting.find(|event| event.id == whole.id) {
            *last = *whole;
        }
    }

    /// A person wants an event to wait: its turn does not begin while that is on its way to the disk.
    pub(super) fn begin_pausing(&mut self, id: EventId) {
        self.pausing.insert(id);
    }

    /// Pausing an event has ended: durably, or with an error.
    pub(super) fn end_pausing(&mut self, id: &EventId) {
        self.pausing.remove(id);
    }

    /// Applies the order that the store reports; newer events come after it.
    pub(super) fn arrange(&mut self, arranged: QueueOrder) {
        let QueueOrder { order, paused } = arranged;
        let place = |event: &AgentEvent| {
            let place = order.iter().position(|id| *id == event.id);
            place.unwrap_or(order.len())
        };
        self.waiting.make_contiguous().sort_by_key(place);
        self.paused = paused;
    }

    /// The events that wait, in the order of their turns.
    pub(super) fn events(&self) -> impl Iterator<Item = &AgentEvent> {
        self.waiting.iter()
    }

    pub(super) fn get(&self, id: &EventId) -> Option<&AgentEvent> {
        self.waiting.iter().find(|event| event.id == *id)
    }

    /// Number of events that wait or are being accepted.
    pub(super) fn pending(&self) -> usize {
        self.waiting.len() + self.accepting.len()
    }

    /// True if events are being accepted.
    pub(super) fn is_accepting(&self) -> bool {
        !self.accepting.is_empty()
    }

    /// An event is submitted to the store.
    pub(super) fn begin_accept(&mut self, now: Timestamp) {
        self.accepting.push_back(now);
    }

    /// Start of the oldest acceptance in progress; `None` if there is none.
    pub(super) fn accepting_since(&self) -> Option<Timestamp> {
        self.accepting.front().copied()
    }

    /// The store has reported an event: this one waits from now on, if it is new.
    pub(super) fn end_accept(&mut self, new: Option<AgentEvent>) {
        self.accepting.pop_front();
        if new.as_ref().is_some_and(is_part) {
            self.join_check = Some(immediately());
        }
        self.waiting.extend(new);
    }

    /// These events have had their turn.
    pub(super) fn done(&mut self, is_done: impl Fn(&EventId) -> bool) {
        self.waiting.retain(|event| !is_done(&event.id));
    }

    /// A process crashed in a turn. How many did in those of its event so far.
    pub(super) fn count_crash(&mut self, turn: ActiveTurn, how: &str) -> u32 {
        let count = self.crashes.entry(turn.context.event_id.clone());
        let count = count.or_default();
        *count = count.saturating_add(1);
        let count = *count;
        self.last_crash = Some((turn, how.to_owned()));
        count
    }

    /// Number of process crashes in the turns of an event.
    pub(super) fn crashes_of(&self, id: &EventId) -> u32 {
        self.crashes.get(id).copied().unwrap_or(0)
    }

    /// Description of the latest crash, if it was in a turn of this event.
    pub(super) fn last_crash_of(&self, id: &EventId) -> Option<&str> {
        let last = self.last_crash.as_ref();
        let last = last.filter(|(turn, _)| turn.context.event_id == *id);
        last.map(|(_, how)| how.as_str())
    }

    /// The crashes of an event count no longer.
    pub(super) fn forgive(&mut self, id: &EventId) {
        self.crashes.remove(id);
    }

    /// Removes a parked event. Returns the turn of the latest crash, if it was a turn of this
    /// event.
    pub(super) fn parked(&mut self, id: &EventId) -> Option<ActiveTurn> {
        self.done(|done| done == id);
        self.forgive(id);
        let last = self.last_crash.take().map(|(turn, _)| turn);
        last.filter(|turn| turn.context.event_id == *id)
    }
}
