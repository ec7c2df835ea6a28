//! Agents that ask each other (`IPC-2`, `IPC-3`, `INST-3`).

use std::collections::BTreeSet;
use std::path::Path;

use goondan_tests::home::AGENT;
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::random::Random;
use goondan_tests::team::TEAM;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, result_text, role, shape, text};

#[test]
fn ipc_2_two_workers_are_asked_and_their_answers_return() {
    let home = Home::new(TEAM);
    let daemon = Daemon::serving_with_details(&home);
    let sent = home.gdn_json(&["send", "both 1"]);
    let answer = "both 1: right did 1 after left did 1";
    assert_eq!(sent["outcome"]["reply"], answer);

    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatata");
    assert_eq!(result_text(&messages[2]), "left did 1");
    let asked = home.history("left:main");
    assert_eq!(shape(&asked), "ua");
    assert_eq!(asked[0]["metadata"]["from"]["agent"], "boss");
    assert_eq!(asked[0]["metadata"]["from"]["instanceKey"], "main");

    // One trace through all three; each worker's turn is a child of the requesting call.
    let mut turns = daemon.log().saying("turn.started");
    turns.retain(|line| line["traceId"] == sent["traceId"]);
    assert_eq!(turns.len(), 3, "{turns:#?}");
    let calls = daemon.log().saying("tool.called");
    let parents: BTreeSet<&str> = turns[1..]
        .iter()
        .map(|turn| turn["parentSpanId"].as_str().unwrap())
        .collect();
    let spans: BTreeSet<&str> = calls
        .iter()
        .map(|call| call["spanId"].as_str().unwrap())
        .collect();
    assert_eq!(parents, spans);
}

#[test]
fn agents_see_each_other_and_make_conversations_of_their_own() {
    let home = Home::new(TEAM);
    let _daemon = Daemon::serving(&home);
    let catalog = home.ask("main", "catalog");
    assert_eq!(
        catalog,
        "boss (conversations begin with it) [tools: agents, bash]\n\
         left: Does what is asked of it. [tools: agents, bash]\n\
         right"
    );
    let spawned: Value = serde_json::from_str(&home.ask("main", "spawn do 1")).unwrap();
    let key = spawned["instanceKey"].as_str().unwrap();
    assert!(key.starts_with("left:main#"), "{key}");
    wait_until("it did it", || home.history(key).len() == 2);
    let sent: Value = serde_json::from_str(&home.ask("main", "send do 2")).unwrap();
    assert_eq!(sent["instanceKey"], "left:main");
    wait_until("it did it", || home.history("left:main").len() == 2);
    home.ask("other", "send do 3");
    wait_until("it did it", || home.history("left:other").len() == 2);
    let listed = home.ask("main", "list");
    let keys: Vec<&str> = listed
        .lines()
        .map(|line| line.split_once(": ").unwrap().0)
        .collect();
    assert_eq!(keys, ["left:main", key, "main"], "{listed}");
    assert_eq!(
        home.ask("main", "ask nobody do 1"),
        "E_AGENT_NOT_FOUND: agent `nobody` does not exist; the agents are: boss, left, right"
    );
}

/// A connection through which Ada asks, once.
const BY_ADA: &str = r#"---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: desk}
spec: {entry: connectors/desk}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: desk}
spec: {connectorRef: Connector/desk, ingress: {rules: [{route: {instanceKeyPrefix: ""}}]}}
"#;

