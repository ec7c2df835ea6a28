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

/// A call requested by a task.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) of: NotificationRef,
    pub(crate) agent: AgentName,
    pub(crate) connection: ConnectionName,
    pub(crate) request: ConnectorRequest,
    pub(crate) deadline_ms: u64,
    pub(crate) is_idempotent: bool,
}

#[derive(Debug)]
pub(crate) struct TaskCallResult {
    pub(crate) of: NotificationRef,
    pub(crate) outcome: CallOutcome,
}
