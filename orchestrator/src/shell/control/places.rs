//! Places of control connections, and their replacement (`CTL-1`).
//!
//! Three kinds of connections never compete for the same places:
//!
//! * **Ungreeted.** When all places are taken, the connection that has been silent for longest
//!   ends.
//! * **Brief.** Greeted connections without a waiting request. When all places are taken, the one
//!   that has been idle for longest ends; if each has an open request, a new connection gets one of
//!   a few reserved places. There only requests that decide something or administer the daemon are
//!   answered ([`CallKind::Decides`]).
//! * **Waiting.** Connections with a request that waits for something outside of the daemon, such
//!   as an answer of an agent. When all places are taken, only further requests of this kind are
//!   refused.
//!
//! So waiting clients never block the request that ends their wait. One process takes at most half
//! of the brief and half of the waiting places. All descendants of the daemon count as one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_core::{ClientOrigin, Peer};
use goondan_protocol::control::CallKind;
use tokio_util::sync::CancellationToken;

use crate::limits::{
    CONTROL_CONNECTIONS, CONTROL_CONNECTIONS_RESERVED, CONTROL_REQUESTS_OPEN,
    UNGREETED_CONNECTIONS, WAITING_CONNECTIONS,
};

/// Reason why a connection or a request gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SlotRefusal {
    /// Each brief place has an open request.
    #[error("{0} clients have open requests, which is the limit")]
    Brief(usize),
    /// All waiting places are taken.
    #[error("{0} clients are waiting, which is the limit")]
    Waiting(usize),
    /// One process uses its maximum number of places.
    #[error("this client already has {0} connections of this kind, which is the limit")]
    OfOneClient(usize),
    /// One connection has too many open requests.
    #[error("this connection already has {0} open requests")]
    OfOneConnection(usize),
    /// Another connection took the place of this one, which had been idle for longest.
    #[error(
        "too many clients connected at the same time; this connection was idle for longest and \
         was closed before its next request"
    )]
    Replaced,
}

/// Held for each open request of a connection, in addition to the connection's own reference.
pub(in crate::shell) type InUse = Arc<()>;

/// Owner of a connection, for the limits per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionOwner {
    /// A process of a person, or of an unknown client.
    Process(u32),
    /// Any process that descends from the daemon's children.
    BelowDaemon,
    Nameless,
}

