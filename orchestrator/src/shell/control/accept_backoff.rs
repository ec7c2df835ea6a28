//! Back-off after failed `accept` calls, with rate-limited logging.
//!
//! If a process has no free descriptor, `accept` fails immediately and repeatedly while a client is
//! waiting.

use std::io;
use std::time::Duration;

use goondan_log::LineLimit;
use tokio::time::Instant;

use crate::limits::{ACCEPT_PAUSE_FIRST_MS, ACCEPT_PAUSE_MAX_MS, ACCEPT_WARNING_INTERVAL_MS};

/// Back-off state of `accept`.
#[derive(Debug)]
pub(super) struct AcceptBackoff {
    failures_in_row: u32,
    lines: LineLimit,
}

impl Default for AcceptBackoff {
    fn default() -> Self {
        Self {
            failures_in_row: 0,
            lines: LineLimit::new(1, ACCEPT_WARNING_INTERVAL_MS),
        }
    }
}

impl AcceptBackoff {
    /// Resets the back-off.
    pub(super) fn worked(&mut self) {
        self.failures_in_row = 0;
    }

    /// Handles a failure: logs it, rate-limited, and returns the delay before the next attempt.
    pub(super) fn failed(&mut self, error: &io::Error) -> Duration {
        if let Some(untold) = self.lines.admit(Instant::now().into_std()) {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                failures = untold + 1,
                "failed to accept control connections; retrying"
            );
        }
        let doublings = self.failures_in_row.min(16);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        Duration::from_millis((ACCEPT_PAUSE_FIRST_MS << doublings).min(ACCEPT_PAUSE_MAX_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_pause_doubles_up_to_its_maximum_and_resets() {
        let mut accepting = AcceptBackoff::default();
        let error = io::Error::from_raw_os_error(24);
        let mut pauses_ms = || accepting.failed(&error).as_millis();
        let first = u128::from(ACCEPT_PAUSE_FIRST_MS);
        assert_eq!(
            [pauses_ms(), pauses_ms(), pauses_ms()],
            [first, 2 * first, 4 * first]
        );
        for _ in 0..100 {
            pauses_ms();
        }
        assert_eq!(pauses_ms(), u128::from(ACCEPT_PAUSE_MAX_MS));
        accepting.worked();
        assert_eq!(accepting.failed(&error).as_millis(), first);
    }
}
