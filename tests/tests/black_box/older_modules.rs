//! Tools, extensions and connectors written for goondan 0.0.3 (`COMPAT-3`).

use std::fs;
use std::path::Path;
use std::process::Command;

use goondan_tests::log::message;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

const BUNDLE: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@acme/modules"}
spec:
  dependencies: [{name: "@goondan/base", version: ^0.0.3}]
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^hello'}
        say: Hello to you.
      - when: {user: '^break', step: 1}
        call: [{tool: desk__break, args: {}}]
      - when: {user: '^tell', step: 1}
        call: [{tool: desk__tell, args: {word: hi}}]
      - when: {tool: desk__tell}
        say: "${result}"
      - when: {tool: desk__break}
        say: "${result}"
      - say: "${input}"
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: desk}
spec:
  entry: ./tools/desk.ts
  exports:
    - {name: tell, parameters: {type: object, properties: {word: {type: string}}}}
    - {name: break}
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: watch}
spec: {entry: ./extensions/watch.ts, config: {level: 3}}
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: bell}
spec:
  entry: ./connectors/bell.ts
  events: [{name: rang, properties: {door: {type: string}}}]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: bell}
spec:
  connectorRef: Connector/bell
  config: {DOOR: {value: front}}
  secrets: {KEY: {value: k}}
  ingress:
    rules:
      - match: {event: rang, properties: {door: front}}
        route: {agentRef: Agent/clerk}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  prompt: {system: You serve.}
  tools: [{ref: Tool/desk}]
  extensions: [{ref: Extension/watch}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/clerk, agents: [{ref: Agent/clerk}, {ref: Agent/worker}]}
"#;

const DESK: &str = r#"
import type { ToolHandler, ToolContext, JsonObject } from "@goondan/types";

export const handlers: Record<string, ToolHandler> = {
  tell: async (ctx: ToolContext, input: JsonObject) => {
    ctx.logger.info("telling", input.word);
    const answer = await ctx.runtime!.request("worker", { input: "hello" }, { timeoutMs: 20000 });
    const { availableAgents, callableAgents, selfAgent, swarmName } = await ctx.runtime!.catalog();
    return {
      word: input.word, response: answer.response, availableAgents, callableAgents, selfAgent, swarmName,
      agent: ctx.agentName, key: ctx.instanceKey, hasTurn: typeof ctx.turnId === "string",
      hasTrace: typeof ctx.traceId === "string", hasCall: typeof ctx.toolCallId === "string",
      isDate: ctx.message.createdAt instanceof Date, isHere: ctx.workdir === process.env.GOONDAN_WORK_DIR,
    };
  },
  break: () => {
    throw Object.assign(new Error("sold out"), {
      code: "E_SOLD_OUT", suggestion: "Ask tomorrow.", helpUrl: "https://example.org/help",
    });
  },
};
"#;

const WATCH: &str = r#"
import type { ExtensionApi } from "@goondan/types";

export function register(api: ExtensionApi, config: { level: number }): void {
  api.pipeline.register("turn", async (ctx) => {
    ctx.emitMessageEvent({
      type: "append",
      message: {
        id: `note-${ctx.turnId}`, data: { role: "system", content: "noted" }, metadata: { level: config.level },
        createdAt: new Date(), source: { type: "extension", extensionName: "watch" },
      },
    });
    const dates = ctx.conversationState.nextMessages.every(({ createdAt }) => createdAt instanceof Date);
    const { agent, swarm, inbound } = ctx.runtime;
    const isDate = ctx.inputEvent.createdAt instanceof Date;
    if (ctx.inputEvent.input === "ask later") {
      const asked = await ctx.agents.request({
        target: "worker", input: "hello", async: true, eventType: "work.do", metadata: { at: new Date(0), n: 1 },
      });
      api.logger.warn(`asked ${JSON.stringify(asked)}`);
    }
    const answers = ctx.conversationState.nextMessages
      .map(({ metadata }) => metadata.__goondanInterAgentResponse)
      .filter((answer) => answer !== undefined);
    api.logger.warn(`told ${JSON.stringify({ dates, isDate, agent, swarm, inbound, answers })}`);
    return await ctx.next();
  });
  api.pipeline.register("step", async (ctx) => {
    const result = await ctx.next();
    api.logger.warn(`step ${result.status} ${result.shouldContinue} ${ctx.turn.startedAt instanceof Date}`);
    return result;
  });
  api.pipeline.register("toolCall", async (ctx) => {
    const result = await ctx.next();
    api.logger.warn(`call ${JSON.stringify({ type: typeof result.output, error: result.error })}`);
    return result;
  }, { priority: 5 });
}
"#;

const BELL: &str = r#"
import type { ConnectorContext } from "@goondan/types";

export default async function (ctx: ConnectorContext): Promise<void> {
  await ctx.emit({
    name: "rang", message: { type: "text", text: `${ctx.config.DOOR} ${ctx.secrets.KEY}` },
    properties: { door: ctx.config.DOOR }, instanceKey: "bell:1",
  });
  ctx.logger.info("durable");
  await new Promise<void>((resolve) => process.once("SIGTERM", () => resolve()));
}
"#;

fn home() -> Home {
    let home = Home::new(BUNDLE);
    home.write("project/tools/desk.ts", DESK);
    home.write("project/extensions/watch.ts", WATCH);
    home.write("project/connectors/bell.ts", BELL);
    home
}

