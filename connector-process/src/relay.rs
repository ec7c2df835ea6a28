//! A connector that runs on another machine (`REP-1`): the frames of a connector process over TLS
//! 1.3.
//!
//! Both ends are processes of this binary. The near end is a connection of the daemon: it listens,
//! admits clients with listed certificates, and forwards the requests of the far end to the
//! orchestrator. The far end (`relay-to`) starts an ordinary connector process on its machine and
//! acts as its orchestrator.
//!
//! * `pins`: identifies peers by listed certificate fingerprints.
//! * `wire`: frames over TLS. `handshake`: the handshake between the two ends.
//! * `near`: one link on the daemon's side. `calls`: outgoing calls of agents to the other machine.
//! * `far`: the other machine's side.
//!
//! # Invariants
//!
//! * A link failure never duplicates an event: it has an id before it is sent for the first time,
//!   and is sent again under that id until it is answered (`MSG-13`).
//! * One connector at a time: a second client is rejected while the first one is connected.
//! * Settings and secrets of the connector never leave its machine.

mod calls;
pub(crate) mod far;
mod handshake;
mod near;
mod pins;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use goondan_clock::{sleep, timeout};
use goondan_connectors::Values;
use goondan_log::{LineLimit, error_chain};
use goondan_protocol::JsonObject;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::ResourceName;
use goondan_protocol::sandbox::SandboxPolicy;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::calls::RelayedCalls;
use self::handshake::{decline, hear_hello, say_welcome};
use self::near::RelayContext;
use self::pins::{Fingerprint, PinnedClient, client_of, server_config};
use self::wire::{Wire, WireError};
use crate::gateway::Gateway;
use crate::limits::{
    ACCEPT_RETRY_MS, RELAY_HANDSHAKE_TIMEOUT_MS, RELAY_HANDSHAKES_MAX, RELAY_REFUSALS_INTERVAL_MS,
    RELAY_REFUSALS_TOLD,
};
use crate::listener::{self, BoundListener, ConnectionLimiter, ConnectionPermit};

/// The daemon's side of a relay.
pub(crate) struct Relay {
    host: String,
    port: u16,
    acceptor: TlsAcceptor,
    clients: Arc<[PinnedClient]>,
    /// The assignment that the other side must match.
    expected: ConnectorAssignment,
}

/// An authenticated client that has sent its hello.
struct AuthenticatedClient {
    client: PinnedClient,
    address: SocketAddr,
    wire: Wire,
}

struct ClientSession {
    client: PinnedClient,
    cut: CancellationToken,
    serving: JoinSet<()>,
}

