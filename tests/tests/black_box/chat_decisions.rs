//! Questions and reviews of tasks, proposals and logins in a Telegram chat (`NEED-1`, `NEED-2`).

use std::path::PathBuf;

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET};
use goondan_tests::home::CONNECTOR;
use goondan_tests::processes::{self, Signal};
use goondan_tests::telegram::{BotAction, TOKEN, Telegram};
use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::{Value, json};

use crate::oauth;
use crate::task_sources::{AGENT as EDITOR, settle, write_files};

const CHAT: i64 = -5;
/// Users who may decide in the chat.
const ANN: i64 = 7;
const BOB: i64 = 9;
/// User who may not.
const EVE: i64 = 8;

/// Asks for a color, then for readers, then completes.
const ASKER: &str = r#"#!/bin/sh
prompt=$(cat)
case $prompt in
*'": friends'*) echo '=== CUSTOM TASK COMPLETE ===' ;;
*'": blue'*) printf '[USER_QUESTION]\ncategory: clarification\nquestion: Who reads it?\nrequired: true\n[/USER_QUESTION]\n' ;;
*) printf '[USER_QUESTION]\ncategory: choice\nquestion: Which color?\noptions:\n- dark red\n- blue\nrequired: true\n[/USER_QUESTION]\n' ;;
esac
"#;

fn home(telegram: &Telegram, runtime: &str) -> Home {
    Home::new(&format!(
        r#"apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: coder}}
spec:
  runtime: {{kind: cli, {runtime}}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: telegram}}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config:
    endpoint: "{}"
    pollSeconds: 1
    chats: [1]
    approvals: {{chat: {CHAT}, users: [{ANN}, {BOB}], agents: [coder]}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        telegram.endpoint()
    ))
}

fn new_task(home: &Home) {
    let new = [
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--description",
        "Build.",
        "--start",
    ];
    home.gdn(&new).exits(0);
}

fn text_of(action: &BotAction) -> &str {
    action.params["text"].as_str().unwrap_or_default()
}

/// The message whose text has this part; the `nth` one, from 0.
fn message(telegram: &Telegram, part: &str, nth: usize) -> BotAction {
    wait_for(&format!("the chat shows `{part}`"), || {
        let sent = telegram.deeds().into_iter();
        let mut sent = sent.filter(|deed| deed.method == "sendMessage");
        sent.by_ref()
            .filter(|deed| text_of(deed).contains(part))
            .nth(nth)
    })
}

/// Labels and data of the buttons below a message.
fn buttons(message: &BotAction) -> Vec<(String, String)> {
    let rows = message.params["reply_markup"]["inline_keyboard"].as_array();
    let keys = rows.into_iter().flatten().flat_map(|row| {
        let row = row.as_array().unwrap();
        row.iter().map(|key| {
            let of = |name: &str| key[name].as_str().unwrap().to_owned();
            (of("text"), of("callback_data"))
        })
    });
    keys.collect()
}

/// Presses a button, and returns the notice to the user.
fn press(telegram: &Telegram, user: i64, message: &BotAction, label: &str) -> String {
    let (_, data) = buttons(message)
        .into_iter()
        .find(|(of, _)| of == label)
        .unwrap();
    let query = telegram.press(user, (CHAT, message.message_id), &data);
    wait_for("the user is notified", || {
        let mut deeds = telegram.deeds().into_iter();
        let answer = deeds.find(|deed| deed.params["callback_query_id"] == query.as_str())?;
        Some(text_of(&answer).to_owned())
    })
}

/// Replies to a message; `id` is the id of the reply.
fn reply(telegram: &Telegram, user: i64, message: &BotAction, (id, text): (usize, &str)) {
    telegram.deliver(
        "message",
        &json!({
            "message_id": id, "date": 1, "chat": {"id": CHAT, "type": "group"}, "text": text,
            "from": {"id": user, "is_bot": false}, "reply_to_message": {"message_id": message.message_id},
        }),
    );
}

