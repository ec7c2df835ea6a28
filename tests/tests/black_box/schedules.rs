//! Schedules that agents create for their own conversations (the tool `schedule`).

use goondan_protocol::time::Timestamp;
use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, role, text};

/// [`LAB`] with an agent that schedules messages on order: `later TEXT` once, a day from now;
/// `soon TEXT` in a second; `often TEXT` every ten minutes. `schedules` lists its schedules, and
/// `forget ID` removes one.
fn project() -> String {
    let rules = r#"
      - when: {tool: schedule__once}
        say: "${result}"
      - when: {tool: schedule__cron}
        say: "${result}"
      - when: {tool: schedule__list}
        say: "${result}"
      - when: {tool: schedule__remove}
        say: "${result}"
      - when: {user: '^later (?P<text>.+)$'}
        call: [{tool: schedule__once, args: {inSeconds: 86400, input: "echo ${text}"}}]
      - when: {user: '^soon (?P<text>.+)$'}
        call: [{tool: schedule__once, args: {inSeconds: 1, input: "echo ${text}"}}]
      - when: {user: '^often (?P<text>.+)$'}
        call: [{tool: schedule__cron, args: {cron: "*/10 * * * *", input: "echo ${text}", catchUp: all}}]
      - when: {user: '^never$'}
        call: [{tool: schedule__cron, args: {cron: "0 0 30 2 *", input: "x"}}]
      - when: {user: '^schedules$'}
        call: [{tool: schedule__list, args: {}}]
      - when: {user: '^forget (?P<id>\S+)$'}
        call: [{tool: schedule__remove, args: {scheduleId: "${id}"}}]
"#;
    let rules = format!("    rules:{rules}");
    LAB.replacen("    rules:\n", &rules, 1).replacen(
        "  tools:\n",
        "  tools:\n    - {kind: Tool, name: schedule, package: \"@goondan/base\"}\n",
        1,
    )
}

/// The id in the result of `once` or `cron`.
fn id_of(answer: &str) -> String {
    let schedule: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{answer}"));
    schedule["scheduleId"].as_str().unwrap().to_owned()
}

fn listed(home: &Home) -> Vec<Value> {
    let page = home.gdn_json(&["schedule", "list"]);
    page["schedules"].as_array().unwrap().clone()
}

/// User messages with this text.
fn inputs(home: &Home, input: &str) -> Vec<Value> {
    let messages = home.history("main").into_iter();
    let inputs = messages.filter(|message| role(message) == "user" && text(message) == input);
    inputs.collect()
}

/// Changes the stored schedules of the conversation while no daemon runs.
fn edit(home: &Home, change: impl FnOnce(&mut Value)) {
    let path = home.workspace_dir().join("instances/main/schedules.json");
    let bytes = std::fs::read(&path).unwrap();
    let mut stored: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut stored);
    let place = path.strip_prefix(home.path()).unwrap();
    home.write(place.to_str().unwrap(), &stored.to_string());
}

/// The time, `ms` milliseconds earlier.
fn earlier(at: &Value, ms: i64) -> Value {
    let at: Timestamp = at.as_str().unwrap().parse().unwrap();
    json!(Timestamp::from_unix_millis(at.as_unix_millis() - ms))
}

