//! Approvals as clients see them.

use goondan_protocol::control::{ApprovalDetail, ListApprovals, ShowApproval};
use goondan_protocol::ids::InstanceRef;

use super::decisions::no_approval;
use crate::RequestToken;
use crate::fleet::Fleet;

impl Fleet {
    /// Lists the pending approvals for a client.
    pub(crate) fn list_approvals(&mut self, token: RequestToken, list: &ListApprovals) {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only
            && let Err(error) = self.workspace(id)
        {
            return self.cx.respond_error(token, error);
        }
        let mut places = Vec::new();
        for (id, workspace) in &self.workspaces {
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
        let page = list.page_of(infos);
        self.cx.respond(token, &page);
    }

    /// Shows one approval to a client.
    pub(crate) fn show_approval(&mut self, token: RequestToken, show: &ShowApproval) {
        let id = &show.approval_id;
        let shown = self.workspace(&show.workspace_id).and_then(|workspace| {
            let waiting = workspace.conversations.iter().find_map(|(key, entry)| {
                let open = entry.approvals().get(id).filter(|open| open.waits())?;
                let at = InstanceRef {
                    workspace_id: show.workspace_id.clone(),
                    instance_key: key.clone(),
                };
                Some(ApprovalDetail {
                    approval: open.info(&at, entry.agent(), workspace.approval_policy()),
                    input: open.known.call.input.clone(),
                })
            });
            waiting.ok_or_else(|| no_approval(id))
        });
        match shown {
            Ok(detail) => self.cx.respond(token, &detail),
            Err(error) => self.cx.respond_error(token, error),
        }
    }
}
