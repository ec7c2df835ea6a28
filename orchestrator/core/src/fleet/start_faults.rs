//! Start failures of an agent's process with a permanent cause (`SUP-4`).
//!
//! A crash during a turn counts against its event. A process that cannot even start, because it
//! cannot be confined or a directory cannot be opened, never begins a turn. Without a separate
//! count it would be restarted forever, and waiters would never get an answer. After
//! [`MAX_START_FAULTS`] consecutive failures the queued events are parked with the reason. A
//! process that was killed or died without a report does not count, because the cause may be
//! temporary.

use crate::limits::MAX_START_FAULTS;

/// Consecutive failed starts of one slot.
#[derive(Debug, Default)]
pub(super) struct StartFaults {
    in_a_row: u32,
    /// Reason of the latest failure.
    reason: Option<String>,
    /// Start failure reported by the running process.
    reported: Option<String>,
    /// True if no start was attempted since the latest failure.
    is_fresh: bool,
}

impl StartFaults {
    /// Records a start failure reported by the running process.
    pub(super) fn report(&mut self, reason: String) {
        self.reported = Some(reason);
    }

    /// Handles the exit of the process. Returns the reason if it reported a start failure.
    pub(super) fn on_exited(&mut self) -> Option<String> {
        let reason = self.reported.take()?;
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.reason = Some(reason.clone());
        self.is_fresh = true;
        Some(reason)
    }

    /// Allows another attempt for the next event, because no event is queued.
    pub(super) fn on_nothing_waiting(&mut self) {
        self.is_fresh = false;
    }

    /// Clears the failures after a turn began, or after a user or a new configuration may have
    /// fixed the cause. True if there were any.
    pub(super) fn clear(&mut self) -> bool {
        std::mem::take(self).in_a_row > 0
    }

    /// Reason no process will start for the queued events, while none runs. `may_start` is true if
    /// the next start is allowed now.
    pub(super) fn why_none_starts(&self, may_start: bool) -> Option<&str> {
        let is_due = self.in_a_row >= MAX_START_FAULTS && (self.is_fresh || !may_start);
        self.reason.as_deref().filter(|_| is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(faults: &mut StartFaults) {
        faults.report("no directory".to_owned());
        faults.on_exited();
    }

    #[test]
    fn sup_4_only_consecutive_explained_start_failures_count() {
        let mut faults = StartFaults::default();
        for _ in 1..MAX_START_FAULTS {
            fail(&mut faults);
            // The process died without a report.
            faults.on_exited();
            assert_eq!(faults.why_none_starts(true), None);
        }
        fail(&mut faults);
        assert_eq!(faults.why_none_starts(true), Some("no directory"));
        faults.on_nothing_waiting();
        assert_eq!(faults.why_none_starts(true), None, "another try");
        assert_eq!(faults.why_none_starts(false), Some("no directory"));
        assert!(faults.clear() && !faults.clear());
        assert_eq!(faults.why_none_starts(false), None);
    }
}
