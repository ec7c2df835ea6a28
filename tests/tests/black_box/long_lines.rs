//! Goal: no character that a program writes is lost on its way to the log, regardless of line
//! length and stream (`LOG-3`).
//!
//! Method: a connector program, an MCP server and a tool write long lines to both outputs, and
//! lines outside of the protocol. The log is reassembled by the marks of the parts.

use goondan_tests::{Daemon, Home, needs};
use serde_json::Value;

/// Maximum length of a log line (`MAX_LOG_LINE_BYTES`).
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A connector: a long line to stderr, then a text to stdout, which ends the protocol.
const CONNECTOR: &str = r#"import sys, time
sys.stdin.readline()
sys.stderr.write("begin " + "x" * 100_000 + " end\n")
sys.stderr.write("é" * 50_000 + "\n")
sys.stderr.flush()
sys.stdout.write("no protocol: " + "y" * 100_000 + " over\nand more of it\n")
sys.stdout.flush()
sys.stderr.write("last words without an end")
sys.stderr.flush()
time.sleep(1000)
"#;

/// An MCP server that writes other lines to both outputs before it starts.
const SERVER: &str = r#"import json, sys
print("server banner " + "b" * 100_000 + " done")
sys.stderr.write("server noise " + "n" * 100_000 + " done\n")
sys.stderr.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    version = message.get("params", {}).get("protocolVersion", "2025-06-18")
    result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "tools/list": result = {"tools": []}
    print("between " + message["method"], flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// A tool that writes lines outside of the protocol, exits, and leaves its last line incomplete.
const TOOL: &str = r#"import sys
sys.stdin.readline()
print("tool says " + "t" * 100_000 + " done", flush=True)
sys.stderr.write("tool warns " + "w" * 100_000 + " done\n")
sys.stderr.write("the tool gives up")
sys.exit(3)
"#;

const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - {when: {user: '^use it$', step: 1}, call: [{tool: noisy__run, args: {}}]}
      - {say: done}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: noisy}
spec:
  entry: noisy.py
  exports: [{name: run, description: Runs., parameters: {type: object}}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  sandbox: {require: off}
  tools: [Tool/noisy]
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: talker}
spec: {entry: talker.py}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: talker}
spec: {connectorRef: Connector/talker, sandbox: {require: off}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: server}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  sandbox: {require: off}
  config: {command: [python3, server.py]}
"#;

/// Texts of lines, with parts reassembled. Each part is numbered, and no part exceeds the line
/// limit.
fn texts(lines: &[Value], source: impl Fn(&Value) -> bool) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| source(line)) {
        assert!(line.to_string().len() <= LINE_BYTES_MAX + 1024);
        let message = line["message"].as_str().unwrap();
        match (line["splitPart"].as_u64(), texts.last_mut()) {
            (Some(part), Some(text)) if part > 1 => text.push_str(message),
            (part, _) => {
                assert!(part.is_none_or(|part| part == 1), "{part:?} begins a text");
                texts.push(message.to_owned());
            }
        }
    }
    texts
}

#[test]
fn log_3_no_program_loses_a_character_on_its_way_to_the_log() {
    if !needs::program("python3") {
        return;
    }
    let home = Home::new(PROJECT);
    home.write("project/talker.py", CONNECTOR);
    home.write("project/server.py", SERVER);
    home.write("project/noisy.py", TOOL);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "use it"), "done");
    let log = daemon.log();
    for last in [
        "last words without an end",
        "the tool gives up",
        "between initialize",
    ] {
        log.wait_for(last, |line| line["message"] == last);
    }
    let lines = log.lines();
    let of = |connection: &'static str, source: &'static str| {
        let is_it =
            move |line: &Value| line["connection"] == connection && line["source"] == source;
        texts(&lines, is_it)
    };
    let has = |texts: &[String], text: String| {
        let found = texts.contains(&text);
        let lengths: Vec<usize> = texts.iter().map(String::len).collect();
        assert!(found, "no text of {} bytes among {lengths:?}", text.len());
    };
    let long = |first: &str, character: &str, last: &str| {
        format!("{first} {} {last}", character.repeat(100_000))
    };
    let stderr = of("talker", "stderr");
    has(&stderr, long("begin", "x", "end"));
    has(&stderr, "é".repeat(50_000));
    let stdout = of("talker", "stdout");
    has(&stdout, long("no protocol:", "y", "over"));
    has(&stdout, "and more of it".to_owned());
    has(&of("server", "stderr"), long("server noise", "n", "done"));
    has(&of("server", "stdout"), long("server banner", "b", "done"));
    let tool = |level: &'static str| {
        texts(&lines, move |line| {
            line["host"] == "noisy.py" && line["level"] == level
        })
    };
    has(&tool("info"), long("tool says", "t", "done"));
    has(&tool("warn"), long("tool warns", "w", "done"));
}
