//! Computes running time from clock readings. No clock is read here.

use std::time::Duration;

use goondan_protocol::limits::{PAUSE_CATCH_UP_MS, PAUSE_MIN_MS};

/// A clock that is paused while its process does not run (`SUP-9`).
///
/// A watched reading that arrives [`PAUSE_MIN_MS`] or more after the previous one means that the
/// process was suspended and handled no messages in that time. The pause does not count, and the
/// clock stays paused for another [`PAUSE_CATCH_UP_MS`], so that pending messages are read, and
/// other suspended processes can answer, before any deadline is enforced.
#[derive(Debug, Default)]
pub struct RunningTime {
    read_at: Duration,
    counted: Duration,
    /// Clock time until which nothing counts.
    stands_until: Duration,
}

/// Result of a clock reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Running time so far; never decreases.
    pub counted: Duration,
    /// The pause that has just ended, if any.
    pub pause: Option<Duration>,
}

impl RunningTime {
    /// Adds a reading of a monotonic clock. `is_watched` is true if the clock should have been read
    /// at least once in [`PAUSE_LOOK_MS`](goondan_protocol::limits::PAUSE_LOOK_MS) since the last
    /// reading.
    pub fn read(&mut self, clock: Duration, is_watched: bool) -> ClockReading {
        let since = clock.saturating_sub(self.read_at);
        let from = self.read_at.max(self.stands_until);
        self.read_at = self.read_at.max(clock);
        let is_pause = is_watched && since >= Duration::from_millis(PAUSE_MIN_MS);
        if is_pause {
            self.stands_until = clock.saturating_add(Duration::from_millis(PAUSE_CATCH_UP_MS));
        } else {
            self.counted += clock.saturating_sub(from);
        }
        ClockReading {
            counted: self.counted,
            pause: is_pause.then_some(since),
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::limits::PAUSE_LOOK_MS;

    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn counted(n: u64) -> ClockReading {
        ClockReading {
            counted: ms(n),
            pause: None,
        }
    }

    #[test]
    fn sup_9_time_counts_whether_or_not_it_is_watched() {
        let mut time = RunningTime::default();
        for n in 1..=600 {
            assert_eq!(time.read(ms(100 * n), true), counted(100 * n));
        }
        assert_eq!(time.read(ms(9_000_000), false), counted(9_000_000));
        // A clock that goes backwards (which should not happen) is neither a pause nor progress.
        assert_eq!(time.read(ms(5), true), counted(9_000_000));
        let late = 9_000_000 + PAUSE_MIN_MS - 1;
        let read = time.read(ms(late), true);
        assert_eq!(read, counted(late), "a short delay is not a pause");
    }

    #[test]
    fn sup_9_pause_is_not_counted_and_its_backlog_is_read_first() {
        let mut time = RunningTime::default();
        assert_eq!(time.read(ms(500), true), counted(500));
        let after = time.read(ms(200_500), true);
        assert_eq!(after.counted, ms(500));
        assert_eq!(after.pause, Some(ms(200_000)));
        let mut clock = 200_500;
        for _ in 0..PAUSE_CATCH_UP_MS / PAUSE_LOOK_MS {
            clock += PAUSE_LOOK_MS;
            assert_eq!(time.read(ms(clock), true), counted(500));
        }
        let read = time.read(ms(clock + PAUSE_LOOK_MS), true);
        assert_eq!(read, counted(500 + PAUSE_LOOK_MS));
    }

    #[test]
    fn sup_9_pauses_one_after_another_do_not_add_up() {
        let mut time = RunningTime::default();
        for n in 1..=100 {
            let read = time.read(ms(n * 10_000), true);
            assert_eq!(read.counted, Duration::ZERO);
            assert!(read.pause.is_some());
            assert_eq!(time.read(ms(n * 10_000 + PAUSE_LOOK_MS), true), counted(0));
        }
    }
}
