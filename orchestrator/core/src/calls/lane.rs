//! Fair queue of the calls that share one credential (pure).
//!
//! Providers limit requests by credential, so without turns a busy agent would use the whole limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::call::{CallId, CallTarget};
use goondan_protocol::ids::{AgentName, InstanceKey};

use crate::limits::{CALLS_IN_FLIGHT_PER_CREDENTIAL, CALLS_WAITING_PER_CREDENTIAL};

/// The queue of one credential. Agents take turns, and so do each agent's conversations, so a busy
/// agent or conversation does not delay the others.
#[derive(Debug, Default)]
pub(super) struct CredentialQueue {
    agents: RoundRobin<AgentName, RoundRobin<InstanceKey, VecDeque<CallId>>>,
    waiting: usize,
    /// Targets that execute the calls of this lane.
    targets: BTreeSet<CallTarget>,
    in_flight: usize,
    /// No call to these targets begins earlier.
    cool_until_ms: BTreeMap<CallTarget, u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct QueueKey<'a> {
    pub(super) agent: &'a AgentName,
    pub(super) instance_key: &'a InstanceKey,
}

/// Round-robin queue; the next entry is first. No entry is empty.
#[derive(Debug)]
struct RoundRobin<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for RoundRobin<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Clone + PartialEq, V: Default> RoundRobin<K, V> {
    /// Updates the entry of `who`, or appends a new entry.
    fn put(&mut self, who: &K, put: impl FnOnce(&mut V)) {
        if let Some((_, waiting)) = self.0.iter_mut().find(|(other, _)| other == who) {
            return put(waiting);
        }
        let mut waiting = V::default();
        put(&mut waiting);
        self.0.push_back((who.clone(), waiting));
    }

    /// Takes an item of `who`, if `take` finds one. Removes an entry that becomes empty.
    fn take_of<T>(
        &mut self,
        who: &K,
        is_empty: impl Fn(&V) -> bool,
        take: impl FnOnce(&mut V) -> Option<T>,
    ) -> Option<T> {
        let mut all = self.0.iter_mut().enumerate();
        let (place, (_, waiting)) = all.find(|(_, (other, _))| other == who)?;
        let taken = take(waiting)?;
        if is_empty(waiting) {
            self.0.remove(place);
        }
        Some(taken)
    }

    /// Takes the next available item. An entry that provides one moves to the end; the others keep
    /// their places.
    fn take_next<T>(
        &mut self,
        is_empty: impl Fn(&V) -> bool,
        mut take: impl FnMut(&mut V) -> Option<T>,
    ) -> Option<T> {
        let mut all = self.0.iter_mut().enumerate();
        let (place, taken) = all.find_map(|(place, (_, waiting))| Some((place, take(waiting)?)))?;
        let served = self.0.remove(place);
        self.0
            .extend(served.filter(|(_, waiting)| !is_empty(waiting)));
        Some(taken)
    }
}

/// Removes the first call that `fits`.
fn take_call(calls: &mut VecDeque<CallId>, fits: impl Fn(CallId) -> bool) -> Option<CallId> {
    let place = calls.iter().position(|call_id| fits(*call_id))?;
    calls.remove(place)
}

fn has_nobody(conversations: &RoundRobin<InstanceKey, VecDeque<CallId>>) -> bool {
    conversations.0.is_empty()
}

impl CredentialQueue {
    /// Targets that execute the calls of this lane.
    pub(super) fn targets(&self) -> &BTreeSet<CallTarget> {
        &self.targets
    }

    pub(super) fn is_served_by(&mut self, target: &CallTarget) {
        if !self.targets.contains(target) {
            self.targets.insert(target.clone());
        }
    }

    /// Appends a call to its conversation's queue; false if the lane is full.
    pub(super) fn push(&mut self, who: QueueKey<'_>, call_id: CallId) -> bool {
        if self.waiting >= CALLS_WAITING_PER_CREDENTIAL {
            return false;
        }
        self.put(who, |calls| calls.push_back(call_id));
        true
    }

    /// Puts a call back at the front of its conversation's queue after an unsuccessful start.
    pub(super) fn push_back_in(&mut self, who: QueueKey<'_>, call_id: CallId) {
        self.put(who, |calls| calls.push_front(call_id));
    }

    fn put(&mut self, who: QueueKey<'_>, put: impl FnOnce(&mut VecDeque<CallId>)) {
        self.waiting += 1;
        self.agents.put(who.agent, |conversations| {
            conversations.put(who.instance_key, put);
        });
    }

    pub(super) fn remove(&mut self, who: QueueKey<'_>, call_id: CallId) {
        let taken = self.agents.take_of(who.agent, has_nobody, |conversations| {
            conversations.take_of(who.instance_key, VecDeque::is_empty, |calls| {
                take_call(calls, |waiting| waiting == call_id)
            })
        });
        self.waiting -= usize::from(taken.is_some());
    }

    /// Returns the next call that can begin now, and counts it as in flight.
    pub(super) fn next(&mut self, can_begin: impl Fn(CallId) -> bool) -> Option<CallId> {
        if self.in_flight >= CALLS_IN_FLIGHT_PER_CREDENTIAL {
            return None;
        }
        let call_id = self.agents.take_next(has_nobody, |conversations| {
            conversations.take_next(VecDeque::is_empty, |calls| take_call(calls, &can_begin))
        })?;
        self.waiting -= 1;
        self.in_flight += 1;
        Some(call_id)
    }