impl Relay {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why the certificate cannot be used.
    pub(crate) fn new(assignment: &ConnectorAssignment) -> Result<Self, String> {
        let values = Values::of("relay", &assignment.config);
        let clients = values.list("clients").into_iter().filter_map(|client| {
            Some(PinnedClient {
                name: client.text("name")?.to_owned(),
                fingerprint: Fingerprint::of_hex(client.text("fingerprint")?)?,
            })
        });
        let clients: Vec<PinnedClient> = clients.collect();
        let certificate = values.text("certificate").unwrap_or_default();
        let key = assignment.secrets.get("key").map_or("", String::as_str);
        let config = server_config((certificate, key), clients.clone())?;
        let brought = values.text("connector").map(ResourceName::new);
        let brought = brought.transpose().map_err(|error| error_chain(&error))?;
        let port = values.number("port").unwrap_or_default();
        Ok(Self {
            host: values.text("host").unwrap_or_default().to_owned(),
            port: u16::try_from(port).unwrap_or_default(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            clients: clients.into(),
            expected: ConnectorAssignment {
                workspace_id: assignment.workspace_id.clone(),
                connection: assignment.connection.clone(),
                connector: brought.unwrap_or_else(|| assignment.connector.clone()),
                program: None,
                project_root: None,
                config: JsonObject::new(),
                secrets: BTreeMap::new(),
                sandbox: SandboxPolicy::default(),
                egress_socket: None,
                package_cache: None,
                egress: Vec::new(),
            },
        })
    }

    /// Serves clients until `stop`, then until in-flight calls have ended.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let Some(listening) = listener::open(&self.host, self.port, &gateway, &stop).await else {
            return;
        };
        let BoundListener { listener, address } = listening;
        tracing::info!(%address, "listening");
        let me = Address::Connector {
            name: self.expected.connection.clone(),
        };
        let calls = Arc::new(RelayedCalls::new(me));
        let serving = Arc::new(RelayState {
            calls: Arc::clone(&calls),
            gateway: gateway.clone(),
            expected: self.expected.clone(),
            place: address.to_string(),
            turned_away: TaskTracker::new(),
            stop: stop.clone(),
        });
        gateway.serve(calls).await;
        serving.report_alone().await;
        let connected = self.accept(&listener, &serving, &stop).await;
        drop(listener);
        if let Some(connected) = connected {
            // In-flight calls of agents may finish.
            gateway.calls_over().cancelled().await;
            connected.end().await;
        }
        serving.turned_away.close();
        serving.turned_away.wait().await;
    }

    /// Admits authorized clients, one at a time, until `stop`. Returns the client connected at that
    /// time.
    async fn accept(
        &self,
        listener: &TcpListener,
        serving: &Arc<RelayState>,
        stop: &CancellationToken,
    ) -> Option<ClientSession> {
        let mut arriving = JoinSet::new();
        let limiter = ConnectionLimiter::new(RELAY_HANDSHAKES_MAX, 0);
        let entrance = Arc::new(RelayEntrance {
            acceptor: self.acceptor.clone(),
            clients: Arc::clone(&self.clients),
            greeting: Mutex::default(),
        });
        let mut connected: Option<ClientSession> = None;
        let mut refusals = LineLimit::new(RELAY_REFUSALS_TOLD, RELAY_REFUSALS_INTERVAL_MS);
        loop {
            tokio::select! {
                () = stop.cancelled() => return connected,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        let permit = limiter.admit(address.ip());
                        let entrance = Arc::clone(&entrance);
                        arriving.spawn(async move {
                            let arrived = entrance.arrive((stream, address), &permit).await;
                            arrived.map_err(|why| (address, why))
                        });
                    }
                    Err(error) => {
                        tracing::warn!(error = error_chain(&error), "failed to accept a connection");
                        sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                    }
                },
                Some(arrived) = arriving.join_next() => match arrived {
                    Ok(Ok(arrived)) => connected = serving.admit(arrived, connected.take()).await,
                    Ok(Err((address, why))) => refuse(&mut refusals, address, &why),
                    Err(fault) => tracing::error!(error = error_chain(&fault), "a handshake failed"),
                },
            }
        }
    }
}

/// Logs a refusal. The number of lines is limited, because any host that can reach the port can
/// cause refusals.
fn refuse(refusals: &mut LineLimit, address: SocketAddr, why: &str) {
    match refusals.admit(Instant::now()) {
        None => {}
        Some(0) => tracing::warn!(%address, why, "a connection to the relay was refused"),
        Some(left_out) => tracing::warn!(
            %address,
            why,
            left_out,
            "a connection to the relay was refused; some refusals were not logged"
        ),
    }
}

/// Entrance of a relay: a client presents a listed certificate and then sends hello.
///
/// Connections without a listed certificate compete for [`RELAY_HANDSHAKES_MAX`] slots, so that
/// silent connections keep no client out: with one more, the peer that holds the most loses its
/// oldest. A client that has presented a listed certificate keeps its slot, one per client: of two
/// connections of one client that have not sent hello, the later one counts.
struct RelayEntrance {
    acceptor: TlsAcceptor,
    clients: Arc<[PinnedClient]>,
    /// The latest connection of each client that has not sent hello. A new connection cancels it.
    greeting: Mutex<HashMap<String, CancellationToken>>,
}

impl RelayEntrance {
    /// Waits until a client has presented a listed certificate and sent hello, or returns the
    /// reason for a refusal.
    async fn arrive(
        &self,
        (stream, address): (TcpStream, SocketAddr),
        permit: &ConnectionPermit,
    ) -> Result<AuthenticatedClient, String> {
        let arriving = async {
            let (client, mut wire) = tokio::select! {
                shown = self.show(stream) => shown?,
                () = permit.evicted().cancelled() => {
                    return Err("it was evicted before it identified itself".to_owned());
                }
            };
            permit.set_working();
            let replaced = self.begin_greeting(&client);
            let heard = tokio::select! {
                heard = hear_hello(&mut wire) => heard,
                () = replaced.cancelled() => {
                    return Err(format!("`{}`: it connected again before it sent hello", client.name));
                }
            };
            match heard {
                Ok(()) => Ok(AuthenticatedClient {
                    client,
                    address,
                    wire,
                }),
                Err(error) => {
                    let why = format!("`{}`: {}", client.name, error_chain(&error));
                    // The peer may be gone already.
                    drop(decline(&mut wire, error_chain(&error)).await);
                    Err(why)
                }
            }
        };
        timeout(Duration::from_millis(RELAY_HANDSHAKE_TIMEOUT_MS), arriving)
            .await
            .unwrap_or_else(|_elapsed| {
                Err(format!(
                    "it did not identify itself within {RELAY_HANDSHAKE_TIMEOUT_MS} ms"
                ))
            })
    }

