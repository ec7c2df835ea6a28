//! Studio in a real browser (`OBS-5`). The actions of a person are in
//! `gdn/studio/web/tests/browser`; this file runs the daemon and injects faults.

use std::cmp::Ordering;
use std::path::Path;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use goondan_tests::copies::copy_conversation;
use goondan_tests::home::RunningProgram;
use goondan_tests::needs::{self, STUDIO_WEB};
use goondan_tests::projects::LAB;
use goondan_tests::provider::{Provider, ProviderResponse, openai, openai_delta, openai_saying};
use goondan_tests::{Daemon, Home, tree, wait_until};
use serde_json::json;
use tempfile::TempDir;

use crate::studio::{Studio, let_shop_fail, start_shop, task_home};
use crate::{approvals, bundles, models, task_sources, tasks};

/// Number of kills of the daemon under the page; the long form is 50.
const KILLS_VAR: &str = "GOONDAN_TEST_STUDIO_KILLS";
const KILLS: usize = 3;
/// Number of conversations in the test with many; the long form is 10000.
const MANY_VAR: &str = "GOONDAN_TEST_STUDIO_CONVERSATIONS";
const MANY: usize = 1_000;
/// Pages without a navigation link.
const EXTRA: &str = "#/conversation/main #/conversation/none";

/// A browser, and a person's actions as defined by a suite.
struct Suite {
    running: RunningProgram,
    heard: usize,
    _home: TempDir,
}

impl Suite {
    fn start(home: &Home, (browser, name): (&Path, &str), studio: &mut Studio) -> Self {
        let script = format!("{STUDIO_WEB}/tests/browser/{name}.mjs");
        let mut command = home.command("node".as_ref(), &[&script]);
        // Processes of the browser must not count as the daemon's, which all end when it is killed.
        let home = tempfile::tempdir().unwrap();
        command.env("HOME", home.path());
        command.env("STUDIO_URL", studio.address());
        command.env("GOONDAN_CHROMIUM", browser);
        command.env("STUDIO_EXTRA", EXTRA);
        command.env("STUDIO_TOTAL", MANY.to_string());
        command.stdin(Stdio::piped());
        Self {
            running: RunningProgram::start(command),
            heard: 0,
            _home: home,
        }
    }

    /// Waits until the suite prints that, after its earlier output.
    fn says(&mut self, line: &str) {
        let heard = self.heard;
        wait_until(&format!("the suite says {line:?}"), || {
            let output = self.running.stdout();
            let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().skip(heard).any(|one| one.starts_with(line)) || self.running.has_ended()
        });
        let printed = self.running.stdout();
        let at = printed
            .lines()
            .skip(heard)
            .position(|one| one.starts_with(line));
        match at {
            Some(at) => self.heard = heard + at + 1,
            None => panic!("the suite ended: {printed}{}", self.running.stderr()),
        }
    }

    fn answer(&mut self, line: &str) {
        self.running.say(line);
    }

    /// Waits until the suite has passed.
    fn ends_well(self) {
        self.running.wait().exits(0);
    }
}

/// A workspace with pending calls, a held turn, and visible data.
fn busy(home: &Home) -> Vec<RunningProgram> {
    home.ask("main", "echo **hello** [a link](https://example.com)");
    let waiting =
        ["run a", "run b"].map(|text| home.start_gdn(&["send", "--instance", text, text]));
    wait_until("they wait", || approvals::waiting(home).len() == 2);
    waiting.into()
}

#[test]
fn obs_5_every_page_works_by_keyboard_in_both_themes_and_360_px() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let _waiting = busy(&home);
    for (name, write) in [("pages", &["--write"][..]), ("readonly", &[])] {
        let mut studio = Studio::start(&home, write);
        let mut suite = Suite::start(&home, (&browser, name), &mut studio);
        suite.says("ready pages");
        suite.answer("go");
        suite.says("checked keyboard");
        for scheme in ["light", "dark"] {
            for part in 1..=4 {
                suite.says(&format!("checked part {part} in {scheme}"));
            }
        }
        suite.says("checked narrow");
        suite.ends_well();
    }
}

#[test]
fn obs_5_showing_every_page_writes_nothing_but_logs() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let _waiting = busy(&home);
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "reads"), &mut studio);
    suite.says("ready reads");
    // The daemon's socket is below `run`.
    let stored = || {
        tree::snapshot(&home.state_root(), |path| {
            !path.ends_with("logs") && !path.ends_with("run")
        })
    };
    let mut before = stored();
    wait_until("the daemon has written its last record", || {
        let now = stored();
        let is_same = now == before;
        before = now;
        is_same
    });
    suite.answer("go");
    suite.says("ready read");
    let after = stored();
    let changed: Vec<_> = after
        .iter()
        .filter(|(path, entry)| before.get(*path) != Some(*entry))
        .map(|(path, _)| path)
        .collect();
    assert!(after == before, "changed: {changed:?}");
    suite.answer("go");
    suite.ends_well();
}

