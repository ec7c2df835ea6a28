//! Slots of processes in a simulated core, and their allowed transitions.

use std::collections::HashMap;

use crate::ProcessId;
use crate::fleet::ProcessOwner;
use crate::fleet::slot::Slot;
use crate::limits::TICK_MS;

/// A slot after the previous step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SlotSnapshot {
    crashes: u32,
    pub(super) process: Option<ProcessId>,
    next_start_ms: Option<u64>,
    /// Due time of the delayed start, on the monotonic clock.
    due_ms: u64,
}

/// All slots after the previous step.
pub(super) type SlotSnapshots = HashMap<ProcessOwner, SlotSnapshot>;

/// The parts of a step that affect slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotStep {
    pub(super) now_ms: u64,
    /// The same time on the core's own clock.
    pub(super) core_now_ms: u64,
    /// True if a failure may occur without a process exit.
    pub(super) may_fail: bool,
    /// The process that exited in this step without a request.
    pub(super) crashed: Option<ProcessId>,
    /// The process that exited in this step because it was killed, possibly for its own fault.
    pub(super) killed: Option<ProcessId>,
    /// Number of processes that could not be started in this step.
    pub(super) failed_starts: u32,
}

/// Independent implementation of the rule (`SUP-4`).
fn delay_ms(crashes: u32) -> u64 {
    match crashes {
        0..=5 => 0,
        6..=14 => 1_000 << (crashes - 6),
        _ => 300_000,
    }
}

impl SlotSnapshot {
    /// Checks the transition and returns the new state.
    pub(super) fn follow(
        self,
        slot: &Slot,
        is_wanted: bool,
        step: SlotStep,
        name: &dyn std::fmt::Debug,
    ) -> Self {
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
        // Successful work or a user's restart resets the count first.
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
