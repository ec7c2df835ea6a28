//! Events whose turns crash whoever works on them: counted, parked, and decided about by people.
//!
//! A crash counts against the event whose turn was in progress. The count is written down before the
//! event is handed out again, so that a daemon that is killed meanwhile goes on counting. After
//! [`MAX_TURN_CRASHES`] of them the event is parked and the conversation goes on without it.

use std::collections::BTreeMap;

use goondan_protocol::control::{ControlError, Done, EventInfo, EventStanding, ListEvents};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{EventId, InstanceKey, InstanceRef};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_store::StoreError;
use goondan_store::instance::{Metadata, ParkedEvent};
use goondan_store::writer::operation::{
    DropEvent, Inspect, Inspection, NoteAttempt, ParkEvent, RetryEvent,
};
use serde_json::json;

use super::ListPurpose;
use super::answers::waiting::QuestionStatus;
use super::instance::{Inbox, Turn};
use super::jobs::{Continuation, LogFailure, continuation};
use super::refusals::parked_error;
use super::{Core, Effect, Fleet, LogEvent, RequestToken, control_error};
use crate::limits::MAX_TURN_CRASHES;

/// What a person decides about a parked event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Retry,
    Drop,
}

/// The events of a workspace, while some of its instances are still asked.
#[derive(Debug)]
pub(super) struct EventListing {
    request: ListEvents,
    outstanding: usize,
    found: Vec<EventInfo>,
    failure: Option<ControlError>,
}

/// How many events of which instances are parked, by what their metadata say.
pub fn parked_among(found: &[Metadata]) -> BTreeMap<InstanceKey, u64> {
    let parked = found.iter().filter(|metadata| metadata.parked_events > 0);
    parked
        .map(|metadata| (metadata.instance_key.clone(), metadata.parked_events))
        .collect()
}

continuation! {
    /// An event that is taken out of the way.
    Parking { event_id: EventId, reason: String } after ParkEvent => &core.on_parked
}

/// What a person has decided about a parked event.
#[derive(Debug)]
struct Deciding {
    instance: InstanceRef,
    token: RequestToken,
    event_id: EventId,
    decision: Decision,
}

impl Continuation<RetryEvent> for Deciding {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.instance)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        core.fleet.on_decided(&self, result);
    }
}

impl Continuation<DropEvent> for Deciding {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.instance)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        core.fleet.on_decided(&self, result);
    }
}

continuation! {
    /// An instance whose events are listed for a client.
    InspectingEvents { token: RequestToken } after Inspect => &core.on_events_inspected
}

impl Fleet {
    /// The process crashed in this turn: that counts against the event, and is written down.
    pub(super) fn count_crash(&mut self, at: &InstanceRef, turn: Turn, how: &str) {
        let wall = self.now.wall;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let event_id = turn.context.event_id.clone();
        let attempts = entry.turn_crashes.get(&event_id).copied().unwrap_or(0);
        let attempts = attempts.saturating_add(1);
        entry.turn_crashes.insert(event_id.clone(), attempts);
        entry.last_crash = Some((turn, how.to_owned()));
        let op = NoteAttempt {
            instance: at.clone(),
            event_id,
            attempts,
            at: wall,
        };
        self.store(op, LogFailure(at.clone()));
    }

    /// Whether the event that would be next has crashed too many turns.
    pub(super) fn is_next_poisonous(&mut self, at: &InstanceRef) -> bool {
        let Some(entry) = self.instance_mut(at) else {
            return false;
        };
        let next = entry.next_event();
        let crashes = next.and_then(|event| entry.turn_crashes.get(&event.id));
        crashes.is_some_and(|crashes| *crashes >= MAX_TURN_CRASHES)
    }

    /// Takes the next event out of the way.
    pub(super) fn park_next(&mut self, at: &InstanceRef) {
        let wall = self.now.wall;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let Some(event) = entry.waiting.front() else {
            return;
        };
        let event_id = event.id.clone();
        let crashes = entry.turn_crashes.get(&event_id).copied().unwrap_or(0);
        let last = entry.last_crash.as_ref();
        let last = last.filter(|(turn, _)| turn.context.event_id == event_id);
        let reason = match last {
            Some((_, how)) => format!("{crashes} processes ended in its turn, the last: {how}"),
            None => format!("{crashes} processes ended in its turn"),
        };
        // What the inbox holds then is read once it is parked.
        entry.inbox = Inbox::Unread;
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
        self.store(op, parking);
    }

