//! Timestamps, in the form of the records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A timestamp: ISO 8601, UTC, milliseconds (`INST-2`), e.g. `2026-11-21T21:06:00.123Z`.
///
/// Smaller units are truncated on construction, so that a value equals itself after a round trip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time `millis` milliseconds after 1970-01-01T00:00:00Z, clamped to the range of the
    /// calendar.
    #[must_use]
    pub fn from_unix_millis(millis: i64) -> Self {
        // jiff 0.2.43 rejects the milliseconds of the last second.
        let clamped = millis.clamp(
            jiff::Timestamp::MIN.as_millisecond() + 1,
            jiff::Timestamp::MAX.as_second() * 1_000,
        );
        Self(jiff::Timestamp::from_millisecond(clamped).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn as_unix_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// The day of the timestamp, in UTC.
    #[must_use]
    pub fn day(self) -> Day {
        Day(self.0.to_zoned(jiff::tz::TimeZone::UTC).date())
    }
}

/// A day in UTC, formatted as `2026-11-21`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(jiff::civil::Date);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Day {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>()
            .map(|at| Self::from_unix_millis(at.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_milliseconds_in_utc_and_reads_them_back() {
        let at = Timestamp::from_unix_millis(1_700_000_000_007);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.007Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        assert_eq!(
            Timestamp::from_unix_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn a_day_is_one_of_utc() {
        let day = |text: &str| text.parse::<Timestamp>().unwrap().day().to_string();
        assert_eq!(day("2026-01-31T23:59:59.999Z"), "2026-01-31");
        assert_eq!(day("2026-02-01T01:00:00+02:00"), "2026-01-31");
        let json = "\"2026-01-31\"";
        let read: Day = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        assert!("2026-02-30".parse::<Day>().is_err());
    }

    #[test]
    fn finer_parts_are_cut_and_extremes_are_held() {
        let at: Timestamp = "2026-01-01T00:00:00.123456Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-01-01T00:00:00.123Z");
        for extreme in [i64::MIN, i64::MAX] {
            let at = Timestamp::from_unix_millis(extreme);
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
            assert_eq!(at.as_unix_millis().signum(), extreme.signum());
        }
    }
}
