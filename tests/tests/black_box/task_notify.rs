//! Notifications about tasks through connections, in the real daemon (`TASK-8`).

use std::collections::BTreeMap;
use std::fs;

use goondan_tests::provider::{Provider, ProviderResponse};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

/// Secret that a person provides, which must not be in notifications.
const KEY: &str = "sk-never-to-be-told-0815";

/// Asks for a key, then writes it to its output, then completes.
const AGENT: &str = r#"#!/bin/sh
prompt=$(cat)
case $prompt in
*'Answer '*) echo '=== CUSTOM TASK COMPLETE ===' ;;
*'Provided '*)
  printf '[USER_QUESTION]\ncategory: choice\nquestion: Is %s right?\noptions:\n- oh yes\n- no\nrequired: true\n[/USER_QUESTION]\n' "$API_KEY"
  ;;
*) printf '[DEPENDENCY_REQUEST]\ntype: api_key\nname: API_KEY\ndescription: To pay.\nrequired: true\n[/DEPENDENCY_REQUEST]\n' ;;
esac
"#;

/// A project whose notifications about tasks go to a server.
fn home(server: &Provider) -> Home {
    let root = server.endpoint().replace("/v1", "");
    let home = Home::new(&format!(
        r#"apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: coder}}
spec:
  runtime: {{kind: cli, command: [./agent.sh]}}
  notify:
    - connection: Connection/hook
      action: request
      args: {{url: "{root}/tell", body: "${{json}}"}}
      on: [question, dependency, completed]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: http, package: "@goondan/base"}}
  config: {{allow: ["{root}"], allowPrivate: true}}
"#
    ));
    home.write_program("project/agent.sh", AGENT);
    home
}

/// Number of received notifications by kind.
fn notification_counts(server: &Provider) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for received in server.received() {
        let on = received.body["on"].as_str().unwrap().to_owned();
        *told.entry(on).or_default() += 1;
    }
    told
}

/// Runs a notification's command, as a person does who pastes it into a shell.
fn paste(home: &Home, command: &str) {
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let dir = gdn.parent().unwrap().display();
    let script = format!("PATH={dir}:$PATH; {command} < key");
    home.write("project/key", KEY);
    let mut shell = home.command(std::path::Path::new("/bin/sh"), &["-c", &script]);
    let output = shell.current_dir(home.project()).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    fs::remove_file(home.path().join("project/key")).unwrap();
}

/// Command in the last notification of a kind.
fn command(server: &Provider, on: &str) -> String {
    let received = server.received();
    let last = received.iter().rev().find(|it| it.body["on"] == on);
    last.unwrap().body["command"].as_str().unwrap().to_owned()
}

fn shown(home: &Home) -> Value {
    let ran = home.gdn(&["task", "show", "shop", "--json"]);
    if ran.code == 0 { ran.json() } else { json!({}) }
}

