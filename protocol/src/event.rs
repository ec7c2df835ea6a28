//! Input events: what a connector hands in, and what an agent gets.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{AgentName, ConnectionName, EventId, InstanceKey};
use crate::time::Timestamp;
use crate::trace::{SpanId, TraceId};

/// What a connector saw happen outside: one webhook request, one chat message.
///
/// The router turns it into an [`AgentEvent`] for one instance by the Connection's ingress rules
/// (`IPC-3`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectorEvent {
    /// The outside's own id of the event. The same id twice is one turn (`MSG-13`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    /// Which of the connector's declared events this is.
    pub name: String,
    /// The text for the agent.
    pub input: String,
    /// The conversation this belongs to, if the connector knows; a rule may say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Facts that ingress rules match on.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub properties: JsonObject,
    /// Who is asking, passed on to the agent unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<JsonObject>,
    /// Free notes for the agent.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// One input event of one instance: a record of `inbox.jsonl`, and what a turn answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    /// Identifies the event; its turn commits at most once (`MSG-13`).
    pub id: EventId,
    /// What kind of event it is: a connector's event name, or `message`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// The span that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The text for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Who sent it.
    pub source: EventSource,
    /// Who is asking, passed on unchanged between agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<JsonObject>,
    /// Where the answer goes, if somebody waits for one (`IPC-2`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// What it goes back to, if an agent sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Chain>,
    /// Free notes; `inReplyTo` names the event this one answers.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// Where a chain of events that agents sent each other began, and how long it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// The conversation of the event that came from outside.
    pub root_instance: InstanceKey,
    /// That event. What its turn and all that follows from it may cost is counted together.
    pub root_event: EventId,
    /// How many agents lie between: 1 for what the turn of that event sent.
    pub depth: u32,
    /// The conversations between that one and the event's own, in the order in which they asked. What
    /// is done for the event is done for them, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<InstanceKey>,
}

impl AgentEvent {
    /// The other conversations that this event's turn works for: all that asked for it, the first one
    /// first.
    #[must_use]
    pub fn asked_by(&self, own: &InstanceKey) -> Vec<InstanceKey> {
        let mut all: Vec<InstanceKey> = Vec::new();
        if let Some(chain) = &self.chain {
            for key in std::iter::once(&chain.root_instance).chain(&chain.through) {
                if key != own && !all.contains(key) {
                    all.push(key.clone());
                }
            }
        }
        all
    }
}

/// Who sent an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum EventSource {
    /// Another agent.
    Agent {
        /// Its name.
        name: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
    },
    /// A connector. The local client is the connector `cli`.
    Connector {
        /// The connection's name.
        name: ConnectionName,
    },
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplyTo {
    /// Who waits.
    pub target: EventSource,
    /// The requester's own mark, returned with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

/// How a turn ended. Either way the event is done and its messages are folded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum TurnOutcome {
    /// The agent answered.
    Completed {
        /// Its answer.
        reply: String,
    },
    /// The agent could not answer.
    Failed {
        /// A stable code, such as `E_MODEL`.
        code: String,
        /// What failed and what to do.
        message: String,
    },
}
