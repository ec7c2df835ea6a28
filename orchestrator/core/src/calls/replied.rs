//! The model's reply that a turn got last.

use goondan_protocol::ids::StepId;
use serde_json::value::RawValue;

/// The reply of the latest step that was recorded here. A process that had loaded its conversation
/// before it was recorded asks for the step again.
#[derive(Debug, Clone)]
pub(crate) struct Replied {
    pub(super) step_id: StepId,
    pub(super) message: Box<RawValue>,
}
