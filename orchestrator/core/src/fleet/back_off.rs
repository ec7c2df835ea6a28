//! Restart delay of crashed processes (`SUP-4`).

use crate::limits::{BACK_OFF_FIRST_MS, BACK_OFF_MAX_MS, IMMEDIATE_RESTARTS};

/// The delay after `crashes` consecutive crashes, in milliseconds: zero for the first
/// [`IMMEDIATE_RESTARTS`], then `min(1 s × 2^(n−1), 5 min)`.
#[must_use]
pub(crate) fn delay_ms(crashes: u32) -> u64 {
    match crashes.saturating_sub(IMMEDIATE_RESTARTS) {
        0 => 0,
        n => 1_u64
            .checked_shl(n - 1)
            .and_then(|factor| factor.checked_mul(BACK_OFF_FIRST_MS))
            .map_or(BACK_OFF_MAX_MS, |delay| delay.min(BACK_OFF_MAX_MS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sup_4_five_at_once_then_doubling_up_to_five_minutes() {
        let delays: Vec<u64> = (0..=16).map(delay_ms).collect();
        assert_eq!(delays[..6], [0; 6]);
        assert_eq!(
            delays[6..15],
            [1, 2, 4, 8, 16, 32, 64, 128, 256].map(|s| s * 1_000)
        );
        assert_eq!(delays[15..], [300_000, 300_000]);
        assert_eq!(delay_ms(u32::MAX), 300_000);
    }
}
