//! When something is asked for again: soon after it may have changed, and not all the time.

use goondan_protocol::time::Timestamp;

use crate::output::text;

/// How many times as long as an answer took nothing is asked for again.
const REST_FACTOR: u64 = 10;

/// When one thing is asked for.
#[derive(Debug)]
pub(super) struct Reload {
    every_ms: u64,
    is_wanted: bool,
    asked_at: Option<Timestamp>,
    /// How long the last answer took, in milliseconds; none while one is awaited.
    took_ms: Option<u64>,
}

impl Reload {
    /// What is asked for at most so often.
    pub(super) fn every(every_ms: u64) -> Self {
        Self {
            every_ms,
            is_wanted: false,
            asked_at: None,
            took_ms: Some(0),
        }
    }

    /// It may have changed.
    pub(super) fn wanted(&mut self) {
        self.is_wanted = true;
    }

    /// It was asked for.
    pub(super) fn asked(&mut self, now: Timestamp) {
        self.is_wanted = false;
        self.asked_at = Some(now);
        self.took_ms = None;
    }

    /// It came, or will not come.
    pub(super) fn came(&mut self, now: Timestamp) {
        let asked = self.asked_at.unwrap_or(now);
        self.took_ms = Some(text::ms_between(asked, now));
    }

    /// Whether it is to be asked for now; it counts as asked for then.
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
    fn what_changes_all_the_time_is_asked_for_now_and_then_and_never_twice_at_once() {
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
