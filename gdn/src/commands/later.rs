//! Times in the future as people write them on the command line.

use goondan_protocol::time::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan as _, Zoned};

/// The forms, for help and errors.
pub(crate) const FORMS: &str = "`09:30`, `2026-12-24T09:30`, `2026-12-24T09:30:00Z` or `2h30m`";

/// Reads a time in the future, in the time zone of the machine unless it names its own: an instant
/// (RFC 3339), a local date and time, a time of day (the next one), or a delay.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    after(text, &Zoned::now())
}

fn after(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let text = text.trim();
    let at = instant(text, now).ok_or_else(|| format!("write {FORMS}"))?;
    let at = at.map_err(|problem| problem.to_string())?;
    if at <= now.timestamp() {
        let now = now.strftime("%Y-%m-%d %H:%M:%S");
        return Err(format!("this time has passed: it is {now}"));
    }
    Ok(Timestamp::from_unix_millis(at.as_millisecond()))
}

/// The instant that a text means; `None` if it has none of the forms.
fn instant(text: &str, now: &Zoned) -> Option<Result<jiff::Timestamp, jiff::Error>> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Ok(at));
    }
    let in_zone = |at: DateTime| local(at, now.time_zone());
    // A date alone says too little.
    if text.contains(':')
        && let Ok(at) = text.parse::<DateTime>()
    {
        return Some(in_zone(at));
    }
    if let Ok(time) = text.parse::<Time>() {
        let today = in_zone(now.date().to_datetime(time));
        let has_passed = today.as_ref().is_ok_and(|at| *at <= now.timestamp());
        return Some(match has_passed {
            true => now
                .date()
                .checked_add(1.day())
                .and_then(|tomorrow| in_zone(tomorrow.to_datetime(time))),
            false => today,
        });
    }
    let delay: Span = text.parse().ok()?;
    Some(now.checked_add(delay).map(|at| at.timestamp()))
}

fn local(at: DateTime, zone: &TimeZone) -> Result<jiff::Timestamp, jiff::Error> {
    Ok(at.to_zoned(zone.clone())?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<String, String> {
        let now: Zoned = "2026-11-30T10:00:00+01:00[Europe/Berlin]".parse().unwrap();
        after(text, &now).map(|at| at.to_string())
    }

    #[test]
    fn instants_local_times_and_delays_are_read() {
        for (text, expected) in [
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00.000Z"),
            ("2026-12-01T00:00:00+09:00", "2026-11-30T15:00:00.000Z"),
            ("2026-12-01T09:30", "2026-12-01T08:30:00.000Z"),
            ("2026-12-01 09:30:15", "2026-12-01T08:30:15.000Z"),
            ("11:00", "2026-11-30T10:00:00.000Z"),
            ("09:59", "2026-12-01T08:59:00.000Z"),
            ("2h30m", "2026-11-30T11:30:00.000Z"),
            ("90s", "2026-11-30T09:01:30.000Z"),
            ("2 days", "2026-12-02T09:00:00.000Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn past_and_unclear_times_are_refused() {
        for text in ["", "soon", "25:00", "2026-12-01", "9", "tomorrow"] {
            assert!(at(text).unwrap_err().starts_with("write `09:30`"), "{text}");
        }
        for text in ["2026-11-30T09:59", "2026-11-30T08:00:00Z", "0s"] {
            let refused = at(text).unwrap_err();
            assert_eq!(refused, "this time has passed: it is 2026-11-30 10:00:00");
        }
    }
}
