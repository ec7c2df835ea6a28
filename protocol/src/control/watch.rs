//! `workspace.watch`: a live stream of a workspace's events.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ProcessInfo, WorkspaceInfo};
use crate::ids::{InstanceKey, WorkspaceId};
use crate::lifecycle::LifecycleEvent;
use crate::time::Timestamp;

/// `workspace.watch`: ends when the workspace is stopped or the client disconnects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchWorkspace {
    /// The workspace. If absent, the stream has the events of all workspaces from now on, without
    /// snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Position after which the stream of a workspace resumes. Without it, or if the daemon no
    /// longer has the events after it, the stream starts with a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WatchCursor>,
}

/// `turn.follow`: streams the turns of a conversation from now on, regardless of who sent their
/// events, as `turn.progress` and `turn.piece` notifications under the request's id. Ends when the
/// workspace is stopped or the client disconnects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowTurns {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation, which need not exist yet.
    pub instance_key: InstanceKey,
}

/// Position in the events of a workspace since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct WatchCursor {
    /// Identifies the opening of the workspace.
    pub epoch: u64,
    /// Number of events up to this position.
    pub count: u64,
}

/// The text is not a cursor.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a valid cursor; pass a cursor from the daemon, or none to start with a snapshot"
)]
pub struct InvalidCursor(String);

impl FromStr for WatchCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let read = || {
            let (epoch, count) = text.split_once('.')?;
            Some(Self {
                epoch: u64::from_str_radix(epoch, 16).ok()?,
                count: count.parse().ok()?,
            })
        };
        read().ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

impl TryFrom<String> for WatchCursor {
    type Error = InvalidCursor;

    fn try_from(text: String) -> Result<Self, InvalidCursor> {
        text.parse()
    }
}

impl fmt::Display for WatchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.epoch, self.count)
    }
}

impl From<WatchCursor> for String {
    fn from(cursor: WatchCursor) -> Self {
        cursor.to_string()
    }
}

/// The parameters of [`super::WORKSPACE_CHANGE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceChange {
    /// The request that subscribed.
    pub request_id: u64,
    /// The workspace that changed.
    pub workspace_id: WorkspaceId,
    /// The position after this change.
    pub cursor: WatchCursor,
    /// Time of the change.
    pub at: Timestamp,
    /// The change.
    #[serde(flatten)]
    pub told: WatchUpdate,
}

/// Content of a change notification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchUpdate {
    /// The full state or a part, on which later events build.
    Snapshot(Box<WorkspaceSnapshot>),
    /// Something happened.
    Event(LifecycleEvent),
}

/// State of a workspace. A workspace with many processes is split into consecutive parts of the
/// same moment; all parts have one cursor, and a client resumes after it once it has received all
/// of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSnapshot {
    /// The workspace.
    pub workspace: WorkspaceInfo,
    /// Its processes, and its conversations with pending work.
    pub processes: Vec<ProcessInfo>,
    /// True if more processes follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

impl WatchUpdate {
    /// True if more parts of the same snapshot follow.
    #[must_use]
    pub fn has_more(&self) -> bool {
        matches!(self, Self::Snapshot(snapshot) if snapshot.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_text_that_is_given_back_as_it_was() {
        let cursor = WatchCursor {
            epoch: 0x1b_3144_545b_17e7,
            count: 42,
        };
        assert_eq!(serde_json::to_value(cursor).unwrap(), "001b3144545b17e7.42");
        assert_eq!(
            "001b3144545b17e7.42".parse::<WatchCursor>().unwrap(),
            cursor
        );
        for wrong in ["", "1", "g.1", "1.-1", "1.2.3"] {
            assert!(wrong.parse::<WatchCursor>().is_err(), "{wrong}");
        }
    }
}
