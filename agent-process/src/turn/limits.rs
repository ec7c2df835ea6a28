//! Limits of a turn.

use goondan_protocol::definition::LoopBreaker;

use crate::model::ModelLocation;

/// Longest turn id, in bytes. The ids of the turn's messages are derived from it and must fit
/// [`goondan_protocol::limits::MAX_ID_BYTES`].
pub const MAX_TURN_ID_BYTES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    pub step_count_max: u32,
    pub loop_breaker: LoopBreaker,
    /// Location of the model: decides if appended events must be durable before the model is asked.
    pub model: ModelLocation,
}
