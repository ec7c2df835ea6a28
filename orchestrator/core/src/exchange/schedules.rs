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
    /// Ok if the input is durable, from this submission or an earlier one; else the reason of the
    /// failure.
    pub(crate) result: Result<(), String>,
}
