//! What tasks have connections do, and what came of it.

use goondan_protocol::call::CallOutcome;
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::service::Request;

use super::TaskRef;

/// For which notification of a task a call is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NotificationRef {
    pub(crate) at: TaskRef,
    pub(crate) id: String,
}

/// A call that a task wants made.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) of: NotificationRef,
    pub(crate) agent: AgentName,
    pub(crate) connection: ConnectionName,
    pub(crate) request: Request,
    pub(crate) deadline_ms: u64,
    pub(crate) is_idempotent: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct TaskCalled {
    pub(crate) of: NotificationRef,
    pub(crate) outcome: CallOutcome,
}
