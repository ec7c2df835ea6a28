//! Standing approvals: stores them, decides the calls that they cover, and revokes them.
//!
//! The audit record comes first. If the daemon ends before the decision about the call is recorded,
//! the next process asks again, and the standing approval decides.

use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{
    ControlError, ErrorCode, ListStandingApprovals, RevokeStandingApproval, StandingApprovalInfo,
    StandingApprovalRevoked, StandingApprovalsPage,
};
use goondan_protocol::ids::{ApprovalId, InstanceKey, InstanceRef};
use goondan_protocol::limits::{MAX_STANDING_APPROVAL_INPUT_BYTES, MAX_STANDING_APPROVALS};
use goondan_store::StoreError;
use goondan_store::instance::ApprovalRequest;
use goondan_store::writer::operation::Audit;
use serde_json::json;

use super::decisions::{AuthorizedDecision, DecisionRequester, no_approval, standing_decider};
use crate::bus::context::Cx;
use crate::fleet::Workspace;
use crate::fleet::views::View;
use crate::jobs::continuation;
use crate::refusals::control_error;
use crate::standing_approvals::{
    STANDING_CREATED, STANDING_REVOKED, StandingApproval, StandingApprovals, digest_of,
};
use crate::{Peer, RequestToken};

continuation! {
    /// Records a standing approval in the audit log, before the decision about its call.
    CreatingStanding {
        client: (RequestToken, Option<u32>),
        chosen: AuthorizedDecision,
        standing: StandingApproval,
    } after Audit => workspace.on_standing_recorded
}

continuation! {
    /// Records in the audit log that a standing approval was revoked.
    RevokingStanding { token: RequestToken, approval_id: ApprovalId, standing: StandingApprovalInfo }
        after Audit => workspace.on_standing_revoked
}

fn no_standing(id: &ApprovalId) -> ControlError {
    let text = format!("no standing approval `{id}` exists");
    ControlError::new(ErrorCode::ApprovalNotFound, text)
        .suggest("list standing approvals: `gdn inbox standing`")
}

impl Workspace {
    /// Sets the standing approvals of a workspace that was opened.
    pub(crate) fn take_up_standing(&mut self, standing: StandingApprovals) {
        self.standing = standing;
    }

    /// The standing approval that covers a call of a conversation. A call that may have begun needs a
    /// person, because it would be executed a second time. A call that two people must approve is
    /// never covered, because one person makes a standing approval.
    pub(super) fn standing_for(
        &self,
        key: &InstanceKey,
        call: &ApprovalRequest,
    ) -> Option<&ApprovalId> {
        if call.may_have_begun || call.needs_two {
            return None;
        }
        let agent = self.conversations.get(key)?.agent();
        let (tool_name, input) = (call.tool_name.as_str(), &call.input);
        self.standing.covering((key, agent), (tool_name, input))
    }

