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
use goondan_protocol::approval::{
    ApprovalClosed, ApprovalPress, ApprovalShow, ApprovalVerdict, ApprovalsFollow,
};
use goondan_protocol::ids::{ApprovalId, ConnectionName, InstanceRef};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::limits::MAX_APPROVALS_SHOWN;
use goondan_protocol::time::Timestamp;

use super::Workspace;
use super::approvals::{AuthorizedDecision, DecisionRequester};
use super::conversation::Conversation;
use crate::bus::context::Cx;
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

    /// A process begins to show approvals. It reports those that it shows already.
    fn follow(&mut self, process: ProcessId, follow: ApprovalsFollow) {
        let known = follow.known.into_iter().take(MAX_APPROVALS_SHOWN);
        *self = Self {
            process: Some(process),
            sought: known.collect(),
            ..Self::default()
        };
    }

    /// Determines the state of the approvals that the process reported as shown.
    fn settle_sought(&mut self, cx: &mut Cx, status: impl Fn(&ApprovalId) -> ApprovalStatus) {
        for approval_id in std::mem::take(&mut self.sought) {
            match status(&approval_id) {
                ApprovalStatus::Unknown => drop(self.sought.insert(approval_id)),
                ApprovalStatus::Waits => drop(self.shown.insert(approval_id)),
                ApprovalStatus::Closed(how) => self.tell_closed(cx, approval_id, how),
            }
        }
    }

    /// Shows pending approvals, longest waiting first, up to the limit.
    fn show(&mut self, cx: &mut Cx, mut waiting: Vec<(Timestamp, ApprovalShow)>) {
        let Some(process) = self.process else {
            return;
        };
        waiting.sort_by_key(|(at, _)| at.as_unix_millis());
        waiting.truncate(self.room());
        for (_, show) in waiting {
            self.shown.insert(show.approval_id.clone());
            cx.answer_connector(process, None, ToConnector::ApprovalShow(Box::new(show)));
        }
    }

    /// Updates a closed approval, if it is shown.
    fn close(&mut self, cx: &mut Cx, approval_id: &ApprovalId, how: &str) {
        if self.shown.remove(approval_id) || self.sought.remove(approval_id) {
            self.tell_closed(cx, approval_id.clone(), how.to_owned());
        }
    }

    fn tell_closed(&mut self, cx: &mut Cx, approval_id: ApprovalId, how: String) {
        self.has_room_again = true;
        if let Some(process) = self.process {
            let closed = ToConnector::ApprovalClosed(ApprovalClosed { approval_id, how });
            cx.answer_connector(process, None, closed);
        }
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

/// The approvals that chats show.
impl Workspace {
    /// True if the pending approvals of each active conversation are known.
    fn is_all_read(&self) -> bool {
        let mut entries = self.conversations.values();
        entries.all(Conversation::is_read)
    }

    /// The approval chat of a connection in the running configuration, if any.
    fn approval_chat(&self, name: &ConnectionName) -> Option<ApprovalChat> {
        let bundle = self.bundle.as_ref()?;
        bundle.connections.get(name)?.approvals()
    }

    /// Starts showing pending approvals in a connection.
    pub(crate) fn on_approvals_follow(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        process: ProcessId,
        follow: ApprovalsFollow,
    ) {
        if self.approval_chat(name).is_none() {
            return;
        }
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        connector.showing_mut().follow(process, follow);
        self.settle_sought(cx, name);
        self.show_waiting(cx, name);
    }

    /// Connections that show approvals.
    fn showing(&self) -> Vec<ConnectionName> {
        let connectors = self.connectors.iter();
        let showing = connectors.filter(|(_, it)| it.showing().process.is_some());
        showing.map(|(name, _)| name.clone()).collect()
    }

    /// Shows approvals that have become pending or were found.
    pub(super) fn show_in_chats(&mut self, cx: &mut Cx) {
        for name in self.showing() {
            self.settle_sought(cx, &name);
            self.show_waiting(cx, &name);
        }
    }

    /// Periodic work: resolves approvals that were not found, and shows more if there is room.
    pub(super) fn advance_showing(&mut self, cx: &mut Cx, name: &ConnectionName) {
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        let showing = connector.showing_mut();
        let has_room_again = std::mem::take(&mut showing.has_room_again);
        if !showing.sought.is_empty() {
            self.settle_sought(cx, name);
        }
        if has_room_again {
            self.show_waiting(cx, name);
        }
    }

    fn settle_sought(&mut self, cx: &mut Cx, name: &ConnectionName) {
        let is_all_read = self.is_all_read();
        let conversations = &self.conversations;
        let status = |id: &ApprovalId| {
            let mut entries = conversations.values();
            match entries.find_map(|entry| entry.approvals().decision_about(id)) {
                Some(None) => ApprovalStatus::Waits,
                Some(Some(how)) => ApprovalStatus::Closed(how),
                None if is_all_read => {
                    ApprovalStatus::Closed("closed: its turn has ended".to_owned())
                }
                None => ApprovalStatus::Unknown,
            }
        };
        if let Some(connector) = self.connectors.get_mut(name) {
            connector.showing_mut().settle_sought(cx, status);
        }
    }

    /// Shows pending approvals in a connection, up to its limit.
    fn show_waiting(&mut self, cx: &mut Cx, name: &ConnectionName) {
        let chat = self.approval_chat(name);
        let policy = self.approval_policy();
        let connector = self.connectors.get_mut(name);
        let Some((chat, connector)) = chat.zip(connector) else {
            return;
        };
        let showing = connector.showing_mut();
        let is_new = |it: &ApprovalId| !showing.shown.contains(it) && !showing.sought.contains(it);
        let mut waiting = Vec::new();
        for (key, entry) in &self.conversations {
            if chat.has_agent(entry.agent().as_str()) {
                let whose = (key, entry.agent());
                waiting.extend(entry.approvals().to_show(whose, policy, is_new));
            }
        }
        showing.show(cx, waiting);
    }

    /// Updates a closed approval in the connections that show it.
    pub(super) fn close_in_chats(&mut self, cx: &mut Cx, approval_id: &ApprovalId, how: &str) {
        let connectors = self.connectors.values_mut();
        for connector in connectors.filter(|it| it.showing().process.is_some()) {
            connector.showing_mut().close(cx, approval_id, how);
        }
    }

    /// Handles a button press.
    pub(crate) fn on_approval_press(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        (process, request_id): (ProcessId, Option<u64>),
        press: ApprovalPress,
    ) {
        let decider = DecisionRequester::Button {
            process,
            request_id,
        };
        match self.judge_press(name, &press) {
            Ok((at, by)) => {
                let chosen = AuthorizedDecision {
                    approval_id: press.approval_id,
                    decision: press.decision,
                    reason: None,
                    by: Some(by),
                };
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.note_decision(cx, &at, chosen, decider, None);
                }
            }
            Err(verdict) => {
                if let ApprovalVerdict::NotAllowed { message } = &verdict {
                    let event = LogEvent::warn("button pressed by a user who must not decide");
                    let event = event
                        .with("workspaceId", self.record.workspace_id.as_str())
                        .with("connection", name.as_str())
                        .with("approvalId", press.approval_id.as_str())
                        .with("problem", message.as_str());
                    cx.log(event);
                }
                cx.answer_press(process, request_id, verdict);
            }
        }
    }

    /// The conversation and the recorded user name of a valid button press, or the reason it is
    /// rejected.
    fn judge_press(
        &self,
        name: &ConnectionName,
        press: &ApprovalPress,
    ) -> Result<(InstanceRef, String), ApprovalVerdict> {
        let not_allowed = |message: String| Err(ApprovalVerdict::NotAllowed { message });
        let approval_id = &press.approval_id;
        let connection = self.bundle.as_ref();
        let connection = connection.and_then(|it| it.connections.get(name));
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
        let found = self.find_approval(approval_id);
        let (key, entry) = found.ok_or_else(|| match self.is_all_read() {
            true => ApprovalVerdict::Over {},
            false => ApprovalVerdict::NotNow {
                message: "the daemon has not read every conversation yet".to_owned(),
            },
        })?;
        if !chat.has_agent(entry.agent().as_str()) {
            return not_allowed(format!(
                "its agent is not in `approvals.agents` of Connection `{name}`"
            ));
        }
        if let Some(how) = entry.approvals().decided_or_deciding(approval_id) {
            return Err(ApprovalVerdict::DecidedBefore { how });
        }
        if entry.approvals().is_too_long_for_button(press) {
            return not_allowed(format!(
                "it is too long for a message; see it with `gdn inbox approvals {approval_id}`"
            ));
        }
        let by = format!("{}:{}", connection.connector, press.user);
        Ok((self.conversation_ref(key), by))
    }
}

impl Cx {
    /// Answers a button press.
    pub(super) fn answer_press(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        verdict: ApprovalVerdict,
    ) {
        self.answer_connector(process, request_id, ToConnector::ApprovalVerdict(verdict));
    }
}

/// Maximum length of a user id repeated in a message, in characters.
const USER_CHARS_SHOWN: usize = 40;
