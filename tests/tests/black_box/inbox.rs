//! The inbox of many workspaces: its items, the time until its first frame, and the time until a
//! decision is visible (`NEED-1`).
//!
//! `GOONDAN_TEST_INBOX_WORKSPACES=50` creates 50 workspaces of 40 items instead of a few, and prints
//! the times: run it with `--nocapture`, and `GOONDAN_TEST_BIN_DIR` with release binaries.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::copies::copy_into;
use goondan_tests::home::GDN;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::parked_events::kill_three_times;

const WORKSPACES_VAR: &str = "GOONDAN_TEST_INBOX_WORKSPACES";
const WORKSPACES: usize = 4;
/// Items of each workspace.
const ITEMS: usize = 40;
/// Number of measurements; their median is printed.
const ROUNDS: usize = 7;
/// Generous, because other tests run at the same time: a request for each item would take longer.
const TIMES_A_START_MAX: f64 = 400.0;

/// Without a connection, whose process each workspace would have.
const PROJECT: &str = r"
apiVersion: goondan.ai/v1
models:
  main:
    provider: scripted
    options:
      rules:
        - when: {user: '^hold$'}
          delayMs: 600000
          say: done
agents:
  worker: {model: main}
";

/// Directories of all workspaces in the state root.
fn workspace_dirs(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.state_root().join("workspaces")).unwrap();
    let dirs = entries.map(|entry| entry.unwrap().path());
    dirs.filter(|dir| dir.join("workspace.json").is_file())
        .collect()
}

/// Creates that many workspaces, each with [`ITEMS`] conversations of one parked event.
fn with_items(workspaces: usize) -> Home {
    let home = Home::new(PROJECT);
    let daemon = Daemon::serving(&home);
    let one = home.workspace_dir().join("instances").join("main");
    let asking = home.start_gdn(&["send", "--event-id", "poison", "hold"]);
    kill_three_times(&home);
    asking.wait().exits(14);
    for number in 1..workspaces {
        let project = format!("projects/p{number:02}");
        home.write(&format!("{project}/goondan.yaml"), PROJECT);
        let root = home.path().join(project);
        home.gdn(&["--project", root.to_str().unwrap(), "run"])
            .exits(0);
    }
    daemon.stop();
    for dir in workspace_dirs(&home) {
        let instances = dir.join("instances");
        let own = usize::from(one.starts_with(&dir));
        copy_into(&home, &one, &instances, ITEMS - own).unwrap();
    }
    home
}

fn gdn(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(&bin(GDN), args);
    command.current_dir(home.path());
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    command
}

/// Time from the start of a command on a terminal until it shows a text.
fn time_to(home: &Home, args: &[&str], text: &str) -> (Terminal, Duration) {
    let begun = Instant::now();
    let terminal = Terminal::start(gdn(home, args), 100);
    terminal.wait_for(text);
    (terminal, begun.elapsed())
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    of[of.len() / 2]
}

/// Prints a time and its ratio to the start of a program, which must not be absurd.
fn check_time(name: &str, time: Duration, start: Duration) {
    let ratio = time.as_secs_f64() / start.as_secs_f64();
    println!(
        "{name}: {:.1} ms, {ratio:.1} starts of `gdn --version`",
        time.as_secs_f64() * 1e3
    );
    assert!(ratio < TIMES_A_START_MAX, "{name} took {time:?}");
}

#[test]
fn need_1_inbox_of_many_workspaces_is_complete_and_current() {
    let workspaces = std::env::var(WORKSPACES_VAR);
    let workspaces = workspaces.map_or(WORKSPACES, |text| text.parse().unwrap());
    let home = with_items(workspaces);
    let _daemon = Daemon::start(&home).measured();
    let total = workspaces * ITEMS;
    wait_until("every workspace reports its parked events", || {
        let status = home.gdn_json(&["status"]);
        let all = status["workspaces"].as_array().unwrap().iter();
        let parked = all.filter(|workspace| workspace["parkedEvents"] == ITEMS);
        parked.count() == workspaces
    });

    let starts = (0..ROUNDS).map(|_| time_to(&home, &["--version"], "gdn ").1);
    let start = median(starts.collect());
    println!("{total} items of {workspaces} workspaces");
    check_time("start", start, start);
    let to_decide = |left: usize| format!("{left} to decide");
    let shows = |left: usize| {
        let (mut inbox, time) = time_to(&home, &["inbox"], &to_decide(left));
        inbox.wait_for("q quit: ");
        inbox.press(b"q");
        assert_eq!(inbox.ends().0, Some(0));
        time
    };
    check_time("first frame after the daemon's start", shows(total), start);
    let frames = (0..ROUNDS).map(|_| shows(total));
    check_time("first frame", median(frames.collect()), start);
    let frames = (0..ROUNDS).map(|_| time_to(&home, &[], "Next: ").1);
    check_time("bare `gdn`", median(frames.collect()), start);

    let items = |args: &[&str]| -> Vec<Value> {
        let listed = home.gdn_json(args);
        assert_eq!(listed["unreadable"], Value::Array(Vec::new()));
        listed["items"].as_array().unwrap().clone()
    };
    let all = items(&["inbox", "--list"]);
    let named: BTreeSet<(&str, &str)> = all
        .iter()
        .inspect(|item| assert_eq!(item["kind"], "parkedEvent", "{item}"))
        .map(|item| {
            let name = |field: &str| item[field].as_str().unwrap();
            (name("workspaceId"), name("conversation"))
        })
        .collect();
    assert_eq!((all.len(), named.len()), (total, total));

    let (mut inbox, _) = time_to(&home, &["inbox"], &to_decide(total));
    let mut changes = Vec::new();
    for decided in 1..=ROUNDS {
        wait_until("it asks about the next item", || {
            inbox.shown().matches("q quit: ").count() >= decided
        });
        let begun = Instant::now();
        inbox.press(b"n");
        inbox.wait_for(&to_decide(total - decided));
        changes.push(begun.elapsed());
    }
    check_time("decision until the next item", median(changes), start);

    // Other people decide an item that is not shown, and the one that is.
    let id_of = |item: &Value| item["workspaceId"].as_str().unwrap().to_owned();
    let (first, last) = (id_of(&all[ROUNDS]), id_of(all.last().unwrap()));
    let drop_in = |id: &str| {
        home.gdn(&["--workspace", id, "event", "drop", "poison", "--yes"])
            .exits(0);
        Instant::now()
    };
    let begun = drop_in(&last);
    inbox.wait_for(&format!("{} to decide; ", total - ROUNDS - 1));
    check_time("another's decision until the count", begun.elapsed(), start);
    let begun = drop_in(&first);
    inbox.wait_for("It no longer needs you.");
    check_time(
        "another's decision until it is gone",
        begun.elapsed(),
        start,
    );
    wait_until("it asks about the next item", || {
        let next = format!("\n{} to decide\n", total - ROUNDS - 2);
        let shown = inbox.shown();
        let (_, after) = shown.split_once(&next).unwrap_or_default();
        after.contains("q quit: ")
    });
    inbox.press(b"q");
    let (code, shown) = inbox.ends();
    assert_eq!(code, Some(0), "{shown}");
    let each = all.iter().map(|item| item["workspaceId"].as_str().unwrap());
    let left: usize = each
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|id| items(&["--workspace", id, "inbox", "--list"]).len())
        .sum();
    assert_eq!(left, total - ROUNDS - 2);
}