/// The notice about a reply.
fn notice(telegram: &Telegram, id: usize) -> String {
    wait_for("the user is notified", || {
        let mut deeds = telegram.deeds().into_iter();
        let answer = deeds.find(|deed| deed.params["reply_parameters"]["message_id"] == id)?;
        Some(text_of(&answer).to_owned())
    })
}

/// Waits until a message has no buttons and shows the outcome.
fn is_closed(telegram: &Telegram, message: &BotAction, how: &str) {
    wait_until(&format!("the message shows `{how}`"), || {
        let deeds = telegram.deeds().into_iter();
        let mut edits = deeds.filter(|deed| deed.params["message_id"] == message.message_id);
        edits.any(|edit| edit.params.get("reply_markup").is_none() && text_of(&edit).contains(how))
    });
}

fn history(home: &Home, event: &str) -> Vec<Value> {
    let path = home
        .workspace_dir()
        .join("tasks/shop/.metadata/history.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["event"] == event)
        .collect()
}

fn status(home: &Home) -> Value {
    home.gdn_json(&["task", "show", "shop"])["info"]["status"].clone()
}

#[test]
fn need_2_task_questions_are_answered_once_in_a_chat() {
    let telegram = Telegram::start();
    let home = home(&telegram, "command: [./agent.sh]");
    home.write_program("project/agent.sh", ASKER);
    let daemon = Daemon::serving(&home);
    new_task(&home);
    let asked = message(&telegram, "Which color?", 0);
    assert_eq!(asked.params["chat_id"], CHAT);
    for part in ["Question t-", "agent: coder", "task shop, Shop"] {
        assert!(text_of(&asked).contains(part), "{asked:?}");
    }
    let labels: Vec<String> = buttons(&asked)
        .into_iter()
        .map(|(label, _)| label)
        .collect();
    assert_eq!(labels, ["dark red", "blue"]);
    let refused = press(&telegram, EVE, &asked, "blue");
    assert!(refused.contains("user 8 is not in"), "{refused}");
    let first = press(&telegram, ANN, &asked, "blue");
    assert_eq!(first, "Answered by telegram:7: blue.");
    let second = press(&telegram, BOB, &asked, "dark red");
    assert_eq!(
        second,
        "Nothing changed: it is already answered by telegram:7: blue."
    );
    is_closed(&telegram, &asked, "answered by telegram:7: blue");

    // A question without options is answered by a reply, here while the daemon is down.
    let asked = message(&telegram, "Who reads it?", 0);
    assert!(text_of(&asked).contains("Reply to this message to answer."));
    assert_eq!(buttons(&asked), []);
    wait_until("the location of the message is stored", || {
        let directory = home.workspace_dir().join("connectors");
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let texts = entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()));
        texts.flatten().any(|text| text.contains("takesReply"))
    });
    reply(&telegram, EVE, &asked, (501, "enemies"));
    let refused = notice(&telegram, 501);
    assert!(refused.contains("user 8 is not in"), "{refused}");
    for process in home.running(CONNECTOR) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
    drop(daemon.kill());
    reply(&telegram, ANN, &asked, (502, "friends"));
    let _daemon = Daemon::serving(&home);
    let mut first = notice(&telegram, 502);
    if first.ends_with("Try again in a moment.") {
        // The task was not loaded by then.
        reply(&telegram, ANN, &asked, (503, "friends"));
        first = notice(&telegram, 503);
    }
    reply(&telegram, BOB, &asked, (504, "strangers"));
    let second = notice(&telegram, 504);
    assert_eq!(first, "Answered by telegram:7: friends.");
    assert_eq!(
        second,
        "Nothing changed: it is already answered by telegram:7: friends."
    );
    is_closed(&telegram, &asked, "answered by telegram:7: friends");
    wait_until("the task is completed", || status(&home) == "completed");
    assert_eq!(history(&home, "question_answered").len(), 2);
    let made = history(&home, "decision_made");
    let by: Vec<&str> = made
        .iter()
        .map(|fact| fact["data"]["by"].as_str().unwrap())
        .collect();
    assert_eq!(by, ["telegram:7", "telegram:7"]);
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(audit.contains("answer q-0001, by telegram:7"), "{audit}");
}

