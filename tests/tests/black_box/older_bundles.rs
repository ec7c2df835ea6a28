//! Whole bundles of goondan 0.0.3 in practice, run unchanged (`COMPAT-1` to `COMPAT-3`).

use std::fs;

use goondan_tests::log::message;
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

const PACKAGE: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@acme/bundle", annotations: {made: by hand}}
spec:
  version: "1.0.0"
  access: restricted
  dependencies: [{name: "@goondan/base", version: "^0.0.3-alpha29"}]
"#;

fn home(files: &[(&str, &str)]) -> Home {
    let home = Home::new(PACKAGE);
    for (path, text) in files {
        home.write(&format!("project/{path}"), text);
    }
    home
}

/// Checks that `gdn validate` reports only older forms.
#[track_caller]
fn is_valid(home: &Home) {
    home.gdn(&["validate", "--strict"]).exits(0);
}

const TEAM_MODELS: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: claude}
spec:
  provider: scripted
  options:
    rules:
      - when: {system: coordinator, user: '^please (?P<what>.+)$', step: 1}
        call: [{tool: agents__request, args: {target: researcher, input: "find ${what}"}}]
      - when: {system: coordinator, tool: agents__request, result: '"response":"(?P<found>[^"]*)"'}
        call: [{tool: telegram__send, args: {chatId: "5", text: "${found}"}}]
      - when: {system: coordinator, tool: telegram__send}
        say: sent
      - when: {system: researcher, user: '^find (?P<what>.+)$'}
        say: "here is ${what}"
      - say: "${input}"
"#;

const TEAM_AGENTS: &str = r#"
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: coordinator, labels: {role: lead}}
spec:
  modelConfig: {modelRef: Model/claude}
  prompts: {systemPrompt: You are the coordinator.}
  tools: [{ref: Tool/agents}, {ref: Tool/telegram}, {ref: Tool/slack}]
  extensions:
    - {ref: Extension/message-window}
    - {ref: Extension/logging}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: researcher, labels: {role: worker}}
spec:
  modelConfig: {modelRef: Model/claude}
  prompts: {systemPrompt: You are a researcher.}
  tools: [{ref: Tool/http-fetch}, {ref: Tool/json-query}, {ref: Tool/file-system}]
"#;

const TEAM_SWARM: &str = r#"
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: default}
spec:
  entryAgent: Agent/coordinator
  agents: [{ref: Agent/coordinator}, {ref: Agent/researcher}]
  policy: {maxStepsPerTurn: 16}
"#;

const TEAM_CONNECTIONS: &str = r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: to-telegram}
spec:
  connectorRef: {kind: Connector, name: telegram-polling, package: "@goondan/base"}
  swarmRef: Swarm/default
  config: {TELEGRAM_API_BASE_URL: {valueFrom: {env: BOT_API}}}
  secrets: {TELEGRAM_BOT_TOKEN: {valueFrom: {env: TELEGRAM_BOT_TOKEN}}}
  ingress:
    rules:
      - match: {event: telegram_message}
        route: {agentRef: Agent/coordinator}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: to-slack}
spec:
  connectorRef: {kind: Connector, name: slack, package: "@goondan/base"}
  config: {SLACK_WEBHOOK_PORT: {value: "0"}}
  secrets:
    SLACK_BOT_TOKEN: {valueFrom: {env: SLACK_BOT_TOKEN}}
    SLACK_SIGNING_SECRET: {valueFrom: {env: SLACK_SIGNING_SECRET}}
  ingress:
    rules:
      - match: {event: app_mention}
        route: {}
      - match: {event: message_im}
        route: {}
"#;

