//! Deletion of conversations (`INST-5`).

use goondan_protocol::ids::{AgentName, InstanceRef};

use super::Fleet;
use super::agent_replies::pending_replies::QuestionStatus;
use super::conversation::{Conversation, DeleteReply};
use crate::refusals::deleted_error;

impl Fleet {
    /// Begins the deletion of a conversation by stopping its process. True if it has no process, so
    /// its files can be removed.
    pub(crate) fn begin_deletion(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        reply: DeleteReply,
    ) -> bool {
        self.cancel_waiters(at, &deleted_error(&at.instance_key), QuestionStatus::Lost);
        if let Some((workspace, cx)) = self.workspace_and_cx(&at.workspace_id) {
            workspace.end_approvals(cx, at, "the conversation is deleted");
        }
        // The entry blocks other operations until the instance is gone.
        let Some(entry) = self.conversation_entry(at, agent) else {
            return false;
        };
        if !entry.begin_deletion(reply) {
            return false;
        }
        let up = entry.process();
        if let Some(process) = up {
            self.kill(process, true);
        }
        let entry = self.conversation(at);
        up.is_none() && !entry.is_some_and(Conversation::is_frozen)
    }

    /// Handles the result of removing a conversation's files. Returns the recipients of the result.
    pub(crate) fn end_deletion(
        &mut self,
        at: &InstanceRef,
        is_gone: bool,
    ) -> Option<Vec<DeleteReply>> {
        let entry = self.conversation_mut(at)?;
        let replies = entry.end_deletion();
        if is_gone {
            // Also notifies the waiters of events accepted in the meantime.
            let gone = deleted_error(&at.instance_key);
            self.cancel_waiters(at, &gone, QuestionStatus::Lost);
            if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
                workspace.conversations.remove(&at.instance_key);
                workspace.parked.forget(&at.instance_key);
                workspace.bundle_problems.remove(&at.instance_key);
            }
            self.forget_questions_of(at);
        } else {
            // The remaining files are read again and the conversation continues.
            self.advance(at);
        }
        Some(replies)
    }
}
