//! Tests schedules against calendars and against misbehaving clocks.

use std::collections::BTreeSet;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn schedule(cron: &str, zone: &str, catch_up: CatchUp) -> Schedule {
    Schedule::new(cron, zone, catch_up).unwrap()
}

fn occurrences(schedule: &Schedule, from: &str, to: &str) -> Vec<String> {
    let (from, to) = (at(from), at(to));
    schedule
        .latest_within(from, to, usize::MAX)
        .0
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn expressions_and_zones_are_checked() {
    for good in ["* * * * *", "*/5 9-17 * * MON-FRI", "@daily", "0 0 29 2 *"] {
        assert_eq!(check_cron(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "soon",
    ] {
        assert!(check_cron(bad).is_err(), "{bad}");
    }
    for good in ["UTC", "Europe/Berlin", "Asia/Seoul", "America/New_York"] {
        assert_eq!(check_time_zone(good), Ok(()), "{good}");
    }
    assert!(check_time_zone("Mars/Olympus").is_err());
}

#[test]
fn clock_changes_swallow_nothing_and_double_nothing() {
    // Berlin goes from 02:00 to 03:00 on 29 March 2026, and from 03:00 back to 02:00 on 25 October.
    let nightly = schedule("30 2 * * *", "Europe/Berlin", CatchUp::Latest);
    assert_eq!(
        occurrences(&nightly, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        [
            "2026-03-28T01:30:00.000Z",
            "2026-03-29T01:00:00.000Z",
            "2026-03-30T00:30:00.000Z"
        ]
    );
    assert_eq!(
        occurrences(&nightly, "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z"),
        [
            "2026-10-24T00:30:00.000Z",
            "2026-10-25T00:30:00.000Z",
            "2026-10-26T01:30:00.000Z"
        ]
    );
    let hourly = schedule("0 * * * *", "Europe/Berlin", CatchUp::Latest);
    for day in ["2026-03-29", "2026-10-25"] {
        let (from, to) = (format!("{day}T00:30:00Z"), format!("{day}T06:30:00Z"));
        assert_eq!(occurrences(&hourly, &from, &to).len(), 6, "{day}");
    }
}

/// In every zone and year, a nightly schedule occurs once per day, however the clock changes.
#[test]
fn once_a_day_is_once_a_day() {
    for zone in [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Seoul",
    ] {
        for hour in [0, 1, 2, 3] {
            let daily = schedule(&format!("30 {hour} * * *"), zone, CatchUp::Latest);
            let tz = TimeZone::get(zone).unwrap();
            let (from, to) = (at("2026-01-02T12:00:00Z"), at("2027-01-02T12:00:00Z"));
            let (found, _) = daily.latest_within(from, to, usize::MAX);
            let days: BTreeSet<_> = found
                .iter()
                .map(|instant| {
                    let instant = jiff::Timestamp::from_millisecond(instant.as_unix_millis());
                    instant.unwrap().to_zoned(tz.clone()).date()
                })
                .collect();
            assert_eq!((found.len(), days.len()), (365, 365), "{zone} {hour}");
        }
    }
}

/// A random expression, as text and as the sets of its fields.
struct RandomCron {
    text: String,
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    /// Days of the month, and weekdays from Sunday; a restriction of both matches either.
    days: Option<BTreeSet<i8>>,
    weekdays: Option<BTreeSet<i8>>,
}

impl RandomCron {
    fn new(random: &mut fastrand::Rng) -> Self {
        let (minutes, minute) = Self::field(random, 0, 59, 4);
        let (hours, hour) = Self::field(random, 0, 23, 2);
        let (days, day) = Self::field(random, 1, 31, 1);
        let (weekdays, weekday) = Self::field(random, 0, 6, 1);
        Self {
            text: format!("{minute} {hour} {day} * {weekday}"),
            minutes: minutes.unwrap_or_else(|| (0..60).collect()),
            hours: hours.unwrap_or_else(|| (0..24).collect()),
            days,
            weekdays,
        }
    }

    /// Values of a field (`None` for all of them), and its text.
    fn field(
        random: &mut fastrand::Rng,
        least: i8,
        most: i8,
        restricted: u8,
    ) -> (Option<BTreeSet<i8>>, String) {
        if random.u8(..6) > restricted {
            return (None, "*".to_owned());
        }
        match random.u8(..4) {
            0 => {
                let step = random.i8(2..=12);
                let all = (least..=most).step_by(usize::try_from(step).unwrap());
                (Some(all.collect()), format!("*/{step}"))
            }
            1 => {
                let from = random.i8(least..most);
                let to = random.i8(from + 1..=most);
                (Some((from..=to).collect()), format!("{from}-{to}"))
            }
            2 => {
                let all: BTreeSet<i8> = (0..3).map(|_| random.i8(least..=most)).collect();
                let text: Vec<String> = all.iter().map(ToString::to_string).collect();
                (Some(all), text.join(","))
            }
            _ => {
                // Around the hours in which most clocks change.
                let value = random.i8(least..=most.min(least + 3));
                (Some([value].into()), value.to_string())
            }
        }
    }

    fn names(&self, time: DateTime) -> bool {
        let of_month = self.days.as_ref().map(|days| days.contains(&time.day()));
        let weekday = time.weekday().to_sunday_zero_offset();
        let of_week = self.weekdays.as_ref().map(|days| days.contains(&weekday));
        let is_day = match (of_month, of_week) {
            (Some(of_month), Some(of_week)) => of_month || of_week,
            (one, other) => one.or(other).unwrap_or(true),
        };
        is_day && self.hours.contains(&time.hour()) && self.minutes.contains(&time.minute())
    }

    /// Every occurrence after `from`, up to `to`, found by looking at each minute.
    fn all(&self, zone: &TimeZone, from: jiff::Timestamp, to: jiff::Timestamp) -> Vec<Timestamp> {
        let minute = jiff::SignedDuration::from_mins(1);
        let minutes = |from: jiff::Timestamp, to: jiff::Timestamp| {
            std::iter::successors(Some(from + minute), move |at| Some(*at + minute))
                .take_while(move |at| *at <= to)
        };
        let found: BTreeSet<jiff::Timestamp> = if self.hours.len() == 24 {
            let shown = |at: &jiff::Timestamp| zone.to_datetime(*at);
            minutes(from, to)
                .filter(|at| self.names(shown(at)))
                .collect()
        } else {
            // The first instant at which the clock shows a time, or more than it on a day that exists.
            let margin = jiff::SignedDuration::from_hours(26);
            let mut shown: Option<DateTime> = None;
            let mut found = BTreeSet::new();
            for at in minutes(from - margin, to) {
                let now = zone.to_datetime(at);
                let Some(before) = shown.filter(|before| *before < now) else {
                    shown = shown.or(Some(now));
                    continue;
                };
                shown = Some(now);
                let named =
                    std::iter::successors(Some(before + minute), |time| Some(*time + minute))
                        .take_while(|time| *time <= now)
                        .filter(|time| [before.date(), now.date()].contains(&time.date()))
                        .any(|time| self.names(time));
                if named && at > from {
                    found.insert(at);
                }
            }
            found
        };
        let millis = found.iter().map(|at| at.as_millisecond());
        millis.map(Timestamp::from_unix_millis).collect()
    }
}

/// Random expressions around the changes of every zone's clock.
#[test]
fn conn_2_each_expression_follows_the_rules_of_clock_changes() {
    let mut random = fastrand::Rng::with_seed(20_261_129);
    let zones: Vec<String> = jiff::tz::db()
        .available()
        .map(|it| it.to_string())
        .collect();
    assert!(zones.len() > 400);
    let omits_a_day = ("Pacific/Apia", "2011-12-01T00:00:00Z");
    let known = [
        omits_a_day,
        ("Australia/Lord_Howe", "2026-09-01T00:00:00Z"),
        ("America/Santiago", "2026-08-01T00:00:00Z"),
        ("Africa/Cairo", "2026-04-01T00:00:00Z"),
    ];
    let chosen = |random: &mut fastrand::Rng, number: usize| {
        if let Some((zone, start)) = known.get(number % 12) {
            return ((*zone).to_owned(), start.parse().unwrap());
        }
        let zone = zones[random.usize(..zones.len())].clone();
        let start: jiff::Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        (
            zone,
            start + jiff::SignedDuration::from_hours(random.i64(0..50_000)),
        )
    };
    for number in 0..400 {
        let (zone, start) = chosen(&mut random, number);
        let tz = TimeZone::get(&zone).unwrap();
        let change = tz.following(start).next().map(|change| change.timestamp());
        // Some of the last changes that are known are not at a full minute.
        let around = change.unwrap_or(start);
        let around = around - jiff::SignedDuration::from_secs(around.as_second() % 60);
        let (from, to) = (
            around - jiff::SignedDuration::from_hours(26),
            around + jiff::SignedDuration::from_hours(30),
        );
        let cron = RandomCron::new(&mut random);
        let schedule = schedule(&cron.text, &zone, CatchUp::Latest);
        let millis = |at: jiff::Timestamp| Timestamp::from_unix_millis(at.as_millisecond());
        let (found, _) = schedule.latest_within(millis(from), millis(to), usize::MAX);
        assert_eq!(
            found,
            cron.all(&tz, from, to),
            "`{}` in {zone} around {around}",
            cron.text
        );
    }
}

#[test]
fn conn_2_fixed_times_in_lists_and_ranges_are_fixed_times() {
    let found = |cron: &str, day: &str| {
        let schedule = schedule(cron, "Europe/Berlin", CatchUp::Latest);
        let (from, to) = (format!("{day}T00:00:01Z"), format!("{day}T22:00:00Z"));
        let found = occurrences(&schedule, &from, &to);
        let times: Vec<String> = found
            .iter()
            .map(|at| at.get(11..16).unwrap().to_owned())
            .collect();
        times.join(" ")
    };
    let (spring, autumn) = ("2026-03-29", "2026-10-25");
    assert_eq!(found("30 2,14 * * *", spring), "01:00 12:30");
    assert_eq!(found("30 2,14 * * *", autumn), "00:30 13:30");
    assert_eq!(found("0,30 2 * * *", spring), "01:00");
    assert_eq!(found("0,30 2 * * *", autumn), "00:30");
    assert_eq!(found("*/20 2 * * *", autumn), "00:20 00:40");
    assert_eq!(found("0 1-4 * * *", spring), "01:00 02:00");
    assert_eq!(found("30 * * * *", spring).len(), 22 * 6 - 1);
}

/// No hour of 30 December 2011 existed in Apia.
#[test]
fn conn_2_a_day_that_a_zone_omits_ends_no_schedule() {
    let next = |cron: &str| {
        let schedule = schedule(cron, "Pacific/Apia", CatchUp::Latest);
        let next = schedule.next_after(at("2011-12-29T23:00:00Z"));
        next.unwrap().to_string()
    };
    assert_eq!(next("0 12 * * *"), "2011-12-30T22:00:00.000Z");
    assert_eq!(next("0 0 * * *"), "2011-12-30T10:00:00.000Z");
    assert_eq!(next("0 12 * * 5"), "2012-01-05T22:00:00.000Z");
    assert_eq!(next("0 12 30 12 *"), "2012-12-29T22:00:00.000Z");
    assert_eq!(next("*/30 * * * *"), "2011-12-29T23:30:00.000Z");
}

#[test]
fn conn_2_weekdays_may_go_over_the_end_of_the_week() {
    let days = |cron: &str| {
        let schedule = schedule(cron, "UTC", CatchUp::Latest);
        let found = occurrences(&schedule, "2026-06-07T12:00:00Z", "2026-06-14T12:00:00Z");
        let days: Vec<String> = found
            .iter()
            .map(|at| at.get(8..10).unwrap().to_owned())
            .collect();
        days.join(" ")
    };
    // 8 June 2026 is a Monday.
    assert_eq!(days("0 9 * * FRI-MON"), "08 12 13 14");
    assert_eq!(days("0 9 * * sat-sun"), "13 14");
    assert_eq!(days("0 9 * * 5-1,WED"), "08 10 12 13 14");
    assert_eq!(days("0 9 * * FRI-MON/2"), "12 14");
    assert_eq!(days("@midnight"), "08 09 10 11 12 13 14");
    // Either day, if both are restricted.
    assert_eq!(days("0 9 9 * FRI"), "09 12");
}

#[test]
fn new_schedule_starts_now_and_saves_its_ledger_first() {
    let schedule = schedule("0 * * * *", "UTC", CatchUp::All(10));
    let now = at("2026-01-01T10:30:00Z");
    let decision = decide(&schedule, None, now);
    assert_eq!((decision.due.len(), decision.skipped), (0, 0));
    assert_eq!(decision.next, Some(at("2026-01-01T11:00:00Z")));
    assert!(decision.keep_first);
    let ledger = decision.ledger;
    assert_eq!(ledger.settled_until, now);

    let later = decide(&schedule, Some(&ledger), at("2026-01-01T11:00:00Z"));
    assert_eq!(later.due, [at("2026-01-01T11:00:00Z")]);
    assert!(!later.keep_first);
}

#[test]
fn missed_occurrences_are_caught_up_by_the_policy() {
    let ledger = |schedule: &Schedule| Ledger {
        schedule: schedule.written.clone(),
        settled_until: at("2025-01-01T10:00:00Z"),
        came_about: vec![at("2025-01-01T10:00:00Z")],
    };
    let due = |catch_up, now: &str| {
        let schedule = schedule("* * * * *", "UTC", catch_up);
        let decision = decide(&schedule, Some(&ledger(&schedule)), at(now));
        let due: Vec<String> = decision.due.iter().map(ToString::to_string).collect();
        (due, decision.keep_first)
    };
    // A whole year of minutes was missed, except for the current one.
    let on_time = "2026-01-01T10:00:30Z";
    assert_eq!(
        due(CatchUp::None, on_time),
        (vec!["2026-01-01T10:00:00.000Z".to_owned()], false)
    );
    assert_eq!(
        due(CatchUp::Latest, on_time),
        (vec!["2026-01-01T10:00:00.000Z".to_owned()], false)
    );
    let all = due(CatchUp::All(3), on_time).0;
    assert_eq!(
        all,
        [
            "2026-01-01T09:58:00.000Z",
            "2026-01-01T09:59:00.000Z",
            "2026-01-01T10:00:00.000Z"
        ]
    );
    let hourly = schedule("0 * * * *", "UTC", CatchUp::None);
    let late = decide(&hourly, Some(&ledger(&hourly)), at("2025-01-01T11:30:00Z"));
    assert_eq!((late.due.len(), late.skipped), (0, 1));
    assert!(late.keep_first);
    assert_eq!(late.ledger.settled_until, at("2025-01-01T11:30:00Z"));
}

#[test]
fn changed_expression_restarts_the_schedule_without_repeats() {
    let old = schedule("0 * * * *", "UTC", CatchUp::Latest);
    let ledger = Ledger {
        schedule: old.written,
        settled_until: at("2026-01-01T10:00:10Z"),
        came_about: vec![at("2026-01-01T10:00:00Z")],
    };
    let new = schedule("*/5 * * * *", "UTC", CatchUp::All(100));
    let decision = decide(&new, Some(&ledger), at("2026-01-01T12:01:00Z"));
    assert_eq!(decision.due, []);
    let begun = decision.ledger;
    assert_eq!(begun.came_about, [at("2026-01-01T10:00:00Z")]);
    // Even if the clock is currently wrong by two hours.
    let decision = decide(&new, Some(&begun), at("2026-01-01T10:00:30Z"));
    assert_eq!(decision.due, []);
}

/// One machine: a clock that may step, a process that may be killed, a disk, and an orchestrator
/// that deduplicates event ids.
struct World {
    schedule: Schedule,
    random: fastrand::Rng,
    wall_ms: i64,
    disk: Option<Ledger>,
    accepted: Vec<Timestamp>,
    /// Ranges of clock readings between which the process observed no step.
    watched: Vec<(i64, i64)>,
}

const LOOK_MS: i64 = 10_000;

impl World {
    fn new(seed: u64, catch_up: CatchUp) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let expressions = ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *"];
        let zones = ["UTC", "Europe/Berlin", "America/New_York"];
        let cron = expressions[random.usize(..expressions.len())];
        let zone = zones[random.usize(..zones.len())];
        // Some worlds include a change of daylight saving time.
        let start = [
            "2026-03-29T00:50:13Z",
            "2026-10-25T00:20:00Z",
            "2026-06-01T00:00:01Z",
        ];
        let start = at(start[random.usize(..start.len())]);
        Self {
            schedule: schedule(cron, zone, catch_up),
            wall_ms: start.as_unix_millis(),
            random,
            disk: None,
            accepted: Vec::new(),
            watched: Vec::new(),
        }
    }

    /// One clock check. Returns false if the process was killed before everything was stored.
    fn look(&mut self) -> bool {
        let now = Timestamp::from_unix_millis(self.wall_ms);
        let decision = decide(&self.schedule, self.disk.as_ref(), now);
        let dies = |random: &mut fastrand::Rng| random.u8(..) < 3;
        let mut ledger = decision.ledger;
        if decision.keep_first {
            if dies(&mut self.random) {
                return false;
            }
            self.disk = Some(ledger.clone());
        }
        for occurrence in decision.due {
            if dies(&mut self.random) {
                return false;
            }
            // A repeated id is the same event (`MSG-13`). It is not counted, and it is a failure
            // unless the process was killed before it could store the ledger.
            if !self.accepted.contains(&occurrence) {
                self.accepted.push(occurrence);
            }
            if dies(&mut self.random) {
                return false;
            }
            ledger = ledger.with(occurrence);
            self.disk = Some(ledger.clone());
        }
        true
    }

    fn run(&mut self, steps: usize, may_step_back: bool) {
        for _ in 0..steps {
            let before = self.wall_ms;
            if self.look() {
                self.wall_ms += LOOK_MS;
                self.watched.push((before, self.wall_ms));
            } else {
                // Down for between a second and an hour.
                self.wall_ms += self.random.i64(1_000..3_600_000);
            }
            if self.random.u16(..500) == 0 {
                let step = self.random.i64(1_000..5_400_000);
                let is_back = may_step_back && self.random.bool();
                self.wall_ms += if is_back { -step } else { step };
            }
        }
    }

    fn all(&self, from_ms: i64, to_ms: i64) -> Vec<Timestamp> {
        let (from, to) = (
            Timestamp::from_unix_millis(from_ms),
            Timestamp::from_unix_millis(to_ms),
        );
        self.schedule.latest_within(from, to, usize::MAX).0
    }
}

#[test]
fn clock_changes_cause_no_duplicate_and_no_missed_occurrence() {
    for seed in 0..12 {
        let mut world = World::new(seed, CatchUp::All(CATCH_UP_MAX));
        world.run(1_000, true);
        world.look();
        world.look();
        for (from, to) in world.watched.clone() {
            if to > world.wall_ms {
                continue;
            }
            for occurrence in world.all(from, to) {
                assert!(
                    world.accepted.contains(&occurrence),
                    "seed {seed}: {occurrence} never came"
                );
            }
        }
    }
}

/// Even without the orchestrator's deduplication, a process that stores its ledger submits nothing
/// twice.
#[test]
fn process_that_keeps_its_ledger_submits_nothing_twice() {
    for seed in 0..12 {
        let mut world = World::new(seed, CatchUp::All(50));
        let mut handed_in = BTreeSet::new();
        let mut ledger: Option<Ledger> = None;
        for _ in 0..1_000 {
            let now = Timestamp::from_unix_millis(world.wall_ms);
            let decision = decide(&world.schedule, ledger.as_ref(), now);
            let mut current = decision.ledger;
            for occurrence in decision.due {
                assert!(
                    handed_in.insert(occurrence),
                    "seed {seed}: {occurrence} twice"
                );
                current = current.with(occurrence);
            }
            ledger = Some(current);
            world.wall_ms += LOOK_MS;
            if world.random.u16(..500) == 0 {
                // Steps back stay within the remembered minutes.
                world.wall_ms += world.random.i64(-3_600_000..3_600_000);
            }
        }
    }
}

/// With a clock that never steps back, every occurrence of the run comes about despite kills.
#[test]
fn no_occurrence_is_missed_when_the_clock_never_steps_back() {
    for seed in 0..12 {
        let mut world = World::new(seed, CatchUp::All(CATCH_UP_MAX));
        world.schedule = schedule("*/7 * * * *", "Europe/Berlin", CatchUp::All(CATCH_UP_MAX));
        while !world.look() {}
        let start_ms = world.disk.as_ref().unwrap().settled_until.as_unix_millis();
        world.run(1_000, false);
        while !world.look() {}
        let all = world.all(start_ms, world.wall_ms);
        let missed: Vec<_> = all
            .iter()
            .filter(|occurrence| !world.accepted.contains(occurrence))
            .collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?}");
        assert_eq!(all.len(), world.accepted.len(), "seed {seed}");
    }
}

#[test]
fn built_in_zones_give_the_same_times_as_those_of_the_system() {
    for zone in ["UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul"] {
        let cron = "30 2 * * *";
        let system = schedule(cron, zone, CatchUp::Latest);
        let built_in = Schedule::with_built_in_zone(cron, zone, CatchUp::Latest).unwrap();
        assert_eq!(system.written, built_in.written);
        let mut from = at("2026-01-01T00:00:00Z");
        for _ in 0..366 {
            let next = built_in.next_after(from).unwrap();
            assert_eq!(system.next_after(from), Some(next), "{zone}");
            from = next;
        }
    }
    let unknown = Schedule::with_built_in_zone("@daily", "Mars/Olympus", CatchUp::None);
    assert_eq!(
        unknown.map(|_| ()),
        Err("unknown time zone `Mars/Olympus`".to_owned())
    );
}
