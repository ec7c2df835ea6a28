//! Envelope of every IPC frame: type, sender, recipient and trace (`IPC-2`).
//!
//! The payload remains raw JSON, so that a router never parses messages that it only forwards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::ids::{AgentName, ConnectionName, InstanceKey, InvalidId, ResourceName};
use crate::task::{InvalidTaskId, TaskId};
use crate::trace::TraceContext;

/// Address of a process of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// The orchestrator: `orchestrator`.
    Orchestrator,
    /// An agent process: `agent:<name>:<instanceKey>`.
    Agent {
        /// The agent's name.
        name: AgentName,
        /// The conversation.
        instance_key: InstanceKey,
    },
    /// A connector process: `connector:<connection>`.
    Connector {
        /// The connection's name.
        name: ConnectionName,
    },
    /// The connector process of a model: `model:<name>`.
    Model {
        /// The model's name.
        name: ResourceName,
    },
    /// The process that runs an agent's program for a task: `task:<id>`.
    Task {
        /// The task.
        id: TaskId,
    },
    /// A child without an assignment: `child`.
    Child,
}

/// Reason why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The text matches none of the known forms.
    #[error(
        "expected `orchestrator`, `child`, `agent:<name>:<instanceKey>`, `connector:<connection>`, \
         `model:<name>` or `task:<id>`"
    )]
    UnknownForm,
    /// A part of the address is not a valid id.
    #[error("a part of the address is not valid")]
    Id(#[from] InvalidId),
    /// The id of the task is invalid.
    #[error(transparent)]
    Task(#[from] InvalidTaskId),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orchestrator => f.write_str("orchestrator"),
            Self::Agent { name, instance_key } => write!(f, "agent:{name}:{instance_key}"),
            Self::Connector { name } => write!(f, "connector:{name}"),
            Self::Model { name } => write!(f, "model:{name}"),
            Self::Task { id } => write!(f, "task:{id}"),
            Self::Child => f.write_str("child"),
        }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        // The instance key comes last because it may contain colons, unlike a name.
        match text.split_once(':') {
            None if text == "orchestrator" => Ok(Self::Orchestrator),
            None if text == "child" => Ok(Self::Child),
            Some(("connector", name)) => Ok(Self::Connector {
                name: name.parse()?,
            }),
            Some(("model", name)) => Ok(Self::Model {
                name: name.parse()?,
            }),
            Some(("task", id)) => Ok(Self::Task { id: id.parse()? }),
            Some(("agent", rest)) => {
                let (name, key) = rest.split_once(':').ok_or(InvalidAddress::UnknownForm)?;
                Ok(Self::Agent {
                    name: name.parse()?,
                    instance_key: key.parse()?,
                })
            }
            _ => Err(InvalidAddress::UnknownForm),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

/// An IPC message with an unparsed payload.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// The message's type, such as `hello` or `turn.append`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Id of a request, which its reply repeats.
    #[serde(default)]
    pub id: Option<u64>,
    /// Id of the request that this message replies to.
    #[serde(default)]
    pub in_reply_to: Option<u64>,
    /// The sender.
    pub from: Address,
    /// The recipient.
    pub to: Address,
    /// The trace and span the message belongs to.
    #[serde(default)]
    pub trace: Option<TraceContext>,
    /// The message's own fields.
    pub payload: Box<RawValue>,
}

/// Reason why a frame is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The frame is not an envelope.
    #[error("the frame is not a valid envelope")]
    BadEnvelope(#[source] serde_json::Error),
    /// The receiver does not accept this type of message.
    #[error("unknown message type `{kind}`")]
    UnknownKind {
        /// The type.
        kind: String,
    },
    /// The payload does not match the type.
    #[error("the payload of `{kind}` is not valid")]
    BadPayload {
        /// The message's type.
        kind: String,
        /// The problem.
        #[source]
        source: serde_json::Error,
    },
}

impl Envelope {
    /// Parses the body of a frame.
    ///
    /// # Errors
    ///
    /// [`MessageError::BadEnvelope`] if it is not an envelope.
    pub fn from_frame(body: &[u8]) -> Result<Self, MessageError> {
        serde_json::from_slice(body).map_err(MessageError::BadEnvelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for text in [
            "orchestrator",
            "child",
            "connector:hook",
            "model:claude",
            "task:t-1",
            "agent:a:k",
            "agent:a:telegram:1",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "agent",
            "agent:a",
            "agent::k",
            "agent:a:",
            "connector:",
            "connector:a/b",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn invalid_envelope_is_rejected() {
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"type":"x","from":"child","to":"a","payload":1}"#,
        ] {
            assert!(
                Envelope::from_frame(bad.as_bytes()).is_err(),
                "{bad:?} was accepted"
            );
        }
    }
}
