//! `approval.*`: tool calls that wait for approval (`STEER-3`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::{ApprovalDecision, ApprovalScope};
use crate::ids::{AgentName, ApprovalId, InstanceKey, StepId, ToolCallId, TurnId, WorkspaceId};
use crate::limits::{MAX_APPROVALS_PAGE, MAX_STANDING_APPROVALS_PAGE};
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
    /// Arguments to execute the call with instead of its own. They must match the tool's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Also approve later calls of the same agent and tool with the same arguments, within this
    /// scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<ApprovalScope>,
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
    /// True if two different people must approve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_two: bool,
    /// The approval of the first of two people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_approval: Option<FirstApproval>,
}

/// The approval of the first of two people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstApproval {
    /// The user of a chat, such as `telegram:12345`; absent for a client of the control API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time of the approval.
    pub at: Timestamp,
}

impl FirstApproval {
    /// The approval in words, such as `1 of 2, by telegram:12345`.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "1 of 2, by {}",
            self.by.as_deref().unwrap_or("the operator")
        )
    }
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
    /// JSON Schema of the arguments; absent if the tool has none, or a very large one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
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
    /// True if the call is executed with changed arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changed: bool,
    /// Scope of the standing approval that was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<ApprovalScope>,
    /// True if the call still waits, because another person must approve it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_another: bool,
}

/// `approval.standing`: one page of the standing approvals, oldest first (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListStandingApprovals {
    /// Return only those of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StandingApprovalPlace>,
    /// Page size; defaults to and is capped at [`MAX_STANDING_APPROVALS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of a standing approval in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StandingApprovalPlace {
    /// Time of the decision.
    pub created_at: Timestamp,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// The approval that created it.
    pub approval_id: ApprovalId,
}

/// Result of `approval.standing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingApprovalsPage {
    /// The standing approvals.
    pub standing: Vec<StandingApprovalInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<StandingApprovalPlace>,
}

impl ListStandingApprovals {
    /// The page that starts with these, which must be sorted by position and all follow
    /// [`after`](Self::after).
    pub fn page_of(
        &self,
        standing: impl Iterator<Item = StandingApprovalInfo>,
    ) -> StandingApprovalsPage {
        let (limit, place_of) = (self.limit, StandingApprovalInfo::place);
        let (standing, next) = page_of(standing, limit, MAX_STANDING_APPROVALS_PAGE, place_of);
        StandingApprovalsPage { standing, next }
    }
}

/// A standing approval: calls of this agent and tool with exactly these arguments are approved
/// without asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingApprovalInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The approval that created it, and its own id.
    pub approval_id: ApprovalId,
    /// The only conversation that it covers; absent if it covers all of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// The agent.
    pub agent_name: AgentName,
    /// The tool's full name.
    pub tool_name: String,
    /// The arguments.
    pub input: Value,
    /// Time of the decision.
    pub created_at: Timestamp,
}

impl StandingApprovalInfo {
    /// Its position in the list.
    #[must_use]
    pub fn place(&self) -> StandingApprovalPlace {
        StandingApprovalPlace {
            created_at: self.created_at,
            workspace_id: self.workspace_id.clone(),
            approval_id: self.approval_id.clone(),
        }
    }
}

/// `approval.revoke`: removes a standing approval. Durable when it is answered; later calls need a
/// person again. Only a person may send this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeStandingApproval {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The approval that created it.
    pub approval_id: ApprovalId,
}

/// Result of `approval.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingApprovalRevoked {
    /// The removed standing approval.
    pub standing: StandingApprovalInfo,
}
