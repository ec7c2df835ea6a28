//! The other machine's side of a relay (`relay-to`): starts one connector and forwards its frames
//! to the daemon.
//!
//! * `settings`: the configuration file of the relayed connector.
//! * `dial`: links to the relay. `child`: the connector's process.
//! * `exchange`: open requests between the two. Pure.
//!
//! # Invariants
//!
//! * The connector starts once the relay has named its connection, and then outlives every link.
//!   Without a link its events wait or are refused as `unavailable`, so that their senders send
//!   them again.
//! * The connector ends with this process, however this process ends (`SUP-7`).

mod child;
mod dial;
mod exchange;
mod settings;

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use goondan_clock::{Instant, sleep};
use goondan_log::error_chain;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::envelope::Address;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use self::child::Child;
use self::dial::{RelayLink, dial};
use self::exchange::{Frames, OpenExchanges};
pub(crate) use self::settings::RelaySettings;
use super::wire::WireError;
use crate::back_off::back_off;
use crate::child_guard::ended;
use crate::limits::{
    PROGRAM_BACK_OFF_FIRST_MS, PROGRAM_BACK_OFF_MAX_MS, RELAY_PING_MS, RELAY_STOP_TIMEOUT_MS,
};

/// A relayed connector and its state.
struct Connector {
    /// The assignment that the relay expects.
    expected: ConnectorAssignment,
    exchange: OpenExchanges,
    process: Option<Child>,
    /// Time of the next start, if it is not running.
    start_at: Instant,
    started_at: Instant,
    /// Number of consecutive early exits.
    crashes: u32,
}

struct RelayedSide<'s> {
    settings: &'s RelaySettings,
    link: Option<RelayLink>,
    connector: Option<Connector>,
    /// Number of consecutive failed links.
    failures: u32,
}

/// Relays until SIGTERM or SIGINT, and then until the connector has ended.
///
/// # Errors
///
/// If it cannot start.
pub(crate) async fn run(settings: &RelaySettings) -> std::io::Result<()> {
    let mut stopping = stop_signal()?;
    let mut far = RelayedSide {
        settings,
        link: None,
        connector: None,
        failures: 0,
    };
    let mut dialing: Option<BoxFuture<'_, Result<RelayLink, String>>> = None;
    let mut tick = pin!(sleep(Duration::from_millis(RELAY_PING_MS)));
    loop {
        if far.link.is_none() && dialing.is_none() {
            dialing = Some(Box::pin(dial(settings, far.failures)));
        }
        let (link, connector) = (far.link.as_mut(), far.connector.as_mut());
        tokio::select! {
            _ = stopping.read_u8() => break,
            dialed = wait_for(dialing.as_mut()) => {
                dialing = None;
                far.on_dialed(dialed).await;
            }
            frame = of_link(link) => far.on_link(frame),
            said = of_connector(connector) => far.on_connector(said).await,
            () = &mut tick => {
                far.on_tick();
                tick.set(sleep(Duration::from_millis(RELAY_PING_MS)));
            }
        }
    }
    tracing::info!("asked to stop");
    far.stop().await;
    Ok(())
}

/// A socket that becomes readable on SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<UnixStream> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    reader.set_nonblocking(true)?;
    UnixStream::from_std(reader)
}

