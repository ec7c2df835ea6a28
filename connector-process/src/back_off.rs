//! Pauses between retries: each is twice as long as the previous one, up to a bound. Pure.

use std::time::Duration;

/// Pause after consecutive failures: `first_ms` after the first, at most `longest_ms`.
pub(crate) fn back_off(failures: u32, first_ms: u64, longest_ms: u64) -> Duration {
    let factor = 1_u64.checked_shl(failures.saturating_sub(1));
    let ms = factor.and_then(|factor| factor.checked_mul(first_ms));
    Duration::from_millis(ms.map_or(longest_ms, |ms| ms.min(longest_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_however_often_it_fails() {
        let pauses = [1, 2, 3, 9, 10, 64, 65, u32::MAX].map(|n| back_off(n, 1_000, 300_000));
        assert_eq!(
            pauses.map(|pause| pause.as_secs()),
            [1, 2, 4, 256, 300, 300, 300, 300]
        );
    }
}
