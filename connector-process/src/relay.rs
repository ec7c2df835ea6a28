//! A connector that runs on another machine (`REP-1`): the frames of a connector process over TLS 1.3.
//!
//! Both ends are processes of this binary. The near one is a connection of the daemon: it listens, lets listed
//! certificates in, and asks the orchestrator for whatever the far one asks for. The far one (`relay-to`) starts an
//! ordinary connector process beside it and is its orchestrator, as far as that can tell.
//!
//! * `pins`: who is who: certificates that are listed by their fingerprints.
//! * `wire`: frames over TLS. `greeting`: how the two ends come together.
//! * `near`: one link, as the daemon's side serves it. `calls`: what agents have the other machine do.
//! * `far`: the other machine's side.
//!
//! # Invariants
//!
//! * An event is one event however often a link breaks: it has an id before it is sent for the first time, and is sent
//!   again under that id until it is answered (`MSG-13`).
//! * One connector at a time: a second client is turned away while the first one is there.
//! * Settings and secrets of the connector never leave its machine.

mod calls;
pub(crate) mod far;
mod greeting;
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
use self::greeting::{decline, hear_hello, say_welcome};
use self::near::Near;
use self::pins::{Client, Fingerprint, client_of, server_config};
use self::wire::{Wire, WireError};
use crate::gateway::Gateway;
use crate::limits::{
    ACCEPT_RETRY_MS, RELAY_HANDSHAKE_TIMEOUT_MS, RELAY_HANDSHAKES_MAX, RELAY_REFUSALS_INTERVAL_MS,
    RELAY_REFUSALS_TOLD,
};
use crate::listener::{self, ConnectionLimiter, ConnectionPermit, Listening};

/// The daemon's side of a relay.
pub(crate) struct Relay {
    host: String,
    port: u16,
    acceptor: TlsAcceptor,
    clients: Arc<[Client]>,
    /// What the other side is told that it is expected to be.
    expected: ConnectorAssignment,
}

/// Somebody who may be here, and said hello.
struct Arrived {
    client: Client,
    address: SocketAddr,
    wire: Wire,
}

/// Whoever is connected.
struct Connected {
    client: Client,
    cut: CancellationToken,
    /// One task.
    serving: JoinSet<()>,
}