    /// Releases the slot of a call that ended or was requeued.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Starts no call to `target` before `until_ms`. Rate limits of providers are per model, so a
    /// limited model does not delay another one with the same key.
    pub(super) fn cool_down(&mut self, target: &CallTarget, until_ms: u64) {
        let until = self.cool_until_ms.entry(target.clone()).or_default();
        *until = until_ms.max(*until);
    }

    /// True if no call to `target` begins at present.
    pub(super) fn is_cooling(&self, target: &CallTarget, now_ms: u64) -> bool {
        let until = self.cool_until_ms.get(target);
        until.is_some_and(|until_ms| now_ms < *until_ms)
    }

    /// True if the lane holds no state.
    pub(super) fn is_idle(&self, now_ms: u64) -> bool {
        let mut pauses = self.cool_until_ms.values();
        self.waiting == 0 && self.in_flight == 0 && pauses.all(|until_ms| now_ms >= *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parsed `agent/conversation`.
    struct Name(AgentName, InstanceKey);

    impl Name {
        fn of(name: &str) -> Self {
            let (agent, key) = name.split_once('/').unwrap();
            Self(agent.parse().unwrap(), key.parse().unwrap())
        }

        fn who(&self) -> QueueKey<'_> {
            QueueKey {
                agent: &self.0,
                instance_key: &self.1,
            }
        }
    }

    fn push(lane: &mut CredentialQueue, name: &str, call_id: u64) -> bool {
        lane.push(Name::of(name).who(), CallId(call_id))
    }

    fn drain(lane: &mut CredentialQueue) -> Vec<u64> {
        let begun = std::iter::from_fn(|| {
            let next = lane.next(|_| true)?;
            lane.ended();
            Some(next.0)
        });
        begun.collect()
    }

    #[test]
    fn conversations_take_turns_however_many_calls_one_has() {
        let mut lane = CredentialQueue::default();
        for n in 0..5 {
            assert!(push(&mut lane, "a/busy", n));
        }
        push(&mut lane, "a/calm", 10);
        push(&mut lane, "a/also calm", 20);
        assert_eq!(drain(&mut lane), [0, 10, 20, 1, 2, 3, 4]);
        assert!(lane.is_idle(0));
    }

    #[test]
    fn agents_take_turns_however_many_conversations_one_has() {
        let mut lane = CredentialQueue::default();
        for n in 0..5 {
            push(&mut lane, &format!("busy/{n}"), n);
        }
        push(&mut lane, "calm/one", 10);
        push(&mut lane, "calm/one", 11);
        push(&mut lane, "calm/two", 20);
        assert_eq!(drain(&mut lane), [0, 10, 1, 20, 2, 11, 3, 4]);
        assert!(lane.is_idle(0));
    }

    #[test]
    fn blocked_call_delays_no_other_and_keeps_its_position() {
        let mut lane = CredentialQueue::default();
        push(&mut lane, "a/1", 1);
        push(&mut lane, "b/1", 2);
        push(&mut lane, "b/2", 3);
        assert_eq!(lane.next(|call| call.0 == 3), Some(CallId(3)));
        assert_eq!(lane.next(|_| false), None);
        push(&mut lane, "b/2", 4);
        assert_eq!(drain(&mut lane), [1, 2, 4]);
    }

    #[test]
    fn a_call_begun_in_vain_is_the_first_of_its_conversation() {
        let mut lane = CredentialQueue::default();
        push(&mut lane, "a/1", 1);
        push(&mut lane, "a/1", 2);
        assert_eq!(lane.next(|_| true), Some(CallId(1)));
        lane.ended();
        lane.push_back_in(Name::of("a/1").who(), CallId(1));
        assert_eq!(drain(&mut lane), [1, 2]);
    }

    #[test]
    fn a_call_that_is_taken_out_does_not_count() {
        let mut lane = CredentialQueue::default();
        push(&mut lane, "a/1", 1);
        push(&mut lane, "a/2", 2);
        lane.remove(Name::of("a/1").who(), CallId(1));
        lane.remove(Name::of("a/1").who(), CallId(1));
        lane.remove(Name::of("b/1").who(), CallId(2));
        assert_eq!(drain(&mut lane), [2]);
        assert!(lane.is_idle(0));
    }

    #[test]
    fn only_so_many_run_and_only_so_many_wait() {
        let mut lane = CredentialQueue::default();
        let all = CALLS_IN_FLIGHT_PER_CREDENTIAL + CALLS_WAITING_PER_CREDENTIAL;
        for n in 0..CALLS_IN_FLIGHT_PER_CREDENTIAL {
            assert!(push(&mut lane, "a/1", n as u64));
            assert!(lane.next(|_| true).is_some());
        }
        for n in CALLS_IN_FLIGHT_PER_CREDENTIAL..all {
            assert!(push(&mut lane, "a/1", n as u64));
        }
        assert_eq!(lane.next(|_| true), None);
        assert!(!push(&mut lane, "b/1", all as u64));
        lane.ended();
        assert!(lane.next(|_| true).is_some());
    }

    #[test]
    fn prov_1_a_rate_limit_delays_only_the_calls_to_its_model() {
        let target = |name: &str| CallTarget::Model {
            name: name.parse().unwrap(),
        };
        let (big, small) = (target("big"), target("small"));
        let mut lane = CredentialQueue::default();
        lane.cool_down(&big, 500);
        lane.cool_down(&big, 100);
        assert!(lane.is_cooling(&big, 499) && !lane.is_idle(499));
        assert!(!lane.is_cooling(&small, 0));
        assert!(!lane.is_cooling(&big, 500) && lane.is_idle(500));
    }
}
