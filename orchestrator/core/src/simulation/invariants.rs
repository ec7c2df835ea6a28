//! Invariants after each step, checked on the core's slots.
//!
//! * The core tracks exactly the existing processes: no slot has two, and none outlives its slot.
//! * A turn is in progress only in a slot with a process or one waiting for the next.
//! * The number of consecutive crashes grows by one, only for a crash or a failed read; the
//!   following delay matches the rule to the millisecond.
//! * Each waiter for an event's answer waits for a turn that has not ended.
//! * No conversation gets an event in the wrong stage.
//! * An open question belongs to a call that is executed by the process that asked.
//! * A delayed start is neither early (checked by the oracle) nor late.

use super::places::{SlotSnapshots, SlotStep};
use super::world::World;
use crate::ProcessId;
use crate::fleet::conversation::WrongStage;

impl World {
    /// Checks the invariants after an input to the core.
    pub(super) fn check(&mut self) {
        let step = SlotStep {
            now_ms: self.mono_ms,
            core_now_ms: self.mono_ms - self.booted_ms,
            may_fail: self.plan.disk > 0 || self.plan.kill > 0,
            crashed: self.crashed.take(),
            killed: self.killed.take(),
            failed_starts: std::mem::take(&mut self.failed_starts),
        };
        let mut up_count = 0;
        let mut after = SlotSnapshots::default();
        for (owner, slot, is_wanted) in self.core.fleet.view().places() {
            let before = self.places.remove(&owner).unwrap_or_default();
            let seen = before.follow(slot, is_wanted, step, &owner);
            up_count += usize::from(self.has_child(seen.process, &owner));
            after.insert(owner, seen);
        }
        assert_eq!(
            self.core.fleet.view().awaited_in_vain(),
            [],
            "a client waits for an event that does not wait for a turn (MSG-13)"
        );
        assert_eq!(
            self.core.fleet.view().mistakes(),
            Vec::<&WrongStage>::new(),
            "a conversation got an event in the wrong stage"
        );
        assert_eq!(
            up_count,
            self.children.len(),
            "a process outlives its place (SUP-7)"
        );
        self.places = after;
        self.check_watcher();
        for open in self.core.calls.open_questions() {
            let request = open.requester;
            assert!(
                self.core.calls.is_made_by(request.process, open.call_id),
                "question {:?} waits, and its call is over",
                open.info.question_id
            );
            // A hung process may not have received it.
            let requester = self.children.get(&request.process);
            let requester = requester.expect("the caller exists");
            let id = request.request_id;
            assert!(id.is_some_and(|id| requester.questions.contains(&id)));
        }
    }

    /// True if the slot has a process, which must then exist.
    fn has_child(&self, process: Option<ProcessId>, name: &dyn std::fmt::Debug) -> bool {
        let Some(process) = process else {
            return false;
        };
        let is_there = self.children.contains_key(&process);
        assert!(
            is_there,
            "{name:?} counts on {process:?}, which is not there"
        );
        true
    }
}
