//! A conversation and its files are rolled back to a joint checkpoint together (`CKPT-6`).

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, text};

/// Number of kills at a random moment of a rewind; the long form is 200.
const ROUNDS_VAR: &str = "GOONDAN_TEST_REWIND_ROUNDS";
const ROUNDS: u64 = 4;

/// Maximum time from a rewind request to the kill of the daemon, in milliseconds. A rewind takes
/// about as long.
const MOMENT_MS: u64 = 200;

/// An agent that keeps a diary in its work directory.
fn diarist() -> Home {
    let project = Commands::new()
        .run(
            r"^note (?P<word>\w+)$",
            "echo ${word} >> diary.txt; echo noted ${word}",
        )
        .run(
            "^hold$",
            "echo held >> diary.txt; touch NOTES/held; until [ -e NOTES/go ]; do sleep 0.02; done",
        )
        .agent("diarist", &[BASH], "{write: [NOTES]}");
    Home::new(&project.yaml())
}

fn diary(home: &Home) -> Vec<String> {
    let path = home.work_dir("main").join("diary.txt");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Notes according to the conversation.
fn noted(messages: &[Value]) -> Vec<String> {
    let said = messages
        .iter()
        .filter(|message| message["data"]["role"] == "user");
    let said = said.map(|message| text(message).trim_start_matches("note ").to_owned());
    said.collect()
}

fn note(home: &Home, word: &str) {
    home.gdn(&["send", "--event-id", word, &format!("note {word}")])
        .exits(0)
        .prints(&[&format!("noted {word}")]);
}

fn checkpoint(home: &Home) -> String {
    let made = home.gdn_json(&["instance", "checkpoint"]);
    made["checkpointId"].as_str().unwrap().to_owned()
}

#[test]
fn ckpt_6_code_and_conversation_rewind_together_and_continue() {
    let home = diarist();
    let daemon = Daemon::serving(&home);
    home.gdn(&["rewind", "--yes"]).exits(5);
    note(&home, "one");
    let before = home.history("main");
    let early = checkpoint(&home);
    for word in ["two", "three"] {
        note(&home, word);
    }
    let later = home.history("main");
    let spent = home.gdn_json(&["usage"])["total"]["replies"].clone();

    let would = home.gdn_json(&["rewind", "--dry-run"]);
    assert_eq!(would["messagesRemoved"], 8, "{would}");
    assert_eq!(would["changed"][0], "work/diary.txt");
    assert_eq!(home.history("main"), later, "a rehearsal changes nothing");
    home.gdn(&["rewind"]).exits(2).tells(&["--yes"]);
    let rewound = home.gdn_json(&["rewind", "--to", &early, "--yes"]);
    let back = rewound["preRewind"].as_str().unwrap();
    assert_eq!(home.history("main"), before);
    assert_eq!(diary(&home), ["one"]);

    // Answered events are not answered again, even after a restart of the daemon.
    note(&home, "two");
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    note(&home, "three");
    assert_eq!(diary(&home), ["one"]);
    assert_eq!(home.history("main"), before);
    let stays = home.gdn_json(&["usage"])["total"]["replies"].clone();
    assert_eq!(stays, spent, "what was spent stays spent");

    note(&home, "four");
    assert_eq!(diary(&home), ["one", "four"]);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(noted(&messages), ["one", "four"]);
    home.gdn(&["instance", "history"])
        .exits(0)
        .prints(&["(rewound to checkpoint_001"]);
    home.gdn(&["instance", "show"])
        .exits(0)
        .prints(&["Rewound"]);
    home.gdn(&["audit"])
        .exits(0)
        .prints(&["instance.checkpointed", "instance.rewound"]);
    home.gdn(&["verify"]).exits(0);

    home.gdn(&["rewind", "--to", back, "--yes"]).exits(0);
    assert_eq!(home.history("main"), later);
    assert_eq!(diary(&home), ["one", "two", "three"]);
    let listed = home.gdn_json(&["instance", "checkpoints"]);
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 3);
    home.gdn(&["rewind", "--to", "checkpoint_099", "--yes"])
        .exits(5)
        .tells(&["gdn conversation checkpoints"]);
    home.gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    home.gdn(&["instance", "checkpoints"]).exits(5);
}

#[test]
fn ckpt_6_rewind_ends_the_turn_first_and_queued_events_follow() {
    let home = diarist();
    let _daemon = Daemon::serving(&home);
    note(&home, "one");
    checkpoint(&home);
    let asking = home.start_gdn(&["send", "--event-id", "held", "hold"]);
    wait_until("the tool runs", || home.notes().join("held").exists());
    let behind = home.start_gdn(&["send", "--event-id", "behind", "note behind"]);
    wait_until("an event waits behind it", || {
        let listed = home.gdn_json(&["event", "list"]);
        listed["events"].as_array().unwrap().len() == 2
    });
    for refused in [
        vec!["rewind", "--yes"],
        vec!["rewind", "--dry-run"],
        vec!["instance", "checkpoint"],
    ] {
        home.gdn(&refused)
            .exits(10)
            .tells(&["gdn conversation cancel"]);
    }
    home.gdn(&["rewind", "--cancel", "--yes"]).exits(0);
    asking.wait().exits(7).tells(&["canceled by a person"]);
    behind.wait().exits(0).prints(&["noted behind"]);
    assert_eq!(diary(&home), ["one", "behind"]);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(noted(&messages), ["one", "behind"]);
    home.gdn(&["send", "--event-id", "held", "hold"]).exits(7);
}

#[test]
fn ckpt_6_only_a_person_rewinds() {
    // A confined process cannot connect to the daemon.
    let project = Commands::new()
        .run(
            "^run (?P<command>.*)$",
            "${command} 2>&1; echo ended with $?",
        )
        .agent("prompted", &[BASH], "{require: off}");
    let home = Home::new(&project.yaml());
    let _daemon = Daemon::serving(&home);
    let gdn = format!(
        "{} --state-root {} --project {}",
        bin(GDN).display(),
        home.state_root().display(),
        home.project().display()
    );
    for command in ["rewind other --yes", "instance checkpoint other"] {
        let reply = home.ask("main", &format!("run {gdn} {command}"));
        assert!(
            reply.contains("requires a person") && reply.contains("ended with 17"),
            "{reply}"
        );
    }
}

#[test]
fn ckpt_6_daemon_killed_during_a_rewind_rewinds_both_or_neither() {
    let mut random = Random::announced();
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let home = diarist();
    let mut daemon = Daemon::serving(&home);
    let mut ended = [0_u64; 2];
    for round in 0..rounds {
        let (before, later) = (format!("a{round}"), format!("b{round}"));
        note(&home, &before);
        let early = checkpoint(&home);
        note(&home, &later);
        let rewinding = home.start_gdn(&["rewind", "--to", &early, "--yes"]);
        random.let_pass(MOMENT_MS);
        drop(daemon.kill());
        drop(rewinding.wait());
        daemon = Daemon::start(&home);
        let after = format!("c{round}");
        note(&home, &after);
        let messages = home.history("main");
        check(&messages);
        let lines = diary(&home);
        assert_eq!(noted(&messages), lines, "round {round}");
        let is_rewound = !lines.contains(&later);
        ended[usize::from(is_rewound)] += 1;
        assert!(lines.ends_with(&[if is_rewound { before } else { later.clone() }, after]));
        note(&home, &later);
        assert_eq!(diary(&home), lines, "nothing is answered twice");
    }
    eprintln!("{} rewinds had begun, {} had not", ended[1], ended[0]);
    home.gdn(&["verify"]).exits(0);
}
