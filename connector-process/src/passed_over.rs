//! Counts what a service sent and no agent gets, by reason (`CONN-1`).

use std::collections::BTreeMap;

/// Number of reasons that a status names.
const SHOWN_REASONS: usize = 3;

/// Counts since the start of the process, by reason.
#[derive(Debug, Default)]
pub(crate) struct PassedOver(BTreeMap<&'static str, u64>);

impl PassedOver {
    /// Counts one for this reason.
    pub(crate) fn count(&mut self, reason: &'static str) {
        let count = self.0.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    /// The counts for people, the most frequent reasons first; `None` if nothing was passed over.
    pub(crate) fn note(&self) -> Option<String> {
        let total: u64 = self.0.values().sum();
        if total == 0 {
            return None;
        }
        let mut reasons: Vec<_> = self.0.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown = reasons.iter().take(SHOWN_REASONS);
        let mut shown: Vec<String> = shown
            .map(|(reason, count)| format!("{count}: {reason}"))
            .collect();
        if reasons.len() > SHOWN_REASONS {
            shown.push("…".to_owned());
        }
        Some(format!("passed over {total} ({})", shown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_passed_over_messages_are_counted_by_reason() {
        let mut passed_over = PassedOver::default();
        assert_eq!(passed_over.note(), None);
        for reason in ["a", "b", "b", "c", "d", "d", "d"] {
            passed_over.count(reason);
        }
        assert_eq!(
            passed_over.note().as_deref(),
            Some("passed over 7 (3: d, 2: b, 1: a, …)")
        );
    }
}