/// JSON that the extension logged after `word`, in order.
fn log_lines(daemon: &Daemon, word: &str) -> Vec<Value> {
    let lines = daemon.log().lines();
    let told = lines.iter().filter_map(|line| {
        let text = message(line).strip_prefix(word)?.to_owned();
        serde_json::from_str(&text).ok()
    });
    told.collect()
}

#[test]
fn compat_3_older_tools_extensions_and_connectors_run_unchanged() {
    let home = home();
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("the event is durable", |line| {
        message(line).contains("durable")
    });
    let reply: Value = serde_json::from_str(&home.ask("main", "tell")).unwrap();
    let expected = json!({
        "word": "hi", "response": "Hello to you.", "availableAgents": ["clerk", "worker"],
        "callableAgents": ["worker"], "selfAgent": "clerk", "swarmName": "team", "agent": "clerk",
        "key": "main", "hasTurn": true, "hasTrace": true, "hasCall": true, "isDate": true, "isHere": true,
    });
    assert_eq!(reply, expected);
    let broken = home.ask("main", "break");
    assert!(
        broken.starts_with("E_SOLD_OUT: Error: sold out"),
        "{broken}"
    );
    assert!(
        broken.contains("suggestion: Ask tomorrow.\nhelp: https://example.org/help"),
        "{broken}"
    );
    let calls = log_lines(&daemon, "call ");
    assert_eq!(calls[0]["type"], "object");
    assert_eq!(calls[1]["error"]["code"], "E_SOLD_OUT");
    assert_eq!(calls[1]["error"]["suggestion"], "Ask tomorrow.");
    assert_eq!(calls[1]["error"]["helpUrl"], "https://example.org/help");
    let turns = log_lines(&daemon, "told ");
    assert!(
        turns
            .iter()
            .all(|turn| turn["dates"] == true && turn["isDate"] == true),
        "{turns:?}"
    );
    let last = turns.last().unwrap();
    assert_eq!(last["agent"]["prompt"]["system"], "You serve.");
    assert_eq!(last["swarm"]["swarmName"], "team");
    assert_eq!(last["swarm"]["availableAgents"], json!(["clerk", "worker"]));
    assert!(last["inbound"]["eventId"].is_string(), "{last}");
    assert!(daemon.log().saying("step completed true true").len() >= 2);
    let rang = home.history("bell:1");
    assert_eq!(rang[0]["data"]["content"], "front k");
}

/// Checked by `tsc` with the types from this repository.
#[test]
fn compat_3_the_published_types_fit_the_modules() {
    if !goondan_tests::needs::program("tsc") {
        return;
    }
    let home = home();
    let types = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/types");
    let scope = home.project().join("node_modules/@goondan");
    fs::create_dir_all(&scope).unwrap();
    std::os::unix::fs::symlink(types, scope.join("types")).unwrap();
    home.write("project/globals.d.ts", "declare const process: any;\n");
    let files = [
        "tools/desk.ts",
        "extensions/watch.ts",
        "connectors/bell.ts",
        "globals.d.ts",
    ];
    let checked = Command::new("tsc")
        .args([
            "--noEmit", "--strict", "--module", "nodenext", "--target", "es2023",
        ])
        .args(["--lib", "es2023,dom"])
        .args(files)
        .current_dir(home.project())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{printed}");
}

#[test]
fn compat_3_late_answer_names_its_request() {
    let home = home();
    let daemon = Daemon::serving(&home);
    home.ask("main", "ask later");
    // An answer that arrives after the next turn is not delivered in it.
    daemon.log().wait_for("the worker has answered", |line| {
        message(line) == "turn committed and answered" && line["instanceKey"] == "worker:main"
    });
    home.ask("main", "again");
    let asked = &log_lines(&daemon, "asked ")[0];
    assert_eq!(asked["async"], true);
    assert_eq!(asked["accepted"], true);
    let answer = daemon.log().wait_for("the answer is handed out", |line| {
        message(line).contains("inter_agent_response")
    });
    let text = message(&answer).strip_prefix("told ").unwrap().to_owned();
    let found: Value = serde_json::from_str(&text).unwrap();
    let answer = &found["answers"][0];
    assert_eq!(answer["kind"], "inter_agent_response");
    assert_eq!(answer["version"], 1);
    assert_eq!(answer["requestEventId"], asked["eventId"]);
    assert_eq!(answer["fromAgentId"], "worker");
    assert_eq!(answer["toAgentId"], "clerk");
    assert_eq!(answer["async"], true);
    assert_eq!(answer["status"], "ok");
    assert_eq!(answer["requestEventType"], "work.do");
    let note = json!({"at": "1970-01-01T00:00:00.000Z", "n": 1});
    assert_eq!(answer["requestMetadata"], note);
}

#[test]
fn compat_3_returning_connector_and_wrong_module_are_reported() {
    let home = home();
    home.write(
        "project/connectors/bell.ts",
        "export default async function () {}\n",
    );
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("that it returned", |line| {
        line.to_string().contains("it must run until it is stopped")
    });
    drop(daemon);
    let home = self::home();
    home.write(
        "project/connectors/bell.ts",
        "export const handlers = {};\n",
    );
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("which kind it looks like", |line| {
        line.to_string().contains("it looks like a tool")
    });
}