    /// Waits until a connection has presented a listed certificate.
    async fn show(&self, stream: TcpStream) -> Result<(PinnedClient, Wire), String> {
        // Best effort: without it, small frames are only delayed.
        stream.set_nodelay(true).ok();
        let accepted = self.acceptor.accept(stream).await;
        let stream = accepted.map_err(|error| error_chain(&error))?;
        let client = client_of(&self.clients, stream.get_ref().1.peer_certificates());
        let client = client.ok_or("it presented no listed certificate")?;
        Ok((client.clone(), Wire::over(stream.into())))
    }

    /// Registers a client's greeting and cancels an earlier one. The returned token is canceled
    /// when the client connects again.
    fn begin_greeting(&self, client: &PinnedClient) -> CancellationToken {
        let replaced = CancellationToken::new();
        let mut greeting = self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = greeting.insert(client.name.clone(), replaced.clone()) {
            earlier.cancel();
        }
        replaced
    }
}

/// Shared state of all links of a relay.
struct RelayState {
    calls: Arc<RelayedCalls>,
    gateway: Gateway,
    expected: ConnectorAssignment,
    place: String,
    /// Clients being notified that another client is connected.
    turned_away: TaskTracker,
    stop: CancellationToken,
}

impl RelayState {
    async fn report_alone(&self) {
        let detail = format!("listening on {}; no client is connected", self.place);
        self.gateway.report(false, detail).await;
    }

    /// Admits a client and replaces its own earlier link; rejects it if another client is
    /// connected.
    async fn admit(
        self: &Arc<Self>,
        arrived: AuthenticatedClient,
        connected: Option<ClientSession>,
    ) -> Option<ClientSession> {
        let mut connected = connected;
        let has_ended = |it: &mut ClientSession| it.serving.try_join_next().is_some();
        if connected.as_mut().is_some_and(has_ended) {
            connected = None;
        }
        if let Some(connected) = connected {
            if connected.client.name != arrived.client.name {
                self.turn_away(arrived, &connected.client);
                return Some(connected);
            }
            tracing::info!(client = arrived.client.name, "client reconnected");
            connected.end().await;
        }
        let cut = CancellationToken::new();
        let client = arrived.client.clone();
        let mut serving = JoinSet::new();
        serving.spawn(Arc::clone(self).serve(arrived, cut.clone()));
        Some(ClientSession {
            client,
            cut,
            serving,
        })
    }

    /// Notifies a client that another client is connected.
    fn turn_away(&self, arrived: AuthenticatedClient, here: &PinnedClient) {
        let AuthenticatedClient {
            client,
            address,
            mut wire,
        } = arrived;
        let why = format!("`{}` is connected", here.name);
        tracing::warn!(client = client.name, %address, why, "client rejected");
        let stop = self.stop.clone();
        self.turned_away.spawn(async move {
            let limit = Duration::from_millis(RELAY_HANDSHAKE_TIMEOUT_MS);
            tokio::select! {
                () = stop.cancelled() => {}
                // A client that is gone needs no notification.
                _told = timeout(limit, decline(&mut wire, why)) => {}
            }
        });
    }

    async fn serve(self: Arc<Self>, arrived: AuthenticatedClient, cut: CancellationToken) {
        let AuthenticatedClient {
            client,
            address,
            mut wire,
        } = arrived;
        let limit = Duration::from_millis(RELAY_HANDSHAKE_TIMEOUT_MS);
        let welcomed = timeout(limit, say_welcome(&mut wire, &self.expected)).await;
        let result = match welcomed.unwrap_or(Err(WireError::Silent)) {
            Ok(()) => {
                tracing::info!(client = client.name, %address, "the other machine is connected");
                let me = Address::Connector {
                    name: self.expected.connection.clone(),
                };
                let near = RelayContext {
                    me: &me,
                    gateway: &self.gateway,
                    calls: &self.calls,
                    who: format!("`{}` at {}", client.name, address.ip()),
                };
                near.serve(wire.greeted(), &cut).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            let error = error_chain(&error);
            tracing::warn!(client = client.name, %address, error, "the link to the other machine ended");
        }
        if !cut.is_cancelled() {
            self.report_alone().await;
        }
    }
}

impl ClientSession {
    async fn end(mut self) {
        self.cut.cancel();
        // A task that panicked has ended too and was reported.
        while self.serving.join_next().await.is_some() {}
    }
}
