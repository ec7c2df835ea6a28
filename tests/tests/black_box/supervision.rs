//! Lifetime and supervision of processes (`SUP-3`, `SUP-6`, `SUP-9`).

use std::time::{Duration, Instant};

use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::Value;

use crate::conversation::{check, shape};

/// Daemons that are stopped as soon as they have accepted an event.
const ROUNDS: usize = 12;

#[test]
fn sup_3_agents_start_on_demand_and_the_daemon_runs_without_any() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert!(home.running(AGENT).is_empty());
    assert_eq!(home.ask("k", "echo one"), "one");
    assert_eq!(home.running(AGENT).len(), 1);
    processes::signal(home.running(AGENT)[0].pid, Signal::SIGKILL);
    // It has no work, so no replacement is started.
    daemon.log().wait_for("the crash is reported", |line| {
        message(line) == "process crashed"
    });
    wait_until("no agent runs", || home.running(AGENT).is_empty());
    assert!(
        home.ps_agent("k")
            .is_none_or(|process| process["pid"].is_null())
    );
    assert_eq!(home.gdn_json(&["status"])["pid"], daemon.pid());
    assert!(home.running(AGENT).is_empty());
    assert_eq!(home.ask("k", "echo two"), "two");
    assert_eq!(home.history("k").len(), 4);
    let starts = daemon.log().saying("agent process started");
    assert_eq!(starts.len(), 2, "{starts:#?}");
}

#[test]
fn sup_3_killed_connector_restarts_without_effect_on_agents() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let address = daemon.webhook("hook");
    let key = [("x-goondan-instance-key", "k")];
    assert_eq!(
        http::post(address, "/hook", &key, "hold x").unwrap().status,
        202
    );
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    for _ in 0..3 {
        let seen = daemon.log().lines().len();
        processes::signal(home.running(CONNECTOR)[0].pid, Signal::SIGKILL);
        daemon
            .log()
            .wait_for_after(seen, "it listens again", |line| {
                message(line) == "listening"
            });
    }
    let address = daemon.webhook("hook");
    assert_eq!(
        http::post(address, "/hook", &key, "echo two")
            .unwrap()
            .status,
        202
    );
    home.write("notes/x.go", "");
    wait_until("both are answered", || home.history("k").len() == 6);
    check(&home.history("k"));
    assert_eq!(home.note("x.runs"), "run\n");
}

#[test]
fn sup_9_hung_children_are_found_killed_and_replaced() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    daemon.webhook("hook");
    let asking = home.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let (agent, connector) = (home.running(AGENT), home.running(CONNECTOR));
    let agent_pid = home.ps_agent("main").unwrap()["pid"].as_u64().unwrap();
    assert!(
        agent
            .iter()
            .any(|process| u64::from(process.pid) == agent_pid)
    );
    for pid in [u32::try_from(agent_pid).unwrap(), connector[0].pid] {
        processes::signal(pid, Signal::SIGSTOP);
    }
    for (field, value) in [("instanceKey", "main"), ("connection", "hook")] {
        let killed = daemon.log().wait_for("the hang is noticed", |line| {
            message(line) == "process killed" && line[field] == value
        });
        assert_eq!(killed["reason"], "it does not answer");
    }
    wait_until("the turn goes on", || home.note("x.runs") == "run\nagain\n");
    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    check(&home.history("main"));
    wait_until("the webhook listens again", || {
        daemon.log().saying("listening").len() == 2
    });
    let address = daemon.webhook("hook");
    assert_eq!(
        http::post(address, "/hook", &[], "echo hi").unwrap().status,
        202
    );
}

/// Longer than the allowed silence of a child.
const PAUSE: Duration = Duration::from_secs(33);
/// Longer than the daemon's checks of all children after a pause.
const JUDGED: Duration = Duration::from_secs(6);

