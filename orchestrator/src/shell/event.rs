//! What happens outside the core and is brought to the supervisor, which tells the core.

use goondan_protocol::control::{Call, ControlError};
use goondan_protocol::ids::WorkspaceId;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::control::client::Client;
use goondan_core::{Input, RequestToken};

/// Something that happened outside the core.
#[derive(Debug)]
pub(super) enum Event {
    /// For the core.
    Input(Input),
    /// What a child said without a pause, for the core; and the child's place, which is free again once
    /// the core has dealt with it.
    Inputs(Vec<Input>, OwnedSemaphorePermit),
    /// A client's request, and the way back to it.
    Request {
        token: RequestToken,
        client: Client,
        id: u64,
        call: Box<Call>,
    },
    /// A workspace was given up to another node, or was not.
    HandedOver {
        workspace_id: WorkspaceId,
        /// Who waits, if the core does not.
        token: Option<RequestToken>,
        result: Result<(), ControlError>,
    },
    /// The answer to a request, made outside the core.
    Answer {
        token: RequestToken,
        result: Result<Value, ControlError>,
    },
}