    /// Keeps how many events of an instance are parked, for `gdn status` (`OBS-6`).
    fn count_parked(&mut self, at: &InstanceRef, change: impl FnOnce(u64) -> u64) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let count = workspace.parked.remove(&at.instance_key).unwrap_or(0);
        let count = change(count);
        if count > 0 {
            workspace.parked.insert(at.instance_key.clone(), count);
        }
    }

    fn observe_parked(&mut self, at: &InstanceRef, turn: &Turn, reason: &str) {
        let timestamp = self.now.wall;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let trace = turn.context.trace;
        let event = RuntimeEvent {
            kind: RuntimeEventKind::TurnParked,
            timestamp,
            trace_id: trace.trace_id,
            span_id: trace.span_id,
            parent_span_id: trace.parent_span_id,
            agent_name: entry.agent.clone(),
            instance_key: at.instance_key.clone(),
            turn_id: turn.turn_id.clone(),
            event_id: Some(turn.context.event_id.clone()),
            step_id: None,
            tool_call_id: None,
            tool_name: None,
            question_id: None,
            config_digest: None,
            duration_ms: None,
            usage: None,
            cost_micro_usd: None,
            response: None,
            detail: Some(detail_of(reason)),
        };
        self.record_observation(at, &event);
    }

    /// A person decides about a parked event.
    pub(super) fn decide(
        &mut self,
        token: RequestToken,
        at: InstanceRef,
        event_id: EventId,
        decision: Decision,
    ) {
        if let Err(error) = self.workspace(&at.workspace_id) {
            return self.respond_error(token, error);
        }
        let wall = self.now.wall;
        let (instance, id) = (at.clone(), event_id.clone());
        let deciding = Deciding {
            instance: at,
            token,
            event_id,
            decision,
        };
        match decision {
            Decision::Retry => {
                let retry = RetryEvent {
                    instance,
                    event_id: id,
                    at: wall,
                };
                self.store(retry, deciding);
            }
            Decision::Drop => {
                let dropped = DropEvent {
                    instance,
                    event_id: id,
                    at: wall,
                };
                self.store(dropped, deciding);
            }
        }
    }

    fn on_decided(&mut self, deciding: &Deciding, result: Result<(), StoreError>) {
        let (at, event_id, token) = (&deciding.instance, &deciding.event_id, deciding.token);
        let what = match deciding.decision {
            Decision::Retry => "eventRetried",
            Decision::Drop => "eventDropped",
        };
        if let Err(error) = result {
            return self.respond_error(token, control_error(&error));
        }
        self.count_parked(at, |count| count.saturating_sub(1));
        if let Some(entry) = self.instance_entry(at, None) {
            entry.turn_crashes.remove(event_id);
        }
        self.audit(at, what, json!({"eventId": event_id}));
        self.respond(token, &Done {});
        self.invalidate_inbox(at);
    }

    /// Lists the events of a workspace that wait or are parked.
    pub(super) fn list_events(&mut self, token: RequestToken, request: ListEvents) {
        if let Err(error) = self.workspace(&request.workspace_id) {
            return self.respond_error(token, error);
        }
        let workspace_id = request.workspace_id.clone();
        let purpose = ListPurpose::Events { token, request };
        self.push(Effect::ListMetadata {
            purpose,
            workspace_id,
        });
    }

    fn events_of(&mut self, at: &InstanceRef, found: Inspection) -> Vec<EventInfo> {
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
        let nobody = BTreeMap::new();
        let entry = self.instance_mut(at);
        let (waiting, crashes, turn) = match &entry {
            Some(entry) => (
                Some(&entry.waiting),
                &entry.turn_crashes,
                entry.turn.as_ref(),
            ),
            None => (None, &nobody, None),
        };
        for event in waiting.into_iter().flatten() {
            let is_current = turn.is_some_and(|turn| turn.context.event_id == event.id);
            let standing = if is_current {
                EventStanding::Processing
            } else {
                EventStanding::Waiting
            };
            let crashes = crashes.get(&event.id).copied().unwrap_or(0);
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

impl Core {
    fn on_parked(&mut self, parking: &Parking, result: Result<(), StoreError>) {
        let (at, event_id) = (&parking.instance, &parking.event_id);
        let reason = parking.reason.as_str();
        match result {
            Ok(()) => {}
            // Over already: what there is to do is read anew.
            Err(StoreError::WrongEvent { .. }) => return self.fleet.pump(at),
            Err(error) => return self.fleet.on_open_failed(at, &error),
        }
        let Some(entry) = self.fleet.instance_mut(at) else {
            return;
        };
        entry.waiting.retain(|event| event.id != *event_id);
        entry.turn_crashes.remove(event_id);
        let last = entry.last_crash.take().map(|(turn, _)| turn);
        if let Some(turn) = last.filter(|turn| turn.context.event_id == *event_id) {
            self.fleet.observe_parked(at, &turn, reason);
        }
        self.fleet.count_parked(at, |count| count.saturating_add(1));
        self.calls.give_up_calls_of(&mut self.fleet, at, None);
        let event = LogEvent::error("an event is parked: its turn crashes whoever works on it");
        let event = event.of(at).with("eventId", event_id.as_str());
        self.fleet.log(event.with("reason", reason));
        let details = json!({"eventId": event_id, "reason": reason});
        self.fleet.audit(at, "eventParked", details);
        let error = parked_error(event_id, reason);
        for waiter in self.fleet.take_waiters(at, event_id) {
            self.fleet
                .fail_waiter(at, event_id, waiter, &error, QuestionStatus::Lost);
        }
        self.fleet.end_questions(at);
        self.fleet.pump(at);
        self.fleet.forget_if_done(at);
    }

    pub(super) fn on_events_listed(
        &mut self,
        token: RequestToken,
        request: ListEvents,
        found: Vec<Metadata>,
    ) {
        let mut asked: Vec<InstanceRef> = Vec::new();
        for metadata in found {
            let at = InstanceRef {
                workspace_id: request.workspace_id.clone(),
                instance_key: metadata.instance_key,
            };
            let is_chosen = request.instance_key.as_ref();
            let is_chosen = is_chosen.is_none_or(|key| *key == at.instance_key);
            let has_events = metadata.parked_events > 0 || self.fleet.instance_mut(&at).is_some();
            if is_chosen && has_events {
                asked.push(at);
            }
        }
        let listing = EventListing {
            request,
            outstanding: asked.len(),
            found: Vec::new(),
            failure: None,
        };
        self.event_listings.insert(token, listing);
        for instance in asked {
            let inspect = Inspect {
                instance: instance.clone(),
            };
            self.fleet
                .store(inspect, InspectingEvents { instance, token });
        }
        self.finish_event_listing(token);
    }

    fn on_events_inspected(
        &mut self,
        inspecting: &InspectingEvents,
        result: Result<Box<Inspection>, StoreError>,
    ) {
        let token = inspecting.token;
        let found = match result {
            Ok(found) => Ok(self.fleet.events_of(&inspecting.instance, *found)),
            // It was deleted meanwhile.
            Err(StoreError::NoInstance { .. }) => Ok(Vec::new()),
            Err(error) => Err(control_error(&error)),
        };
        if let Some(listing) = self.event_listings.get_mut(&token) {
            listing.outstanding = listing.outstanding.saturating_sub(1);
            match found {
                Ok(found) => listing.found.extend(found),
                Err(error) => listing.failure = Some(error),
            }
        }
        self.finish_event_listing(token);
    }

    fn finish_event_listing(&mut self, token: RequestToken) {
        use std::collections::btree_map::Entry;
        let Entry::Occupied(entry) = self.event_listings.entry(token) else {
            return;
        };
        if entry.get().outstanding > 0 {
            return;
        }
        let mut listing = entry.remove();
        if let Some(error) = listing.failure {
            return self.fleet.respond_error(token, error);
        }
        if listing.request.parked {
            let is_parked = |event: &EventInfo| event.standing == EventStanding::Parked;
            listing.found.retain(is_parked);
        }
        let order = |event: &EventInfo| (event.instance_key.clone(), event.since);
        listing.found.sort_by_key(order);
        self.fleet.respond(token, &listing.found);
    }
}
