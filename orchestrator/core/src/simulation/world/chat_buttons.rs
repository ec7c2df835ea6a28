//! Users and unauthorized users press the buttons of a connection that shows pending approvals
//! (`STEER-3`).

use goondan_protocol::approval::{ApprovalDecision, ApprovalPress, ApprovalVerdict};
use goondan_protocol::ipc::{ToConnector, ToOrchestrator};

use super::World;
use crate::ProcessId;
use crate::simulation::config::{OTHER_CONNECTION, STRANGER, USER};

impl World {
    /// Records the core's message about buttons, which commits the core from now on.
    pub(super) fn promise_of_buttons(
        &mut self,
        process: ProcessId,
        message: &ToConnector,
        in_reply_to: Option<u64>,
    ) {
        match message {
            ToConnector::ApprovalClosed(closed) => {
                self.oracle.decisions.close(&closed.approval_id);
            }
            ToConnector::ApprovalVerdict(verdict) => {
                let child = self.children.get_mut(&process);
                let pressed = child.zip(in_reply_to);
                let pressed = pressed.and_then(|(child, request)| child.pressed.remove(&request));
                let (id, decision, user) = pressed.expect("no press, or already answered");
                let is_known = user == USER;
                let told = match verdict {
                    ApprovalVerdict::Decided { decision: decided } => {
                        assert!(is_known, "a stranger decides about `{id}`");
                        assert_eq!(*decided, decision);
                        self.oracle.decisions.take(&id, decision);
                        "decided"
                    }
                    ApprovalVerdict::NotAllowed { .. } => "not allowed",
                    ApprovalVerdict::DecidedBefore { .. } => "decided before",
                    ApprovalVerdict::Over {} => "over",
                    ApprovalVerdict::NotNow { .. } => "not now",
                };
                let is_refused = told == "not allowed";
                assert!(is_known || is_refused, "a stranger is told: {told}");
                self.oracle.count_told(format!("button: {told}"));
            }
            _ => {}
        }
    }

    /// Delivers a message about an approval to the connection.
    pub(super) fn hear_of_buttons(&mut self, message: &ToConnector) {
        match message {
            ToConnector::ApprovalShow(show) => self.chat.show(&show.approval_id),
            ToConnector::ApprovalClosed(closed) => self.chat.close(&closed.approval_id),
            _ => {}
        }
    }

    /// Presses some of the buttons in the chat, partly as an unauthorized user.
    pub(in crate::simulation) fn press_some(&mut self) {
        let Some(process) = self.listening(OTHER_CONNECTION).first().copied() else {
            return;
        };
        for id in self.chat.shown() {
            if !self.oracle.decisions.is_listed(&id) || self.rng.u64(0..4) > 0 {
                continue;
            }
            let decision = match self.rng.bool() {
                true => ApprovalDecision::Approved,
                false => ApprovalDecision::Denied,
            };
            let user = if self.rng.bool() { USER } else { STRANGER };
            if user == USER {
                self.oracle.decisions.want(&id, decision);
            }
            let Some(child) = self.children.get_mut(&process) else {
                return;
            };
            child.next_request += 1;
            let request = child.next_request;
            child.pressed.insert(request, (id.clone(), decision, user));
            let press = ApprovalPress {
                approval_id: id,
                decision,
                user: user.to_owned(),
            };
            self.say(process, ToOrchestrator::ApprovalPress(press), Some(request));
        }
    }
}
