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

use goondan_config::{ApprovalChat, DecisionClass, DecisionKind};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionClosed, DecisionPress, DecisionShow, DecisionSubject,
    DecisionVerdict, DecisionsFollow,
};
use goondan_protocol::ids::{ApprovalId, ConnectionName, DecisionId, InstanceKey, InstanceRef};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::limits::MAX_DECISIONS_SHOWN;
use goondan_protocol::time::Timestamp;

use super::Workspace;
use super::approvals::{AuthorizedDecision, CONSENT_IN_PROGRESS, DecisionRequester};
use super::conversation::Conversation;
use crate::bus::context::Cx;
use crate::bus::queue::{Message, Notice};
use crate::exchange::ChildRequest;
use crate::limits::DECISION_LOOK_MS;
use crate::{LogEvent, ProcessId};

/// Decisions that the process of a connection shows.
#[derive(Debug, Default)]
pub(super) struct ShownDecisions {
    /// The process that shows them, if any.
    process: Option<ProcessId>,
    /// Pending tool calls that it shows.
    calls: BTreeSet<DecisionId>,
    /// Pending decisions of other kinds that it shows.
    others: BTreeSet<DecisionId>,
    /// Decisions that it reports as shown and that were not found yet, because conversations and
    /// tasks are read one after the other.
    sought: BTreeSet<DecisionId>,
    /// Set when it can show more decisions.
    has_room_again: bool,
    /// Next time, on the monotonic clock, to look for decisions that have become due.
    look_at_ms: u64,
}

impl ShownDecisions {
    fn room(&self) -> usize {
        let shown = self.calls.len() + self.others.len() + self.sought.len();
        MAX_DECISIONS_SHOWN.saturating_sub(shown)
    }

    /// True if a process shows decisions.
    fn is_followed(&self) -> bool {
        self.process.is_some()
    }

    /// Decisions of other kinds than calls that it shows or may show.
    fn others(&self) -> impl Iterator<Item = &DecisionId> {
        self.others.iter().chain(&self.sought)
    }

    fn has(&self, id: &DecisionId) -> bool {
        let mut sets = [&self.calls, &self.others, &self.sought].into_iter();
        sets.any(|set| set.contains(id))
    }

    /// Handles a process that starts to show decisions, and reports decisions it shows already.
    fn follow(&mut self, process: ProcessId, follow: DecisionsFollow) {
        let known = follow.known.into_iter().take(MAX_DECISIONS_SHOWN);
        *self = Self {
            process: Some(process),
            sought: known.collect(),
            ..Self::default()
        };
    }

    /// Determines the state of the approvals that the process reported as shown.
    /// Returns those that wait.
    fn settle_sought(
        &mut self,
        cx: &mut Cx,
        status: impl Fn(&ApprovalId) -> ApprovalStatus,
    ) -> Vec<ApprovalId> {
        let mut waiting = Vec::new();
        for decision_id in std::mem::take(&mut self.sought) {
            match status(&decision_id.to_approval()) {
                ApprovalStatus::Unknown => drop(self.sought.insert(decision_id)),
                ApprovalStatus::Waits => {
                    waiting.push(decision_id.to_approval());
                    self.calls.insert(decision_id);
                }
                ApprovalStatus::Closed(how) => self.tell_closed(cx, decision_id, how),
            }
        }
        waiting
    }

    /// Shows pending approvals, longest waiting first, up to the limit.
    fn show(&mut self, cx: &mut Cx, mut waiting: Vec<(Timestamp, DecisionShow)>) {
        let Some(process) = self.process else {
            return;
        };
        waiting.sort_by_key(|(at, _)| at.as_unix_millis());
        waiting.truncate(self.room());
        for (_, show) in waiting {
            self.calls.insert(show.decision_id.clone());
            cx.tell_connector(process, ToConnector::DecisionShow(Box::new(show)));
        }
    }

