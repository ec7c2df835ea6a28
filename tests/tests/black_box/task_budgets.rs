//! Tasks count in the budgets of their workspace and are held by them, also over the death of the daemon (`TASK-6`).

use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::Value;

/// A program that tells what it took, and has nothing to say before it is let.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/frugal"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  sandbox: {require: off}
  runtime:
    kind: cli
    command: [./worker.sh]
    resume: [./worker.sh, "{session}"]
    format: claude-stream-json
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: chief}
spec: {modelConfig: {modelRef: Model/chief}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: chief}
spec: {provider: scripted, options: {rules: [{say: hello}]}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: office}
spec:
  entryAgent: Agent/chief
  policy:
    budgets: [{for: workspace, tokens: 1000}]
"#;

const WORKER: &str = r#"#!/bin/sh
read -r prompt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"big-1"}'
echo '{"type":"assistant","request_id":"r'$$'","message":{"id":"m'$$'","role":"assistant","model":"big-1","content":[{"type":"text","text":"I work."}],"usage":{"input_tokens":600,"output_tokens":100}}}'
while [ ! -e {project}/go ]; do sleep 0.05; done
echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"s-1","usage":{"input_tokens":600,"output_tokens":100}}'
"#;

fn task(home: &Home) -> Value {
    home.gdn_json(&["task", "show", "menu"])["info"].clone()
}

fn wait_for_status(home: &Home, status: &str) -> Value {
    wait_for(&format!("the task is {status}"), || {
        Some(task(home)).filter(|info| info["status"] == status)
    })
}

/// What the ledger has of the worker.
fn counted(home: &Home) -> Vec<(Value, u64)> {
    let usage = home.gdn_json(&["usage", "--by", "instance"]);
    let rows = usage["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        let tokens = &row["spending"]["usage"];
        let tokens = ["inputTokens", "outputTokens"].map(|name| tokens[name].as_u64().unwrap());
        (row["key"].clone(), tokens.iter().sum())
    });
    rows.collect()
}

#[test]
fn task_6_a_task_is_held_by_the_budget_of_its_workspace_and_goes_on_when_that_is_raised() {
    let home = Home::new(PROJECT);
    let worker = WORKER.replace("{project}", home.project().to_str().unwrap());
    home.write_program("project/worker.sh", &worker);
    let daemon = Daemon::serving(&home);
    let new = [
        "task",
        "new",
        "Menu",
        "--id",
        "menu",
        "--description",
        "Write it.",
        "--start",
    ];
    home.gdn(&new).exits(0);
    let held = wait_for_status(&home, "paused");
    assert_eq!(held["blockedBy"], "shared_budget");
    wait_until("its program is ended", || {
        home.running("worker.sh").is_empty()
    });
    assert_eq!(counted(&home), [("task:menu".into(), 700)]);
    home.gdn(&["task", "show", "menu"]).exits(0).prints(&[
        "the budget of 1000 tokens for the workspace",
        "700 tokens spent",
    ]);
    home.gdn(&["task", "resume", "menu"])
        .exits(10)
        .tells(&["goes on by itself when the budget allows it"]);

    daemon.kill();
    let _daemon = Daemon::serving(&home);
    assert_eq!(
        wait_for_status(&home, "paused")["blockedBy"],
        "shared_budget"
    );
    assert_eq!(
        counted(&home),
        [("task:menu".into(), 700)],
        "it counts once"
    );

    home.write("project/go", "");
    home.write(
        "project/goondan.yaml",
        &PROJECT.replace("tokens: 1000", "tokens: 5000"),
    );
    home.gdn(&["reload"]).exits(0);
    wait_for_status(&home, "completed");
    assert_eq!(counted(&home), [("task:menu".into(), 1_400)]);
}

#[test]
fn task_8_an_edit_of_the_configuration_leaves_a_run_alone() {
    let project = PROJECT.replace("tokens: 1000", "tokens: 900000");
    let home = Home::new(&project);
    let worker = WORKER.replace("{project}", home.project().to_str().unwrap());
    home.write_program("project/worker.sh", &worker);
    let _daemon = Daemon::serving(&home);
    let new = [
        "task",
        "new",
        "Menu",
        "--id",
        "menu",
        "--description",
        "Write it.",
        "--start",
    ];
    home.gdn(&new).exits(0);
    wait_until("it works", || task(&home)["tokens"] == 700);
    let before = home.running("worker.sh");
    home.write(
        "project/goondan.yaml",
        &project.replace("say: hello", "say: hi"),
    );
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "hello"), "hi");
    assert_eq!(task(&home)["status"], "running");
    assert_eq!(home.running("worker.sh").len(), before.len());
    home.write("project/go", "");
    wait_for_status(&home, "completed");
    let shown = home.gdn(&["task", "show", "menu"]).exits(0).stdout;
    assert!(!shown.contains("run 2"), "{shown}");
}