fn wait_for(home: &Home, status: &str) {
    wait_until(&format!("the task is {status}"), || {
        shown(home)["info"]["status"] == status
    });
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

#[test]
fn task_8_person_is_notified_with_the_command_and_no_secret() {
    let server = Provider::start(|_| ProviderResponse::json(&json!({})));
    let home = home(&server);
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    wait_until("the notification about the key", || {
        notification_counts(&server).len() == 1
    });
    paste(&home, &command(&server, "dependency"));
    wait_until("the notification about the question", || {
        notification_counts(&server).len() == 2
    });
    let asked = server.received().pop().unwrap().body;
    assert_eq!(asked["taskId"], "shop", "{asked}");
    let need = asked["need"].as_str().unwrap();
    assert!(need.starts_with("Is ") && !need.contains(KEY), "{asked}");
    assert!(asked["command"].as_str().unwrap().contains("'oh yes'"));
    paste(&home, &command(&server, "question"));
    wait_for(&home, "completed");
    wait_until("the notification about its end", || {
        notification_counts(&server).len() == 3
    });
    assert!(
        notification_counts(&server)
            .values()
            .all(|times| *times == 1)
    );
    wait_until("that is known", || {
        let shown = shown(&home);
        let all = shown["notifications"].as_array().unwrap().iter();
        all.filter(|told| told["state"] == "sent").count() == 3
    });
    let page = home.gdn(&["task", "show", "shop"]).exits(0);
    assert!(page.stdout.contains("question by hook request  sent"));
}

/// Gives the task what it waits for, including an answer about a lost run.
fn act(home: &Home) {
    for ask in shown(home)["asks"].as_array().into_iter().flatten() {
        let id = ask["id"].as_str().unwrap();
        match ask["options"][0].as_str() {
            Some(answer) => drop(home.gdn(&["task", "answer", "shop", answer, "--id", id])),
            None => paste(home, "gdn task provide shop"),
        }
    }
}

/// Number of requested notifications, and of those with an unknown outcome.
fn requested(home: &Home) -> (usize, usize) {
    let history = home
        .workspace_dir()
        .join("tasks/shop/.metadata/history.jsonl");
    let history = fs::read_to_string(history).unwrap();
    let count = |event: &str| history.matches(&format!("\"event\":\"{event}\"")).count();
    (
        count("notification_requested"),
        count("notification_failed"),
    )
}

#[test]
fn task_8_notifications_are_neither_repeated_nor_silently_lost() {
    let server = Provider::start(|_| ProviderResponse::json(&json!({})));
    let home = home(&server);
    let mut daemon = Daemon::serving(&home);
    new_task(&home);
    for _ in 0..3 {
        // At any moment from before the start of the run to after the notification.
        drop(daemon.kill());
        daemon = Daemon::start(&home);
        wait_until("the task waits, or is done", || {
            let info = &shown(&home)["info"];
            info["blockedBy"].is_string() || info["status"] == "completed"
        });
        act(&home);
    }
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    wait_until("the task is completed, and all was settled", || {
        act(&home);
        let shown = shown(&home);
        let told = shown["notifications"].as_array().into_iter().flatten();
        let open = told.filter(|told| told["state"] == "waiting").count();
        shown["info"]["status"] == "completed" && open == 0
    });
    drop(daemon.stop());
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for received in server.received() {
        *told
            .entry(received.body["command"].to_string())
            .or_default() += 1;
    }
    assert!(told.values().all(|times| *times == 1), "{told:#?}");
    let (requested, failed) = requested(&home);
    assert!(requested >= 3 && told.len() <= requested, "{told:#?}");
    assert!(told.len() + failed >= requested, "{told:#?} {failed}");
}

#[test]
fn task_8_messages_are_refused_in_a_project_of_only_cli_agents() {
    let server = Provider::start(|_| ProviderResponse::json(&json!({})));
    let home = home(&server);
    home.gdn(&["validate"]).exits(0);
    let _daemon = Daemon::serving(&home);
    let run = home.gdn(&["run"]).exits(0);
    assert!(
        run.stderr.contains("Create a task: gdn task new"),
        "{run:?}"
    );
    for send in [
        &["send", "Hello?"][..],
        &["send", "--agent", "coder", "Hello?"],
    ] {
        let refused = home.gdn(send);
        assert_ne!(refused.code, 0);
        assert!(refused.stderr.contains("gdn task new"), "{refused:?}");
    }
    new_task(&home);
    wait_for(&home, "waiting_dependency");
}

/// An agent with a model asks a person, who is notified through the connection of its `notify`.
#[test]
fn task_8_people_are_notified_about_tasks_of_agents_with_models() {
    let server = Provider::start(|_| ProviderResponse::json(&json!({})));
    let root = server.endpoint().replace("/v1", "");
    let home = Home::new(&format!(
        r#"apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: writer}}
spec:
  modelConfig: {{modelRef: Model/writer}}
  notify:
    - connection: Connection/hook
      action: request
      args: {{url: "{root}/tell", body: "${{json}}"}}
      on: [question, completed]
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: writer}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: 'Which title'}}
        say: "=== CUSTOM TASK COMPLETE ==="
      - when: {{user: '^Build'}}
        say: "[USER_QUESTION]\ncategory: choice\nquestion: Which title?\noptions: [Soup, Bread]\nrequired: true\n[/USER_QUESTION]"
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: http, package: "@goondan/base"}}
  config: {{allow: ["{root}"], allowPrivate: true}}
"#
    ));
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    wait_until("the notification about the question", || {
        notification_counts(&server).get("question") == Some(&1)
    });
    paste(&home, &command(&server, "question"));
    wait_until("the notification about its end", || {
        notification_counts(&server).get("completed") == Some(&1)
    });
}
