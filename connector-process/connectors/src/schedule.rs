//! Computes the occurrences of a schedule, and the ones that are due.
//!
//! # The ledger
//!
//! A [`Ledger`] stores the state of occurrences: everything up to one instant is settled, and the
//! most recent occurrences that came about are listed. [`decide`] takes the ledger and the time and
//! returns the due occurrences. The caller submits them, and stores the updated ledger after each
//! accepted one ([`Ledger::with`]). If the process is killed in between, the occurrence is due
//! again, under the same id.
//!
//! # Clock changes
//!
//! An occurrence is an instant, computed in the schedule's time zone. A schedule that names some
//! hours has fixed times: when the zone's clock jumps ahead, those inside the gap occur at its end,
//! and when it is set back, each occurs once. A day that the zone omits has no occurrences. A
//! schedule of every hour occurs whenever the clock shows one of its times, so that it continues
//! through both.
//!
//! When the machine's own clock steps back, the ledger is moved back with it, so that future
//! occurrences happen again as they should; those that came about before are still listed and do
//! not occur twice. When it steps ahead, the schedule's [`CatchUp`] covers the skipped times.

use std::collections::BTreeMap;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use goondan_protocol::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use crate::cron_fields;

/// Longest name of a schedule, in bytes: together with the connection's name it fits in an event's
/// id.
pub const NAME_BYTES_MAX: usize = 64;

/// Maximum number of occurrences that are caught up at once.
pub const CATCH_UP_MAX: u64 = 100;

/// An occurrence this far in the past is late, because no process was running, in milliseconds.
pub const LATE_MS: i64 = 60_000;

/// Distance by which the ledger is moved behind the clock when the clock stepped back, in
/// milliseconds: more than the time between two clock checks.
const REWIND_MARGIN_MS: i64 = 60_000;

/// Maximum number of listed occurrences.
const REMEMBERED_MAX: usize = 128;

const _: () = assert!(REMEMBERED_MAX as u64 > CATCH_UP_MAX);

/// Policy for missed occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    None,
    Latest,
    /// Submits all in order, at most this number of the latest ones.
    All(u64),
}

/// A recurring time.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    /// True if its hours are all hours.
    is_of_every_hour: bool,
    zone: TimeZone,
    /// The expression as written, because a ledger belongs to one expression.
    written: String,
    catch_up: CatchUp,
}

fn parse_cron(text: &str) -> Result<Cron, String> {
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(&cron_fields::known_to_parser(text))
        .map_err(|error| cron_fields::explain(text).unwrap_or_else(|| error.to_string()))
}

/// Checks that `text` is a cron expression of five fields (or a nickname such as `@daily`) that has
/// at least one occurrence.
///
/// # Errors
///
/// A description of the problem.
pub fn check_cron(text: &str) -> Result<(), String> {
    let cron = parse_cron(text)?;
    let start = jiff::civil::date(2024, 1, 1).at(0, 0, 0, 0);
    match cron.find_next_occurrence(&start, true) {
        Ok(_) => Ok(()),
        Err(_) => Err("the time never occurs".to_owned()),
    }
}

/// Checks that `text` names a time zone.
///
/// # Errors
///
/// A description of the problem.
pub fn check_time_zone(text: &str) -> Result<(), String> {
    TimeZone::get(text)
        .map(|_zone| ())
        .map_err(|_unknown| "unknown time zone".to_owned())
}

/// State of the occurrences of one schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The schedule it belongs to: its expression and time zone.
    pub schedule: String,
    /// Every occurrence up to and including this instant is settled.
    pub settled_until: Timestamp,
    /// The most recent occurrences that came about, oldest first.
    #[serde(default)]
    pub came_about: Vec<Timestamp>,
}

/// The ledgers of a connection, by the names of its schedules.
pub type Ledgers = BTreeMap<String, Ledger>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDecision {
    /// Occurrences to submit, in order.
    pub due: Vec<Timestamp>,
    /// Number of occurrences skipped permanently.
    pub skipped: u64,
    /// The next occurrence; `None` if none exists within the calendar's range.
    pub next: Option<Timestamp>,
    /// True if the ledger must be stored before any occurrence is submitted.
    pub keep_first: bool,
    /// The ledger before any due occurrence is submitted.
    pub ledger: Ledger,
}

impl Schedule {
    /// Creates a schedule.
    ///
    /// # Errors
    ///
    /// A description of an invalid expression or time zone.
    pub fn new(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, String> {
        let found = TimeZone::get(zone).map_err(|error| error.to_string())?;
        Self::within(cron, (zone, found), catch_up)
    }

    /// Creates a schedule in a built-in time zone, without access to the zones of the system.
    ///
    /// # Errors
    ///
    /// A description of an invalid expression or time zone.
    pub fn with_built_in_zone(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, String> {
        let zones = TimeZoneDatabase::bundled();
        let found = zones.get(zone);
        let found = found.map_err(|_unknown| format!("unknown time zone `{zone}`"))?;
        Self::within(cron, (zone, found), catch_up)
    }

    fn within(
        cron: &str,
        (name, zone): (&str, TimeZone),
        catch_up: CatchUp,
    ) -> Result<Self, String> {
        Ok(Self {
            cron: parse_cron(cron)?,
            is_of_every_hour: cron_fields::names_every_hour(cron),
            zone,
            written: format!("{cron} {name}"),
            catch_up,
        })
    }

    /// The first occurrence after an instant.
    #[must_use]
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_millisecond(instant.as_unix_millis()).ok()?;
        let next = if self.is_of_every_hour {
            self.next_shown(start)?
        } else {
            self.next_fixed(start)?
        };
        let next = Timestamp::from_unix_millis(next.as_millisecond());
        // The result must lie in the future even if the calendar computes otherwise.
        (next > instant).then_some(next)
    }

    /// The next instant at which the zone's clock shows a time of this schedule.
    fn next_shown(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut from, mut is_inclusive) = (start, false);
        // Between two changes the clock runs evenly.
        loop {
            let offset = self.zone.to_offset(from);
            let change = self.zone.following(from).next();
            let shown = offset.to_datetime(from);
            let next = self.cron.find_next_occurrence(&shown, is_inclusive).ok()?;
            let next = offset.to_timestamp(next).ok()?;
            match change.map(|change| change.timestamp()) {
                Some(change) if next >= change => (from, is_inclusive) = (change, true),
                _ => return Some(next),
            }
        }
    }