#[test]
fn compat_1_coordinator_with_workers_and_chats_runs_unchanged() {
    let telegram = Telegram::start();
    let home = home(&[
        ("models.yaml", TEAM_MODELS),
        ("agents/agents.yaml", TEAM_AGENTS),
        ("swarm.yaml", TEAM_SWARM),
        ("connections.yaml", TEAM_CONNECTIONS),
    ]);
    home.write(
        "project/.env",
        &format!(
            "TELEGRAM_BOT_TOKEN={TOKEN}\nBOT_API={}\nSLACK_BOT_TOKEN=t\nSLACK_SIGNING_SECRET=s\n",
            telegram.endpoint()
        ),
    );
    is_valid(&home);
    let _daemon = Daemon::serving(&home);
    telegram.write(5, "please the answer");
    wait_until("the worker's answer is in the chat", || {
        telegram.written_to(5) == ["here is the answer"]
    });
}

const LIFECYCLE: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {system: worker}
        say: "done: ${input}"
      - say: "${input}"
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: worker-lifecycle}
spec: {entry: ./extensions/worker-lifecycle.ts, config: {idleMinutes: 5}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: lead}
spec:
  modelConfig: {modelRef: Model/main}
  prompts: {systemPrompt: You lead.}
  extensions: [{ref: Extension/worker-lifecycle}, {ref: Extension/context-message}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  prompts: {systemPrompt: You are a worker.}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: default}
spec: {entryAgent: Agent/lead, agents: [{ref: Agent/lead}, {ref: Agent/worker}]}
"#;

const LIFECYCLE_TS: &str = r#"
interface WorkerState { started: Record<string, string>; finished: string[] }

export function register(api: any, config: { idleMinutes: number }): void {
  api.tools.register(
    { name: "workers__status", description: "Tells of workers.", parameters: { type: "object", properties: {} } },
    async () => (await api.state.get()) ?? {},
  );
  api.pipeline.register("turn", async (ctx: any) => {
    const state: WorkerState = (await api.state.get()) ?? { started: {}, finished: [] };
    for (const message of ctx.conversationState.nextMessages) {
      const answer = message.metadata.__goondanInterAgentResponse;
      if (answer?.kind !== "inter_agent_response" || state.finished.includes(answer.requestId)) continue;
      if (!(message.createdAt instanceof Date)) throw new Error("no Date");
      state.finished.push(answer.requestId);
      ctx.emitMessageEvent({
        type: "append",
        message: {
          id: `finished-${answer.requestId}`,
          data: { role: "system", content: `${answer.fromAgentId} ${answer.status} ${answer.requestMetadata.job}` },
          metadata: { since: message.createdAt },
          createdAt: new Date(),
          source: { type: "extension", extensionName: "worker-lifecycle" },
        },
      });
    }
    if (ctx.inputEvent.input === "start") {
      const asked = await ctx.agents.request({
        target: "worker", input: "job one", instanceKey: "worker-1", async: true, timeoutMs: 20_000,
        metadata: { job: "one", at: new Date() },
      });
      state.started[asked.correlationId] = new Date().toISOString();
    }
    await api.state.set(state);
    api.events.emit("lifecycle", Object.keys(state.started).length);
    return ctx.next();
  }, { priority: 10 });
  api.events.on("lifecycle", (count: number) => api.logger.warn(`workers ${count} of ${config.idleMinutes}`));
}
"#;

#[test]
fn compat_3_an_extension_that_looks_after_workers_runs_as_it_is() {
    if !needs::javascript() {
        return;
    }
    let home = home(&[
        ("resources.yaml", LIFECYCLE),
        ("extensions/worker-lifecycle.ts", LIFECYCLE_TS),
    ]);
    is_valid(&home);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "start"), "start");
    daemon.log().wait_for("the worker is counted", |line| {
        message(line).contains("workers 1 of 5")
    });
    let has_finished = || {
        let told = home.history("main");
        let found = |said: &Value| said["data"]["content"] == "worker ok one";
        told.iter().any(found)
    };
    wait_until("the worker's answer is noted once it came", has_finished);
    let worked = home.history("worker-1");
    assert_eq!(worked[0]["data"]["content"], "job one");
}

