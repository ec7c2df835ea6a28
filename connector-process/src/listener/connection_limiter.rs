//! Limits the connections of a listener and evicts connections beyond the limit.
//!
//! A new client never waits for others to leave: at the limit, a connection without a request in
//! progress is evicted. Peers with the most connections come first; within a peer, silent
//! connections before sending ones, longest first. A request that the orchestrator processes is
//! never evicted; the number of such requests is at most
//! [`REQUESTS_IN_FLIGHT_MAX`](crate::limits::REQUESTS_IN_FLIGHT_MAX).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Prefix length that identifies a peer in IPv6, because a host usually controls its entire
/// network.
const IPV6_PEER_BITS: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Activity {
    /// Its client has not sent a complete head.
    Waiting,
    /// Its client sends a body.
    Sending,
    /// Its request is being processed.
    Working,
}

#[derive(Debug)]
struct OpenConnection {
    peer: IpAddr,
    activity: Activity,
    /// Start of the activity, as an increasing number.
    since: u64,
    body_bytes: usize,
    evicted: CancellationToken,
}

/// Limits the connections of one listener, and the total memory of the bodies they send.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    connections_max: usize,
    body_bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, OpenConnection>,
    /// The next number; a lower one is older.
    next: u64,
    body_bytes: usize,
}

impl ConnectionLimiter {
    /// Creates a limiter with a maximum number of connections and of body bytes in transfer.
    pub(crate) fn new(connections_max: usize, body_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            connections_max,
            body_bytes_max,
            state: Mutex::default(),
        })
    }

    /// Admits a new connection; evicts another one at the limit.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionPermit> {
        let mut state = self.lock();
        while state.open.len() >= self.connections_max && state.evict_one(|_| true) {}
        let id = state.number();
        let evicted = CancellationToken::new();
        let connection = OpenConnection {
            peer: peer_of(address),
            activity: Activity::Waiting,
            since: id,
            body_bytes: 0,
            evicted: evicted.clone(),
        };
        state.open.insert(id, connection);
        drop(state);
        Arc::new(ConnectionPermit {
            limiter: Arc::clone(self),
            id,
            evicted,
        })
    }

    /// The state is consistent after every statement, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Evicts one connection without a request in progress; false if none qualifies.
    fn evict_one(&mut self, is_eligible: impl Fn(&OpenConnection) -> bool) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.open.values() {
            *counts.entry(connection.peer).or_default() += 1;
        }
        let candidates = self.open.iter().filter(|(_, connection)| {
            connection.activity != Activity::Working && is_eligible(connection)
        });
        let chosen = candidates.min_by_key(|(_, connection)| {
            let count = counts.get(&connection.peer).copied().unwrap_or_default();
            (
                std::cmp::Reverse(count),
                connection.activity,
                connection.since,
            )
        });
        let Some(id) = chosen.map(|(id, _)| *id) else {
            return false;
        };
        self.remove(id);
        true
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.open.remove(&id) {
            self.body_bytes -= connection.body_bytes;
            connection.evicted.cancel();
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn set(&mut self, id: u64, activity: Activity, body_bytes: usize) {
        let now = self.number();
        if let Some(connection) = self.open.get_mut(&id) {
            if connection.activity != activity {
                connection.since = now;
            }
            self.body_bytes = self.body_bytes - connection.body_bytes + body_bytes;
            connection.activity = activity;
            connection.body_bytes = body_bytes;
        }
    }
}

/// The permit of one open connection; released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    evicted: CancellationToken,
}

impl ConnectionPermit {
    /// Canceled when the connection must be closed.
    pub(crate) fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }

    /// Records the received bytes of a body. If all bodies together exceed the limit, one sender is
    /// evicted.
    pub(crate) fn set_sending(&self, body_bytes: usize) {
        let mut state = self.limiter.lock();
        state.set(self.id, Activity::Sending, body_bytes);
        while state.body_bytes > self.limiter.body_bytes_max
            && state.evict_one(|it| it.body_bytes > 0)
        {}
    }

    /// Records that the body is complete and its request is being processed. Its memory is bounded
    /// by the number of requests in progress.
    pub(crate) fn set_working(&self) {
        self.limiter.lock().set(self.id, Activity::Working, 0);
    }

    /// Records that the request has been answered.
    pub(crate) fn set_waiting(&self) {
        self.limiter.lock().set(self.id, Activity::Waiting, 0);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.lock().remove(self.id);
    }
}

fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << (128 - IPV6_PEER_BITS));
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(limiter: &Arc<ConnectionLimiter>, address: &str) -> Arc<ConnectionPermit> {
        limiter.admit(address.parse().unwrap())
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        permit.evicted().is_cancelled()
    }

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let limiter = ConnectionLimiter::new(2, 100);
        let first = admit(&limiter, "10.0.0.1");
        let second = admit(&limiter, "10.0.0.1");
        let third = admit(&limiter, "10.0.0.1");
        assert_eq!(
            [&first, &second, &third].map(|it| is_evicted(it)),
            [true, false, false]
        );
        second.set_sending(1);
        let fourth = admit(&limiter, "10.0.0.1");
        assert_eq!(
            [&second, &third, &fourth].map(|it| is_evicted(it)),
            [false, true, false]
        );
        drop(second);
        let _fifth = admit(&limiter, "10.0.0.1");
        assert!(!is_evicted(&fourth));
    }

    #[test]
    fn client_with_the_most_connections_is_evicted_first() {
        let limiter = ConnectionLimiter::new(3, 100);
        let honest = admit(&limiter, "192.0.2.1");
        let held = [
            admit(&limiter, "2001:db8::1"),
            admit(&limiter, "2001:db8::2"),
        ];
        held[0].set_sending(1);
        held[1].set_sending(1);
        let late = admit(&limiter, "2001:db8::3");
        assert!(!is_evicted(&honest) && is_evicted(&held[0]) && !is_evicted(&late));
    }

    #[test]
    fn connection_with_a_request_in_progress_is_not_evicted() {
        let limiter = ConnectionLimiter::new(1, 100);
        let working = admit(&limiter, "10.0.0.1");
        working.set_sending(1_000);
        assert!(is_evicted(&working), "alone, it takes too much");
        let working = admit(&limiter, "10.0.0.1");
        working.set_working();
        let other = admit(&limiter, "10.0.0.2");
        assert!(!is_evicted(&working) && !is_evicted(&other));
        working.set_waiting();
        let _last = admit(&limiter, "10.0.0.3");
        assert!(is_evicted(&working));
    }

    #[test]
    fn bodies_that_take_too_much_together_cost_the_oldest_its_place() {
        let limiter = ConnectionLimiter::new(9, 100);
        let first = admit(&limiter, "10.0.0.1");
        let silent = admit(&limiter, "10.0.0.1");
        let second = admit(&limiter, "10.0.0.1");
        first.set_sending(60);
        second.set_sending(40);
        assert!(!is_evicted(&first));
        second.set_sending(41);
        assert_eq!(
            [&first, &silent, &second].map(|it| is_evicted(it)),
            [true, false, false]
        );
    }
}
