//! `logs.*`: the log stream.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{AgentName, WorkspaceId};
use crate::trace::TraceId;

/// The file a daemon in the background writes its log to, in the directory of its log. Older ones have
/// `.1`, `.2` … behind it (`LOG-4`).
pub const LOG_FILE_NAME: &str = "orchestrator.log";

/// `logs.follow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowLogs {
    /// How many of the latest lines to begin with.
    pub tail: usize,
    /// Whether to go on with new lines. If not, the request ends after the tail.
    pub follow: bool,
    /// Only lines of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only lines of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only lines of this trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
}

/// One line of the log stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The `logs.follow` request it answers.
    pub request_id: u64,
    /// The line: a JSON object.
    pub line: Box<RawValue>,
}
