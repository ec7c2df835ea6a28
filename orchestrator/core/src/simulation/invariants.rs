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

use std::collections::HashMap;

use super::world::World;
use crate::ProcessId;
use crate::fleet::Owner;
use crate::fleet::slot::Slot;
use crate::limits::TICK_MS;

/// A place, as it was after the step before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    crashes: u32,
    process: Option<ProcessId>,
    next_start_ms: Option<u64>,
    /// When the put-off start is due, by the clock that only moves forwards.
    due_ms: u64,
}

/// The places after the step before.
pub(super) type Places = HashMap<Owner, Seen>;

/// What a step was, as far as places are concerned.
#[derive(Debug, Clone, Copy)]
struct Step {
    now_ms: u64,
    /// The same time on the core's own clock.
    core_now_ms: u64,
    /// Whether something may fail without any process having ended.
    may_fail: bool,
    /// The process that ended in this step though nobody had asked it to.
    crashed: Option<ProcessId>,
    /// The process that ended in this step because it was killed, which may be for a fault of its own.
    killed: Option<ProcessId>,
    /// How many processes could not be started in this step.
    failed_starts: u32,
}

/// The rule (`SUP-4`), written down a second time.
fn delay_ms(crashes: u32) -> u64 {
    match crashes {
        0..=5 => 0,
        6..=14 => 1_000 << (crashes - 6),
        _ => 300_000,
    }
}

impl Seen {
    /// The place as it is now, which must follow from what it was.
    fn follow(self, slot: &Slot, is_wanted: bool, step: Step, name: &dyn std::fmt::Debug) -> Self {
        let mut seen = Self {
            crashes: slot.crashes,
            process: slot.up().map(|up| up.process),
            next_start_ms: slot.next_start_ms(),
            due_ms: self.due_ms,
        };
        let has_crashed = self.process.is_some() && self.process == step.crashed;
        let least = u32::from(has_crashed);
        let was_killed = self.process.is_some() && self.process == step.killed;
        let most = least + u32::from(was_killed) + step.failed_starts + u32::from(step.may_fail);
        // A process that had worked, or a person who asked for it, sets the count back first.
        let is_counted = [self.crashes, 0]
            .iter()
            .any(|from| (from + least..=from + most).contains(&seen.crashes));
        assert!(
            is_counted,
            "{name:?}: {self:?} became {seen:?} with {least} to {most} crashes (SUP-4)"
        );
        if let Some(at) = seen.next_start_ms {
            if self.next_start_ms != Some(at) {
                let delay = delay_ms(seen.crashes);
                assert_eq!(at, step.core_now_ms + delay, "{name:?}: {seen:?} (SUP-4)");
                assert!(delay > 0, "{name:?}: {seen:?} waits for nothing");
                seen.due_ms = step.now_ms + delay_ms(seen.crashes);
            }
            let latest_ms = seen.due_ms + 2 * TICK_MS;
            let is_late = is_wanted && step.now_ms > latest_ms;
            assert!(
                !is_late,
                "{name:?}: {seen:?} is late at {} (SUP-4)",
                step.now_ms
            );
        }
        seen
    }
}

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