    /// Approves an undecided call that a standing approval covers. True if there is one.
    pub(super) fn approve_if_standing(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        id: &ApprovalId,
    ) -> bool {
        let entry = self.conversations.get(&at.instance_key);
        let open = entry.and_then(|entry| entry.approvals().get(id));
        let open = open.filter(|open| open.is_undecided());
        let standing = open.and_then(|open| self.standing_for(&at.instance_key, &open.known.call));
        let Some(by) = standing.map(standing_decider) else {
            return false;
        };
        let chosen = AuthorizedDecision {
            approval_id: id.clone(),
            decision: ApprovalDecision::Approved,
            input: None,
            reason: None,
            by: Some(by),
        };
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.note_decision(cx, at, chosen, DecisionRequester::Standing, None);
        }
        true
    }

    /// Approves every waiting call that a standing approval covers.
    pub(super) fn approve_all_standing(&mut self, cx: &mut Cx) {
        let mut waiting = Vec::new();
        for (key, entry) in &self.conversations {
            let ids = entry.approvals().waiting().cloned();
            waiting.extend(ids.map(|id| (self.conversation_ref(key), id)));
        }
        for (at, id) in waiting {
            self.approve_if_standing(cx, &at, &id);
        }
    }

    /// Records a standing approval for a call that waits, and then decides the call.
    pub(super) fn begin_standing(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        client: (RequestToken, Option<u32>),
        chosen: AuthorizedDecision,
        scope: ApprovalScope,
    ) -> Result<(), ControlError> {
        let refused = |text: String, hint: &str| {
            Err(ControlError::new(ErrorCode::InvalidRequest, text).suggest(hint.to_owned()))
        };
        let id = &chosen.approval_id;
        if !self.standing.has_room() {
            let text =
                format!("the workspace already has {MAX_STANDING_APPROVALS} standing approvals");
            return refused(text, "revoke another one first: `gdn inbox revoke ID`");
        }
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return Err(no_approval(id));
        };
        let agent_name = entry.agent().clone();
        let Some(open) = entry.approvals_mut().get_mut(id) else {
            return Err(no_approval(id));
        };
        let call = &open.known.call;
        let bytes = call.input.to_string().len();
        if bytes > MAX_STANDING_APPROVAL_INPUT_BYTES {
            let text = format!(
                "the arguments have {bytes} bytes; a standing approval covers at most \
                 {MAX_STANDING_APPROVAL_INPUT_BYTES}"
            );
            return refused(text, "approve the call once");
        }
        let standing = StandingApproval {
            at: cx.now().wall,
            instance_key: at.instance_key.clone(),
            agent_name,
            tool_name: call.tool_name.clone(),
            input: call.input.clone(),
            input_digest: digest_of(&call.input),
            scope,
        };
        // Other decisions wait for the audit record.
        open.is_deciding = true;
        let details = json!({
            "approvalId": id, "agentName": standing.agent_name,
            "toolName": standing.tool_name, "input": standing.input,
            "inputDigest": standing.input_digest, "scope": scope, "clientPid": client.1,
        });
        let agent = Some(&standing.agent_name);
        let record = cx.audit_record(at, agent, STANDING_CREATED, details);
        let then = CreatingStanding {
            instance: at.clone(),
            client,
            chosen,
            standing,
        };
        cx.store(record, then);
        Ok(())
    }

    /// Handles the result of recording a standing approval.
    pub(in crate::fleet) fn on_standing_recorded(
        &mut self,
        cx: &mut Cx,
        creating: CreatingStanding,
        result: Result<(), StoreError>,
    ) {
        let CreatingStanding {
            instance: at,
            client: (token, pid),
            chosen,
            standing,
        } = creating;
        let id = chosen.approval_id.clone();
        let scope = standing.scope;
        if result.is_ok() {
            self.standing.add(id.clone(), standing.clone());
        }
        let decider = DecisionRequester::StandingClient(token, scope);
        let entry = self.conversations.get_mut(&at.instance_key);
        let entry = entry.filter(|entry| entry.approvals().get(&id).is_some());
        match (result, entry) {
            (Ok(()), Some(entry)) => entry.note_decision(cx, &at, chosen, decider, pid),
            (Ok(()), None) => {
                self.drop_standing_of(cx, &at, &id, decider);
                cx.respond_error(token, no_approval(&id));
            }
            (Err(error), entry) => {
                // The file may contain the record despite the error.
                let details = json!({ "approvalId": id, "toolName": standing.tool_name });
                cx.audit(&at, Some(&standing.agent_name), STANDING_REVOKED, details);
                let open = entry.and_then(|entry| entry.approvals_mut().get_mut(&id));
                if let Some(open) = open {
                    open.is_deciding = false;
                }
                cx.respond_error(token, control_error(&error));
            }
        }
    }

    /// Revokes the standing approval of a decision that failed.
    pub(super) fn drop_standing_of(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        id: &ApprovalId,
        decider: DecisionRequester,
    ) {
        if !matches!(decider, DecisionRequester::StandingClient(..)) {
            return;
        }
        if let Some(standing) = self.standing.remove(id) {
            let agent = Some(&standing.agent_name);
            let details = json!({ "approvalId": id, "toolName": standing.tool_name });
            cx.audit(at, agent, STANDING_REVOKED, details);
        }
    }

    /// Revokes a standing approval for a client.
    pub(crate) fn revoke_standing(
        &mut self,
        cx: &mut Cx,
        token: RequestToken,
        peer: Peer,
        revoke: RevokeStandingApproval,
    ) -> Result<(), ControlError> {
        let RevokeStandingApproval {
            workspace_id,
            approval_id: id,
        } = revoke;
        let Some(standing) = self.standing.get(&id) else {
            return Err(no_standing(&id));
        };
        let at = InstanceRef {
            workspace_id,
            instance_key: standing.instance_key.clone(),
        };
        let info = standing.info(&at.workspace_id, &id);
        let details = json!({
            "approvalId": id, "toolName": standing.tool_name, "clientPid": peer.pid,
        });
        let agent = Some(&standing.agent_name);
        let record = cx.audit_record(&at, agent, STANDING_REVOKED, details);
        let then = RevokingStanding {
            instance: at,
            token,
            approval_id: id,
            standing: info,
        };
        cx.store(record, then);
        Ok(())
    }

    /// Handles the result of recording a revocation.
    pub(in crate::fleet) fn on_standing_revoked(
        &mut self,
        cx: &mut Cx,
        revoking: RevokingStanding,
        result: Result<(), StoreError>,
    ) {
        let RevokingStanding {
            token,
            approval_id,
            standing,
            ..
        } = revoking;
        match result {
            Ok(()) => {
                // If two clients revoke it at once, both get the same response.
                self.standing.remove(&approval_id);
                cx.respond(token, &StandingApprovalRevoked { standing });
            }
            Err(error) => cx.respond_error(token, control_error(&error)),
        }
    }
}

impl View<'_> {
    /// Lists the standing approvals for a client.
    pub(crate) fn list_standing(
        self,
        list: &ListStandingApprovals,
    ) -> Result<StandingApprovalsPage, ControlError> {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only {
            self.workspace(id)?;
        }
        let workspaces = self.workspaces.iter();
        let workspaces = workspaces.filter(|(id, _)| only.is_none_or(|only| only == *id));
        let all = workspaces.flat_map(|(id, workspace)| workspace.standing.all(id));
        let mut all: Vec<StandingApprovalInfo> = all.collect();
        if let Some(after) = &list.after {
            all.retain(|standing| *after < standing.place());
        }
        all.sort_by_key(StandingApprovalInfo::place);
        Ok(list.page_of(all.into_iter()))
    }
}
