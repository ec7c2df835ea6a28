//! Consent of a person for a project to use a secret, on a terminal (`SEC-6`).

use std::fs;
use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

const CANCELLED: i32 = 12;
const QUESTION: &str = "requests Secret/hook, for Connection/hook. Allow it? [y/N]";

/// A home whose project uses an existing secret without consent.
fn wanting() -> Home {
    let secret = "    path: /hook\n  secrets:\n    hmac: {valueFrom: {secretRef: {ref: Secret/hook, key: hmac}}}\n";
    let home = Home::new(&LAB.replace("    path: /hook\n", secret));
    let mut command = home.command(&bin(GDN), &["secret", "set", "hook", "hmac"]);
    command.stdin(Stdio::piped());
    let mut setting = RunningProgram::start(command);
    setting.say("the-value-that-nobody-sees");
    setting.wait().exits(0);
    home.gdn(&["shutdown"]).exits(0);
    home
}

fn on_terminal(home: &Home, args: &[&str]) -> Terminal {
    Terminal::start(home.command(&bin(GDN), args), 200)
}

fn consents(home: &Home) -> usize {
    let listed = home.gdn_json(&["secret", "list"]);
    listed["consents"].as_array().unwrap().len()
}

fn allow_command(home: &Home) -> String {
    let root = home.project();
    format!("gdn secret allow hook --project {}", root.display())
}

#[test]
fn sec_6_run_asks_a_person_and_takes_yes_and_no() {
    let home = wanting();
    let daemon = Daemon::start(&home);
    for no in ["n", "", "what?"] {
        let mut person = on_terminal(&home, &["run"]);
        person.wait_for(QUESTION);
        person.say(no);
        let (code, shown) = person.ends();
        assert_eq!(code, Some(CANCELLED), "{shown}");
        assert!(shown.contains(&allow_command(&home)), "{shown}");
        assert!(!shown.contains("the-value-that"), "{shown}");
    }
    assert_eq!(consents(&home), 0);
    assert_eq!(home.gdn_json(&["status"])["workspaces"], json!([]));

    let mut person = on_terminal(&home, &["run"]);
    person.wait_for(QUESTION);
    person.say("yes");
    let (code, shown) = person.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(consents(&home), 1);
    // It is asked once.
    let (code, shown) = on_terminal(&home, &["run"]).ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Allow it?"), "{shown}");
    drop(daemon.stop());
}

#[test]
fn sec_6_foreground_run_asks_for_consent_or_prints_the_command() {
    let home = wanting();
    home.gdn(&["run", "--foreground"]).exits(6).tells(&[
        "the project is not allowed to use Secret/hook",
        &allow_command(&home),
    ]);
    let mut person = on_terminal(&home, &["run", "--foreground"]);
    person.wait_for(QUESTION);
    person.say("n");
    assert_eq!(person.ends().0, Some(CANCELLED));
    assert!(home.running(ORCHESTRATOR).is_empty());

    let mut person = on_terminal(&home, &["run", "--foreground"]);
    person.wait_for(QUESTION);
    person.say("y");
    person.wait_for("\"message\":\"workspace opened\"");
    assert_eq!(consents(&home), 1);
    assert_eq!(home.gdn_json(&["status"])["pid"], person.pid());
    home.gdn(&["shutdown"]).exits(0);
    assert_eq!(person.ends().0, Some(0));
}

/// State of a daemon from before consents: a registered workspace, a secret, and no consents.
#[test]
fn sec_6_older_state_root_waits_for_consent_of_a_person() {
    let home = wanting();
    home.gdn(&["secret", "allow", "hook"]).exits(0);
    home.gdn(&["run"]).exits(0);
    home.gdn(&["shutdown"]).exits(0);
    fs::remove_file(home.state_root().join("system/consents.json")).unwrap();

    let daemon = Daemon::start(&home);
    let status = home.gdn_json(&["status"]);
    let problem = status["workspaces"][0]["problem"].to_string();
    assert!(problem.contains("E_CONFIG_SECRET_NOT_ALLOWED"), "{problem}");
    assert!(problem.contains("gdn secret allow hook"), "{problem}");
    home.gdn(&["run"]).exits(6).tells(&[&allow_command(&home)]);

    let mut person = on_terminal(&home, &["run"]);
    person.wait_for(QUESTION);
    person.say("y");
    assert_eq!(person.ends().0, Some(0));
    let status = home.gdn_json(&["status"]);
    assert_eq!(status["workspaces"][0]["problem"], Value::Null);
    drop(daemon.stop());
}

#[test]
fn sec_6_readable_memory_is_warned_about_in_log_and_status() {
    let home = Home::new(LAB);
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.env("GOONDAN_ALLOW_DEBUGGER", "1");
    let daemon = Daemon::start_command(&home, command);
    daemon.log().wait_for("it is warned of", |line| {
        line["level"] == "warn" && line["variable"] == "GOONDAN_ALLOW_DEBUGGER"
    });
    let status = home.gdn(&["status"]);
    status.prints(&["Memory", "GOONDAN_ALLOW_DEBUGGER is set"]);
    assert_eq!(home.gdn_json(&["status"])["memoryOpen"], true);
    drop(daemon.stop());
}
