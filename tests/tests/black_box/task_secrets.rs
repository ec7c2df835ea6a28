//! Goal: a secret that a person provides to a task exists only in what works on the task, be it a
//! program or an agent with a model (`SEC-2`).
//!
//! Method: both reveal their secret, in an answer and in a question. Then every notification,
//! command output, log line and file of the state root is searched for every form of it. Only the
//! messages of the conversation may contain it, because the model works with them.

use std::fs;
use std::path::Path;

use goondan_tests::provider::{Provider, ProviderResponse};
use goondan_tests::secret_forms::SecretForms;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

/// Secret that a person provides.
const KEY: &str = "sk-never-to-be-told-0815";

/// Value that the configuration takes from the environment for a connection, and that is also in a
/// context block.
const MOTTO: &str = "motto-never-to-be-told";

/// Asks for a key, writes it to its output, and completes.
const PROGRAM: &str = r#"#!/bin/sh
prompt=$(cat)
case $prompt in
*'Answer '*) echo '=== CUSTOM TASK COMPLETE ===' ;;
*'Provided '*)
  echo "I have $API_KEY."
  printf '[USER_QUESTION]\ncategory: choice\nquestion: Is %s right?\noptions:\n- oh yes\n- no\nrequired: true\n[/USER_QUESTION]\n' "$API_KEY"
  ;;
*) printf '[DEPENDENCY_REQUEST]\ntype: api_key\nname: API_KEY\ndescription: To pay.\nrequired: true\n[/DEPENDENCY_REQUEST]\n' ;;
esac
"#;

/// The same behavior as rules of a model.
const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: program}
spec:
  runtime: {kind: cli, command: [./agent.sh]}
  notify: NOTIFY
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: model}
spec:
  modelConfig: {modelRef: Model/main}
  sandbox: {require: off}
  tools: [{kind: Tool, name: bash, package: "@goondan/base"}]
  extensions: [Extension/motto]
  notify: NOTIFY
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: motto}
spec:
  builtin: context-message
  config: {text: "Our motto is motto-never-to-be-told."}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: 'Answer '}
        say: "=== CUSTOM TASK COMPLETE ==="
      - when: {user: 'Provided ', step: 1}
        say: I look at $API_KEY.
        call: [{tool: bash__exec, args: {command: 'printf %s "$API_KEY"'}}]
      - when: {tool: bash__exec, result: '(?P<key>sk-[a-z0-9-]+)'}
        say: |
          I have ${key}.
          [USER_QUESTION]
          category: choice
          question: Is ${key} right?
          options:
          - oh yes
          - no
          required: true
          [/USER_QUESTION]
      - say: |
          [DEPENDENCY_REQUEST]
          type: api_key
          name: API_KEY
          description: To pay.
          required: true
          [/DEPENDENCY_REQUEST]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: all}
spec: {entryAgent: Agent/model, agents: [Agent/model, Agent/program]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: {kind: Connector, name: http, package: "@goondan/base"}
  config: {allow: ["ROOT"], allowPrivate: true}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: other}
spec:
  connectorRef: {kind: Connector, name: webhook, package: "@goondan/base"}
  config: {path: /other}
  secrets: {hmac: {valueFrom: {env: MOTTO}}}
"#;

fn home(server: &Provider) -> Home {
    let root = server.endpoint().replace("/v1", "");
    let notify = format!(
        "[{{connection: Connection/hook, action: request, on: [question, completed], \
         args: {{url: \"{root}/tell\", body: \"${{json}}\"}}}}]"
    );
    let home = Home::new(&PROJECT.replace("NOTIFY", &notify).replace("ROOT", &root));
    home.write_program("project/agent.sh", PROGRAM);
    home
}

/// True for the files with the conversation's messages: the model's input and output, and the
/// journal.
fn is_conversation(path: &Path) -> bool {
    let names = ["base.jsonl", "events.jsonl"];
    path.file_name()
        .is_some_and(|name| names.iter().any(|it| name == *it))
        && path.parent().is_some_and(|dir| dir.ends_with("messages"))
}

