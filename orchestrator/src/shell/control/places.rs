//! Who has a place among the control connections, and whose place goes to another (`CTL-1`).
//!
//! A connection that has not greeted yet takes one of a few places; when all are taken, the one that has
//! been silent for longest loses its own. With its greeting a connection moves to the other places. When
//! all of those are taken, the one whose last request was answered longest ago loses its own; if each has
//! a request open, the newcomer is told so. So those that hold connections and say nothing keep nobody
//! out who has something to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::{CONTROL_CONNECTIONS, UNGREETED_CONNECTIONS};

/// Every [`CONTROL_CONNECTIONS`] place is taken by a client that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} clients wait for answers, and there is no place for another")]
pub(super) struct NoPlace(usize);

/// Held for each open request of a connection, beside the one that is its own.
pub(in crate::shell) type InUse = Arc<()>;

/// The places of all connections.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug)]
struct Taken {
    ungreeted_max: usize,
    greeted_max: usize,
    next: u64,
    /// In the order of their arrival.
    ungreeted: BTreeMap<u64, Seat>,
    /// In the order of their latest requests.
    greeted: BTreeMap<u64, Seat>,
}

#[derive(Debug)]
struct Seat {
    /// Ends the connection.
    end: CancellationToken,
    in_use: InUse,
}

impl Seat {
    /// Whether no request is open: the place and the connection itself hold the only references.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.in_use) <= 2
    }
}

/// The place of one connection. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    number: u64,
}

impl Places {
    /// Places for a process that may have so many files open: fewer where that is little, since work in
    /// progress has precedence.
    pub(super) fn within(open_files_limit: u64) -> Self {
        let share = |part: u64, max: usize| {
            let share = usize::try_from(open_files_limit / part).unwrap_or(max);
            share.clamp(2, max)
        };
        Self::new(
            share(16, UNGREETED_CONNECTIONS),
            share(8, CONTROL_CONNECTIONS),
        )
    }

    fn new(ungreeted_max: usize, greeted_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Taken {
            ungreeted_max,
            greeted_max,
            next: 0,
            ungreeted: BTreeMap::new(),
            greeted: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that has not greeted yet. The one that has been silent for longest may
    /// lose its own.
    pub(super) fn enter(&self, end: CancellationToken, in_use: InUse) -> Place {
        let mut taken = self.lock();
        while taken.ungreeted.len() >= taken.ungreeted_max {
            taken.end_oldest_ungreeted();
        }
        taken.next += 1;
        let number = taken.next;
        taken.ungreeted.insert(number, Seat { end, in_use });
        let places = self.clone();
        Place { places, number }
    }

    /// Ends the connection that has said nothing for longest, where descriptors have run out. Returns
    /// whether there was one.
    pub(super) fn make_room(&self) -> bool {
        self.lock().end_oldest_ungreeted()
    }
}

impl Taken {
    fn end_oldest_ungreeted(&mut self) -> bool {
        let oldest = self.ungreeted.pop_first();
        oldest.is_some_and(|(_, seat)| {
            seat.end.cancel();
            true
        })
    }

    fn end_longest_idle(&mut self) -> bool {
        let idle = self.greeted.iter().find(|(_, seat)| seat.is_idle());
        let number = idle.map(|(number, _)| *number);
        let seat = number.and_then(|number| self.greeted.remove(&number));
        seat.is_some_and(|seat| {
            seat.end.cancel();
            true
        })
    }
}

impl Place {
    /// The connection has made a request, the first of which is its greeting.
    ///
    /// # Errors
    ///
    /// If every place is taken by a client that waits for an answer.
    pub(super) fn spoke(&mut self) -> Result<(), NoPlace> {
        let mut taken = self.places.lock();
        let greeted = taken.greeted.remove(&self.number);
        let seat = match greeted {
            Some(seat) => seat,
            // It has lost its place already, and is about to notice.
            None => match taken.ungreeted.remove(&self.number) {
                None => return Ok(()),
                Some(seat) => {
                    if taken.greeted.len() >= taken.greeted_max && !taken.end_longest_idle() {
                        return Err(NoPlace(taken.greeted_max));
                    }
                    seat
                }
            },
        };
        taken.next += 1;
        self.number = taken.next;
        taken.greeted.insert(self.number, seat);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.ungreeted.remove(&self.number);
        taken.greeted.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Connection {
        place: Place,
        end: CancellationToken,
        in_use: InUse,
    }

    impl Connection {
        fn new(places: &Places) -> Self {
            let (end, in_use) = (CancellationToken::new(), InUse::default());
            let place = places.enter(end.clone(), in_use.clone());
            Self { place, end, in_use }
        }

        fn greeted(places: &Places) -> Self {
            let mut connection = Self::new(places);
            connection.place.spoke().unwrap();
            connection
        }

        fn is_ended(&self) -> bool {
            self.end.is_cancelled()
        }
    }

    #[test]
    fn ctl_1_the_longest_silent_one_gives_way_and_greeted_ones_stay() {
        let places = Places::new(2, 4);
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
    fn ctl_1_whoever_speaks_takes_the_place_of_whoever_waits_for_nothing() {
        let places = Places::new(2, 2);
        let mut first = Connection::greeted(&places);
        let second = Connection::greeted(&places);
        first.place.spoke().unwrap();
        let third = Connection::greeted(&places);
        let ended = [&first, &second, &third].map(Connection::is_ended);
        assert_eq!(ended, [false, true, false]);
        // With a request open each, both stay, and the newcomer is told.
        let _open = [first.in_use.clone(), third.in_use.clone()];
        let mut fourth = Connection::new(&places);
        assert_eq!(fourth.place.spoke(), Err(NoPlace(2)));
        drop(third);
        let mut fifth = Connection::new(&places);
        assert_eq!(fifth.place.spoke(), Ok(()));
        assert!(!first.is_ended());
    }

    #[test]
    fn ctl_1_few_files_mean_few_places() {
        let sizes = |limit| {
            let places = Places::within(limit);
            let taken = places.lock();
            (taken.ungreeted_max, taken.greeted_max)
        };
        assert_eq!(sizes(64), (4, 8));
        assert_eq!(sizes(8), (2, 2));
        assert_eq!(
            sizes(u64::MAX),
            (UNGREETED_CONNECTIONS, CONTROL_CONNECTIONS)
        );
    }
}
