//! Conversations on their way out (`INST-5`).

use goondan_protocol::ids::{AgentName, InstanceRef};

use super::Fleet;
use super::answers::waiting::QuestionStatus;
use super::instance::DeleteReply;
use crate::refusals::deleted_error;

impl Fleet {
    /// A conversation is to be deleted: its process ends. Whether it has none, so that its files may go.
    pub(crate) fn begin_deletion(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        reply: DeleteReply,
    ) -> bool {
        self.cancel_waiters(at, &deleted_error(&at.instance_key), QuestionStatus::Lost);
        self.end_approvals(at, "the conversation is deleted");
        // The entry keeps others away until the instance is gone.
        let Some(entry) = self.instance_entry(at, agent) else {
            return false;
        };
        if let Some(replies) = &mut entry.deleting {
            replies.push(reply);
            return false;
        }
        entry.deleting = Some(vec![reply]);
        entry.inbox.clear();
        let up = entry.slot.up().map(|up| up.process);
        if let Some(process) = up {
            self.kill(process, true);
        }
        let is_held = self.is_held(at);
        up.is_none() && !is_held
    }

    /// The files of a conversation are gone, or could not be removed. Who is told.
    pub(crate) fn end_deletion(
        &mut self,
        at: &InstanceRef,
        is_gone: bool,
    ) -> Option<Vec<DeleteReply>> {
        let entry = self.instance_mut(at)?;
        let replies = entry.deleting.take().unwrap_or_default();
        if is_gone {
            // Whoever asked something that was accepted on the way hears of it, too.
            let gone = deleted_error(&at.instance_key);
            self.cancel_waiters(at, &gone, QuestionStatus::Lost);
            if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
                workspace.instances.remove(&at.instance_key);
                workspace.parked.remove(&at.instance_key);
                workspace.bundle_problems.remove(&at.instance_key);
            }
            self.forget_questions_of(at);
        } else {
            // What is still there is found out, and goes on.
            entry.inbox.invalidate();
            self.pump(at);
        }
        Some(replies)
    }
}
