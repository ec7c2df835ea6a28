//! What must hold after each step, read off the core's own places.
//!
//! * The processes the core counts on are exactly those there are: no place has two, none outlives the
//!   place it belongs to.
//! * A turn runs only where a process is, or waits there for the next.
//! * The number of crashes in a row grows by one, for a crash or for what could not be read, and never
//!   otherwise; the delay that follows is the rule's to the millisecond.
//! * Whoever waits for the answer to an event waits for one that is still to have its turn.
//! * A question to a person waits under a call that the process makes which asked it.
//! * A start that was put off is neither early (the oracle sees to that) nor late.

use super::places::{Places, Step};
use super::world::World;
use crate::ProcessId;

impl World {
    /// Checks what must hold after a step in which the core was told something.
    pub(super) fn check(&mut self) {
        let step = Step {
            now_ms: self.mono_ms,
            core_now_ms: self.mono_ms - self.booted_ms,
            may_fail: self.plan.disk > 0 || self.plan.kill > 0,
            crashed: self.crashed.take(),
            killed: self.killed.take(),
            failed_starts: std::mem::take(&mut self.failed_starts),
        };
        let mut up_count = 0;
        let mut after = Places::default();
        for (owner, slot, is_wanted) in self.core.fleet.places() {
            let before = self.places.remove(&owner).unwrap_or_default();
            let seen = before.follow(slot, is_wanted, step, &owner);
            up_count += usize::from(self.has_child(seen.process, &owner));
            after.insert(owner, seen);
        }
        assert_eq!(
            self.core.fleet.awaited_in_vain(),
            [],
            "somebody waits for what does not wait for a turn (MSG-13)"
        );
        assert_eq!(
            up_count,
            self.children.len(),
            "a process outlives its place (SUP-7)"
        );
        self.places = after;
        self.check_watcher();
        for open in self.core.calls.open_questions() {
            let (process, request) = open.requester;
            assert!(
                self.core.calls.is_made_by(process, open.call_id),
                "question {:?} waits, and its call is over",
                open.info.question_id
            );
            // One that hangs may have been told, and not have heard.
            let requester = self.children.get(&process);
            let requester = requester.expect("whoever makes a call is there");
            assert!(request.is_some_and(|request| requester.questions.contains(&request)));
        }
    }

    /// Whether there is a process; if the core counts on one, it must be.
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
