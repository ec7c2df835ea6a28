//! Schedules: inputs of a conversation that become due later, created by its agent or a person.
//!
//! Each occurrence of a schedule is an input of its conversation. The connector `cron` has the same
//! rules for occurrences and missed occurrences.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;
use crate::ids::{ConnectionName, EventId, InvalidId, ScheduleId};
use crate::time::Timestamp;
use crate::trace::SpanId;

/// Type of an input that a schedule submits.
pub const SCHEDULE_KIND: &str = "schedule";

/// Metadata key that holds the [`ScheduledInput`] of an input.
pub const SCHEDULE: &str = "schedule";

/// Time zone of a cron expression that names none.
pub const DEFAULT_TIME_ZONE: &str = "UTC";

/// Returns the id of the schedule that a request creates. The same request always names the same
/// schedule.
///
/// # Errors
///
/// [`InvalidId`] never, because the id is short and plain.
pub fn id_of_request(request: &EventId) -> Result<ScheduleId, InvalidId> {
    ScheduleId::new(format!("s-{}", SpanId::of_id(request.as_str())))
}

/// Requested times of a new schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum RequestedTime {
    /// Once, at an instant.
    At {
        /// The instant.
        at: Timestamp,
    },
    /// Once, after a delay.
    In {
        /// The delay.
        seconds: u64,
    },
    /// Whenever a cron expression matches.
    Cron {
        /// The expression.
        cron: String,
        /// Its IANA time zone.
        time_zone: String,
    },
}

impl RequestedTime {
    /// True if the schedule has a single occurrence.
    #[must_use]
    pub fn is_once(&self) -> bool {
        !matches!(self, Self::Cron { .. })
    }
}

/// Times of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum ScheduleTime {
    /// One instant.
    Once {
        /// The instant.
        at: Timestamp,
    },
    /// Whenever a cron expression matches.
    Cron {
        /// The expression.
        cron: String,
        /// Its IANA time zone.
        time_zone: String,
    },
}

/// Handling of occurrences that were missed while nothing ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleCatchUp {
    /// Skips occurrences more than a minute old.
    None,
    /// Runs the last one.
    #[default]
    Latest,
    /// Runs each, oldest first, at most the latest ten.
    All,
}

impl ScheduleCatchUp {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
            Self::All => "all",
        }
    }

    /// True if this is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Change of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleChange {
    /// It was created.
    Created,
    /// It has another time.
    Moved,
    /// It was removed before its last occurrence.
    Removed,
    /// An occurrence became an input of the conversation.
    Sent,
}

impl ScheduleChange {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Moved => "moved",
            Self::Removed => "removed",
            Self::Sent => "sent",
        }
    }
}

/// Origin of an input that a schedule submits, in its metadata under [`SCHEDULE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledInput {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Instant of the occurrence.
    pub scheduled_at: Timestamp,
    /// True if the occurrence was missed and caught up.
    pub is_late: bool,
    /// Time at which the schedule was created.
    pub created_at: Timestamp,
    /// The connection whose event the agent answered when it created the schedule. The other
    /// metadata is of that event, so that tools find their way back to the same chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
}

impl ScheduledInput {
    /// Reads the origin from the metadata of an input; `None` if no schedule submitted it.
    #[must_use]
    pub fn of(metadata: &JsonObject) -> Option<Self> {
        let value: &Value = metadata.get(SCHEDULE)?;
        Self::deserialize(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn same_request_names_the_same_schedule() {
        let id = |text: &str| id_of_request(&text.parse().unwrap()).unwrap();
        assert_eq!(id("t.1:q0"), id("t.1:q0"));
        assert_ne!(id("t.1:q0"), id("t.1:q1"));
        assert!(id("t.1:q0").as_str().starts_with("s-"));
    }

    #[test]
    fn origin_of_an_input_round_trips_and_garbage_is_none() {
        let origin = ScheduledInput {
            schedule_id: "s-1".parse().unwrap(),
            scheduled_at: "2026-01-01T10:00:00Z".parse().unwrap(),
            is_late: true,
            created_at: "2026-01-01T09:00:00Z".parse().unwrap(),
            connection: None,
        };
        let mut metadata = JsonObject::from_iter([(SCHEDULE.to_owned(), json!(origin))]);
        assert_eq!(ScheduledInput::of(&metadata), Some(origin));
        metadata.insert(SCHEDULE.to_owned(), json!("noon"));
        assert_eq!(ScheduledInput::of(&metadata), None);
        assert_eq!(ScheduledInput::of(&JsonObject::new()), None);
    }
}