/// Runs a suite that needs what only a generated daemon has.
fn pass_with_generated_daemon(suite: &str) {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let script = format!("{STUDIO_WEB}/tests/browser.mjs");
    let mut command = home.command("node".as_ref(), &[&script, suite]);
    command.env("GOONDAN_CHROMIUM", &browser);
    let mut running = RunningProgram::start(command);
    while !running.has_ended() {
        let lines = running.stdout().lines().count();
        wait_until(&format!("the next line of `{suite}`"), || {
            running.stdout().lines().count() > lines || running.has_ended()
        });
    }
    running.wait().exits(0);
}

/// Pages of tasks, proposals and damaged conversations, which [`busy`] does not have.
#[test]
fn obs_5_pages_of_generated_data_pass_axe_in_both_themes() {
    pass_with_generated_daemon("pages");
}

#[test]
fn obs_5_every_decision_is_made_by_keyboard_alone() {
    pass_with_generated_daemon("decisions");
}

/// A second workspace, a patch of 20,000 lines, a transcript of 50,000 events, and a conversation of
/// 10,000 messages.
#[test]
fn obs_5_inbox_and_large_pages_work_in_the_browser() {
    for suite in ["inbox", "search", "traces", "large", "long"] {
        pass_with_generated_daemon(suite);
    }
}

#[test]
fn obs_5_pages_work_behind_nginx_as_the_guide_configures_it() {
    if needs::nginx().is_some() && needs::program("openssl") {
        pass_with_generated_daemon("proxy");
    }
}

#[test]
fn obs_5_every_page_looks_as_in_the_gallery() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let script = format!("{STUDIO_WEB}/tests/shots.mjs");
    let images = format!("{STUDIO_WEB}/../../../docs/images");
    let mut command = home.command("node".as_ref(), &[&script, &images, "--check"]);
    command.env("GOONDAN_CHROMIUM", &browser);
    let mut running = RunningProgram::start(command);
    while !running.has_ended() {
        let pictures = running.stdout().lines().count();
        wait_until("the next picture", || {
            running.stdout().lines().count() > pictures || running.has_ended()
        });
    }
    running.wait().exits(0);
}

#[test]
fn obs_5_call_approved_in_the_browser_runs_once() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "approve"), &mut studio);
    suite.says("ready approve");
    let asking = home.start_gdn(&["send", "run a"]);
    wait_until("it waits", || approvals::waiting(&home).len() == 1);
    suite.answer("go");
    suite.ends_well();
    assert!(asking.wait().exits(0).stdout.contains("ran a"));
    assert_eq!(approvals::runs_of(&home, "a"), 1);
}

#[test]
fn obs_5_schedules_are_moved_and_removed_on_the_page() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let inject = |text: &str, when: [&str; 2]| {
        let kept = home.gdn_json(&[&["event", "inject", text][..], &when].concat());
        kept["schedule"]["scheduleId"].as_str().unwrap().to_owned()
    };
    let once = inject("echo later", ["--at", "480h"]);
    let often = inject("echo often", ["--cron", "0 0 1 1 *"]);
    let next = |id: &str| {
        let listed = home.gdn_json(&["event", "schedule", "list"]);
        let schedules = listed["schedules"].as_array().unwrap();
        let found = schedules.iter().find(|it| it["scheduleId"] == id);
        found.map(|it| it["next"].as_str().unwrap().to_owned())
    };
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "schedules"), &mut studio);
    suite.says("ready schedules");
    suite.answer(&format!("{once} {often}"));
    suite.says("ready moved");
    let moved = next(&once).unwrap();
    assert!(moved.ends_with("T00:30:00.000Z"), "{moved}");
    suite.answer("go");
    suite.says("ready removed");
    assert_eq!(next(&once), None);
    assert!(next(&often).is_some());
    home.gdn(&["event", "schedule", "remove", &often]).exits(0);
    suite.answer("go");
    suite.ends_well();
}

/// Number of parts of a reply.
const PARTS: usize = 200;

/// A part of a reply, with the time at which it is sent.
fn live_part(number: usize) -> Option<Vec<u8>> {
    let events = match number.cmp(&PARTS) {
        Ordering::Less => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let text = format!("word {number} @{}; ", now.as_millis());
            openai(&[openai_delta(&json!({"content": text}))])
        }
        Ordering::Equal => openai_saying(&[]),
        Ordering::Greater => return None,
    };
    Some(events.into_bytes())
}

#[test]
fn obs_5_reply_words_appear_on_the_page_as_they_stream() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let provider = Provider::start(|received| match received.number {
        0 => ProviderResponse::stream(&openai_saying(&["Hello."])),
        _ => ProviderResponse::stream("").made_when_sent(live_part),
    });
    let home = Home::new(&models::project(&provider));
    let _daemon = Daemon::serving(&home);
    home.ask("main", "Hi.");
    let mut studio = Studio::start(&home, &[]);
    let mut suite = Suite::start(&home, (&browser, "live"), &mut studio);
    suite.says("ready live");
    let sending = home.start_gdn(&["send", "Speak."]);
    suite.answer(&json!({"pieces": PARTS, "messages": 2}).to_string());
    suite.says("ready said word 0 @");
    let output = sending.wait().exits(0).stdout;
    assert!(
        output.contains(&format!("word {} @", PARTS - 1)),
        "{output}"
    );
    suite.answer("go");
    suite.says("piece to page: ");
    suite.ends_well();
}

