//! `call.*`: interrupted tool calls with an unknown outcome (`OBS-5`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, ToolCallId, TurnId, WorkspaceId};
use crate::limits::MAX_UNKNOWN_CALLS_PAGE;
use crate::time::Timestamp;

use super::pages::page_of;

/// `call.unknown`: one page of the unresolved calls (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListUnknownCalls {
    /// Return only calls of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<UnknownCallPlace>,
    /// Page size; defaults to and is capped at [`MAX_UNKNOWN_CALLS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of a call in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnknownCallPlace {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its conversation.
    pub instance_key: InstanceKey,
    /// The call.
    pub tool_call_id: ToolCallId,
}

/// Result of `call.unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownCallsPage {
    /// The calls, sorted by workspace, conversation and id.
    pub calls: Vec<UnknownCallInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UnknownCallPlace>,
}

impl ListUnknownCalls {
    /// The page that starts with these calls, which must be sorted by position and all follow
    /// [`after`](Self::after).
    pub fn page_of(&self, calls: impl Iterator<Item = UnknownCallInfo>) -> UnknownCallsPage {
        let (limit, place_of) = (self.limit, UnknownCallInfo::place);
        let (calls, next) = page_of(calls, limit, MAX_UNKNOWN_CALLS_PAGE, place_of);
        UnknownCallsPage { calls, next }
    }
}

/// A tool call with an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownCallInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The turn.
    pub turn_id: TurnId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool's full name, as the model wrote it.
    pub tool_name: String,
    /// Time of the interruption.
    pub at: Timestamp,
    /// Cause of the interruption.
    pub detail: String,
}

impl UnknownCallInfo {
    /// Its position in the list.
    #[must_use]
    pub fn place(&self) -> UnknownCallPlace {
        UnknownCallPlace {
            workspace_id: self.workspace_id.clone(),
            instance_key: self.instance_key.clone(),
            tool_call_id: self.tool_call_id.clone(),
        }
    }
}

/// `call.settle`: resolves a call after a person checked its effect. Only a person may send this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleCall {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The person's finding, for the audit log: at most
    /// [`crate::limits::MAX_APPROVAL_REASON_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Result of `call.settle`. The audit log contains it durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSettled {
    /// The resolved call.
    pub call: UnknownCallInfo,
}
