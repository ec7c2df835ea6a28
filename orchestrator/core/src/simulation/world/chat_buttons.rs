//! Users and unauthorized users press the buttons of a connection that shows pending approvals
//! (`STEER-3`).

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionPress, DecisionSubject, DecisionVerdict,
};
use goondan_protocol::ipc::{ToConnector, ToOrchestrator};

use super::World;
use crate::ProcessId;
use crate::simulation::config::{OTHER_CONNECTION, STRANGER, USER};
use crate::simulation::decisions::Decider;

impl World {
    /// Records the core's message about buttons, which commits the core from now on.
    pub(super) fn promise_of_buttons(
        &mut self,
        process: ProcessId,
        message: &ToConnector,
        in_reply_to: Option<u64>,
    ) {
        match message {
            ToConnector::DecisionClosed(closed) => {
                self.oracle
                    .decisions
                    .close(&closed.decision_id.to_approval());
            }
            ToConnector::DecisionVerdict(verdict) => {
                let child = self.children.get_mut(&process);
                let pressed = child.zip(in_reply_to);
                let pressed = pressed.and_then(|(child, request)| child.pressed.remove(&request));
                let (id, decision, user) = pressed.expect("no press, or already answered");
                let is_known = user == USER;
                let told = match verdict {
                    DecisionVerdict::Decided { how } => {
                        assert!(is_known, "a stranger decides about `{id}`");
                        assert_eq!(how, decision.as_str());
                        self.oracle.decisions.take(&id, decision);
                        "decided"
                    }
                    DecisionVerdict::Counted { .. } => {
                        assert!(is_known, "a stranger approves `{id}`");
                        self.oracle.decisions.count_first(&id, Decider::User);
                        "counted"
                    }
                    DecisionVerdict::NotAllowed { .. } => "not allowed",
                    DecisionVerdict::DecidedBefore { .. } => "decided before",
                    DecisionVerdict::Over {} => "over",
                    DecisionVerdict::NotNow { .. } => "not now",
                };
                let is_refused = told == "not allowed";
                assert!(is_known || is_refused, "a stranger is notified: {told}");
                self.oracle.count_told(format!("button: {told}"));
            }
            _ => {}
        }
    }

    /// Delivers a message about an approval to the connection.
    pub(super) fn hear_of_buttons(&mut self, message: &ToConnector) {
        match message {
            ToConnector::DecisionShow(show) => {
                let is_update = matches!(
                    show.about,
                    DecisionSubject::Call {
                        first_approval: Some(_),
                        ..
                    }
                );
                self.chat.show(&show.decision_id.to_approval(), is_update);
            }
            ToConnector::DecisionClosed(closed) => {
                self.chat.close(&closed.decision_id.to_approval());
            }
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
                self.oracle.decisions.want(&id, decision, Decider::User);
            }
            let Some(child) = self.children.get_mut(&process) else {
                return;
            };
            child.next_request += 1;
            let request = child.next_request;
            child.pressed.insert(request, (id.clone(), decision, user));
            let button = match decision {
                ApprovalDecision::Approved => DecisionButton::Approve,
                ApprovalDecision::Denied => DecisionButton::Deny,
            };
            let press = DecisionPress {
                decision_id: (&id).into(),
                answer: DecisionAnswer::Button(button),
                user: user.to_owned(),
            };
            self.say(process, ToOrchestrator::DecisionPress(press), Some(request));
        }
    }
}
