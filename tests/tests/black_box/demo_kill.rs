//! Goal: `gdn demo kill` really kills processes, its verdict matches the files, and it leaves
//! nothing behind (`REL-2`). Its outside service has each effect once.
//!
//! Method: it runs in a temporary directory of the test. Where the state is kept, the test reads
//! the journals itself, and counts again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Home, wait_for, wait_until};
use serde_json::Value;

/// A seed whose first choices are everything, a connector, a daemon and agents.
const SEED: &str = "5";

/// Starts the demo with a separate temporary directory.
fn start(home: &Home, args: &[&str]) -> (RunningProgram, PathBuf) {
    let temporary = home.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = home.command(&bin(GDN), &[&["--json", "demo", "kill"], args].concat());
    command.env("TMPDIR", &temporary);
    (RunningProgram::start(command), temporary)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// All files of this name below a directory.
fn files(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(directory) {
        if path.is_dir() {
            found.extend(files(&path, name));
        } else if path.ends_with(name) {
            found.push(path);
        }
    }
    found
}

/// Number of occurrences of each text in the journals, by role.
fn text_counts(state_root: &Path, role: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for journal in files(&state_root.join("workspaces"), "base.jsonl") {
        for line in fs::read_to_string(journal).unwrap().lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            let data = &message["data"];
            if let Some(text) = data["content"].as_str().filter(|_| data["role"] == role) {
                *counts.entry(text.to_owned()).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn rel_2_random_kills_leave_each_event_in_the_journals_once() {
    let home = Home::without_project();
    let (demo, temporary) = start(&home, &["--for", "4s", "--seed", SEED, "--keep"]);
    let told = demo.wait().exits(0).json();
    let count = |value: &Value| value.as_u64().unwrap();
    assert!(count(&told["killed"]["daemons"]) > 1, "{told}");
    assert!(count(&told["killed"]["atOnce"]) > 0, "{told}");
    let accepted = count(&told["accepted"]);
    assert!(accepted > 0, "{told}");
    assert_eq!(told["answeredOnce"], told["accepted"], "{told}");
    for nothing in ["lost", "repeated", "astray", "damaged"] {
        assert!(told[nothing].as_array().unwrap().is_empty(), "{told}");
    }
    let outside = &told["outside"];
    assert!(count(&outside["effects"]) >= accepted, "{told}");
    for nothing in ["doubled", "lost"] {
        assert!(outside[nothing].as_array().unwrap().is_empty(), "{told}");
    }
    assert!(processes::of_home(home.path()).is_empty());

    let state_root = PathBuf::from(told["stateRoot"].as_str().unwrap());
    assert!(state_root.starts_with(&temporary));
    let (asked, answered) = (
        text_counts(&state_root, "user"),
        text_counts(&state_root, "assistant"),
    );
    assert_eq!(asked.len(), usize::try_from(accepted).unwrap());
    for (input, times) in asked {
        let answer = format!("done: {input}");
        assert_eq!((times, answered.get(&answer)), (1, Some(&1)), "{input}");
    }
}

#[test]
fn rel_2_nothing_stays_of_a_demo_that_is_interrupted() {
    let home = Home::without_project();
    let (demo, temporary) = start(&home, &["--for", "10m", "--seed", SEED]);
    let daemon = wait_for("the daemon runs", || home.running(ORCHESTRATOR).pop());
    wait_until("it is killed", || !processes::is_alive(daemon.pid));
    processes::signal(demo.pid(), Signal::SIGINT);
    demo.wait().exits(130);
    assert_eq!(entries(&temporary), Vec::<PathBuf>::new());
    assert!(processes::of_home(home.path()).is_empty());
}
