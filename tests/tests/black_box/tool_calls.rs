//! Calls of tools, as the processes really make them.

use goondan_tests::log::message;
use goondan_tests::{Daemon, Home, wait_until};

use crate::conversation::{check, result_text, shape};

/// An agent that calls two commands in one step; the first waits for the note `go`.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {step: 1}
        call:
          - {tool: bash__exec, args: {command: "until [ -e NOTES/go ]; do sleep 0.02; done; echo slow"}}
          - {tool: bash__exec, args: {command: "echo quick"}}
      - say: "${result}"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
  sandbox: {write: [NOTES]}
"#;

#[test]
fn calls_of_one_step_run_concurrently_and_are_recorded_in_order() {
    let home = Home::new(PROJECT);
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "both"]);
    // The end of the second call is reported immediately, although the first has not ended.
    let quick = daemon.log().wait_for("the second call is over", |line| {
        let call = line["toolCallId"].as_str().unwrap_or_default();
        message(line) == "tool.completed" && call.ends_with(":c1")
    });
    home.write("notes/go", "");
    assert_eq!(
        asking.wait().exits(0).stdout,
        "exit code: 0\nstdout:\nquick\n"
    );
    // The log entry may arrive after the answer.
    wait_until("both ends are in the log", || {
        daemon.log().saying("tool.completed").len() == 2
    });
    let ended = daemon.log().saying("tool.completed");
    assert_eq!(ended[0], quick);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatta");
    assert_eq!(result_text(&messages[2]), "exit code: 0\nstdout:\nslow\n");
    assert_eq!(result_text(&messages[3]), "exit code: 0\nstdout:\nquick\n");
}
