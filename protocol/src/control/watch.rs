//! `workspace.watch`: what happens in a workspace, as it happens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ProcessInfo, WorkspaceInfo};
use crate::ids::{InstanceKey, WorkspaceId};
use crate::lifecycle::LifecycleEvent;
use crate::time::Timestamp;

/// `workspace.watch`: ends when the workspace is stopped, or its client goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What was seen last: what came after it is told first. Without it, or if the daemon does not know any
    /// more what came after it, a snapshot is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WatchCursor>,
}

/// `turn.follow`: what happens in the turns of a conversation from now on, whoever sent their events, as
/// `turn.progress` and `turn.piece` notifications under the request's id. Ends when the workspace is stopped, or its
/// client goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowTurns {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation. There need not be one yet.
    pub instance_key: InstanceKey,
}

/// A place in what happened in a workspace since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct WatchCursor {
    /// Which opening of the workspace it is about.
    pub epoch: u64,
    /// How many events there were up to here.
    pub count: u64,
}

/// A text that is no cursor.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no cursor; give back one that the daemon gave, or none to begin with a snapshot")]
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
    /// The request that watches.
    pub request_id: u64,
    /// Where to go on behind this.
    pub cursor: WatchCursor,
    /// When.
    pub at: Timestamp,
    /// What is told.
    #[serde(flatten)]
    pub told: WatchUpdate,
}

/// What those who watch are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchUpdate {
    /// How everything is, or a part of it; what comes after it builds on it.
    Snapshot(Box<WorkspaceSnapshot>),
    /// Something happened.
    Event(LifecycleEvent),
}

/// How a workspace is: of many processes, a part. All parts are of one moment, follow each other and have one
/// cursor, behind which goes on who has them all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSnapshot {
    /// The workspace.
    pub workspace: WorkspaceInfo,
    /// Its processes, and its conversations with something to do.
    pub processes: Vec<ProcessInfo>,
    /// Whether more of them follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

impl WatchUpdate {
    /// Whether more of the same snapshot follows.
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
