//! `trace.*`: what followed from one event, across agents.

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::observe::RuntimeEvent;
use crate::trace::TraceId;

/// `trace.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetTrace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The trace's id, or that of a turn or an event that is part of it; none: the trace of the turn
    /// that began last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Result of `trace.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The trace.
    pub trace_id: TraceId,
    /// What happened in it, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Whether something may be missing: more conversations or longer records than are looked through.
    pub partial: bool,
}
