//! When the occurrences of a schedule are, and which of them are due.
//!
//! # The ledger
//!
//! What has become of occurrences is kept in a [`Ledger`]: everything up to one instant is settled, and
//! the last occurrences that came about are named. [`decide`] looks at the ledger and the clock and says
//! what is due; the caller hands those occurrences in, and keeps the ledger anew after each that was
//! accepted ([`Ledger::with`]). What is killed in between is due again, under the same id.
//!
//! # Clock changes
//!
//! An occurrence is an instant, found on the clock of the schedule's time zone. When that clock jumps
//! ahead, what would fall into the gap comes at its end; when it is set back, a fixed time comes once,
//! and what comes by the hour or the minute goes on coming.
//!
//! When the machine's own clock steps back, the ledger is taken back with it, so that the occurrences
//! ahead come about again as they should; those that came about before are still named and do not come
//! twice. When it steps ahead, what was skipped over is made up for by the schedule's [`CatchUp`].

use std::collections::BTreeMap;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use goondan_protocol::time::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::cron_fields;

/// Longest name of a schedule, in bytes: with the connection's it fits in an event's id.
pub const NAME_BYTES_MAX: usize = 64;

/// The most occurrences that are made up for at once.
pub const CATCH_UP_MAX: u64 = 100;

/// An occurrence this much in the past is late: somebody was not there, in milliseconds.
pub const LATE_MS: i64 = 60_000;

/// How far behind the clock the ledger is taken back when the clock stepped back, in milliseconds: more
/// than the time between two looks at the clock.
const REWIND_MARGIN_MS: i64 = 60_000;

/// How many occurrences that came about are remembered one by one.
const REMEMBERED_MAX: usize = 128;

const _: () = assert!(REMEMBERED_MAX as u64 > CATCH_UP_MAX);

/// What becomes of occurrences that nobody was there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// Nothing.
    None,
    /// The latest of them comes about.
    Latest,
    /// They all come about, in order; of more than this many, the latest ones.
    All(u64),
}

/// Times that repeat.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
    /// As it was written: a ledger belongs to one writing.
    written: String,
    catch_up: CatchUp,
}

fn parse_cron(text: &str) -> Result<Cron, String> {
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(text)
        .map_err(|error| cron_fields::explain(text).unwrap_or_else(|| error.to_string()))
}

/// Whether `text` is a cron expression of five fields (or a nickname such as `@daily`) whose time comes
/// at all.
///
/// # Errors
///
/// Why not, in words.
pub fn check_cron(text: &str) -> Result<(), String> {
    let cron = parse_cron(text)?;
    let start = jiff::civil::date(2024, 1, 1).at(0, 0, 0, 0);
    match cron.find_next_occurrence(&start, true) {
        Ok(_) => Ok(()),
        Err(_) => Err("that time never comes".to_owned()),
    }
}

/// Whether `text` names a time zone.
///
/// # Errors
///
/// Why not, in words.
pub fn check_time_zone(text: &str) -> Result<(), String> {
    TimeZone::get(text)
        .map(|_zone| ())
        .map_err(|_unknown| "there is none of that name".to_owned())
}

/// What has become of the occurrences of one schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The schedule it belongs to: its expression and time zone.
    pub schedule: String,
    /// Every occurrence up to and with this instant is settled.
    pub settled_until: Timestamp,
    /// The last occurrences that came about, oldest first.
    #[serde(default)]
    pub came_about: Vec<Timestamp>,
}

/// The ledgers of a connection, by the names of its schedules.
pub type Ledgers = BTreeMap<String, Ledger>;

/// What is to be done about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Occurrences to be handed in, in order.
    pub due: Vec<Timestamp>,
    /// Occurrences that are passed over for ever.
    pub skipped: u64,
    /// When the next occurrence is; none if there is none within reach of the calendar.
    pub next: Option<Timestamp>,
    /// Whether that ledger is to be kept before anything is handed in.
    pub keep_first: bool,
    /// The ledger before anything that is due was handed in.
    pub ledger: Ledger,
}

impl Schedule {
    /// A schedule.
    ///
    /// # Errors
    ///
    /// Why the expression or the zone is none, in words.
    pub fn new(cron: &str, zone: &str, catch_up: CatchUp) -> Result<Self, String> {
        Ok(Self {
            cron: parse_cron(cron)?,
            zone: TimeZone::get(zone).map_err(|error| error.to_string())?,
            written: format!("{cron} {zone}"),
            catch_up,
        })
    }

    /// The first occurrence after an instant.
    #[must_use]
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_millisecond(instant.as_unix_millis()).ok()?;
        let start = start.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&start, false).ok()?;
        let next = Timestamp::from_unix_millis(next.timestamp().as_millisecond());
        // Whatever the calendar does, time goes on.
        (next > instant).then_some(next)
    }

    /// The occurrences after `after`, up to and with `until`: the latest of them, at least `at_least` of
    /// them if there are so many. The second part says whether that is all of them.
    ///
    /// It looks into the past in steps of growing length, so that a year of missed minutes costs no
    /// more than the few of them that count.
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

/// What a schedule without a ledger begins with: nothing of the past is due.
fn begin(schedule: &Schedule, earlier: Option<&Ledger>, now: Timestamp) -> Ledger {
    Ledger {
        schedule: schedule.written.clone(),
        settled_until: now,
        // What came about under the old expression does not come twice under the new one.
        came_about: earlier.map_or_else(Vec::new, |ledger| ledger.came_about.clone()),
    }
}

/// The instant so many milliseconds before.
fn before(instant: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(instant.as_unix_millis().saturating_sub(ms))
}

/// Says what is due at `now`.
#[must_use]
pub fn decide(schedule: &Schedule, ledger: Option<&Ledger>, now: Timestamp) -> Decision {
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
    Decision {
        skipped: u64::try_from(seen - due.len()).unwrap_or(u64::MAX),
        next: schedule.next_after(now),
        keep_first: is_changed,
        ledger: current,
        due,
    }
}

impl Ledger {
    /// The ledger once this occurrence came about: it and everything before it is settled.
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