#[test]
fn ipc_2_caller_identity_is_passed_unchanged_to_agent_and_back() {
    let home = Home::without_project();
    home.write(
        "project/goondan.yaml",
        &home.filled_in(&format!("{TEAM}{BY_ADA}")),
    );
    let auth = serde_json::json!({"user": "ada", "scopes": ["read", {"until": 7}], "n": 1.5});
    let event = serde_json::json!({"type": "event", "id": "e1", "input": "later 1", "auth": auth,
        "instanceKey": "main"});
    let program = format!("#!/bin/sh\ncat <<'END'\n{event}\nEND\nexec cat >/dev/null\n");
    home.write_program("project/connectors/desk", &program);
    home.write("notes/go", "");
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("the turn is over", |line| {
        message(line) == "turn committed and answered" && line["instanceKey"] == "main"
    });
    wait_until("the answer came", || {
        let messages = home.history("main");
        let last = messages.last().map(text);
        last.is_some_and(|last| last == "heard left: left did 1")
    });
    home.ask("main", "ask left do 2");
    let instances = std::fs::read_dir(home.workspace_dir().join("instances")).unwrap();
    let mut seen: Vec<(String, Value)> = Vec::new();
    for instance in instances {
        let inbox = instance.unwrap().path().join("messages/inbox.jsonl");
        let inbox = std::fs::read_to_string(inbox).unwrap();
        let records = inbox.lines().map(|l| serde_json::from_str(l).unwrap());
        let events = records.filter_map(|record: Value| record.get("event").cloned());
        seen.extend(events.map(|event| {
            let kind = event["type"].as_str().unwrap();
            (kind.to_owned(), event["auth"].clone())
        }));
    }
    seen.sort_by_key(|(kind, auth)| (kind.clone(), auth.is_null()));
    let ours = |kind: &str| (kind.to_owned(), auth.clone());
    let nobodys = |kind: &str| (kind.to_owned(), Value::Null);
    let expected = [
        ours("message"),
        nobodys("message"),
        ours("reply"),
        ours("request"),
        nobodys("request"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn ipc_3_a_circular_request_is_refused_at_once_and_named() {
    let home = Home::new(TEAM);
    let _daemon = Daemon::serving(&home);
    let answer = home.ask("main", "ask left loop");
    assert!(
        answer.starts_with(
            "E_CIRCULAR_REQUEST: this request would deadlock: `left:main` waits for \
             `main` waits for `left:main`"
        ),
        "{answer}"
    );
    let itself = home.ask("main", "ask boss list");
    assert!(itself.contains("`main` waits for `main`"), "{itself}");
}

#[test]
fn answer_without_a_waiter_joins_the_turn_it_arrives_in() {
    let home = Home::new(TEAM);
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "later 1"]);
    wait_until("the answer is there", || {
        let events = home.gdn_json(&["event", "list"])["events"].clone();
        let events = events.as_array().unwrap().clone();
        events.iter().any(|event| {
            event["instanceKey"] == "main" && event["source"]["instanceKey"] == "left:main"
        })
    });
    home.write("notes/go", "");
    assert_eq!(asking.wait().exits(0).stdout, "heard left: left did 1\n");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatatua");
    assert_eq!(role(&messages[5]), "user");
    let question = &messages[5]["metadata"]["inReplyTo"];
    assert!(question.as_str().unwrap().ends_with(".1:q0"), "{question}");
    assert_eq!(
        home.gdn_json(&["event", "list"])["events"],
        serde_json::json!([])
    );
}

#[test]
fn a_request_that_takes_too_long_is_answered_by_a_message_later() {
    let home = Home::new(TEAM);
    let daemon = Daemon::serving(&home);
    let told = home.ask("main", "impatient slow x");
    assert!(told.starts_with("E_AGENT_PENDING: agent `left`"), "{told}");
    // The waiting process no longer exists when the answer arrives.
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    home.write("notes/x", "");
    wait_until("the answer came", || {
        let messages = home.history("main");
        messages
            .last()
            .is_some_and(|last| text(last) == "heard left: slowly did x")
    });
    check(&home.history("main"));
}

#[test]
fn waiting_agent_shows_the_agent_it_waits_for() {
    let home = Home::new(TEAM);
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "ask left slow x"]);
    wait_until("it waits", || {
        let boss = home.ps_agent("main");
        boss.is_some_and(|boss| boss["waitingFor"] == serde_json::json!(["left:main"]))
    });
    home.gdn(&["ps"])
        .exits(0)
        .prints(&["waiting for left:main"]);
    wait_until("the question is reported with who asked", || {
        let listed = home.gdn(&["event", "list"]).exits(0);
        listed.stdout.contains("agent main")
    });
    home.write("notes/x", "");
    assert_eq!(asking.wait().exits(0).stdout, "slowly did x\n");
    assert!(home.ps_agent("main").unwrap().get("waitingFor").is_none());
}

#[test]
fn msg_12_trace_shows_questions_between_agents_and_failures() {
    let home = Home::new(TEAM);
    let _daemon = Daemon::serving(&home);
    let sent = home.gdn_json(&["send", "both 1"]);
    let (trace, event) = (&sent["traceId"], sent["eventId"].as_str().unwrap());
    for of in [trace.as_str().unwrap(), event, "last"] {
        let shown = home.gdn_json(&["trace", of]);
        assert_eq!(shown["traceId"], *trace, "{of}");
        let spans = shown["spans"].as_array().unwrap();
        let turns: Vec<_> = spans.iter().filter(|span| span["kind"] == "turn").collect();
        let turns: Vec<_> = turns
            .iter()
            .map(|turn| (turn["instanceKey"].as_str().unwrap(), &turn["depth"]))
            .collect();
        assert_eq!(
            turns,
            [
                ("main", &Value::from(0)),
                ("left:main", &Value::from(3)),
                ("right:main", &Value::from(3)),
            ]
        );
        assert!(spans.iter().all(|span| span["standing"] == "completed"));
    }
    home.gdn(&["trace"]).exits(0).prints(&[
        "3 turns, 5 steps, 2 tool calls",
        "agents__request",
        "left:main",
    ]);
    home.ask("main", "ask left loop");
    home.gdn(&["trace"])
        .exits(0)
        .prints(&["E_CIRCULAR_REQUEST"]);
    home.gdn(&["trace", "nothing"]).exits(5);
}

