//! Usage of models: tokens and cost.
//!
//! Money is an integer number of millionths of a US dollar, so that sums are exact. An unknown cost
//! is absent, never 0.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::time::Timestamp;

/// Metadata key of a reply that holds its [`Usage`].
pub const USAGE: &str = "usage";

/// Metadata key of a reply that holds its cost, as [`MicroUsd`]; absent if unknown.
pub const COST: &str = "costMicroUsd";

/// Tokens of one or more calls to a model. The three input counts do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Input tokens that were neither read from nor written to the provider's cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// Output tokens, including reasoning.
    #[serde(default)]
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Output tokens spent on reasoning, if the provider reports them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// All tokens, input and output.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.read().saturating_add(self.output_tokens)
    }

    /// All input tokens.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }

    /// Adds the tokens of another call.
    pub fn add(&mut self, other: &Self) {
        let Self {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens,
        } = other;
        for (sum, more) in [
            (&mut self.input_tokens, input_tokens),
            (&mut self.output_tokens, output_tokens),
            (&mut self.cache_read_tokens, cache_read_tokens),
            (&mut self.cache_write_tokens, cache_write_tokens),
            (&mut self.reasoning_tokens, reasoning_tokens),
        ] {
            *sum = sum.saturating_add(*more);
        }
    }
}

/// An amount of money in millionths of a US dollar.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// One dollar.
    pub const USD: Self = Self(1_000_000);

    /// Number of decimals of an amount in dollars.
    const DECIMALS: usize = 6;

    /// Saturating addition.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Saturating subtraction.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for MicroUsd {
    /// Formats the amount in dollars with as many decimals as necessary and at least two:
    /// `$0.0123`, `$5.00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % Self::USD.0);
        let shown = decimals.trim_end_matches('0').len().max(2);
        let shown = decimals.get(..shown).unwrap_or(&decimals);
        write!(f, "${}.{shown}", self.0 / Self::USD.0)
    }
}

/// The text is not an amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an amount in US dollars with at most six decimals, such as `0.25`")]
pub struct InvalidAmount;

impl FromStr for MicroUsd {
    type Err = InvalidAmount;

    /// Parses an amount in dollars, written as a plain decimal.
    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(decimals) || decimals.len() > Self::DECIMALS {
            return Err(InvalidAmount);
        }
        let dollars: u64 = whole.parse().map_err(|_| InvalidAmount)?;
        let decimals: u64 = format!("{decimals:0<6}")
            .parse()
            .map_err(|_| InvalidAmount)?;
        let micros = dollars.checked_mul(Self::USD.0);
        let micros = micros.and_then(|micros| micros.checked_add(decimals));
        micros.map(Self).ok_or(InvalidAmount)
    }
}

/// Prices of a model's tokens from some day on, per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// Start of its validity; `None` for always.
    pub since: Option<Timestamp>,
    /// Price of input.
    pub input: MicroUsd,
    /// Price of output, including reasoning.
    pub output: MicroUsd,
    /// Price of reads from the provider's cache.
    pub cache_read: MicroUsd,
    /// Price of writes to the provider's cache.
    pub cache_write: MicroUsd,
}

impl Price {
    /// Cost of these tokens, rounded up to the next millionth of a dollar.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> MicroUsd {
        const TOKENS: u128 = 1_000_000;
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
        ];
        let parts = parts.map(|(tokens, price)| u128::from(tokens) * u128::from(price.0));
        let sum = parts.into_iter().fold(0, u128::saturating_add);
        MicroUsd(u64::try_from(sum.div_ceil(TOKENS)).unwrap_or(u64::MAX))
    }
}

/// Prices of a model's tokens over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable(Vec<Price>);

impl PriceTable {
    /// Creates a table of these prices.
    #[must_use]
    pub fn new(mut prices: Vec<Price>) -> Self {
        prices.sort_by_key(|price| price.since);
        Self(prices)
    }

    /// The price valid at this time, which is the one that started last. `None` if no price is
    /// known.
    #[must_use]
    pub fn at(&self, when: Timestamp) -> Option<&Price> {
        let begun = self.0.iter().rev();
        let mut begun = begun.filter(|price| price.since.is_none_or(|since| since <= when));
        begun.next()
    }

    /// True if no price is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Usage and cost of one reply, as recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyCost {
    /// Its tokens, if the provider reported them.
    pub usage: Option<Usage>,
    /// Its cost, if known.
    pub cost: Option<MicroUsd>,
}

impl ReplyCost {
    /// Reads usage and cost from the metadata of a reply.
    #[must_use]
    pub fn of_metadata(metadata: &JsonObject) -> Self {
        let read = |name: &str| metadata.get(name).cloned();
        Self {
            usage: read(USAGE).and_then(|usage| serde_json::from_value(usage).ok()),
            cost: read(COST).and_then(|cost| serde_json::from_value(cost).ok()),
        }
    }
}

