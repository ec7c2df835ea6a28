//! Agents that restart their own process (the tool `self-restart`).

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, result_text, shape, text};

/// [`LAB`] with an agent that restarts itself on order, with the text of the order as the reason;
/// `slowly` first waits until the note `go` exists.
fn project() -> String {
    let rules = r#"
      - when: {user: '^restart (?P<why>\w+)', step: 1}
        call:
          - {tool: self-restart__request, args: {reason: "it is ${why}"}}
      - when: {user: ' slowly$', step: 2}
        call:
          - {tool: bash__exec, args: {command: "echo waits >> NOTES/waits; until [ -e NOTES/go ]; do sleep 0.02; done"}}
      - when: {user: '^restart', step: 2, result: '(?P<told>(?s).*)'}
        say: "${told}"
      - when: {user: '^restart'}
        say: restarting
"#;
    let rules = format!("    rules:{rules}");
    LAB.replacen("    rules:\n", &rules, 1).replacen(
        "  tools:\n",
        "  tools:\n    - {kind: Tool, name: self-restart, package: \"@goondan/base\"}\n",
        1,
    )
}

fn pid(home: &Home) -> u64 {
    let process = home.ps_agent("main").expect("the agent is known");
    process["pid"].as_u64().expect("its process runs")
}

fn wait_until_it_told(home: &Home, reason: &str) {
    wait_until("the reason is shown", || {
        let process = home.ps_agent("main").unwrap_or_default();
        process["detail"] == format!("restarted itself: {reason}")
    });
}

#[test]
fn agent_process_restarts_after_its_turn_and_reports_the_reason() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo one"), "one");
    let before = pid(&home);
    let answer = home.ask("main", "restart tired");
    assert!(
        answer.starts_with("the process restarts after this turn"),
        "{answer}"
    );
    wait_until_it_told(&home, "it is tired");
    home.gdn(&["ps"]).exits(0).prints(&["it is tired"]);
    assert_eq!(home.ask("main", "echo two"), "two");
    assert_ne!(pid(&home), before, "another process answers");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uauataua");

    let audited = home.gdn_json(&["audit"]);
    let records = audited["records"].as_array().unwrap();
    let restarted = records
        .iter()
        .map(|line| &line["record"])
        .find(|record| record["event"] == "instance.restarted");
    let restarted = restarted.expect("it is in the audit log");
    assert_eq!(
        (&restarted["by"], &restarted["reason"]),
        (&"agent".into(), &"it is tired".into())
    );
    let log = daemon.stop();
    let said = log.saying("process restart requested by its agent");
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["reason"], "it is tired");
    assert!(log.saying("child crashed").is_empty());
}

#[test]
fn event_waiting_for_a_restarting_agent_is_answered_once() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "restart slow slowly"])
        .exits(0);
    wait_until("it has asked and waits", || home.note("waits") == "waits\n");
    for n in 0..5 {
        home.gdn(&["send", "--no-wait", &format!("echo {n}")])
            .exits(0);
    }
    let before = pid(&home);
    // The next turns use the new configuration; this turn does not.
    let edited = project().replace("say: \"${text}\"", "say: \"now ${text}\"");
    home.write("project/goondan.yaml", &home.filled_in(&edited));
    home.gdn(&["reload"]).exits(0);
    assert_eq!(pid(&home), before, "the turn goes on in its process");
    // A crash between the call and the end of the turn still counts as one restart.
    let old = home.running(AGENT);
    assert_eq!(old.len(), 1);
    processes::signal(old[0].pid, Signal::SIGKILL);
    home.write("notes/go", "");
    wait_until("all is answered", || {
        let messages = home.history("main");
        messages.len() == 6 + 10
    });
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatata".to_owned() + &"ua".repeat(5));
    assert!(result_text(&messages[2]).starts_with("the process restarts"));
    for (n, answer) in messages[6..].chunks(2).enumerate() {
        assert_eq!(text(&answer[1]), format!("now {n}"));
    }
    daemon.stop();
}

#[test]
fn agent_that_restarts_itself_repeatedly_is_stopped() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    for n in 0..5 {
        let answer = home.ask("main", &format!("restart n{n}"));
        assert!(answer.starts_with("the process restarts"), "{answer}");
        wait_until_it_told(&home, &format!("it is n{n}"));
    }
    let refused = home.ask("main", "restart again");
    assert!(
        refused
            .starts_with("E_TOO_MANY_RESTARTS: this agent restarted itself 5 times within 600 s"),
        "{refused}"
    );
    let process = pid(&home);
    assert_eq!(home.ask("main", "echo on"), "on");
    assert_eq!(pid(&home), process, "it was not restarted");
    // Another conversation has a separate count.
    let other = home.ask("other", "restart me");
    assert!(other.starts_with("the process restarts"), "{other}");
    let restarted = daemon
        .stop()
        .saying("process restart requested by its agent");
    let reasons: Vec<&Value> = restarted.iter().map(|line| &line["reason"]).collect();
    assert_eq!(reasons.len(), 6, "{reasons:?}");
}