impl Relay {
    /// By settings in which nothing is wrong.
    ///
    /// # Errors
    ///
    /// Why the certificate cannot be used, in words.
    pub(crate) fn new(assignment: &ConnectorAssignment) -> Result<Self, String> {
        let values = Values::of("relay", &assignment.config);
        let clients = values.list("clients").into_iter().filter_map(|client| {
            Some(Client {
                name: client.text("name")?.to_owned(),
                fingerprint: Fingerprint::of_hex(client.text("fingerprint")?)?,
            })
        });
        let clients: Vec<Client> = clients.collect();
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
                egress: Vec::new(),
            },
        })
    }

    /// Listens until `stop`, then until the calls under way are over.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let Some(listening) = listener::open(&self.host, self.port, &gateway, &stop).await else {
            return;
        };
        let Listening { listener, address } = listening;
        tracing::info!(%address, "listening");
        let me = Address::Connector {
            name: self.expected.connection.clone(),
        };
        let calls = Arc::new(RelayedCalls::new(me));
        let serving = Arc::new(Serving {
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
            // What an agent has the other side do is finished.
            gateway.calls_over().cancelled().await;
            connected.end().await;
        }
        serving.turned_away.close();
        serving.turned_away.wait().await;
    }

    /// Lets those in who may, one after the other, until `stop`. Gives whoever is there then.
    async fn accept(
        &self,
        listener: &TcpListener,
        serving: &Arc<Serving>,
        stop: &CancellationToken,
    ) -> Option<Connected> {
        let mut arriving = JoinSet::new();
        let limiter = ConnectionLimiter::new(RELAY_HANDSHAKES_MAX, 0);
        let entrance = Arc::new(Entrance {
            acceptor: self.acceptor.clone(),
            clients: Arc::clone(&self.clients),
            greeting: Mutex::default(),
        });
        let mut connected: Option<Connected> = None;
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
                        tracing::warn!(error = error_chain(&error), "cannot accept a connection");
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

/// Says in the log that somebody was refused. Whoever can reach the port can cause as many lines as it likes.
fn refuse(refusals: &mut LineLimit, address: SocketAddr, why: &str) {
    match refusals.admit(Instant::now()) {
        None => {}
        Some(0) => tracing::warn!(%address, why, "a connection to the relay was refused"),
        Some(left_out) => tracing::warn!(
            %address,
            why,
            left_out,
            "a connection to the relay was refused, as others were that no line tells of"
        ),
    }
}

/// The way in of a relay: who comes shows a certificate that is listed, and says hello.
///
/// Connections that have shown none compete for [`RELAY_HANDSHAKES_MAX`] places, so that those who say nothing keep
/// out nobody: with one more, the peer that holds the most loses its oldest. A client that has shown a listed
/// certificate keeps its place, one for each client: of two connections of one client that have not said hello, the
/// later counts.
struct Entrance {
    acceptor: TlsAcceptor,
    clients: Arc<[Client]>,
    /// The latest connection of each client that has not said hello: ends an earlier one.
    greeting: Mutex<HashMap<String, CancellationToken>>,
}

impl Entrance {
    /// Waits until a client has shown a certificate that is listed and said hello; else says why it is refused.
    async fn arrive(
        &self,
        (stream, address): (TcpStream, SocketAddr),
        permit: &ConnectionPermit,
    ) -> Result<Arrived, String> {
        let arriving = async {
            let (client, mut wire) = tokio::select! {
                shown = self.show(stream) => shown?,
                () = permit.evicted().cancelled() => {
                    return Err("it gave way to others before it said who it is".to_owned());
                }
            };
            permit.set_working();
            let replaced = self.begin_greeting(&client);
            let heard = tokio::select! {
                heard = hear_hello(&mut wire) => heard,
                () = replaced.cancelled() => {
                    return Err(format!("`{}`: it came again before it said hello", client.name));
                }
            };
            match heard {
                Ok(()) => Ok(Arrived {
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
                    "it did not say who it is within {RELAY_HANDSHAKE_TIMEOUT_MS} ms"
                ))
            })
    }

    /// Waits until a connection has shown a certificate that is listed.
    async fn show(&self, stream: TcpStream) -> Result<(Client, Wire), String> {
        // Without it small frames are only later.
        stream.set_nodelay(true).ok();
        let accepted = self.acceptor.accept(stream).await;
        let stream = accepted.map_err(|error| error_chain(&error))?;
        let client = client_of(&self.clients, stream.get_ref().1.peer_certificates());
        let client = client.ok_or("it showed no certificate that is listed")?;
        Ok((client.clone(), Wire::over(stream.into())))
    }

    /// A client is about to say hello; what it began before ends. What is returned is set when it comes again.
    fn begin_greeting(&self, client: &Client) -> CancellationToken {
        let replaced = CancellationToken::new();
        let mut greeting = self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = greeting.insert(client.name.clone(), replaced.clone()) {
            earlier.cancel();
        }
        replaced
    }
}

/// What every link of a relay has.
struct Serving {
    calls: Arc<RelayedCalls>,
    gateway: Gateway,
    expected: ConnectorAssignment,
    /// Where the relay listens.
    place: String,
    /// Those who are told that another one is here.
    turned_away: TaskTracker,
    stop: CancellationToken,
}

impl Serving {
    async fn report_alone(&self) {
        let detail = format!("listening on {}; nobody is connected", self.place);
        self.gateway.report(false, detail).await;
    }

    /// Lets somebody in, in place of its own earlier link; turns it away if another one is here.
    async fn admit(
        self: &Arc<Self>,
        arrived: Arrived,
        connected: Option<Connected>,
    ) -> Option<Connected> {
        let mut connected = connected;
        let has_ended = |it: &mut Connected| it.serving.try_join_next().is_some();
        if connected.as_mut().is_some_and(has_ended) {
            connected = None;
        }
        if let Some(connected) = connected {
            if connected.client.name != arrived.client.name {
                self.turn_away(arrived, &connected.client);
                return Some(connected);
            }
            tracing::info!(client = arrived.client.name, "a client has come again");
            connected.end().await;
        }
        let cut = CancellationToken::new();
        let client = arrived.client.clone();
        let mut serving = JoinSet::new();
        serving.spawn(Arc::clone(self).serve(arrived, cut.clone()));
        Some(Connected {
            client,
            cut,
            serving,
        })
    }

    /// Tells somebody that another one is here.
    fn turn_away(&self, arrived: Arrived, here: &Client) {
        let Arrived {
            client,
            address,
            mut wire,
        } = arrived;
        let why = format!("`{}` is connected", here.name);
        tracing::warn!(client = client.name, %address, why, "a client was turned away");
        let stop = self.stop.clone();
        self.turned_away.spawn(async move {
            let limit = Duration::from_millis(RELAY_HANDSHAKE_TIMEOUT_MS);
            tokio::select! {
                () = stop.cancelled() => {}
                // Whoever is gone need not be told.
                _told = timeout(limit, decline(&mut wire, why)) => {}
            }
        });
    }

    async fn serve(self: Arc<Self>, arrived: Arrived, cut: CancellationToken) {
        let Arrived {
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
                let near = Near {
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

impl Connected {
    /// Ends the link.
    async fn end(mut self) {
        self.cut.cancel();
        // A task that panicked has ended, too, and said so.
        while self.serving.join_next().await.is_some() {}
    }
}
