//! Connects the other machine to the relay, with unlimited retries.

use std::time::Duration;

use bytes::Bytes;
use goondan_clock::{sleep, timeout};
use goondan_log::error_chain;
use goondan_protocol::definition::ConnectorAssignment;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::settings::RelaySettings;
use crate::back_off::back_off;
use crate::limits::{RELAY_BACK_OFF_FIRST_MS, RELAY_BACK_OFF_MAX_MS, RELAY_HANDSHAKE_TIMEOUT_MS};
use crate::relay::handshake::shake_hands;
use crate::relay::wire::{LastHeard, PeerFrames, Queue, Wire, WireError, next_frame, write_all};
use crate::tcp;

/// A link to the relay, with the assignment that it expects.
pub(super) struct RelayLink {
    pub(super) expected: ConnectorAssignment,
    incoming: PeerFrames,
    heard: LastHeard,
    queue: Queue,
    _writing: JoinSet<Result<(), WireError>>,
}

impl RelayLink {
    /// Reads the relay's next frame. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the link is gone.
    pub(super) async fn next(&mut self) -> Result<Bytes, WireError> {
        tokio::select! {
            frame = next_frame(&mut self.incoming) => frame,
            () = self.heard.silence() => Err(WireError::Silent),
        }
    }

    /// Queues a frame for the relay.
    ///
    /// # Errors
    ///
    /// [`WireError::NotRead`] if the relay does not read.
    pub(super) fn put(&self, frame: impl Into<Bytes>) -> Result<(), WireError> {
        self.queue.put(frame)
    }
}

/// Connects, after the pause for this number of consecutive failures.
///
/// # Errors
///
/// A description of the failure.
pub(super) async fn dial(settings: &RelaySettings, failures: u32) -> Result<RelayLink, String> {
    if failures > 0 {
        sleep(pause(failures)).await;
    }
    let limit = Duration::from_millis(RELAY_HANDSHAKE_TIMEOUT_MS);
    timeout(limit, connect(settings))
        .await
        .unwrap_or_else(|_elapsed| Err(format!("no answer within {RELAY_HANDSHAKE_TIMEOUT_MS} ms")))
}

/// Pause after consecutive failures.
pub(super) fn pause(failures: u32) -> Duration {
    back_off(failures, RELAY_BACK_OFF_FIRST_MS, RELAY_BACK_OFF_MAX_MS)
}

async fn connect(settings: &RelaySettings) -> Result<RelayLink, String> {
    let stream = tcp::connect(&settings.relay).await?;
    // Best effort: without it, small frames are only delayed.
    stream.set_nodelay(true).ok();
    // The certificate is identified by its fingerprint, so the name in it is irrelevant.
    let address = stream.peer_addr().map_err(|error| error_chain(&error))?;
    let name = ServerName::IpAddress(address.ip().into());
    let connector = TlsConnector::from(std::sync::Arc::clone(&settings.tls));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| error_chain(&error))?;
    let mut wire = Wire::over(stream.into());
    let expected = shake_hands(&mut wire).await;
    let expected = expected.map_err(|error| error_chain(&error))?;
    let Wire {
        incoming,
        outgoing,
        heard,
    } = wire.greeted();
    let (queue, frames) = Queue::new();
    let mut writing = JoinSet::new();
    writing.spawn(write_all(frames, outgoing));
    Ok(RelayLink {
        expected,
        incoming,
        heard,
        queue,
        _writing: writing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_half_a_minute() {
        let pauses = [1, 2, 3, 7, 8, u32::MAX].map(|failures| pause(failures).as_millis());
        assert_eq!(pauses, [250, 500, 1_000, 16_000, 30_000, 30_000]);
    }
}
