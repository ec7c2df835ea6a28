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
use goondan_protocol::ids::{EventId, InstanceKey, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_store::StoreError;
use goondan_store::instance::{Metadata, ParkedEvent};
use goondan_store::writer::operation::{DropEvent, Inspection, NoteAttempt, ParkEvent, RetryEvent};

use super::Fleet;
use super::agent_replies::pending_replies::QuestionStatus;
use super::turn::ActiveTurn;
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
        core.fleet.on_decided(&self, result);
    }
}

impl Continuation<DropEvent> for ParkedEventUpdate {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.instance)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        core.fleet.on_decided(&self, result);
    }
}

impl Fleet {
    /// Handles the result of parking an event. True if it is parked.
    pub(crate) fn on_parked(&mut self, parking: &Parking, result: Result<(), StoreError>) -> bool {
        let (at, event_id) = (&parking.instance, &parking.event_id);
        let reason = parking.reason.as_str();
        match result {
            Ok(()) => {}
            // The event is already over, so the inbox must be read again.
            Err(StoreError::WrongEvent { .. }) => {
                self.advance(at);
                return false;
            }
            Err(error) => {
                self.on_open_failed(at, &error);
                return false;
            }
        }
        let Some(entry) = self.conversation_mut(at) else {
            return false;
        };
        if let Some(turn) = entry.queue_mut().parked(event_id) {
            self.observe_parked(at, &turn, reason);
        }
        self.end_approvals(at, "event parked");
        self.count_parked(at, |count| count.saturating_add(1));
        let event = LifecycleEvent::EventParked {
            instance_key: at.instance_key.clone(),
            event_id: event_id.clone(),
            reason: reason.to_owned(),
        };
        self.announce(&at.workspace_id, event, None);
        let error = parked_error(event_id, reason);
        for waiter in self.take_waiters(at, event_id) {
            self.fail_waiter(at, event_id, waiter, &error, QuestionStatus::Lost);
        }
        self.end_questions(at);
        self.advance(at);
        self.forget_if_done(at);
        true
    }

    /// Counts and records a crash against the event of its turn.
    pub(crate) fn count_crash(&mut self, at: &InstanceRef, turn: ActiveTurn, how: &str) {
        let wall = self.cx.now().wall;
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        let event_id = turn.context.event_id.clone();
        let attempts = entry.queue_mut().count_crash(turn, how);
        let op = NoteAttempt {
            instance: at.clone(),
            event_id,
            attempts,
            at: wall,
        };
        self.cx.store(op, LogFailure(at.clone()));
    }

    /// True if the next event has crashed too many turns.
    pub(super) fn is_next_poisonous(&mut self, at: &InstanceRef) -> bool {
        let Some(entry) = self.conversation_mut(at) else {
            return false;
        };
        let next = entry.next_event();
        next.is_some_and(|event| entry.queue().crashes_of(&event.id) >= MAX_TURN_CRASHES)
    }

    pub(super) fn park_next(&mut self, at: &InstanceRef) {
        let (now, wall) = (self.cx.now(), self.cx.now().wall);
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        let not_started = entry.why_none_starts(now);
        let not_started =
            not_started.map(|why| format!("the process of its agent cannot start: {why}"));
        let Some(event) = entry.queue().ready().next() else {
            return;
        };
        let event_id = event.id.clone();
        let crashes = entry.queue().crashes_of(&event_id);
        let reason = not_started.unwrap_or_else(|| match entry.queue().last_crash_of(&event_id) {
            Some(how) => format!("{crashes} processes ended during its turn, most recently: {how}"),
            None => format!("{crashes} processes ended during its turn"),
        });
        // The inbox is read again after the event is parked.
        entry.invalidate_queue();
        let op = ParkEvent {
            instance: at.clone(),
            event_id: event_id.clone(),
            reason: reason.clone(),
            at: wall,
        };
        let parking = Parking {
            instance: at.clone(),
            event_id,
            reason,
        };
        self.cx.store(op, parking);
    }

