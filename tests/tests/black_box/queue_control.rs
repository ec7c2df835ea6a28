//! A person reorders the queued events (`STEER-2`).

use goondan_tests::home::RunningProgram;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::check;

/// Open events of the project in order, with their states.
fn listed(home: &Home) -> Vec<(String, String)> {
    let listed = home.gdn_json(&["event", "list"]);
    let events = listed["events"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    events
        .map(|event| (text(&event["eventId"]), text(&event["standing"])))
        .collect()
}

fn ids(home: &Home) -> Vec<String> {
    listed(home).into_iter().map(|(id, _)| id).collect()
}

/// Starts a held turn, and queues events behind it; the clients wait for the answers.
fn behind_a_held_turn(home: &Home, waiting: &[&str]) -> Vec<RunningProgram> {
    let mut sent = vec![home.start_gdn(&["send", "--event-id", "held", "hold x"])];
    let runs = home.notes().join("x.runs");
    wait_until("the tool runs", || runs.exists());
    for (behind, id) in waiting.iter().enumerate() {
        let text = format!("echo {id}");
        sent.push(home.start_gdn(&["send", "--event-id", id, &text]));
        wait_until("it waits", || listed(home).len() == behind + 2);
    }
    sent
}

/// The texts of the user's messages, in their order.
fn asked(home: &Home) -> Vec<String> {
    let messages = home.history("main");
    check(&messages);
    let of_user = messages
        .iter()
        .filter(|message| message["data"]["role"] == "user");
    of_user.map(crate::conversation::text).collect()
}

#[test]
fn steer_2_events_run_in_the_order_that_a_person_set() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let sent = behind_a_held_turn(&home, &["one", "two", "three", "four"]);
    home.gdn(&["event", "move", "four", "--first"])
        .exits(0)
        .prints(&["Event four is next"]);
    home.gdn(&["event", "move", "one", "--last"]).exits(0);
    home.gdn(&["event", "move", "three", "--before", "two"])
        .exits(0);
    let order = ["held", "four", "three", "two", "one"];
    assert_eq!(ids(&home), order);
    home.gdn(&["event", "move", "held", "--last"])
        .exits(10)
        .tells(&["the turn of event `held` has", "gdn conversation cancel"]);
    home.gdn(&["event", "move", "two", "--before", "nobody"])
        .exits(5)
        .tells(&["event `nobody` is not waiting"]);
    home.gdn(&["event", "move", "two"]).exits(2);
    home.gdn(&["audit"]).exits(0).prints(&["eventMoved"]);

    drop(daemon.kill());
    drop(sent);
    let _daemon = Daemon::start(&home);
    wait_until("it is known again", || ids(&home) == order);
    home.write("notes/x.go", "");
    wait_until("all are answered", || ids(&home).is_empty());
    let texts = ["hold x", "echo four", "echo three", "echo two", "echo one"];
    assert_eq!(asked(&home), texts);
    home.gdn(&["verify"]).exits(0);
}

#[test]
fn steer_2_paused_event_waits_across_a_kill_while_others_run() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let mut sent = behind_a_held_turn(&home, &["one", "two", "three"]);
    home.gdn(&["event", "pause", "held"])
        .exits(10)
        .tells(&["the turn of event `held` has"]);
    home.gdn(&["event", "pause", "one", "two"])
        .exits(0)
        .prints(&["Event one is paused", "Event two is paused"]);
    home.gdn(&["event", "pause", "one"]).exits(0);
    home.write("notes/x.go", "");
    sent.pop().unwrap().wait().exits(0).prints(&["three"]);
    let paused = [("one", "paused"), ("two", "paused")];
    let paused = paused.map(|(id, how)| (id.to_owned(), how.to_owned()));
    assert_eq!(listed(&home), paused);
    home.gdn(&["status"])
        .exits(0)
        .tells(&["2 events are paused", "event list"]);

    drop(daemon.kill());
    drop(sent);
    let _daemon = Daemon::start(&home);
    wait_until("they are known again", || listed(&home) == paused);
    assert_eq!(home.ask("main", "echo four"), "four");
    home.gdn(&["event", "resume", "two"])
        .exits(0)
        .prints(&["Event two is queued again"]);
    wait_until("it is answered", || ids(&home) == ["one"]);
    home.gdn(&["event", "resume", "--all"]).exits(0);
    wait_until("all are answered", || ids(&home).is_empty());
    let texts = ["hold x", "echo three", "echo four", "echo two", "echo one"];
    assert_eq!(asked(&home), texts);
    home.gdn(&["event", "resume", "--all"])
        .exits(0)
        .prints(&["No paused events."]);
}

#[test]
fn steer_2_waiting_event_is_dropped_but_a_started_one_is_not() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let mut sent = behind_a_held_turn(&home, &["one", "two"]);
    home.gdn(&["event", "pause", "--all", "--instance", "main"])
        .exits(0);
    home.gdn(&["event", "drop", "one", "--yes"])
        .exits(0)
        .prints(&["Dropped event one"]);
    home.gdn(&["event", "drop", "held", "--yes"])
        .exits(10)
        .tells(&["the turn of event `held` has", "gdn conversation cancel"]);
    home.gdn(&["event", "drop", "one", "--yes"]).exits(5);
    home.gdn(&["event", "resume", "two"]).exits(0);
    home.write("notes/x.go", "");
    sent.pop().unwrap().wait().exits(0).prints(&["two"]);
    sent.pop().unwrap().wait().exits(12);
    assert_eq!(asked(&home), ["hold x", "echo two"]);
}
