//! A client that waits for answers.

use std::sync::Arc;

use bytes::Bytes;
use goondan_protocol::control::{ControlError, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::places::{InUse, Wait};
use goondan_core::Peer;

/// A client's connection, as far as answers need it.
#[derive(Debug, Clone)]
pub(in crate::shell) struct Client {
    pub(super) outgoing: mpsc::Sender<Bytes>,
    pub(super) connection: CancellationToken,
    /// Who it is.
    pub(in crate::shell) peer: Peer,
    /// Held by each request that is open, through its own copy of this client.
    pub(super) _in_use: InUse,
    /// Held by a request that waits.
    pub(super) _wait: Option<Arc<Wait>>,
}

impl Client {
    /// The same client, for a request that waits if there is a place for that.
    pub(super) fn waiting(&self, wait: Option<Arc<Wait>>) -> Self {
        Self {
            _wait: wait,
            ..self.clone()
        }
    }

    /// Sends a message; a client that does not read what it is sent is cut off.
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

    /// Answers a request with a result that is JSON already.
    pub(in crate::shell) fn respond_raw(&self, id: u64, result: Box<RawValue>) {
        self.send(&Response::from((id, result)));
    }

    /// Answers a request.
    pub(in crate::shell) fn respond(
        &self,
        id: u64,
        result: Result<serde_json::Value, ControlError>,
    ) {
        self.send(&Response::new(Some(id), result));
    }
}
