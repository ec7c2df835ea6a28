//! Tools that extension modules register, and steps that they continue (`COMPAT-3`).

use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, needs};
use serde_json::{Value, json};

/// An agent whose extension brings tools, and another that it can reach.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^call memo__save (?P<word>\S+)', step: 1}
        call: [{tool: memo__save, args: {word: "${word}"}}]
      - when: {user: '^call memo__ask (?P<word>\S+)', step: 1}
        call: [{tool: memo__ask, args: {word: "${word}"}}]
      - when: {user: '^call memo__fail (?P<word>\S+)', step: 1}
        call: [{tool: memo__fail, args: {word: "${word}"}}]
      - when: {user: '^call memo__wait (?P<word>\S+)', step: 1}
        call: [{tool: memo__wait, args: {word: "${word}"}}]
      - when: {user: '^call memo__late (?P<word>\S+)', step: 1}
        call: [{tool: memo__late, args: {word: "${word}"}}]
      - when: {user: '^call memo__none (?P<word>\S+)', step: 1}
        call: [{tool: memo__none, args: {word: "${word}"}}]
      - when: {user: '^wrong', step: 1}
        call: [{tool: memo__save, args: {}}]
      - when: {user: '^count', step: 1}
        say: one
      - when: {user: '^count', step: 2}
        say: two
      - when: {user: '^stop', step: 1}
        say: enough
        call: [{tool: memo__save, args: {word: last}}]
      - when: {user: '^stop', step: 2}
        say: too much
      - when: {tool: memo__save}
        say: "${result}"
      - when: {tool: memo__ask}
        say: "${result}"
      - when: {tool: memo__fail}
        say: "${result}"
      - when: {tool: memo__wait}
        say: "${result}"
      - when: {tool: memo__late}
        say: "${result}"
      - when: {tool: memo__none}
        say: "${result}"
      - say: "${input}"
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: memo}
spec: {entry: extensions/memo.mjs, timeoutSeconds: 3}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [{kind: Tool, name: wait, package: "@goondan/base"}]
  extensions: [Extension/memo]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/worker, agents: [Agent/worker, Agent/clerk]}
"#;

const MEMO: &str = r#"
const word = { type: "object", required: ["word"], properties: { word: { type: "string" } } };
export function register(api) {
  const saved = [];
  api.tools.register({ name: "memo__save", description: "Keeps a word.", parameters: word }, async (ctx, input) => {
    saved.push(input.word);
    return {
      saved, agent: ctx.agentName, key: ctx.instanceKey, hasCall: typeof ctx.toolCallId === "string",
      hasTurn: typeof ctx.turnId === "string", isHere: ctx.workdir === process.env.GOONDAN_WORK_DIR,
      tool: ctx.message.data.content[0].toolName, isDate: ctx.message.createdAt instanceof Date,
    };
  });
  api.tools.register({ name: "memo__ask", parameters: word }, async (ctx, input) => {
    const { response } = await ctx.runtime.request("clerk", { input: input.word });
    return (await ctx.runtime.catalog()).selfAgent + " heard " + response;
  });
  api.tools.register({ name: "memo__fail", parameters: word }, () => {
    throw Object.assign(new Error("sold out"), { code: "E_SOLD_OUT", suggestion: "Ask tomorrow." });
  });
  api.tools.register({ name: "memo__wait", parameters: word }, (ctx) =>
    new Promise((resolve) => ctx.signal.addEventListener("abort", () => {
      api.logger.warn("the call was canceled");
      resolve();
    })));
  api.pipeline.register("step", async (ctx) => {
    if (ctx.turn.inputEvent.input === "call memo__late x") {
      api.tools.register({ name: "memo__late", parameters: word }, () => "came later");
    }
    const names = ctx.toolCatalog.map(({ name }) => name).join(" ");
    api.logger.warn(`offered ${names}`);
    const result = await ctx.next();
    const { input } = ctx.turn.inputEvent;
    if (input === "count" && ctx.stepIndex === 0) result.shouldContinue = true;
    if (input === "stop" && ctx.stepIndex === 0) result.shouldContinue = false;
    return result;
  });
}
"#;

