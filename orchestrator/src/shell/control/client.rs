//! A client that waits for responses.

use std::sync::Arc;

use bytes::Bytes;
use goondan_protocol::control::{ControlError, RpcResponse};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::places::{InUse, RequestGuard};
use goondan_core::Peer;

/// The part of a client's connection needed for responses.
#[derive(Debug, Clone)]
pub(in crate::shell) struct ControlClient {
    pub(super) outgoing: mpsc::Sender<Bytes>,
    pub(super) connection: CancellationToken,
    pub(in crate::shell) peer: Peer,
    /// Held by each open request through its own clone of this client.
    pub(super) _in_use: InUse,
    pub(super) _wait: Option<Arc<RequestGuard>>,
}

impl ControlClient {
    /// Clones the client for a waiting request. `wait` is `None` if the waiting limit is reached.
    pub(super) fn waiting(&self, wait: Option<Arc<RequestGuard>>) -> Self {
        Self {
            _wait: wait,
            ..self.clone()
        }
    }

    /// Sends a message. Disconnects a client that does not read.
    pub(in crate::shell) fn send(&self, message: &impl Serialize) {
        match serde_json::to_vec(message) {
            Ok(body) => {
                if self.outgoing.try_send(Bytes::from(body)).is_err() {
                    self.connection.cancel();
                }
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "unwritable answer"
                );
            }
        }
    }

    /// Responds to a request with serialized JSON.
    pub(in crate::shell) fn respond_raw(&self, id: u64, result: Box<RawValue>) {
        self.send(&RpcResponse::from((id, result)));
    }

    pub(in crate::shell) fn respond(
        &self,
        id: u64,
        result: Result<serde_json::Value, ControlError>,
    ) {
        self.send(&RpcResponse::new(Some(id), result));
    }
}
