//! An event that repeatedly crashes its agent is parked, and people decide about it.

use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::Value;

use crate::conversation::{check, shape, text};

/// Kills the agent of `main` in three processes of its turn.
pub(crate) fn kill_three_times(home: &Home) {
    let mut last = Value::Null;
    for _ in 0..3 {
        let mut pid = Value::Null;
        wait_until("another process works on the turn", || {
            let Some(agent) = home.ps_agent("main") else {
                return false;
            };
            pid = agent["pid"].clone();
            !pid.is_null() && pid != last && !agent["turnId"].is_null()
        });
        let number = u32::try_from(pid.as_u64().unwrap()).unwrap();
        processes::signal(number, Signal::SIGKILL);
        last = pid;
    }
}

fn parked(home: &Home) -> Vec<Value> {
    let listed = home.gdn_json(&["event", "list", "--parked"]);
    listed["events"].as_array().unwrap().clone()
}

#[test]
fn msg_13_event_that_kills_its_agent_three_times_is_parked() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo before"), "before");
    let asking = home.start_gdn(&["send", "--event-id", "poison", "hold x"]);
    kill_three_times(&home);

    let parked_now = asking.wait().exits(14);
    parked_now.tells(&["poison", "gdn event retry poison", "gdn event drop poison"]);
    let output = home.gdn_json(&["instance", "history", "--turns", "--limit", "1"]);
    let turn = &output["turns"][0];
    assert_eq!(turn["eventId"], "poison");
    assert_eq!(turn["outcome"], "parked", "{turn}");
    // A process's report about its turn may be lost with it; the count that decides is durable.
    let reason = turn["reason"].as_str().unwrap();
    assert!(reason.starts_with("3 processes ended"), "{turn}");
    let events = parked(&home);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["eventId"], "poison");
    assert_eq!(events[0]["crashes"], 3);
    assert_eq!(events[0]["input"], "hold x");
    assert_eq!(home.ask("main", "echo after"), "after");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(
        shape(&messages),
        "uaua",
        "the parked turn left nothing behind"
    );

    // It persists after a kill of the daemon, and the same id does not start it again.
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    assert_eq!(parked(&home), events);
    home.gdn(&["send", "--event-id", "poison", "hold x"])
        .exits(14);

    home.write("notes/x.go", "");
    home.gdn(&["event", "retry", "poison"]).exits(0);
    wait_until("it is answered", || {
        shape(&home.history("main")).ends_with("uata")
    });
    let messages = home.history("main");
    check(&messages);
    assert_eq!(text(messages.last().unwrap()), "done x");
    assert_eq!(
        home.gdn_json(&["event", "list"])["events"],
        Value::Array(Vec::new())
    );
    home.gdn(&["event", "retry", "poison"]).exits(5);
}

#[test]
fn obs_6_parked_event_changes_exit_codes_until_a_decision() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["status"]).exits(0);
    let asking = home.start_gdn(&["send", "--event-id", "poison", "hold x"]);
    kill_three_times(&home);
    asking.wait().exits(14);
    let check_told = || {
        for command in ["status", "ps"] {
            let output = home.gdn(&[command]).exits(16);
            output.tells(&["1 event is parked", "event list --parked"]);
        }
        let status = home.gdn_json(&["status"]);
        assert_eq!(status["workspaces"][0]["parkedEvents"], 1);
    };
    check_told();
    // The next daemon knows it before the conversation is opened.
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    wait_until("the workspace is there", || {
        home.gdn_json(&["status"])["workspaces"][0].is_object()
    });
    check_told();
    home.write("notes/x.go", "");
    home.gdn(&["event", "retry", "poison"]).exits(0);
    wait_until("it is answered", || home.history("main").len() == 4);
    home.gdn(&["status"]).exits(0);
    home.gdn(&["ps"]).exits(0);
}

#[test]
fn a_parked_event_that_is_dropped_is_never_answered() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--event-id", "poison", "hold x"]);
    kill_three_times(&home);
    asking.wait().exits(14);

    // Without a terminal, no confirmation is possible.
    home.gdn(&["event", "drop", "poison"]).exits(2);
    assert_eq!(parked(&home).len(), 1);
    home.gdn(&["event", "drop", "poison", "--yes"]).exits(0);
    assert!(parked(&home).is_empty());
    home.gdn(&["status"]).exits(0);
    assert_eq!(home.ask("main", "echo after"), "after");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
}

/// An agent without tools, in a swarm that does not confine programs: the agent confines itself
/// anyway.
const TALKER: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: hello}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: talker}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [{kind: Tool, name: file-system, package: "@goondan/base"}]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: all}
spec: {entryAgent: Agent/talker, policy: {sandbox: {require: off}}}
"#;

#[test]
fn sup_4_agent_that_cannot_start_reports_why_and_parks_events() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    if !needs::sandbox("landlock") {
        return;
    }
    let home = Home::new(TALKER);
    let daemon = Daemon::serving(&home);
    // An agent that starts no program, where programs would be unconfined.
    assert_eq!(home.ask("main", "hi"), "hello");

    // Its directory exists but cannot be opened; root has dropped its capability to bypass that.
    let project = home.project();
    set_permissions(&project, Permissions::from_mode(0o000)).unwrap();
    for event in ["first", "second"] {
        let parked = home.gdn(&["send", "--instance", "other", "--event-id", event, "hi"]);
        parked.exits(14).tells(&[
            "cannot start",
            "failed to open the project root",
            &format!("gdn event retry {event}"),
        ]);
    }
    let parked_now = parked(&home);
    assert_eq!(parked_now.len(), 2, "{parked_now:#?}");

    // With the cause fixed, a person retries them.
    set_permissions(&project, Permissions::from_mode(0o755)).unwrap();
    for event in ["first", "second"] {
        home.gdn(&["event", "retry", event]).exits(0);
    }
    wait_until("both are answered", || home.history("other").len() == 4);
    assert_eq!(home.ask("other", "hi"), "hello");
    daemon.stop();
}
