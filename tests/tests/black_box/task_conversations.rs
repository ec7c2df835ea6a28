//! Agents of `runtime.kind: llm` that work on tasks: each session is a conversation, each run a
//! turn, whichever process is killed (`TASK-8`).

use std::fs;

use goondan_tests::cli_agents::work_area;
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::Value;

/// A worker with two phases: it asks for a key and a word, writes in its work area, and tries
/// forbidden actions.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/writers"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: writer}
spec:
  modelConfig: {modelRef: Model/writer}
  sandbox: {require: off}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
    - {kind: Tool, name: file-system, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: office}
spec: {entryAgent: Agent/writer}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: writer}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^Write a book', step: 1}
        say: |
          I need something.
          [DEPENDENCY_REQUEST]
          type: api_key
          name: PRESS_KEY
          description: the key of the press
          required: true
          [/DEPENDENCY_REQUEST]
      - when: {user: 'in your environment', step: 1}
        call: [{tool: bash__exec, args: {command: "printf %s $PRESS_KEY | wc -c > docs/key; pwd > docs/where; echo run >> docs/runs"}}]
      - when: {user: 'in your environment', step: 2}
        call: [{tool: file-system__write, args: {path: .metadata/task.json, content: "lies"}}]
      - when: {user: 'in your environment', tool: file-system__write, error: false}
        say: It let me write what is not mine.
      - when: {user: 'in your environment', tool: file-system__write, error: true}
        say: |
          [USER_QUESTION]
          category: choice
          question: Which title?
          options: [Soup, Bread]
          required: true
          [/USER_QUESTION]
      - when: {user: 'Which title.*: (?P<title>\w+)', step: 1}
        call: [{tool: file-system__write, args: {path: docs/title.txt, content: "${title}"}}]
      - when: {user: 'Which title'}
        say: |
          === PHASE 1 COMPLETE ===
          Documents created:
          - docs/title.txt
      - when: {user: 'Phase 1 is approved', step: 1}
        call: [{tool: bash__exec, args: {command: "echo second >> docs/runs; while [ ! -e {project}/go ]; do sleep 0.05; done"}}]
      - when: {user: 'interrupted|Go on', step: 1}
        call: [{tool: bash__exec, args: {command: "echo again >> docs/runs"}}]
      - when: {step: 2}
        say: |
          === PHASE 2 COMPLETE ===
          Documents created:
          - docs/title.txt
      - say: I do not know what to do.
"#;

fn writers() -> Home {
    let home = Home::new("");
    let project = PROJECT.replace("{project}", home.project().to_str().unwrap());
    home.write("project/goondan.yaml", &project);
    home
}

fn task(home: &Home) -> Value {
    home.gdn_json(&["task", "show", "book"])
}

fn wait_for_status(home: &Home, status: &str) -> Value {
    wait_for(&format!("the task is {status}"), || {
        Some(task(home)).filter(|shown| shown["info"]["status"] == status)
    })
}

fn begin(home: &Home) {
    let new = [
        "task",
        "new",
        "Book",
        "--id",
        "book",
        "--description",
        "Write a book.",
        "--phases",
        "2",
        "--start",
    ];
    home.gdn(&new).exits(0);
}

