//! The extension `message-compaction`: a summary replaces old messages.

use std::sync::mpsc::channel;

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest, openai_saying};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, text};

/// An agent that remembers facts while they are in the conversation. Its summaries take `DELAY`
/// milliseconds.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {system: 'You summarize', user: '(?s)my name is (?P<name>\w+)'}
        delayMs: DELAY
        say: "The name is ${name}."
      - when: {user: '^Who am I', history: '(?s)Summary.*name is (?P<name>\w+)'}
        say: "You are ${name}, by the summary."
      - say: "I hear ${input}."
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  extensions:
    - ref: {kind: Extension, name: message-compaction, package: "@goondan/base"}
      config: {maxMessages: 8, keepMessages: 2}
"#;

fn fill(home: &Home) {
    home.ask("main", "my name is Ann");
    for n in 0..3 {
        assert_eq!(
            home.ask("main", &format!("fact {n}")),
            format!("I hear fact {n}.")
        );
    }
}

fn texts(home: &Home) -> Vec<String> {
    home.history("main").iter().map(text).collect()
}

const COMPACTED: [&str; 5] = [
    "Summary of the conversation so far:\n\nThe name is Ann.",
    "fact 2",
    "I hear fact 2.",
    "Who am I?",
    "You are Ann, by the summary.",
];

#[test]
fn msg_3_old_messages_give_way_to_a_summary_over_restarts() {
    let home = Home::new(&PROJECT.replace("DELAY", "0"));
    let daemon = Daemon::serving(&home);
    fill(&home);
    assert_eq!(home.history("main").len(), 8);
    assert_eq!(
        home.ask("main", "Who am I?"),
        "You are Ann, by the summary."
    );
    check(&home.history("main"));
    assert_eq!(texts(&home), COMPACTED);
    let summary = &home.history("main")[0];
    assert_eq!(summary["source"]["type"], "extension");
    assert_eq!(summary["metadata"]["summarizedMessages"], 6);
    drop(daemon.stop());

    let _daemon = Daemon::start(&home);
    assert_eq!(texts(&home), COMPACTED);
    // The next summary includes the previous one.
    for n in 3..5 {
        home.ask("main", &format!("fact {n}"));
    }
    assert_eq!(
        home.ask("main", "Who am I?"),
        "You are Ann, by the summary."
    );
    home.gdn(&["verify"]).exits(0);
}

#[test]
fn msg_8_process_killed_during_a_summary_finally_makes_one() {
    let home = Home::new(&PROJECT.replace("DELAY", "1500"));
    let daemon = Daemon::serving_with_details(&home);
    fill(&home);
    let asking = home.start_gdn(&["send", "Who am I?"]);
    wait_until("the summary is asked for", || {
        let started = daemon.log().saying("step.started");
        let is_summary = |line: &Value| {
            let step = line["stepId"].as_str().unwrap_or_default();
            step.ends_with(".s6")
        };
        started.iter().any(is_summary)
    });
    processes::signal(home.running(AGENT)[0].pid, Signal::SIGKILL);
    assert_eq!(
        asking.wait().exits(0).stdout,
        "You are Ann, by the summary.\n"
    );
    check(&home.history("main"));
    assert_eq!(texts(&home), COMPACTED);
    drop(daemon.stop());
}

/// An agent that summarizes a conversation of more than four messages, with a model at `provider`.
fn hosted(provider: &Provider) -> String {
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {}
  apiKey: {{value: sk-x}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  extensions:
    - ref: {{kind: Extension, name: message-compaction, package: "@goondan/base"}}
      config: {{maxMessages: 4, keepMessages: 0}}
"#,
        provider.endpoint()
    )
}

fn asks_for_summary(received: &ReceivedRequest) -> bool {
    let system = received.body["messages"][0]["content"].as_str();
    system.is_some_and(|text| text.starts_with("You summarize"))
}

