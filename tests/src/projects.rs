//! Projects that tests need. All of them answer by a script.

/// An agent `worker` with rules for tests, and a webhook `hook` at `/hook`.
///
/// * `echo TEXT` is answered with the text.
/// * `hold NAME` calls a tool that adds a line to the note `NAME.runs`, waits until the note `NAME.go`
///   is there, and prints `released NAME`; the answer is `done NAME`. If the call is interrupted, the
///   model calls it again, after the text `again`.
/// * `escape` calls a tool that starts `sleep 4321` in a session of its own, and waits for it.
/// * `fail` makes the model fail.
/// * `work N` calls a quick tool, and is answered with `worked N` whatever became of the call.
///
/// `NOTES` stands for the directory of notes.
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

/// The same, with its tools confined otherwise: `off` leaves all rights to them, `landlock` the machine's
/// processes in sight.
#[must_use]
pub fn lab_at(level: &str) -> String {
    let require = format!("sandbox: {{require: {level}, write: [NOTES]}}");
    LAB.replace("sandbox: {write: [NOTES]}", &require)
}