#[test]
fn agent_7_work_of_a_task_is_live_in_the_browser() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = task_home();
    let daemon = Daemon::serving(&home);
    start_shop(&home);
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "task"), &mut studio);
    suite.says("ready work");
    let_shop_fail(&home);
    suite.answer("go");
    suite.says("ready kill");
    drop(daemon.kill());
    let _daemon = Daemon::serving(&home);
    suite.answer("go");
    suite.ends_well();
    tasks::wait_for(&home, "completed");
    review_in(&home, &browser, &mut studio);
}

/// A person comments on lines of a task's changes and requests rework: the next run of its agent
/// receives the comments.
fn review_in(home: &Home, browser: &Path, studio: &mut Studio) {
    let new = ["task", "new", "Fix the functions", "--id", "fix"];
    let of_editor = ["--description", "x", "--agent", "editor", "--start"];
    home.gdn(&[&new[..], &of_editor].concat()).exits(0);
    task_sources::settle(home, "fix", "waiting_review");
    let mut suite = Suite::start(home, (browser, "review"), studio);
    suite.says("ready review");
    suite.answer("go");
    suite.says("ready reworked");
    suite.answer("go");
    suite.ends_well();
    let told = task_sources::prompts(home, "fix");
    let comments = "- src/b.rs:2\n    >     // long\n    Shorter: one <b>line</b>.\n\
        - old.md:1 (before the change)\n    > old\n    Why?\n";
    assert_eq!(told.matches(comments).count(), 1, "{told}");
}

#[test]
fn obs_5_configuration_change_is_reviewed_and_approved_in_page() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = bundles::poet();
    let _daemon = Daemon::serving(&home);
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "needs"), &mut studio);
    suite.says("ready needs");
    home.ask("main", "give yourself a shell");
    suite.answer("go");
    suite.says("approved ");
    suite.ends_well();
    let changeset = &bundles::status(&home)["changesets"][0];
    assert_eq!(changeset["state"], "committed", "{changeset}");
    assert_eq!(changeset["detail"], "approved by a person: as agreed");
}

#[test]
fn obs_5_agent_output_is_plain_text_in_the_browser() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    for said in [
        "<img src=x onerror=\"alert(1)\"><script>alert(2)</script>",
        "[click](javascript:alert(3)) \u{1b}[2J\u{1b}]8;;https://example.com\u{7}x\u{202e}gnp.exe",
        "</pre></main><svg onload=alert(4)>",
    ] {
        home.ask("hostile", &format!("echo {said}"));
    }
    let mut studio = Studio::start(&home, &["--write"]);
    let mut suite = Suite::start(&home, (&browser, "hostile"), &mut studio);
    suite.says("ready hostile");
    suite.answer("go");
    suite.ends_well();
}

#[test]
fn obs_5_page_shows_the_history_after_a_daemon_kill() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let kills = std::env::var(KILLS_VAR).map_or(KILLS, |text| text.parse().unwrap());
    let home = Home::new(LAB);
    let mut daemon = Daemon::serving(&home);
    home.ask("main", "echo before");
    let mut studio = Studio::start(&home, &[]);
    let mut suite = Suite::start(&home, (&browser, "kill"), &mut studio);
    for number in 0..kills {
        suite.says("ready kill");
        // One event is answered while the page is open, and another is hit by the kill at any
        // point.
        home.ask("main", &format!("echo answered {number}"));
        let event_id = format!("hit{number}");
        let text = format!("echo hit {number}");
        let hit = ["send", "--event-id", &event_id, &text];
        let sending = home.start_gdn(&hit);
        drop(daemon.kill());
        drop(sending);
        daemon = Daemon::serving(&home);
        home.gdn(&hit).exits(0);
        let history = home.gdn_json(&["instance", "history", "main"]);
        let told = json!({"messages": history["messages"], "pending": history["pending"]});
        suite.answer(&told.to_string());
        suite.says("equal ");
    }
    suite.says("ready kill");
    suite.answer("end");
    suite.ends_well();
}

#[test]
fn obs_5_eight_tabs_have_one_stream() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    let mut studio = Studio::start(&home, &[]);
    let mut suite = Suite::start(&home, (&browser, "tabs"), &mut studio);
    suite.says("ready tabs");
    home.ask("main", "echo something happens");
    suite.answer("go");
    suite.ends_well();
}

#[test]
fn obs_5_of_many_conversations_few_are_in_the_document() {
    let Some(browser) = needs::browser() else {
        return;
    };
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    daemon.stop();
    let many = std::env::var(MANY_VAR).map_or(MANY, |text| text.parse().unwrap());
    copy_conversation(&home, many).unwrap();
    let _daemon = Daemon::serving(&home);
    let mut studio = Studio::start(&home, &[]);
    Suite::start(&home, (&browser, "scale"), &mut studio).ends_well();
}
