//! The egress: lets confined programs of a workspace reach only the hosts that a person has listed
//! for them (`SEC-3`).
//!
//! Each allow list has its own socket here. The sandbox passes the descriptor of a program's proxy
//! connection over it, before any data of that connection has been read.
//!
//! * `door`: the sockets, and the connections passed over them.
//! * `rules`: decides if a caller may reach a `target`. Pure. `refusal` is the reason for a denial,
//!   and `refusals` its log lines.
//! * `way`: resolves names to addresses, checks the addresses, and connects to one.
//! * `http_proxy` and `socks`: the protocols in which programs request a target.
//! * `tunnel`: forwards data. `hello` checks its first bytes. Pure.
//! * `activity`: measures idle time.
//!
//! # Invariants
//!
//! * A host is checked before its name is resolved: an unlisted name reaches no name server.
//! * Connections are made only to addresses that were checked.
//! * TLS sessions must name the requested host.
//! * The socket alone determines the list that applies, regardless of the data sent.

mod activity;
mod door;
mod hello;
mod http_proxy;
mod refusal;
mod refusals;
mod rules;
mod socks;
mod target;
mod tunnel;
mod way;

use std::sync::Arc;

use goondan_log::error_chain;
use tokio_util::sync::CancellationToken;

use self::door::ProxySocket;
use crate::gateway::Gateway;
use crate::link::ConnectorRole;

/// The sockets of an egress, created before its process confines itself; empty for any other
/// connector.
pub(crate) struct ProxySockets(Result<Vec<ProxySocket>, String>);

impl ProxySockets {
    /// Creates the sockets that a role requires.
    pub(crate) fn of(role: &ConnectorRole) -> Self {
        let doors = match role {
            ConnectorRole::Connection(assignment) => assignment.egress.as_slice(),
            ConnectorRole::Model(_) => &[],
        };
        let opened = doors.iter().map(|door| {
            ProxySocket::open(door).map_err(|error| {
                let socket = door.socket.display();
                format!("failed to create `{socket}`: {}", error_chain(&error))
            })
        });
        Self(opened.collect())
    }

    /// True without sockets, because the process is another connector.
    pub(crate) fn is_none(&self) -> bool {
        matches!(&self.0, Ok(doors) if doors.is_empty())
    }

    /// Serves programs until `stop`.
    pub(crate) async fn serve(self, gateway: Gateway, stop: CancellationToken) {
        let doors = match self.0 {
            Ok(doors) => doors,
            Err(why) => {
                tracing::error!(
                    why,
                    "failed to create the sockets; programs cannot reach any host"
                );
                gateway.report(false, why).await;
                return stop.cancelled().await;
            }
        };
        let callers: Vec<String> = doors.iter().map(|door| door.list().to_string()).collect();
        let detail = format!(
            "programs can reach the listed hosts: {}",
            callers.join("; ")
        );
        gateway.report(true, detail).await;
        let mut serving = tokio::task::JoinSet::new();
        for door in doors {
            serving.spawn(Arc::new(door).serve());
        }
        // Dropping the futures ends the doors with all connections.
        stop.cancelled().await;
    }
}
