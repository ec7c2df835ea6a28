//! The runs of tasks that are turns of conversations, and what becomes of them (`TASK-8`).

use goondan_protocol::control::ControlError;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, InstanceRef};
use goondan_store::instance::EventState;

use crate::exchange::TaskRef;

/// A run, and the event that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationRun {
    pub(crate) at: TaskRef,
    pub(crate) run: u64,
    pub(crate) instance: InstanceRef,
    pub(crate) event_id: EventId,
}

/// What became of the event of a run.
#[derive(Debug)]
pub(crate) enum RunNews {
    /// What is known of it; an error if its conversation could not be asked. None: there is no such conversation.
    Found(Result<Option<EventState>, String>),
    /// It is durable, and its turn will begin.
    Begun,
    /// It was not accepted.
    Refused(String),
    /// Its turn is over, or will never be.
    Ended(Result<TurnOutcome, ControlError>),
}
