//! Events whose turns crash their process: counted, parked, and decided by users.
//!
//! The queued events of a process that cannot start for a permanent reason are parked as well
//! ([`super::start_faults`]).
//!
//! A crash counts against the event of the turn in progress. The count is recorded before the event
//! is processed again, so it survives a daemon crash. After [`MAX_TURN_CRASHES`] crashes the event
//! is parked and the conversation continues without it.

use std::collections::BTreeMap;

use goondan_protocol::control::{EmptyResult, EventInfo, EventStanding};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_protocol::time::Timestamp;
use goondan_store::StoreError;
use goondan_store::instance::{Metadata, ParkedEvent};
use goondan_store::writer::operation::{DropEvent, NoteAttempt, ParkEvent, RetryEvent};

use super::Workspace;
use super::agent_replies::pending_replies::QuestionStatus;
use super::conversation::Conversation;
use super::join_sets::JoinSet;
use super::turn::ActiveTurn;
use crate::bus::context::Cx;
use crate::jobs::{Continuation, LogFailure, continuation};
use crate::limits::{KNOWN_PARKED_MAX, MAX_TURN_CRASHES};
use crate::refusals::parked_error;
use crate::{Core, RequestToken, control_error};

/// A user's decision on a parked event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParkedEventDecision {
    Retry,
    Drop,
}

/// Number of parked events by instance, from their metadata.
pub fn parked_among(found: &[Metadata]) -> BTreeMap<InstanceKey, u64> {
    let parked = found.iter().filter(|metadata| metadata.parked_events > 0);
    parked
        .map(|metadata| (metadata.instance_key.clone(), metadata.parked_events))
        .collect()
}

continuation! {
    Parking { event_id: EventId, reason: String } after ParkEvent => &core.on_parked
}

/// Records a user's decision on a parked event.
#[derive(Debug)]
struct ParkedEventUpdate {
    instance: InstanceRef,
    token: RequestToken,
    event_id: EventId,
    decision: ParkedEventDecision,
}

impl Continuation<RetryEvent> for ParkedEventUpdate {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.instance)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        if let Some((workspace, cx)) = core.fleet.workspace_and_cx(&self.instance.workspace_id) {
            workspace.on_decided(cx, &self, result);
        }
    }
}

impl Continuation<DropEvent> for ParkedEventUpdate {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.instance)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        if let Some((workspace, cx)) = core.fleet.workspace_and_cx(&self.instance.workspace_id) {
            workspace.on_decided(cx, &self, result);
        }
    }
}

/// Parked events of a workspace's conversations: their number (`OBS-6`), and the events that were
/// read since their last change. Lists use these, because reading opens the conversation.
#[derive(Debug, Default)]
pub(crate) struct ParkedEvents {
    counts: BTreeMap<InstanceKey, u64>,
    known: BTreeMap<InstanceKey, Vec<EventInfo>>,
}

