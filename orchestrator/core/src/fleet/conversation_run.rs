//! Task runs that are turns of conversations, and their results (`TASK-8`).

use goondan_protocol::control::ControlError;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceRef};
use goondan_store::instance::EventState;

use crate::exchange::TaskRef;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationRun {
    pub(crate) at: TaskRef,
    pub(crate) run: u64,
    pub(crate) instance: InstanceRef,
    pub(crate) event_id: EventId,
}

/// Progress of a run's event.
#[derive(Debug)]
pub(crate) enum RunUpdate {
    /// Current state of the event, or an error if the lookup failed. `None` if the conversation
    /// does not exist.
    Found(Result<Option<EventState>, String>),
    /// The event is durable and its turn will begin.
    Begun,
    Refused(String),
    /// The turn has ended or will never begin.
    Ended(Result<TurnOutcome, ControlError>),
}
