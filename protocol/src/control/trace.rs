//! `trace.*`: events caused by one input event, across agents.

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceKey, WorkspaceId};
use crate::observe::RuntimeEvent;
use crate::time::Timestamp;
use crate::trace::TraceId;

/// `trace.page`: one page of the events of a trace (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageTrace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The trace's id, or the id of a turn or an event in it; defaults to the trace of the latest
    /// turn. Requests for further pages must pass the trace's id, to stay in the same trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TraceCursor>,
    /// Page size; defaults to and is capped at [`crate::limits::MAX_TRACE_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The last event of a page. Opaque to clients, which return it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceCursor {
    /// Time of the event.
    pub timestamp: Timestamp,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Number of earlier events of the trace in that conversation with the same time.
    pub index: usize,
}

/// Result of `trace.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracePage {
    /// The trace.
    pub trace_id: TraceId,
    /// The events, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// True if events may be missing on any page because the scan reached its limits of
    /// conversations or record length.
    pub partial: bool,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TraceCursor>,
}
