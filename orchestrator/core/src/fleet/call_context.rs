//! Runtime state that outgoing calls can read.

use goondan_config::ProjectConfig;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{AgentName, InstanceRef, TurnId, WorkspaceId};
use serde_json::value::RawValue;

use super::Fleet;
use super::conversation::Conversation;
use super::conversation::process_messages::log_llm;
use super::turn::ActiveTurn;
use crate::ClockTime;

impl Fleet {
    pub(crate) fn now(&self) -> ClockTime {
        self.cx.now()
    }

    /// The running configuration of a workspace, if any.
    pub(crate) fn bundle(&self, id: &WorkspaceId) -> Option<&ProjectConfig> {
        self.workspaces.get(id)?.bundle.as_ref()
    }

    /// An active conversation.
    pub(crate) fn conversation(&self, at: &InstanceRef) -> Option<&Conversation> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        workspace.conversations.get(&at.instance_key)
    }

    /// The turn in progress of a conversation.
    pub(crate) fn turn_of(&self, at: &InstanceRef) -> Option<&ActiveTurn> {
        self.conversation(at)?.turn()
    }

    /// The agent of a conversation as its process was started, and its turn in progress.
    pub(crate) fn agent_in_turn(
        &self,
        at: &InstanceRef,
    ) -> Option<(&AgentDefinition, &ActiveTurn)> {
        let entry = self.conversation(at)?;
        Some((entry.definition()?, entry.turn()?))
    }

    /// The agent of an active conversation.
    pub(crate) fn agent_name(&self, at: &InstanceRef) -> Option<&AgentName> {
        Some(self.conversation(at)?.agent())
    }

    /// Counts a reply of the turn in progress toward the turn's append limit.
    pub(crate) fn note_reply(&mut self, at: &InstanceRef, turn_id: &TurnId, event: &RawValue) {
        if let Some(turn) = self.current_turn_mut(at, turn_id) {
            turn.used.append(event.get().len());
        }
        log_llm(&mut self.cx, at, turn_id, event);
    }

    /// Reason the users of a workspace can no longer be asked; `None` if they can.
    pub(crate) fn why_nobody_is_asked(&self, id: &WorkspaceId) -> Option<&'static str> {
        let workspace = self.workspaces.get(id);
        if self.is_stopping() {
            Some("the daemon is stopping")
        } else if workspace.is_none_or(|it| it.is_ending(&self.cx)) {
            Some("the workspace is being stopped")
        } else {
            None
        }
    }
}
