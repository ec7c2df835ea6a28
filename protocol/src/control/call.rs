//! `call.*`: tool calls that were cut short, and of which nobody knows if they had their effect (`OBS-5`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, ToolCallId, TurnId, WorkspaceId};
use crate::limits::MAX_UNKNOWN_CALLS_PAGE;
use crate::time::Timestamp;

use super::paging::page_of;

/// `call.unknown`: one page of those that no person has looked after yet (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListUnknownCalls {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<UnknownCallPlace>,
    /// Most of them on the page, at most and if it is not said [`MAX_UNKNOWN_CALLS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The place of one in the list of all.
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
    /// The calls, by workspace, conversation and id.
    pub calls: Vec<UnknownCallInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UnknownCallPlace>,
}

impl ListUnknownCalls {
    /// The page that begins with these calls, which come by their places and are all behind
    /// [`after`](Self::after).
    pub fn page_of(&self, calls: impl Iterator<Item = UnknownCallInfo>) -> UnknownCallsPage {
        let (limit, place_of) = (self.limit, UnknownCallInfo::place);
        let (calls, next) = page_of(calls, limit, MAX_UNKNOWN_CALLS_PAGE, place_of);
        UnknownCallsPage { calls, next }
    }
}

/// A tool call of which nobody knows if it had its effect.
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
    /// When it was cut short.
    pub at: Timestamp,
    /// How.
    pub detail: String,
}

impl UnknownCallInfo {
    /// Its place in the list of all.
    #[must_use]
    pub fn place(&self) -> UnknownCallPlace {
        UnknownCallPlace {
            workspace_id: self.workspace_id.clone(),
            instance_key: self.instance_key.clone(),
            tool_call_id: self.tool_call_id.clone(),
        }
    }
}

/// `call.settle`: a person has looked whether the call had its effect. Only a person may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleCall {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// What the person found, for the audit log: at most [`crate::limits::MAX_APPROVAL_REASON_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Result of `call.settle`. It is in the audit log, durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSettled {
    /// What is settled.
    pub call: UnknownCallInfo,
}
