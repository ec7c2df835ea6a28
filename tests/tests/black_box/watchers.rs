//! Clients that watch a project: `gdn workspace watch`.

use goondan_tests::home::RunningProgram;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// Complete objects that a watch has printed.
fn notifications(watch: &RunningProgram) -> Vec<Value> {
    let printed = watch.stdout();
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn types(told: &[Value]) -> Vec<&str> {
    let events = told.iter();
    events
        .map(|told| told["event"]["type"].as_str().unwrap_or("snapshot"))
        .collect()
}

fn wait_for(watch: &RunningProgram, kind: &str, count: usize) -> Vec<Value> {
    let has_come = || {
        let told = notifications(watch);
        types(&told).iter().filter(|it| **it == kind).count() >= count
    };
    wait_until(&format!("{count} {kind} are reported"), has_come);
    notifications(watch)
}

/// After a snapshot, no sequence number is skipped or repeated.
fn check_cursors(told: &[Value]) {
    let mut last = (String::new(), 0);
    for each in told {
        let cursor = each["cursor"].as_str().unwrap();
        let (epoch, count) = cursor.split_once('.').unwrap();
        let (epoch, count) = (epoch.to_owned(), count.parse::<u64>().unwrap());
        if each["snapshot"].is_null() {
            assert_eq!((&epoch, count), (&last.0, last.1 + 1), "{each}");
        }
        last = (epoch, count);
    }
}

#[test]
fn obs_1_watcher_gets_each_event_once_over_a_daemon_kill() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let watch = home.start_gdn(&["watch", "--json"]);
    let plain = home.start_gdn(&["watch", "--instance", "main"]);
    wait_for(&watch, "snapshot", 1);
    plain.wait_for_stderr("Now: 0 turns");
    assert_eq!(home.ask("main", "echo one"), "one");
    let begun = wait_for(&watch, "turn.committed", 1);
    let of_main: Vec<Value> = begun
        .iter()
        .filter(|told| told["event"]["instanceKey"] == "main")
        .cloned()
        .collect();
    assert_eq!(
        types(&of_main),
        [
            "event.accepted",
            "instance.created",
            "process.started",
            "turn.started",
            "turn.committed"
        ],
        "{of_main:#?}"
    );
    assert_eq!(of_main[4]["event"]["outcome"], "completed");
    assert_eq!(of_main[4]["event"]["turnId"], of_main[3]["event"]["turnId"]);

    // A killed process is reported, and restarts automatically.
    let agent = home.ps_agent("main").unwrap()["pid"].as_u64().unwrap();
    processes::signal(u32::try_from(agent).unwrap(), Signal::SIGKILL);
    let crashed = wait_for(&watch, "process.crashed", 1);
    let crashed = crashed.last().unwrap();
    let how = "process crashed: killed by SIGKILL";
    assert_eq!(crashed["event"]["how"], "killed by SIGKILL", "{crashed}");
    // The daemon may be killed only when both clients know.
    plain.wait_for_stdout(how);

    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    let again = wait_for(&watch, "snapshot", 2);
    let snapshot = &again.iter().rfind(|told| told["event"].is_null()).unwrap()["snapshot"];
    assert_eq!(snapshot["workspace"]["entryAgent"], "worker", "{snapshot}");
    assert_eq!(home.ask("main", "echo two"), "two");
    let all = wait_for(&watch, "turn.committed", 2);
    check_cursors(&all);
    let commits = all
        .iter()
        .filter(|told| told["event"]["type"] == "turn.committed");
    let commits: Vec<&Value> = commits.map(|told| &told["event"]["turnId"]).collect();
    assert_ne!(commits[0], commits[1]);

    home.gdn(&["stop"]).exits(0);
    let ran = watch.wait().exits(0);
    let last = ran.stdout.lines().last().unwrap();
    assert!(last.contains("workspace.stopped"), "{last}");
    plain.wait().exits(0).prints(&[
        "main",
        "created, of agent worker",
        "turn started, for event",
        "turn completed, for event",
        how,
    ]);
    daemon.stop();
}