    /// Shows a pending decision of another kind, unless it is shown or not due, or the list is full.
    fn show_other(&mut self, cx: &mut Cx, show: DecisionShow, is_due: bool) {
        if self.sought.remove(&show.decision_id) {
            self.others.insert(show.decision_id);
            return;
        }
        let Some(process) = self.process else {
            return;
        };
        if !is_due || self.has(&show.decision_id) || self.room() == 0 {
            return;
        }
        self.others.insert(show.decision_id.clone());
        cx.tell_connector(process, ToConnector::DecisionShow(Box::new(show)));
    }

    /// Updates a call that is shown, because one of two people approved it.
    fn update(&self, cx: &mut Cx, show: DecisionShow) {
        if let Some(process) = self.process
            && self.calls.contains(&show.decision_id)
        {
            cx.tell_connector(process, ToConnector::DecisionShow(Box::new(show)));
        }
    }

    /// Updates a closed decision, if it is shown.
    fn close(&mut self, cx: &mut Cx, decision_id: DecisionId, how: String) {
        let mut sets = [&mut self.calls, &mut self.others, &mut self.sought];
        let is_shown = sets.iter_mut().any(|set| set.remove(&decision_id));
        if is_shown {
            self.tell_closed(cx, decision_id, how);
        }
    }

