//! `schedule.*`: inputs of conversations that become due later, created by agents and people (`OBS-5`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, EventId, InstanceKey, ScheduleId, WorkspaceId};
use crate::limits::MAX_SCHEDULES_PAGE;
use crate::schedule::{RequestedTime, ScheduleCatchUp, ScheduleTime};
use crate::time::Timestamp;

use super::pages::page_of;

/// `schedule.list`: one page of the schedules (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSchedules {
    /// Return only schedules of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Return only schedules of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SchedulePlace>,
    /// Page size; defaults to and is capped at [`MAX_SCHEDULES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of a schedule in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulePlace {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its conversation.
    pub instance_key: InstanceKey,
    /// The schedule.
    pub schedule_id: ScheduleId,
}

/// Result of `schedule.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulesPage {
    /// The schedules, sorted by workspace, conversation and id.
    pub schedules: Vec<ScheduleInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SchedulePlace>,
}

impl ListSchedules {
    /// The page that starts with these schedules, which must be sorted by position and all follow
    /// [`after`](Self::after).
    pub fn page_of(&self, schedules: impl Iterator<Item = ScheduleInfo>) -> SchedulesPage {
        let (limit, place_of) = (self.limit, ScheduleInfo::place);
        let (schedules, next) = page_of(schedules, limit, MAX_SCHEDULES_PAGE, place_of);
        SchedulesPage { schedules, next }
    }
}

/// One schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The agent that gets its inputs.
    pub agent_name: AgentName,
    /// True if a person created it, not its agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_person: bool,
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Its times.
    pub time: ScheduleTime,
    /// Handling of missed occurrences.
    pub catch_up: ScheduleCatchUp,
    /// Text of its inputs.
    pub input: String,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// The next occurrence; absent if none is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Reason why occurrences cannot be submitted, if any. They are caught up later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ScheduleInfo {
    /// Its position in the list.
    #[must_use]
    pub fn place(&self) -> SchedulePlace {
        SchedulePlace {
            workspace_id: self.workspace_id.clone(),
            instance_key: self.instance_key.clone(),
            schedule_id: self.schedule_id.clone(),
        }
    }
}

/// `schedule.create`: sends an input to a conversation at a later time. Durable when it is answered,
/// also for a conversation that does not exist yet. Only a person may send this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSchedule {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent; if absent, the one that gets the messages of local clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The conversation.
    pub conversation_key: InstanceKey,
    /// When the input is sent.
    pub time: RequestedTime,
    /// Handling of missed occurrences.
    #[serde(default, skip_serializing_if = "ScheduleCatchUp::is_default")]
    pub catch_up: ScheduleCatchUp,
    /// The input, of at most [`MAX_SCHEDULED_INPUT_BYTES`](crate::limits::MAX_SCHEDULED_INPUT_BYTES)
    /// bytes.
    pub input: String,
    /// Names the request, so that one sent again creates no second schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// Result of `schedule.create` and `schedule.move`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleKept {
    /// The schedule as it is now; absent if its last occurrence has been sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleInfo>,
}

/// `schedule.move`: changes the time of a schedule with a single occurrence. Durable when it is
/// answered. Only a person may send this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveSchedule {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// The new time.
    pub at: Timestamp,
}

/// `schedule.remove`: removes a schedule. Durable when it is answered; no occurrence is submitted
/// after that. Only a person may send this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSchedule {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The schedule.
    pub schedule_id: ScheduleId,
}

/// Result of `schedule.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleRemoved {
    /// The removed schedule.
    pub schedule: ScheduleInfo,
}