#[test]
fn the_example_of_three_agents_can_be_played() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/newsroom");
    let example = example.canonicalize().unwrap();
    let example = example.to_str().unwrap();
    let home = Home::without_project();
    let _daemon = Daemon::start(&home);
    home.gdn(&["run", example]).exits(0);
    let send = |text: &str| {
        let sent = home.gdn(&["send", "--project", example, text]).exits(0);
        sent.stdout
    };
    assert_eq!(
        send("report on bees"),
        "What we know about bees. A hive may hold 50,000 bees. One bee visits some 2,000 flowers a \
         day.\n"
    );
    let unknown = send("report on unicorns");
    assert!(
        unknown.starts_with("There will be no report: E_AGENT_FAILED"),
        "{unknown}"
    );
    let catalog = send("who is there");
    assert!(catalog.contains("researcher: Finds facts"), "{catalog}");
}

const KEYS: [&str; 3] = ["a", "b", "c"];
/// Questions of each conversation, unless `GOONDAN_TEST_ROUNDS` is set.
const ROUNDS: usize = 12;

/// Goal: each question is asked once and answered once, although askers, workers and the daemon are
/// killed at random.
///
/// Method: an external client records what was accepted, and checks every conversation at the end.
#[test]
fn ipc_2_questions_between_agents_are_answered_once_over_kills() {
    let rounds = std::env::var("GOONDAN_TEST_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    let home = Home::new(TEAM);
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    let mut shots = 0;
    for round in 0..rounds {
        for key in KEYS {
            let (id, input) = (format!("{key}-{round}"), format!("both {round}"));
            let send = [
                "send",
                "--no-wait",
                "--instance",
                key,
                "--event-id",
                &id,
                &input,
            ];
            wait_until("the question is accepted", || home.gdn(&send).code == 0);
        }
        for _ in 0..random.below(6) {
            if let Some(process) = random.choose(&home.running(AGENT)) {
                processes::signal(process.pid, Signal::SIGKILL);
                shots += 1;
            }
            random.let_pass(40);
        }
        if random.below(3) == 0 {
            drop(daemon.kill());
            while random.below(3) == 0 {
                drop(Daemon::start(&home).kill());
            }
            daemon = Daemon::start(&home);
        }
    }
    assert!(shots >= rounds / 2, "only {shots} shots at agents");
    // Events that were hit three times by chance are parked, and retried.
    let mut retried: Vec<String> = Vec::new();
    wait_until("everything is answered", || {
        let found = home.gdn_json(&["event", "retry", "--all"])["eventIds"].clone();
        retried.extend(serde_json::from_value::<Vec<String>>(found).unwrap());
        home.gdn_json(&["event", "list"])["events"] == serde_json::json!([])
    });
    let is_of = |id: &String, key: &str| id.split_once('-').is_some_and(|(of, _)| of == key);
    let parked = |key: &str| retried.iter().filter(|id| is_of(id, key)).count();
    // The asking agent was notified that there is no answer, and continued.
    let unanswered = retried.len() - KEYS.iter().map(|key| parked(key)).sum::<usize>();
    let all: BTreeSet<String> = (0..rounds).map(|round| round.to_string()).collect();
    for key in KEYS {
        let messages = home.history(key);
        check(&messages);
        let asked = said_by(&messages, "user", "both ", "");
        assert_eq!(asked, all, "{messages:#?}");
        let answered: Vec<String> = messages
            .iter()
            .filter(|message| role(message) == "assistant" && !text(message).is_empty())
            .map(text)
            .collect();
        let expected = |n: &String| format!("both {n}: right did {n} after left did {n}");
        let expected: BTreeSet<String> = all.iter().map(expected).collect();
        assert_eq!(answered.len(), rounds, "{answered:#?}");
        let answered = answered.into_iter().collect::<BTreeSet<_>>();
        let missing = expected.difference(&answered).count();
        assert!(missing <= unanswered, "{answered:#?}, {retried:?}");
        for worker in ["left", "right"] {
            let messages = home.history(&format!("{worker}:{key}"));
            check(&messages);
            // A parked turn starts over when it is retried, and repeats its requests.
            let (least, most) = (rounds - unanswered, rounds + parked(key));
            let exchanges = messages.len() / 2;
            assert!(
                (least..=most).contains(&exchanges) && messages.len().is_multiple_of(2),
                "{worker} was asked {exchanges} times in {rounds} questions of {key}; parked: {retried:?}"
            );
            let asked = said_by(&messages, "user", "do ", " after");
            let missing = all.difference(&asked).count();
            assert!(
                missing <= unanswered && asked.is_subset(&all),
                "{messages:#?}"
            );
        }
    }
    drop(daemon);
}

/// Texts of messages with this role, between a prefix and a suffix.
fn said_by(messages: &[Value], who: &str, before: &str, after: &str) -> BTreeSet<String> {
    let said = messages.iter().filter(|message| role(message) == who);
    said.map(|message| {
        let text = text(message);
        let rest = text.strip_prefix(before).unwrap();
        let cut = rest.split_once(after).filter(|_| !after.is_empty());
        cut.map_or(rest, |(said, _)| said).to_owned()
    })
    .collect()
}
