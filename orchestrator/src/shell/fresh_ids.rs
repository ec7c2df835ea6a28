//! Fresh ids: UUIDs of version 7, in ascending order.
//!
//! As `Uuid::now_v7`, but the kernel is asked for random bytes once for many ids: a turn needs
//! about ten, and each request was a system call.

use goondan_log::unix_millis_now;
use uuid::{Builder, Uuid};

/// Random bytes that are fetched at once.
const RANDOM_BYTES: usize = 512;
/// Bits of the counter. A new millisecond sets all but the first at random.
const COUNTER_BITS: u32 = 42;

/// A source of ids.
pub(super) struct FreshIds {
    random: [u8; RANDOM_BYTES],
    /// Number of bytes that are used up.
    used: usize,
    millis: u64,
    /// Orders the ids of one millisecond.
    counter: u64,
}

impl FreshIds {
    pub(super) fn new() -> Self {
        Self {
            random: [0; RANDOM_BYTES],
            used: RANDOM_BYTES,
            millis: 0,
            counter: 0,
        }
    }

    /// An id greater than all earlier ones.
    pub(super) fn now(&mut self) -> Uuid {
        let now = u64::try_from(unix_millis_now()).unwrap_or_default();
        // `Uuid::now_v7` panics without random bytes, which no id may lack.
        self.at(now).unwrap_or_else(Uuid::now_v7)
    }

    /// An id for a time, or for the latest one if the clock was set back.
    fn at(&mut self, now: u64) -> Option<Uuid> {
        if now > self.millis {
            self.restart(now)?;
        } else {
            self.counter += 1;
            if self.counter >> COUNTER_BITS > 0 {
                self.restart(self.millis + 1)?;
            }
        }
        let [.., a, b] = (self.counter >> 30).to_be_bytes();
        let [.., c, d, e, f] = (self.counter & 0x3fff_ffff).to_be_bytes();
        let [g, h, i, j] = self.take()?;
        let bytes = [a, b, c, d, e, f, g, h, i, j];
        Some(Builder::from_unix_timestamp_millis(self.millis, &bytes).into_uuid())
    }

    fn restart(&mut self, millis: u64) -> Option<()> {
        self.counter = u64::from_be_bytes(self.take()?) >> (65 - COUNTER_BITS);
        self.millis = millis;
        Some(())
    }

    /// Random bytes. Each byte is used once.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.used + N > RANDOM_BYTES {
            getrandom::fill(&mut self.random).ok()?;
            self.used = 0;
        }
        let bytes = self.random.get(self.used..)?.first_chunk().copied();
        self.used += N;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_also_if_the_clock_is_set_back() {
        let mut ids = FreshIds::new();
        let times = [7, 7, 8, 3, 3, 9, 1_700_000_000_000];
        let times = times.into_iter().chain([1_700_000_000_000; 1_000]);
        let made: Vec<Uuid> = times.map(|now| ids.at(now).unwrap()).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]), "{made:?}");
        assert!(made.iter().all(|id| id.get_version_num() == 7));
        assert!(
            made.iter()
                .all(|id| id.get_variant() == uuid::Variant::RFC4122)
        );
        let (seconds, nanos) = made[6].get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (1_700_000_000, 0));
    }

    #[test]
    fn a_full_counter_moves_to_the_next_millisecond() {
        let mut ids = FreshIds::new();
        let first = ids.at(7).unwrap();
        ids.counter = (1 << COUNTER_BITS) - 1;
        let second = ids.at(7).unwrap();
        assert!(first < second);
        assert_eq!(ids.millis, 8);
    }

    #[test]
    fn two_sources_make_different_ids() {
        let (mut a, mut b) = (FreshIds::new(), FreshIds::new());
        assert_ne!(a.at(7), b.at(7));
    }
}
