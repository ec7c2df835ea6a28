//! End of a rate limit, parsed from an error message.

use std::time::Duration;

use goondan_protocol::time::Timestamp;

use crate::event::{Reset, WallClock};

/// Larger numbers are times in milliseconds instead of seconds.
const SECONDS_MAX: i64 = 100_000_000_000;

/// Digits of a time in seconds.
const TIME_DIGITS: usize = 10;

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
    const MARKS: [&str; 12] = [
        "usage limit",
        "usage_limit_reached",
        "rate limit",
        "rate_limit",
        "hit your limit",
        "limit reached|",
        "too many requests",
        "5-hour limit",
        "session limit",
        "weekly limit",
        "quota exceeded",
        "resource_exhausted",
    ];
    /// Evidence of a limit. "Connection reset after 5 s" is not.
    const RESETS: [&str; 4] = [
        "resets in ",
        "resets after ",
        "will reset in ",
        "will reset after ",
    ];
    const RETRIES: [&str; 6] = [
        "try again in ",
        "try again after ",
        "retry in ",
        "retry after ",
        "reset in ",
        "reset after ",
    ];
    /// Errors of file systems.
    const OF_DISKS: [&str; 2] = ["disk quota exceeded", "quota exceeded (os error"];
    let mut lower = text.to_lowercase();
    for words in OF_DISKS {
        lower = lower.replace(words, "");
    }
    let clock = clock_of(text);
    let is_marked = MARKS.iter().any(|mark| lower.contains(mark));
    // The words of programs change; a limit or usage with its end is a usage limit in all of them.
    let reset_span = RESETS.iter().find_map(|mark| span_after(&lower, mark));
    let has_end = clock.is_some() || reset_span.is_some();
    let is_about_usage = ["limit", "usage", "quota"]
        .iter()
        .any(|word| lower.contains(word));
    if !(is_marked || has_end && is_about_usage) {
        return None;
    }
    let at = time_after_bar(&lower).or_else(|| number_after(&lower, "\"resets_at\":"));
    let after =
        || number_after(&lower, "\"resets_in_seconds\":").and_then(|n| u64::try_from(n).ok());
    let found = at.map(|at| Reset::At(time_of(at)));
    let found = found.or_else(|| after().map(|seconds| Reset::After(Duration::from_secs(seconds))));
    let retry_span = || RETRIES.iter().find_map(|mark| span_after(&lower, mark));
    let span = retry_span().or(reset_span);
    let found = found.or(span.map(Reset::After));
    Some(found.or(clock.map(Reset::Clock)).unwrap_or(Reset::Unknown))
}

/// Parses the time that ends a message of an older program: `limit reached|1755806400`.
fn time_after_bar(text: &str) -> Option<i64> {
    let mut parts = text.split('|').skip(1).filter_map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|_| digits.len() >= TIME_DIGITS)
    });
    parts.next()
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
            "w" | "week" | "weeks" => 7 * 24 * 60 * 60,
            "d" | "day" | "days" => 24 * 60 * 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => 60 * 60,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "and" => continue,
            _ => break,
        };
        let Some(count) = number.take() else { break };
        seconds = seconds.saturating_add(unit.saturating_mul(count));
        is_span = true;
    }
    is_span.then(|| Duration::from_secs(seconds))
}

/// Parses the time at which a limit ends: `resets 3pm (Europe/Berlin)`, `try again at 15:05`, `resets
/// Nov 30 at 10am`.
fn clock_of(text: &str) -> Option<WallClock> {
    const MARKS: [&str; 9] = [
        "resets at ",
        "resets on ",
        "resets ",
        "reset at ",
        "reset on ",
        "try again at ",
        "try again on ",
        "try again after ",
        "available again at ",
    ];
    // Only ASCII changes, so that positions stay.
    let lower = text.to_ascii_lowercase();
    MARKS.iter().find_map(|mark| {
        let at = lower.find(mark)? + mark.len();
        let rest: String = text.get(at..)?.chars().take(80).collect();
        wall_clock(&rest)
    })
}

fn wall_clock(text: &str) -> Option<WallClock> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let (time, zone) = match text.split_once('(') {
        Some((time, rest)) => (time, rest.split_once(')').map(|(zone, _)| zone)),
        None => (text, None),
    };
    let lower = time.to_lowercase();
    let lower = lower.replace("a.m.", "am").replace("p.m.", "pm");
    let words = words(&lower);
    let mut words = words.iter().map(String::as_str).peekable();
    // Without a date, the next time of the clock counts.
    while words.next_if(|word| is_near_day(word)).is_some() {}
    let number = |word: &str| word.parse::<i8>().ok();
    let month_of = |word: &str| {
        let found = MONTHS.iter().position(|month| word.starts_with(month))?;
        i8::try_from(found + 1).ok()
    };
    let mut date = None;
    if let Some(month) = words.peek().copied().and_then(month_of) {
        words.next();
        date = Some((month, words.next().and_then(number)?));
    } else {
        // The day first: `6 September 2026`, `10 de jul. de 2026`.
        let mut ahead = words.clone();
        let day = ahead.next().and_then(number);
        while ahead.next_if(|word| is_beside_day(word)).is_some() {}
        if let (Some(day), Some(month)) = (day, ahead.next().and_then(month_of)) {
            date = Some((month, day));
            words = ahead;
        }
    }
    if date.is_some() {
        while words
            .next_if(|word| is_beside_day(word) || *word == "at" || word.len() == 4)
            .is_some()
        {}
    }
    let Some(mut hour) = words.next().and_then(number) else {
        // A day without a time.
        return date.map(|date| WallClock {
            hour: 0,
            minute: 0,
            date: Some(date),
            zone: zone.map(str::to_owned),
        });
    };
    let minute = words.next_if(|word| word.len() == 2 && number(word).is_some());
    match words.next() {
        Some("am") if hour == 12 => hour = 0,
        Some("pm") if hour < 12 => hour += 12,
        Some("am" | "pm") => {}
        // A number alone is not a time.
        _ if minute.is_none() => return None,
        _ => {}
    }
    let minute = minute.and_then(number).unwrap_or(0);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
    is_time.then(|| WallClock {
        hour,
        minute,
        date,
        zone: zone.map(|zone| zone.trim().to_owned()),
    })
}