#[test]
fn need_2_question_answered_elsewhere_loses_its_buttons() {
    let telegram = Telegram::start();
    let home = home(&telegram, "command: [./agent.sh]");
    home.write_program("project/agent.sh", ASKER);
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    let asked = message(&telegram, "Which color?", 0);
    home.gdn(&["task", "answer", "shop", "blue"]).exits(0);
    is_closed(&telegram, &asked, "answered by a person");
    let late = press(&telegram, ANN, &asked, "dark red");
    assert_eq!(late, "Nothing changed: it is already answered by a person.");
    assert_eq!(history(&home, "question_answered").len(), 1);
}

#[test]
fn need_2_reviews_are_decided_in_a_chat() {
    let telegram = Telegram::start();
    let runtime = "command: [./agent.sh], resume: [./agent.sh, \"{session}\"], format: \
                   claude-stream-json, source: project";
    let home = home(&telegram, runtime);
    home.write_program("project/agent.sh", EDITOR);
    write_files(&home);
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    let review = message(&telegram, "waits for a review", 0);
    for part in ["Review t-", "src/a.rs (modified)", "old.md (deleted)"] {
        assert!(text_of(&review).contains(part), "{review:?}");
    }
    let empty = press(&telegram, ANN, &review, "Request changes");
    assert!(empty.contains("reply to the message"), "{empty}");
    reply(&telegram, ANN, &review, (601, "Shorter, please."));
    assert_eq!(
        notice(&telegram, 601),
        "Sent back by telegram:7: Shorter, please."
    );
    is_closed(&telegram, &review, "sent back by telegram:7");
    let again = message(&telegram, "waits for a review", 1);
    let approved = press(&telegram, BOB, &again, "Approve");
    assert_eq!(approved, "Approved by telegram:9.");
    is_closed(&telegram, &again, "approved by telegram:9");
    settle(&home, "shop", "completed");
    let text = std::fs::read_to_string(home.project().join("src/b.rs")).unwrap();
    assert_eq!(text, "fn b() {}\n");
    // The button of the first review approves nothing.
    let late = press(&telegram, ANN, &review, "Approve");
    assert!(late.starts_with("Nothing changed"), "{late}");
}

/// A connection whose chat shows the decisions of every agent, and those of the project.
fn connection(telegram: &Telegram) -> String {
    format!(
        r#"
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: telegram}}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config:
    endpoint: "{}"
    pollSeconds: 1
    chats: [1]
    approvals: {{chat: {CHAT}, users: [{ANN}, {BOB}], kinds: [proposal, login]}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        telegram.endpoint()
    )
}

/// Waits until the connection has stored that it shows a message.
fn is_remembered(home: &Home, message: &BotAction) {
    wait_until("the location of the message is stored", || {
        let directory = home.workspace_dir().join("connectors");
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let texts = entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()));
        let place = format!("{CHAT}:{}", message.message_id);
        texts.flatten().any(|text| text.contains(&place))
    });
}

fn kill_connectors(home: &Home) {
    for process in home.running(CONNECTOR) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
}

/// Hands in a proposal of a worker without a task that changes `src/a.txt`.
fn propose(home: &Home, worker: &str) {
    let prepare = [
        "sandbox", "prepare", "--run", "r1", "--agent", worker, "src",
    ];
    let prepared = home.gdn_json(&prepare);
    let work = PathBuf::from(prepared["workDir"].as_str().unwrap());
    let work = work.strip_prefix(home.path()).unwrap();
    let file = work.join("src/a.txt");
    home.write(file.to_str().unwrap(), &format!("by {worker}\n"));
    home.gdn(&["proposal", "create", "r1", worker]).exits(0);
}