impl ParkedEvents {
    /// Creates it from the counts at the opening of the workspace.
    pub(super) fn new(counts: BTreeMap<InstanceKey, u64>) -> Self {
        Self {
            counts,
            known: BTreeMap::new(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Updates the number of a conversation's parked events.
    fn count(&mut self, key: &InstanceKey, change: impl FnOnce(u64) -> u64) {
        let count = change(self.counts.remove(key).unwrap_or(0));
        if count > 0 {
            self.counts.insert(key.clone(), count);
        }
        self.forget_known(key);
    }

    /// The parked events of a conversation, if they were read since their last change.
    pub(crate) fn known(&self, key: &InstanceKey) -> Option<&[EventInfo]> {
        self.known.get(key).map(Vec::as_slice)
    }

    /// Keeps the parked events that the store reported, so that the next list does not open the
    /// conversation. A conversation with very many is read each time.
    fn keep_known(&mut self, key: &InstanceKey, parked: &[EventInfo]) {
        let count = self.counts.get(key).copied();
        let is_current = count == u64::try_from(parked.len()).ok();
        if is_current && parked.len() <= KNOWN_PARKED_MAX {
            self.known.insert(key.clone(), parked.to_vec());
        }
    }

    /// Drops the known events, because the store's may have changed.
    pub(super) fn forget_known(&mut self, key: &InstanceKey) {
        self.known.remove(key);
    }

    /// Drops a deleted conversation.
    pub(super) fn forget(&mut self, key: &InstanceKey) {
        self.counts.remove(key);
        self.known.remove(key);
    }
}

/// Events that crash the process or cannot start one.
impl Conversation {
    /// Counts and records a crash against the event of its turn.
    pub(super) fn count_crash(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        turn: ActiveTurn,
        how: &str,
    ) {
        let event_id = turn.context.event_id.clone();
        let attempts = self.queue_mut().count_crash(turn, how);
        let op = NoteAttempt {
            instance: at.clone(),
            event_id,
            attempts,
            at: cx.now().wall,
        };
        cx.store(op, LogFailure(at.clone()));
    }

    /// Parks the next event.
    pub(super) fn park_next(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let now = cx.now();
        let not_started = self.why_none_starts(now);
        let not_started =
            not_started.map(|why| format!("the process of its agent cannot start: {why}"));
        let Some(event) = self.queue().ready().next() else {
            return;
        };
        let event_id = event.id.clone();
        let crashes = self.queue().crashes_of(&event_id);
        let reason = not_started.unwrap_or_else(|| match self.queue().last_crash_of(&event_id) {
            Some(how) => format!("{crashes} processes ended during its turn, most recently: {how}"),
            None => format!("{crashes} processes ended during its turn"),
        });
        // The inbox is read again after the event is parked.
        self.invalidate_queue();
        let op = ParkEvent {
            instance: at.clone(),
            event_id: event_id.clone(),
            reason: reason.clone(),
            at: now.wall,
        };
        let parking = Parking {
            instance: at.clone(),
            event_id,
            reason,
        };
        cx.store(op, parking);
    }

    /// True if the next event has crashed too many turns.
    pub(super) fn is_next_poisonous(&self) -> bool {
        let next = self.next_event();
        next.is_some_and(|event| self.queue().crashes_of(&event.id) >= MAX_TURN_CRASHES)
    }
}

impl Workspace {
    /// Records that a turn ended with the parking of its event.
    pub(super) fn observe_parked(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        turn: &ActiveTurn,
        reason: &str,
    ) {
        let timestamp = cx.now().wall;
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return;
        };
        let whose = (entry.agent().clone(), at.instance_key.clone());
        let kind = RuntimeEventKind::TurnParked;
        let (place, turn_id) = (turn.context.trace, turn.turn_id.clone());
        let event = RuntimeEvent {
            event_id: Some(turn.context.event_id.clone()),
            detail: Some(detail_of(reason)),
            ..RuntimeEvent::new(kind, timestamp, place, whose, turn_id)
        };
        self.record_observation(cx, at, &event);
    }
}

impl Workspace {
    /// Handles the result of parking an event. True if it is parked.
    pub(crate) fn on_parked(
        &mut self,
        cx: &mut Cx,
        parking: &Parking,
        result: Result<(), StoreError>,
    ) -> bool {
        let (at, event_id) = (&parking.instance, &parking.event_id);
        let reason = parking.reason.as_str();
        match result {
            Ok(()) => {}
            // The event is already over, so the inbox must be read again.
            Err(StoreError::WrongEvent { .. }) => {
                self.advance(cx, at);
                return false;
            }
            Err(error) => {
                self.on_open_failed(cx, at, &error);
                return false;
            }
        }
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return false;
        };
        if let Some(turn) = entry.queue_mut().parked(event_id) {
            self.observe_parked(cx, at, &turn, reason);
        }
        self.end_approvals(cx, at, "event parked");
        self.parked
            .count(&at.instance_key, |count| count.saturating_add(1));
        let event = LifecycleEvent::EventParked {
            instance_key: at.instance_key.clone(),
            event_id: event_id.clone(),
            reason: reason.to_owned(),
        };
        self.announce(cx, event, None);
        let error = parked_error(event_id, reason);
        for waiter in self.take_waiters(at, event_id) {
            self.fail_waiter(cx, at, event_id, waiter, &error, QuestionStatus::Lost);
        }
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.end_questions(cx, at);
        }
        self.advance(cx, at);
        self.forget_if_done(cx, &at.instance_key);
        true
    }

