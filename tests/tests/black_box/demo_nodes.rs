//! Goal: in `gdn demo nodes` a node takes over from a killed one, its verdict matches the files of
//! both, and it leaves nothing behind (`REP-1`).
//!
//! Method: as for `gdn demo kill`. Without PostgreSQL these tests are skipped with a message.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Home, postgres, wait_until};
use serde_json::{Value, json};

/// Starts the demo with a separate temporary directory; none without PostgreSQL.
fn start(home: &Home, args: &[&str]) -> Option<(RunningProgram, PathBuf)> {
    postgres::programs()?;
    let temporary = home.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    // The server does not run as root.
    for path in [home.path(), &temporary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o711)).unwrap();
    }
    let args = [&["--json", "demo", "nodes"], args].concat();
    let mut command = home.command(&bin(GDN), &args);
    command.env("TMPDIR", &temporary);
    Some((RunningProgram::start(command), temporary))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Number of occurrences of each text in a node's journals, by role.
fn text_counts(directory: &Path, role: &str) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for path in entries(directory) {
        if path.is_dir() {
            for (text, times) in text_counts(&path, role) {
                *all.entry(text).or_default() += times;
            }
        } else if path.ends_with("base.jsonl") {
            for line in fs::read_to_string(path).unwrap().lines() {
                let message: Value = serde_json::from_str(line).unwrap();
                let data = &message["data"];
                if let Some(text) = data["content"].as_str().filter(|_| data["role"] == role) {
                    *all.entry(text.to_owned()).or_default() += 1;
                }
            }
        }
    }
    all
}

#[test]
fn rep_1_each_event_is_answered_once_on_both_after_a_node_kill() {
    let home = Home::without_project();
    let Some((demo, temporary)) = start(&home, &["--keep"]) else {
        return;
    };
    let told = demo.wait().exits(0).json();
    assert_eq!(told["epoch"], 2, "{told}");
    assert_eq!(told["answeredOnce"], told["accepted"], "{told}");
    for nothing in ["lost", "repeated", "astray"] {
        assert_eq!(told[nothing], json!([]), "{told}");
    }
    assert!(told["takeOverMs"].as_u64() <= told["acceptedAgainMs"].as_u64());
    assert_eq!(processes::of_home(home.path()), []);

    let directory = PathBuf::from(told["directory"].as_str().unwrap());
    assert!(directory.starts_with(&temporary));
    let accepted = usize::try_from(told["accepted"].as_u64().unwrap()).unwrap();
    assert!(accepted > 0, "{told}");
    for node in ["a", "b"] {
        let workspaces = directory.join(node).join("workspaces");
        let (asked, answered) = (
            text_counts(&workspaces, "user"),
            text_counts(&workspaces, "assistant"),
        );
        assert_eq!(asked.len(), accepted, "{node}");
        for (input, times) in asked {
            let answer = format!("done: {input}");
            let found = (times, answered.get(&answer));
            assert_eq!(found, (1, Some(&1)), "{node}: {input}");
        }
    }
}

#[test]
fn rep_1_nothing_stays_of_two_nodes_that_are_interrupted() {
    let home = Home::without_project();
    let Some((demo, temporary)) = start(&home, &[]) else {
        return;
    };
    wait_until("both nodes run", || home.running(ORCHESTRATOR).len() == 2);
    processes::signal(demo.pid(), Signal::SIGINT);
    demo.wait().exits(130);
    assert_eq!(entries(&temporary), Vec::<PathBuf>::new());
    assert_eq!(processes::of_home(home.path()), []);
}
