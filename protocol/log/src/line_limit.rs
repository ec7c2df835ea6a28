//! Limits log lines that an outside party can cause at will.

use std::time::{Duration, Instant};

/// Admits a number of lines per interval and counts the rest; the next admitted line reports the
/// count. The caller passes in the time.
#[derive(Debug)]
pub struct LineLimit {
    most: u32,
    interval: Duration,
    began_at: Option<Instant>,
    told: u32,
    untold: u64,
}

impl LineLimit {
    /// Admits at most `most` lines, but at least one, per `interval_ms` milliseconds.
    #[must_use]
    pub const fn new(most: u32, interval_ms: u64) -> Self {
        Self {
            most,
            interval: Duration::from_millis(interval_ms),
            began_at: None,
            told: 0,
            untold: 0,
        }
    }

    /// Returns the number of suppressed lines since the last admitted one, or `None` if a line must
    /// not be logged now.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = self
            .began_at
            .is_none_or(|began_at| now.saturating_duration_since(began_at) >= self.interval);
        if is_over {
            (self.began_at, self.told) = (Some(now), 0);
        }
        if self.told > 0 && self.told >= self.most {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_left_out_and_counted_in_the_next() {
        let mut limit = LineLimit::new(2, 1_000);
        let began = Instant::now();
        let mut at_ms = |ms| limit.admit(began + Duration::from_millis(ms));
        assert_eq!([at_ms(0), at_ms(10)], [Some(0), Some(0)]);
        assert_eq!([at_ms(20), at_ms(30), at_ms(999)], [None; 3]);
        assert_eq!([at_ms(1_000), at_ms(1_001)], [Some(3), Some(0)]);
        assert_eq!(at_ms(1_002), None);
        // A clock that goes backwards starts no new interval.
        assert_eq!(at_ms(0), None);
        assert_eq!(at_ms(9_000), Some(2));
    }
}
