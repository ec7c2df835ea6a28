//! Questions of MCP servers to a person: asked under a tool call, answered with `gdn inbox question`.

use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR, CommandOutput, GDN, RunningProgram};
use goondan_tests::log::message;
use goondan_tests::mcp::ORDER;
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::{Value, json};

use crate::mcp::{TOKEN, last_result, over_stdio_with};

fn waiting(home: &Home) -> Vec<Value> {
    let listed = home.gdn_json(&["question", "list"]);
    listed["questions"].as_array().unwrap().clone()
}

/// Waits for the only pending question.
fn the_question(home: &Home) -> String {
    let found = wait_for("a question waits", || waiting(home).pop());
    found["questionId"].as_str().unwrap().to_owned()
}

/// Makes a conversation's agent call a tool that asks, and returns the client that waits for the
/// turn, and the question.
fn asked(home: &Home, key: &str, tool: &str) -> (RunningProgram, String) {
    let call = format!("call {tool}");
    let sending = home.start_gdn(&["send", "--instance", key, &call]);
    (sending, the_question(home))
}

/// Checks that a command has printed this.
#[track_caller]
fn prints(ran: &CommandOutput, texts: &[&str]) {
    for text in texts {
        assert!(ran.stdout.contains(text), "no {text:?} in {ran:?}");
    }
}

/// Waits for a log line in which the server reports the answer it received.
fn heard(daemon: &Daemon, words: &str) {
    daemon.log().wait_for("the server hears of it", |line| {
        message(line).starts_with("heard: ") && message(line).contains(words)
    });
}

#[test]
fn user_answer_reaches_the_server_and_waiting_is_visible_to_all() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let daemon = Daemon::serving(&home);
    home.ask("a", "call capabilities");
    let told: Value = serde_json::from_str(&last_result(&home, "a")).unwrap();
    assert!(told["elicitation"]["form"].is_object() && told["elicitation"]["url"].is_null());

    let (sending, id) = asked(&home, "a", "order");
    sending.wait_for_stderr(&format!(
        "waits for an answer: gdn inbox question answer {id}"
    ));
    sending.wait_for_stderr(&format!("question show {id}"));
    let listed = waiting(&home).remove(0);
    assert_eq!(
        listed["source"],
        json!({"kind": "mcp", "connection": "server", "tool": "order"})
    );
    assert_eq!(
        (&listed["instanceKey"], &listed["agentName"]),
        (&json!("a"), &json!("clerk"))
    );
    assert!(
        listed["toolCallId"].is_string() && listed["turnId"].is_string(),
        "{listed}"
    );
    prints(
        &home.gdn(&["question", "list"]).exits(0),
        &[&id, "server", ORDER],
    );
    // The server's text is shown, but cannot control the terminal or reveal a secret.
    let shown = home.gdn(&["question", "show", &id]).exits(0);
    assert!(!shown.stdout.contains('\u{1b}') && !shown.stdout.contains(TOKEN));
    prints(
        &shown,
        &[
            "│ Which size",
            "\\u{1b}[2J",
            "one of: s (Small), m (Medium)",
            "Wrap it",
        ],
    );
    shown.tells(&[
        &format!("question answer {id} --set 'size=s' --set 'count=1'"),
        "do not enter passwords",
    ]);
    let form = home.gdn_json(&["question", "show", &id])["form"].clone();
    assert_eq!(
        form[1],
        json!({"name": "count", "required": true, "default": 1,
        "takes": {"type": "integer", "minimum": 1, "maximum": 9}})
    );
    assert_eq!(home.ps_agent("a").unwrap()["questions"], json!([id]));
    let ps = home.gdn(&["ps"]).exits(0);
    prints(&ps, &[&format!("waits for a person's answer: {id}")]);
    let status = home.gdn(&["status"]).exits(0);
    assert!(
        status.stderr.contains("1 question waits for an answer"),
        "{status:?}"
    );
    assert!(status.stderr.contains("question list"), "{status:?}");

    let answer = [
        "question",
        "answer",
        &id,
        "--set",
        "size=m",
        "--set",
        "count=3",
        "--set",
        "gift=true",
    ];
    let answered = home.gdn_json(&answer);
    assert_eq!(
        (&answered["questionId"], &answered["action"]),
        (&json!(id), &json!("accept"))
    );
    let sent = sending.wait().exits(0);
    let told: Value = serde_json::from_str(&last_result(&home, "a")).unwrap();
    assert_eq!(
        told,
        json!({"action": "accept", "content": {"size": "m", "count": 3, "gift": true}})
    );
    assert!(sent.stderr.contains("answered by a person"), "{sent:?}");
    assert!(waiting(&home).is_empty());
    home.gdn(&["question", "answer", &id])
        .exits(5)
        .tells(&["is not open", "gdn inbox question list"]);

    // The client that answered is recorded; the answer is not.
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(
        audit.contains("instance.questionAnswered") && audit.contains("clientPid"),
        "{audit}"
    );
    assert!(
        audit.contains(&id) && audit.contains("size") && !audit.contains("\"m\""),
        "{audit}"
    );
    let log = format!("{:?}", daemon.stop().lines());
    assert!(!log.contains(TOKEN) && !log.contains("Which size"));
}