#[test]
fn msg_13_schedules_run_once_over_kills() {
    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    home.ask("main", "later reminder");
    home.ask("main", "often report");
    drop(daemon.kill());
    // Both were due while nothing ran.
    edit(&home, |stored| {
        let schedules = stored["schedules"].as_array_mut().unwrap();
        assert_eq!(schedules.len(), 2);
        let at = &mut schedules[0]["time"]["at"];
        *at = earlier(at, DAY_MS + HOUR_MS);
        let settled = &mut schedules[1]["ledger"]["settledUntil"];
        *settled = earlier(settled, DAY_MS);
    });
    let ran = || {
        let path = home.workspace_dir().join("instances/main/schedules.json");
        let stored: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let schedules = stored["schedules"].as_array().unwrap();
        let ledger = schedules
            .iter()
            .find(|it| it["ledger"].is_object())
            .unwrap();
        ledger["ledger"]["cameAbout"].as_array().unwrap().len()
    };
    // Killed amid the work, alternately the daemon and the agent.
    for round in 0..4 {
        let daemon = Daemon::start(&home);
        wait_until("some more ran", || ran() > 2 * round);
        if round % 2 == 0 {
            for process in home.running(AGENT) {
                processes::signal(process.pid, Signal::SIGKILL);
            }
        }
        drop(daemon.kill());
    }
    let daemon = Daemon::start(&home);
    wait_until("all ran", || ran() >= 10 && listed(&home).len() == 1);
    wait_until("all are answered", || {
        inputs(&home, "echo report").len() == ran()
            && text(home.history("main").last().unwrap()) != "echo report"
    });
    // One more if the clock reached the next one meanwhile.
    assert!((10..=11).contains(&ran()), "{}", ran());
    let reminders = inputs(&home, "echo reminder");
    assert_eq!(reminders.len(), 1);
    let origin = &reminders[0]["metadata"]["schedule"];
    assert_eq!(origin["isLate"], true, "{:#}", reminders[0]);
    let mut instants: Vec<String> = inputs(&home, "echo report")
        .iter()
        .map(|message| message["metadata"]["schedule"]["scheduledAt"].to_string())
        .collect();
    let all = instants.len();
    instants.sort_unstable();
    instants.dedup();
    assert_eq!(instants.len(), all);
    check(&home.history("main"));
    let log = daemon.stop();
    assert!(
        log.saying("failed to submit scheduled input; retrying")
            .is_empty()
    );
}

#[test]
fn scheduled_input_starts_the_agent_and_has_its_trace() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    home.ask("main", "soon wake up");
    // No process runs when it is due, unless it already was.
    for process in home.running(AGENT) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
    wait_until("it is answered", || {
        let messages = home.history("main");
        text(messages.last().unwrap()) == "wake up"
    });
    let messages = home.history("main");
    let input = &messages[messages.len() - 2];
    assert_eq!(input["metadata"]["from"]["agent"], "worker", "{input:#}");
    let event_id = input["metadata"]["eventId"].as_str().unwrap();
    assert!(event_id.starts_with("schedule/s-"), "{event_id}");
    home.gdn(&["trace", event_id]).exits(0);
    assert!(listed(&home).is_empty(), "it has run");
    let log = daemon.stop();
    let submitted = log.saying("occurrence submitted");
    assert_eq!(submitted.len(), 1);
    assert_eq!(submitted[0]["eventId"], event_id);
}

#[test]
fn people_list_and_remove_schedules() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    home.gdn(&["schedule", "list"])
        .exits(0)
        .prints(&["No schedules."]);
    let refused = home.ask("main", "never");
    assert!(
        refused.contains("E_INVALID_REQUEST: invalid `cron`"),
        "{refused}"
    );
    let first = id_of(&home.ask("main", "later first"));
    let second = id_of(&home.ask("main", "later second"));
    let often = id_of(&home.ask("main", "often report"));
    let shown = home.gdn(&["schedule", "list"]).exits(0);
    shown
        .prints(&[
            "SCHEDULE",
            "CONVERSATION",
            "NEXT",
            &often,
            "*/10 * * * * UTC",
            "echo report",
        ])
        .tells(&["schedule remove ID"]);
    home.gdn(&["instance", "show", "main"])
        .exits(0)
        .prints(&["3 schedules"]);
    let of_main = home.gdn_json(&["schedule", "list", "--instance", "main"]);
    assert_eq!(of_main["schedules"].as_array().unwrap().len(), 3);
    home.gdn(&["schedule", "list", "--instance", "nobody"])
        .exits(5);

    // The agent's own view, and its own removal.
    let own = home.ask("main", "schedules");
    assert_eq!(own.lines().count(), 3, "{own}");
    let gone = home.ask("main", &format!("forget {often}"));
    assert!(gone.contains(&often), "{gone}");
    let unknown = home.ask("main", "forget s-none");
    assert!(unknown.contains("E_NO_SCHEDULE"), "{unknown}");

    home.gdn(&["schedule", "remove", &first])
        .exits(0)
        .prints(&["Removed", &first, "echo first"]);
    home.gdn(&["schedule", "remove", &first])
        .exits(5)
        .tells(&["does not exist", "gdn event schedule list"]);
    let audited = home.gdn_json(&["audit"]).to_string();
    assert!(audited.contains("instance.scheduleCreated"), "{audited}");
    assert!(audited.contains("instance.scheduleRemoved"), "{audited}");

    // The removed one sends nothing, the other one does.
    drop(daemon.kill());
    edit(&home, |stored| {
        let schedules = stored["schedules"].as_array_mut().unwrap();
        assert_eq!(schedules.len(), 1);
        let at = &mut schedules[0]["time"]["at"];
        *at = earlier(at, 86_400_000);
        assert_eq!(schedules[0]["scheduleId"], second.as_str());
    });
    let daemon = Daemon::start(&home);
    wait_until("it is answered", || {
        text(home.history("main").last().unwrap()) == "second"
    });
    assert!(inputs(&home, "echo first").is_empty());
    assert!(listed(&home).is_empty());

    // Deleted with its conversation.
    home.ask("main", "often again");
    assert_eq!(listed(&home).len(), 1);
    home.gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    assert!(listed(&home).is_empty());
    daemon.stop();
    let daemon = Daemon::start(&home);
    assert!(listed(&home).is_empty());
    daemon.stop();
}

