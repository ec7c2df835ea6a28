//! Tools that are modules of the project: their hosts, run for real.

use goondan_agent_process::tool_call::{ToolOutcome, ToolRules as _};
use goondan_agent_process::tools::Toolbox;
use goondan_protocol::definition::{ToolDefinition, ToolExport, ToolSource};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_tests::{needs, wait_for};
use serde_json::{Value, json};

use crate::bash::{call, toolbox_of};
use crate::support::{
    Orchestrator, StoredMessages, TestProject, is_alive, kill, put, script, wait_for_async,
};

/// A module whose handlers do what tests need.
const LAB: &str = r#"
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
let count = 0;
const signals = [];
export const handlers = {
  count: () => ++count,
  echo: ({ input }) => input,
  nothing: () => {},
  context: ({ workDir, projectRoot, instanceKey, agentName, toolCallId, config }) =>
    ({ workDir, projectRoot, instanceKey, agentName, toolCallId, config, cwd: process.cwd() }),
  environment: () => Object.keys(process.env).join(" "),
  fail: () => { throw new RangeError("too far"); },
  code: () => { throw Object.assign(new Error("sold out"), { code: "E_SOLD_OUT" }); },
  crash: () => { console.error("logged"); process.stderr.write("last words\n"); process.exit(3); },
  imitate: ({ input }) => {
    console.log('{"type":"result","id":1,"output":"console"}');
    process.stdout.write('{"type":"result","id":1,"output":"stdout"}\n');
    return "the real one";
  },
  children: () => {
    const fake = '{"type":"result","id":1,"output":"a child"}';
    const { status } = spawnSync("sh", ["-c", `printf half; cat; echo '${fake}'; printf half`], { stdio: "inherit" });
    return `status ${status}`;
  },
  patient: ({ signal }) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  stubborn: ({ workDir }) => {
    const child = spawn("sleep", ["1000"], { detached: true });
    writeFileSync(`${workDir}/pid`, `${child.pid}\n`);
    for (;;);
  },
  meet: () => new Promise((resolve) => {
    signals.push(resolve);
    if (signals.length === 3) for (const done of signals.splice(0)) done("met");
  }),
  long: () => "x".repeat(100_000),
};
"#;

const EXPORTS: [&str; 14] = [
    "count",
    "echo",
    "nothing",
    "context",
    "environment",
    "fail",
    "code",
    "crash",
    "imitate",
    "children",
    "patient",
    "stubborn",
    "meet",
    "long",
];

fn module(name: &str, entry: &str, exports: &[&str], timeout_ms: u64) -> ToolDefinition {
    let exports = exports.iter().map(|name| ToolExport {
        name: (*name).to_owned(),
        description: Some("Does it.".to_owned()),
        parameters: Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
        idempotent: None,
    });
    ToolDefinition {
        name: name.parse().unwrap(),
        source: ToolSource::Module {
            entry: entry.into(),
            digest: String::new(),
            timeout_ms,
            limits: ProcessLimits::default(),
        },
        exports: exports.collect(),
        config: json!({"shelf": 3}).as_object().unwrap().clone(),
        connections: Vec::new(),
        approve: Vec::new(),
        error_message_limit: 1_000,
    }
}

/// The tools of the module, where something runs JavaScript.
fn lab(site: &TestProject, timeout_ms: u64) -> Option<Toolbox> {
    if !needs::javascript() {
        return None;
    }
    put(site.project.join("lab.mjs"), LAB);
    let lab = module("lab", "lab.mjs", &EXPORTS, timeout_ms);
    Some(toolbox_of(site, vec![lab]))
}

async fn run(toolbox: &Toolbox, export: &str) -> ToolOutcome {
    let name = format!("lab__{export}");
    toolbox.run(&call(&name, json!({"n": 7}))).await
}

fn text(outcome: ToolOutcome) -> String {
    assert!(!outcome.is_error, "{}", outcome.text);
    outcome.text
}

fn error(outcome: ToolOutcome) -> String {
    assert!(outcome.is_error, "{}", outcome.text);
    outcome.text
}

#[tokio::test]
async fn a_handler_gets_its_call_and_its_result_is_the_models() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    assert_eq!(text(run(&lab, "echo").await), r#"{"n":7}"#);
    assert_eq!(text(run(&lab, "nothing").await), "[no output]");
    let context: Value = serde_json::from_str(&text(run(&lab, "context").await)).unwrap();
    let expected = json!({
        "workDir": site.work, "projectRoot": site.project, "instanceKey": "key: 1",
        "agentName": "clerk", "toolCallId": "t.1:c0", "config": {"shelf": 3}, "cwd": "/",
    });
    assert_eq!(context, expected);
    let long = text(run(&lab, "long").await);
    assert!(
        long.contains("the full output is in .goondan/outputs/t.1_c0.txt"),
        "{long}"
    );
    let refused = lab
        .check(&call("lab__echo", json!({"n": "x"})))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "E_TOOL_INVALID_ARGS: lab__echo: at `/n`: the value is not of type \"integer\""
    );
}

