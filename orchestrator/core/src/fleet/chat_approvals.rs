//! Approval of tool calls with buttons in chats (`STEER-3`).
//!
//! A configured connection shows the pending approvals and reports which user pressed which button.
//! The running configuration determines if the user is authorized, and [`super::approvals`] handles
//! the decision like a client's.
//!
//! This state is not durable: a process reports the approvals it already shows and receives the
//! others.

use std::collections::BTreeSet;

use goondan_config::ApprovalChat;
use goondan_protocol::approval::{ApprovalClosed, ApprovalPress, ApprovalVerdict, ApprovalsFollow};
use goondan_protocol::ids::{ApprovalId, ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::limits::MAX_APPROVALS_SHOWN;

use super::approvals::{AuthorizedDecision, DecisionRequester};
use super::conversation::Conversation;
use super::{Fleet, Workspace};
use crate::{LogEvent, ProcessId};

#[derive(Debug, Default)]
pub(super) struct ShownApprovals {
    /// The process that shows them, if any.
    process: Option<ProcessId>,
    /// Pending approvals that it shows.
    shown: BTreeSet<ApprovalId>,
    /// Approvals that it reports as shown and that were not found yet, because conversations are
    /// read one after the other.
    sought: BTreeSet<ApprovalId>,
    /// Set when it can show more approvals.
    has_room_again: bool,
}

impl ShownApprovals {
    fn room(&self) -> usize {
        MAX_APPROVALS_SHOWN.saturating_sub(self.shown.len() + self.sought.len())
    }
}

/// State of an approval that a connection shows.
enum ApprovalStatus {
    Waits,
    /// Closed, with this result.
    Closed(String),
    /// Some conversations have not been read.
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
    fn approval_chat(&self, id: &WorkspaceId, name: &ConnectionName) -> Option<ApprovalChat> {
        self.bundle(id)?.connections.get(name)?.approvals()
    }

    /// Starts showing pending approvals in a connection.
    pub(crate) fn on_approvals_follow(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        follow: ApprovalsFollow,
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
    }

    /// Clears the state after a connection's process exited. The next process reports the approvals
    /// it shows.
    pub(super) fn forget_shown_by(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        if let Some(connector) = self.connector_mut(id, name) {
            connector.showing = ShownApprovals::default();
        }
    }

    /// Connections of a workspace that show approvals.
    fn showing_in(&self, id: &WorkspaceId) -> Vec<ConnectionName> {
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
    }

    /// Periodic work: resolves approvals that were not found, and shows more if there is room.
    pub(super) fn pump_showing(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let has_room_again = std::mem::take(&mut connector.showing.has_room_again);
        if !connector.showing.sought.is_empty() {
            self.settle_sought(id, name);
        }
        if has_room_again {
            self.show_waiting(id, name);
        }
    }

    fn standing_of(&self, id: &WorkspaceId, approval_id: &ApprovalId) -> ApprovalStatus {
        let found = self.find_approval(id, approval_id);
        match found.and_then(|at| self.decision_about(&at, approval_id)) {
            Some(None) => ApprovalStatus::Waits,
            Some(Some(how)) => ApprovalStatus::Closed(how),
            None if self.workspaces.get(id).is_some_and(Workspace::is_all_read) => {
                ApprovalStatus::Closed("closed: its turn has ended".to_owned())
            }
            None => ApprovalStatus::Unknown,
        }
    }

    /// Determines the state of approvals that a connection reported as shown.
    fn settle_sought(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let connector = self.connector_mut(id, name);
        let sought = connector.map(|it| std::mem::take(&mut it.showing.sought));
        for approval_id in sought.into_iter().flatten() {
            let standing = self.standing_of(id, &approval_id);
            let Some(connector) = self.connector_mut(id, name) else {
                return;
            };
            match standing {
                ApprovalStatus::Unknown => drop(connector.showing.sought.insert(approval_id)),
                ApprovalStatus::Waits => drop(connector.showing.shown.insert(approval_id)),
                ApprovalStatus::Closed(how) => self.tell_closed_in(id, name, approval_id, how),
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
                let is_new =
                    |it: &ApprovalId| !showing.shown.contains(it) && !showing.sought.contains(it);
                let whose = (key, entry.agent());
                waiting.extend(entry.approvals().to_show(whose, policy, is_new));
            }
        }
        // Longest waiting first.
        waiting.sort_by_key(|(at, _)| at.as_unix_millis());
        waiting.truncate(showing.room());
        for (_, show) in waiting {
            if let Some(connector) = self.connector_mut(id, name) {
                connector.showing.shown.insert(show.approval_id.clone());
            }
            self.answer_connector(process, None, ToConnector::ApprovalShow(Box::new(show)));
        }
    }

    /// Updates a closed approval in the connections that show it.
    pub(super) fn close_in_chats(&mut self, id: &WorkspaceId, approval_id: &ApprovalId, how: &str) {
        for name in self.showing_in(id) {
            let Some(connector) = self.connector_mut(id, &name) else {
                continue;
            };
            let showing = &mut connector.showing;
            if showing.shown.remove(approval_id) || showing.sought.remove(approval_id) {
                self.tell_closed_in(id, &name, approval_id.clone(), how.to_owned());
            }
        }
    }

    fn tell_closed_in(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        approval_id: ApprovalId,
        how: String,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        connector.showing.has_room_again = true;
        if let Some(process) = connector.showing.process {
            let closed = ToConnector::ApprovalClosed(ApprovalClosed { approval_id, how });
            self.answer_connector(process, None, closed);
        }
    }

    /// Handles a button press.
    pub(crate) fn on_approval_press(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        request_id: Option<u64>,
        press: ApprovalPress,
    ) {
        let decider = DecisionRequester::Button {
            process,
            request_id,
        };
        match self.judge_press(id, name, &press) {
            Ok((at, by)) => {
                let chosen = AuthorizedDecision {
                    approval_id: press.approval_id,
                    decision: press.decision,
                    reason: None,
                    by: Some(by),
                };
                self.note_decision(&at, chosen, decider, None);
            }
            Err(verdict) => {
                if let ApprovalVerdict::NotAllowed { message } = &verdict {
                    let event = LogEvent::warn("button pressed by a user who must not decide");
                    let event = event
                        .with("workspaceId", id.as_str())
                        .with("connection", name.as_str())
                        .with("approvalId", press.approval_id.as_str())
                        .with("problem", message.as_str());
                    self.log(event);
                }
                self.answer_press(process, request_id, verdict);
            }
        }
    }

    pub(super) fn answer_press(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        verdict: ApprovalVerdict,
    ) {
        self.answer_connector(process, request_id, ToConnector::ApprovalVerdict(verdict));
    }

    /// The conversation and the recorded user name of a valid button press, or the reason it is
    /// rejected.
    fn judge_press(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
        press: &ApprovalPress,
    ) -> Result<(InstanceRef, String), ApprovalVerdict> {
        let not_allowed = |message: String| Err(ApprovalVerdict::NotAllowed { message });
        let approval_id = &press.approval_id;
        let connection = self.bundle(id).and_then(|it| it.connections.get(name));
        let asking = connection.and_then(|it| Some((it, it.approvals()?)));
        let Some((connection, chat)) = asking else {
            return not_allowed(format!("Connection `{name}` has no `approvals`"));
        };
        if !chat.has_user(&press.user) {
            let user: String = press.user.chars().take(USER_CHARS_SHOWN).collect();
            return not_allowed(format!(
                "user {user} is not in `approvals.users` of Connection `{name}`"
            ));
        }
        let at = self.find_approval(id, approval_id).ok_or_else(|| {
            match self.workspaces.get(id).is_some_and(Workspace::is_all_read) {
                true => ApprovalVerdict::Over {},
                false => ApprovalVerdict::NotNow {
                    message: "the daemon has not read every conversation yet".to_owned(),
                },
            }
        })?;
        if !self
            .agent_name(&at)
            .is_some_and(|agent| chat.has_agent(agent.as_str()))
        {
            return not_allowed(format!(
                "its agent is not in `approvals.agents` of Connection `{name}`"
            ));
        }
        if let Some(how) = self.decided_or_deciding(&at, approval_id) {
            return Err(ApprovalVerdict::DecidedBefore { how });
        }
        if self.is_too_long_for_button(&at, press) {
            return not_allowed(format!(
                "it is too long for a message; see it with `gdn inbox approvals {approval_id}`"
            ));
        }
        Ok((at, format!("{}:{}", connection.connector, press.user)))
    }
}

/// Maximum length of a user id repeated in a message, in characters.
const USER_CHARS_SHOWN: usize = 40;
