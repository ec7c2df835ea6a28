//! How long the daemon itself ran, which is what its deadlines are measured by (`SUP-9`).
//!
//! A daemon that was stopped (`SIGSTOP`, Ctrl-Z, a paused container or virtual machine) heard nobody,
//! whatever its children said meanwhile. The loop of the daemon reads the clock at least once in each
//! [`TICK_MS`](crate::limits::TICK_MS); a reading that comes much later tells of a pause, which does not
//! count. Time then stands still for a little longer, so that what has come meanwhile is read before
//! anybody is judged.

use crate::limits::{PAUSE_CATCH_UP_MS, PAUSE_MIN_MS};

/// The daemon did not run for so long, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) duration_ms: u64,
}

/// A clock that stands still while the daemon does not run.
#[derive(Debug, Default)]
pub(crate) struct RunningTime {
    read_at_ms: u64,
    counted_ms: u64,
    /// Until then what has come during a pause is read, by the system's clock.
    stands_until_ms: u64,
}

impl RunningTime {
    /// Takes a reading of a clock that never stands still and never goes back, in milliseconds. Returns
    /// for how long the daemon ran since its start, in milliseconds, and the pause that has just ended,
    /// if one has.
    pub(crate) fn read(&mut self, clock_ms: u64) -> (u64, Option<Pause>) {
        let since_ms = clock_ms.saturating_sub(self.read_at_ms);
        let from_ms = self.read_at_ms.max(self.stands_until_ms);
        self.read_at_ms = self.read_at_ms.max(clock_ms);
        if since_ms >= PAUSE_MIN_MS {
            self.stands_until_ms = clock_ms.saturating_add(PAUSE_CATCH_UP_MS);
            let duration_ms = since_ms;
            return (self.counted_ms, Some(Pause { duration_ms }));
        }
        self.counted_ms += clock_ms.saturating_sub(from_ms);
        (self.counted_ms, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TICK_MS;

    /// Reads the clock once a tick for so long; the time that counts at the end.
    fn run(time: &mut RunningTime, clock_ms: &mut u64, for_ms: u64) -> u64 {
        let mut counted_ms = 0;
        for _ in 0..for_ms / TICK_MS {
            *clock_ms += TICK_MS;
            let (counted, pause) = time.read(*clock_ms);
            assert_eq!(pause, None);
            assert!(counted >= counted_ms, "it never goes back");
            counted_ms = counted;
        }
        counted_ms
    }

    #[test]
    fn sup_9_time_counts_while_the_daemon_runs() {
        let (mut time, mut clock_ms) = (RunningTime::default(), 0);
        assert_eq!(run(&mut time, &mut clock_ms, 60_000), 60_000);
        assert_eq!(time.read(clock_ms), (60_000, None));
        assert_eq!(time.read(clock_ms + PAUSE_MIN_MS - 1).1, None);
        // A clock that goes back, as none should, is no pause and no progress.
        assert_eq!(time.read(5).0, 60_000 + PAUSE_MIN_MS - 1);
    }

    #[test]
    fn sup_9_a_pause_does_not_count_and_what_came_meanwhile_is_read_before_time_goes_on() {
        let (mut time, mut clock_ms) = (RunningTime::default(), 0);
        assert_eq!(run(&mut time, &mut clock_ms, 1_000), 1_000);
        clock_ms += 42_000;
        let duration_ms = 42_000;
        assert_eq!(time.read(clock_ms), (1_000, Some(Pause { duration_ms })));
        assert_eq!(run(&mut time, &mut clock_ms, PAUSE_CATCH_UP_MS), 1_000);
        assert_eq!(run(&mut time, &mut clock_ms, 10_000), 11_000);
    }

    #[test]
    fn sup_9_pauses_one_after_another_do_not_add_up_to_silence() {
        let (mut time, mut clock_ms) = (RunningTime::default(), 0);
        for _ in 0..100 {
            clock_ms += 10_000;
            assert!(time.read(clock_ms).1.is_some());
            run(&mut time, &mut clock_ms, TICK_MS);
        }
        assert_eq!(time.read(clock_ms), (0, None));
    }
}
