//! Test projects. All of them use scripted models.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// An agent `worker` with rules for tests, and a webhook `hook` at `/hook`.
///
/// * `echo TEXT` is answered with the text.
/// * `hold NAME` calls a tool that appends a line to the note `NAME.runs`, waits until the note
///   `NAME.go` exists, and prints `released NAME`; the answer is `done NAME`. If the call is
///   interrupted, the model calls it again, after the text `again`.
/// * `escape` calls a tool that starts `sleep 4321` in a separate session, and waits for it.
/// * `fail` makes the model fail.
/// * `work N` calls a quick tool, and is answered with `worked N` regardless of the call's result.
///
/// `NOTES` is replaced by the directory of notes.
pub const LAB: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata:
  name: "@goondan/lab"
spec:
  version: 0.1.0
---
apiVersion: goondan.ai/v1
kind: Model
metadata:
  name: main
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '(?s)^echo (?P<text>.*)$'}
        say: "${text}"
      - when: {user: '^hold (?P<name>\w+)$', step: 1}
        say: first
        call:
          - tool: bash__exec
            args: {command: "echo run >> NOTES/${name}.runs; until [ -e NOTES/${name}.go ]; do sleep 0.02; done; echo released ${name}"}
      - when: {user: '^hold (?P<name>\w+)$', tool: bash__exec, result: E_TOOL_INTERRUPTED}
        say: again
        call:
          - tool: bash__exec
            args: {command: "echo again >> NOTES/${name}.runs; until [ -e NOTES/${name}.go ]; do sleep 0.02; done; echo released ${name}"}
      - when: {tool: bash__exec, result: 'released (?P<name>\w+)'}
        say: "done ${name}"
      - when: {user: '^work (?P<number>\S+)$', step: 1}
        call:
          - tool: bash__exec
            args: {command: "sleep 0.05; echo ${number}"}
      - when: {user: '^work (?P<number>\S+)$'}
        say: "worked ${number}"
      - when: {user: '^escape$', step: 1}
        call:
          - tool: bash__exec
            args: {command: "setsid sleep 4321 & wait"}
      - when: {user: '^fail$'}
        fail: The model is overloaded.
      - say: "I do not understand."
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: worker
spec:
  modelConfig:
    modelRef: Model/main
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
    - {kind: Tool, name: file-system, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: helper
spec:
  modelConfig:
    modelRef: Model/main
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata:
  name: lab
spec:
  entryAgent: Agent/worker
  policy:
    shutdown:
      gracePeriodSeconds: 60
    sandbox: {write: [NOTES]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata:
  name: hook
spec:
  connectorRef: {kind: Connector, name: webhook, package: "@goondan/base"}
  config:
    path: /hook
  ingress:
    rules:
      - route: {instanceKeyPrefix: ""}
"#;

/// [`LAB`] with a different confinement of its tools: `off` leaves them unconfined, `landlock`
/// keeps the machine's processes visible.
#[must_use]
pub fn lab_at(level: &str) -> String {
    let require = format!("sandbox: {{require: {level}, write: [NOTES]}}");
    LAB.replace("sandbox: {write: [NOTES]}", &require)
}

/// The tool that runs commands, as an agent lists it.
pub const BASH: &str = r#"{kind: Tool, name: bash, package: "@goondan/base"}"#;

/// A small project whose agents run commands in sandboxes. Its model calls tools according to the
/// message, and then returns the result of the last call.
#[derive(Debug, Default)]
#[must_use]
pub struct Commands {
    rules: String,
    agents: Vec<String>,
    documents: String,
}

impl Commands {
    /// A project that has no agent yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A message that matches `message` has the model run a command.
    pub fn run(self, message: &str, command: &str) -> Self {
        self.call(message, "bash__exec", json!({"command": command}))
    }

    /// A message that matches `message` has the model call a tool.
    pub fn call(self, message: &str, tool: &str, args: Value) -> Self {
        self.call_all(message, &[(tool, args)])
    }

    /// Makes the model call these tools in parallel for a message that matches `message`.
    pub fn call_all(mut self, message: &str, calls: &[(&str, Value)]) -> Self {
        let calls = calls
            .iter()
            .map(|(tool, args)| json!({"tool": tool, "args": args}));
        let calls: Value = calls.collect();
        let rule = json!({"when": {"user": message, "step": 1}, "call": calls});
        writeln!(self.rules, "      - {rule}").unwrap();
        self
    }

    /// An agent, with its tools and its sandbox as `goondan.yaml` has them. The first is the entry agent.
    pub fn agent(mut self, name: &str, tools: &[&str], sandbox: &str) -> Self {
        let tools = tools.join(", ");
        write!(
            self.documents,
            "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  modelConfig: \
             {{modelRef: Model/main}}\n  tools: [{tools}]\n  sandbox: {sandbox}\n"
        )
        .unwrap();
        self.agents.push(format!("Agent/{name}"));
        self
    }

    pub fn with(mut self, documents: &str) -> Self {
        write!(self.documents, "---\n{}\n", documents.trim()).unwrap();
        self
    }

    /// Content of `goondan.yaml`.
    #[must_use]
    pub fn yaml(&self) -> String {
        let Self {
            rules,
            agents,
            documents,
        } = self;
        let entry = &agents[0];
        let agents = agents.join(", ");
        format!(
            "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: main}}\nspec:\n  provider: scripted\n  \
             options:\n    rules:\n{rules}      - say: \"${{result}}\"\n{documents}---\napiVersion: \
             goondan.ai/v1\nkind: Swarm\nmetadata: {{name: all}}\nspec:\n  entryAgent: {entry}\n  agents: \
             [{agents}]\n"
        )
    }
}
