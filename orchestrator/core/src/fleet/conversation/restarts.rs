//! Restarts of a conversation's process that its agent requests.

use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_RESTART_REASON_CHARS;

use super::Conversation;
use crate::bus::context::Cx;
use crate::limits::{SELF_RESTART_WINDOW_MS, SELF_RESTARTS_MAX};
use crate::refusals::AgentRequestError;

impl Conversation {
    /// Handles an agent's request to restart its process after the turn in progress.
    pub(in crate::fleet) fn wish_restart(&mut self, now_ms: u64, reason: String) -> AgentAnswer {
        let chars = reason.chars().count();
        if reason.trim().is_empty() || chars > MAX_RESTART_REASON_CHARS {
            let message = format!("a reason must have 1 to {MAX_RESTART_REASON_CHARS} characters");
            return AgentRequestError::new("E_INVALID_REQUEST", message).into();
        }
        if let Some(wait_ms) = self.restarts.wait_ms(now_ms) {
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
        if let Some(turn) = self.turn_mut() {
            turn.restart = Some(reason);
        }
        AgentAnswer::Restarting {}
    }

    /// Handles the commit of a turn that requested a restart. The process is stopped when the
    /// instance is next advanced.
    pub(in crate::fleet) fn restart_as_wished(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        reason: &str,
    ) {
        self.restarts.begin(reason.to_owned(), cx.now().mono_ms);
        let event = LifecycleEvent::InstanceRestarted {
            instance_key: at.instance_key.clone(),
            by: "agent".to_owned(),
            reason: reason.to_owned(),
        };
        self.announce(cx, at, event, None);
    }
}
