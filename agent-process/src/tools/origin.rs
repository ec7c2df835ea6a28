//! Where the event came from that a turn answers.

use goondan_protocol::JsonObject;
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::ConnectionName;

/// Where the event came from that a turn answers.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) connection: Option<ConnectionName>,
    pub(super) metadata: JsonObject,
}

impl Origin {
    /// Where `event` came from.
    pub(crate) fn of(event: &AgentEvent) -> Self {
        let connection = match &event.source {
            EventSource::Connector { name } => Some(name.clone()),
            EventSource::Agent { .. } => None,
        };
        Self {
            connection,
            metadata: event.metadata.clone(),
        }
    }
}