#[test]
fn a_person_may_decline_and_a_plain_yes_needs_no_words() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let _daemon = Daemon::serving(&home);
    let (sending, id) = asked(&home, "a", "order");
    let declined = home.gdn(&["question", "decline", &id]).exits(0);
    prints(&declined, &["Declined question"]);
    sending.wait().exits(0);
    assert_eq!(last_result(&home, "a"), r#"{"action":"decline"}"#);
    let (sending, id) = asked(&home, "a", "confirm");
    home.gdn(&["question", "answer", &id]).exits(0);
    sending.wait().exits(0);
    assert_eq!(
        last_result(&home, "a"),
        r#"{"action":"accept","content":{}}"#
    );
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(audit.contains("instance.questionDeclined"), "{audit}");
}

#[test]
fn unanswered_question_is_canceled_and_does_not_use_call_time() {
    let home = over_stdio_with("timeoutSeconds: 1\n    questionSeconds: 3");
    let daemon = Daemon::serving(&home);
    home.ask("a", "call order");
    assert_eq!(last_result(&home, "a"), r#"{"action":"cancel"}"#);
    daemon.log().wait_for("it is said why", |line| {
        message(line) == "question to a person closed" && line["how"] == "not answered in time"
    });
    // The call's own timeout is unchanged.
    home.ask("a", "call hang");
    assert!(last_result(&home, "a").contains("did not answer within 1 s"));
}

#[test]
fn invalid_answer_is_refused_and_the_question_keeps_waiting() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let _daemon = Daemon::serving(&home);
    let (sending, id) = asked(&home, "a", "order");
    let refused = |args: &[&str], words: &[&str]| {
        let args = [&["question", "answer", &id], args].concat();
        let ran = home.gdn(&args).exits(2).tells(words);
        assert!(
            ran.stderr.contains("question show") || ran.stderr.contains("--json-content"),
            "{ran:?}"
        );
    };
    refused(
        &["--set", "size=xl", "--set", "count=1"],
        &["must be one of: s, m"],
    );
    refused(&["--set", "size=s", "--set", "count=10"], &["from 1 to 9"]);
    refused(&["--set", "size=s"], &["`count` is missing"]);
    refused(&["--set", "color=red"], &["unknown field `color`"]);
    refused(&["--set", "mail=nobody"], &["of the format email"]);
    refused(&["--json-content", "[1]"], &["is not a JSON object"]);
    let wrong = r#"{"size": {"nested": true}, "count": "1"}"#;
    refused(
        &["--json-content", wrong],
        &["`size` must be", "`count` must be"],
    );
    home.gdn(&["question", "answer", &id, "--set", "size"])
        .exits(2)
        .tells(&["NAME=VALUE"]);
    assert_eq!(waiting(&home).len(), 1);
    let right = r#"{"size": "s", "count": 2, "mail": "ada@example.org"}"#;
    home.gdn(&["question", "answer", &id, "--json-content", right])
        .exits(0);
    sending.wait().exits(0);
    assert!(last_result(&home, "a").contains("ada@example.org"));
}

#[test]
fn server_that_asks_by_its_result_is_called_again_with_answer() {
    let home = over_stdio_with("timeoutSeconds: 1\n    questionSeconds: 60");
    let _daemon = Daemon::serving(&home);
    let (sending, id) = asked(&home, "a", "rounds");
    let asked_at = Instant::now();
    wait_until("it has waited for longer than a call may take", || {
        asked_at.elapsed() > Duration::from_millis(1_500)
    });
    home.gdn(&[
        "question", "answer", &id, "--set", "size=s", "--set", "count=2",
    ])
    .exits(0);
    sending.wait().exits(0);
    let told: Value = serde_json::from_str(&last_result(&home, "a")).unwrap();
    assert_eq!(told[0], "round 2");
    let answer = json!({"action": "accept", "content": {"size": "s", "count": 2}});
    assert_eq!(told[1]["what"], answer);
    assert!(told[1]["where"]["roots"].is_array(), "{told}");
}

#[test]
fn unsupported_question_is_refused_to_the_mcp_server() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let daemon = Daemon::serving(&home);
    for (tool, words) in [
        ("nested", ["field `login`", "its type is `object`"]),
        (
            "password",
            ["field `password`", "Questions must not request secrets"],
        ),
        ("visit", ["form", "`mode`"]),
    ] {
        home.ask("a", &format!("call {tool}"));
        let told = last_result(&home, "a");
        assert!(told.starts_with("refused: "), "{tool}: {told}");
        for word in words {
            assert!(told.contains(word), "{tool}: {told}");
        }
    }
    home.ask("a", "call sneak");
    home.ask("a", "call echo x");
    heard(&daemon, "no call is open");
    assert!(waiting(&home).is_empty());
}

