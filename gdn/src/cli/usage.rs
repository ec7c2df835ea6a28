//! The options of `gdn usage`.

use clap::{Args, ValueEnum};
use goondan_protocol::control::UsageBy;
use goondan_protocol::time::{Day, Timestamp};

use crate::output::text;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// What is summed up together
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = UsageSum::Agent)]
    pub(crate) by: UsageSum,
    /// Only from this day on, in UTC: `2026-01-31`, or `7d` for the last seven days
    #[arg(long, value_name = "DAY", value_parser = parse_since)]
    pub(crate) since: Option<Day>,
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
}

/// What `gdn usage` sums up together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageSum {
    Agent,
    Instance,
    Day,
    Model,
}

impl From<UsageSum> for UsageBy {
    fn from(sum: UsageSum) -> Self {
        match sum {
            UsageSum::Agent => Self::Agent,
            UsageSum::Instance => Self::Instance,
            UsageSum::Day => Self::Day,
            UsageSum::Model => Self::Model,
        }
    }
}

/// Reads a day, or how many days are wanted, today included.
fn parse_since(text: &str) -> Result<Day, String> {
    const DAY_MS: i64 = 86_400_000;
    if let Some(days) = text.strip_suffix('d') {
        let days: i64 = days.parse().ok().filter(|days| *days > 0).ok_or_else(|| {
            format!("`{text}` is no number of days; write it like 7d, today included")
        })?;
        let before_ms = days.saturating_sub(1).saturating_mul(DAY_MS);
        let now_ms = text::now().as_unix_millis();
        return Ok(Timestamp::from_unix_millis(now_ms.saturating_sub(before_ms)).day());
    }
    text.parse()
        .map_err(|_| format!("`{text}` is no day; write it like 2026-01-31, or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_out_or_counted_back_from_today() {
        let day = parse_since("2026-01-31").unwrap();
        assert_eq!(day.to_string(), "2026-01-31");
        let today = text::now().day();
        assert!(parse_since("1d").unwrap() >= today);
        assert!(parse_since("8d").unwrap() < today);
        for bad in ["", "d", "0d", "-1d", "7", "2026-02-30", "yesterday"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
