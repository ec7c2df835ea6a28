//! `event.*`: what agents are given to do.

use serde::{Deserialize, Serialize};

use crate::event::TurnOutcome;
use crate::ids::{AgentName, EventId, InstanceKey, WorkspaceId};
use crate::observe::RuntimeEvent;
use crate::trace::TraceId;

/// `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent; the swarm's entry agent when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The conversation.
    pub conversation_key: InstanceKey,
    /// The text for the agent.
    pub input: String,
    /// The event's id; the same id twice is one turn. The daemon makes one when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// A trace to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whether to return only when the turn is committed, with `turn.progress` until then.
    pub wait: bool,
}

/// Result of `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The event's id.
    pub event_id: EventId,
    /// The instance that got it.
    pub instance_key: InstanceKey,
    /// The agent that got it.
    pub agent: AgentName,
    /// The trace.
    pub trace_id: TraceId,
    /// Whether the event had been accepted before.
    pub duplicate: bool,
    /// How the turn ended, if the client waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
}

/// One runtime event of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnProgress {
    /// The `event.send` request it belongs to.
    pub request_id: u64,
    /// What happened.
    pub event: RuntimeEvent,
}
