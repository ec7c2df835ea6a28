//! Extensions around the turns of a real agent (`EXT-1` … `EXT-4`).

use std::fs;

use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// An agent that calls its required tool only after a reminder, keeps its own message in the
/// conversation, and forgets old messages.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {tool: bash__exec, result: 'ran'}
        say: "${input}: it ran"
      - when: {step: 2}
        call:
          - {tool: bash__exec, args: {command: echo ran}}
      - say: "I would rather not."
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: todays}
spec:
  builtin: context-message
  config: {text: "You serve ${instanceKey}."}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
    - {kind: Tool, name: wait, package: "@goondan/base"}
  extensions:
    - Extension/todays
    - ref: {kind: Extension, name: message-window, package: "@goondan/base"}
      config: {maxMessages: 12}
  # One of them is enough.
  requiredTools: [wait__seconds, bash__exec]
"#;

fn texts(home: &Home, wanted: &str) -> usize {
    let messages = home.history("ann");
    let is_wanted = |message: &&Value| message["data"]["content"] == wanted;
    messages.iter().filter(is_wanted).count()
}

#[test]
fn ext_2_extension_state_outlives_process_but_not_instance() {
    let home = Home::new(PROJECT);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("ann", "one"), "one: it ran");
    let file = home
        .workspace_dir()
        .join("instances/ann/extensions/todays.json");
    let remembered = || serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap();
    wait_until("the state is written", || file.exists());
    let first = remembered();
    assert_eq!(first["text"], "You serve ann.");

    for (n, agent) in home.running("goondan-agent-process").iter().enumerate() {
        assert_eq!(n, 0, "one agent runs");
        processes::signal(agent.pid, Signal::SIGKILL);
    }
    for text in ["two", "three", "four"] {
        assert_eq!(home.ask("ann", text), format!("{text}: it ran"));
    }
    assert_eq!(
        remembered(),
        first,
        "nothing changed, so nothing was written (EXT-3)"
    );
    assert_eq!(
        texts(&home, "You serve ann."),
        1,
        "it found its message again"
    );
    assert_eq!(
        texts(&home, "one"),
        0,
        "what is long past has left the conversation"
    );
    assert_eq!(texts(&home, "four"), 1);

    home.gdn(&["instance", "delete", "ann", "--yes"]).exits(0);
    assert!(!file.exists());
    daemon.stop();
}

#[test]
fn turn_without_a_required_call_fails_with_the_reason() {
    let home = Home::new(&PROJECT.replace("step: 2", "step: 99"));
    let daemon = Daemon::serving(&home);
    let refused = home.gdn(&["send", "--instance", "ann", "one"]).exits(7);
    refused.tells(&["E_REQUIRED_TOOLS", "`bash__exec`"]);
    daemon.stop();
}
