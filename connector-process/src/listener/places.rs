//! Who holds the connections of a listener, and who gives one up when there are too many.
//!
//! A client that connects is never made to wait for others to leave: when all places are held, one of
//! those that only hold theirs is cut off. First give way peers that hold the most; of these, whoever
//! is silent before whoever sends, and who has been so for longest. A request that the orchestrator works on is
//! never cut off; of these there are at most [`REQUESTS_IN_FLIGHT_MAX`](crate::limits::REQUESTS_IN_FLIGHT_MAX).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Bits of an IPv6 address that name a peer: whoever has one address has all of its network.
const IPV6_PEER_BITS: u32 = 64;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// Its client has sent no whole head.
    Waiting,
    /// Its client sends a body.
    Sending,
    /// Its request is being worked on.
    Working,
}

#[derive(Debug)]
struct Held {
    peer: IpAddr,
    doing: Doing,
    /// When it began to do that, as a number that grows.
    since: u64,
    body_bytes: usize,
    cut: CancellationToken,
}

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    connections_max: usize,
    body_bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<u64, Held>,
    /// The next number; a lower one is older.
    next: u64,
    body_bytes: usize,
}

impl Places {
    /// Places for so many connections, and for so many bytes of bodies that are being sent.
    pub(super) fn new(connections_max: usize, body_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            connections_max,
            body_bytes_max,
            state: Mutex::default(),
        })
    }

    /// Gives a place to a new connection; if there is none, takes that of another.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Arc<Place> {
        let mut state = self.lock();
        while state.held.len() >= self.connections_max && state.cut_one(|_| true) {}
        let id = state.number();
        let cut = CancellationToken::new();
        let held = Held {
            peer: peer_of(address),
            doing: Doing::Waiting,
            since: id,
            body_bytes: 0,
            cut: cut.clone(),
        };
        state.held.insert(id, held);
        drop(state);
        Arc::new(Place {
            places: Arc::clone(self),
            id,
            cut,
        })
    }

    /// What is kept here is consistent after every statement; a panic elsewhere damages nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Cuts off one connection among those that only hold their place; false if there is none.
    fn cut_one(&mut self, is_eligible: impl Fn(&Held) -> bool) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for held in self.held.values() {
            *counts.entry(held.peer).or_default() += 1;
        }
        let candidates = self
            .held
            .iter()
            .filter(|(_, held)| held.doing != Doing::Working && is_eligible(held));
        let chosen = candidates.min_by_key(|(_, held)| {
            let count = counts.get(&held.peer).copied().unwrap_or_default();
            (std::cmp::Reverse(count), held.doing, held.since)
        });
        let Some(id) = chosen.map(|(id, _)| *id) else {
            return false;
        };
        self.leave(id);
        true
    }

    fn leave(&mut self, id: u64) {
        if let Some(held) = self.held.remove(&id) {
            self.body_bytes -= held.body_bytes;
            held.cut.cancel();
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn set(&mut self, id: u64, doing: Doing, body_bytes: usize) {
        let now = self.number();
        if let Some(held) = self.held.get_mut(&id) {
            if held.doing != doing {
                held.since = now;
            }
            self.body_bytes = self.body_bytes - held.body_bytes + body_bytes;
            held.doing = doing;
            held.body_bytes = body_bytes;
        }
    }
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    cut: CancellationToken,
}

impl Place {
    /// Set once the connection is to be cut off.
    pub(super) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// So much of the body of a request has come. Too much of all bodies, and one of their senders is
    /// cut off.
    pub(super) fn is_sending(&self, body_bytes: usize) {
        let mut state = self.places.lock();
        state.set(self.id, Doing::Sending, body_bytes);
        while state.body_bytes > self.places.body_bytes_max && state.cut_one(|it| it.body_bytes > 0)
        {
        }
    }

    /// The body has come, and its request is worked on. What it takes is bounded by the requests in
    /// progress.
    pub(super) fn is_working(&self) {
        self.places.lock().set(self.id, Doing::Working, 0);
    }

    /// The request is answered.
    pub(super) fn is_waiting(&self) {
        self.places.lock().set(self.id, Doing::Waiting, 0);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().leave(self.id);
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

    fn take(places: &Arc<Places>, address: &str) -> Arc<Place> {
        places.take(address.parse().unwrap())
    }

    fn is_cut(place: &Place) -> bool {
        place.cut().is_cancelled()
    }

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let places = Places::new(2, 100);
        let first = take(&places, "10.0.0.1");
        let second = take(&places, "10.0.0.1");
        let third = take(&places, "10.0.0.1");
        assert_eq!(
            [&first, &second, &third].map(|it| is_cut(it)),
            [true, false, false]
        );
        second.is_sending(1);
        let fourth = take(&places, "10.0.0.1");
        assert_eq!(
            [&second, &third, &fourth].map(|it| is_cut(it)),
            [false, true, false]
        );
        drop(second);
        let _fifth = take(&places, "10.0.0.1");
        assert!(!is_cut(&fourth));
    }

    #[test]
    fn who_holds_most_gives_way() {
        let places = Places::new(3, 100);
        let honest = take(&places, "192.0.2.1");
        let held = [take(&places, "2001:db8::1"), take(&places, "2001:db8::2")];
        held[0].is_sending(1);
        held[1].is_sending(1);
        let late = take(&places, "2001:db8::3");
        assert!(!is_cut(&honest) && is_cut(&held[0]) && !is_cut(&late));
    }

    #[test]
    fn what_is_worked_on_stays() {
        let places = Places::new(1, 100);
        let working = take(&places, "10.0.0.1");
        working.is_sending(1_000);
        assert!(is_cut(&working), "alone, it takes too much");
        let working = take(&places, "10.0.0.1");
        working.is_working();
        let other = take(&places, "10.0.0.2");
        assert!(!is_cut(&working) && !is_cut(&other));
        working.is_waiting();
        let _last = take(&places, "10.0.0.3");
        assert!(is_cut(&working));
    }

    #[test]
    fn bodies_that_take_too_much_together_cost_the_oldest_its_place() {
        let places = Places::new(9, 100);
        let first = take(&places, "10.0.0.1");
        let silent = take(&places, "10.0.0.1");
        let second = take(&places, "10.0.0.1");
        first.is_sending(60);
        second.is_sending(40);
        assert!(!is_cut(&first));
        second.is_sending(41);
        assert_eq!(
            [&first, &silent, &second].map(|it| is_cut(it)),
            [true, false, false]
        );
    }
}