fn is_beside_day(word: &str) -> bool {
    matches!(word, "st" | "nd" | "rd" | "th" | "of" | "de")
}

fn is_near_day(word: &str) -> bool {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    matches!(word, "today" | "tomorrow" | "on" | "at")
        || word.ends_with("day") && DAYS.iter().any(|day| word.starts_with(day))
        || DAYS.contains(&word)
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
    fn prov_1_usage_limits_end_at_the_time_they_name() {
        let clock = |hour, minute, date, zone: Option<&str>| {
            Some(Reset::Clock(WallClock {
                hour,
                minute,
                date,
                zone: zone.map(str::to_owned),
            }))
        };
        for (text, expected) in [
            (
                "Your session limit is used up · resets 3pm (Europe/Berlin)",
                clock(15, 0, None, Some("Europe/Berlin")),
            ),
            (
                "5-hour limit is used up ∙ resets 3pm",
                clock(15, 0, None, None),
            ),
            (
                "No extra usage is left · resets 11:30am (Asia/Colombo)",
                clock(11, 30, None, Some("Asia/Colombo")),
            ),
            (
                "Your limit of the week is used up · resets Nov 30 at 10am",
                clock(10, 0, Some((11, 30)), None),
            ),
            (
                "You have hit your usage limit. Try again at 3:05 PM.",
                clock(15, 5, None, None),
            ),
            (
                "Usage limit reached. Your limit will reset at 12am (UTC).",
                clock(0, 0, None, Some("UTC")),
            ),
            (
                "You've hit your usage limit. Try again at Dec 1st, 2026 9:07 AM.",
                clock(9, 7, Some((12, 1)), None),
            ),
            ("limit reached, resets 15:05", clock(15, 5, None, None)),
            (
                "You've hit your session limit · resets 3:20am (Asia/Calcutta)",
                clock(3, 20, None, Some("Asia/Calcutta")),
            ),
            (
                "Weekly limit reached · resets 10am (Asia/Seoul) · /upgrade to Max or turn on /extra-usage",
                clock(10, 0, None, Some("Asia/Seoul")),
            ),
            (
                "Claude usage limit reached. Your limit will reset at 1pm (Etc/GMT+5).",
                clock(13, 0, None, Some("Etc/GMT+5")),
            ),
            (
                "You’ve hit your limit for Claude messages. Limits will reset at 9:30\u{202f}AM.",
                clock(9, 30, None, None),
            ),
            (
                "You have reached the usage limit. Upgrade or try again after September 6, 2026, 11:15.",
                clock(11, 15, Some((9, 6)), None),
            ),
            (
                "You've hit your usage limit, or try again at Aug 20, 2026, 7:38 AM",
                clock(7, 38, Some((8, 20)), None),
            ),
            (
                "You've hit your usage limit, or try again at 10 de jul. de 2026, 11:52.",
                clock(11, 52, Some((7, 10)), None),
            ),
            (
                "usage limit; it resets on 6th of September at 8 p.m.",
                clock(20, 0, Some((9, 6)), None),
            ),
            (
                "Weekly limit reached, resets Monday at 9am",
                clock(9, 0, None, None),
            ),
            ("Connection reset at 3 of 5 packages; usage: x", None),
            ("the counter resets 5 times, see usage", None),
            ("limit: it resets quickly", None),
        ] {
            assert_eq!(reset_of(text), expected, "{text}");
        }
    }

    #[test]
    fn rate_limit_reset_time_is_parsed_from_messages() {
        let at = |seconds: i64| Some(Reset::At(Timestamp::from_unix_millis(seconds * 1000)));
        let after = |seconds| Some(Reset::After(Duration::from_secs(seconds)));
        assert_eq!(
            reset_of("Claude AI usage limit reached|1755806400"),
            at(1_755_806_400)
        );
        assert_eq!(
            reset_of("Claude AI usage limit reached and won't reset|1766502000"),
            at(1_766_502_000)
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
        assert_eq!(
            reset_of("Your quota will reset after 3h20m15s."),
            after(3 * 3600 + 20 * 60 + 15)
        );
        assert_eq!(
            reset_of("You've hit your usage limit, or try again in 5 days 22 hours 11\nminutes."),
            after(5 * 86_400 + 22 * 3600 + 660)
        );
        assert_eq!(
            reset_of("429 Too Many Requests, retry after 2 mins 1 sec"),
            after(121)
        );
        assert_eq!(
            reset_of("or wait for limits to reset (every 5h and every week.); usage limit"),
            Some(Reset::Unknown)
        );
        assert_eq!(reset_of("5-hour limit is used up"), Some(Reset::Unknown));
        assert_eq!(reset_of("file not found, try again in 5 minutes"), None);
        assert_eq!(reset_of("cat a | 12 usage"), None);
        for words in [
            "connection reset after 5 seconds, at the limit of 3 attempts",
            "write failed: Disk quota exceeded",
            "failed to write: Quota exceeded (os error 122)",
        ] {
            assert_eq!(reset_of(words), None, "{words}");
        }
        assert_eq!(time_of(1_788_879_437_000), time_of(1_788_879_437));
    }
}
