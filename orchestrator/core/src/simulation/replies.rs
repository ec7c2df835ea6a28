//! Who waits outside for the replies to a connection's events, and what was told of each (`MSG-13`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_protocol::reply::Reply;

use super::agent::reply_to;
use super::config;

/// Within so many simulated milliseconds whoever waits hears that a person ended the event: longer than any message
/// is on its way.
const HEARS_WITHIN_MS: u64 = 4_000;

/// What a process asked for, and when.
#[derive(Debug)]
struct Asked {
    event_id: EventId,
    at_ms: u64,
}

/// The requests for replies that one process of a connection has made.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: BTreeMap<u64, Asked>,
    /// Those that it gave up; an answer may have been on its way.
    forgotten: BTreeSet<u64>,
}

impl Requests {
    pub(super) fn make(&mut self, request: u64, event_id: EventId, at_ms: u64) {
        self.open.insert(request, Asked { event_id, at_ms });
    }

    /// The event that a request was about, if anybody still waits for the answer.
    pub(super) fn answer(&mut self, request: u64) -> Option<EventId> {
        let asked = self.open.remove(&request);
        let was_forgotten = asked.is_none() && self.forgotten.remove(&request);
        assert!(
            asked.is_some() || was_forgotten,
            "request {request} for a reply was answered twice, or never made"
        );
        asked.map(|asked| asked.event_id)
    }

    /// Gives the oldest request up: what it was, and what it was about.
    pub(super) fn give_up(&mut self) -> Option<(u64, EventId)> {
        let (request, asked) = self.open.pop_first()?;
        self.forgotten.insert(request);
        Some((request, asked.event_id))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &EventId> {
        self.open.values().map(|asked| &asked.event_id)
    }

    /// Nobody waits for an event that is over. `ended_ms`: when a person was told to have ended one.
    pub(super) fn assert_told(&self, now_ms: u64, ended_ms: impl Fn(&EventId) -> Option<u64>) {
        for Asked { event_id, at_ms } in self.open.values() {
            let since_ms = ended_ms(event_id).map(|ended_ms| ended_ms.max(*at_ms));
            let is_due = since_ms.is_none_or(|since_ms| now_ms <= since_ms + HEARS_WITHIN_MS);
            assert!(is_due, "{event_id} was ended, and who waits is not told");
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Events whose replies somebody wants, with their conversations.
    wanted: BTreeMap<EventId, InstanceKey>,
    /// Those of them that a process has asked for.
    in_flight: BTreeSet<EventId>,
    /// What was told to be the reply, for good.
    told: BTreeMap<EventId, (InstanceKey, TurnOutcome)>,
    /// How often what was told.
    pub(super) counts: BTreeMap<String, u64>,
}

/// Whether the connection handed it in, and not somebody else.
fn is_own(event_id: &EventId) -> bool {
    let rest = event_id.as_str().strip_prefix(config::CONNECTION);
    rest.is_some_and(|rest| rest.starts_with(':'))
}

impl Replies {
    pub(super) fn want(&mut self, event_id: EventId, key: InstanceKey) {
        self.wanted.insert(event_id, key);
    }

    /// Those that were told: to ask again gives the same.
    pub(super) fn told(&self) -> Vec<(EventId, InstanceKey)> {
        let told = self.told.iter();
        let told = told.map(|(id, (key, _))| (id.clone(), key.clone()));
        told.collect()
    }

    /// What is to be asked for now.
    pub(super) fn due(&self) -> Vec<(EventId, InstanceKey)> {
        let wanted = self.wanted.iter();
        let due = wanted.filter(|(id, _)| !self.in_flight.contains(*id));
        due.map(|(id, key)| (id.clone(), key.clone())).collect()
    }

    pub(super) fn ask(&mut self, event_id: EventId) {
        self.in_flight.insert(event_id);
    }

    /// Whoever asked is gone, or does not wait any more.
    pub(super) fn lose(&mut self, event_id: &EventId) {
        self.in_flight.remove(event_id);
    }

    /// The daemon is gone, and its children with it.
    pub(super) fn lose_all(&mut self) {
        self.in_flight.clear();
    }

    /// Whether everybody has heard what there is to hear.
    pub(super) fn are_told(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Somebody hears. `is_excused`: a person had the event or its conversation end.
    pub(super) fn hear(&mut self, event_id: &EventId, reply: &Reply, is_excused: bool) {
        self.in_flight.remove(event_id);
        let what = match reply {
            Reply::Over { outcome } => {
                assert!(is_own(event_id), "{event_id} is told to a stranger");
                let key = self.wanted.remove(event_id);
                let key = key.expect("nobody asked for it");
                let is_its = *outcome == reply_to(event_id);
                assert!(
                    is_its || is_excused,
                    "{event_id} is said to have ended so: {outcome:?}"
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