#[test]
fn schedule_of_an_agent_that_is_gone_is_reported_and_waits() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    home.ask("main", "later reminder");
    daemon.stop();
    edit(&home, |stored| {
        let at = &mut stored["schedules"][0]["time"]["at"];
        *at = earlier(at, 86_400_000);
    });
    let without = project()
        .replace("name: worker", "name: clerk")
        .replace("Agent/worker", "Agent/clerk");
    home.write("project/goondan.yaml", &home.filled_in(&without));
    let daemon = Daemon::start(&home);
    daemon.log().wait_for("it is reported", |line| {
        line["message"] == "scheduled input is due but cannot be submitted; waiting"
            && line["problem"] == "agent `worker` is not in the configuration"
    });
    home.gdn(&["schedule", "list"])
        .exits(0)
        .tells(&["agent `worker` is not in the configuration"]);
    home.write("project/goondan.yaml", &home.filled_in(&project()));
    home.gdn(&["reload"]).exits(0);
    wait_until("it is answered", || {
        inputs(&home, "echo reminder").len() == 1
    });
    wait_until("it is over", || listed(&home).is_empty());
    daemon.stop();
}

#[test]
fn steer_2_injected_event_is_answered_once_over_daemon_kills() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    let inject = |text: &str, more: &[&str]| {
        let arguments = [&["event", "inject", text], more].concat();
        home.gdn_json(&arguments)["schedule"].clone()
    };
    // The conversation begins with it.
    let soon = ["--at", "2s", "--instance", "later", "--event-id", "e-1"];
    let first = inject("echo on time", &soon);
    assert_eq!(first["byPerson"], true, "{first:#}");
    let again = inject("echo on time", &soon);
    assert_eq!(again["scheduleId"], first["scheduleId"]);
    let held = inject("echo held", &["--at", "1h"]);
    let dropped = inject(
        "echo dropped",
        &["--cron", "* * * * *", "--time-zone", "Asia/Seoul"],
    );
    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    wait_until("it is answered", || {
        let messages = home.history("later");
        messages.last().is_some_and(|it| text(it) == "on time")
    });
    let messages = home.history("later");
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let event_id = messages[0]["metadata"]["eventId"].as_str().unwrap();
    assert!(event_id.starts_with("schedule/s-"), "{event_id}");

    let id = held["scheduleId"].as_str().unwrap();
    home.gdn(&["schedule", "move", id, "--at", "1s"])
        .exits(0)
        .prints(&["Moved", id]);
    let recurring = dropped["scheduleId"].as_str().unwrap();
    home.gdn(&["schedule", "move", recurring, "--at", "1s"])
        .exits(2)
        .tells(&["recurs"]);
    home.gdn(&["schedule", "remove", recurring]).exits(0);
    wait_until("the moved one is answered", || {
        inputs(&home, "echo held").len() == 1
    });
    wait_until("all are over", || listed(&home).is_empty());
    let log = home.gdn_json(&["audit"]).to_string();
    assert!(log.contains("instance.scheduleMoved"), "{log}");

    home.gdn(&["event", "inject", "x", "--at", "soon"])
        .exits(2)
        .tells(&["09:30"]);
    home.gdn(&["event", "inject", "x", "--at", "1h", "--agent", "nobody"])
        .exits(5)
        .tells(&["the agents are"]);
    daemon.stop();
}
