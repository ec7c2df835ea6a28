//! The egress: lets confined programs of a workspace reach the hosts that a person has listed for them, and nothing
//! else (`SEC-3`).
//!
//! Each of those who have a list has a socket of their own here. Over it comes the descriptor of a connection that a
//! program has made to the proxy of its sandbox; what is said on it is heard here for the first time.
//!
//! * `door`: the sockets, and what comes in by them.
//! * `rules`: who may go where, which is a `target`. Pure. `refusal` is why not,
//!   and `refusals` what the log is told of it.
//! * `way`: names become addresses, which are judged as well, and a connection to one of them.
//! * `http_proxy` and `socks`: how programs say where they want to go.
//! * `tunnel`: what they say there. `hello` looks at how it begins. Pure.
//! * `activity`: how long nothing was said.
//!
//! # Invariants
//!
//! * A host is judged before its name is resolved: a name that is not listed reaches no name server.
//! * A connection is made to an address that was judged, and to no other.
//! * Where TLS is spoken, it is spoken to the host that was asked for.
//! * Which list holds follows from the socket, and from nothing that is said.

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

use self::door::Door;
use crate::gateway::Gateway;
use crate::link::Role;

/// The sockets of an egress, made before its process confines itself; none of any other connector.
pub(crate) struct Doors(Result<Vec<Door>, String>);

impl Doors {
    /// Makes the sockets that a role asks for.
    pub(crate) fn of(role: &Role) -> Self {
        let doors = match role {
            Role::Connection(assignment) => assignment.egress.as_slice(),
            Role::Model(_) => &[],
        };
        let opened = doors.iter().map(|door| {
            Door::open(door).map_err(|error| {
                let socket = door.socket.display();
                format!("`{socket}` cannot be made: {}", error_chain(&error))
            })
        });
        Self(opened.collect())
    }

    /// Whether there is nothing to be let out by them: the process is another connector.
    pub(crate) fn is_none(&self) -> bool {
        matches!(&self.0, Ok(doors) if doors.is_empty())
    }

    /// Lets programs out until `stop`.
    pub(crate) async fn serve(self, gateway: Gateway, stop: CancellationToken) {
        let doors = match self.0 {
            Ok(doors) => doors,
            Err(why) => {
                tracing::error!(why, "no program can be let out");
                gateway.report(false, why).await;
                return stop.cancelled().await;
            }
        };
        let callers: Vec<String> = doors.iter().map(|door| door.list().to_string()).collect();
        let detail = format!("lets programs reach what is listed: {}", callers.join("; "));
        gateway.report(true, detail).await;
        let mut serving = tokio::task::JoinSet::new();
        for door in doors {
            serving.spawn(Arc::new(door).serve());
        }
        // They work until they are dropped, with all connections.
        stop.cancelled().await;
    }
}