fn provide(home: &Home) {
    home.write("key", "sk-never-to-be-seen-0815");
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let mut command = home.command(&gdn, &["task", "provide", "book"]);
    command.stdin(fs::File::open(home.path().join("key")).unwrap());
    let output = command.output().unwrap();
    fs::remove_file(home.path().join("key")).unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Continues to the second phase, whose command waits until it is released.
fn go_to_the_second_phase(home: &Home) {
    begin(home);
    wait_for_status(home, "waiting_dependency");
    provide(home);
    wait_for_status(home, "waiting_question");
    home.gdn(&["task", "answer", "book", "Soup"]).exits(0);
    wait_for_status(home, "waiting_review");
    home.gdn(&["task", "approve", "book"]).exits(0);
    wait_until("the second phase has begun", || {
        runs(home).ends_with("second\n")
    });
}

fn let_go(home: &Home) {
    home.write("project/go", "");
}

/// Log of its commands.
fn runs(home: &Home) -> String {
    let path = work_area(home, "book").join("docs/runs");
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn task_8_agent_with_a_model_keeps_one_conversation_per_task() {
    let home = writers();
    let daemon = Daemon::serving(&home);
    go_to_the_second_phase(&home);
    let area = work_area(&home, "book");
    assert_eq!(
        fs::read_to_string(area.join("docs/key")).unwrap().trim(),
        "24"
    );
    let place = fs::read_to_string(area.join("docs/where")).unwrap();
    assert_eq!(
        fs::canonicalize(place.trim()).unwrap(),
        fs::canonicalize(&area).unwrap()
    );
    assert_eq!(
        fs::read_to_string(area.join("docs/title.txt")).unwrap(),
        "Soup"
    );
    let asked = home.history("task:book.1");
    let texts: String = asked.iter().map(ToString::to_string).collect();
    assert!(texts.contains("E_PATH_READ_ONLY"), "{texts}");
    // Other clients cannot send to it, and the key is not shown.
    home.gdn(&["send", "--instance", "task:book.1", "Hello."])
        .exits(2)
        .tells(&["conversations named `task:…` belong to tasks"]);
    assert!(!texts.contains("sk-never-to-be-seen"), "{texts}");
    let_go(&home);
    wait_for_status(&home, "waiting_review");
    home.gdn(&["task", "approve", "book"]).exits(0);
    wait_for_status(&home, "completed");
    assert_eq!(runs(&home), "run\nsecond\n");
    let logs = home
        .gdn(&["task", "logs", "book", "--log", "stdout"])
        .exits(0)
        .stdout;
    assert!(logs.contains("=== PHASE 2 COMPLETE ==="), "{logs}");
    home.gdn(&["task", "rm", "book", "--yes"]).exits(0);
    wait_until("its conversation is gone with it", || {
        let listed = home.gdn_json(&["instance", "list"]);
        !listed.to_string().contains("task:book")
    });
    daemon.stop().check(false);
}

#[test]
fn task_8_task_turn_survives_daemon_death_and_is_no_second_run() {
    let home = writers();
    let daemon = Daemon::serving(&home);
    begin(&home);
    wait_for_status(&home, "waiting_dependency");
    daemon.kill();
    let daemon = Daemon::serving(&home);
    provide(&home);
    wait_for_status(&home, "waiting_question");
    daemon.kill();
    let daemon = Daemon::serving(&home);
    wait_for_status(&home, "waiting_question");
    home.gdn(&["task", "answer", "book", "Soup"]).exits(0);
    wait_for_status(&home, "waiting_review");
    home.gdn(&["task", "approve", "book"]).exits(0);
    let history = work_area(&home, "book").join(".metadata/history.jsonl");
    let history = || fs::read_to_string(&history).unwrap();
    let begun = || history().matches("\"event\":\"agent_started\"").count();
    // Its history may be written after its agent's work.
    wait_until("the second phase has begun", || {
        runs(&home).ends_with("second\n") && begun() == 4
    });
    daemon.kill();
    let_go(&home);
    let daemon = Daemon::serving(&home);
    wait_for_status(&home, "waiting_review");
    home.gdn(&["task", "approve", "book"]).exits(0);
    wait_for_status(&home, "completed");
    assert_eq!(begun(), 4, "{}", history());
    daemon.stop().check(false);
}

#[test]
fn task_8_pause_ends_the_turn_and_task_resumes_in_conversation() {
    let home = writers();
    let daemon = Daemon::serving(&home);
    go_to_the_second_phase(&home);
    home.gdn(&["task", "pause", "book"]).exits(0);
    wait_until("no command runs for it", || home.running("bash").is_empty());
    assert_eq!(wait_for_status(&home, "paused")["info"]["status"], "paused");
    home.gdn(&["task", "resume", "book"]).exits(0);
    wait_for_status(&home, "waiting_review");
    assert_eq!(runs(&home), "run\nsecond\nagain\n");
    let texts: String = home
        .history("task:book.1")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(texts.contains("the task is paused"), "{texts}");
    // Canceling the turn itself pauses the task.
    home.gdn(&["task", "rework", "book", "Phase 1 is approved"])
        .exits(0);
    wait_until("it works again", || runs(&home).ends_with("second\n"));
    home.gdn(&["cancel", "--instance", "task:book.1"]).exits(0);
    wait_for_status(&home, "paused");
    home.gdn(&["task", "cancel", "book", "--yes"]).exits(0);
    wait_for_status(&home, "cancelled");
    daemon.stop().check(false);
}

#[test]
fn task_8_after_a_restore_another_conversation_begins() {
    let home = writers();
    let daemon = Daemon::serving(&home);
    go_to_the_second_phase(&home);
    home.gdn(&["task", "pause", "book"]).exits(0);
    wait_until("no command runs for it", || home.running("bash").is_empty());
    home.gdn(&["task", "restore", "book", "--yes"]).exits(0);
    let_go(&home);
    home.gdn(&["task", "resume", "book"]).exits(0);
    wait_until("it works in another conversation", || {
        let listed = home.gdn_json(&["instance", "list"]).to_string();
        (2..9).any(|run| listed.contains(&format!("task:book.{run}")))
    });
    daemon.stop().check(false);
}

/// An agent that delegates its input to the only available agent.
const IDLER: &str = r#"
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: idler}
spec:
  modelConfig: {modelRef: Model/idler}
  tools:
    - {kind: Tool, name: tasks, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: idler}
spec:
  provider: scripted
  options:
    rules:
      - when: {step: 1}
        call: [{tool: tasks__create, args: {title: More, description: "Do it."}}]
      - say: "${result}"
"#;

#[test]
fn task_8_an_agent_that_works_for_a_task_gives_no_tasks() {
    let home = Home::new(IDLER);
    let daemon = Daemon::serving(&home);
    home.ask("main", "Do something.");
    let tasks = || {
        let listed = home.gdn_json(&["task", "list", "--all"]);
        listed["tasks"].as_array().unwrap().clone()
    };
    wait_until("the task is done", || tasks()[0]["status"] == "completed");
    assert_eq!(tasks().len(), 1);
    let id = tasks()[0]["taskId"].as_str().unwrap().to_owned();
    let text: String = home
        .history(&format!("task:{id}.1"))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(text.contains("cannot create tasks"), "{text}");
    daemon.stop().check(false);
}

/// A model with priced calls.
fn priced(provider: &Provider, budgets: &str) -> String {
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec: {{provider: openai, model: big-1, endpoint: "{}"}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: writer}}
spec:
  modelConfig: {{modelRef: Model/hosted, params: {{maxTokens: 100}}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: office}}
spec:
  entryAgent: Agent/writer
  {budgets}
"#,
        provider.endpoint()
    )
}

