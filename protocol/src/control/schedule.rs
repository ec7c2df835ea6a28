//! `schedule.*`: schedules that agents created for their conversations (`OBS-5`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, ScheduleId, WorkspaceId};
use crate::limits::MAX_SCHEDULES_PAGE;
use crate::schedule::{ScheduleCatchUp, ScheduleTime};
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
    /// The agent that created it.
    pub agent_name: AgentName,
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
