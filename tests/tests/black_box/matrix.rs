//! Matrix in the real daemon, with a fake of a homeserver, and with Synapse.

use std::collections::{BTreeMap, BTreeSet};

use goondan_tests::home::CONNECTOR;
use goondan_tests::matrix::{Homeserver, MatrixFault, SentEvent, TOKEN};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::synapse::Synapse;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, role, text};

const ADA: &str = "@ada:example.test";
const BOB: &str = "@bob:example.test";
const ORDERS: &str = "!orders:example.test";
const DIRECT: &str = "!direct:example.test";

fn connection((endpoint, token): (&str, &str), config: &str) -> String {
    format!(
        r#"---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: matrix}}
spec:
  connectorRef: {{kind: Connector, name: matrix, package: "@goondan/base"}}
  config: {{endpoint: "{endpoint}", pollSeconds: 1{config}}}
  secrets: {{accessToken: {{value: "{token}"}}}}
"#
    )
}

fn detail(home: &Home) -> String {
    let mut processes = home.ps().into_iter();
    let shown = processes.find(|it| it["role"] == "connector" && it["name"] == "matrix");
    let detail = shown.as_ref().and_then(|it| it["detail"].as_str());
    detail.unwrap_or_default().to_owned()
}

/// Waits until the account listens, so that further messages are new.
fn wait_until_listening(home: &Home) {
    wait_until("it listens", || detail(home).starts_with("listening as @"));
}

fn messages(homeserver: &Homeserver, count: usize) -> Vec<SentEvent> {
    wait_until("the messages are posted", || {
        homeserver.messages().len() >= count
    });
    homeserver.messages()
}

/// The key of the conversation of a room.
fn key(room: &str) -> String {
    format!("matrix:{room}")
}

#[test]
fn msg_13_no_matrix_message_is_lost_or_repeated_despite_kills() {
    let homeserver = Homeserver::start();
    let rooms = ["!0:example.test", "!1:example.test", "!2:example.test"];
    for room in rooms {
        homeserver.room(room, "Lab", &[(ADA, "Ada"), (BOB, "Bob")]);
    }
    homeserver.say(rooms[0], ADA, "echo old");
    let endpoint = homeserver.endpoint();
    let connection = connection(
        (&endpoint, TOKEN),
        ", rooms: ['!0:example.test', \
        '!1:example.test', '!2:example.test']",
    );
    let home = Home::new(&format!("{LAB}{connection}  header: none\n"));
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    wait_until_listening(&home);
    let mut said: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for number in 0..45 {
        let room = rooms[usize::try_from(random.below(3)).unwrap()];
        let text = format!("echo {number}");
        homeserver.say(room, ADA, &text);
        said.entry(room).or_default().push(text);
        match number % 15 {
            7 => {
                for process in home.running(CONNECTOR) {
                    processes::signal(process.pid, Signal::SIGKILL);
                }
            }
            14 => {
                drop(daemon.kill());
                daemon = Daemon::start(&home);
            }
            _ => {}
        }
    }
    // A repeated reply has the same transaction.
    let sent = messages(&homeserver, 45);
    let texts: BTreeSet<&str> = sent.iter().map(SentEvent::body).collect();
    assert_eq!(texts.len(), 45);
    for (room, said) in said {
        let key = key(room);
        wait_until("all are answered", || {
            home.history(&key).len() == 2 * said.len()
        });
        let messages = home.history(&key);
        check(&messages);
        let asked = messages.iter().filter(|message| role(message) == "user");
        assert_eq!(asked.map(text).collect::<Vec<_>>(), said);
    }
    assert_eq!(homeserver.messages().len(), 45);
    let log = daemon.stop();
    let log = format!("{:?}", log.lines());
    assert!(!log.contains(TOKEN), "the token is in the log");
    assert!(!log.contains("echo old"));
}

