//! Retention of conversations.

use std::fs;

use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

#[test]
fn llm_1_every_model_message_is_logged_with_its_turn() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "work 7"), "worked 7");
    let messages = home.workspace_dir().join("instances/main/messages");
    let logged: Vec<Value> = fs::read_to_string(messages.join("llm.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let roles: Vec<&str> = logged
        .iter()
        .map(|line| line["message"]["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    for line in &logged {
        assert_eq!(line["type"], "llm.message");
        assert_eq!(line["instanceId"], "main");
        assert_eq!(line["agentName"], "worker");
        assert_eq!(line["turnId"], logged[0]["turnId"]);
        assert!(line["recordedAt"].is_string());
    }
    assert!(logged[0]["stepId"].is_null());
    // The same ids as in the conversation, so that records can be joined.
    let base = fs::read_to_string(messages.join("base.jsonl")).unwrap();
    let base: Vec<Value> = base
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for place in [1, 3] {
        let step = &logged[place]["stepId"];
        assert!(step.is_string(), "{}", logged[place]);
        assert_eq!(*step, base[place]["source"]["stepId"]);
    }
    let observed = fs::read_to_string(messages.join("runtime-events.jsonl")).unwrap();
    let called = observed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["type"] == "tool.called")
        .unwrap();
    assert_eq!(called["stepId"], base[1]["source"]["stepId"]);
    let calls = base[1]["data"]["content"].as_array().unwrap();
    let call = calls.iter().find(|part| part["type"] == "tool-call");
    assert_eq!(called["toolCallId"], call.unwrap()["toolCallId"]);
    assert_eq!(logged[3]["message"]["content"], "worked 7");
}

#[test]
fn inst_7_old_conversations_are_shown_and_then_deleted() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    for key in ["a", "b"] {
        home.ask(key, "echo hello");
    }
    home.gdn(&["instance", "prune", "--older-than", "1d", "--dry-run"])
        .exits(0)
        .prints(&["No conversation is old enough"]);
    let without_policy = home.gdn(&["instance", "prune", "--dry-run"]).exits(2);
    without_policy.tells(&["--older-than", "ttlSeconds"]);

    // A conversation with a turn in progress is not old, even if the clock jumps.
    let asking = home.start_gdn(&["send", "--instance", "c", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let args = ["instance", "prune", "--older-than", "0s", "--dry-run"];
    let pruned = home.gdn_json(&args);
    assert_eq!(pruned["deleted"], false);
    let keys = |pruned: &Value| -> Vec<String> {
        let instances = pruned["instances"].as_array().unwrap();
        let keys = instances
            .iter()
            .map(|found| found["instanceKey"].as_str().unwrap());
        keys.map(str::to_owned).collect()
    };
    assert_eq!(keys(&pruned), ["a", "b"]);

    let args = ["instance", "prune", "--older-than", "0s"];
    home.gdn(&args).exits(2).tells(&["--yes"]);
    let pruned = home.gdn_json(&["instance", "prune", "--older-than", "0s", "--yes"]);
    assert_eq!(pruned["deleted"], true);
    assert_eq!(keys(&pruned), ["a", "b"]);
    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    assert_eq!(keys(&home.gdn_json(&["instance", "list"])), ["c"]);
}
