//! Extensions that are modules of the project, run for real (`EXT-2`, `EXT-4`).

use std::fs;
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

/// Two agents; the first is wrapped by an extension module that follows the message's orders.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^run (?P<command>.+)', step: 1}
        call: [{tool: bash__exec, args: {command: "${command}"}}]
      - when: {user: '^wait', step: 1}
        call: [{tool: wait__for, args: {seconds: 2}}]
      - when: {user: '^query', step: 1}
        call: [{tool: json-query__query, args: {wrong: true}}]
      - when: {user: '^fail'}
        fail: broken
      - when: {tool: bash__exec, result: '(?s)(?P<all>.*)'}
        say: "${all}"
      - when: {tool: json-query__query, result: '(?s)(?P<all>.*)'}
        say: "${all}"
      - say: "${input}"
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: lab}
spec:
  entry: extensions/lab.mjs
  timeoutSeconds: 4
  config: {shelf: 3}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
    - {kind: Tool, name: wait, package: "@goondan/base"}
    - {kind: Tool, name: json-query, package: "@goondan/base"}
  extensions: [Extension/lab]
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

const LAB: &str = r#"
export function register(api, config) {
  let heard = 0;
  api.events.on("turn.completed", () => { heard += 1; });
  api.events.on("own", (text) => api.logger.warn(`heard ${text}`));
  api.pipeline.register("turn", async (ctx) => {
    const count = ((await api.state.get())?.count ?? 0) + 1;
    await api.state.set({ count });
    const { input } = ctx.inputEvent;
    ctx.metadata.count = count;
    ctx.emitMessageEvent({
      type: "append",
      message: { data: { role: "system", content: `turn ${count}` } },
    });
    if (input === "crash") { process.stderr.write("last words\n"); process.exit(3); }
    if (input === "hang") for (;;);
    if (input === "throw") throw Object.assign(new Error("sold out"), { code: "E_SOLD_OUT" });
    if (input === "leave") return { finishReason: "text_response" };
    if (input === "twice") { await ctx.next(); await ctx.next(); }
    if (input === "bad state") await api.state.set({ a: [() => 1] });
    if (input === "bad event") ctx.emitMessageEvent({
      type: "append", message: { data: { role: "tool", content: [] } },
    });
    api.events.emit("own", "a word");
    const asked = input.startsWith("ask ")
      ? (await ctx.agents.request({ target: "clerk", input: input.slice(4) })).response
      : undefined;
    const result = await ctx.next();
    if (result.error) return result.error.code === "E_MODEL"
      ? { ...result, finishReason: "text_response", error: undefined, responseMessage: { data: { role: "assistant", content: "saved" } } }
      : result;
    const { baseMessages, events, nextMessages } = ctx.conversationState;
    const told = {
      reply: result.responseMessage.data.content, asked, count, heard, config,
      base: baseMessages.length, events: events.length, next: nextMessages.length,
      steps: ctx.metadata.steps, agent: ctx.agentName, key: ctx.instanceKey,
    };
    const data = { role: "assistant", content: JSON.stringify(told) };
    return { ...result, responseMessage: { ...result.responseMessage, data } };
  });
  api.pipeline.register("step", async (ctx) => {
    ctx.toolCatalog = ctx.toolCatalog.filter(({ name }) => !name.startsWith("json-query"));
    const result = await ctx.next();
    api.logger.info(`step ${ctx.stepIndex} of ${ctx.turn.id} had ${result.toolCalls.length} calls`);
    return result;
  });
  api.pipeline.register("toolCall", async (ctx) => {
    const { command } = ctx.args;
    if (command === "forbidden") throw new Error("not this command");
    if (command === "known") return { status: "ok", output: "known already" };
    if (command === "echo changed") ctx.args = { command: "echo something else" };
    if (command === "echo wrong") ctx.args = { command: 7 };
    if (command === "die") process.exit(4);
    const result = await ctx.next();
    return { ...result, output: `${result.output}!` };
  });
}
"#;

fn lab() -> Home {
    let home = Home::new(PROJECT);
    home.write("project/extensions/lab.mjs", LAB);
    home
}

fn model_request(home: &Home, text: &str) -> Value {
    serde_json::from_str(&home.ask("ann", text)).unwrap()
}

/// The state follows the reply: it is part of the commit, and the file is written with the fold.
#[track_caller]
fn wait_for_state(home: &Home, expected: &Value) {
    let file = home
        .workspace_dir()
        .join("instances/ann/extensions/lab.json");
    let state = || serde_json::from_slice::<Value>(&fs::read(&file).ok()?).ok();
    wait_until("the state is written", || {
        state().as_ref() == Some(expected)
    });
}