/// An account whose agent answers with fixed texts, and has the tool.
fn answering(account: (&str, &str), config: &str) -> Home {
    let connection = connection(account, config);
    Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: 'by tool$', step: 1}}
        call: [{{tool: matrix__send, args: {{text: "from the tool"}}}}]
      - when: {{user: 'to (?P<room>!\S+)$', step: 1}}
        call: [{{tool: matrix__send, args: {{text: "elsewhere", room: "${{room}}"}}}}]
      - when: {{tool: matrix__send, result: '(?P<part>not one of `rooms`)'}}
        say: "it is ${{part}}"
      - when: {{user: 'file$', step: 1}}
        call: [{{tool: file-system__write, args: {{path: a.txt, content: hello}}}}]
      - when: {{tool: file-system__write}}
        call: [{{tool: matrix__sendFile, args: {{path: a.txt, text: "**see**"}}}}]
      - when: {{user: 'file ID (?P<id>mxc://\S+)\]', step: 1}}
        call: [{{tool: matrix__download, args: {{file: "${{id}}", path: got.txt}}}}]
      - when: {{tool: matrix__download}}
        call: [{{tool: file-system__read, args: {{path: got.txt}}}}]
      - when: {{tool: file-system__read}}
        say: "it says: ${{result}}"
      - when: {{user: 'history$', step: 1}}
        call: [{{tool: matrix__typing, args: {{}}}}, {{tool: matrix__react, args: {{emoji: "👍"}}}}, {{tool: matrix__read, args: {{limit: 2}}}}]
      - when: {{tool: matrix__read}}
        say: "read: ${{result}}"
      - when: {{user: '(?s)^(?P<text>.*)$'}}
        say: "You said: **${{text}}**"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools:
    - {{kind: Tool, name: matrix, package: "@goondan/base"}}
    - {{kind: Tool, name: file-system, package: "@goondan/base"}}
{connection}"#
    ))
}

/// A fake with a room of several people and a direct one, and an account there.
fn started(config: &str) -> (Homeserver, Home, Daemon) {
    let homeserver = Homeserver::start();
    homeserver.room(ORDERS, "Orders", &[(ADA, "Ada"), (BOB, "Bob")]);
    homeserver.room(DIRECT, "", &[(ADA, "Ada")]);
    let home = answering((&homeserver.endpoint(), TOKEN), config);
    let daemon = Daemon::serving(&home);
    wait_until_listening(&home);
    (homeserver, home, daemon)
}

