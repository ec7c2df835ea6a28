//! A person ends a running turn (`STEER-1`), or a queued event (`STEER-2`).

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::processes::Signal;
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, processes, wait_until};
use serde_json::Value;

use crate::conversation::{check, shape, text};

/// Number of turns that are canceled at a random moment; the long form is 500.
const ROUNDS_VAR: &str = "GOONDAN_TEST_CANCEL_ROUNDS";
const ROUNDS: u64 = 12;

/// Maximum time until a turn of the random rounds is canceled, in milliseconds. A turn takes about
/// as long.
const MOMENT_MS: u64 = 150;

fn runs_of(home: &Home, name: &str) -> usize {
    let path = home.notes().join(format!("{name}.runs"));
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn steer_1_canceled_turn_ends_tools_and_conversation_continues() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.gdn(&["cancel"])
        .exits(5)
        .tells(&["no turn is in progress"]);
    assert_eq!(home.ask("main", "echo before"), "before");
    let asking = home.start_gdn(&["send", "--event-id", "held", "hold x"]);
    wait_until("the tool runs", || runs_of(&home, "x") == 1);
    let agent = home.ps_agent("main").unwrap()["pid"].as_u64().unwrap();
    let behind = home.start_gdn(&["send", "--event-id", "behind", "echo behind"]);
    wait_until("an event waits behind it", || {
        let listed = home.gdn_json(&["event", "list"]);
        listed["events"].as_array().unwrap().len() == 2
    });

    let cancelled = home.gdn_json(&["cancel"]);
    assert_eq!(cancelled["eventId"], "held");
    assert!(cancelled["turnId"].is_string(), "{cancelled}");
    asking.wait().exits(7).tells(&["canceled by a person"]);
    behind.wait().exits(0).prints(&["behind"]);
    let agent = u32::try_from(agent).unwrap();
    wait_until("its process is gone", || !processes::is_alive(agent));
    // A command that is still running would continue now.
    home.write("notes/x.go", "");
    assert_eq!(home.ask("main", "echo after"), "after");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uauatuaua");
    let result = messages[4].to_string();
    assert!(result.contains("canceled by a person"), "{result}");
    assert_eq!(text(messages.last().unwrap()), "after");

    let turns = home.gdn_json(&["instance", "history", "--turns"]);
    let turns = turns["turns"].as_array().unwrap();
    let held = turns.iter().find(|turn| turn["eventId"] == "held").unwrap();
    assert_eq!(held["outcome"], "failed", "{held}");
    home.gdn(&["audit"]).exits(0).prints(&["eventCancelled"]);
    home.gdn(&["cancel", "held"]).exits(5);
    // The same event is the same turn.
    home.gdn(&["send", "--event-id", "held", "hold x"]).exits(7);
}

#[test]
fn steer_1_ctrl_c_in_chat_stops_waiting_then_cancels_the_turn() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let mut chat = home.command(&bin(GDN), &["chat"]);
    chat.stdin(Stdio::piped());
    let mut chat = RunningProgram::start(chat);
    chat.say("hold x");
    wait_until("the tool runs", || runs_of(&home, "x") == 1);
    processes::signal(chat.pid(), Signal::SIGINT);
    chat.wait_for_stderr("stopped waiting");
    let events = home.gdn_json(&["event", "list"]);
    assert_eq!(events["events"][0]["standing"], "processing", "{events}");
    processes::signal(chat.pid(), Signal::SIGINT);
    chat.wait_for_stdout("Canceled the turn of main");
    chat.say("echo after");
    // Part of the piped input was not answered.
    chat.wait().exits(130).prints(&["after"]);
    let messages = home.history("main");
    check(&messages);
    assert!(messages[2].to_string().contains("canceled by a person"));
}

#[test]
fn steer_2_waiting_event_is_canceled_without_a_turn() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--event-id", "held", "hold x"]);
    wait_until("the tool runs", || runs_of(&home, "x") == 1);
    let behind = home.start_gdn(&["send", "--event-id", "behind", "echo behind"]);
    wait_until("an event waits behind it", || {
        let listed = home.gdn_json(&["event", "list"]);
        listed["events"].as_array().unwrap().len() == 2
    });
    let cancelled = home.gdn_json(&["cancel", "behind"]);
    assert_eq!(cancelled["turnId"], Value::Null);
    behind.wait().exits(12);
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    home.write("notes/x.go", "");
    drop(asking.wait());
    wait_until("the turn is answered", || {
        home.gdn_json(&["event", "list"])["events"] == Value::Array(Vec::new())
    });
    let messages = home.history("main");
    check(&messages);
    assert!(!format!("{messages:?}").contains("behind"), "{messages:?}");
}

#[test]
fn steer_1_turn_canceled_at_any_moment_is_paired_and_next_runs() {
    let mut random = Random::announced();
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let mut ended = [0_u64; 2];
    for round in 0..rounds {
        let id = format!("e{round}");
        let asking = home.start_gdn(&["send", "--event-id", &id, &format!("work {round}")]);
        // The moment is random, so the test does not wait for any condition.
        random.let_pass(MOMENT_MS);
        let cancelled = home.gdn(&["cancel", &id]);
        assert!([0, 5].contains(&cancelled.code), "{cancelled:#?}");
        let answered = asking.wait();
        assert!([0, 7, 12].contains(&answered.code), "{answered:#?}");
        ended[usize::from(answered.code == 0)] += 1;
        let next = format!("next {round}");
        assert_eq!(home.ask("main", &format!("echo {next}")), next);
    }
    eprintln!(
        "{} turns were cancelled, {} were quicker",
        ended[0], ended[1]
    );
    let messages = home.history("main");
    check(&messages);
    wait_until("no command is left", || home.running("sleep").is_empty());
}
