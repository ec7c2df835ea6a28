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
