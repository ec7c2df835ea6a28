//! The calls that share one credential: who waits, who is next, how many run (pure).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::call::{CallId, CallTarget};
use goondan_protocol::ids::InstanceKey;

use crate::limits::{CALLS_IN_FLIGHT_PER_CREDENTIAL, CALLS_WAITING_PER_CREDENTIAL};

/// One credential's queue. Agents take turns: one with many calls does not hold up one with few.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The calls of each agent that wait, oldest first. No queue is empty.
    waiting: BTreeMap<InstanceKey, VecDeque<CallId>>,
    /// The agents with calls that wait, the next one first.
    rotation: VecDeque<InstanceKey>,
    /// Who makes its calls.
    targets: BTreeSet<CallTarget>,
    in_flight: usize,
    /// No call begins before this.
    cool_until_ms: u64,
}

impl Lane {
    /// Whoever makes calls of this lane.
    pub(super) fn targets(&self) -> &BTreeSet<CallTarget> {
        &self.targets
    }

    /// Notes who makes its calls.
    pub(super) fn is_served_by(&mut self, target: &CallTarget) {
        if !self.targets.contains(target) {
            self.targets.insert(target.clone());
        }
    }

    /// Puts a call at the end of its agent's queue; false if the lane holds too many.
    pub(super) fn push(&mut self, who: &InstanceKey, call_id: CallId) -> bool {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        if waiting >= CALLS_WAITING_PER_CREDENTIAL {
            return false;
        }
        self.queue_of(who).push_back(call_id);
        true
    }

    /// Puts a call that was begun in vain before all others of its agent.
    pub(super) fn push_back_in(&mut self, who: &InstanceKey, call_id: CallId) {
        self.queue_of(who).push_front(call_id);
    }

    fn queue_of(&mut self, who: &InstanceKey) -> &mut VecDeque<CallId> {
        if !self.waiting.contains_key(who) {
            self.rotation.push_back(who.clone());
        }
        self.waiting.entry(who.clone()).or_default()
    }

    /// Takes a call out that waits.
    pub(super) fn remove(&mut self, who: &InstanceKey, call_id: CallId) {
        if let Some(queue) = self.waiting.get_mut(who) {
            queue.retain(|waiting| *waiting != call_id);
            if queue.is_empty() {
                self.waiting.remove(who);
                self.rotation.retain(|other| other != who);
            }
        }
    }

    /// The next call that may begin now, of those that can. It counts as begun.
    pub(super) fn next(
        &mut self,
        now_ms: u64,
        can_begin: impl Fn(CallId) -> bool,
    ) -> Option<CallId> {
        if self.in_flight >= CALLS_IN_FLIGHT_PER_CREDENTIAL || now_ms < self.cool_until_ms {
            return None;
        }
        let found = self.rotation.iter().enumerate().find_map(|(place, who)| {
            let queue = self.waiting.get(who)?;
            let call_id = queue.iter().find(|call_id| can_begin(**call_id))?;
            Some((place, *call_id))
        });
        let (place, call_id) = found?;
        // Whoever had its turn goes to the end; whoever could not keeps its place.
        let who = self.rotation.remove(place)?;
        self.rotation.push_back(who.clone());
        self.remove(&who, call_id);
        self.in_flight += 1;
        Some(call_id)
    }

    /// A call that was begun is over, or is to be begun again.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Begins nothing before `until_ms`.
    pub(super) fn cool_down(&mut self, until_ms: u64) {
        self.cool_until_ms = self.cool_until_ms.max(until_ms);
    }

    /// Whether forgetting it changes nothing.
    pub(super) fn is_idle(&self, now_ms: u64) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && now_ms >= self.cool_until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> InstanceKey {
        name.parse().unwrap()
    }

    fn drain(lane: &mut Lane) -> Vec<u64> {
        let begun = std::iter::from_fn(|| {
            let next = lane.next(0, |_| true)?;
            lane.ended();
            Some(next.0)
        });
        begun.collect()
    }

    #[test]
    fn agents_take_turns_however_many_calls_one_has() {
        let mut lane = Lane::default();
        for n in 0..5 {
            assert!(lane.push(&key("busy"), CallId(n)));
        }
        lane.push(&key("calm"), CallId(10));
        lane.push(&key("also calm"), CallId(20));
        assert_eq!(drain(&mut lane), [0, 10, 20, 1, 2, 3, 4]);
        assert!(lane.is_idle(0));
    }

    #[test]
    fn what_cannot_begin_holds_up_nobody_and_keeps_its_turn() {
        let mut lane = Lane::default();
        lane.push(&key("a"), CallId(1));
        lane.push(&key("b"), CallId(2));
        assert_eq!(lane.next(0, |call| call.0 != 1), Some(CallId(2)));
        assert_eq!(lane.next(0, |_| false), None);
        lane.push(&key("b"), CallId(3));
        assert_eq!(drain(&mut lane), [1, 3]);
    }

    #[test]
    fn a_call_begun_in_vain_is_the_first_of_its_agent() {
        let mut lane = Lane::default();
        lane.push(&key("a"), CallId(1));
        lane.push(&key("a"), CallId(2));
        assert_eq!(lane.next(0, |_| true), Some(CallId(1)));
        lane.ended();
        lane.push_back_in(&key("a"), CallId(1));
        assert_eq!(drain(&mut lane), [1, 2]);
    }

    #[test]
    fn only_so_many_run_and_only_so_many_wait() {
        let mut lane = Lane::default();
        let all = CALLS_IN_FLIGHT_PER_CREDENTIAL + CALLS_WAITING_PER_CREDENTIAL;
        for n in 0..CALLS_IN_FLIGHT_PER_CREDENTIAL {
            assert!(lane.push(&key("a"), CallId(n as u64)));
            assert!(lane.next(0, |_| true).is_some());
        }
        for n in CALLS_IN_FLIGHT_PER_CREDENTIAL..all {
            assert!(lane.push(&key("a"), CallId(n as u64)));
        }
        assert_eq!(lane.next(0, |_| true), None);
        assert!(!lane.push(&key("b"), CallId(all as u64)));
        lane.ended();
        assert!(lane.next(0, |_| true).is_some());
    }

    #[test]
    fn nothing_begins_while_the_credential_cools_down() {
        let mut lane = Lane::default();
        lane.push(&key("a"), CallId(1));
        lane.cool_down(500);
        lane.cool_down(100);
        assert_eq!(lane.next(499, |_| true), None);
        assert_eq!(lane.next(500, |_| true), Some(CallId(1)));
    }
}
