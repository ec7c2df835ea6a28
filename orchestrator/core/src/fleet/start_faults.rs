//! Starts of an agent's process that failed for a reason that stays (`SUP-4`).
//!
//! A crash in a turn counts against its event. A process that cannot even begin, since it cannot be confined or one of
//! its directories cannot be opened, never gets that far: without a count of its own it would be started for ever, and
//! whoever waits for the answer would wait as long. After [`MAX_START_FAULTS`] of them in a row the events that wait are
//! parked with the reason. A process that was killed, or died without a word, does not count: that may pass.

use crate::limits::MAX_START_FAULTS;

/// The failed starts of one place in a row.
#[derive(Debug, Default)]
pub(super) struct StartFaults {
    in_a_row: u32,
    /// Why the latest one failed.
    reason: Option<String>,
    /// Why the process that runs says that it cannot start.
    reported: Option<String>,
    /// True if nothing was tried since the latest one.
    is_fresh: bool,
}

impl StartFaults {
    /// The process that runs cannot start, and ends.
    pub(super) fn report(&mut self, reason: String) {
        self.reported = Some(reason);
    }

    /// The process is gone. Gives the reason if it said that it cannot start.
    pub(super) fn on_exited(&mut self) -> Option<String> {
        let reason = self.reported.take()?;
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.reason = Some(reason.clone());
        self.is_fresh = true;
        Some(reason)
    }

    /// Nothing waits any more: what comes next is worth another try.
    pub(super) fn on_nothing_waiting(&mut self) {
        self.is_fresh = false;
    }

    /// A turn was handed over, or a person or another configuration may have mended the cause. Whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        std::mem::take(self).in_a_row > 0
    }

    /// Why no process will begin the turns of what waits, while none runs. `may_start`: the next may be started now.
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
    fn sup_4_only_failed_starts_in_a_row_that_say_why_count() {
        let mut faults = StartFaults::default();
        for _ in 1..MAX_START_FAULTS {
            fail(&mut faults);
            // It died without a word.
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
