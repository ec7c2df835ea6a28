//! `trace.*`: what followed from one event, across agents.

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceKey, WorkspaceId};
use crate::observe::RuntimeEvent;
use crate::time::Timestamp;
use crate::trace::TraceId;

/// `trace.page`: one page of what happened in a trace (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageTrace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The trace's id, or that of a turn or an event that is part of it; none: the trace of the turn
    /// that began last. On further pages the id of the trace, so that they are of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TraceCursor>,
    /// Most events on the page, at most and if it is not said [`crate::limits::MAX_TRACE_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The last event of a page. A client hands it back as it got it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceCursor {
    /// When it happened.
    pub timestamp: Timestamp,
    /// In which conversation.
    pub instance_key: InstanceKey,
    /// How many of the trace happened there at the same time before it.
    pub index: usize,
}

/// Result of `trace.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracePage {
    /// The trace.
    pub trace_id: TraceId,
    /// What happened in it, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Whether something may be missing on all pages: more conversations or longer records than are
    /// looked through.
    pub partial: bool,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TraceCursor>,
}
