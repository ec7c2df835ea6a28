//! `approval.*`: tool calls that wait for approval (`STEER-3`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::ApprovalDecision;
use crate::ids::{AgentName, ApprovalId, InstanceKey, StepId, ToolCallId, TurnId, WorkspaceId};
use crate::limits::MAX_APPROVALS_PAGE;
use crate::time::Timestamp;

use super::pages::page_of;

/// `approval.list`: one page of the pending approvals, oldest first (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    /// Return only approvals of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Return only approvals of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ApprovalPlace>,
    /// Page size; defaults to and is capped at [`MAX_APPROVALS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of an approval in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalPlace {
    /// Time of the request.
    pub asked_at: Timestamp,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// The id to decide it with.
    pub approval_id: ApprovalId,
}

/// Result of `approval.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalsPage {
    /// The pending approvals.
    pub approvals: Vec<ApprovalInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ApprovalPlace>,
}

impl ListApprovals {
    /// The page that starts with these calls, which must be sorted by position and all follow
    /// [`after`](Self::after).
    pub fn page_of(&self, approvals: impl Iterator<Item = ApprovalInfo>) -> ApprovalsPage {
        let (limit, place_of) = (self.limit, ApprovalInfo::place);
        let (approvals, next) = page_of(approvals, limit, MAX_APPROVALS_PAGE, place_of);
        ApprovalsPage { approvals, next }
    }
}

/// `approval.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowApproval {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The approval.
    pub approval_id: ApprovalId,
}

/// `approval.decide`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The approval.
    pub approval_id: ApprovalId,
    /// The decision.
    pub decision: ApprovalDecision,
    /// The reason, for the model: at most [`crate::limits::MAX_APPROVAL_REASON_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A tool call that waits for approval, without its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The id to decide it with.
    pub approval_id: ApprovalId,
    /// The conversation whose turn waits.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The turn.
    pub turn_id: TurnId,
    /// The step of the call.
    pub step_id: StepId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool's full name.
    pub tool_name: String,
    /// The beginning of the arguments. They are untrusted because a model wrote them.
    pub summary: String,
    /// True if a previous process, running with different rules, may have begun the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// Time of the request.
    pub asked_at: Timestamp,
    /// Time at which an undecided call is denied; absent if it waits without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_at: Option<Timestamp>,
}

impl ApprovalInfo {
    /// Its position in the list.
    #[must_use]
    pub fn place(&self) -> ApprovalPlace {
        ApprovalPlace {
            asked_at: self.asked_at,
            workspace_id: self.workspace_id.clone(),
            approval_id: self.approval_id.clone(),
        }
    }
}

/// Result of `approval.show`: the complete call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDetail {
    /// The call.
    pub approval: ApprovalInfo,
    /// Its complete arguments.
    pub input: Value,
}

/// Result of `approval.decide`. The decision is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDecided {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The decision.
    pub decision: ApprovalDecision,
    /// The conversation that continues.
    pub instance_key: InstanceKey,
    /// The tool's full name.
    pub tool_name: String,
}
