//! The latest model reply of a turn, for an agent process that requests a recorded step again.

use goondan_protocol::ids::StepId;
use serde_json::value::RawValue;

/// The reply of the latest step recorded by this daemon. A process that loaded its conversation
/// before the recording requests the step again.
#[derive(Debug, Clone)]
pub(crate) struct LastReply {
    pub(super) step_id: StepId,
    pub(super) message: Box<RawValue>,
}
