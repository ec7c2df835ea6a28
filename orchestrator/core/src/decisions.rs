//! Decisions of people in chats (`NEED-2`): which are shown where, and what an answer decides.
//!
//! The kinds of decision share one mechanism. A kind has an owner, which lists what is open, knows
//! outcomes, and carries out an answer: `fleet` for tool calls, `calls` for questions of tool
//! servers, `tasks` for questions and reviews of tasks.

use goondan_protocol::decision::{DecisionPress, DecisionVerdict};
use goondan_protocol::ids::{ConnectionName, DecisionId, WorkspaceId};

use crate::{Core, ProcessId};

impl Core {
    /// Shows the decisions of a workspace in its chats, except tool calls, and closes those that are
    /// over.
    pub(crate) fn show_decisions(&mut self, id: &WorkspaceId) {
        let is_all_known = self.fleet.has_all_approvals(id) && self.tasks.are_read(id);
        for name in self.fleet.showing_in(id) {
            let Some(chat) = self.fleet.approval_chat(id, &name) else {
                continue;
            };
            let mut open = self.calls.questions_to_show(id);
            open.extend(self.tasks.open_points(id));
            open.retain(|(agent, _)| chat.has_agent(agent.as_str()));
            for decision_id in self.fleet.other_decisions_shown(id, &name) {
                let is_open = open.iter().any(|(_, show)| show.decision_id == decision_id);
                let approval_id = decision_id.to_approval();
                let is_call = self.fleet.find_approval(id, &approval_id).is_some();
                if is_all_known && !is_open && !is_call {
                    let how = self.outcome_of(id, &decision_id);
                    let how = how.unwrap_or_else(|| "closed: it no longer needs you".to_owned());
                    self.fleet.close_decision(id, &name, decision_id, how);
                }
            }
            for (_, show) in open {
                self.fleet.show_decision(id, &name, show);
            }
        }
    }

    fn outcome_of(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<String> {
        let of_task = self.tasks.outcome_of_point(id, decision_id);
        of_task.or_else(|| self.calls.outcome_of_question(decision_id))
    }

    /// Handles a button press or a reply in a chat.
    pub(crate) fn on_decision_press(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
        caller: (ProcessId, Option<u64>),
        press: &DecisionPress,
    ) {
        let Err(verdict) = self.decide((id, name), caller, press) else {
            return;
        };
        if let DecisionVerdict::NotAllowed { message } = &verdict {
            self.fleet
                .log_refused_press((id, name), &press.decision_id, message);
        }
        self.fleet.answer_press(caller.0, caller.1, verdict);
    }

    /// Carries out a press, or returns the verdict if that changes nothing or is complete.
    fn decide(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
        caller: (ProcessId, Option<u64>),
        press: &DecisionPress,
    ) -> Result<(), DecisionVerdict> {
        let (chat, by) = self.fleet.decider_of(id, name, &press.user)?;
        let decision_id = &press.decision_id;
        if let Some(at) = self.fleet.find_approval(id, &decision_id.to_approval()) {
            return self
                .fleet
                .on_approval_press(&at, (&chat, by), caller, press);
        }
        let may_decide = |agent: &goondan_protocol::ids::AgentName| chat.has_agent(agent.as_str());
        let person = (by, &press.answer);
        let about = (id, decision_id);
        let fleet = &mut self.fleet;
        if let Some(verdict) = self
            .calls
            .decide_in_chat(fleet, about, &person, &may_decide)
        {
            return Err(verdict);
        }
        let decided = self
            .tasks
            .decide_in_chat(fleet, about, caller, person, may_decide);
        let Err(verdict) = decided else {
            return Ok(());
        };
        Err(verdict.unwrap_or_else(|| {
            let is_all_known = self.fleet.has_all_approvals(id) && self.tasks.are_read(id);
            match (self.outcome_of(id, decision_id), is_all_known) {
                (Some(how), _) => DecisionVerdict::DecidedBefore { how },
                (None, true) => DecisionVerdict::Over {},
                (None, false) => DecisionVerdict::NotNow {
                    message: "the daemon has not read every conversation and task yet".to_owned(),
                },
            }
        }))
    }
}
