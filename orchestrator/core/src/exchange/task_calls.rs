//! Calls to connections on behalf of tasks, and their results.

use goondan_protocol::call::CallOutcome;
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::service::ConnectorRequest;

use super::TaskRef;

/// Id of the notification that a call delivers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NotificationRef {
    pub(crate) at: TaskRef,
    pub(crate) id: String,
}

/// Purpose of a task's call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskCallRef {
    Notification(NotificationRef),
    /// The pull request as which the proposal of this task is delivered.
    PullRequest(TaskRef),
    /// If the pull request of an earlier attempt of the merge queue is open, for the attempt in
    /// progress, which is about this task.
    QueueLook {
        at: TaskRef,
        attempt: u64,
        about: u64,
    },
    /// The pull request of an attempt of the merge queue.
    QueuePullRequest {
        at: TaskRef,
        attempt: u64,
    },
}

impl TaskCallRef {
    pub(crate) fn at(&self) -> &TaskRef {
        match self {
            Self::Notification(of) => &of.at,
            Self::PullRequest(at)
            | Self::QueueLook { at, .. }
            | Self::QueuePullRequest { at, .. } => at,
        }
    }
}

/// A call requested by a task.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) of: TaskCallRef,
    pub(crate) agent: AgentName,
    pub(crate) connection: ConnectionName,
    pub(crate) request: ConnectorRequest,
    pub(crate) deadline_ms: u64,
    pub(crate) is_idempotent: bool,
}

#[derive(Debug)]
pub(crate) struct TaskCallResult {
    pub(crate) of: TaskCallRef,
    pub(crate) outcome: CallOutcome,
}