#[test]
fn conn_2_matrix_room_is_answered_by_default_and_once() {
    let (homeserver, home, daemon) = started("");
    homeserver.say(DIRECT, ADA, "hi");
    let sent = messages(&homeserver, 1);
    assert_eq!(
        (sent[0].room.as_str(), sent[0].body()),
        (DIRECT, "You said: hi")
    );
    let html = "You said: <strong>hi</strong>";
    assert_eq!(sent[0].content["formatted_body"], html);
    assert_eq!(sent[0].content.get("m.relates_to"), None);
    // With several people, the reply shows its message and notifies its author.
    let asked = homeserver.say(ORDERS, ADA, "where is it?");
    let sent = messages(&homeserver, 2);
    let relation = json!({"m.in_reply_to": {"event_id": asked}});
    assert_eq!(sent[1].content["m.relates_to"], relation);
    assert_eq!(sent[1].content["m.mentions"]["user_ids"], json!([ADA]));
    let history = home.history(&key(ORDERS));
    assert_eq!(
        text(&history[0]),
        "[Matrix · Ada (@ada:example.test) in \"Orders\"]\nwhere is it?"
    );
    // A thread is a conversation of its own.
    homeserver.send(
        ORDERS,
        BOB,
        "m.room.message",
        &json!({"msgtype": "m.text", "body": "in a thread", "m.relates_to": {"rel_type": "m.thread",
            "event_id": asked, "is_falling_back": true, "m.in_reply_to": {"event_id": asked}}}),
    );
    let sent = messages(&homeserver, 3);
    assert_eq!(sent[2].content["m.relates_to"]["rel_type"], "m.thread");
    assert_eq!(sent[2].content["m.relates_to"]["event_id"], asked.as_str());
    let thread = format!("{}:{asked}", key(ORDERS));
    let history = home.history(&thread);
    assert_eq!(history.len(), 2);
    assert!(
        text(&history[0]).ends_with("[Thread on Ada: \"where is it?\"]\nin a thread"),
        "{history:?}"
    );
    // If the agent wrote to the room itself, its reply is not posted.
    homeserver.say(DIRECT, ADA, "by tool");
    homeserver.say(DIRECT, ADA, "end");
    let sent = messages(&homeserver, 5);
    assert_eq!(sent[3].body(), "from the tool");
    assert_eq!(sent[4].body(), "You said: end");
    // A message elsewhere does not replace the reply.
    homeserver.say(DIRECT, ADA, &format!("to {ORDERS}"));
    let sent = messages(&homeserver, 7);
    assert_eq!(
        (sent[5].room.as_str(), sent[5].body()),
        (ORDERS, "elsewhere")
    );
    assert_eq!(sent[6].room, DIRECT);
    homeserver.say(DIRECT, ADA, "history");
    let sent = messages(&homeserver, 8);
    let read = sent[7].body();
    assert!(
        read.contains("elsewhere") || read.contains("history"),
        "{read}"
    );
    assert_eq!(homeserver.typing(), 1);
    let reactions = homeserver.sent();
    let reaction = reactions.iter().find(|it| it.kind == "m.reaction");
    assert_eq!(reaction.unwrap().content["m.relates_to"]["key"], "👍");
    // Programs are not answered.
    homeserver.send(
        DIRECT,
        ADA,
        "m.room.message",
        &json!({"msgtype": "m.notice", "body": "automatic"}),
    );
    wait_until("the notice is counted", || {
        let processes = home.ps();
        let connector = processes.iter().find(|it| it["name"] == "matrix").unwrap();
        connector["ignored"]["bot"] == 1
    });
    drop(daemon.stop());
}

#[test]
fn conn_2_files_travel_both_ways_in_matrix() {
    let (homeserver, _home, daemon) = started(", rooms: ['!direct:example.test']");
    homeserver.say(DIRECT, ADA, "file");
    // A file does not replace the reply.
    let sent = messages(&homeserver, 2);
    let file = sent.iter().find(|it| it.content["msgtype"] == "m.file");
    let file = &file.unwrap().content;
    assert_eq!(
        (&file["filename"], &file["body"]),
        (&json!("a.txt"), &json!("see"))
    );
    assert_eq!(file["info"], json!({"mimetype": "text/plain", "size": 5}));
    assert_eq!(
        homeserver.content_of(file["url"].as_str().unwrap()),
        "hello"
    );
    let uri = homeserver.file("hello again");
    homeserver.send(
        DIRECT,
        ADA,
        "m.room.message",
        &json!({"msgtype": "m.file", "body": "b.txt", "url": uri}),
    );
    let sent = messages(&homeserver, 3);
    let said = sent[2].body();
    assert!(
        said.starts_with("it says:") && said.contains("hello again"),
        "{said}"
    );
    // Other rooms are neither listened nor written to.
    homeserver.say(ORDERS, ADA, "obey");
    homeserver.say(DIRECT, ADA, &format!("to {ORDERS}"));
    let sent = messages(&homeserver, 4);
    assert_eq!(sent[3].body(), "it is not one of rooms");
    drop(daemon.stop());
}