const BELL: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: "heard ${input}"}]}}
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: doorbell}
spec:
  entry: ./connectors/doorbell.ts
  events:
    - {name: ring, properties: {door: {type: string}, loud: {type: boolean, optional: true}}}
    - {name: picture, properties: {door: {type: string}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: porter}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: guard}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: house}
spec: {entryAgent: Agent/porter, agents: [{ref: Agent/porter}, {ref: Agent/guard}]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: doors}
spec:
  connectorRef: Connector/doorbell
  swarmRef: Swarm/house
  config: {DOORS: {value: "front,back"}}
  secrets: {CODE: {valueFrom: {env: DOOR_CODE}}}
  verify: {webhook: {signingSecret: {valueFrom: {env: DOOR_CODE}}}}
  ingress:
    rules:
      - match: {event: ring, properties: {door: back}}
        route: {agentRef: Agent/guard}
      - match: {event: ring}
        route: {agentRef: Agent/porter}
      - match: {event: picture}
        route: {agentRef: Agent/porter, instanceKey: pictures}
"#;

const BELL_TS: &str = r#"
export default async function (ctx: any): Promise<void> {
  const { logger, config, secrets } = ctx;
  for (const door of config.DOORS.split(",")) {
    await ctx.emit({
      name: "ring", message: { type: "text", text: `a ring at ${door} by ${secrets.CODE.length}` },
      properties: { door, loud: true }, instanceKey: `door:${door}`,
    });
  }
  await ctx.emit({
    name: "picture", message: { type: "file", url: "https://example.org/p.pdf", name: "p.pdf" },
    properties: { door: "front" }, instanceKey: "ignored",
  });
  logger.info("all rings are durable");
  const timer = setInterval(() => {}, 1000);
  await new Promise<void>((resolve) => process.on("SIGTERM", () => { clearInterval(timer); resolve(); }));
}
"#;

#[test]
fn compat_3_a_connector_that_people_wrote_runs_as_it_is() {
    if !needs::javascript() {
        return;
    }
    let home = home(&[
        ("resources.yaml", BELL),
        ("connectors/doorbell.ts", BELL_TS),
    ]);
    home.write("project/.env", "DOOR_CODE=12345\n");
    is_valid(&home);
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("the events are durable", |line| {
        message(line).contains("all rings are durable")
    });
    for (key, agent, said) in [
        ("doors:door:front", "porter", "heard a ring at front by 5"),
        (
            "guard:doors:door:back",
            "guard",
            "heard a ring at back by 5",
        ),
        (
            "pictures",
            "porter",
            "heard [file p.pdf: https://example.org/p.pdf]",
        ),
    ] {
        wait_until(&format!("`{key}` was answered"), || {
            let history = home.gdn(&["instance", "history", "--json", key]);
            history.stdout.contains(said)
        });
        let listed = home.gdn(&["instance", "list", "--agent", agent]).exits(0);
        assert!(listed.stdout.contains(key), "{}", listed.stdout);
    }
}

const LABELS: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main, labels: {tier: cheap}}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^add', step: 1}
        call: [{tool: calc__add, args: {a: 1, b: 2}}]
      - when: {user: '^fail', step: 1}
        call: [{tool: calc__fail, args: {}}]
      - when: {user: '^run', step: 1}
        call: [{tool: bash__exec, args: {command: "echo hi"}}]
      - when: {tool: calc__add}
        say: "${result}"
      - when: {tool: calc__fail}
        say: "${result}"
      - when: {tool: bash__exec}
        say: "${result}"
      - say: "${input}"
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: calc, labels: {area: math, tier: own}, annotations: {owner: ann}}
spec:
  entry: ./tools/calc.ts
  errorMessageLimit: 1000
  exports:
    - name: add
      description: Adds.
      parameters: {type: object, properties: {a: {type: number}, b: {type: number}}, required: [a, b]}
    - {name: fail, description: Fails.}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk, labels: {role: lead, team: blue}}