async fn wait_for<T>(future: Option<&mut BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn of_link(link: Option<&mut RelayLink>) -> Result<Bytes, WireError> {
    match link {
        Some(link) => link.next().await,
        None => pending().await,
    }
}

enum ConnectorOutput {
    Frame(Bytes),
    /// It is gone, or must be ended.
    Gone(WireError),
    Due,
}

async fn of_connector(connector: Option<&mut Connector>) -> ConnectorOutput {
    let Some(connector) = connector else {
        return pending().await;
    };
    match &mut connector.process {
        Some(process) => process
            .next()
            .await
            .map_or_else(ConnectorOutput::Gone, ConnectorOutput::Frame),
        None => {
            goondan_clock::sleep_until(connector.start_at).await;
            ConnectorOutput::Due
        }
    }
}

impl RelayedSide<'_> {
    async fn on_dialed(&mut self, dialed: Result<RelayLink, String>) {
        let dialed = dialed.and_then(|link| {
            // A connector that the daemon does not expect is not started.
            self.settings.assignment(&link.expected).map(|_fits| link)
        });
        match dialed {
            Ok(link) => {
                self.failures = 0;
                let relay = &self.settings.relay;
                tracing::info!(relay, connection = %link.expected.connection, "connected to the relay");
                self.take(link).await;
            }
            Err(reason) => {
                self.failures = self.failures.saturating_add(1);
                let pause_ms = u64::try_from(dial::pause(self.failures).as_millis());
                let pause_ms = pause_ms.unwrap_or(u64::MAX);
                let relay = &self.settings.relay;
                tracing::warn!(
                    relay,
                    reason,
                    pause_ms,
                    "cannot connect to the relay; trying again"
                );
            }
        }
    }

    async fn take(&mut self, link: RelayLink) {
        let is_another = |connector: &Connector| connector.expected != link.expected;
        if self.connector.as_ref().is_some_and(is_another) {
            tracing::warn!("the relay belongs to another connection now; restarting the connector");
            self.end_connector().await;
        }
        let connector = self.connector.get_or_insert_with(|| {
            let me = Address::Connector {
                name: link.expected.connection.clone(),
            };
            Connector {
                expected: link.expected.clone(),
                exchange: OpenExchanges::new(me),
                process: None,
                start_at: Instant::now(),
                started_at: Instant::now(),
                crashes: 0,
            }
        });
        let again = connector.exchange.again();
        let said = again.and_then(|frames| frames.into_iter().try_for_each(|it| link.put(it)));
        self.link = Some(link);
        if let Err(error) = said {
            self.lose_link(&error);
        }
    }

    fn on_link(&mut self, frame: Result<Bytes, WireError>) {
        let Some(connector) = &mut self.connector else {
            return;
        };
        match frame.and_then(|frame| connector.exchange.of_relay(&frame)) {
            Ok(frames) => self.pass_on(frames),
            Err(error) => self.lose_link(&error),
        }
    }

    fn lose_link(&mut self, error: &WireError) {
        let error = error_chain(error);
        tracing::warn!(error, "the link to the relay ended; reconnecting");
        self.link = None;
        // A link that ends immediately counts as a failed link.
        self.failures = self.failures.saturating_add(1);
        let cancelled = self.connector.as_mut().map(|it| it.exchange.lose_link());
        match cancelled.unwrap_or_else(|| Ok(Vec::new())) {
            Ok(to_connector) => self.pass_on(Frames {
                to_connector,
                ..Frames::default()
            }),
            Err(error) => tracing::error!(error = error_chain(&error), "failed to cancel calls"),
        }
    }

    async fn on_connector(&mut self, said: ConnectorOutput) {
        let Some(connector) = &mut self.connector else {
            return;
        };
        let frame = match said {
            ConnectorOutput::Frame(frame) => frame,
            ConnectorOutput::Gone(error) => return self.lose_connector(&error).await,
            ConnectorOutput::Due => return self.start_connector().await,
        };
        let now = (Instant::now(), uuid::Uuid::now_v7());
        match connector.exchange.of_connector(&frame, now) {
            Ok(frames) => self.pass_on(frames),
            Err(error) => self.lose_connector(&error).await,
        }
    }

    /// Sends frames to their recipients. Without a link, frames to the relay are dropped, because
    /// the next link sends the relevant ones again.
    fn pass_on(&mut self, frames: Frames) {
        if let Some(link) = &self.link {
            let said = frames.to_relay.into_iter().try_for_each(|it| link.put(it));
            if let Err(error) = said {
                // Must come first, because it also notifies the connector of the calls that end
                // with the link.
                self.lose_link(&error);
            }
        }
        let process = self.connector.as_ref().and_then(|it| it.process.as_ref());
        if let Some(process) = process {
            for frame in frames.to_connector {
                if process.put(frame).is_err() {
                    // Its silence or exit is detected soon.
                    tracing::error!("the connector does not read its input");
                    return;
                }
            }
        }
    }

    async fn start_connector(&mut self) {
        let settings = self.settings;
        let Some(connector) = &mut self.connector else {
            return;
        };
        let started = match settings.assignment(&connector.expected) {
            Ok(assignment) => Child::start(&assignment).await,
            Err(why) => Err(format!("cannot be created: {why}")),
        };
        connector.started_at = Instant::now();
        match started {
            Ok(process) => connector.process = Some(process),
            Err(why) => self.start_later(&why),
        }
    }

    async fn lose_connector(&mut self, error: &WireError) {
        let process = self.connector.as_mut().and_then(|it| it.process.take());
        let Some(process) = process else {
            return;
        };
        let status = process.end().await;
        let how = match (error, status) {
            (WireError::Closed, Ok(status)) => ended(status),
            (error, _) => format!("was ended: {}", error_chain(error)),
        };
        self.start_later(&how);
    }

    /// Restarts the connector after a pause that grows with every exit (`SUP-4`). `how` describes
    /// the exit; the text follows "the connector".
    fn start_later(&mut self, how: &str) {
        let Some(connector) = &mut self.connector else {
            return;
        };
        let lived = Instant::now() - connector.started_at;
        let was_well = lived >= Duration::from_millis(PROGRAM_BACK_OFF_MAX_MS);
        connector.crashes = if was_well {
            1
        } else {
            connector.crashes.saturating_add(1)
        };
        let pause = back_off(
            connector.crashes,
            PROGRAM_BACK_OFF_FIRST_MS,
            PROGRAM_BACK_OFF_MAX_MS,
        );
        connector.start_at = Instant::now() + pause;
        let pause_s = pause.as_secs();
        tracing::error!(how, pause_s, "the connector ended; starting it again");
        match connector.exchange.lose_connector(how) {
            Ok(to_relay) => self.pass_on(Frames {
                to_relay,
                ..Frames::default()
            }),
            Err(error) => tracing::error!(
                error = error_chain(&error),
                "failed to report the end of the connector"
            ),
        }
    }

    async fn end_connector(&mut self) {
        let connector = self.connector.take();
        if let Some(process) = connector.and_then(|connector| connector.process) {
            // The connector got no answers; its senders send again.
            drop(process.end().await);
        }
    }

    fn on_tick(&mut self) {
        let Some(connector) = &mut self.connector else {
            return;
        };
        if let Some(process) = &connector.process {
            // A connector that does not read is detected as silent.
            process.ping().ok();
        }
        match connector.exchange.expire(Instant::now()) {
            Ok(to_connector) => self.pass_on(Frames {
                to_connector,
                ..Frames::default()
            }),
            Err(error) => tracing::error!(error = error_chain(&error), "failed to send a refusal"),
        }
    }

    /// Stops the connector gracefully, while the link lasts.
    async fn stop(mut self) {
        let process = self.connector.as_ref().and_then(|it| it.process.as_ref());
        if process.is_none_or(|process| process.shut_down().is_err()) {
            return;
        }
        let finishing = async {
            loop {
                let (link, connector) = (self.link.as_mut(), self.connector.as_mut());
                tokio::select! {
                    frame = of_link(link) => self.on_link(frame),
                    said = of_connector(connector) => {
                        let (ConnectorOutput::Frame(frame), Some(connector)) = (said, &mut self.connector) else {
                            return;
                        };
                        let now = (Instant::now(), uuid::Uuid::now_v7());
                        match connector.exchange.of_connector(&frame, now) {
                            Ok(frames) if !frames.is_over => self.pass_on(frames),
                            Ok(_) | Err(_) => return,
                        }
                    }
                }
            }
        };
        let limit = Duration::from_millis(RELAY_STOP_TIMEOUT_MS);
        if goondan_clock::timeout(limit, finishing).await.is_err() {
            tracing::warn!("connector did not stop in time; killing it");
        }
        self.end_connector().await;
    }
}
