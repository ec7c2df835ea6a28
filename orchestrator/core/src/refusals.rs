//! Error messages for rejected requests.

use goondan_durable::FileError;
use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use goondan_store::StoreError;

/// Error returned to an agent whose request cannot be fulfilled.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refused {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<Refused> for AgentAnswer {
    fn from(refused: Refused) -> Self {
        Self::Refused {
            code: refused.code.to_owned(),
            message: refused.message,
        }
    }
}

/// Error for events of a deleted instance.
pub(super) fn deleted_error(key: &InstanceKey) -> ControlError {
    ControlError::new(
        ErrorCode::Cancelled,
        format!("instance `{key}` was deleted, and what waited in it with it"),
    )
}

/// Error for events of a closed workspace.
pub(super) fn closed_error(id: &WorkspaceId) -> ControlError {
    let message = format!("workspace `{id}` was stopped");
    ControlError::new(ErrorCode::Cancelled, message)
        .suggest("the event is safe; `gdn run` goes on with it")
}

/// Error for clients that wait for a parked event.
pub(super) fn parked_error(event_id: &EventId, reason: &str) -> ControlError {
    let message = format!("event `{event_id}` is parked: {reason}");
    ControlError::new(ErrorCode::EventParked, message).suggest(format!(
        "see what it does to its agent in `gdn logs`, then `gdn event retry {event_id}` or \
         `gdn event drop {event_id}`"
    ))
}

/// Converts a store error to a client error.
pub fn control_error(error: &StoreError) -> ControlError {
    let text = goondan_log::error_chain(error);
    match error {
        StoreError::NoInstance { .. } => ControlError::new(ErrorCode::InstanceNotFound, text)
            .suggest("`gdn instance list` shows the instances there are"),
        StoreError::WrongEvent { .. } => ControlError::new(ErrorCode::EventNotFound, text)
            .suggest("`gdn event list` shows the events there are"),
        StoreError::KeyTaken { .. } => ControlError::new(ErrorCode::InstanceKeyTaken, text),
        StoreError::RootsOverlap { .. } => ControlError::new(ErrorCode::WorkspaceConflict, text)
            .suggest("move the project, or choose another state directory with `--state-root`"),
        StoreError::WorkspaceTaken { .. } => ControlError::new(ErrorCode::WorkspaceConflict, text),
        StoreError::File(FileError::Damaged { .. }) | StoreError::BadArchive { .. } => {
            ControlError::new(ErrorCode::Damaged, text)
        }
        StoreError::File(FileError::Io { .. }) if error.is_permanent() => {
            ControlError::new(ErrorCode::Damaged, text)
        }
        StoreError::HistoryChanged => ControlError::new(ErrorCode::InvalidRequest, text),
        StoreError::File(FileError::Io { .. }) => ControlError::new(ErrorCode::Storage, text)
            .suggest("mend the cause; nothing that was accepted is lost"),
        _ => ControlError::new(ErrorCode::Storage, text),
    }
}

pub(crate) fn no_workspace(id: &WorkspaceId) -> ControlError {
    ControlError::new(
        ErrorCode::WorkspaceNotFound,
        format!("no workspace `{id}` is running"),
    )
    .suggest("start it with `gdn run`; `gdn workspace list` shows those that run")
}

pub(crate) fn no_other_nodes() -> ControlError {
    ControlError::new(
        ErrorCode::InvalidRequest,
        "the workspaces of this daemon are on this machine alone",
    )
    .suggest("to have them on others, too, name a PostgreSQL server in config.json: `replication`")
}

pub(crate) fn stopping_error() -> ControlError {
    ControlError::new(ErrorCode::Stopping, "the daemon is stopping")
        .suggest("an accepted event is safe and is answered after `gdn run`; ask for the answer with the same `--event-id`")
}
