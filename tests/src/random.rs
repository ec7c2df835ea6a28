//! Reproducible randomness.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Variable with the seed of random tests, to reproduce a run.
pub const SEED_VAR: &str = "GOONDAN_TEST_SEED";

/// A small random number generator (`SplitMix64`). The same seed produces the same numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator with the seed in [`SEED_VAR`], or a new one. Prints the seed, so that a failure
    /// can be reproduced.
    #[must_use]
    pub fn announced() -> Self {
        let given = std::env::var(SEED_VAR)
            .ok()
            .map(|text| text.parse().unwrap());
        let seed = given.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(since.subsec_nanos()) ^ since.as_secs()
        });
        eprintln!("seed {seed}; the same again: {SEED_VAR}={seed}");
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Sleeps for a random time shorter than `limit_ms`: the next action must not depend on
    /// anything observable.
    pub fn let_pass(&mut self, limit_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(limit_ms)));
    }

    /// A random item; none if the slice is empty.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let len = u64::try_from(items.len()).ok().filter(|len| *len > 0)?;
        items.get(usize::try_from(self.below(len)).ok()?)
    }
}
