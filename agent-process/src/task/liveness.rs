//! Liveness of a program that prints nothing. Pure.

use std::time::Duration;

/// Processor time that counts as work, in ticks of the kernel's clock per second: 5 % of a core.
/// Timers of a hung program need less.
const WORKING_TICKS_PER_SECOND: u64 = 5;

/// Time for which processor time alone counts as work. After that, a program without output counts
/// as hung.
const BUSY_MAX: Duration = Duration::from_mins(60);

/// Signs of life of a program.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    has_printed: bool,
    last: Option<Sample>,
    /// Time in which processor time was the program's only activity.
    busy: Duration,
}

/// Measurements of a program and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Processor time, in ticks of the kernel's clock.
    pub(super) cpu_ticks: u64,
    /// Bytes written to files and pipes.
    pub(super) written_bytes: u64,
}

impl Liveness {
    /// Records that the program has printed something, which is a sign of life.
    pub(super) fn printed(&mut self) {
        self.has_printed = true;
        self.busy = Duration::ZERO;
    }

    /// True if the program printed nothing since the last call and must be checked.
    pub(super) fn is_to_be_looked_at(&mut self) -> bool {
        !std::mem::take(&mut self.has_printed)
    }

    /// Processes a sample that was taken `interval` after the previous one; returns true if it
    /// shows a sign of life. A child process alone is not a sign, because it may hang, too.
    pub(super) fn looked(&mut self, sample: Sample, interval: Duration) -> bool {
        let Some(before) = self.last.replace(sample) else {
            return true;
        };
        if sample.written_bytes != before.written_bytes {
            self.busy = Duration::ZERO;
            return true;
        }
        let ticks = sample.cpu_ticks.saturating_sub(before.cpu_ticks);
        let is_working = ticks
            >= interval
                .as_secs()
                .saturating_mul(WORKING_TICKS_PER_SECOND)
                .max(1);
        if is_working {
            self.busy = self.busy.saturating_add(interval);
        }
        is_working && self.busy < BUSY_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn sample(cpu_ticks: u64, written_bytes: u64) -> Sample {
        Sample {
            cpu_ticks,
            written_bytes,
        }
    }

    #[test]
    fn task_8_silence_alone_is_no_stall() {
        let mut it = Liveness::default();
        assert!(it.is_to_be_looked_at());
        assert!(it.looked(sample(5, 0), INTERVAL), "it has just started");
        assert!(!it.looked(sample(5, 0), INTERVAL));
        assert!(it.looked(sample(5, 2), INTERVAL), "it has written a file");
        assert!(it.looked(sample(1_000, 2), INTERVAL), "it computes");
        it.printed();
        assert!(!it.is_to_be_looked_at());
        assert!(it.is_to_be_looked_at());
    }

    #[test]
    fn prov_1_a_trace_of_processor_time_is_no_sign_of_life() {
        let mut it = Liveness::default();
        it.looked(sample(0, 0), INTERVAL);
        assert!(!it.looked(sample(6, 0), INTERVAL), "20 ms in 10 s");
        // An endless loop ends, too.
        let looks = (1..).find(|count| !it.looked(sample(6 + 3_000 * count, 0), INTERVAL));
        assert_eq!(looks, Some(120));
    }
}
