//! `approval.*`: tool calls that wait for a person to approve them (`STEER-3`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::ApprovalDecision;
use crate::ids::{AgentName, ApprovalId, InstanceKey, StepId, ToolCallId, TurnId, WorkspaceId};
use crate::limits::MAX_APPROVALS_PAGE;
use crate::time::Timestamp;

use super::paging::page_of;

/// `approval.list`: one page of them, those that have waited for longest first (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only those of the conversation of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ApprovalPlace>,
    /// Most of them on the page, at most and if it is not said [`MAX_APPROVALS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The place of one in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalPlace {
    /// When it was asked about.
    pub asked_at: Timestamp,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// What it is approved by.
    pub approval_id: ApprovalId,
}

/// Result of `approval.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalsPage {
    /// The calls that wait.
    pub approvals: Vec<ApprovalInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ApprovalPlace>,
}

impl ListApprovals {
    /// The page that begins with these calls, which come by their places and are all behind
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
    /// What waits.
    pub approval_id: ApprovalId,
}

/// `approval.decide`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What waits.
    pub approval_id: ApprovalId,
    /// What is decided.
    pub decision: ApprovalDecision,
    /// Why, for the model: at most [`crate::limits::MAX_APPROVAL_REASON_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A tool call that waits for a person, without its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What it is approved by.
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
    /// The beginning of the arguments. A model wrote them: they are not to be trusted.
    pub summary: String,
    /// Whether a process before this one may have begun the call: its rule was another then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// When it was asked about.
    pub asked_at: Timestamp,
}

impl ApprovalInfo {
    /// Its place in the list of all.
    #[must_use]
    pub fn place(&self) -> ApprovalPlace {
        ApprovalPlace {
            asked_at: self.asked_at,
            workspace_id: self.workspace_id.clone(),
            approval_id: self.approval_id.clone(),
        }
    }
}

/// Result of `approval.show`: all that is to be approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDetail {
    /// The call.
    pub approval: ApprovalInfo,
    /// Its arguments, whole.
    pub input: Value,
}

/// Result of `approval.decide`. The decision is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDecided {
    /// What waited.
    pub approval_id: ApprovalId,
    /// What was decided.
    pub decision: ApprovalDecision,
    /// The conversation that goes on.
    pub instance_key: InstanceKey,
    /// The tool's full name.
    pub tool_name: String,
}
