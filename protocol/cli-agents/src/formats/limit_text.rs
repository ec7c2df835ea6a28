//! End of a rate limit, parsed from an error message.

use std::time::Duration;

use goondan_protocol::time::Timestamp;

use crate::event::Reset;

/// Larger numbers are times in milliseconds instead of seconds.
const SECONDS_MAX: i64 = 100_000_000_000;

/// A time in seconds since 1970, or in milliseconds.
pub(super) fn time_of(number: i64) -> Timestamp {
    let is_seconds = number < SECONDS_MAX;
    let millis = if is_seconds {
        number.saturating_mul(1000)
    } else {
        number
    };
    Timestamp::from_unix_millis(millis)
}

/// Parses the end of the reported rate limit; none if the message reports no limit.
pub(super) fn reset_of(text: &str) -> Option<Reset> {
    const MARKS: [&str; 7] = [
        "usage limit",
        "usage_limit_reached",
        "rate limit",
        "rate_limit",
        "hit your limit",
        "limit reached|",
        "too many requests",
    ];
    let lower = text.to_lowercase();
    if !MARKS.iter().any(|mark| lower.contains(mark)) {
        return None;
    }
    let at =
        number_after(&lower, "limit reached|").or_else(|| number_after(&lower, "\"resets_at\":"));
    let after =
        || number_after(&lower, "\"resets_in_seconds\":").and_then(|n| u64::try_from(n).ok());
    let found = at.map(|at| Reset::At(time_of(at)));
    let found = found.or_else(|| after().map(|seconds| Reset::After(Duration::from_secs(seconds))));
    let found = found.or_else(|| span_after(&lower, "try again in ").map(Reset::After));
    Some(found.unwrap_or(Reset::Unknown))
}

fn number_after(text: &str, mark: &str) -> Option<i64> {
    let (_, rest) = text.split_once(mark)?;
    let rest = rest.trim_start();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Parses a duration: `1 day 4 hours 5 minutes`, `20s`.
fn span_after(text: &str, mark: &str) -> Option<Duration> {
    let (_, rest) = text.split_once(mark)?;
    let mut seconds: u64 = 0;
    let mut number: Option<u64> = None;
    let mut is_span = false;
    for word in words(rest) {
        if let Ok(next) = word.parse() {
            number = Some(next);
            continue;
        }
        let unit: u64 = match word.as_str() {
            "d" | "day" | "days" => 24 * 60 * 60,
            "h" | "hour" | "hours" => 60 * 60,
            "m" | "min" | "minute" | "minutes" => 60,
            "s" | "second" | "seconds" => 1,
            "and" => continue,
            _ => break,
        };
        let Some(count) = number.take() else { break };
        seconds = seconds.saturating_add(unit.saturating_mul(count));
        is_span = true;
    }
    is_span.then(|| Duration::from_secs(seconds))
}

/// Runs of digits and runs of letters.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    for c in text.chars().take(100) {
        let kind = (c.is_ascii_digit(), c.is_alphabetic());
        if kind != (false, false) {
            match words.last_mut() {
                Some(word) if before == Some(kind) => word.push(c),
                _ => words.push(c.to_string()),
            }
        }
        before = Some(kind);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_reset_time_is_parsed_from_messages() {
        let at = |seconds: i64| Some(Reset::At(Timestamp::from_unix_millis(seconds * 1000)));
        let after = |seconds| Some(Reset::After(Duration::from_secs(seconds)));
        assert_eq!(
            reset_of("Claude AI usage limit reached|1755806400"),
            at(1_755_806_400)
        );
        let codex =
            r#"{"type":"usage_limit_reached","resets_at":1788879437,"resets_in_seconds":9568}"#;
        assert_eq!(reset_of(codex), at(1_788_879_437));
        assert_eq!(
            reset_of(r#"usage_limit_reached "resets_in_seconds": 60"#),
            after(60)
        );
        let words = "You've hit your usage limit. Try again in 1 day 4 hours 5 minutes.";
        assert_eq!(reset_of(words), after(86_400 + 4 * 3600 + 300));
        assert_eq!(
            reset_of("Rate limit reached. Please try again in 20s."),
            after(20)
        );
        let local = "You've hit your usage limit. Try again at 3:05 PM.";
        assert_eq!(reset_of(local), Some(Reset::Unknown));
        assert_eq!(reset_of("file not found, try again in 5 minutes"), None);
        assert_eq!(time_of(1_788_879_437_000), time_of(1_788_879_437));
    }
}
