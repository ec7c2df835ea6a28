//! A connection that waits for the reply to one of its events (`MSG-13`).

use goondan_protocol::ids::ConnectionName;

use crate::ProcessId;

/// A connection that waits for an event's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplyWaiter {
    pub(super) connection: ConnectionName,
    pub(super) process: ProcessId,
    pub(super) request_id: u64,
}
