//! Waiting for conditions.

use std::time::{Duration, Instant};

/// Longest wait for anything, on the slowest and busiest machine. A wait that is over earlier costs
/// nothing.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often a condition is looked at.
pub const POLL: Duration = Duration::from_millis(15);

/// Waits until `condition` gives a value.
///
/// # Panics
///
/// If it gives none within [`PATIENCE`], with `what` was waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "waited {} s in vain: {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(POLL);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
///
/// As [`wait_for`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}
