//! Resources that agents and clients can grow have a limit, which is reported when reached
//! (`SEC-8`).

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use goondan_tests::binaries::example;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::misbehaviour::{EXAMPLE, TURN, order_to_say};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::result_text;

/// `REACHED_PER_STEP_MAX` of the orchestrator.
const PER_STEP: usize = 16;
/// `CONTROL_FRAMES_BYTES_MAX` of the orchestrator over the longest frame.
const LONG_FRAMES: usize = 4;

/// An agent that spawns another fifty times in one step.
fn spawner() -> String {
    let mut calls = String::new();
    for n in 0..50 {
        let args = format!("{{agent: worker, input: \"go {n}\"}}");
        writeln!(calls, "          - {{tool: agents__spawn, args: {args}}}").unwrap();
    }
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^grow$', step: 1}}
        call:
{calls}      - say: done
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: boss}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools: [{{kind: Tool, name: agents, package: "@goondan/base"}}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: swarm}}
spec: {{entryAgent: Agent/boss, agents: [{{ref: Agent/boss}}, {{ref: Agent/worker}}]}}
"#
    )
}

#[test]
fn sec_8_step_that_spawns_fifty_agents_is_limited_and_informed() {
    let home = Home::new(&spawner());
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "grow"), "done");
    let messages = home.history("main");
    let told: Vec<String> = messages
        .iter()
        .filter(|message| message["data"]["role"] == "tool")
        .map(|message| result_text(message).to_owned())
        .collect();
    assert_eq!(told.len(), 50);
    let (refused, taken): (Vec<&String>, Vec<&String>) = told
        .iter()
        .partition(|text| text.starts_with("E_TOO_MANY_AGENTS"));
    assert_eq!(taken.len(), PER_STEP, "{taken:?}");
    assert!(refused[0].contains("another step"), "{}", refused[0]);
    let listed = home.gdn_json(&["instance", "list"]);
    let listed = listed["instances"].as_array().unwrap().len();
    assert_eq!(listed, PER_STEP + 1);
    assert!(home.running(AGENT).len() <= PER_STEP + 1);
}

/// A daemon whose agents misbehave on order.
fn stage() -> (Home, Daemon, tempfile::TempDir) {
    let home = Home::new(LAB);
    let bin_dir = home.bin_dir_of_its_own();
    for name in [AGENT, CONNECTOR] {
        std::fs::hard_link(example(EXAMPLE), bin_dir.path().join(name)).unwrap();
    }
    let daemon = Daemon::start_in(&home, bin_dir.path());
    home.gdn(&["run"]).exits(0);
    (home, daemon, bin_dir)
}

fn frame(kind: &str, payload: &Value) -> Value {
    json!({"type": kind, "from": "child", "to": "orchestrator", "payload": payload})
}

#[test]
fn sec_8_endlessly_appending_turn_fails_and_others_continue() {
    let (home, daemon, _bin_dir) = stage();
    let message = json!({
        "id": "{turn}:{n}", "data": {"role": "user", "content": "{fill}"}, "metadata": {},
        "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
    });
    let event = json!({"type": "append", "message": message});
    let mut append = frame(
        "turn.append",
        &json!({"turnId": TURN, "seq": "{n}", "event": event}),
    );
    append["times"] = json!(12);
    append["fillBytes"] = json!(8_000_000);
    order_to_say(home.path(), AGENT, &[append]);
    let sent = home
        .gdn(&["--json", "send", "--instance", "k", "hi"])
        .json();
    assert_eq!(sent["outcome"]["status"], "failed", "{sent}");
    assert_eq!(sent["outcome"]["code"], "E_TURN_TOO_LARGE");
    assert_eq!(home.ask("k", "echo here"), "here");
    let shown = home.gdn_json(&["instance", "show", "k"]);
    assert!(shown["baseBytes"].as_u64().unwrap() < 65 * 1024 * 1024);
    let crashed = daemon.log().saying("process crashed");
    assert!(crashed.is_empty(), "{crashed:#?}");
}

#[test]
fn sec_8_flood_of_reports_is_dropped_counted_and_harmless() {
    let (home, daemon, _bin_dir) = stage();
    let report = json!({
        "type": "turn.completed", "timestamp": "2026-01-01T00:00:00.000Z",
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
        "agentName": "worker", "instanceKey": "k", "turnId": TURN, "detail": "{fill}",
    });
    let mut observe = frame("observe", &report);
    observe["times"] = json!(100_000);
    observe["fillBytes"] = json!(500);
    order_to_say(home.path(), AGENT, &[observe]);
    let flooding = home.start_gdn(&["send", "--instance", "k", "echo after all"]);
    daemon.log().wait_for("some are dropped", |line| {
        message(line) == "turn sends too many reports; dropping some"
    });
    for _ in 0..5 {
        assert_eq!(home.ask("bystander", "echo here"), "here");
    }
    // The flood ends with its process; another process does the work.
    let broken = "process violated the protocol; killed";
    let told = daemon
        .log()
        .wait_for(broken, |line| message(line) == broken);
    assert_eq!(told["problem"], "it flooded the daemon with reports");
    assert_eq!(flooding.wait().exits(0).stdout, "after all\n");
    let path = home
        .workspace_dir()
        .join("instances/k/messages/runtime-events.jsonl");
    let recorded = std::fs::read_to_string(path).unwrap().lines().count();
    assert!(recorded < 20_000, "{recorded} reports are recorded");
}

#[test]
fn sec_8_partial_requests_hold_only_limited_memory() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let socket = home.state_root().join("run/orchestrator.sock");
    let long = 16 * 1024 * 1024_u32;
    let connect = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&long.to_be_bytes()).unwrap();
        // A connection without capacity is rejected by its header alone, and may be closed before
        // this write.
        stream.write_all(b"{").ok();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut held: Vec<UnixStream> = (0..=LONG_FRAMES).map(|_| connect()).collect();
    // The order of arrival is not known here.
    let mut text = String::new();
    wait_until("one finds no room", || {
        for stream in &mut held {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok();
            text.push_str(&String::from_utf8_lossy(&answer));
        }
        !text.is_empty()
    });
    assert!(
        text.contains("no memory for a frame of 16777216 bytes"),
        "{text}"
    );
    assert_eq!(home.ask("main", "echo here"), "here");
    drop(held);
}
