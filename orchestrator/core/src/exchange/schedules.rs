//! Occurrences of schedules on their way into conversations.

use goondan_protocol::ids::{InstanceRef, ScheduleId};
use goondan_protocol::time::Timestamp;

/// One occurrence of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occurrence {
    pub(crate) schedule_id: ScheduleId,
    pub(crate) at: Timestamp,
}

/// Result of the submission of an occurrence.
#[derive(Debug)]
pub(crate) struct SubmittedOccurrence {
    pub(crate) instance: InstanceRef,
    pub(crate) occurrence: Occurrence,
    /// Ok if its input is durable, now or from before; else the reason why it is not.
    pub(crate) result: Result<(), String>,
}
