//! Waiting for conditions.

use std::time::{Duration, Instant};

/// Maximum wait for anything, on the slowest and busiest machine. Waits end early if possible.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Interval between checks of a condition.
pub const POLL: Duration = Duration::from_millis(5);

/// Polls until `condition` returns a value; none after a timeout.
pub fn within<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let value = condition();
        if value.is_some() || start.elapsed() >= limit {
            return value;
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until `condition` returns a value.
///
/// # Panics
///
/// After [`PATIENCE`], with `what` it waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, condition)
        .unwrap_or_else(|| panic!("waited {} s in vain: {what}", PATIENCE.as_secs()))
}

/// Waits until `condition` is true.
///
/// # Panics
///
/// As [`wait_for`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}
