//! Origin of the event that a turn answers.

use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::schedule::ScheduledInput;

/// Origin of the event that a turn answers.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) connection: Option<ConnectionName>,
    pub(super) event: AgentEvent,
}

impl Origin {
    /// The origin of `event`.
    pub(crate) fn of(event: &AgentEvent) -> Self {
        let connection = match &event.source {
            EventSource::Connector { name } => Some(name.clone()),
            // A schedule leads back to the connection where the agent created it.
            EventSource::Agent { .. } => {
                ScheduledInput::of(&event.metadata).and_then(|origin| origin.connection)
            }
        };
        Self {
            connection,
            event: event.clone(),
        }
    }
}
