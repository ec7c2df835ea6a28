//! Input events: events that connectors submit and events that agents receive.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::event_join::{EventJoin, JoinPart};
use crate::ids::{AgentName, ConnectionName, EventId, InstanceKey};
use crate::time::Timestamp;
use crate::trace::{SpanId, TraceId};

/// Metadata key of a connection's event: the payload of the service, for a tool of the agent.
pub const PAYLOAD: &str = "payload";

/// Metadata key of a connection's event: size of the payload in bytes, if [`PAYLOAD`] contains only a
/// part.
pub const PAYLOAD_BYTES: &str = "payloadBytes";

/// An external event seen by a connector, such as a webhook request or a chat message.
///
/// The router converts it into an [`AgentEvent`] for one instance by the Connection's ingress rules
/// (`IPC-3`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectorEvent {
    /// The external system's id of the event. Submitting the same id twice results in one turn
    /// (`MSG-13`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    /// Name of the event, as declared by the connector.
    pub name: String,
    /// The text for the agent.
    pub input: String,
    /// The conversation, if the connector knows it; an ingress rule may override it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Facts that ingress rules match on.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub properties: JsonObject,
    /// Identity of the requester, passed on to the agent unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<JsonObject>,
    /// Free-form metadata for the agent. [`PAYLOAD`] holds the service's request.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// An input event of one instance: a record of `inbox.jsonl`, answered by a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    /// Identifies the event; its turn commits at most once (`MSG-13`).
    pub id: EventId,
    /// Kind of event: a connector's event name, or `message`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of its acceptance.
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
    /// The line above the text in the message for the model: the sender and the place
    /// ([`crate::event_header`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Facts that the connector reported about the event.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub properties: JsonObject,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// The sender.
    pub source: EventSource,
    /// Identity of the requester, passed on unchanged between agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<JsonObject>,
    /// Recipient of the answer, if one is expected (`IPC-2`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// Origin of the event, if an agent sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Chain>,
    /// Its role in a join, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<EventJoin>,
    /// Free-form metadata; `inReplyTo` is the id of the event this one answers.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// Origin and length of a chain of events that agents sent each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// The conversation of the event that came from outside.
    pub root_instance: InstanceKey,
    /// The external event. The cost of its turn and of all resulting turns is accounted together.
    pub root_event: EventId,
    /// Number of hops between agents: 1 for an event sent by the turn of the external event.
    pub depth: u32,
    /// The conversations between the root and the event's own, in request order. The event's work
    /// is also done on their behalf.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<InstanceKey>,
}

impl AgentEvent {
    /// The other conversations that this event's turn works for: all requesters, the first one
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

    /// The part of a join that it is, while it waits for the other parts.
    #[must_use]
    pub fn waits_as(&self) -> Option<&JoinPart> {
        self.join.as_ref().and_then(EventJoin::as_part)
    }
}

/// Sender of an event.
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

/// Recipient of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplyTo {
    /// The waiting requester.
    pub target: EventSource,
    /// The requester's correlation id, returned with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

/// Outcome of a turn. In every case the event is finished and its messages are folded.
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
        /// The cause and a suggestion.
        message: String,
    },
}
