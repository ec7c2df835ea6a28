//! External clients that wait for the replies to a connection's events, and the replies they
//! received (`MSG-13`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_protocol::reply::Reply;

use super::agent::reply_to;
use super::config;

/// Maximum time in simulated milliseconds until a waiting client learns that a user canceled the
/// event. Longer than any message delay.
const HEARS_WITHIN_MS: u64 = 4_000;

/// A request of a process.
#[derive(Debug)]
struct ReplyExpectation {
    event_id: EventId,
    at_ms: u64,
}

/// Reply requests of one process of a connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: BTreeMap<u64, ReplyExpectation>,
    /// Abandoned requests; an answer may have been on its way.
    forgotten: BTreeSet<u64>,
}

impl Requests {
    pub(super) fn make(&mut self, request: u64, event_id: EventId, at_ms: u64) {
        self.open
            .insert(request, ReplyExpectation { event_id, at_ms });
    }

    /// The event of an answered request, if a client still waits.
    pub(super) fn answer(&mut self, request: u64) -> Option<EventId> {
        let asked = self.open.remove(&request);
        let was_forgotten = asked.is_none() && self.forgotten.remove(&request);
        assert!(
            asked.is_some() || was_forgotten,
            "request {request} for a reply was answered twice, or never made"
        );
        asked.map(|asked| asked.event_id)
    }

    /// Abandons the oldest request and returns its id and event.
    pub(super) fn give_up(&mut self) -> Option<(u64, EventId)> {
        let (request, asked) = self.open.pop_first()?;
        self.forgotten.insert(request);
        Some((request, asked.event_id))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &EventId> {
        self.open.values().map(|asked| &asked.event_id)
    }

    /// Checks that no request waits for a finished event. `ended_ms` returns the time at which a
    /// user was notified of its cancellation.
    pub(super) fn assert_told(&self, now_ms: u64, ended_ms: impl Fn(&EventId) -> Option<u64>) {
        for ReplyExpectation { event_id, at_ms } in self.open.values() {
            let since_ms = ended_ms(event_id).map(|ended_ms| ended_ms.max(*at_ms));
            let is_due = since_ms.is_none_or(|since_ms| now_ms <= since_ms + HEARS_WITHIN_MS);
            assert!(
                is_due,
                "{event_id} was ended, but the waiting client got no reply"
            );
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Events whose replies a client wants, with their conversations.
    wanted: BTreeMap<EventId, InstanceKey>,
    /// Those with a pending request.
    in_flight: BTreeSet<EventId>,
    told: BTreeMap<EventId, (InstanceKey, TurnOutcome)>,
    /// Number of replies received, by kind.
    pub(super) counts: BTreeMap<String, u64>,
}

/// True if the connection submitted the event.
fn is_own(event_id: &EventId) -> bool {
    let rest = event_id.as_str().strip_prefix(config::CONNECTION);
    rest.is_some_and(|rest| rest.starts_with(':'))
}

impl Replies {
    pub(super) fn want(&mut self, event_id: EventId, key: InstanceKey) {
        self.wanted.insert(event_id, key);
    }

    /// Answered events. Another request must return the same reply.
    pub(super) fn answered_events(&self) -> Vec<(EventId, InstanceKey)> {
        let told = self.told.iter();
        let told = told.map(|(id, (key, _))| (id.clone(), key.clone()));
        told.collect()
    }

    /// Events to request now.
    pub(super) fn due(&self) -> Vec<(EventId, InstanceKey)> {
        let wanted = self.wanted.iter();
        let due = wanted.filter(|(id, _)| !self.in_flight.contains(*id));
        due.map(|(id, key)| (id.clone(), key.clone())).collect()
    }

    pub(super) fn ask(&mut self, event_id: EventId) {
        self.in_flight.insert(event_id);
    }

    /// Handles a requester that exited or no longer waits.
    pub(super) fn lose(&mut self, event_id: &EventId) {
        self.in_flight.remove(event_id);
    }

    /// Drops all requests, because the daemon and its children were killed.
    pub(super) fn lose_all(&mut self) {
        self.in_flight.clear();
    }

    /// True if every wanted reply was received.
    pub(super) fn are_told(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Records a reply. `is_excused` means that a user canceled the event or deleted its
    /// conversation.
    pub(super) fn hear(&mut self, event_id: &EventId, reply: &Reply, is_excused: bool) {
        self.in_flight.remove(event_id);
        let what = match reply {
            Reply::Over { outcome } => {
                assert!(
                    is_own(event_id),
                    "{event_id} was reported to another client"
                );
                let key = self.wanted.remove(event_id);
                let key = key.expect("it was not requested");
                let is_its = *outcome == reply_to(event_id);
                assert!(
                    is_its || is_excused,
                    "unexpected outcome of {event_id}: {outcome:?}"
                );
                let told = self.told.insert(event_id.clone(), (key, outcome.clone()));
                let stays = told.is_none_or(|(_, before)| before == *outcome);
                assert!(stays, "{event_id} ends in another way: {outcome:?}");
                if is_its { "over" } else { "ended by a person" }
            }
            Reply::Open { .. } => "open",
            Reply::Unknown {} => {
                self.wanted.remove(event_id);
                let may_be_gone = is_excused || !is_own(event_id);
                assert!(may_be_gone, "{event_id} was accepted and is unknown");
                if is_excused { "gone" } else { "not its own" }
            }
        };
        *self.counts.entry(format!("reply: {what}")).or_default() += 1;
    }
}