    /// Updates the number of an instance's parked events, for `gdn daemon status` (`OBS-6`).
    pub(crate) fn count_parked(&mut self, at: &InstanceRef, change: impl FnOnce(u64) -> u64) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let count = workspace.parked.remove(&at.instance_key).unwrap_or(0);
        let count = change(count);
        if count > 0 {
            workspace.parked.insert(at.instance_key.clone(), count);
        }
        self.forget_known_parked(at);
    }

    /// The parked events of an instance, if they were read since their last change.
    pub(crate) fn known_parked(&self, at: &InstanceRef) -> Option<&[EventInfo]> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let known = workspace.known_parked.get(&at.instance_key)?;
        Some(known.as_slice())
    }

    /// Keeps the parked events that the store reported, so that the next list does not open the
    /// instance. One with very many is read each time.
    fn keep_known_parked(&mut self, at: &InstanceRef, parked: &[EventInfo]) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let count = workspace.parked.get(&at.instance_key);
        let is_current = count.copied() == u64::try_from(parked.len()).ok();
        if is_current && parked.len() <= KNOWN_PARKED_MAX {
            let known = &mut workspace.known_parked;
            known.insert(at.instance_key.clone(), parked.to_vec());
        }
    }

    /// The store's parked events may have changed.
    pub(crate) fn forget_known_parked(&mut self, at: &InstanceRef) {
        if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
            workspace.known_parked.remove(&at.instance_key);
        }
    }

    pub(crate) fn observe_parked(&mut self, at: &InstanceRef, turn: &ActiveTurn, reason: &str) {
        let timestamp = self.cx.now().wall;
        let Some(entry) = self.conversation_mut(at) else {
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
        self.record_observation(at, &event);
    }

    /// Handles a user's decision on a parked event.
    pub(crate) fn decide(
        &mut self,
        token: RequestToken,
        at: InstanceRef,
        event_id: EventId,
        decision: ParkedEventDecision,
    ) {
        if let Err(error) = self.workspace(&at.workspace_id) {
            return self.cx.respond_error(token, error);
        }
        let wall = self.cx.now().wall;
        let (instance, id) = (at.clone(), event_id.clone());
        let deciding = ParkedEventUpdate {
            instance: at,
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
                self.cx.store(retry, deciding);
            }
            ParkedEventDecision::Drop => {
                let dropped = DropEvent {
                    instance,
                    event_id: id,
                    at: wall,
                };
                self.cx.store(dropped, deciding);
            }
        }
    }

    fn on_decided(&mut self, deciding: &ParkedEventUpdate, result: Result<(), StoreError>) {
        let (at, event_id, token) = (&deciding.instance, &deciding.event_id, deciding.token);
        if let Err(error) = result {
            self.forget_known_parked(at);
            return self.cx.respond_error(token, control_error(&error));
        }
        self.count_parked(at, |count| count.saturating_sub(1));
        if let Some(entry) = self.conversation_entry(at, None) {
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
        self.announce(&at.workspace_id, event, None);
        self.cx.respond(token, &EmptyResult {});
        self.invalidate_queue(at);
    }

    /// The queued and parked events of a conversation.
    pub(crate) fn events_of(&mut self, at: &InstanceRef, found: Inspection) -> Vec<EventInfo> {
        let info = |event: AgentEvent, standing, crashes, reason, since| EventInfo {
            instance_key: at.instance_key.clone(),
            agent_name: found.metadata.agent_name.clone(),
            event_id: event.id,
            standing,
            crashes,
            reason,
            since,
            source: event.source,
            input: event.input.as_deref().map(detail_of).unwrap_or_default(),
        };
        let mut events: Vec<EventInfo> = Vec::new();
        for parked in found.parked {
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
        self.keep_known_parked(at, &events);
        let Some(entry) = self.conversation_mut(at) else {
            return events;
        };
        for event in entry.queue().events() {
            let turn = entry.turn();
            let is_current = turn.is_some_and(|turn| turn.context.event_id == event.id);
            let standing = match is_current {
                true => EventStanding::Processing,
                false if entry.queue().is_paused(&event.id) => EventStanding::Paused,
                false => EventStanding::Waiting,
            };
            let crashes = entry.queue().crashes_of(&event.id);
            events.push(info(
                event.clone(),
                standing,
                crashes,
                None,
                event.created_at,
            ));
        }
        events
    }
}