#[test]
fn question_is_withdrawn_if_server_agent_or_daemon_is_gone() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let daemon = Daemon::serving(&home);
    // The connection is killed.
    let (sending, id) = asked(&home, "a", "order");
    let connector = home.running(CONNECTOR).remove(0);
    processes::signal(connector.pid, Signal::SIGKILL);
    sending.wait().exits(0);
    let said = last_result(&home, "a");
    assert!(
        said.contains("E_TOOL_INTERRUPTED") && said.contains("unknown"),
        "{said}"
    );
    assert!(waiting(&home).is_empty());
    home.gdn(&["question", "decline", &id]).exits(5);

    // The agent is killed: the server is notified that there will be no answer.
    wait_until("the server is there again", || {
        let ps = home.ps();
        ps.iter().any(|process| process["readiness"] == "ready")
    });
    let (sending, _) = asked(&home, "a", "order");
    processes::signal(home.running(AGENT)[0].pid, Signal::SIGKILL);
    sending.wait().exits(0);
    heard(&daemon, "cancel");
    assert!(waiting(&home).is_empty());

    // The daemon is killed.
    let (sending, id) = asked(&home, "a", "order");
    daemon.kill();
    drop(sending);
    let _daemon = Daemon::serving(&home);
    wait_until("the turn is over", || {
        home.ps_agent("a").is_none_or(|it| it["turnId"].is_null())
    });
    assert!(waiting(&home).is_empty());
    let gone = home.gdn(&["question", "show", &id]).exits(5);
    gone.tells(&["is not open", "gdn inbox question list"]);
}

#[test]
fn conversations_waiting_at_one_server_have_separate_questions() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let daemon = Daemon::serving(&home);
    let (first, of_a) = asked(&home, "a", "order");
    let second = home.start_gdn(&["send", "--instance", "b", "call order"]);
    let of_b = wait_for("the second question waits", || {
        let waiting = waiting(&home);
        let of_b = waiting
            .iter()
            .find(|question| question["instanceKey"] == "b")?;
        Some(of_b["questionId"].as_str().unwrap().to_owned())
    });
    assert_ne!(of_a, of_b);
    home.gdn(&[
        "question", "answer", &of_b, "--set", "size=s", "--set", "count=2",
    ])
    .exits(0);
    second.wait().exits(0);
    assert!(last_result(&home, "b").contains(r#""count":2"#));
    home.gdn(&["question", "decline", &of_a]).exits(0);
    first.wait().exits(0);
    assert_eq!(last_result(&home, "a"), r#"{"action":"decline"}"#);

    // A daemon that stops does not wait for a person.
    let (waiting, _) = asked(&home, "a", "order");
    daemon.stop();
    waiting.wait().exits(0);
}

#[test]
fn sec_6_only_people_answer_questions_not_programs_of_an_agent() {
    let home = over_stdio_with("timeoutSeconds: 60");
    let yaml = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let yaml = yaml.replace("[Tool/kit]", "[Tool/kit, Tool/bash]").replace(
        "      - when: {user: '^read ",
        "      - when: {user: '^run (?P<command>.*)$', step: 1}\n        \
         call: [{tool: bash__exec, args: {command: \"${command}\"}}]\n      \
         - when: {user: '^read ",
    );
    let bash = "---\napiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: bash}\nspec: {builtin: bash}\n";
    // A confined process cannot connect to the daemon.
    let yaml = yaml.replace(
        "  tools: [Tool/kit, Tool/bash]",
        "  sandbox: {require: off}\n  tools: [Tool/kit, Tool/bash]",
    );
    home.write("project/goondan.yaml", &format!("{yaml}{bash}"));
    let _daemon = Daemon::serving(&home);
    let (sending, id) = asked(&home, "a", "order");
    let gdn = format!(
        "{} --state-root {} --project {} question",
        bin(GDN).display(),
        home.state_root().display(),
        home.project().display()
    );
    for command in [
        format!("{gdn} answer {id} --set size=s --set count=1"),
        // Even through a detached process.
        format!("setsid sh -c '{gdn} decline {id}'"),
    ] {
        home.ask("b", &format!("run {command} 2>&1; echo ended with $?"));
        let told = last_result(&home, "b");
        assert!(
            told.contains("requires a person") && told.contains("ended with 17"),
            "{told}"
        );
    }
    // Reading is allowed.
    home.ask("b", &format!("run {gdn} list"));
    assert!(last_result(&home, "b").contains(&id));
    home.gdn(&["question", "decline", &id]).exits(0);
    sending.wait().exits(0);
}
