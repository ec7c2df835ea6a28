//! A tested project is forgotten: no later daemon starts it, and it loses access to secrets.

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

/// A home whose project has two conversations and access to a secret; no daemon runs.
fn tried() -> Home {
    let home = Home::new(LAB);
    let project = home.project();
    let args = [
        "secret",
        "set",
        "hook",
        "hmac",
        "--for",
        project.to_str().unwrap(),
    ];
    let mut command = home.command(&bin(GDN), &args);
    command.stdin(Stdio::piped());
    let mut setting = RunningProgram::start(command);
    setting.say("a value");
    setting.wait().exits(0);
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "echo one"), "one");
    assert_eq!(home.ask("other", "echo two"), "two");
    home.gdn(&["shutdown"]).exits(0);
    home
}

fn conversations(home: &Home) -> usize {
    let listed = home.gdn_json(&["instance", "list"]);
    listed["instances"].as_array().unwrap().len()
}

#[test]
fn forgotten_project_is_never_restarted_but_keeps_conversations() {
    let home = tried();
    // Without a daemon: one is started for it.
    let output = home.gdn_json(&["forget"]);
    assert_eq!(output["stopped"], true);
    assert_eq!(output["deniedSecrets"], json!(["hook"]));
    assert_eq!(output["deletedConversations"], 0);
    let nothing_is_left = || {
        assert_eq!(home.gdn_json(&["status"])["workspaces"], json!([]));
        assert_eq!(home.gdn_json(&["secret", "list"])["consents"], json!([]));
    };
    nothing_is_left();
    home.gdn(&["shutdown"]).exits(0);
    let daemon = Daemon::start(&home);
    nothing_is_left();
    let id = home.workspace_dir();
    let id = id.file_name().unwrap().to_str().unwrap();
    home.gdn(&["audit", "--all"])
        .exits(0)
        .prints(&["secret.denied", id]);

    // Again, though it does not run; and a workspace that never existed.
    let again = home.gdn_json(&["forget", "--workspace", id]);
    assert_eq!(
        (&again["stopped"], &again["workspaceIds"]),
        (&json!(false), &json!([id]))
    );
    home.write("elsewhere/goondan.yaml", LAB);
    let elsewhere = home.path().join("elsewhere");
    home.gdn(&["forget", "--project", elsewhere.to_str().unwrap()])
        .exits(5)
        .tells(&["is not running"]);

    home.gdn(&["run"]).exits(0);
    assert_eq!(conversations(&home), 2);
    home.gdn(&["audit"]).exits(0).prints(&["workspace.stopped"]);
    // While it runs; the daemon continues.
    home.gdn(&["forget"])
        .exits(0)
        .tells(&["Its conversations are kept"]);
    nothing_is_left();
    drop(daemon.stop());
}

#[test]
fn conversations_are_deleted_only_after_confirmation() {
    let home = tried();
    let daemon = Daemon::start(&home);
    let question = "delete its 2 conversations with all their messages?";
    home.gdn(&["forget", "--delete"])
        .exits(2)
        .tells(&[question, "gdn workspace forget --delete --yes"]);
    let asked = |answer: &str| {
        let command = home.command(&bin(GDN), &["forget", "--delete"]);
        let mut person = Terminal::start(command, 80);
        person.wait_for(question);
        person.say(answer);
        person.ends()
    };
    let (code, shown) = asked("n");
    assert_eq!(code, Some(12), "{shown}");
    assert_eq!(conversations(&home), 2);
    let (code, shown) = asked("y");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Deleted 2 conversations"), "{shown}");

    assert_eq!(home.gdn_json(&["status"])["workspaces"], json!([]));
    home.gdn(&["forget", "--delete", "--yes"])
        .exits(5)
        .tells(&["run it first"]);
    home.gdn(&["run"]).exits(0);
    assert_eq!(conversations(&home), 0);
    let output: Value = home.gdn_json(&["forget", "--delete", "--yes"]);
    assert_eq!(output["deletedConversations"], 0);
    // Its audit log is kept, and is included with all others.
    let audit = home.gdn_json(&["audit", "--all"]);
    let records = audit["records"].as_array().unwrap().iter();
    let events = records.filter_map(|record| record["record"]["event"].as_str());
    assert_eq!(
        events.filter(|event| *event == "instance.deleted").count(),
        2
    );
    drop(daemon.stop());
}