/// Every file below a directory, except those of conversations.
fn files(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            files(&path, found);
        } else if kind.is_file() && !is_conversation(&path) {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

fn work(home: &Home, server: &Provider, agent: &str) {
    let status = |wanted: &str| {
        let shown = || home.gdn_json(&["task", "show", agent])["info"]["status"].clone();
        wait_until(&format!("{agent} is {wanted}"), || shown() == wanted);
    };
    let told = server.received().len();
    let new = [
        "task",
        "new",
        agent,
        "--id",
        agent,
        "--description",
        "Build.",
        "--agent",
        agent,
        "--start",
    ];
    home.gdn(&new).exits(0);
    status("waiting_dependency");
    home.write("key", KEY);
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let mut provide = home.command(&gdn, &["task", "provide", agent]);
    provide.stdin(fs::File::open(home.path().join("key")).unwrap());
    assert!(provide.output().unwrap().status.success());
    fs::remove_file(home.path().join("key")).unwrap();
    status("waiting_question");
    wait_until("the notification about the question", || {
        server.received().len() > told
    });
}

#[test]
fn sec_2_secret_of_a_task_is_masked_for_every_agent_kind() {
    let server = Provider::start(|_| ProviderResponse::json(&json!({})));
    let home = home(&server);
    let mut command = home.command(
        &goondan_tests::binaries::bin(goondan_tests::home::ORCHESTRATOR),
        &[],
    );
    command.env("MOTTO", MOTTO);
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    for agent in ["program", "model"] {
        work(&home, &server, agent);
        let told = server.received().pop().unwrap().body.to_string();
        assert!(told.contains("Is [masked] right?"), "{told}");
        let args = ["task", "logs", agent, "--log", "stdout"];
        let stdout = home.gdn(&args).exits(0).stdout;
        assert!(stdout.contains("I have [masked]."), "{stdout}");
        home.gdn(&["task", "answer", agent, "oh yes"]).exits(0);
        wait_until("it is done", || {
            home.gdn_json(&["task", "show", agent])["info"]["status"] == "completed"
        });
        for log in ["agent", "stdout", "stderr", "protocols"] {
            let ran = home.gdn(&["task", "logs", agent, "--log", log]);
            places.push((format!("{log} of {agent}"), ran.stdout.into_bytes()));
        }
        for args in [
            &["task", "show", agent][..],
            &["task", "show", agent, "--json"],
            &["task", "list", "--json"],
            &["status", "--json"],
            &["ps", "--json"],
            &["logs", "--json"],
            &["audit", "--all"],
        ] {
            let ran = home.gdn(args);
            places.push((args.join(" "), (ran.stdout + &ran.stderr).into_bytes()));
        }
    }
    // The conversation continues with the model's message.
    let history = home.history("task:model.1");
    let history: String = history.iter().map(ToString::to_string).collect();
    assert!(history.contains(KEY), "{history}");
    // A context block is not a message, so it is masked, even in the conversation.
    assert!(
        history.contains("[masked]") && !history.contains(MOTTO),
        "{history}"
    );
    for received in server.received() {
        places.push((
            "a notification".to_owned(),
            received.body.to_string().into_bytes(),
        ));
    }
    let log = daemon.stop();
    for line in log.lines() {
        places.push(("the log".to_owned(), line.to_string().into_bytes()));
    }
    files(&home.state_root(), &mut places);
    let secret = SecretForms::of(KEY);
    let found = places
        .iter()
        .filter_map(|(place, bytes)| Some((place, secret.found_in(bytes)?)));
    assert_eq!(found.collect::<Vec<_>>(), []);
    // The log of model requests and replies exists, without it.
    let mut logs = places
        .iter()
        .filter(|(place, _)| place.ends_with("llm.jsonl"));
    let (_, log) = logs.next().unwrap();
    let text = String::from_utf8_lossy(log);
    assert!(
        text.contains("I have [masked].") && !text.contains(MOTTO),
        "{text}"
    );
}
