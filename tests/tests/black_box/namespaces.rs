//! Conversation and event names from senders of a connection are in that connection's namespace
//! (`SEC-9`).

use std::net::SocketAddr;

use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::Value;

use crate::conversation::{check, text};

/// Two webhooks, with these ingress rules each.
fn project(rules: &str) -> String {
    let hook = |name: &str| {
        format!(
            r#"
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: {name}}}
spec:
  connectorRef: {{kind: Connector, name: webhook, package: "@goondan/base"}}
  config: {{path: /hook}}
{rules}"#
        )
    };
    let model = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options: {rules: [{when: {user: '^(?P<text>.*)$'}, say: "heard ${text}"}]}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec: {modelConfig: {modelRef: Model/main}}
"#;
    model.to_owned() + &hook("hook") + &hook("other")
}

/// A rule that uses senders' names of conversations unchanged.
const SHARED: &str = "  ingress: {rules: [{route: {instanceKeyPrefix: \"\"}}]}\n";

fn post(address: SocketAddr, key: &str, event_id: &str, said: &str) -> Value {
    let headers = [
        ("x-goondan-instance-key", key),
        ("x-goondan-event-id", event_id),
    ];
    let response = http::post(address, "/hook", &headers, said).unwrap();
    assert_eq!(response.status, 202, "{response:?}");
    assert_eq!(response.json()["eventId"], event_id);
    response.json()["duplicate"].clone()
}

/// User messages of a conversation, once it has answered this many times.
#[track_caller]
fn replies(home: &Home, key: &str, answers: usize) -> Vec<String> {
    wait_until("it has answered", || {
        let listed = home.gdn_json(&["instance", "list"]).to_string();
        listed.contains(&format!("\"{key}\"")) && home.history(key).len() == 2 * answers
    });
    let messages = home.history(key);
    check(&messages);
    messages.iter().step_by(2).map(text).collect()
}

#[test]
fn sec_9_sender_cannot_take_keys_or_events_of_other_connections() {
    let home = Home::new(&project(""));
    let daemon = Daemon::serving(&home);
    let (hook, other) = (daemon.webhook("hook"), daemon.webhook("other"));
    // Before a conversation of that name exists elsewhere.
    assert_eq!(post(hook, "main", "1", "intruding"), false);
    assert_eq!(post(hook, "telegram:178", "1", "intruding"), false);
    assert_eq!(post(other, "telegram:178", "1", "intruding, too"), false);
    assert_eq!(post(other, "hook:main", "2", "by its whole name"), false);
    let sent = home.gdn_json(&["send", "--event-id", "1", "mine"]);
    assert_eq!(sent["duplicate"], false);
    assert_eq!(sent["outcome"]["reply"], "heard mine");
    assert_eq!(replies(&home, "main", 1), ["mine"]);
    assert_eq!(replies(&home, "hook:main", 1), ["intruding"]);
    assert_eq!(replies(&home, "hook:telegram:178", 1), ["intruding"]);
    assert_eq!(replies(&home, "other:telegram:178", 1), ["intruding, too"]);
    assert_eq!(replies(&home, "other:hook:main", 1), ["by its whole name"]);
    // A repetition is the same event.
    assert_eq!(post(hook, "main", "1", "intruding"), true);
}

#[test]
fn sec_9_rule_shares_conversations_but_keeps_events_separate() {
    let home = Home::new(&project(SHARED));
    let daemon = Daemon::serving(&home);
    let (hook, other) = (daemon.webhook("hook"), daemon.webhook("other"));
    assert_eq!(post(hook, "main", "1", "by one"), false);
    assert_eq!(replies(&home, "main", 1), ["by one"]);
    assert_eq!(post(other, "main", "1", "by the other"), false);
    assert_eq!(replies(&home, "main", 2), ["by one", "by the other"]);
    home.gdn(&["send", "--event-id", "1", "by a person"])
        .exits(0);
    assert_eq!(replies(&home, "main", 3).last().unwrap(), "by a person");
    assert_eq!(post(hook, "main", "1", "by one"), true);
    assert_eq!(post(other, "main", "1", "by the other"), true);
}

#[test]
fn sec_9_older_conversation_keeps_its_key_if_it_was_exclusive() {
    let home = Home::new(&project(SHARED));
    let daemon = Daemon::serving(&home);
    let hook = daemon.webhook("hook");
    // Like all keys before they were namespaced by connection.
    post(hook, "ann", "1", "before");
    replies(&home, "ann", 1);
    home.gdn(&["send", "mine"]).exits(0);
    daemon.stop();
    home.write("project/goondan.yaml", &project(""));
    let daemon = Daemon::serving(&home);
    let (hook, other) = (daemon.webhook("hook"), daemon.webhook("other"));
    for n in 2..4 {
        post(hook, "ann", &n.to_string(), "after");
        post(other, "ann", &n.to_string(), "a stranger");
        post(hook, "main", &n.to_string(), "a stranger");
    }
    assert_eq!(replies(&home, "ann", 3), ["before", "after", "after"]);
    assert_eq!(replies(&home, "other:ann", 2), ["a stranger"; 2]);
    assert_eq!(replies(&home, "hook:main", 2), ["a stranger"; 2]);
    assert_eq!(replies(&home, "main", 1), ["mine"]);
}
