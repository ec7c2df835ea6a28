//! Why the engine cannot go on.

use goondan_protocol::ids::{InvalidId, TurnId};

use super::limits::MAX_TURN_ID_BYTES;

/// Why the engine cannot go on. The other side broke the protocol; the process ends.
#[derive(Debug, thiserror::Error)]
pub enum EngineFault {
    /// A turn was given while another runs.
    #[error("turn `{given}` was given while turn `{running}` runs; a turn is given only when idle")]
    Busy {
        /// The new turn.
        given: TurnId,
        /// The running one.
        running: TurnId,
    },
    /// The conversation holds events of another open turn (`MSG-9`).
    #[error(
        "turn `{given}` was given, but the recorded events belong to the open turn `{recorded}`"
    )]
    ForeignEvents {
        /// The new turn.
        given: TurnId,
        /// The turn of the recorded events.
        recorded: TurnId,
    },
    /// The turn's id leaves no room for the ids that are made of it.
    #[error("a turn id of {len} bytes; at most {MAX_TURN_ID_BYTES} are allowed")]
    TurnIdTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// An event that was never sent is said to be durable.
    #[error("event {seq} is said to be durable, but only {sent} were sent")]
    DurableBeforeSent {
        /// The event's number.
        seq: u64,
        /// The number of the last event that was sent.
        sent: u64,
    },
    /// An input that does not fit what the turn is doing.
    #[error("{input} came while {doing}")]
    Unexpected {
        /// The input.
        input: String,
        /// What the turn was doing.
        doing: &'static str,
    },
    /// A message id that is not valid.
    #[error("the id of a message is not valid")]
    Id(#[from] InvalidId),
}
