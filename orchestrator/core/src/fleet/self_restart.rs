//! Process restarts requested by agents (the tool `self-restart`).
//!
//! The request belongs to its turn: the turn ends normally and is committed, and only then is the
//! process stopped. Queued events run in the next process, under the configuration current then.
//! The request is not durable, because every failure that loses it (a crash of the process or the
//! end of the daemon) also starts a new process.

use std::collections::VecDeque;

use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_RESTART_REASON_CHARS;

use super::Fleet;
use crate::limits::{SELF_RESTART_WINDOW_MS, SELF_RESTARTS_MAX};
use crate::refusals::AgentRequestError;

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
    fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let counting: Vec<u64> = self.counting(now_ms).collect();
        let free = counting.len().checked_sub(SELF_RESTARTS_MAX)?;
        let frees = counting.get(free)?.saturating_add(SELF_RESTART_WINDOW_MS);
        Some(frees.saturating_sub(now_ms))
    }

    fn counting(&self, now_ms: u64) -> impl Iterator<Item = u64> {
        let all = self.at_ms.iter().copied();
        all.filter(move |at_ms| now_ms.saturating_sub(*at_ms) < SELF_RESTART_WINDOW_MS)
    }

    fn begin(&mut self, reason: String, now_ms: u64) {
        self.due = Some(reason);
        self.at_ms.push_back(now_ms);
        while self.at_ms.len() > SELF_RESTARTS_MAX {
            self.at_ms.pop_front();
        }
    }
}

impl Fleet {
    /// Handles an agent's request to restart its process after the turn in progress.
    pub(super) fn wish_restart(&mut self, at: &InstanceRef, reason: String) -> AgentAnswer {
        let chars = reason.chars().count();
        if reason.trim().is_empty() || chars > MAX_RESTART_REASON_CHARS {
            let message = format!("a reason must have 1 to {MAX_RESTART_REASON_CHARS} characters");
            return AgentRequestError::new("E_INVALID_REQUEST", message).into();
        }
        let now_ms = self.cx.now().mono_ms;
        let Some(entry) = self.conversation_mut(at) else {
            return AgentRequestError::new("E_UNAVAILABLE", "the conversation was deleted").into();
        };
        if let Some(wait_ms) = entry.restarts().wait_ms(now_ms) {
            let message = format!(
                "this agent restarted itself {SELF_RESTARTS_MAX} times within {} s; the next \
                 restart is allowed in {} s. Another restart will not help: report the problem \
                 instead",
                SELF_RESTART_WINDOW_MS / 1_000,
                wait_ms.div_ceil(1_000)
            );
            return AgentRequestError::new("E_TOO_MANY_RESTARTS", message).into();
        }
        // A repeated request in one turn causes one restart.
        if let Some(turn) = entry.turn_mut() {
            turn.restart = Some(reason);
        }
        AgentAnswer::Restarting {}
    }

    /// Handles the commit of a turn that requested a restart. The process is stopped when the
    /// instance is next advanced.
    pub(crate) fn restart_as_wished(&mut self, at: &InstanceRef, reason: &str) {
        let now_ms = self.cx.now().mono_ms;
        if let Some(entry) = self.conversation_mut(at) {
            entry.restarts_mut().begin(reason.to_owned(), now_ms);
            let event = LifecycleEvent::InstanceRestarted {
                instance_key: at.instance_key.clone(),
                by: "agent".to_owned(),
                reason: reason.to_owned(),
            };
            self.announce(&at.workspace_id, event, None);
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
