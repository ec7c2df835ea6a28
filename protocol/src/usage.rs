//! What the replies of models take: tokens and money.
//!
//! Money is counted in millionths of a US dollar, as whole numbers: sums are exact. A cost that is not
//! known is absent, never 0.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::time::Timestamp;

/// The field of a reply's metadata that holds its [`Usage`].
pub const USAGE: &str = "usage";

/// The field of a reply's metadata that holds what it cost, as [`MicroUsd`]; absent if that is not known.
pub const COST: &str = "costMicroUsd";

/// The tokens of one call to a model, or of several. What goes in is counted in three parts that do not
/// overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Read, and neither found in the provider's cache nor put there.
    #[serde(default)]
    pub input_tokens: u64,
    /// Written, thoughts included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Read and put into the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Those of the output that are thoughts, as far as the provider tells.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// All tokens, in and out.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.read().saturating_add(self.output_tokens)
    }

    /// All tokens that went in.
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
    /// A dollar.
    pub const USD: Self = Self(1_000_000);

    /// Decimals of a dollar that an amount can have.
    const DECIMALS: usize = 6;

    /// Both together; the largest amount there is, if they are more.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of this without `other`.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for MicroUsd {
    /// In dollars, with as many decimals as it takes and at least two: `$0.0123`, `$5.00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % Self::USD.0);
        let shown = decimals.trim_end_matches('0').len().max(2);
        let shown = decimals.get(..shown).unwrap_or(&decimals);
        write!(f, "${}.{shown}", self.0 / Self::USD.0)
    }
}

/// A text that is no amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an amount in US dollars with at most six decimals, such as `0.25`")]
pub struct InvalidAmount;

impl FromStr for MicroUsd {
    type Err = InvalidAmount;

    /// Reads an amount in dollars, written as a plain decimal.
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

/// What a model's tokens cost from some day on: amounts for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// From when on it holds; `None`: from always.
    pub since: Option<Timestamp>,
    /// For what goes in.
    pub input: MicroUsd,
    /// For what comes out, thoughts included.
    pub output: MicroUsd,
    /// For what is read from the provider's cache.
    pub cache_read: MicroUsd,
    /// For what is put into the provider's cache.
    pub cache_write: MicroUsd,
}

impl Price {
    /// What these tokens cost, rounded up to the next millionth of a dollar.
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

/// What a model's tokens cost, and since when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable(Vec<Price>);

impl PriceTable {
    /// A table of these prices.
    #[must_use]
    pub fn new(mut prices: Vec<Price>) -> Self {
        prices.sort_by_key(|price| price.since);
        Self(prices)
    }

    /// The price that holds at this time: the one that began last. None if none is known.
    #[must_use]
    pub fn at(&self, when: Timestamp) -> Option<&Price> {
        let begun = self.0.iter().rev();
        let mut begun = begun.filter(|price| price.since.is_none_or(|since| since <= when));
        begun.next()
    }

    /// Whether no price is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What one reply took, as its record says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Its tokens, if the provider told.
    pub usage: Option<Usage>,
    /// What it cost, if that is known.
    pub cost: Option<MicroUsd>,
}

impl Spent {
    /// Reads it from the metadata of a reply.
    #[must_use]
    pub fn of_metadata(metadata: &JsonObject) -> Self {
        let read = |name: &str| metadata.get(name).cloned();
        Self {
            usage: read(USAGE).and_then(|usage| serde_json::from_value(usage).ok()),
            cost: read(COST).and_then(|cost| serde_json::from_value(cost).ok()),
        }
    }
}

/// What several replies took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spending {
    /// How many replies.
    pub replies: u64,
    /// Their tokens, as far as they are known.
    pub usage: Usage,
    /// What they cost, as far as that is known.
    pub cost_micro_usd: MicroUsd,
    /// Replies among them whose tokens the provider did not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmetered: u64,
    /// Replies among them whose cost is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
}

impl Spending {
    /// Adds one reply.
    pub fn add_reply(&mut self, spent: &Spent) {
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

    /// Adds what others took.
    pub fn add(&mut self, other: &Self) {
        self.replies = self.replies.saturating_add(other.replies);
        self.usage.add(&other.usage);
        self.cost_micro_usd = self.cost_micro_usd.plus(other.cost_micro_usd);
        self.unmetered = self.unmetered.saturating_add(other.unmetered);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    /// The whole as if it were one reply: what is not known of each is not known of all.
    #[must_use]
    pub fn as_spent(&self) -> Spent {
        let is_any = self.replies > 0;
        Spent {
            usage: (is_any && self.unmetered == 0).then_some(self.usage),
            cost: (is_any && self.unpriced == 0).then_some(self.cost_micro_usd),
        }
    }
}

/// What counts against a budget: what replies took and, where that was not told, what they were taken to
/// take at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Money.
    pub micro_usd: MicroUsd,
}

impl Charge {
    /// Whether nothing counts.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Both together.
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
    fn what_is_not_known_of_one_reply_is_not_known_of_all() {
        let usage = Usage {
            input_tokens: 5,
            ..Usage::default()
        };
        let mut spending = Spending::default();
        assert_eq!(spending.as_spent(), Spent::default());
        let known = Spent {
            usage: Some(usage),
            cost: Some(MicroUsd(7)),
        };
        spending.add_reply(&known);
        assert_eq!(spending.as_spent(), known);
        spending.add_reply(&Spent {
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
