//! Deletion of conversations (`INST-5`).

use goondan_protocol::ids::{AgentName, InstanceRef};

use super::Workspace;
use super::agent_replies::pending_replies::QuestionStatus;
use super::conversation::DeleteReply;
use crate::bus::context::Cx;
use crate::refusals::deleted_error;

impl Workspace {
    /// Begins the deletion of a conversation by stopping its process. True if it has no process, so
    /// its files can be removed.
    pub(crate) fn begin_deletion(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        reply: DeleteReply,
    ) -> bool {
        let gone = deleted_error(&at.instance_key);
        self.cancel_waiters(cx, at, &gone, QuestionStatus::Lost);
        self.end_approvals(cx, at, "the conversation is deleted");
        // The entry blocks other operations until the instance is gone.
        let Some(entry) = self.conversation_entry(cx, at, agent) else {
            return false;
        };
        if !entry.begin_deletion(reply) {
            return false;
        }
        let up = entry.process();
        if let Some(process) = up {
            entry.kill(cx, process, true);
        }
        up.is_none() && !entry.is_frozen()
    }

    /// Handles the result of removing a conversation's files. Returns the recipients of the result.
    pub(crate) fn end_deletion(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        is_gone: bool,
    ) -> Option<Vec<DeleteReply>> {
        let entry = self.conversations.get_mut(&at.instance_key)?;
        let replies = entry.end_deletion();
        if is_gone {
            // Also notifies the waiters of events accepted in the meantime.
            let gone = deleted_error(&at.instance_key);
            self.cancel_waiters(cx, at, &gone, QuestionStatus::Lost);
            self.conversations.remove(&at.instance_key);
            self.parked.forget(&at.instance_key);
            self.bundle_problems.remove(&at.instance_key);
            self.standing.forget(&at.instance_key);
            self.forget_questions_of(at);
        } else {
            // The remaining files are read again and the conversation continues.
            self.advance(cx, at);
        }
        Some(replies)
    }
}