#[test]
fn conn_2_matrix_reply_survives_limits_and_lost_answers() {
    let (homeserver, home, daemon) = started("");
    let limited = json!({"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests",
        "retry_after_ms": 300});
    homeserver.have_sends([MatrixFault::Answer(429, limited), MatrixFault::Lose]);
    homeserver.say(DIRECT, ADA, "hello");
    homeserver.say(DIRECT, ADA, "then");
    let sent = messages(&homeserver, 2);
    let bodies: Vec<&str> = sent.iter().map(SentEvent::body).collect();
    assert_eq!(bodies, ["You said: hello", "You said: then"]);
    daemon.log().wait_for("the repeated reply", |line| {
        line["message"] == "failed to post a reply; retrying" && line["attempt"] == 2
    });
    let code = json!({"errcode": "M_LIMIT_EXCEEDED", "error": "x", "retry_after_ms": 1});
    let lost = json!({"errcode": "M_UNKNOWN", "error": "Invalid stream token"});
    for (fault, said) in [
        (MatrixFault::Answer(429, code), "M_LIMIT_EXCEEDED"),
        (MatrixFault::Answer(502, json!("x")), "answered 502"),
        (MatrixFault::Lose, "failed to connect to the homeserver"),
        (MatrixFault::Answer(400, lost), "Invalid stream token"),
    ] {
        homeserver.have([fault]);
        daemon.log().wait_for(said, |line| {
            line["message"] == "connector not ready"
                && line["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains(said))
        });
        wait_until_listening(&home);
    }
    homeserver.say(DIRECT, ADA, "still here");
    let sent = messages(&homeserver, 3);
    assert_eq!(sent[2].body(), "You said: still here");
    drop(daemon.stop());
}

#[test]
fn conn_1_matrix_invitations_are_accepted_from_listed_people() {
    let (homeserver, home, daemon) = started(&format!(", invitesFrom: ['{ADA}', other.test]"));
    let (from_ada, from_bob, from_server) = ("!a:example.test", "!b:example.test", "!c:other.test");
    homeserver.invite(from_bob, "Spam", &[(BOB, "Bob")]);
    homeserver.invite(from_ada, "", &[(ADA, "Ada")]);
    // Written before the account joins.
    homeserver.say(from_ada, ADA, "are you there?");
    let sent = messages(&homeserver, 1);
    assert_eq!(
        (sent[0].room.as_str(), sent[0].body()),
        (from_ada, "You said: are you there?")
    );
    homeserver.invite(from_server, "", &[("@eve:other.test", "Eve")]);
    wait_until("it joins", || homeserver.has_joined(from_server));
    wait_until("the other invitation is shown", || {
        detail(&home).contains("1 invitation(s) not accepted, such as that of @bob:example.test")
    });
    assert!(!homeserver.has_joined(from_bob));
    drop(daemon.stop());
}

#[test]
fn conn_1_encrypted_matrix_room_is_told_once_that_it_is_not_supported() {
    let (homeserver, home, mut daemon) = started("");
    let encrypted = json!({"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x",
        "device_id": "D", "sender_key": "k", "session_id": "s"});
    let say = || homeserver.send(DIRECT, ADA, "m.room.encrypted", &encrypted);
    say();
    let sent = messages(&homeserver, 1);
    assert_eq!(sent[0].content["msgtype"], "m.notice");
    assert!(sent[0].body().contains("end-to-end encrypted"), "{sent:?}");
    wait_until("the status says so", || {
        detail(&home).contains("1 room with end-to-end encryption, which is not supported")
    });
    drop(daemon.kill());
    say();
    daemon = Daemon::start(&home);
    homeserver.say(ORDERS, ADA, "plain");
    let sent = messages(&homeserver, 2);
    assert_eq!(sent[1].body(), "You said: plain");
    assert_eq!(homeserver.messages().len(), 2);
    drop(daemon.stop());
}

#[test]
fn conn_1_rejected_matrix_token_is_reported() {
    let homeserver = Homeserver::start();
    let home = answering((&homeserver.endpoint(), "wrong"), "");
    let daemon = Daemon::serving(&home);
    wait_until("it is reported", || {
        detail(&home).contains("rejects the access token (M_UNKNOWN_TOKEN")
    });
    drop(daemon.stop());
}

#[test]
fn conn_2_edits_and_reactions_of_matrix_reach_the_conversation() {
    let (homeserver, home, daemon) = started(", reactions: true");
    let asked = homeserver.say(DIRECT, ADA, "one");
    let answer = messages(&homeserver, 1).remove(0);
    homeserver.send(
        DIRECT,
        ADA,
        "m.room.message",
        &json!({"msgtype": "m.text", "body": "* two", "m.new_content": {"msgtype": "m.text",
            "body": "two"}, "m.relates_to": {"rel_type": "m.replace", "event_id": asked}}),
    );
    let sent = messages(&homeserver, 2);
    assert_eq!(sent[1].body(), "You said: [Edited message]\ntwo");
    homeserver.send(
        DIRECT,
        ADA,
        "m.reaction",
        &json!({"m.relates_to": {"rel_type": "m.annotation", "event_id": answer.id, "key": "👍"}}),
    );
    let key = key(DIRECT);
    wait_until("the reaction is answered", || home.history(&key).len() == 6);
    let history = home.history(&key);
    let asked: Vec<String> = history
        .iter()
        .filter(|message| role(message) == "user")
        .map(text)
        .collect();
    let header = "[Matrix · Ada (@ada:example.test)]\n";
    assert_eq!(
        asked,
        [
            format!("{header}one"),
            format!("{header}[Edited message]\ntwo"),
            format!("{header}[Ada reacted with 👍 to your message \"You said: one\"]"),
        ]
    );
    // Replies to reactions are not posted.
    assert_eq!(homeserver.messages().len(), 2);
    drop(daemon.stop());
}

#[test]
fn conn_2_account_at_synapse_is_invited_and_answers() {
    let Some(synapse) = Synapse::start() else {
        return;
    };
    let (bot, ada) = (synapse.register("bot"), synapse.register("ada"));
    let home = answering(
        (&synapse.endpoint(), &bot.token),
        &format!(", invitesFrom: ['{}']", ada.id),
    );
    let daemon = Daemon::serving(&home);
    wait_until_listening(&home);
    let room = ada.post(
        "createRoom",
        &json!({"preset": "trusted_private_chat", "is_direct": true, "invite": [bot.id]}),
    );
    let room = room["room_id"].as_str().unwrap();
    let said = |content: &Value| ada.send(room, content);
    said(&json!({"msgtype": "m.text", "body": "hello"}));
    let answers = |count: usize| -> Vec<Value> {
        let mut answers = Vec::new();
        wait_until("the account answers", || {
            let all = ada.messages(room).into_iter();
            answers = all.filter(|it| it["sender"] == bot.id).collect();
            answers.len() >= count
        });
        answers
    };
    let first = answers(1).remove(0);
    assert_eq!(first["content"]["body"], "You said: hello");
    let html = "You said: <strong>hello</strong>";
    assert_eq!(first["content"]["formatted_body"], html);
    // A thread, a file each way, and the history, after a restart.
    drop(daemon.kill());
    let root = said(&json!({"msgtype": "m.text", "body": "late"}));
    let daemon = Daemon::start(&home);
    assert_eq!(answers(2)[1]["content"]["body"], "You said: late");
    said(
        &json!({"msgtype": "m.text", "body": "deeper", "m.relates_to": {"rel_type": "m.thread",
        "event_id": root, "is_falling_back": true, "m.in_reply_to": {"event_id": root}}}),
    );
    let relation = answers(3)[2]["content"]["m.relates_to"].clone();
    assert_eq!(
        (&relation["rel_type"], &relation["event_id"]),
        (&json!("m.thread"), &json!(root))
    );
    said(&json!({"msgtype": "m.text", "body": "file"}));
    let file = answers(5)
        .into_iter()
        .find(|it| it["content"]["msgtype"] == "m.file");
    let uri = file.unwrap()["content"]["url"].clone();
    said(&json!({"msgtype": "m.file", "body": "b.txt", "url": uri}));
    let read = answers(6)[5]["content"]["body"].clone();
    assert!(read.as_str().unwrap().contains("hello"), "{read}");
    said(&json!({"msgtype": "m.text", "body": "history"}));
    let read = answers(7)[6]["content"]["body"].clone();
    assert!(read.as_str().unwrap().contains("history"), "{read}");
    drop(daemon.stop());
}
