//! Process restarts requested by agents (the tool `self-restart`).
//!
//! The request belongs to its turn: the turn ends normally and is committed, and only then is the
//! process stopped. Queued events run in the next process, under the configuration current then.
//! The request is not durable, because every failure that loses it (a crash of the process or the
//! end of the daemon) also starts a new process.

use std::collections::VecDeque;

use crate::limits::{SELF_RESTART_WINDOW_MS, SELF_RESTARTS_MAX};

/// Restarts of an instance's process requested by its agent.
#[derive(Debug, Default)]
pub(super) struct SelfRestarts {
    /// Reason for the pending restart, after the turn that requested it.
    due: Option<String>,
    /// Times of the latest restarts, oldest first.
    at_ms: VecDeque<u64>,
}

impl SelfRestarts {
    /// Reason for the pending restart, if any.
    pub(super) fn due(&self) -> Option<&str> {
        self.due.as_deref()
    }

    /// Clears the pending restart after the process exited, and returns its reason.
    pub(super) fn done(&mut self) -> Option<String> {
        self.due.take()
    }

    /// True if a recent restart counts toward the limit.
    pub(super) fn any_counts(&self, now_ms: u64) -> bool {
        self.counting(now_ms).next().is_some()
    }

    /// Time until another restart is allowed, in milliseconds; `None` if it is allowed now.
    pub(super) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let counting: Vec<u64> = self.counting(now_ms).collect();
        let free = counting.len().checked_sub(SELF_RESTARTS_MAX)?;
        let frees = counting.get(free)?.saturating_add(SELF_RESTART_WINDOW_MS);
        Some(frees.saturating_sub(now_ms))
    }

    fn counting(&self, now_ms: u64) -> impl Iterator<Item = u64> {
        let all = self.at_ms.iter().copied();
        all.filter(move |at_ms| now_ms.saturating_sub(*at_ms) < SELF_RESTART_WINDOW_MS)
    }

    /// Records a restart that happens as soon as no turn is in progress.
    pub(super) fn begin(&mut self, reason: String, now_ms: u64) {
        self.due = Some(reason);
        self.at_ms.push_back(now_ms);
        while self.at_ms.len() > SELF_RESTARTS_MAX {
            self.at_ms.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_restarts_in_a_window_and_no_more() {
        let mut restarts = SelfRestarts::default();
        for n in 0..SELF_RESTARTS_MAX as u64 {
            assert_eq!(restarts.wait_ms(n * 1_000), None);
            restarts.begin("x".to_owned(), n * 1_000);
            assert_eq!(restarts.due(), Some("x"));
            assert_eq!(restarts.done().as_deref(), Some("x"));
        }
        let last_ms = (SELF_RESTARTS_MAX as u64 - 1) * 1_000;
        assert_eq!(
            restarts.wait_ms(last_ms),
            Some(SELF_RESTART_WINDOW_MS - last_ms)
        );
        // The first restart no longer counts.
        assert_eq!(restarts.wait_ms(SELF_RESTART_WINDOW_MS), None);
        restarts.begin("x".to_owned(), SELF_RESTART_WINDOW_MS);
        assert_eq!(restarts.wait_ms(SELF_RESTART_WINDOW_MS), Some(1_000));
        assert!(restarts.any_counts(2 * SELF_RESTART_WINDOW_MS - 1));
        assert!(!restarts.any_counts(2 * SELF_RESTART_WINDOW_MS));
    }
}
