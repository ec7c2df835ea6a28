//! Submits the inputs of due schedules to their conversations, and records the origin of new
//! schedules.

use goondan_protocol::JsonObject;
use goondan_protocol::agents::{IN_REPLY_TO, REQUEST_NOTE};
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::images::IMAGES;
use goondan_protocol::schedule::{SCHEDULE, ScheduledInput};

use super::conversation::Conversation;
use crate::bus::queue::Message;
use crate::exchange::schedules::SubmittedOccurrence;

/// Metadata of an event that later inputs must not repeat.
const OWN_METADATA: [&str; 4] = [IMAGES, SCHEDULE, REQUEST_NOTE, IN_REPLY_TO];

/// Turn that creates a schedule, and the event it answers.
#[derive(Debug)]
pub(crate) struct ScheduleCreator {
    pub(crate) agent: AgentName,
    /// Identity of the requester.
    pub(crate) auth: Option<JsonObject>,
    /// The connection of the event.
    pub(crate) connection: Option<ConnectionName>,
    /// Metadata of an event of a connection.
    pub(crate) metadata: JsonObject,
}

impl Conversation {
    /// The origin of a schedule that the turn in progress creates.
    pub(super) fn schedule_creator(&self) -> Option<ScheduleCreator> {
        let event_id = &self.turn()?.context.event_id;
        let cause = self.queue().get(event_id)?;
        let connection = match &cause.source {
            EventSource::Connector { name } => Some(name.clone()),
            EventSource::Agent { .. } => {
                ScheduledInput::of(&cause.metadata).and_then(|origin| origin.connection)
            }
        };
        let mut metadata = JsonObject::new();
        if connection.is_some() {
            metadata.clone_from(&cause.metadata);
            metadata.retain(|name, _| !OWN_METADATA.contains(&name.as_str()));
        }
        Some(ScheduleCreator {
            agent: self.agent().clone(),
            auth: cause.auth.clone(),
            connection,
            metadata,
        })
    }
}

/// Message that reports a refused input of an occurrence.
pub(super) fn refused(of: &SubmittedOccurrence, reason: String) -> Message {
    Message::Submitted(Box::new(SubmittedOccurrence {
        instance: of.instance.clone(),
        occurrence: of.occurrence.clone(),
        result: Err(reason),
    }))
}