/// Total usage and cost of several replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTotal {
    /// Number of replies.
    pub replies: u64,
    /// Their known tokens.
    pub usage: Usage,
    /// Their known cost.
    pub cost_micro_usd: MicroUsd,
    /// Number of replies whose tokens the provider did not report.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmetered: u64,
    /// Number of replies with an unknown cost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
}

impl UsageTotal {
    /// Adds one reply.
    pub fn add_reply(&mut self, spent: &ReplyCost) {
        self.replies = self.replies.saturating_add(1);
        match &spent.usage {
            Some(usage) => self.usage.add(usage),
            None => self.unmetered = self.unmetered.saturating_add(1),
        }
        match spent.cost {
            Some(cost) => self.cost_micro_usd = self.cost_micro_usd.plus(cost),
            None => self.unpriced = self.unpriced.saturating_add(1),
        }
    }

    /// Adds another total.
    pub fn add(&mut self, other: &Self) {
        self.replies = self.replies.saturating_add(other.replies);
        self.usage.add(&other.usage);
        self.cost_micro_usd = self.cost_micro_usd.plus(other.cost_micro_usd);
        self.unmetered = self.unmetered.saturating_add(other.unmetered);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    /// The total as one reply. A value that is unknown for one reply is unknown for the total.
    #[must_use]
    pub fn as_spent(&self) -> ReplyCost {
        let is_any = self.replies > 0;
        ReplyCost {
            usage: (is_any && self.unmetered == 0).then_some(self.usage),
            cost: (is_any && self.unpriced == 0).then_some(self.cost_micro_usd),
        }
    }
}

/// Amount charged to a budget: actual usage of replies, and estimated maximum usage where it was
/// not reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// Tokens, input and output.
    pub tokens: u64,
    /// Cost.
    pub micro_usd: MicroUsd,
}

impl Charge {
    /// True if the charge is zero.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Saturating addition.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.plus(other.micro_usd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price {
        since: None,
        input: MicroUsd(3_000_000),
        output: MicroUsd(15_000_000),
        cache_read: MicroUsd(300_000),
        cache_write: MicroUsd(3_750_000),
    };

    #[test]
    fn amounts_are_read_and_shown_without_loss() {
        for (text, micros, shown) in [
            ("0", 0, "$0.00"),
            ("3", 3_000_000, "$3.00"),
            ("0.3", 300_000, "$0.30"),
            ("12.345678", 12_345_678, "$12.345678"),
            ("0.000001", 1, "$0.000001"),
        ] {
            let amount: MicroUsd = text.parse().unwrap();
            assert_eq!((amount.0, amount.to_string().as_str()), (micros, shown));
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0.0000001",
            "18446744073710",
        ] {
            assert_eq!(text.parse::<MicroUsd>(), Err(InvalidAmount), "{text}");
        }
    }

    #[test]
    fn a_cost_is_the_sum_of_all_parts_rounded_up_once() {
        let usage = Usage {
            input_tokens: 1_000,
            output_tokens: 200,
            cache_read_tokens: 1,
            cache_write_tokens: 10,
            reasoning_tokens: 150,
        };
        // 3000 + 3000 + 0.3 + 37.5
        assert_eq!(PRICE.of(&usage), MicroUsd(6_038));
        assert_eq!(PRICE.of(&Usage::default()), MicroUsd(0));
        let everything = Usage {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            ..Usage::default()
        };
        assert_eq!(PRICE.of(&everything), MicroUsd(u64::MAX));
    }

    #[test]
    fn the_price_that_began_last_holds() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = |text: &str, dollars: u64| Price {
            since: Some(at(text)),
            input: MicroUsd(dollars * 1_000_000),
            ..PRICE
        };
        let table = PriceTable::new(vec![
            since("2026-06-01T00:00:00Z", 2),
            since("2026-01-01T00:00:00Z", 1),
        ]);
        let holds = |when| table.at(at(when)).map(|price| price.input.0 / 1_000_000);
        assert_eq!(holds("2025-12-31T23:59:59.999Z"), None);
        assert_eq!(holds("2026-01-01T00:00:00Z"), Some(1));
        assert_eq!(holds("2026-05-31T23:59:59.999Z"), Some(1));
        assert_eq!(holds("2026-06-01T00:00:00Z"), Some(2));
        assert_eq!(PriceTable::default().at(at("2026-06-01T00:00:00Z")), None);
    }

    #[test]
    fn usage_unknown_for_one_reply_is_unknown_in_total() {
        let usage = Usage {
            input_tokens: 5,
            ..Usage::default()
        };
        let mut spending = UsageTotal::default();
        assert_eq!(spending.as_spent(), ReplyCost::default());
        let known = ReplyCost {
            usage: Some(usage),
            cost: Some(MicroUsd(7)),
        };
        spending.add_reply(&known);
        assert_eq!(spending.as_spent(), known);
        spending.add_reply(&ReplyCost {
            cost: None,
            ..known
        });
        assert_eq!(spending.as_spent().cost, None);
        assert_eq!(
            spending.as_spent().usage.map(|all| all.input_tokens),
            Some(10)
        );
        assert_eq!((spending.replies, spending.unpriced), (2, 1));
    }
}
