//! Recorded approvals of a conversation's open turn.

use goondan_protocol::approval::ApprovalShow;
use goondan_protocol::control::{ApprovalInfo, ApprovalPlace};
use goondan_protocol::ids::{AgentName, ApprovalId, InstanceKey, InstanceRef, TurnId, WorkspaceId};
use goondan_protocol::limits::MAX_APPROVAL_BUTTON_BYTES;
use goondan_protocol::observe::detail_of;
use goondan_protocol::time::Timestamp;
use goondan_store::instance::{Approval, ApprovalRequest, InstanceState};

use crate::fleet::agent_replies::pending_replies::Requester;

/// A call that needs approval.
#[derive(Debug)]
pub(super) struct OpenApproval {
    pub(super) turn_id: TurnId,
    pub(super) known: Approval,
    /// The process that waits for the decision; `None` while no process works on the turn.
    pub(super) requester: Option<Requester>,
    /// A decision is being recorded.
    pub(super) is_deciding: bool,
    /// A delivery is being recorded.
    pub(super) is_handing: bool,
    /// A process has received the approval.
    pub(super) is_told: bool,
}

impl OpenApproval {
    pub(super) fn waits(&self) -> bool {
        self.known.decided.is_none()
    }

    /// True if the whole call fits into a chat message.
    pub(super) fn fits_message(&self) -> bool {
        self.known.call.input.to_string().len() <= MAX_APPROVAL_BUTTON_BYTES
    }

    /// Sort key: longest waiting first.
    pub(super) fn place(&self, workspace_id: &WorkspaceId) -> ApprovalPlace {
        ApprovalPlace {
            asked_at: self.known.call.at,
            workspace_id: workspace_id.clone(),
            approval_id: self.known.call.approval_id.clone(),
        }
    }

    /// The approval as clients see it.
    pub(super) fn info(&self, at: &InstanceRef, agent: &AgentName) -> ApprovalInfo {
        let call = &self.known.call;
        ApprovalInfo {
            workspace_id: at.workspace_id.clone(),
            approval_id: call.approval_id.clone(),
            instance_key: at.instance_key.clone(),
            agent_name: agent.clone(),
            turn_id: self.turn_id.clone(),
            step_id: call.step_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            tool_name: call.tool_name.clone(),
            summary: detail_of(&call.input.to_string()),
            may_have_begun: call.may_have_begun,
            asked_at: call.at,
        }
    }
}

/// The calls of a conversation's open turn that need approval.
#[derive(Debug, Default)]
pub(crate) struct Approvals(pub(super) Vec<OpenApproval>);

impl Approvals {
    pub(in crate::fleet) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::fleet) fn waiting(&self) -> impl Iterator<Item = &ApprovalId> {
        let waiting = self.0.iter().filter(|open| open.waits());
        waiting.map(|open| &open.known.call.approval_id)
    }

    /// Pending approvals that are `wanted`, as connections show them, with the time of each
    /// request.
    pub(in crate::fleet) fn to_show(
        &self,
        key: &InstanceKey,
        agent: &AgentName,
        wanted: impl Fn(&ApprovalId) -> bool,
    ) -> impl Iterator<Item = (Timestamp, ApprovalShow)> {
        let waiting = self.0.iter().filter(|open| open.waits());
        let wanted = waiting.filter(move |open| wanted(&open.known.call.approval_id));
        wanted.map(|open| {
            let call = &open.known.call;
            let show = ApprovalShow {
                approval_id: call.approval_id.clone(),
                instance_key: key.clone(),
                agent_name: agent.clone(),
                tool_name: call.tool_name.clone(),
                input: call.input.clone(),
                may_have_begun: call.may_have_begun,
                may_approve: open.fits_message(),
            };
            (call.at, show)
        })
    }

    pub(super) fn get(&self, id: &ApprovalId) -> Option<&OpenApproval> {
        let mut all = self.0.iter();
        all.find(|open| open.known.call.approval_id == *id)
    }

    pub(super) fn get_mut(&mut self, id: &ApprovalId) -> Option<&mut OpenApproval> {
        let mut all = self.0.iter_mut();
        all.find(|open| open.known.call.approval_id == *id)
    }

    pub(super) fn of_call(&mut self, call: &ApprovalRequest) -> Option<&mut OpenApproval> {
        self.0.iter_mut().find(|open| {
            let known = &open.known.call;
            known.step_id == call.step_id && known.tool_call_id == call.tool_call_id
        })
    }

    /// Removes the waiting processes after the process exited.
    pub(in crate::fleet) fn forget_requesters(&mut self) {
        for open in &mut self.0 {
            open.requester = None;
        }
    }

    /// Loads the recorded state.
    pub(in crate::fleet) fn read(&mut self, state: &InstanceState) {
        let mut before = std::mem::take(&mut self.0);
        // Approvals end with their turn.
        let Some(open_turn) = &state.open_turn else {
            return;
        };
        for known in &state.approvals {
            let is_same =
                |open: &OpenApproval| open.known.call.approval_id == known.call.approval_id;
            let open = match before.iter().position(is_same) {
                Some(place) => OpenApproval {
                    known: known.clone(),
                    ..before.swap_remove(place)
                },
                None => OpenApproval {
                    turn_id: open_turn.turn_id.clone(),
                    is_told: known.is_handed,
                    known: known.clone(),
                    requester: None,
                    is_deciding: false,
                    is_handing: false,
                },
            };
            self.0.push(open);
        }
    }
}
