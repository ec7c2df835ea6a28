//! Decisions with buttons in chats (`NEED-2`), and the approvals of tool calls among them
//! (`STEER-3`).
//!
//! A configured connection shows the pending decisions and reports which user pressed which button.
//! The running configuration determines if the user is authorized, and [`super::approvals`] handles
//! the decision about a call like a client's. [`crate::decisions`] handles the other kinds.
//!
//! This state is not durable: a process reports the decisions it already shows and receives the
//! others.

use std::collections::BTreeSet;

use goondan_config::ApprovalChat;
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionClosed, DecisionPress, DecisionShow, DecisionVerdict,
    DecisionsFollow,
};
use goondan_protocol::ids::{ApprovalId, ConnectionName, DecisionId, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::limits::MAX_APPROVALS_SHOWN;

use super::approvals::{AuthorizedDecision, DecisionRequester};
use super::conversation::Conversation;
use super::{Fleet, Workspace};
use crate::bus::queue::{Message, Notice};
use crate::{LogEvent, ProcessId};

#[derive(Debug, Default)]
pub(super) struct ShownApprovals {
    /// The process that shows them, if any.
    process: Option<ProcessId>,
    /// Pending approvals that it shows.
    shown: BTreeSet<DecisionId>,
    /// Pending decisions of other kinds that it shows.
    others: BTreeSet<DecisionId>,
    /// Decisions that it reports as shown and that were not found yet, because conversations and
    /// tasks are read one after the other.
    sought: BTreeSet<DecisionId>,
    /// Set when it can show more decisions.
    has_room_again: bool,
}

impl ShownApprovals {
    fn room(&self) -> usize {
        let shown = self.shown.len() + self.others.len() + self.sought.len();
        MAX_APPROVALS_SHOWN.saturating_sub(shown)
    }

    fn has(&self, id: &DecisionId) -> bool {
        let mut sets = [&self.shown, &self.others, &self.sought].into_iter();
        sets.any(|set| set.contains(id))
    }
}

/// State of an approval that a connection shows.
enum ApprovalStatus {
    Waits,
    /// Closed, with this result.
    Closed(String),
    /// No approval with this id was found.
    Unknown,
}

impl Workspace {
    /// True if the pending approvals of each active conversation are known.
    fn is_all_read(&self) -> bool {
        let mut entries = self.conversations.values();
        entries.all(Conversation::is_read)
    }
}

impl Fleet {
    /// The approval chat of a connection in the running configuration, if any.
    pub(crate) fn approval_chat(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Option<ApprovalChat> {
        self.bundle(id)?.connections.get(name)?.approvals()
    }

    /// Starts showing pending decisions in a connection.
    pub(crate) fn on_decisions_follow(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        follow: DecisionsFollow,
    ) {
        if self.approval_chat(id, name).is_none() {
            return;
        }
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let known = follow.known.into_iter().take(MAX_APPROVALS_SHOWN);
        connector.showing = ShownApprovals {
            process: Some(process),
            sought: known.collect(),
            ..ShownApprovals::default()
        };
        self.settle_sought(id, name);
        self.show_waiting(id, name);
        self.note_decisions(id);
    }

    /// Shows and closes the decisions of other kinds again, because one may have changed.
    pub(crate) fn note_decisions(&mut self, id: &WorkspaceId) {
        if !self.showing_in(id).is_empty() {
            self.post(Message::Notice(Notice::Decisions(id.clone())));
        }
    }

    /// Clears the state after a connection's process exited. The next process reports the decisions
    /// it shows.
    pub(super) fn forget_shown_by(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        if let Some(connector) = self.connector_mut(id, name) {
            connector.showing = ShownApprovals::default();
        }
    }

    /// Connections of a workspace that show decisions.
    pub(crate) fn showing_in(&self, id: &WorkspaceId) -> Vec<ConnectionName> {
        let connectors = self.workspaces.get(id).into_iter();
        let connectors = connectors.flat_map(|workspace| &workspace.connectors);
        let showing = connectors.filter(|(_, connector)| connector.showing.process.is_some());
        showing.map(|(name, _)| name.clone()).collect()
    }

    /// Shows approvals that have become pending or were found.
    pub(super) fn show_in_chats(&mut self, id: &WorkspaceId) {
        for name in self.showing_in(id) {
            self.settle_sought(id, &name);
            self.show_waiting(id, &name);
        }
        self.note_decisions(id);
    }

    /// Periodic work: resolves decisions that were not found, and shows more if there is room.
    pub(super) fn pump_showing(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let has_room_again = std::mem::take(&mut connector.showing.has_room_again);
        let is_seeking = !connector.showing.sought.is_empty();
        if is_seeking {
            self.settle_sought(id, name);
        }
        if has_room_again {
            self.show_waiting(id, name);
        }
        if is_seeking || has_room_again {
            self.note_decisions(id);
        }
    }

    fn standing_of(&self, id: &WorkspaceId, decision_id: &DecisionId) -> ApprovalStatus {
        let approval_id = decision_id.to_approval();
        let found = self.find_approval(id, &approval_id);
        match found.and_then(|at| self.decision_about(&at, &approval_id)) {
            Some(None) => ApprovalStatus::Waits,
            Some(Some(how)) => ApprovalStatus::Closed(how),
            None => ApprovalStatus::Unknown,
        }
    }

    /// True if the approvals of each active conversation are known.
    pub(crate) fn has_all_approvals(&self, id: &WorkspaceId) -> bool {
        self.workspaces.get(id).is_some_and(Workspace::is_all_read)
    }

    /// Determines the state of approvals that a connection reported as shown.
    fn settle_sought(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let connector = self.connector_mut(id, name);
        let sought = connector.map(|it| std::mem::take(&mut it.showing.sought));
        for decision_id in sought.into_iter().flatten() {
            let standing = self.standing_of(id, &decision_id);
            let Some(connector) = self.connector_mut(id, name) else {
                return;
            };
            match standing {
                ApprovalStatus::Unknown => drop(connector.showing.sought.insert(decision_id)),
                ApprovalStatus::Waits => drop(connector.showing.shown.insert(decision_id)),
                ApprovalStatus::Closed(how) => self.tell_closed_in(id, name, decision_id, how),
            }
        }
    }

    /// Shows pending approvals in a connection, up to its limit.
    fn show_waiting(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let Some(chat) = self.approval_chat(id, name) else {
            return;
        };
        let Some(workspace) = self.workspaces.get(id) else {
            return;
        };
        let Some(showing) = workspace.connectors.get(name).map(|it| &it.showing) else {
            return;
        };
        let Some(process) = showing.process else {
            return;
        };
        let policy = workspace.approval_policy();
        let mut waiting = Vec::new();
        for (key, entry) in &workspace.conversations {
            if chat.has_agent(entry.agent().as_str()) {
                let is_new = |it: &ApprovalId| !showing.has(&it.into());
                let whose = (key, entry.agent());
                waiting.extend(entry.approvals().to_show(whose, policy, is_new));
            }
        }
        // Longest waiting first.
        waiting.sort_by_key(|(at, _)| at.as_unix_millis());
        waiting.truncate(showing.room());
        for (_, show) in waiting {
            if let Some(connector) = self.connector_mut(id, name) {
                connector.showing.shown.insert(show.decision_id.clone());
            }
            self.answer_connector(process, None, ToConnector::DecisionShow(Box::new(show)));
        }
    }

    /// Decisions of other kinds that a connection shows or may show.
    pub(crate) fn other_decisions_shown(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Vec<DecisionId> {
        let workspace = self.workspaces.get(id);
        let connector = workspace.and_then(|workspace| workspace.connectors.get(name));
        let showing = connector.map(|connector| &connector.showing).into_iter();
        let all = showing.flat_map(|showing| showing.others.iter().chain(&showing.sought));
        all.cloned().collect()
    }

    /// Shows a pending decision of another kind in a connection, unless it is shown or there is no
    /// room.
    pub(crate) fn show_decision(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        show: DecisionShow,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let showing = &mut connector.showing;
        if showing.sought.remove(&show.decision_id) {
            showing.others.insert(show.decision_id);
            return;
        }
        let Some(process) = showing.process else {
            return;
        };
        if showing.has(&show.decision_id) || showing.room() == 0 {
            return;
        }
        showing.others.insert(show.decision_id.clone());
        self.answer_connector(process, None, ToConnector::DecisionShow(Box::new(show)));
    }

    /// Updates a decision of another kind that is no longer pending in a connection.
    pub(crate) fn close_decision(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        decision_id: DecisionId,
        how: String,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let showing = &mut connector.showing;
        if showing.others.remove(&decision_id) || showing.sought.remove(&decision_id) {
            self.tell_closed_in(id, name, decision_id, how);
        }
    }

    /// Updates a closed approval in the connections that show it.
    pub(super) fn close_in_chats(&mut self, id: &WorkspaceId, approval_id: &ApprovalId, how: &str) {
        for name in self.showing_in(id) {
            let Some(connector) = self.connector_mut(id, &name) else {
                continue;
            };
            let showing = &mut connector.showing;
            let decision_id = DecisionId::from(approval_id);
            if showing.shown.remove(&decision_id) || showing.sought.remove(&decision_id) {
                self.tell_closed_in(id, &name, decision_id, how.to_owned());
            }
        }
    }

    fn tell_closed_in(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        decision_id: DecisionId,
        how: String,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        connector.showing.has_room_again = true;
        if let Some(process) = connector.showing.process {
            let closed = ToConnector::DecisionClosed(DecisionClosed { decision_id, how });
            self.answer_connector(process, None, closed);
        }
    }

    /// Handles a button press about a call of `at`, by an authorized user.
    pub(crate) fn on_approval_press(
        &mut self,
        at: &InstanceRef,
        (chat, by): (&ApprovalChat, String),
        (process, request_id): (ProcessId, Option<u64>),
        press: &DecisionPress,
    ) -> Result<(), DecisionVerdict> {
        let decision = self.judge_press(at, chat, press)?;
        let decider = DecisionRequester::Button {
            process,
            request_id,
        };
        let chosen = AuthorizedDecision {
            approval_id: press.decision_id.to_approval(),
            decision,
            reason: None,
            by: Some(by),
        };
        self.note_decision(at, chosen, decider, None);
        Ok(())
    }

    /// Reports a press that an unauthorized user made, or that does not fit.
    pub(crate) fn log_refused_press(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
        decision_id: &DecisionId,
        problem: &str,
    ) {
        let event = LogEvent::warn("decision of a user in a chat refused");
        let event = event
            .with("workspaceId", id.as_str())
            .with("connection", name.as_str())
            .with("decisionId", decision_id.as_str())
            .with("problem", problem);
        self.log(event);
    }

    pub(crate) fn answer_press(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        verdict: DecisionVerdict,
    ) {
        self.answer_connector(process, request_id, ToConnector::DecisionVerdict(verdict));
    }

    /// The chat of a connection and the recorded name of a user who may decide there, or the reason
    /// for a refusal.
    pub(crate) fn decider_of(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
        user: &str,
    ) -> Result<(ApprovalChat, String), DecisionVerdict> {
        let not_allowed = |message: String| Err(DecisionVerdict::NotAllowed { message });
        let connection = self.bundle(id).and_then(|it| it.connections.get(name));
        let asking = connection.and_then(|it| Some((it, it.approvals()?)));
        let Some((connection, chat)) = asking else {
            return not_allowed(format!("Connection `{name}` has no `approvals`"));
        };
        if !chat.has_user(user) {
            let user: String = user.chars().take(USER_CHARS_SHOWN).collect();
            return not_allowed(format!(
                "user {user} is not in `approvals.users` of Connection `{name}`"
            ));
        }
        Ok((chat, format!("{}:{user}", connection.connector)))
    }

    /// The decision of a valid button press about a call, or the reason it is rejected.
    fn judge_press(
        &self,
        at: &InstanceRef,
        chat: &ApprovalChat,
        press: &DecisionPress,
    ) -> Result<ApprovalDecision, DecisionVerdict> {
        let not_allowed = |message: String| Err(DecisionVerdict::NotAllowed { message });
        let approval_id = press.decision_id.to_approval();
        if !self
            .agent_name(at)
            .is_some_and(|agent| chat.has_agent(agent.as_str()))
        {
            return not_allowed("its agent is not in `approvals.agents`".to_owned());
        }
        if let Some(how) = self.decided_or_deciding(at, &approval_id) {
            return Err(DecisionVerdict::DecidedBefore { how });
        }
        match press.answer {
            DecisionAnswer::Button(DecisionButton::Deny) => Ok(ApprovalDecision::Denied),
            DecisionAnswer::Button(DecisionButton::Approve)
                if self.is_too_long_for_button(at, &approval_id) =>
            {
                not_allowed(format!(
                    "it is too long for a message; see it with `gdn inbox approvals {approval_id}`"
                ))
            }
            DecisionAnswer::Button(DecisionButton::Approve) => Ok(ApprovalDecision::Approved),
            DecisionAnswer::Button(DecisionButton::Option(_)) | DecisionAnswer::Text(_) => {
                not_allowed("a call is approved or denied with its buttons".to_owned())
            }
        }
    }
}

/// Maximum length of a user id repeated in a message, in characters.
const USER_CHARS_SHOWN: usize = 40;
