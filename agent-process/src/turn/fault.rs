//! Errors after which the engine cannot continue.

use goondan_protocol::ids::{InvalidId, TurnId};

use super::limits::MAX_TURN_ID_BYTES;

/// Error after which the engine cannot continue. The peer violated the protocol; the process ends.
#[derive(Debug, thiserror::Error)]
pub enum EngineFault {
    /// A turn was started while another runs.
    #[error("turn `{given}` was given while turn `{running}` runs; a turn is given only when idle")]
    Busy { given: TurnId, running: TurnId },
    /// The conversation holds events of another open turn (`MSG-9`).
    #[error(
        "turn `{given}` was given, but the recorded events belong to the open turn `{recorded}`"
    )]
    ForeignEvents {
        given: TurnId,
        /// The turn of the recorded events.
        recorded: TurnId,
    },
    /// The turn's id is too long for the ids derived from it.
    #[error("a turn id of {len} bytes; at most {MAX_TURN_ID_BYTES} are allowed")]
    TurnIdTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The orchestrator acknowledged an event that was never sent.
    #[error("event {seq} was acknowledged, but only {sent} events were sent")]
    DurableBeforeSent {
        seq: u64,
        /// The number of the last event that was sent.
        sent: u64,
    },
    /// The input does not fit the turn's current state.
    #[error("{input} came while {doing}")]
    Unexpected { input: String, doing: &'static str },
    /// A message id is invalid.
    #[error("the id of a message is not valid")]
    Id(#[from] InvalidId),
}