#[test]
fn task_6_conversation_usage_counts_once_and_stays_in_budget() {
    let asks = "[USER_QUESTION]\nquestion: Go on?\nrequired: true\n[/USER_QUESTION]\n";
    let provider = Provider::start(move |_| ProviderResponse::stream(&openai_saying(&[asks])));
    let home = Home::new(&priced(&provider, ""));
    let daemon = Daemon::serving(&home);
    let new = [
        "task",
        "new",
        "Book",
        "--id",
        "book",
        "--description",
        "Write.",
        "--start",
        "--max-tokens",
        "2000",
    ];
    home.gdn(&new).exits(0);
    let shown = wait_for_status(&home, "waiting_question");
    let tokens = shown["info"]["tokens"].as_u64().unwrap();
    assert_eq!(tokens, 13, "{shown}");
    let usage = home.gdn_json(&["usage", "--by", "instance"]);
    let rows = usage["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{usage}");
    assert_eq!(rows[0]["key"], "task:book.1");
    // No request is made that might exceed the rest of the budget.
    home.gdn(&["task", "budget", "book", "--max-tokens", "60"])
        .exits(0);
    home.gdn(&["task", "answer", "book", "yes"]).exits(0);
    let held = wait_for_status(&home, "paused");
    assert_eq!(held["info"]["blockedBy"], "budget", "{held}");
    assert_eq!(provider.received().len(), 1);
    home.gdn(&["task", "budget", "book", "--max-tokens", "2000"])
        .exits(0);
    home.gdn(&["task", "resume", "book"]).exits(0);
    let shown = wait_for_status(&home, "waiting_question");
    assert_eq!(shown["info"]["tokens"], 26, "{shown}");
    daemon.kill();
    let daemon = Daemon::serving(&home);
    assert_eq!(task(&home)["info"]["tokens"], 26);
    let usage = home.gdn_json(&["usage"]);
    assert_eq!(usage["total"]["usage"]["outputTokens"], 8, "{usage}");
    daemon.stop().check(false);
}

/// A call that needs approval is listed with its task, in the list of pending decisions.
#[test]
fn task_8_task_whose_agent_awaits_an_approval_needs_a_person() {
    let home = writers();
    let asking = PROJECT
        .replace("{project}", home.project().to_str().unwrap())
        .replacen(
            r#"- {kind: Tool, name: bash, package: "@goondan/base"}"#,
            r#"- {ref: {kind: Tool, name: bash, package: "@goondan/base"}, approve: {rules: [{export: exec, when: {command: forbidden}, approve: never}]}}"#,
            1,
        );
    home.write("project/goondan.yaml", &asking);
    let _daemon = Daemon::serving(&home);
    begin(&home);
    wait_for_status(&home, "waiting_dependency");
    provide(&home);
    let shown = wait_for("its call waits", || {
        Some(task(&home)).filter(|shown| shown["info"]["blockedBy"] == "approval")
    });
    assert_eq!(shown["info"]["status"], "running");
    let needing = home.gdn_json(&["task", "list", "--needs-me"]);
    assert_eq!(needing["tasks"][0]["taskId"], "book", "{needing}");
    let id = shown["approvals"][0].as_str().unwrap();
    let page = home.gdn(&["task", "show", "book"]).exits(0);
    page.prints(&["to approve"]).tells(&[
        &format!("gdn inbox approve {id}"),
        &format!("gdn inbox deny {id}"),
    ]);
    home.gdn(&["approve", id]).exits(0);
    wait_for_status(&home, "waiting_question");
    let shown = task(&home);
    assert!(shown.get("approvals").is_none(), "{shown}");
    assert_eq!(runs(&home), "run\n");
}