impl From<Peer> for ConnectionOwner {
    fn from(peer: Peer) -> Self {
        match (peer.standing, peer.pid) {
            (ClientOrigin::BelowDaemon, _) => Self::BelowDaemon,
            // A process outside of this namespace has the number 0, like every other one outside.
            (_, None | Some(0)) => Self::Nameless,
            (_, Some(pid)) => Self::Process(pid),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots(Arc<Mutex<SlotTable>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    ungreeted: usize,
    brief: usize,
    reserved: usize,
    waiting: usize,
}

#[derive(Debug)]
struct SlotTable {
    sizes: Sizes,
    /// Next order number of places and of activities; a lower number is earlier.
    next: u64,
    seats: BTreeMap<u64, Seat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeatStage {
    Ungreeted,
    Brief { is_reserved: bool },
    Waiting { requests: usize },
}

#[derive(Debug)]
struct Seat {
    owner: Option<ConnectionOwner>,
    stage: SeatStage,
    /// Order number of the last activity.
    spoke: u64,
    end: CancellationToken,
    in_use: InUse,
}

impl Seat {
    /// Number of open requests: the place and the connection itself hold the other references.
    fn requests(&self) -> usize {
        Arc::strong_count(&self.in_use).saturating_sub(2)
    }

    fn is_brief(&self) -> bool {
        matches!(self.stage, SeatStage::Brief { .. })
    }

    fn is_waiting(&self) -> bool {
        matches!(self.stage, SeatStage::Waiting { .. })
    }
}

/// Place of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    places: ConnectionSlots,
    number: u64,
}

/// Guard of a waiting request. Its connection is brief again when the last guard is dropped.
#[derive(Debug)]
pub(in crate::shell) struct RequestGuard {
    places: ConnectionSlots,
    number: u64,
}

impl ConnectionSlots {
    /// Places for this limit of open files: fewer with a low limit, because work in progress has
    /// precedence.
    pub(super) fn within(open_files_limit: u64) -> Self {
        let share = |part: u64, max: usize| {
            let share = usize::try_from(open_files_limit / part).unwrap_or(max);
            share.clamp(2, max)
        };
        Self::new(Sizes {
            ungreeted: share(16, UNGREETED_CONNECTIONS),
            brief: share(8, CONTROL_CONNECTIONS),
            reserved: share(32, CONTROL_CONNECTIONS_RESERVED),
            waiting: share(8, WAITING_CONNECTIONS),
        })
    }

    fn new(sizes: Sizes) -> Self {
        Self(Arc::new(Mutex::new(SlotTable {
            sizes,
            next: 0,
            seats: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that has not greeted yet. The longest silent connection may lose
    /// its place.
    pub(super) fn enter(&self, end: CancellationToken, in_use: InUse) -> ConnectionSlot {
        let mut taken = self.lock();
        while taken.count(|seat| seat.stage == SeatStage::Ungreeted) >= taken.sizes.ungreeted {
            taken.end_first(|seat| seat.stage == SeatStage::Ungreeted);
        }
        let number = taken.number();
        let seat = Seat {
            owner: None,
            stage: SeatStage::Ungreeted,
            spoke: number,
            end,
            in_use,
        };
        taken.seats.insert(number, seat);
        let places = self.clone();
        ConnectionSlot { places, number }
    }

    /// Ends the longest silent connection, because descriptors have run out. Returns true if there
    /// was one.
    pub(super) fn make_room(&self) -> bool {
        self.lock()
            .end_first(|seat| seat.stage == SeatStage::Ungreeted)
    }
}

impl SlotTable {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn count(&self, is_counted: impl Fn(&Seat) -> bool) -> usize {
        self.seats.values().filter(|seat| is_counted(seat)).count()
    }

    /// Ends the longest silent connection of a kind; false if there is none.
    fn end_first(&mut self, is_eligible: impl Fn(&Seat) -> bool) -> bool {
        let eligible = self.seats.iter().filter(|(_, seat)| is_eligible(seat));
        let first = eligible.min_by_key(|(_, seat)| seat.spoke);
        let seat = first
            .map(|(number, _)| *number)
            .and_then(|number| self.seats.remove(&number));
        seat.is_some_and(|seat| {
            seat.end.cancel();
            true
        })
    }

    /// Ends the longest idle connection, of one owner or of all.
    fn end_idle(&mut self, owner: Option<ConnectionOwner>) -> bool {
        self.end_first(|seat| {
            let is_of_owner = owner.is_none_or(|owner| seat.owner == Some(owner));
            seat.is_brief() && seat.requests() == 0 && is_of_owner
        })
    }

    /// Frees a place for a brief connection, unless each of the others has an open request.
    ///
    /// # Errors
    ///
    /// If each has one.
    fn make_brief_room(&mut self, others: impl Fn(&Seat) -> bool) -> Result<(), SlotRefusal> {
        let max = self.sizes.brief;
        while self.count(|seat| seat.is_brief() && others(seat)) >= max {
            if !self.end_idle(None) {
                return Err(SlotRefusal::Brief(max));
            }
        }
        Ok(())
    }
}

/// Maximum number of places of one client.
fn share_of_one(places: usize) -> usize {
    (places / 2).max(1)
}

impl ConnectionSlot {
    /// True if another connection took this place.
    pub(super) fn is_replaced(&self) -> bool {
        !self.places.lock().seats.contains_key(&self.number)
    }

    /// Records that the connection has greeted, and its peer.
    ///
    /// # Errors
    ///
    /// If no place is free.
    pub(super) fn greet(&mut self, peer: Peer) -> Result<(), SlotRefusal> {
        let mut taken = self.places.lock();
        let owner = ConnectionOwner::from(peer);
        let Some(mut seat) = taken.seats.remove(&self.number) else {
            return Err(SlotRefusal::Replaced);
        };
        let share = share_of_one(taken.sizes.brief);
        let is_limited = owner != ConnectionOwner::Nameless;
        let is_of_owner = |seat: &Seat| seat.is_brief() && seat.owner == Some(owner);
        while is_limited && taken.count(is_of_owner) >= share {
            if !taken.end_idle(Some(owner)) {
                return Err(SlotRefusal::OfOneClient(share));
            }
        }
        let sizes = taken.sizes;
        let is_reserved = match taken.make_brief_room(|_| true) {
            Ok(()) => false,
            Err(_) if taken.count(Seat::is_brief) < sizes.brief + sizes.reserved => true,
            Err(no_place) => return Err(no_place),
        };
        seat.owner = Some(owner);
        seat.stage = SeatStage::Brief { is_reserved };
        seat.spoke = taken.number();
        taken.seats.insert(self.number, seat);
        Ok(())
    }

    /// Begins a request of this kind on a greeted connection. The caller holds the returned guard
    /// until the answer, and a reference of the connection's use.
    ///
    /// # Errors
    ///
    /// If no place is free.
    pub(super) fn begin(
        &mut self,
        kind: CallKind,
    ) -> Result<(Option<Arc<RequestGuard>>, InUse), SlotRefusal> {
        let mut taken = self.places.lock();
        let now = taken.number();
        let sizes = taken.sizes;
        let Some(seat) = taken.seats.get_mut(&self.number) else {
            return Err(SlotRefusal::Replaced);
        };
        seat.spoke = now;
        if seat.requests() >= CONTROL_REQUESTS_OPEN {
            return Err(SlotRefusal::OfOneConnection(CONTROL_REQUESTS_OPEN));
        }
        let (owner, stage) = (seat.owner, seat.stage);
        // Taken under the lock, so that the connection of a started request is never replaced.
        let in_use = seat.in_use.clone();
        let stage = match (kind, stage) {
            (CallKind::Waits, SeatStage::Waiting { requests }) => SeatStage::Waiting {
                requests: requests + 1,
            },
            (CallKind::Waits, _) => {
                if taken.count(Seat::is_waiting) >= sizes.waiting {
                    return Err(SlotRefusal::Waiting(sizes.waiting));
                }
                let share = share_of_one(sizes.waiting);
                let is_limited = owner.is_some_and(|owner| owner != ConnectionOwner::Nameless);
                let of_owner = |seat: &Seat| seat.is_waiting() && seat.owner == owner;
                if is_limited && taken.count(of_owner) >= share {
                    return Err(SlotRefusal::OfOneClient(share));
                }
                SeatStage::Waiting { requests: 1 }
            }
            (CallKind::Other, SeatStage::Brief { is_reserved: true }) => {
                let is_regular =
                    |seat: &Seat| seat.stage == SeatStage::Brief { is_reserved: false };
                // Its own place must not be freed to make room.
                let own = taken.seats.remove(&self.number);
                let room = taken.make_brief_room(is_regular);
                taken.seats.extend(own.map(|own| (self.number, own)));
                room?;
                SeatStage::Brief { is_reserved: false }
            }
            (CallKind::Other | CallKind::Decides, stage) => stage,
        };
        if let Some(seat) = taken.seats.get_mut(&self.number) {
            seat.stage = stage;
        }
        let places = self.places.clone();
        let number = self.number;
        let wait = (kind == CallKind::Waits).then(|| Arc::new(RequestGuard { places, number }));
        Ok((wait, in_use))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.lock().seats.remove(&self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let now = taken.number();
        if let Some(seat) = taken.seats.get_mut(&self.number)
            && let SeatStage::Waiting { requests } = seat.stage
        {
            seat.spoke = now;
            seat.stage = match requests.saturating_sub(1) {
                0 => SeatStage::Brief { is_reserved: false },
                requests => SeatStage::Waiting { requests },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        ungreeted: 2,
        brief: 2,
        reserved: 1,
        waiting: 2,
    };

    struct Connection {
        place: ConnectionSlot,
        end: CancellationToken,
        _in_use: InUse,
    }

    fn person(pid: u32) -> Peer {
        Peer {
            pid: Some(pid),
            standing: ClientOrigin::Person,
        }
    }

    impl Connection {
        fn new(places: &ConnectionSlots) -> Self {
            let (end, in_use) = (CancellationToken::new(), InUse::default());
            let place = places.enter(end.clone(), in_use.clone());
            Self {
                place,
                end,
                _in_use: in_use,
            }
        }

        /// A connection of a separate process.
        fn greeted(places: &ConnectionSlots) -> Self {
            let pid = u32::try_from(places.lock().next).unwrap() + 1;
            Self::of(places, person(pid)).unwrap()
        }

        fn of(places: &ConnectionSlots, peer: Peer) -> Result<Self, SlotRefusal> {
            let mut connection = Self::new(places);
            connection.place.greet(peer)?;
            Ok(connection)
        }

        /// Has an open request until the returned guard is dropped.
        fn asks(
            &mut self,
            kind: CallKind,
        ) -> Result<(Option<Arc<RequestGuard>>, InUse), SlotRefusal> {
            self.place.begin(kind)
        }

        fn is_ended(&self) -> bool {
            self.end.is_cancelled()
        }
    }

    #[test]
    fn ctl_1_the_longest_silent_one_gives_way_and_greeted_ones_stay() {
        let places = ConnectionSlots::new(SIZES);
        let greeted = Connection::greeted(&places);
        let mute: Vec<_> = (0..5).map(|_| Connection::new(&places)).collect();
        let ended: Vec<bool> = mute.iter().map(Connection::is_ended).collect();
        assert_eq!(ended, [true, true, true, false, false]);
        assert!(!greeted.is_ended());
        assert!(places.make_room() && mute[3].is_ended());
        drop(mute);
        assert!(!places.make_room());
    }

    #[test]
    fn ctl_1_an_idle_connection_gives_way_to_a_newcomer() {
        let places = ConnectionSlots::new(SIZES);
        let mut first = Connection::greeted(&places);
        let second = Connection::greeted(&places);
        drop(first.asks(CallKind::Other).unwrap());
        let third = Connection::greeted(&places);
        let ended = [&first, &second, &third].map(Connection::is_ended);
        assert_eq!(ended, [false, true, false]);
        let mut second = second;
        let refused = second.asks(CallKind::Decides).unwrap_err();
        assert_eq!(refused, SlotRefusal::Replaced, "nothing starts on it");
        assert!(second.place.is_replaced() && !third.place.is_replaced());
    }

    #[test]
    fn ctl_1_reserved_slots_serve_deciding_calls() {
        let places = ConnectionSlots::new(SIZES);
        let mut busy = [Connection::greeted(&places), Connection::greeted(&places)];
        let open = busy.each_mut().map(|it| it.asks(CallKind::Other).unwrap());
        let mut reserved = Connection::greeted(&places);
        let refused = reserved.asks(CallKind::Other).unwrap_err();
        assert_eq!(refused, SlotRefusal::Brief(2));
        let deciding = reserved.asks(CallKind::Decides).unwrap();
        let refused = Connection::of(&places, person(900)).err();
        assert_eq!(refused, Some(SlotRefusal::Brief(2)));
        drop((open, deciding));
        drop(reserved.asks(CallKind::Other).unwrap());
        assert!(!reserved.is_ended());
    }

    #[test]
    fn ctl_1_waiting_calls_do_not_use_slots_of_other_calls() {
        let places = ConnectionSlots::new(SIZES);
        let mut waiting: Vec<_> = (0..2).map(|_| Connection::greeted(&places)).collect();
        let mut waits = Vec::new();
        for connection in &mut waiting {
            waits.push(connection.asks(CallKind::Waits).unwrap());
        }
        let mut third = Connection::greeted(&places);
        assert_eq!(
            third.asks(CallKind::Waits).unwrap_err(),
            SlotRefusal::Waiting(2),
            "one more that waits is refused"
        );
        drop(third.asks(CallKind::Decides).unwrap());
        drop(third.asks(CallKind::Other).unwrap());
        // A second request on the same connection takes no further place.
        waits.push(waiting[0].asks(CallKind::Waits).unwrap());
        waits.remove(0);
        assert_eq!(
            third.asks(CallKind::Waits).unwrap_err(),
            SlotRefusal::Waiting(2)
        );
        waits.pop();
        drop(third.asks(CallKind::Waits).unwrap());
        assert!(waiting.iter().all(|it| !it.is_ended()));
    }

    #[test]
    fn ctl_1_one_client_takes_half_of_the_places() {
        let sizes = Sizes {
            brief: 4,
            waiting: 4,
            ..SIZES
        };
        let places = ConnectionSlots::new(sizes);
        let below = |pid| Peer {
            pid: Some(pid),
            standing: ClientOrigin::BelowDaemon,
        };
        let mut first = Connection::of(&places, below(1)).unwrap();
        let mut second = Connection::of(&places, below(2)).unwrap();
        // The client's own idle connection is closed.
        let open = first.asks(CallKind::Other).unwrap();
        let third = Connection::of(&places, below(3)).unwrap();
        assert!(second.is_ended() && !first.is_ended() && !third.is_ended());
        drop((open, third, second.asks(CallKind::Other)));
        let mut fourth = Connection::of(&places, below(4)).unwrap();
        let waits = [&mut first, &mut fourth].map(|it| it.asks(CallKind::Waits).unwrap());
        let mut fifth = Connection::of(&places, below(5)).unwrap();
        assert_eq!(
            fifth.asks(CallKind::Waits).unwrap_err(),
            SlotRefusal::OfOneClient(2)
        );
        let mut person = Connection::of(&places, person(6)).unwrap();
        drop((person.asks(CallKind::Waits).unwrap(), waits));
        // The number of open requests of one connection is limited.
        let many: Vec<_> = (0..CONTROL_REQUESTS_OPEN)
            .map(|_| person.asks(CallKind::Waits).unwrap())
            .collect();
        assert!(matches!(
            person.asks(CallKind::Decides),
            Err(SlotRefusal::OfOneConnection(_))
        ));
        drop(many);
    }

    #[test]
    fn ctl_1_few_files_mean_few_places() {
        let sizes = |limit| ConnectionSlots::within(limit).lock().sizes;
        let few = Sizes {
            ungreeted: 4,
            brief: 8,
            reserved: 2,
            waiting: 8,
        };
        assert_eq!(sizes(64), few);
        let most = Sizes {
            ungreeted: UNGREETED_CONNECTIONS,
            brief: CONTROL_CONNECTIONS,
            reserved: CONTROL_CONNECTIONS_RESERVED,
            waiting: WAITING_CONNECTIONS,
        };
        assert_eq!(sizes(u64::MAX), most);
    }
}