#[test]
fn msg_8_recorded_summary_is_used_after_a_kill_before_its_use() {
    for is_daemon_killed in [false, true] {
        let (go, wait) = channel::<()>();
        let provider = Provider::start(move |received| {
            if !asks_for_summary(received) {
                return ProviderResponse::stream(&openai_saying(&["Yes."]));
            }
            wait.recv().unwrap();
            ProviderResponse::stream(&openai_saying(&["All is well."]))
        });
        let home = Home::new(&hosted(&provider));
        let mut daemon = Daemon::serving(&home);
        for question in ["one", "two"] {
            home.ask("main", question);
        }
        let ask = ["send", "--event-id", "e3", "three"];
        let asking = home.start_gdn(&ask);
        wait_until("the summary is asked for", || {
            provider.received().len() == 3
        });
        // The agent does not receive the reply, which is recorded anyway.
        let agent = home.running(AGENT)[0].pid;
        processes::signal(agent, Signal::SIGSTOP);
        go.send(()).unwrap();
        let journal = home
            .workspace_dir()
            .join("instances/main/messages/events.jsonl");
        wait_until("the summary is recorded", || {
            std::fs::read_to_string(&journal).is_ok_and(|text| text.contains(".s4:a\""))
        });
        assert_eq!(home.history("main").len(), 6, "no message gave way to it");
        if is_daemon_killed {
            drop(daemon.kill());
            processes::signal(agent, Signal::SIGKILL);
            asking.wait().exits(9);
            daemon = Daemon::start(&home);
            assert_eq!(home.gdn(&ask).exits(0).stdout, "Yes.\n");
        } else {
            processes::signal(agent, Signal::SIGKILL);
            assert_eq!(asking.wait().exits(0).stdout, "Yes.\n");
        }
        let summaries = provider.received();
        let summaries = summaries.iter().filter(|it| asks_for_summary(it)).count();
        assert_eq!(summaries, 1, "the recorded one was used");
        assert_eq!(provider.received().len(), 4);
        check(&home.history("main"));
        let expected = [
            "Summary of the conversation so far:\n\nAll is well.",
            "three",
            "Yes.",
        ];
        assert_eq!(texts(&home), expected);
        let used = home.gdn_json(&["usage"]);
        assert_eq!(used["rows"][0]["spending"]["replies"], 4, "{used}");
        home.gdn(&["verify"]).exits(0);
        drop(daemon.stop());
    }
}

#[test]
fn summary_usage_is_counted_and_a_failed_summary_only_warns() {
    // The third question is the first with a summary before it; the summary of the fifth fails.
    let provider =
        Provider::start(
            |received| match (asks_for_summary(received), received.number) {
                (true, 0..=3) => ProviderResponse::stream(&openai_saying(&["All is well."])),
                (true, _) => {
                    ProviderResponse::error(400, &serde_json::json!({"error": {"message": "No."}}))
                }
                (false, _) => ProviderResponse::stream(&openai_saying(&["Yes."])),
            },
        );
    let home = Home::new(&hosted(&provider));
    let daemon = Daemon::serving(&home);
    for question in ["one", "two"] {
        assert_eq!(home.ask("main", question), "Yes.");
    }
    // Only the answer is streamed, not the summary.
    let streamed = home.gdn(&["send", "--stream", "three"]).exits(0);
    assert_eq!(streamed.stdout, "Yes.\n");
    assert_eq!(home.history("main").len(), 3);
    assert_eq!(provider.received().len(), 4);
    let used = home.gdn_json(&["usage"]);
    assert_eq!(used["rows"][0]["spending"]["replies"], 4, "{used}");

    assert_eq!(home.ask("main", "four"), "Yes.");
    assert_eq!(
        home.ask("main", "five"),
        "Yes.",
        "the whole conversation was asked"
    );
    assert_eq!(home.history("main").len(), 7);
    let log = daemon.stop();
    let told = log.lines().iter().any(|line| {
        let line = line.to_string();
        line.contains("no summary could be made, the conversation stays whole")
    });
    assert!(told, "it is in the log");
}
