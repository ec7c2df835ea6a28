//! Deduplicated token and cost counts of a run.
//!
//! Each adapter declares the scope of a figure: a run ([`Counter::Run`]), or a session that later
//! runs resume ([`Counter::Session`], and [`UsageReport::session`] in addition to the figures of a
//! run).
//!
//! Programs report the tokens of one message repeatedly, as growing figures with each of its parts,
//! and again in the final total. Adding them up overstates usage by a factor of 1.8 to 4. Therefore
//! the largest value of each field counts per message, and the reported total is compared with the
//! sum, never added.

use std::collections::{BTreeMap, VecDeque};

use goondan_protocol::usage::{MicroUsd, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::USAGE_MESSAGES_MAX;

/// Scope of a figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Counter {
    /// One run of the program: the next run starts at zero.
    Run,
    /// A session of the program: later runs that resume it continue the count.
    Session(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    pub counter: Counter,
    pub usage: Usage,
    /// Cost, if reported.
    pub cost: Option<MicroUsd>,
    /// Session totals, in addition to the run's figures: they include earlier runs, as far as the
    /// program remembers. The difference to the end of the previous run is the usage of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionUsage>,
}

/// Cumulative figures of a session, as reported by its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionUsage {
    pub id: String,
    pub usage: Usage,
    /// Cost, if reported.
    pub cost: Option<MicroUsd>,
}

/// Maximum of each field.
#[must_use]
pub fn largest(one: &Usage, other: &Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens.max(other.input_tokens),
        output_tokens: one.output_tokens.max(other.output_tokens),
        cache_read_tokens: one.cache_read_tokens.max(other.cache_read_tokens),
        cache_write_tokens: one.cache_write_tokens.max(other.cache_write_tokens),
        reasoning_tokens: one.reasoning_tokens.max(other.reasoning_tokens),
    }
}

/// Id of a message, and of the request that it answers.
pub type MessageKey = (String, String);

/// Usage by message of a run.
#[derive(Debug, Default)]
pub struct MessageLedger {
    by_message: BTreeMap<MessageKey, Usage>,
    order: VecDeque<MessageKey>,
    /// Sum of the messages that are no longer tracked individually.
    settled: Usage,
    total: Option<Usage>,
}

impl MessageLedger {
    /// Records a usage report of one message: the largest value of each field counts.
    pub fn message(&mut self, key: MessageKey, usage: &Usage) {
        if let Some(known) = self.by_message.get_mut(&key) {
            *known = largest(known, usage);
            return;
        }
        if self.order.len() >= USAGE_MESSAGES_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(usage) = self.by_message.remove(&oldest)
        {
            self.settled.add(&usage);
        }
        self.order.push_back(key.clone());
        self.by_message.insert(key, *usage);
    }

    /// Records a figure of the whole run, which raises the sum of the messages but is never added
    /// to it.
    pub fn whole(&mut self, usage: &Usage) {
        let known = self.total.unwrap_or_default();
        self.total = Some(largest(&known, usage));
    }

    /// Total usage, as far as it is known.
    #[must_use]
    pub fn total(&self) -> Usage {
        let mut sum = self.settled;
        for usage in self.by_message.values() {
            sum.add(usage);
        }
        match self.total {
            Some(total) => largest(&total, &sum),
            None => sum,
        }
    }
}

/// Reads a token count; anything else counts as 0.
pub(crate) fn count(object: &Value, name: &str) -> u64 {
    object.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Parses an amount of dollars, rounded up to a millionth so that a cost is never understated. None
/// if it is not an amount.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the amount is finite, not negative and below the bound"
)]
pub(crate) fn dollars(amount: f64) -> Option<MicroUsd> {
    const DOLLARS_MAX: f64 = 1e9;
    let is_amount = amount.is_finite() && (0.0..=DOLLARS_MAX).contains(&amount);
    // Tolerates the rounding noise of binary fractions, below a millionth of a millionth.
    is_amount.then(|| MicroUsd((amount * 1e6 - 1e-6).ceil().max(0.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage {
            input_tokens: input,
            output_tokens: output,
            ..Usage::default()
        }
    }

    fn key(id: &str) -> MessageKey {
        (id.to_owned(), String::new())
    }

    #[test]
    fn task_6_a_message_is_counted_once_by_its_largest_figures() {
        let mut ledger = MessageLedger::default();
        for output in [1, 1, 250, 90] {
            ledger.message(key("a"), &usage(10, output));
        }
        ledger.message(key("b"), &usage(5, 7));
        assert_eq!(ledger.total(), usage(15, 257));
        ledger.whole(&usage(15, 260));
        assert_eq!(ledger.total(), usage(15, 260));
        ledger.whole(&usage(14, 260));
        assert_eq!(ledger.total(), usage(15, 260));
    }

    #[test]
    fn task_6_messages_beyond_the_limit_stay_in_the_sum() {
        let mut ledger = MessageLedger::default();
        for number in 0..USAGE_MESSAGES_MAX + 10 {
            ledger.message(key(&number.to_string()), &usage(1, 2));
        }
        let all = (USAGE_MESSAGES_MAX + 10) as u64;
        assert_eq!(ledger.total(), usage(all, 2 * all));
        assert_eq!(ledger.by_message.len(), USAGE_MESSAGES_MAX);
    }

    #[test]
    fn task_6_dollars_are_whole_millionths() {
        assert_eq!(dollars(0.1), Some(MicroUsd(100_000)));
        assert_eq!(dollars(0.000_000_4), Some(MicroUsd(1)));
        assert_eq!(dollars(0.0), Some(MicroUsd(0)));
        for none in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(dollars(none), None);
        }
    }
}