#[test]
fn sup_9_a_pause_of_the_daemon_is_no_silence_of_its_children() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    daemon.webhook("hook");
    assert_eq!(home.ask("k", "echo one"), "one");
    let asking = home.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let pids = || -> Vec<Value> { home.ps().iter().map(|child| child["pid"].clone()).collect() };
    let before = pids();
    assert_eq!(before.len(), 3, "{before:?}");

    let paused = Instant::now();
    processes::signal(daemon.pid(), Signal::SIGSTOP);
    wait_until("the pause is over", || paused.elapsed() >= PAUSE);
    processes::signal(daemon.pid(), Signal::SIGCONT);
    let resumed = Instant::now();
    daemon.log().wait_for("the pause is reported", |line| {
        message(line).starts_with("the daemon was suspended for a while")
            && line["durationMs"].as_u64() >= Some(30_000)
    });
    wait_until("every child had been looked at", || {
        assert_eq!(home.ask("k", "echo on"), "on");
        resumed.elapsed() >= JUDGED
    });
    assert_eq!(pids(), before, "the same processes go on");
    assert!(daemon.log().saying("process killed").is_empty());
    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    assert_eq!(home.note("x.runs"), "run\n");
}

#[test]
fn sup_6_stop_lets_the_current_turn_finish_and_starts_no_other() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    home.gdn(&["send", "--no-wait", "echo next"]).exits(0);
    processes::signal(daemon.pid(), Signal::SIGTERM);
    wait_until("the daemon is stopping", || {
        let status = home.gdn(&["status", "--json"]);
        status.code == 0 && status.json()["stopping"] == true
    });
    // Clients are refused with an error.
    let refused = home.gdn(&["send", "echo too late", "--json"]).exits(8);
    assert_eq!(refused.error_json()["retryable"], true);
    home.write("notes/x.go", "");
    let log = daemon.wait();
    let committed = log.saying("turn committed and answered");
    assert_eq!(committed.len(), 1, "{committed:#?}");
    let ran = asking.wait();
    assert!(matches!(ran.code, 0 | 8 | 9), "{ran:#?}");
    assert_eq!(home.note("x.runs"), "run\n");

    let _daemon = Daemon::start(&home);
    wait_until("the event that waited is answered", || {
        home.history("main").len() == 6
    });
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uataua");
}

/// The processes for the event are being started at that moment.
#[test]
fn sup_6_stop_right_after_an_accepted_event_is_never_missed() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    drop(daemon.stop());
    for round in 0..ROUNDS {
        let daemon = Daemon::start(&home);
        let address = daemon.webhook("hook");
        let key = format!("k{round}");
        let headers = [("x-goondan-instance-key", key.as_str())];
        let accepted = http::post(address, "/hook", &headers, "echo one").unwrap();
        assert_eq!(accepted.status, 202, "{accepted:?}");
        drop(daemon.stop());
    }
    let _daemon = Daemon::start(&home);
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        wait_until("each event is answered", || home.history(&key).len() == 2);
    }
}

/// The daemon's thread that starts them blocks all signals.
#[test]
#[cfg(target_os = "linux")]
fn sup_6_processes_and_their_children_block_no_signals() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "hold x"]).exits(0);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    assert!(processes::of_home(home.path()).len() >= 5);
    wait_until("none of them blocks a signal that ends it", || {
        let started = processes::of_home(home.path());
        // The process that only waits for the sandbox leaves signals to the inner one.
        let waits = |args: &[String]| {
            let is = |arg: &str| args.iter().any(|it| it == arg);
            is("--sandbox") && !is("--within")
        };
        let mut others = started.iter().filter(|process| !waits(&process.args));
        !others.any(|process| blocks_an_end(process.pid))
    });
    home.write("notes/x.go", "");
}

#[test]
fn sup_6_a_second_signal_stops_at_once_and_nothing_is_lost() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "hold x"]).exits(0);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    processes::signal(daemon.pid(), Signal::SIGTERM);
    wait_until("the daemon is stopping", || {
        let status = home.gdn(&["status", "--json"]);
        status.code == 0 && status.json()["stopping"] == true
    });
    processes::signal(daemon.pid(), Signal::SIGTERM);
    drop(daemon.wait());
    let _daemon = Daemon::start(&home);
    wait_until("the turn goes on", || home.note("x.runs") == "run\nagain\n");
    home.write("notes/x.go", "");
    wait_until("it finishes", || home.history("main").len() == 6);
    check(&home.history("main"));
}

/// True if a process blocks a termination signal.
fn blocks_an_end(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return false;
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    ends.into_iter()
        .any(|signal| mask & 1 << (signal as i32 - 1) != 0)
}
