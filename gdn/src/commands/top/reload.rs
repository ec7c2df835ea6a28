//! Rate limit for repeated queries: a query is repeated soon after its data may have changed, but not continuously.

use goondan_protocol::time::Timestamp;

use crate::output::text;

/// Minimum pause after a query, as a multiple of its duration.
const REST_FACTOR: u64 = 10;

/// Schedule of one query.
#[derive(Debug)]
pub(super) struct Reload {
    every_ms: u64,
    is_wanted: bool,
    asked_at: Option<Timestamp>,
    /// Duration of the last query, in milliseconds; none while one is in flight.
    took_ms: Option<u64>,
}

impl Reload {
    /// Creates a schedule with a minimum interval.
    pub(super) fn every(every_ms: u64) -> Self {
        Self {
            every_ms,
            is_wanted: false,
            asked_at: None,
            took_ms: Some(0),
        }
    }

    /// Marks the data as outdated.
    pub(super) fn wanted(&mut self) {
        self.is_wanted = true;
    }

    /// Records the start of a query.
    pub(super) fn asked(&mut self, now: Timestamp) {
        self.is_wanted = false;
        self.asked_at = Some(now);
        self.took_ms = None;
    }

    /// Records the end of a query, successful or not.
    pub(super) fn came(&mut self, now: Timestamp) {
        let asked = self.asked_at.unwrap_or(now);
        self.took_ms = Some(text::ms_between(asked, now));
    }

    /// True if a query must start now; records it as started.
    pub(super) fn due(&mut self, now: Timestamp) -> bool {
        let Some(took_ms) = self.took_ms else {
            return false;
        };
        let rest_ms = took_ms.saturating_mul(REST_FACTOR).max(self.every_ms);
        let has_rested = self
            .asked_at
            .is_none_or(|asked| text::ms_between(asked, now) >= rest_ms);
        let is_due = self.is_wanted && has_rested;
        if is_due {
            self.asked(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(ms)
    }

    #[test]
    fn changing_data_reloads_at_intervals_and_never_concurrently() {
        let mut reload = Reload::every(250);
        assert!(!reload.due(at(0)));
        reload.wanted();
        assert!(reload.due(at(0)));
        reload.wanted();
        assert!(!reload.due(at(1_000)), "the answer has not come yet");
        reload.came(at(1_000));
        assert!(
            !reload.due(at(9_999)),
            "an answer that takes long is seldom asked for"
        );
        assert!(reload.due(at(10_000)));
        reload.came(at(10_001));
        assert!(!reload.due(at(20_000)), "nothing has changed");
    }
}
