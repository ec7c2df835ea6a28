//! Behavior when file descriptors run short (`SUP-3`): the longest idle agents are stopped, and no
//! accepted event waits for long.

use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, ORCHESTRATOR};
use goondan_tests::log::message;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::json;

/// A daemon with this limit of open files.
fn daemon_with_files(home: &Home, open_files: u32) -> Daemon {
    let script = format!("ulimit -n {open_files}; exec \"$0\"");
    let mut command = home.command(Path::new("sh"), &["-c", &script]);
    command.arg(bin(ORCHESTRATOR));
    let daemon = Daemon::start_command(home, command);
    home.gdn(&["run"]).exits(0);
    daemon
}

fn open_files(daemon: &Daemon) -> usize {
    let dir = format!("/proc/{}/fd", daemon.pid());
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn sup_3_an_idle_agent_takes_no_more_than_three_descriptors() {
    const AGENTS: usize = 60;
    let home = Home::new(LAB);
    let daemon = daemon_with_files(&home, 1_024);
    let before = open_files(&daemon);
    for n in 0..AGENTS {
        assert_eq!(home.ask(&format!("k{n}"), "echo hi"), "hi");
    }
    assert_eq!(home.running(AGENT).len(), AGENTS);
    let status = home.gdn_json(&["status"]);
    assert_eq!(status["openFiles"]["limit"], 1_024);
    wait_until("clients are gone and quiet conversations at rest", || {
        open_files(&daemon).saturating_sub(before) <= 3 * home.running(AGENT).len()
    });
}

#[test]
fn sup_3_longest_idle_agents_stop_when_descriptors_run_short() {
    const CONVERSATIONS: usize = 40;
    let home = Home::new(LAB);
    let daemon = daemon_with_files(&home, 64);
    let address = daemon.webhook("hook");
    // All concurrently, twice: each conversation's agent is stopped before its second event.
    for round in 1..=2 {
        for n in 0..CONVERSATIONS {
            let key = format!("k{n}");
            let headers = [("x-goondan-instance-key", key.as_str())];
            let answer = http::post(address, "/hook", &headers, "echo hi").unwrap();
            assert_eq!(answer.status, 202, "{answer:?}");
        }
        wait_until("all are answered", || {
            let answered = daemon.log().saying("turn committed and answered");
            answered.len() == round * CONVERSATIONS
        });
    }
    for n in [0, CONVERSATIONS - 1] {
        assert_eq!(home.history(&format!("k{n}")).len(), 4);
    }
    // No process was killed or refused, and the shortage is reported.
    let lines = daemon.log().lines();
    let crashes = lines.iter().filter(|line| {
        message(line) == "process crashed" || message(line).starts_with("store failed")
    });
    assert_eq!(
        crashes.collect::<Vec<_>>(),
        Vec::<&serde_json::Value>::new()
    );
    assert!(!home.running(AGENT).is_empty() && home.running(AGENT).len() < CONVERSATIONS);
    daemon.log().wait_for("it is reported", |line| {
        message(line) == "resources for processes run short; stopping the longest idle agents"
            && line["shortOf"] == json!("file descriptors")
    });
}