    /// Handles a user's decision on a parked event.
    pub(crate) fn decide(
        &self,
        cx: &mut Cx,
        token: RequestToken,
        at: &InstanceRef,
        event_id: EventId,
        decision: ParkedEventDecision,
    ) {
        let wall = cx.now().wall;
        let (instance, id) = (at.clone(), event_id.clone());
        let deciding = ParkedEventUpdate {
            instance: at.clone(),
            token,
            event_id,
            decision,
        };
        match decision {
            ParkedEventDecision::Retry => {
                let retry = RetryEvent {
                    instance,
                    event_id: id,
                    at: wall,
                };
                cx.store(retry, deciding);
            }
            ParkedEventDecision::Drop => {
                let dropped = DropEvent {
                    instance,
                    event_id: id,
                    at: wall,
                };
                cx.store(dropped, deciding);
            }
        }
    }

    fn on_decided(
        &mut self,
        cx: &mut Cx,
        deciding: &ParkedEventUpdate,
        result: Result<(), StoreError>,
    ) {
        let (at, event_id, token) = (&deciding.instance, &deciding.event_id, deciding.token);
        if let Err(error) = result {
            self.parked.forget_known(&at.instance_key);
            return cx.respond_error(token, control_error(&error));
        }
        self.parked
            .count(&at.instance_key, |count| count.saturating_sub(1));
        if let Some(entry) = self.conversation_entry(cx, at, None) {
            entry.forgive_event(event_id);
        }
        let (instance_key, event_id) = (at.instance_key.clone(), event_id.clone());
        let event = match deciding.decision {
            ParkedEventDecision::Retry => LifecycleEvent::EventRetried {
                instance_key,
                event_id,
            },
            ParkedEventDecision::Drop => LifecycleEvent::EventDropped {
                instance_key,
                event_id,
            },
        };
        self.announce(cx, event, None);
        cx.respond(token, &EmptyResult {});
        self.invalidate_queue(cx, at);
    }

    /// The queued and parked events of a conversation.
    pub(crate) fn events_of(
        &mut self,
        at: &InstanceRef,
        agent: &AgentName,
        parked: Vec<ParkedEvent>,
        now: Timestamp,
    ) -> Vec<EventInfo> {
        let info = |event: AgentEvent, standing, crashes, reason, since| EventInfo {
            instance_key: at.instance_key.clone(),
            agent_name: agent.clone(),
            event_id: event.id,
            standing,
            crashes,
            reason,
            since,
            source: event.source,
            input: event.input.as_deref().map(detail_of).unwrap_or_default(),
        };
        let mut events: Vec<EventInfo> = Vec::new();
        for parked in parked {
            let ParkedEvent {
                event,
                attempts,
                reason,
                at: since,
            } = parked;
            events.push(info(
                event,
                EventStanding::Parked,
                attempts,
                Some(reason),
                since,
            ));
        }
        self.parked.keep_known(&at.instance_key, &events);
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return events;
        };
        let sets = entry.queue().join_sets(now);
        for event in entry.queue().events() {
            let turn = entry.turn();
            let is_current = turn.is_some_and(|turn| turn.context.event_id == event.id);
            let set = sets.iter().find(|set| set.has(&event.id));
            let standing = match is_current {
                true => EventStanding::Processing,
                false if set.is_some() => EventStanding::Joining,
                false if entry.queue().is_paused(&event.id) => EventStanding::Paused,
                false => EventStanding::Waiting,
            };
            let crashes = entry.queue().crashes_of(&event.id);
            events.push(info(
                event.clone(),
                standing,
                crashes,
                set.map(JoinSet::description),
                event.created_at,
            ));
        }
        events
    }
}