#[test]
fn need_2_proposals_without_a_task_are_decided_in_a_chat() {
    let telegram = Telegram::start();
    let agent = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: coder}\n\
                 spec: {runtime: {kind: cli, command: [./agent.sh]}}";
    let home = Home::new(&format!("{agent}{}", connection(&telegram)));
    home.write_program("project/agent.sh", ASKER);
    home.write("project/src/a.txt", "a\n");
    let text = || std::fs::read_to_string(home.project().join("src/a.txt")).unwrap();
    let daemon = Daemon::serving(&home);
    propose(&home, "one");
    let first = message(&telegram, "Proposal t-", 0);
    for part in [
        "proposal r1/one",
        "src/a.txt (modified)",
        "gdn proposal show r1 one",
    ] {
        assert!(text_of(&first).contains(part), "{first:?}");
    }
    let refused = press(&telegram, EVE, &first, "Approve");
    assert!(refused.contains("user 8 is not in"), "{refused}");

    // The button is pressed while no process runs, and again until the daemon has read the proposals.
    is_remembered(&home, &first);
    kill_connectors(&home);
    drop(daemon.kill());
    let (_, data) = buttons(&first).remove(0);
    telegram.press(ANN, (CHAT, first.message_id), &data);
    let daemon = Daemon::serving(&home);
    wait_until("it is applied", || {
        let said = press(&telegram, ANN, &first, "Approve");
        let is_done = said.contains("pplied by telegram:7");
        assert!(
            is_done || said.ends_with("Try again in a moment."),
            "{said}"
        );
        is_done
    });
    assert_eq!(text(), "by one\n");
    is_closed(&telegram, &first, "applied by telegram:7");
    let late = press(&telegram, BOB, &first, "Reject");
    assert_eq!(
        late,
        "Nothing changed: it is already applied by telegram:7."
    );
    let audit = home.gdn_json(&["audit"]).to_string();
    assert_eq!(
        audit.matches("workspace.proposalDecided").count(),
        1,
        "{audit}"
    );
    assert_eq!(
        audit.matches("workspace.proposalApplied").count(),
        1,
        "{audit}"
    );

    // One that a reply rejects, and one that another person decides elsewhere.
    propose(&home, "two");
    let second = message(&telegram, "proposal r1/two", 0);
    reply(&telegram, BOB, &second, (701, "Too big."));
    assert_eq!(notice(&telegram, 701), "Rejected by telegram:9: Too big.");
    is_closed(&telegram, &second, "rejected by telegram:9");
    propose(&home, "three");
    let third = message(&telegram, "proposal r1/three", 0);
    home.gdn(&["proposal", "reject", "r1", "three"]).exits(0);
    is_closed(&telegram, &third, "rejected");
    assert_eq!(text(), "by one\n");
    let sent = telegram.deeds().into_iter();
    let sent = sent.filter(|deed| deed.method == "sendMessage");
    let shown = sent.filter(|deed| text_of(deed).contains("Proposal t-"));
    assert_eq!(shown.count(), 3, "each is shown once");
    daemon.stop();
}

#[test]
fn need_2_a_missing_login_is_shown_in_a_chat_until_it_is_made() {
    let (telegram, server, model) = (
        Telegram::start(),
        AuthorizationServer::start(3_600),
        oauth::model(),
    );
    let project = oauth::project(&server, &model);
    let home = Home::new(&format!("{project}{}", connection(&telegram)));
    let environment = format!("CLIENT_SECRET={CLIENT_SECRET}\n");
    home.write("project/.env.local", &environment);
    let daemon = Daemon::serving(&home);
    let login = message(&telegram, "Login t-", 0);
    for part in ["login for OAuthApp/idp", "gdn secret oauth login idp"] {
        assert!(text_of(&login).contains(part), "{login:?}");
    }
    assert_eq!(buttons(&login), []);
    is_remembered(&home, &login);
    kill_connectors(&home);
    drop(daemon.kill());
    let daemon = Daemon::serving(&home);
    oauth::log_in(&home, &server);
    is_closed(&telegram, &login, "a person logged in");
    let sent = telegram.deeds().into_iter();
    let sent = sent.filter(|deed| deed.method == "sendMessage");
    assert_eq!(sent.count(), 1, "it is shown once");
    daemon.stop();
}
