//! End of a usage limit that a program reports as a time of day. Pure.

use goondan_cli_agents::{Reset, WallClock};
use goondan_protocol::time::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

/// Age of a date from which it means the next year, in days.
const PAST_DAYS_MAX: i64 = 30;

/// Converts a time of day to a point in time, as seen at `now_ms`.
pub(super) fn resolve(reset: &mut Reset, now_ms: i64) {
    if let Reset::Clock(clock) = reset {
        *reset = at(clock, now_ms).map_or(Reset::Unknown, Reset::At);
    }
}

fn at(clock: &WallClock, now_ms: i64) -> Option<Timestamp> {
    let zone = match &clock.zone {
        Some(name) => TimeZone::get(name).ok()?,
        None => TimeZone::system(),
    };
    let now = jiff::Timestamp::from_millisecond(now_ms).ok()?;
    let now = now.to_zoned(zone.clone());
    let time = Time::new(clock.hour, clock.minute, 0, 0).ok()?;
    let found = match clock.date {
        Some((month, day)) => {
            let of = |year: i16| Date::new(year, month, day).ok();
            let this_year = of(now.year())?;
            let past = now.date().since(this_year).ok()?.get_days();
            let date = match i64::from(past) > PAST_DAYS_MAX {
                true => of(now.year().checked_add(1)?)?,
                false => this_year,
            };
            date.to_datetime(time)
        }
        None if time > now.time() => now.date().to_datetime(time),
        None => now.date().tomorrow().ok()?.to_datetime(time),
    };
    let found = zone.to_ambiguous_zoned(found).compatible().ok()?;
    let ms = found.timestamp().as_millisecond();
    Some(Timestamp::from_unix_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_a_time_of_day_is_the_next_one_in_its_zone() {
        let ms = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let resolved = |hour, minute, date, zone: &str, now: &str| {
            let zone = Some(zone.to_owned());
            let mut reset = Reset::Clock(WallClock {
                hour,
                minute,
                date,
                zone,
            });
            resolve(&mut reset, ms(now));
            match reset {
                Reset::At(at) => at.as_unix_millis(),
                other => panic!("{other:?}"),
            }
        };
        let berlin = "Europe/Berlin";
        for (found, expected) in [
            (
                resolved(15, 0, None, berlin, "2026-01-10T10:00:00Z"),
                "2026-01-10T14:00:00Z",
            ),
            (
                resolved(15, 0, None, berlin, "2026-01-10T14:00:00Z"),
                "2026-01-11T14:00:00Z",
            ),
            (
                resolved(11, 30, None, "Asia/Colombo", "2026-01-10T10:00:00Z"),
                "2026-01-11T06:00:00Z",
            ),
            (
                resolved(10, 0, Some((11, 30)), "UTC", "2026-11-29T09:00:00Z"),
                "2026-11-30T10:00:00Z",
            ),
            (
                resolved(10, 0, Some((1, 2)), "UTC", "2026-12-30T09:00:00Z"),
                "2027-01-02T10:00:00Z",
            ),
        ] {
            assert_eq!(found, ms(expected), "{expected}");
        }
        let mut unknown = Reset::Clock(WallClock {
            hour: 3,
            minute: 0,
            date: None,
            zone: Some("No/Where".to_owned()),
        });
        resolve(&mut unknown, 0);
        assert_eq!(unknown, Reset::Unknown);
    }
}