fn notes(home: &Home) -> Vec<String> {
    let messages = home.history("ann").into_iter();
    let notes = messages.filter(|message| message["source"]["extensionName"] == "lab");
    notes
        .map(|message| message["data"]["content"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn ext_2_module_wraps_turns_steps_and_calls() {
    if !needs::javascript() {
        return;
    }
    let home = lab();
    let daemon = Daemon::serving(&home);
    let first = model_request(&home, "one");
    assert_eq!(
        first,
        json!({
            "reply": "one", "count": 1, "heard": 0, "config": {"shelf": 3}, "base": 0, "events": 3,
            "next": 3, "agent": "worker", "key": "ann",
        })
    );
    wait_for_state(&home, &json!({"count": 1}));
    let second = model_request(&home, "run echo hello");
    assert!(
        second["reply"].as_str().unwrap().contains("hello\n!"),
        "{second}"
    );
    assert_eq!(
        [&second["base"], &second["events"], &second["heard"]],
        [3, 5, 1].map(|n| json!(n)).each_ref()
    );
    assert_eq!(notes(&home), ["turn 1", "turn 2"]);
    for (command, said) in [
        (
            "forbidden",
            "E_EXT_FAILED: extension `lab`: Error: not this command",
        ),
        ("known", "known already"),
        ("echo changed", "something else"),
        (
            "echo wrong",
            "E_TOOL_INVALID_ARGS: bash__exec: at `/command`",
        ),
    ] {
        let told = model_request(&home, &format!("run {command}"));
        assert!(told["reply"].as_str().unwrap().contains(said), "{told}");
    }
    let asked = model_request(&home, "ask what now");
    assert_eq!(asked["asked"], "what now");
    assert_eq!(
        home.ask("ann", "fail"),
        "saved",
        "what a model could not say"
    );
    daemon.log().wait_for("its lines are in the log", |line| {
        message(line) == "heard a word" && line["traceId"].is_string()
    });
    daemon.stop();
}

#[test]
fn a_module_that_fails_fails_its_turn_and_no_more() {
    if !needs::javascript() {
        return;
    }
    let home = lab();
    let daemon = Daemon::serving(&home);
    assert_eq!(model_request(&home, "one")["count"], 1);
    let agent = home.ps_agent("ann").unwrap()["pid"].clone();
    for (input, said) in [
        (
            "crash",
            ["E_EXT_CRASHED", "extension `lab` worked", "last words"],
        ),
        (
            "hang",
            [
                "E_EXT_TIMEOUT",
                "extension `lab` ran longer than 4000 ms",
                "`timeoutSeconds`",
            ],
        ),
        (
            "throw",
            ["E_SOLD_OUT", "extension `lab` failed", "sold out"],
        ),
        (
            "leave",
            [
                "E_EXT_FAILED",
                "extension `lab` failed",
                "without calling `next()`",
            ],
        ),
        (
            "twice",
            [
                "E_EXT_FAILED",
                "extension `lab` failed",
                "called a second time",
            ],
        ),
        (
            "bad state",
            ["E_EXT_FAILED", "the state.a.0 is", "no JSON value"],
        ),
        (
            "bad event",
            [
                "E_EXT_FAILED",
                "extension `lab` failed",
                "only models call tools",
            ],
        ),
        (
            "run die",
            ["E_EXT_CRASHED", "extension `lab` worked", "exit code 4"],
        ),
    ] {
        let ran = home.gdn(&["send", "--instance", "ann", input]);
        ran.exits(7).tells(&said);
        wait_for_state(&home, &json!({"count": 1}));
    }
    assert_eq!(
        model_request(&home, "two")["count"],
        2,
        "the turns continue"
    );
    assert_eq!(home.ps_agent("ann").unwrap()["pid"], agent);
    let messages = home.history("ann");
    let of = |kind: &str| {
        let parts = messages
            .iter()
            .filter_map(|m| m["data"]["content"].as_array());
        let parts = parts.flatten().filter(|part| part["type"] == kind);
        parts
            .map(|part| part["toolCallId"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("tool-call").len(), 1);
    assert_eq!(of("tool-call"), of("tool-result"), "calls have results");
    daemon.stop();
}

#[test]
fn ext_2_turn_resumed_after_a_crash_repeats_no_module_work() {
    if !needs::javascript() {
        return;
    }
    let home = lab();
    let daemon = Daemon::serving(&home);
    assert_eq!(model_request(&home, "one")["count"], 1);
    let waiting = home.start_gdn(&["send", "--instance", "ann", "wait"]);
    let is_called = || {
        let pending = home.gdn_json(&["instance", "history", "ann"])["pending"].to_string();
        pending.contains("wait__for")
    };
    wait_until("the tool runs", is_called);
    let pid = home.ps_agent("ann").unwrap()["pid"].as_i64().unwrap();
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    let output: Value = serde_json::from_str(&waiting.wait().exits(0).stdout).unwrap();
    assert_eq!(output["count"], 2, "it began with the state of before");
    assert_eq!(
        output["next"],
        output["base"].as_u64().unwrap() + output["events"].as_u64().unwrap()
    );
    assert_eq!(notes(&home), ["turn 1", "turn 2"]);
    daemon.stop();
}

#[test]
fn unusable_module_reports_why_and_an_edit_fixes_it() {
    if !needs::javascript() {
        return;
    }
    let home = lab();
    home.write("project/extensions/lab.mjs", "export const nothing = 1;");
    let daemon = Daemon::start(&home);
    home.gdn(&["run", "--watch"]).exits(0);
    let refused = || home.gdn(&["send", "--instance", "ann", "one"]).exits(7);
    refused().tells(&[
        "E_EXT_LOAD",
        "`extensions/lab.mjs`",
        "no function `register`",
    ]);
    for (module, said) in [
        (
            "export const register = () => { throw new Error('not today'); };",
            ["E_EXT_INIT", "not today"],
        ),
        (
            "export const register = (api) => api.pipeline.register('tool', () => {});",
            ["E_EXT_INIT", "turn, step, toolCall"],
        ),
    ] {
        edit(&home, &daemon, module);
        refused().tells(&said);
    }
    edit(&home, &daemon, LAB);
    assert_eq!(model_request(&home, "one")["count"], 1);
    daemon.stop();
}

/// On a busy machine, or the first time after a boot, the start of a runtime takes longer than a
/// module's timeout.
#[test]
fn the_start_of_the_runtime_is_no_time_of_the_modules() {
    let Some((name, path)) = needs::javascript_runtime() else {
        return;
    };
    let home = lab();
    let script = format!("#!/bin/sh\nsleep 5\nexec {} \"$@\"\n", path.display());
    home.write_program(&format!("bin/{name}"), &script);
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(home.path().join("bin")).chain(std::env::split_paths(&inherited));
    command.env("PATH", std::env::join_paths(dirs).unwrap());
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    assert_eq!(model_request(&home, "one")["count"], 1);
    daemon.stop();
}

#[test]
fn a_module_in_typescript_runs() {
    if !needs::typescript() {
        return;
    }
    let home = Home::new(&PROJECT.replace("lab.mjs", "lab.mts"));
    home.write(
        "project/extensions/lab.mts",
        r#"
type Context = { inputEvent: { input: string }; next(): Promise<unknown> };
export function register(api: { pipeline: { register(type: "turn", fn: (ctx: Context) => unknown): void } }): void {
  api.pipeline.register("turn", async (ctx: Context): Promise<unknown> => {
    await ctx.next();
    const data = { role: "assistant", content: `typed ${ctx.inputEvent.input}` };
    return { finishReason: "text_response", responseMessage: { data } };
  });
}
"#,
    );
    let daemon = Daemon::serving(&home);
    let ran = home.gdn(&["send", "--instance", "ann", "one"]);
    assert_eq!(ran.exits(0).stdout.trim_end(), "typed one");
    daemon.stop();
}

#[test]
fn tool_removed_in_a_step_cannot_be_called() {
    if !needs::javascript() {
        return;
    }
    let home = lab();
    let daemon = Daemon::serving(&home);
    let answer: Value = serde_json::from_str(&home.ask("ann", "query")).unwrap();
    assert_eq!(
        answer["reply"],
        "E_TOOL_NOT_IN_CATALOG: `json-query__query` is not offered in this step"
    );
    daemon.stop();
}

fn edit(home: &Home, daemon: &Daemon, module: &str) {
    let seen = daemon.log().lines().len();
    home.write("project/extensions/lab.mjs", module);
    let line = daemon.log().wait_for_after(seen, "it is taken up", |line| {
        message(line) == "configuration changed"
    });
    assert_eq!(line["changes"], json!(["Agent/worker changed"]));
}

#[test]
fn extension_example_withholds_tools_as_intended() {
    if !needs::javascript() {
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/extensions");
    let example = example.canonicalize().unwrap();
    let home = Home::without_project();
    let ask = |question: &str| {
        let ran = home.gdn(&["demo", example.to_str().unwrap(), "--ask", question]);
        ran.exits(0).stdout
    };
    assert_eq!(
        ask("Who stays in room 12?"),
        "In room 12 stays Ada ((address withheld)). Good night!\n"
    );
    assert_eq!(
        ask("Delete the guest list"),
        "I may not do that (E_TOOL_NOT_IN_CATALOG: `bash__exec` is not offered in this step). Good \
         night!\n"
    );
}
