//! Approvals as clients see them.

use goondan_protocol::control::{
    ApprovalDetail, ApprovalsPage, ControlError, ListApprovals, ShowApproval,
};
use goondan_protocol::ids::InstanceRef;

use super::decisions::no_approval;
use crate::fleet::views::View;

impl View<'_> {
    /// Lists the pending approvals for a client.
    pub(crate) fn list_approvals(
        self,
        list: &ListApprovals,
    ) -> Result<ApprovalsPage, ControlError> {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only {
            self.workspace(id)?;
        }
        let mut places = Vec::new();
        for (id, workspace) in self.workspaces {
            if only.is_some_and(|only| only != id) {
                continue;
            }
            for (key, entry) in &workspace.conversations {
                if list.instance_key.as_ref().is_some_and(|only| only != key) {
                    continue;
                }
                let waiting = entry.approvals().0.iter().filter(|open| open.waits());
                let policy = workspace.approval_policy();
                places.extend(waiting.map(|open| (open.place(id), key, entry, open, policy)));
            }
        }
        if let Some(after) = &list.after {
            places.retain(|(place, ..)| after < place);
        }
        places.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let infos = places.into_iter().map(|(place, key, entry, open, policy)| {
            let at = InstanceRef {
                workspace_id: place.workspace_id,
                instance_key: key.clone(),
            };
            open.info(&at, entry.agent(), policy)
        });
        Ok(list.page_of(infos))
    }

    /// Shows one approval to a client.
    pub(crate) fn show_approval(self, show: &ShowApproval) -> Result<ApprovalDetail, ControlError> {
        let id = &show.approval_id;
        let workspace = self.workspace(&show.workspace_id)?;
        let found = workspace.find_approval(id);
        let waiting = found.and_then(|(key, entry)| {
            let open = entry.approvals().get(id).filter(|open| open.waits())?;
            let at = workspace.conversation_ref(key);
            Some(ApprovalDetail {
                approval: open.info(&at, entry.agent(), workspace.approval_policy()),
                input: open.known.call.input.clone(),
                schema: open.known.call.schema.clone(),
            })
        });
        waiting.ok_or_else(|| no_approval(id))
    }
}
