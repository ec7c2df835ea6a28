//! An agent that delegates to command-line agents with the tool `tasks`: a task is created once,
//! whichever process is killed, and belongs to that conversation alone (`TASK-8`).

use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// A chief that creates a task for each order and waits for it, and a program that waits for a file
/// `go` in the project.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/chief"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  sandbox: {require: off}
  runtime: {kind: cli, command: [./worker.sh]}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: chief}
spec:
  modelConfig: {modelRef: Model/chief}
  tools:
    - {kind: Tool, name: tasks, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: office}
spec: {entryAgent: Agent/chief}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: chief}
spec:
  provider: scripted
  options:
    rules:
      - when: {error: true}
        say: "${result}"
      - when: {user: '^give (?P<what>.+)$', step: 1}
        call: [{tool: tasks__create, args: {title: "${what}", description: "Do ${what}.", maxTokens: 5000}}]
      - when: {user: '^give ', result: '^(?P<id>[\w-]+): ', step: 2}
        call: [{tool: tasks__wait, args: {taskId: "${id}", timeoutMs: 600000}}]
      - when: {user: '^give ', step: 3}
        say: "${result}"
      - when: {user: '^look at (?P<id>.+)$', step: 1}
        call: [{tool: tasks__status, args: {taskId: "${id}"}}]
      - when: {user: '^which$', step: 1}
        call: [{tool: tasks__status, args: {}}]
      - say: "${result}"
"#;

/// Logs its start, and completes when it is released.
const WORKER: &str = "#!/bin/sh
echo \"$$\" >> \"$1\"
cat > /dev/null
while [ ! -e {project}/go ]; do sleep 0.05; done
echo written > menu.txt
";

fn office() -> Home {
    let home = Home::new(PROJECT);
    let worker = WORKER.replace("\"$1\"", "{project}/begun");
    let worker = worker.replace("{project}", home.project().to_str().unwrap());
    home.write_program("project/worker.sh", &worker);
    home
}

fn let_go(home: &Home) {
    home.write("project/go", "");
}

fn tasks(home: &Home) -> Vec<Value> {
    let listed = home.gdn_json(&["task", "list", "--all"]);
    listed["tasks"].as_array().unwrap().clone()
}

fn wait_for_the_worker(home: &Home) {
    let begun = home.project().join("begun");
    wait_until("the worker has begun", || begun.exists());
}

#[test]
fn task_8_an_agent_gives_a_task_and_waits_until_it_has_ended() {
    let home = office();
    let _daemon = Daemon::serving(&home);
    let_go(&home);
    let reply = home.ask("main", "give the menu");
    assert!(
        reply.contains(": the menu (worker), completed") && reply.contains("task completed"),
        "{reply}"
    );
    let tasks = tasks(&home);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let id = tasks[0]["taskId"].as_str().unwrap();
    assert!(id.starts_with("task_"), "{id}");
    assert_eq!(tasks[0]["createdBy"], "main");
    let shown = home.gdn_json(&["task", "show", id]);
    assert_eq!(shown["budget"]["tokens"], 5000);
    assert_eq!(shown["description"], "Do the menu.");
    home.gdn(&["task", "show", id])
        .exits(0)
        .prints(&["by the agent of main"]);
    assert!(home.ask("main", "which").starts_with(id));
    // Another conversation has no access to it.
    assert_eq!(home.ask("other", "which"), "this conversation has no tasks");
    let refused = home.ask("other", &format!("look at {id}"));
    assert!(refused.starts_with("E_NO_TASK"), "{refused}");
}

#[test]
fn task_8_waiting_agent_is_notified_if_its_task_needs_a_person() {
    let home = office();
    // It cannot continue without a person: the agent is notified immediately.
    let asks = "#!/bin/sh\nprintf '[USER_QUESTION]\\nquestion: Which soup?\\nrequired: true\\n[/USER_QUESTION]\\n'\n";
    home.write_program("project/worker.sh", asks);
    let _daemon = Daemon::serving(&home);
    let unknown = home.ask("main", "look at nothing");
    assert!(unknown.starts_with("E_NO_TASK"), "{unknown}");
    let reply = home.ask("main", "give the menu");
    assert!(
        reply.contains("waiting_question") && reply.contains("Which soup?"),
        "{reply}"
    );
}

#[test]
fn task_8_task_is_created_once_over_kills_while_its_agent_waits() {
    let home = office();
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "give the menu", "--no-wait"]).exits(0);
    wait_for_the_worker(&home);
    // The agent first, then the daemon: the turn resumes each time, and repeats the same request.
    let agent = home.ps_agent("main").unwrap();
    let pid = u32::try_from(agent["pid"].as_u64().unwrap()).unwrap();
    goondan_tests::processes::signal(pid, goondan_tests::processes::Signal::SIGKILL);
    wait_until("another process works", || {
        home.ps_agent("main").is_some_and(|agent| {
            agent["pid"]
                .as_u64()
                .is_some_and(|new| new != u64::from(pid))
        })
    });
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    let_go(&home);
    wait_until("the turn is over, with a person who says go on", || {
        for task in tasks(&home) {
            // The outcome of a program that was killed with its daemon is unknown.
            if task["status"] == "waiting_question" {
                let id = task["taskId"].as_str().unwrap();
                home.gdn(&["task", "answer", id, "go on"]).exits(0);
            }
        }
        let history = home.gdn_json(&["instance", "history"]);
        history["pending"].as_array().unwrap().is_empty()
    });
    let tasks = tasks(&home);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
}