#[tokio::test]
async fn error_thrown_by_a_handler_is_the_error_of_its_call() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    assert_eq!(
        error(run(&lab, "fail").await),
        "E_TOOL_FAILED: RangeError: too far"
    );
    assert_eq!(
        error(run(&lab, "code").await),
        "E_SOLD_OUT: Error: sold out"
    );
    assert_eq!(text(run(&lab, "imitate").await), "the real one");
    put(site.project.join("bare.mjs"), "export const other = {};");
    put(site.project.join("broken.mjs"), "export const handlers = {");
    put(
        site.project.join("few.mjs"),
        "export const handlers = { a() {}, b() {} };",
    );
    let all = ["bare", "broken", "few"]
        .map(|name| module(name, &format!("{name}.mjs"), &["run"], 60_000));
    let toolbox = toolbox_of(&site, all.to_vec());
    let why =
        async |name: &str| error(toolbox.run(&call(&format!("{name}__run"), json!({}))).await);
    assert_eq!(
        why("bare").await,
        "E_TOOL_FAILED: Error: the module exports no `handlers`"
    );
    assert!(why("broken").await.starts_with("E_TOOL_FAILED: "));
    assert_eq!(
        why("few").await,
        "E_TOOL_FAILED: Error: `handlers` has no function `run`; it has a, b"
    );
}

#[tokio::test]
async fn calls_run_at_the_same_time_in_one_host_that_keeps_its_state() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    let met = tokio::join!(run(&lab, "meet"), run(&lab, "meet"), run(&lab, "meet"));
    assert_eq!([met.0, met.1, met.2].map(text), ["met", "met", "met"]);
    assert_eq!(text(run(&lab, "count").await), "1");
    assert_eq!(text(run(&lab, "count").await), "2");
}

#[tokio::test]
async fn host_crash_fails_its_call_and_restarts_with_back_off() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    assert_eq!(text(run(&lab, "count").await), "1");
    let crash = error(run(&lab, "crash").await);
    assert!(
        crash.starts_with("E_TOOL_CRASHED: ") && crash.contains("ended (exit code 3)"),
        "{crash}"
    );
    assert!(crash.ends_with("its last output:\nlast words"), "{crash}");
    assert_eq!(text(run(&lab, "count").await), "1", "a new host");
    assert!(error(run(&lab, "crash").await).contains("exit code 3"));
    assert!(error(run(&lab, "crash").await).contains("exit code 3"));
    let refused = error(run(&lab, "count").await);
    assert!(
        refused.ends_with("has crashed 2 times in a row; it may be started again in 1 s"),
        "{refused}"
    );
    wait_for_async("it is started again", async || {
        let outcome = run(&lab, "count").await;
        (!outcome.is_error).then_some(())
    })
    .await;
}

#[tokio::test]
async fn slow_call_is_stopped_and_a_hanging_call_ends_its_host() {
    let site = TestProject::new();
    if !needs::javascript() {
        return;
    }
    put(site.project.join("lab.mjs"), LAB);
    // Both run in one host. The timeout leaves time to start it, even on a busy machine.
    let tools = toolbox_of(
        &site,
        vec![
            module("lab", "lab.mjs", &EXPORTS, 60_000),
            module("short", "lab.mjs", &EXPORTS, 3_000),
        ],
    );
    let run_short = async |export: &str| {
        let name = format!("short__{export}");
        tools.run(&call(&name, json!({}))).await
    };
    assert_eq!(text(run(&tools, "count").await), "1");
    let stopped = error(run_short("patient").await);
    assert!(
        stopped.starts_with("E_TOOL_TIMEOUT: the call ran longer than 3000 ms and was stopped;"),
        "{stopped}"
    );
    assert_eq!(text(run(&tools, "count").await), "2", "the same host");
    let ended = error(run_short("stubborn").await);
    assert!(
        ended.starts_with(
            "E_TOOL_TIMEOUT: the call ran longer than 3000 ms and was ended with its host;"
        ),
        "{ended}"
    );
    assert!(!is_alive(site.pid_in("pid")), "what it started is left");
    assert_eq!(text(run(&tools, "count").await), "1", "a new host");
}

