//! How far a turn may go.

use goondan_protocol::definition::LoopBreaker;

use crate::model::ModelPlace;

/// Longest turn id, in bytes: the ids of the turn's messages are made of it and must fit
/// [`goondan_protocol::limits::MAX_ID_BYTES`].
pub const MAX_TURN_ID_BYTES: usize = 200;

/// How far a turn may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// Most steps.
    pub step_count_max: u32,
    /// When it is taken to go in circles.
    pub loop_breaker: LoopBreaker,
    /// Whether what is appended must be durable before the model is asked.
    pub model: ModelPlace,
}
