//! Tasks count toward the budgets of their workspace and are paused by them, even after the daemon
//! died (`TASK-6`).

use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::Value;

/// A program that reports its usage, and writes nothing until it is released.
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

/// Ledger entries of the worker.
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
fn task_6_task_held_by_workspace_budget_resumes_when_raised() {
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
        .tells(&["resumes automatically when the budget allows it"]);

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

/// A program that reports usage in small steps, 700 tokens in all, and continues until it may exit.
const SPENDER: &str = r#"#!/bin/sh
read -r prompt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"big-1"}'
for n in 0 1 2 3 4 5 6 7 8 9; do
    echo '{"type":"assistant","request_id":"r'$n'","message":{"id":"m'$n'","role":"assistant","model":"big-1","content":[{"type":"text","text":"I work."}],"usage":{"input_tokens":60,"output_tokens":10}}}'
done
echo work > made.txt
while [ ! -e {project}/go ]; do sleep 0.05; done
echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"s-1","usage":{"input_tokens":600,"output_tokens":100}}'
"#;

#[test]
fn task_6_ckpt_5_a_running_task_warns_and_gets_checkpoints() {
    let policy = "budgets: [{for: workspace, tokens: 1000}]";
    let project = PROJECT.replace(policy, "tasks: {checkpointSeconds: 1}");
    let home = Home::new(&project);
    let spender = SPENDER.replace("{project}", home.project().to_str().unwrap());
    home.write_program("project/worker.sh", &spender);
    let _daemon = Daemon::serving(&home);
    let new = ["task", "new", "Menu", "--id", "menu", "--description", "x"];
    let start = ["--max-tokens", "775", "--start"];
    home.gdn(&[&new[..], &start].concat()).exits(0);

    let warning = wait_for("the warning", || {
        task(&home)["warning"].as_str().map(str::to_owned)
    });
    assert!(warning.starts_with("90 % of its budget"), "{warning}");
    assert_eq!(task(&home)["status"], "running", "it goes on");
    home.gdn(&["task", "list"])
        .exits(0)
        .tells(&["menu: 90 % of its budget", "gdn task budget menu"]);
    let shown = home.gdn(&["task", "show", "menu"]).exits(0);
    shown.prints(&["700 of 775 tokens", "90 % of its budget"]);
    let logged = home.gdn(&["task", "logs", "menu", "--log", "agent"]);
    assert!(logged.stdout.contains("90 %"), "{logged:?}");

    // These are created without a request.
    let listed = || home.gdn_json(&["task", "checkpoints", "menu"])["checkpoints"].clone();
    let periodic = wait_for("a checkpoint with what it made", || {
        let all = listed();
        let newest = all
            .as_array()?
            .iter()
            .rfind(|it| it["type"] == "periodic")?;
        Some(newest["checkpointId"].as_str()?.to_owned())
    });
    home.gdn(&["task", "budget", "menu", "--max-tokens", "9000"])
        .exits(0);
    wait_until("the warning is gone", || task(&home)["warning"].is_null());
    home.write("project/go", "");
    wait_for_status(&home, "completed");
    let area = home.workspace_dir().join("tasks/menu");
    let archive = area.join(".checkpoints").join(periodic);
    let json = |path: &std::path::Path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let about = json(&archive.join("metadata.json"));
    assert_eq!(
        (&about["type"], &about["tokensUsed"]),
        (&"periodic".into(), &700.into())
    );
    let size = std::fs::metadata(archive.join("snapshot.tar.gz"))
        .unwrap()
        .len();
    assert_eq!(about["snapshotSize"], size);
    // The files of the work area match the daemon's output.
    let [record, state, tokens] = ["task", "agent-state", "tokens"]
        .map(|name| json(&area.join(".metadata").join(name).with_extension("json")));
    assert_eq!(record["status"], "completed");
    assert_eq!(
        (&state["progress"], &state["tokensUsed"]),
        (&100.into(), &700.into())
    );
    let total = &tokens["total"];
    assert_eq!(
        (&total["input"], &total["output"]),
        (&600.into(), &100.into())
    );
    let held = std::process::Command::new("tar")
        .arg("-tzf")
        .arg(archive.join("snapshot.tar.gz"))
        .output()
        .unwrap();
    let names = String::from_utf8(held.stdout).unwrap();
    assert!(names.contains("made.txt"), "{names}");
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