spec:
  modelConfig: {modelRef: {selector: {kind: Model, matchLabels: {tier: cheap}}}}
  prompts: {systemPrompt: You serve.}
  tools:
    - selector: {kind: Tool, matchLabels: {area: math}}
      overrides: {spec: {errorMessageLimit: 60}, metadata: {annotations: {owner: bob}}}
    - selector: {kind: Tool, name: bash}
  extensions:
    - selector: {kind: Extension, name: required-tools-guard}
      overrides: {spec: {config: {requiredTools: [calc__add, bash__exec], errorMessage: Use a tool first.}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: default}
spec:
  entryAgent: {selector: {kind: Agent, matchLabels: {role: lead}}}
  agents: [{selector: {kind: Agent, matchLabels: {team: blue}}}]
"#;

const CALC_TS: &str = r#"
export const handlers = {
  add: (ctx: any, input: { a: number; b: number }) => ({ sum: input.a + input.b, by: ctx.agentName }),
  fail: () => { throw Object.assign(new Error("x".repeat(500)), { code: "E_CALC" }); },
};
"#;

#[test]
fn compat_1_labels_and_selectors_with_overrides_keep_meaning() {
    if !needs::javascript() {
        return;
    }
    let home = home(&[("resources.yaml", LABELS), ("tools/calc.ts", CALC_TS)]);
    is_valid(&home);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("ann", "add"), "{\"sum\":3,\"by\":\"clerk\"}");
    let ran = home.ask("ann", "run");
    let ran: Value = serde_json::from_str(&ran).unwrap();
    assert_eq!(
        (&ran["stdout"], &ran["exitCode"]),
        (&"hi\n".into(), &0.into())
    );
    // No tool was called: any of them would suffice.
    let refused = home.gdn(&["send", "--instance", "bob", "nothing"]).exits(7);
    refused.tells(&["Use a tool first."]);
}

#[test]
fn compat_1_migration_refuses_what_it_cannot_read() {
    for (text, words) in [
        ("kind: [", vec!["goondan.yaml:", "gdn validate"]),
        ("services: {}\n", vec!["a Docker Compose file", "gdn init"]),
        (
            "agents: {main: {model: m}}\nroutes: []\n",
            vec!["the goondan library", "`agents`, `routes`", "gdn init"],
        ),
    ] {
        let home = home(&[("goondan.yaml", text)]);
        for arguments in [&["migrate"][..], &["migrate", "--write"]] {
            home.gdn(arguments).exits(6).tells(&words);
        }
        let file = home.project().join("goondan.yaml");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
}

#[test]
fn compat_1_bundle_is_migrated_only_after_the_diff_was_shown() {
    if !needs::javascript() {
        return;
    }
    let home = home(&[("resources.yaml", LABELS), ("tools/calc.ts", CALC_TS)]);
    let shown = home.gdn(&["migrate"]).exits(0);
    let shown = shown.prints(&[
        "--- a/resources.yaml",
        "+++ b/resources.yaml",
        "-  prompts: ",
        "+  prompt:",
    ]);
    shown.tells(&["gdn config migrate --write"]);
    let file = home.project().join("resources.yaml");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        LABELS,
        "nothing is written"
    );
    home.gdn(&["migrate", "--write"]).exits(0);
    home.gdn(&["migrate"])
        .exits(0)
        .tells(&["The project has no older forms"]);
    let files = home.gdn_json(&["migrate"]);
    assert_eq!(files["files"], json!([]));
    let checked = home.gdn(&["validate", "--strict"]).exits(0);
    assert!(
        !checked.stderr.contains("N_CONFIG_OLDER_FORM"),
        "{}",
        checked.stderr
    );
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("ann", "add"), "{\"sum\":3,\"by\":\"clerk\"}");
}