#[tokio::test]
async fn abandoned_call_is_canceled_and_its_host_replaced() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    assert_eq!(text(run(&lab, "count").await), "1");
    tokio::select! {
        outcome = run(&lab, "stubborn") => panic!("it ended: {outcome:?}"),
        () = wait_for_async("it runs", async || site.work.join("pid").exists().then_some(())) => {}
    }
    assert_eq!(text(run(&lab, "count").await), "1", "a new host");
    assert!(!is_alive(site.pid_in("pid")));
}

#[tokio::test]
async fn prov_1_programs_of_a_javascript_module_cannot_disturb_its_calls() {
    let site = TestProject::new();
    let Some(lab) = lab(&site, 60_000) else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(text(run(&lab, "children").await), "status 0");
        assert_eq!(text(run(&lab, "echo").await), r#"{"n":7}"#);
    }
}

#[tokio::test]
async fn any_executable_may_speak_the_protocol() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = TestProject::new();
    let path = site.project.join("tool");
    put(
        &path,
        "#!/bin/sh\necho ready\nwhile read -r line; do\n  id=${line#*\\\"id\\\":}\n  \
         echo \"{\\\"type\\\":\\\"result\\\",\\\"id\\\":${id%%,*},\\\"output\\\":\\\"from sh\\\"}\"\ndone\n",
    );
    let toolbox = toolbox_of(&site, vec![module("lab", "tool", &["run"], 60_000)]);
    let refused = error(run(&toolbox, "run").await);
    assert_eq!(
        refused,
        "E_TOOL_NO_RUNTIME: `tool` cannot be executed; make the file executable (chmod +x)"
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(text(run(&toolbox, "run").await), "from sh");
}