fn home() -> Home {
    let home = Home::new(PROJECT);
    home.write("project/extensions/memo.mjs", MEMO);
    home
}

#[test]
fn compat_3_tool_registered_by_an_extension_is_checked_and_run() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    let daemon = Daemon::serving(&home);
    let reply: Value = serde_json::from_str(&home.ask("ann", "call memo__save tea")).unwrap();
    let expected = json!({
        "saved": ["tea"], "agent": "worker", "key": "ann", "hasCall": true, "hasTurn": true, "isHere": true,
        "tool": "memo__save", "isDate": true,
    });
    assert_eq!(reply, expected);
    let offered = "offered wait__for memo__save memo__ask memo__fail memo__wait";
    assert!(!daemon.log().saying(offered).is_empty(), "{offered}");
    let wrong = home.ask("ann", "wrong");
    assert!(
        wrong.starts_with("E_TOOL_INVALID_ARGS: memo__save: at `/word`: is missing"),
        "{wrong}"
    );
    let unknown = home.ask("ann", "call memo__none x");
    assert!(
        unknown.starts_with("E_TOOL_NOT_IN_CATALOG") && unknown.contains("`memo__save`"),
        "{unknown}"
    );
    assert_eq!(home.ask("ann", "call memo__ask hi"), "worker heard hi");
    let failed = home.ask("ann", "call memo__fail x");
    assert_eq!(
        failed,
        "E_SOLD_OUT: Error: sold out\nsuggestion: Ask tomorrow."
    );
}

#[test]
fn compat_3_a_tool_may_be_registered_while_a_turn_runs() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("ann", "call memo__late x"), "came later");
}

#[test]
fn compat_3_registered_tool_call_times_out_and_turn_continues() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    let daemon = Daemon::serving(&home);
    let late = home.ask("ann", "call memo__wait x");
    assert!(
        late.starts_with("E_TOOL_TIMEOUT: the call ran longer than 3000 ms"),
        "{late}"
    );
    daemon.log().wait_for("the module was notified", |line| {
        message(line).contains("the call was canceled")
    });
    assert_eq!(home.ask("ann", "call memo__ask hi"), "worker heard hi");
}

#[test]
fn compat_3_registered_tool_call_cut_by_a_kill_is_not_repeated() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    home.write(
        "project/extensions/memo.mjs",
        &MEMO.replace(
            "saved.push(input.word);",
            "api.logger.warn('saving'); if (input.word === 'slow') await new Promise(() => {});",
        ),
    );
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--instance", "ann", "call memo__save slow"]);
    daemon.log().wait_for("the tool is at work", |line| {
        message(line).contains("saving")
    });
    let pid = home.ps_agent("ann").unwrap()["pid"].as_i64().unwrap();
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    asking.wait().exits(0).prints(&["E_TOOL_INTERRUPTED"]);
    assert_eq!(daemon.log().saying("saving").len(), 1);
}

#[test]
fn compat_3_taken_tool_name_fails_the_turn_with_the_name() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    home.write(
        "project/extensions/memo.mjs",
        &MEMO.replace("memo__fail", "wait__for"),
    );
    let _daemon = Daemon::serving(&home);
    let ran = home.gdn(&["send", "--instance", "ann", "hello"]).exits(7);
    ran.tells(&["E_EXT_INIT", "the agent already has a tool `wait__for`"]);
}

#[test]
fn compat_3_step_middleware_can_continue_or_end_the_turn() {
    if !needs::javascript() {
        return;
    }
    let home = home();
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("ann", "count"), "two");
    assert_eq!(home.ask("bob", "stop"), "enough");
    assert_eq!(home.history("bob").len(), 3, "the call has its result");
    let said = home.history("ann");
    let texts: Vec<&str> = said
        .iter()
        .filter_map(|message| message["data"]["content"].as_str())
        .collect();
    assert_eq!(texts, ["count", "one", "two"]);
}
