//! Error messages for rejected requests.

use goondan_durable::FileError;
use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use goondan_store::StoreError;

/// Error returned to an agent whose request cannot be fulfilled.
#[derive(Debug)]
pub(super) struct AgentRequestError {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl AgentRequestError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<AgentRequestError> for AgentAnswer {
    fn from(refused: AgentRequestError) -> Self {
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
        format!("conversation `{key}` was deleted with its waiting events"),
    )
}

/// Error for events of a closed workspace.
pub(super) fn closed_error(id: &WorkspaceId) -> ControlError {
    let message = format!("workspace `{id}` was stopped");
    ControlError::new(ErrorCode::Cancelled, message)
        .suggest("the event is safe; `gdn run` resumes it")
}

/// Error for clients that wait for a parked event.
pub(super) fn parked_error(event_id: &EventId, reason: &str) -> ControlError {
    let message = format!("event `{event_id}` is parked: {reason}");
    ControlError::new(ErrorCode::EventParked, message).suggest(format!(
        "check the agent's crash in `gdn logs`, then run `gdn event retry {event_id}` or `gdn \
         event drop {event_id}`"
    ))
}

/// Converts a store error to a client error.
pub fn control_error(error: &StoreError) -> ControlError {
    let text = goondan_log::error_chain(error);
    match error {
        StoreError::NoInstance { .. } => ControlError::new(ErrorCode::InstanceNotFound, text)
            .suggest("list conversations: `gdn conversation list`"),
        StoreError::WrongEvent { .. } => ControlError::new(ErrorCode::EventNotFound, text)
            .suggest("list events: `gdn event list`"),
        StoreError::KeyTaken { .. } => ControlError::new(ErrorCode::InstanceKeyTaken, text),
        StoreError::RootsOverlap { .. } => ControlError::new(ErrorCode::WorkspaceConflict, text)
            .suggest("move the project, or choose another state directory with `--state-root`"),
        StoreError::TasksRootOverlaps { .. } => {
            ControlError::new(ErrorCode::WorkspaceConflict, text).suggest(
                "move the project, or choose another tasks directory: `tasksRoot` in config.json, \
                 or GOONDAN_TASKS_ROOT",
            )
        }
        StoreError::WorkspaceTaken { .. } => ControlError::new(ErrorCode::WorkspaceConflict, text),
        StoreError::File(FileError::Damaged { .. }) | StoreError::BadArchive { .. } => {
            ControlError::new(ErrorCode::Damaged, text)
        }
        StoreError::File(FileError::Io { .. }) if error.is_permanent() => {
            ControlError::new(ErrorCode::Damaged, text)
        }
        StoreError::HistoryChanged => ControlError::new(ErrorCode::InvalidRequest, text),
        StoreError::File(FileError::Io { .. }) => ControlError::new(ErrorCode::Storage, text)
            .suggest("fix the cause; no accepted event is lost"),
        _ => ControlError::new(ErrorCode::Storage, text),
    }
}

pub(crate) fn no_workspace(id: &WorkspaceId) -> ControlError {
    ControlError::new(
        ErrorCode::WorkspaceNotFound,
        format!("workspace `{id}` is not running"),
    )
    .suggest("start it with `gdn run`; list running workspaces with `gdn workspace list`")
}

pub(crate) fn no_other_nodes() -> ControlError {
    ControlError::new(ErrorCode::InvalidRequest, "replication is not configured").suggest(
        "to replicate workspaces, configure a PostgreSQL server under `replication` in config.json",
    )
}

pub(crate) fn stopping_error() -> ControlError {
    ControlError::new(ErrorCode::Stopping, "the daemon is stopping")
        .suggest("an accepted event is safe and is answered after `gdn run`; get the answer with the same `--event-id`")
}