    /// The next instant of a fixed time.
    fn next_fixed(&self, start: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut time = start.to_zoned(self.zone.clone()).datetime();
        loop {
            time = self.cron.find_next_occurrence(&time, false).ok()?;
            // In a repeated hour, the next times may have passed already.
            if let Some(next) = self.instant_of(time).filter(|next| *next > start) {
                return Some(next);
            }
        }
    }

    /// Instant of a fixed time; `None` on a day that the zone omits.
    fn instant_of(&self, time: DateTime) -> Option<jiff::Timestamp> {
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok(),
            AmbiguousOffset::Gap { before, after } => {
                let within = before.to_timestamp(time).ok()?;
                let since = within
                    .checked_add(jiff::SignedDuration::from_nanos(1))
                    .ok()?;
                let change = self.zone.preceding(since).next()?.timestamp();
                let (begin, end) = (before.to_datetime(change), after.to_datetime(change));
                let day = time.date();
                let is_omitted =
                    begin <= day.at(0, 0, 0, 0) && day.tomorrow().ok()?.at(0, 0, 0, 0) <= end;
                (!is_omitted).then_some(change)
            }
        }
    }

    /// The occurrences after `after`, up to and including `until`: the latest ones, at least
    /// `at_least` if that many exist. The flag is true if the list is complete.
    ///
    /// The search goes into the past in steps of growing length, so a year of missed minutes costs
    /// no more than the few occurrences needed.
    fn latest_within(
        &self,
        after: Timestamp,
        until: Timestamp,
        at_least: usize,
    ) -> (Vec<Timestamp>, bool) {
        const FIRST_LOOK_MS: i64 = 3_600_000;
        let (after_ms, until_ms) = (after.as_unix_millis(), until.as_unix_millis());
        let mut look_ms = FIRST_LOOK_MS;
        loop {
            let from_ms = until_ms.saturating_sub(look_ms).max(after_ms);
            let mut found = Vec::new();
            let mut at = Timestamp::from_unix_millis(from_ms);
            while let Some(next) = self.next_after(at).filter(|next| *next <= until) {
                found.push(next);
                at = next;
            }
            if from_ms == after_ms || found.len() >= at_least {
                return (found, from_ms == after_ms);
            }
            look_ms = look_ms.saturating_mul(2);
        }
    }
}

/// First ledger of a schedule: no past occurrence is due.
fn begin(schedule: &Schedule, earlier: Option<&Ledger>, now: Timestamp) -> Ledger {
    Ledger {
        schedule: schedule.written.clone(),
        settled_until: now,
        // Occurrences under the old expression do not occur twice under the new one.
        came_about: earlier.map_or_else(Vec::new, |ledger| ledger.came_about.clone()),
    }
}

/// The instant `ms` milliseconds earlier.
fn before(instant: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(instant.as_unix_millis().saturating_sub(ms))
}

/// Determines the occurrences that are due at `now`.
#[must_use]
pub fn decide(schedule: &Schedule, ledger: Option<&Ledger>, now: Timestamp) -> ScheduleDecision {
    let kept = ledger.filter(|ledger| ledger.schedule == schedule.written);
    let mut is_changed = kept.is_none();
    let mut current = kept
        .cloned()
        .unwrap_or_else(|| begin(schedule, ledger, now));
    if current.settled_until > now {
        current.settled_until = before(now, REWIND_MARGIN_MS);
        is_changed = true;
    }

    let wanted = match schedule.catch_up {
        CatchUp::None | CatchUp::Latest => 1,
        CatchUp::All(max) => usize::try_from(max).unwrap_or(usize::MAX),
    };
    let at_least = wanted + current.came_about.len();
    let (mut passed, _) = schedule.latest_within(current.settled_until, now, at_least);
    passed.retain(|occurrence| !current.came_about.contains(occurrence));
    let seen = passed.len();
    let due = match schedule.catch_up {
        CatchUp::None => {
            passed.retain(|occurrence| before(now, LATE_MS) <= *occurrence);
            passed
        }
        CatchUp::Latest | CatchUp::All(_) => passed.split_off(seen.saturating_sub(wanted)),
    };
    if due.is_empty() && seen > 0 {
        current.settled_until = now;
        is_changed = true;
    }
    ScheduleDecision {
        skipped: u64::try_from(seen - due.len()).unwrap_or(u64::MAX),
        next: schedule.next_after(now),
        keep_first: is_changed,
        ledger: current,
        due,
    }
}

impl Ledger {
    /// The ledger after this occurrence came about: it and everything before it is settled.
    #[must_use]
    pub fn with(mut self, occurrence: Timestamp) -> Self {
        self.settled_until = self.settled_until.max(occurrence);
        self.came_about.push(occurrence);
        self.came_about.sort_unstable();
        let surplus = self.came_about.len().saturating_sub(REMEMBERED_MAX);
        self.came_about.drain(..surplus);
        self
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
