//! External events, sent to the supervisor for the core.

use goondan_protocol::control::{Call, ControlError};
use goondan_protocol::ids::WorkspaceId;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::control::client::ControlClient;
use goondan_core::{CoreInput, RequestToken};

/// An event outside the core.
#[derive(Debug)]
pub(super) enum ShellEvent {
    Input(CoreInput),
    /// A batch of a child's messages for the core, and the child's queue slot, which is released
    /// once the core has processed the batch.
    Inputs(Vec<CoreInput>, OwnedSemaphorePermit),
    /// A client's request with the connection for the response.
    Request {
        token: RequestToken,
        client: ControlClient,
        id: u64,
        call: Box<Call>,
    },
    /// Result of handing a workspace over to another node.
    HandedOver {
        workspace_id: WorkspaceId,
        /// The client's request, if the core does not wait.
        token: Option<RequestToken>,
        result: Result<(), ControlError>,
    },
    /// A response created outside the core.
    Answer {
        token: RequestToken,
        result: Result<Value, ControlError>,
    },
}
