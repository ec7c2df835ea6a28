//! A project whose agents work together.

/// An agent `boss`, and two it can ask, `left` and `right`, all scripted.
///
/// * `both N` makes the boss ask `left`, then `right`; the answer contains both replies.
/// * `ask AGENT TEXT` asks an agent, and is answered with its answer.
/// * `later TEXT` asks `left` without waiting, then calls a tool that waits for the note `go`. The
///   reply, received before the next step, is reported as `heard …`.
/// * `impatient TEXT` asks `left` with a timeout of 100 ms; the result is reported.
/// * `send TEXT`, `spawn TEXT`, `list` and `catalog` are answered with the tool's result.
/// * For `left` and `right`, `do …` is work that completes; `slow NAME` is work that waits for the
///   note `NAME`; `loop` asks the boss.
///
/// `NOTES` is replaced by the directory of notes.
pub const TEAM: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata:
  name: "@goondan/team"
spec:
  version: 0.1.0
---
apiVersion: goondan.ai/v1
kind: Model
metadata:
  name: boss
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^\[agent .(?P<who>\w+). \(.+\) (?P<how>answers|could not answer) request .+\]\n(?P<said>.*)$'}
        say: "heard ${who}: ${said}"
      - when: {user: '^both (?P<n>\S+)$', step: 1}
        call:
          - {tool: agents__request, args: {agent: left, input: "do ${n}"}}
      - when: {user: '^both (?P<n>\S+)$', step: 2, result: '^(?P<a>left did .*)$'}
        call:
          - {tool: agents__request, args: {agent: right, input: "do ${n} after ${a}"}}
      - when: {user: '^both (?P<n>\S+)$', step: 3, result: '^(?P<b>right did .*)$'}
        say: "both ${n}: ${b}"
      - when: {user: '^ask (?P<who>\w+) (?P<text>.*)$', step: 1}
        call:
          - {tool: agents__request, args: {agent: "${who}", input: "${text}"}}
      - when: {user: '^later (?P<text>.*)$', step: 1}
        call:
          - {tool: agents__request, args: {agent: left, input: "do ${text}", wait: false}}
      - when: {user: '^later ', tool: agents__request}
        call:
          - {tool: bash__exec, args: {command: "until [ -e NOTES/go ]; do sleep 0.02; done"}}
      - when: {user: '^later '}
        say: "heard nothing"
      - when: {user: '^impatient (?P<text>.*)$', step: 1}
        call:
          - {tool: agents__request, args: {agent: left, input: "${text}", timeoutMs: 100}}
      - when: {user: '^send (?P<text>.*)$', step: 1}
        call:
          - {tool: agents__send, args: {agent: left, input: "${text}"}}
      - when: {user: '^spawn (?P<text>.*)$', step: 1}
        call:
          - {tool: agents__spawn, args: {agent: left, input: "${text}"}}
      - when: {user: '^list$', step: 1}
        call:
          - {tool: agents__list}
      - when: {user: '^catalog$', step: 1}
        call:
          - {tool: agents__catalog}
      - when: {step: 2}
        say: "${result}"
      - say: "I do not understand."
---
apiVersion: goondan.ai/v1
kind: Model
metadata:
  name: hands
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^do (?P<what>.+)$', system: 'You are (?P<who>\w+)'}
        say: "${who} did ${what}"
        delayMs: 20
      - when: {user: '^slow (?P<name>\w+)$', step: 1}
        call:
          - {tool: bash__exec, args: {command: "until [ -e NOTES/${name} ]; do sleep 0.02; done"}}
      - when: {user: '^slow (?P<name>\w+)$'}
        say: "slowly did ${name}"
      - when: {user: '^loop$', step: 1}
        call:
          - {tool: agents__request, args: {agent: boss, input: "list"}}
      - when: {user: '^loop$'}
        say: "${result}"
      - say: "I do not understand."
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: boss
spec:
  modelConfig: {modelRef: Model/boss}
  tools:
    - {kind: Tool, name: agents, package: "@goondan/base"}
    - {kind: Tool, name: bash, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: left
spec:
  description: Does what is asked of it.
  modelConfig: {modelRef: Model/hands}
  prompt: {system: You are left}
  tools:
    - {kind: Tool, name: agents, package: "@goondan/base"}
    - {kind: Tool, name: bash, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: right
spec:
  modelConfig: {modelRef: Model/hands}
  prompt: {system: You are right}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata:
  name: team
spec:
  entryAgent: Agent/boss
  policy: {sandbox: {write: [NOTES]}}
"#;
