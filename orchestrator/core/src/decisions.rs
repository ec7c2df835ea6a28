//! Decisions of people in chats (`NEED-2`): display of open decisions, and effects of answers.
//!
//! The kinds of decision share one mechanism. A kind has an owner, which lists what is open, knows
//! outcomes, and carries out an answer: `fleet` for tool calls, `calls` for questions of tool
//! servers, `tasks` for questions and reviews of tasks, `chat_proposals` for proposals without a
//! task, `oauth` for logins.

use goondan_config::DecisionClass;
use goondan_protocol::decision::{DecisionPress, DecisionVerdict};
use goondan_protocol::ids::{ConnectionName, DecisionId, WorkspaceId};

use crate::Core;
use crate::exchange::ChildRequest;
use crate::fleet::Workspace;

impl Core {
    /// Shows the decisions of a workspace in its chats, except tool calls, and closes those that are
    /// over.
    pub(crate) fn show_decisions(&mut self, id: &WorkspaceId) {
        let Ok(workspace) = self.fleet.workspace(id) else {
            return;
        };
        let showing = workspace.showing();
        if !showing.is_empty() {
            self.read_proposals(id);
        }
        let is_all_known = self.are_all_known(id);
        for name in showing {
            let Ok(workspace) = self.fleet.workspace(id) else {
                return;
            };
            let Some(chat) = workspace.approval_chat(&name) else {
                continue;
            };
            let mut open = self.calls.questions_to_show(id);
            open.extend(self.tasks.open_points(id));
            open.extend(self.open_proposals(id));
            open.extend(self.oauth.logins_to_show(id));
            open.retain(|(_, show)| chat.refusal(DecisionClass::of(&show.about)).is_none());
            let is_over = |decision_id: &DecisionId| {
                let is_open = open
                    .iter()
                    .any(|(_, show)| show.decision_id == *decision_id);
                let call = workspace.find_approval(&decision_id.to_approval());
                let is_unread = self.oauth.is_login_unknown(id, decision_id)
                    || self.is_proposal_open(id, decision_id);
                is_all_known && !is_open && call.is_none() && !is_unread
            };
            let mut over = workspace.other_decisions_shown(&name);
            over.retain(is_over);
            let over: Vec<(DecisionId, String)> = over
                .into_iter()
                .map(|decision_id| {
                    let how = self.outcome_of(id, &decision_id);
                    let how = how.unwrap_or_else(|| "closed: it no longer needs you".to_owned());
                    (decision_id, how)
                })
                .collect();
            let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) else {
                return;
            };
            for (decision_id, how) in over {
                workspace.close_decision(cx, &name, decision_id, how);
            }
            for (since, show) in open {
                let is_due = chat.is_due(since, cx.now().wall);
                workspace.show_decision(cx, &name, show, is_due);
            }
        }
    }

    /// True if the open decisions of every conversation and task are known.
    fn are_all_known(&self, id: &WorkspaceId) -> bool {
        let workspace = self.fleet.workspace(id);
        workspace.is_ok_and(Workspace::has_all_approvals)
            && self.tasks.are_read(id)
            && self.chat_proposals.are_read(id)
    }

    fn outcome_of(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<String> {
        let of_task = self.tasks.outcome_of_point(id, decision_id);
        of_task
            .or_else(|| self.calls.outcome_of_question(decision_id))
            .or_else(|| self.chat_proposals.outcome_of(id, decision_id))
            .or_else(|| self.oauth.outcome_of_login(id, decision_id))
    }

    /// Handles a button press or a reply in a chat.
    pub(crate) fn on_decision_press(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
        caller: ChildRequest,
        press: &DecisionPress,
    ) {
        let Err(verdict) = self.decide((id, name), caller, press) else {
            return;
        };
        if let DecisionVerdict::NotAllowed { message } = &verdict
            && let Some((workspace, cx)) = self.fleet.workspace_and_cx(id)
        {
            workspace.log_refused_press(cx, name, &press.decision_id, message);
        }
        self.fleet.cx().answer_press(caller, verdict);
    }

    /// Carries out a press, or returns the verdict if that changes nothing or is complete.
    fn decide(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
        caller: ChildRequest,
        press: &DecisionPress,
    ) -> Result<(), DecisionVerdict> {
        let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) else {
            return Err(DecisionVerdict::Over {});
        };
        let (chat, by) = workspace.decider_of(name, &press.user)?;
        let decision_id = &press.decision_id;
        let of_call = workspace.find_approval(&decision_id.to_approval());
        if let Some(key) = of_call.map(|(key, _)| key.clone()) {
            return workspace.on_approval_press(cx, &key, (&chat, by), caller, press);
        }
        let person = (by, &press.answer);
        let about = (id, decision_id);
        if let Some(decided) = self.decide_proposal(about, caller, &person, &chat) {
            return decided;
        }
        let fleet = &mut self.fleet;
        if let Some(verdict) = self.calls.decide_in_chat(fleet, about, &person, &chat) {
            return Err(verdict);
        }
        let decided = self
            .tasks
            .decide_in_chat(fleet, about, caller, person, &chat);
        let Err(verdict) = decided else {
            return Ok(());
        };
        Err(verdict.unwrap_or_else(|| {
            match (self.outcome_of(id, decision_id), self.are_all_known(id)) {
                (Some(how), _) => DecisionVerdict::DecidedBefore { how },
                (None, true) => DecisionVerdict::Over {},
                (None, false) => DecisionVerdict::NotNow {
                    message: "the daemon has not read every conversation and task yet".to_owned(),
                },
            }
        }))
    }
}
