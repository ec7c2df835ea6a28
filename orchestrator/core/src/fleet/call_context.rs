//! Runtime state that outgoing calls can read.

use goondan_config::ProjectConfig;
use goondan_protocol::call::CallTarget;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, TurnId, WorkspaceId};
use serde_json::value::RawValue;

use super::Fleet;
use super::availability::Availability;
use super::conversation::Conversation;
use super::conversation::process_messages::log_llm;
use super::turn::ActiveTurn;
use crate::{ClockTime, RequestToken};

impl Fleet {
    pub(crate) fn now(&self) -> ClockTime {
        self.cx.now()
    }

    /// The running configuration of a workspace, if any.
    pub(crate) fn bundle(&self, id: &WorkspaceId) -> Option<&ProjectConfig> {
        self.workspaces.get(id)?.bundle.as_ref()
    }

    pub(super) fn conversation(&self, at: &InstanceRef) -> Option<&Conversation> {
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

    /// Number of unfinished events of an active conversation, without parked ones.
    pub(crate) fn pending_events(&self, at: &InstanceRef) -> Option<usize> {
        Some(self.conversation(at)?.pending())
    }

    /// The other conversations that requested a conversation's turn in progress.
    pub(crate) fn asked_by(&self, at: &InstanceRef) -> Vec<InstanceKey> {
        let entry = self.conversation(at);
        entry.map_or_else(Vec::new, |entry| entry.asked_by(&at.instance_key))
    }

    /// The clients that wait for a turn in progress, and the followers of its conversation.
    pub(crate) fn clients_of_turn(&self, at: &InstanceRef, turn_id: &TurnId) -> Vec<RequestToken> {
        let Some(entry) = self.conversation(at) else {
            return Vec::new();
        };
        let turn = entry.turn();
        let Some(turn) = turn.filter(|turn| turn.turn_id == *turn_id) else {
            return Vec::new();
        };
        let mut clients = entry.waiters().clients_of(&turn.context.event_id);
        clients.extend(self.cx.audience().followers_of(at));
        clients
    }

    /// Availability of the process for a call.
    pub(crate) fn availability(&self, id: &WorkspaceId, target: &CallTarget) -> Availability {
        match target {
            CallTarget::Model { name } => self.model_availability(id, name),
            CallTarget::Connection { name } => self.connection_availability(id, name),
        }
    }

    /// True if a process for this target runs, in the configuration or removed from it.
    pub(crate) fn runs_provider(&self, id: &WorkspaceId, target: &CallTarget) -> bool {
        let slot = self.workspaces.get(id).and_then(|workspace| match target {
            CallTarget::Model { name } => workspace.models.get(name).map(|it| &it.slot),
            CallTarget::Connection { name } => workspace.connectors.get(name).map(|it| &it.slot),
        });
        slot.is_some_and(|slot| slot.up().is_some())
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
        if self.is_stopping() {
            Some("the daemon is stopping")
        } else if self.is_ending(id) {
            Some("the workspace is being stopped")
        } else {
            None
        }
    }
}