#[tokio::test]
async fn host_has_its_module_limits_and_is_shared_only_on_equal_ones() {
    if !needs::javascript() {
        return;
    }
    let site = TestProject::new();
    put(
        site.project.join("limits.mjs"),
        r#"
import { readFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
let count = 0;
export const handlers = {
  held: () => readFileSync("/proc/self/limits", "utf8"),
  child: () => execFileSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" }).trim(),
  hoard: () => { const held = []; for (;;) held.push(Buffer.alloc(1 << 24, 1)); },
  count: () => ++count,
};
"#,
    );
    let exports = ["held", "child", "hoard", "count"];
    let tool = |name: &str, limits: ProcessLimits| {
        let mut tool = module(name, "limits.mjs", &exports, 60_000);
        if let ToolSource::Module { limits: held, .. } = &mut tool.source {
            *held = limits;
        }
        tool
    };
    let limits = ProcessLimits {
        // Deno needs more memory than the other runtimes to start.
        memory_bytes: Some(704 << 20),
        open_files: Some(100),
        processes: None,
    };
    let none = ProcessLimits::default();
    let toolbox = toolbox_of(&site, vec![tool("tight", limits), tool("wide", none)]);
    let run = async |name: &str| toolbox.run(&call(name, json!({}))).await;
    if cfg!(target_os = "linux") {
        let held = text(run("tight__held").await);
        let of = |name: &str| {
            let line = held.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().nth(1).map(str::to_owned)
        };
        assert_eq!(of("Max data size").as_deref(), Some("738197504"));
        assert_eq!(of("Max open files").as_deref(), Some("100"));
        let hoard = error(run("tight__hoard").await);
        assert!(hoard.contains("E_"), "{hoard}");
    }
    assert_eq!(text(run("tight__child").await), "100");
    assert_ne!(text(run("wide__child").await), "100");
    assert_eq!(text(run("wide__count").await), "1");
    assert_eq!(text(run("tight__count").await), "1", "a host of its own");
}

/// A module of `docs/examples/tools`, among its own files.
fn example(site: &mut TestProject, tool: ToolDefinition) -> Toolbox {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/tools");
    site.project = path.canonicalize().unwrap();
    toolbox_of(site, vec![tool])
}

#[tokio::test]
async fn the_example_in_javascript_works() {
    if !needs::javascript() {
        return;
    }
    let mut prices = module("prices", "tools/prices.mjs", &["total"], 60_000);
    prices.config.insert("currency".to_owned(), json!("euros"));
    let mut site = TestProject::new();
    let toolbox = example(&mut site, prices);
    let input = json!({"count": "3", "price": "12.50"});
    let total = toolbox.run(&call("prices__total", input)).await;
    assert_eq!(text(total), "37.50 euros");
}

#[tokio::test]
async fn the_example_in_python_works() {
    if !needs::program("python3") {
        return;
    }
    let mut site = TestProject::new();
    let words = module("words", "tools/words.py", &["top"], 60_000);
    let toolbox = example(&mut site, words);
    let run = async |input: Value| toolbox.run(&call("words__top", input)).await;
    put(site.work.join("text.txt"), "to be or not to be");
    let top = run(json!({"path": "text.txt", "limit": 1})).await;
    assert_eq!(text(top), r#"[{"word":"to","count":2}]"#);
    let missing = run(json!({"path": "none.txt"})).await;
    assert!(error(missing).starts_with("E_TOOL_FAILED: FileNotFoundError: "));
}

#[tokio::test]
async fn prov_1_odd_results_and_programs_of_python_lose_no_call() {
    if !needs::program("python3") {
        return;
    }
    let site = TestProject::new();
    put(
        site.project.join("odd.py"),
        r#"
import subprocess, sys
from goondan import run, tool

@tool
def leave(input, context):
    sys.exit(3)

@tool
def nan(input, context):
    return float("nan")

@tool
def half(input, context):
    return "a\udc80b"

@tool
def child(input, context):
    # It reads standard input to its end, and writes no whole line.
    subprocess.run(["sh", "-c", "cat; printf begun"], check=True)
    return input["text"]

run()
"#,
    );
    let exports = ["leave", "nan", "half", "child"];
    let toolbox = toolbox_of(&site, vec![module("odd", "odd.py", &exports, 20_000)]);
    let run = async |export: &str| {
        let input = json!({"text": "é"});
        toolbox.run(&call(&format!("odd__{export}"), input)).await
    };
    for _ in 0..2 {
        let left = error(run("leave").await);
        assert!(left.contains("SystemExit: 3"), "{left}");
        let nan = error(run("nan").await);
        assert!(nan.contains("ValueError"), "{nan}");
        assert_eq!(text(run("half").await), "a\u{fffd}b");
        assert_eq!(text(run("child").await), "é");
    }
}

#[tokio::test]
async fn typescript_example_works_or_reports_the_missing_runtime() {
    let mut site = TestProject::new();
    let slug = module("slug", "tools/slug.ts", &["of"], 60_000);
    let toolbox = example(&mut site, slug);
    let input = json!({"title": "Pride & Prejudice"});
    let slug = toolbox.run(&call("slug__of", input)).await;
    if needs::typescript() {
        return assert_eq!(text(slug), "pride-prejudice");
    }
    let told = error(slug);
    assert!(
        told.starts_with("E_TOOL_NO_RUNTIME: `tools/slug.ts` is TypeScript, ")
            && told.ends_with("install bun, deno or node 22.6 or newer"),
        "{told}"
    );
}

#[test]
fn host_outlives_turns_logs_its_calls_and_ends_with_its_agent() {
    if !needs::javascript() {
        return;
    }
    let site = TestProject::new();
    put(
        site.project.join("host.mjs"),
        r#"
import { writeFileSync } from "node:fs";
let count = 0;
export const handlers = {
  count: ({ logger }) => {
    writeFileSync(`${process.env.GOONDAN_WORK_DIR}/pid`, `${process.pid}\n`);
    logger.warn("counted %d", ++count);
    return `${count} ${"GOONDAN_SECRET" in process.env}`;
  },
};
"#,
    );
    let mut assignment = site.assignment(script(
        "rules:
          - when: {step: 1}
            call: [{tool: lab__count}]
          - when: {tool: lab__count, result: '(?P<count>.*)'}
            say: '${count}'",
    ));
    assignment
        .agent
        .tools
        .push(module("lab", "host.mjs", &["count"], 60_000));
    let mut orchestrator = Orchestrator::start(&assignment, StoredMessages::default());
    assert_eq!(orchestrator.ask("t1", "go"), "1 false");
    let pid = site.pid_in("pid");
    assert_eq!(
        orchestrator.ask("t2", "go"),
        "2 false",
        "the host was ended"
    );
    let counted: Vec<_> = orchestrator
        .log()
        .into_iter()
        .filter(|line| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("counted"))
        })
        .collect();
    assert_eq!(counted.len(), 2);
    assert_eq!(counted[1]["message"], "counted 2");
    assert_eq!(counted[1]["level"], "warn");
    assert_eq!(counted[1]["turnId"], "t2");
    assert_eq!(counted[1]["toolName"], "lab__count");
    assert_eq!(
        counted[1]["traceId"],
        crate::support::trace().trace_id.to_string()
    );
    let called = orchestrator
        .observed
        .iter()
        .find(|event| event.tool_name.as_deref() == Some("lab__count"))
        .unwrap();
    assert_eq!(counted[0]["spanId"], called.span_id.to_string());
    kill(i32::try_from(orchestrator.child.id()).unwrap());
    wait_for("the host is gone", || (!is_alive(pid)).then_some(()));
}