    fn tell_closed(&mut self, cx: &mut Cx, decision_id: DecisionId, how: String) {
        self.has_room_again = true;
        if let Some(process) = self.process {
            let closed = ToConnector::DecisionClosed(DecisionClosed { decision_id, how });
            cx.tell_connector(process, closed);
        }
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

/// The decisions that chats show.
impl Workspace {
    /// True if the pending approvals of each active conversation are known.
    pub(crate) fn has_all_approvals(&self) -> bool {
        let mut entries = self.conversations.values();
        entries.all(Conversation::is_read)
    }

    /// The approval chat of a connection in the running configuration, if any.
    pub(crate) fn approval_chat(&self, name: &ConnectionName) -> Option<ApprovalChat> {
        let bundle = self.bundle.as_ref()?;
        bundle.connections.get(name)?.approvals()
    }

    /// Starts showing pending decisions in a connection.
    pub(crate) fn on_decisions_follow(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        process: ProcessId,
        follow: DecisionsFollow,
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
        self.note_decisions(cx);
    }

    /// Shows and closes the decisions of other kinds again, because one may have changed.
    fn note_decisions(&self, cx: &mut Cx) {
        if !self.showing().is_empty() {
            let id = self.record.workspace_id.clone();
            cx.send(Message::Notice(Notice::Decisions(id)));
        }
    }

    /// Connections that show decisions.
    pub(crate) fn showing(&self) -> Vec<ConnectionName> {
        let connectors = self.connectors.iter();
        let showing = connectors.filter(|(_, it)| it.showing().is_followed());
        showing.map(|(name, _)| name.clone()).collect()
    }

    /// Shows approvals that have become pending or were found.
    pub(super) fn show_in_chats(&mut self, cx: &mut Cx) {
        for name in self.showing() {
            self.settle_sought(cx, &name);
            self.show_waiting(cx, &name);
        }
        self.note_decisions(cx);
    }

    /// Periodic work: resolves approvals that were not found, and shows more if there is room or
    /// more are due.
    pub(super) fn advance_showing(&mut self, cx: &mut Cx, name: &ConnectionName) {
        let is_look_due = self.is_look_due(cx, name);
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        let showing = connector.showing_mut();
        let has_room_again = std::mem::take(&mut showing.has_room_again);
        let is_seeking = !showing.sought.is_empty();
        if is_seeking {
            self.settle_sought(cx, name);
        }
        if has_room_again || is_look_due {
            self.show_waiting(cx, name);
        }
        if is_seeking || has_room_again || is_look_due {
            self.note_decisions(cx);
        }
    }

    /// True if decisions may have become due for a connection that shows some later than others.
    fn is_look_due(&mut self, cx: &Cx, name: &ConnectionName) -> bool {
        let now_ms = cx.now().mono_ms;
        let Some(connector) = self.connectors.get_mut(name) else {
            return false;
        };
        let showing = connector.showing_mut();
        if !showing.is_followed() || now_ms < showing.look_at_ms {
            return false;
        }
        showing.look_at_ms = now_ms.saturating_add(DECISION_LOOK_MS);
        let chat = self.approval_chat(name);
        chat.is_some_and(|chat| chat.has_times())
    }

    fn settle_sought(&mut self, cx: &mut Cx, name: &ConnectionName) {
        let conversations = &self.conversations;
        let status = |id: &ApprovalId| {
            let mut entries = conversations.values();
            match entries.find_map(|entry| entry.approvals().decision_about(id)) {
                Some(None) => ApprovalStatus::Waits,
                Some(Some(how)) => ApprovalStatus::Closed(how),
                None => ApprovalStatus::Unknown,
            }
        };
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        let waiting = connector.showing_mut().settle_sought(cx, status);
        // The daemon may have ended between the first approval and the update of the message.
        for id in waiting {
            if let Some((key, _)) = self.find_approval(&id) {
                let at = self.conversation_ref(key);
                self.show_first_approval(cx, &at, &id);
            }
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
        let is_new = |it: &ApprovalId| !showing.has(&it.into());
        let mut waiting = Vec::new();
        let now = cx.now().wall;
        for (key, entry) in &self.conversations {
            let whose = (key, entry.agent());
            let shows = entry.approvals().to_show(whose, policy, is_new);
            waiting.extend(shows.filter(|(since, show)| {
                let is_asked = chat.refusal(DecisionClass::of(&show.about)).is_none();
                is_asked && chat.is_due(*since, now)
            }));
        }
        showing.show(cx, waiting);
    }

    /// Decisions of other kinds that a connection shows or may show.
    pub(crate) fn other_decisions_shown(&self, name: &ConnectionName) -> Vec<DecisionId> {
        let Some(connector) = self.connectors.get(name) else {
            return Vec::new();
        };
        connector.showing().others().cloned().collect()
    }

    /// Shows a pending decision of another kind in a connection, unless it is shown or not due, or the
    /// list of the connection is full.
    pub(crate) fn show_decision(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        show: DecisionShow,
        is_due: bool,
    ) {
        if let Some(connector) = self.connectors.get_mut(name) {
            connector.showing_mut().show_other(cx, show, is_due);
        }
    }

    /// Updates a decision that is no longer pending in a connection, if it is shown there.
    pub(crate) fn close_decision(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        decision_id: DecisionId,
        how: String,
    ) {
        if let Some(connector) = self.connectors.get_mut(name) {
            connector.showing_mut().close(cx, decision_id, how);
        }
    }

    /// Updates a closed approval in the connections that show it.
    pub(super) fn close_in_chats(&mut self, cx: &mut Cx, approval_id: &ApprovalId, how: &str) {
        for name in self.showing() {
            self.close_decision(cx, &name, approval_id.into(), how.to_owned());
        }
    }

    /// Updates a call in the connections that show it, because one of two people approved it.
    pub(super) fn show_first_approval(&self, cx: &mut Cx, at: &InstanceRef, id: &ApprovalId) {
        let policy = self.approval_policy();
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return;
        };
        let whose = (&at.instance_key, entry.agent());
        let shows = entry.approvals().to_show(whose, policy, |it| it == id);
        let shows = shows.filter(|(_, show)| is_approved_by_one(show));
        for (_, show) in shows {
            for connector in self.connectors.values() {
                connector.showing().update(cx, show.clone());
            }
        }
    }

    /// Handles a button press about a call of a conversation, by an authorized user.
    pub(crate) fn on_approval_press(
        &mut self,
        cx: &mut Cx,
        key: &InstanceKey,
        (chat, by): (&ApprovalChat, String),
        request: ChildRequest,
        press: &DecisionPress,
    ) -> Result<(), DecisionVerdict> {
        let at = self.conversation_ref(key);
        let Some(entry) = self.conversations.get_mut(key) else {
            return Err(DecisionVerdict::Over {});
        };
        let decision = entry.judge_press(chat, &by, press)?;
        let decider = DecisionRequester::Button(request);
        let chosen = AuthorizedDecision {
            approval_id: press.decision_id.to_approval(),
            decision,
            input: None,
            reason: None,
            by: Some(by),
        };
        entry.note_decision(cx, &at, chosen, decider, None);
        Ok(())
    }

    /// Reports a press that an unauthorized user made, or that does not fit.
    pub(crate) fn log_refused_press(
        &self,
        cx: &mut Cx,
        name: &ConnectionName,
        decision_id: &DecisionId,
        problem: &str,
    ) {
        let event = LogEvent::warn("decision of a user in a chat refused");
        let event = event
            .with("workspaceId", self.record.workspace_id.as_str())
            .with("connection", name.as_str())
            .with("decisionId", decision_id.as_str())
            .with("problem", problem);
        cx.log(event);
    }

    /// The chat of a connection and the recorded name of a user who may decide there, or the reason
    /// for a refusal.
    pub(crate) fn decider_of(
        &self,
        name: &ConnectionName,
        user: &str,
    ) -> Result<(ApprovalChat, String), DecisionVerdict> {
        let not_allowed = |message: String| Err(DecisionVerdict::NotAllowed { message });
        let connection = self.bundle.as_ref();
        let connection = connection.and_then(|it| it.connections.get(name));
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
}

impl Conversation {
    /// The decision of a valid button press about a call, or the reason it is rejected.
    fn judge_press(
        &self,
        chat: &ApprovalChat,
        by: &str,
        press: &DecisionPress,
    ) -> Result<ApprovalDecision, DecisionVerdict> {
        let not_allowed = |message: String| Err(DecisionVerdict::NotAllowed { message });
        let approval_id = press.decision_id.to_approval();
        let approvals = self.approvals();
        let class = DecisionClass {
            agent: Some(self.agent()),
            kind: DecisionKind::Call(approvals.tool_of(&approval_id).unwrap_or_default()),
        };
        if let Some(reason) = chat.refusal(class) {
            return not_allowed(reason.to_owned());
        }
        if approvals.is_consenting(&approval_id) {
            let message = CONSENT_IN_PROGRESS.to_owned();
            return Err(DecisionVerdict::NotNow { message });
        }
        if let Some(how) = approvals.decided_or_deciding(&approval_id) {
            return Err(DecisionVerdict::DecidedBefore { how });
        }
        match press.answer {
            DecisionAnswer::Button(DecisionButton::Deny) => Ok(ApprovalDecision::Denied),
            DecisionAnswer::Button(DecisionButton::Approve)
                if approvals.is_too_long_for_button(&approval_id) =>
            {
                not_allowed(format!(
                    "it is too long for a message; see it with `gdn inbox approvals {approval_id}`"
                ))
            }
            DecisionAnswer::Button(DecisionButton::Approve)
                if approvals.has_consented(&approval_id, by) =>
            {
                not_allowed(
                    "you approved it already (1 of 2), and another person must approve it, too"
                        .to_owned(),
                )
            }
            DecisionAnswer::Button(DecisionButton::Approve) => Ok(ApprovalDecision::Approved),
            DecisionAnswer::Button(DecisionButton::Option(_)) | DecisionAnswer::Text(_) => {
                not_allowed("a call is approved or denied with its buttons".to_owned())
            }
        }
    }
}

impl Cx {
    /// Answers a button press or a reply in a chat.
    pub(crate) fn answer_press(&mut self, press: ChildRequest, verdict: DecisionVerdict) {
        self.answer_connector(press, ToConnector::DecisionVerdict(verdict));
    }
}

/// True if one of the two people that a call needs approved it.
fn is_approved_by_one(show: &DecisionShow) -> bool {
    matches!(
        &show.about,
        DecisionSubject::Call {
            first_approval: Some(_),
            ..
        }
    )
}

/// Maximum length of a user id repeated in a message, in characters.
const USER_CHARS_SHOWN: usize = 40;
