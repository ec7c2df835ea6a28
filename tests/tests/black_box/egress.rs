//! Goal: programs that run for a model reach only the hosts that a person has listed, and no known
//! method bypasses the list (`SEC-3`).
//!
//! Method: `escapes/egress.py` tries each method together with a similar allowed one, as a command,
//! in a session, from a module, as a connector and from an MCP server of a real daemon;
//! `escapes/hosts.py` provides the hosts. Without a sandbox the same methods succeed; otherwise the
//! test would prove nothing.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use goondan_tests::home::RunningProgram;
use goondan_tests::log::message;
use goondan_tests::processes::{Signal, signal};
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

use crate::escapes::SERVER;

const ESCAPE: &str = include_str!("escapes/egress.py");
const HOSTS: &str = include_str!("escapes/hosts.py");
const LOOT: &str = "loot-of-the-network-7131";

/// Tools and connections other than the agents.
const OTHERS: &str = r#"
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: escape}
spec:
  entry: tools/escape.py
  exports: [{name: try, description: Tries the ways., parameters: {type: object}}]
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: server}
spec: {builtin: mcp}
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: escape}
spec: {entry: connectors/escape.py}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: escape}
spec:
  connectorRef: Connector/escape
  sandbox: {write: [NOTES], network: {allow: ["127.0.0.1:MIRROR", "localhost:MIRROR", "localhost:PRIVATE"]}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: server}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {command: [python3, PROJECT/server.py, PROJECT/served.py]}
  sandbox: {network: {allow: ["127.0.0.1:MIRROR", "localhost:MIRROR", "localhost:PRIVATE"]}}
"#;

/// The agents: `prisoner` and `neighbor` may reach different hosts, `free` all of them.
fn project() -> Commands {
    const TRY: &str = "python3 PROJECT/egress.py PROJECT/plan.json";
    const MIRROR: &str = "curl -sSf http://127.0.0.1:MIRROR/";
    const OTHER: &str = "curl -sSf http://127.0.0.1:OTHER/";
    let in_session = |command: &str| json!({"command": command, "session": "s"});
    Commands::new()
        .run("^as a command$", TRY)
        .call("^in a session$", "bash__exec", in_session(TRY))
        .call("^from a module$", "escape__try", json!({}))
        .call("^from an MCP server$", "server__try", json!({}))
        .run("^without a sandbox$", &format!("{TRY} free"))
        .run("^mirror$", MIRROR)
        .call(
            "^mirror in a session$",
            "bash__exec",
            in_session(&format!("{MIRROR}; echo of $$")),
        )
        .call("^other in a session$", "bash__exec", in_session(OTHER))
        .run(
            "^often$",
            "for i in $(seq 60); do curl -s http://127.0.0.1:OTHER/; done",
        )
        .agent(
            "prisoner",
            &[BASH, "Tool/escape", "Tool/server"],
            r#"{network: {allow: ["127.0.0.1:MIRROR", "localhost:MIRROR", "localhost:PRIVATE"]}}"#,
        )
        .agent(
            "neighbor",
            &[BASH],
            r#"{network: {allow: ["127.0.0.1:OTHER"]}}"#,
        )
        .agent("free", &[BASH], r#"{require: "off"}"#)
        .with(OTHERS)
}

/// Behavior of the MCP server when its tool is called.
const SERVED: &str = r#"
import os, sys

os.execv(sys.executable, [sys.executable, "PROJECT/egress.py", "PROJECT/plan.json"])
"#;

/// A module that tries the methods in a separate program.
const MODULE: &str = r#"
import json, subprocess, sys

for line in sys.stdin:
    call = json.loads(line)
    if call["type"] == "call":
        words = [sys.executable, "PROJECT/egress.py", "PROJECT/plan.json"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        print(json.dumps({"type": "result", "id": call["id"], "output": done.stdout + done.stderr}), flush=True)
"#;

/// A connector program: it tries the methods immediately.
const PROGRAM: &str = r#"
import os, subprocess, sys, time

print('{"type": "status", "ready": true, "detail": "trying"}', flush=True)
while not os.path.exists("NOTES/go"):
    time.sleep(0.02)
words = [sys.executable, "PROJECT/egress.py", "PROJECT/plan.json"]
done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
with open("NOTES/written", "w") as file:
    file.write(done.stdout + done.stderr)
os.rename("NOTES/written", "NOTES/results")
for line in sys.stdin:
    if '"stop"' in line:
        break
"#;

/// The hosts, and their ports.
fn hosts(home: &Home) -> (RunningProgram, Value) {
    home.write("hosts.py", HOSTS);
    let program = home.path().join("hosts.py").display().to_string();
    let mut command = home.command(Path::new("python3"), &[&program, LOOT]);
    command.stdin(Stdio::piped());
    let hosts = RunningProgram::start(command);
    hosts.wait_for_stdout("}\n");
    let ports = serde_json::from_str(&hosts.stdout()).unwrap();
    (hosts, ports)
}

/// True if this machine meets all requirements; prints a note if not.
fn is_had() -> bool {
    needs::program("python3") && needs::program("curl") && needs::sandbox("full")
}

/// Attempted methods with their results.
fn cases(how: &str, said: &str) -> Vec<Value> {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let cases: Vec<Value> = lines.map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(
        cases.len(),
        ESCAPE.matches("\ncase(").count(),
        "{how}: {said}"
    );
    cases
}

/// Unexpected results of the attempted methods.
fn wrong(how: &str, said: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases(how, said) {
        let name = &case["name"];
        if case["forbidden"].is_null() {
            wrong.push(format!("{how}, it {name}"));
        }
        if let Some(why) = case["allowed"].as_str() {
            wrong.push(format!("{how}, what is like {name} does not work: {why}"));
        }
    }
    wrong
}

/// A daemon whose agents and connections may reach some hosts, and these hosts.
struct EgressFixture {
    daemon: Daemon,
    hosts: RunningProgram,
    home: Home,
}

impl EgressFixture {
    fn new() -> Self {
        let home = Home::without_project();
        let (hosts, ports) = hosts(&home);
        let filled = |text: &str| {
            let text = text.replace("PROJECT", home.project().to_str().unwrap());
            let mut text = text.replace("NOTES", home.notes().to_str().unwrap());
            for name in ["mirror", "other", "private"] {
                text = text.replace(&name.to_uppercase(), &ports[name].to_string());
            }
            text
        };
        home.write("project/goondan.yaml", &filled(&project().yaml()));
        home.write("project/egress.py", ESCAPE);
        home.write("project/server.py", SERVER);
        home.write("project/served.py", &filled(SERVED));
        home.write("project/tools/escape.py", &filled(MODULE));
        home.write("project/connectors/escape.py", &filled(PROGRAM));
        home.write("notes/before", "");
        let daemon = Daemon::serving(&home);
        let directory = home.state_root().join("run/egress");
        wait_until("the egress listens", || {
            fs::read_dir(&directory).is_ok_and(|entries| entries.count() == 4)
        });
        let mut sockets = fs::read_dir(&directory).unwrap();
        let mut plan = json!({"loot": LOOT, "egress": sockets.next().unwrap().unwrap().path()});
        for (name, port) in ports.as_object().unwrap() {
            plan[name] = port.clone();
        }
        home.write("project/plan.json", &plan.to_string());
        Self {
            daemon,
            hosts,
            home,
        }
    }

    /// Answer of an agent other than the entry agent.
    fn ask_agent(&self, agent: &str, text: &str) -> String {
        let sent = self
            .home
            .gdn_json(&["send", "--agent", agent, "--instance", agent, text]);
        sent["outcome"]["reply"].as_str().unwrap().to_owned()
    }

    fn ends(self) {
        drop(self.hosts);
        self.daemon.stop();
    }
}

#[test]
fn sec_3_nothing_gets_past_a_list_of_hosts() {
    if !is_had() {
        return;
    }
    let fenced = EgressFixture::new();
    let home = &fenced.home;
    let mut found = Vec::new();
    for how in [
        "as a command",
        "in a session",
        "from a module",
        "from an MCP server",
    ] {
        found.extend(wrong(how, &home.ask("main", how)));
    }
    home.write("notes/go", "");
    let results = home.notes().join("results");
    wait_until("the connector has tried", || results.exists());
    let said = fs::read_to_string(&results).unwrap();
    found.extend(wrong("as a connector", &said));
    assert!(found.is_empty(), "{found:#?}");

    // One agent's list does not apply to another.
    let said = fenced.ask_agent("neighbor", "mirror");
    assert!(said.contains("403") && !said.contains(LOOT), "{said}");
    assert!(home.ask("main", "mirror").contains(LOOT));
    fenced.ends();
}

#[test]
fn sec_3_without_a_sandbox_the_same_ways_lead_past_the_list() {
    if !is_had() {
        return;
    }
    let fenced = EgressFixture::new();
    let how = "without a sandbox";
    let cases = cases(how, &fenced.ask_agent("free", how));
    for case in &cases {
        let leads_out = case["forbidden"].is_null();
        assert_eq!(leads_out, case["free"].as_bool().unwrap(), "{case}");
        assert_eq!(case["allowed"], Value::Null, "{case}");
    }
    let free = cases.iter().filter(|case| case["free"] == true).count();
    assert!(free > 20, "only {free} ways lead out");
    fenced.ends();
}

/// Process id of the egress proxy.
fn egress_of(home: &Home) -> Option<u32> {
    let all = home.ps();
    let egress = all.iter().find(|it| it["name"] == "egress")?;
    u32::try_from(egress["pid"].as_u64()?).ok()
}

#[test]
fn sec_3_session_reaches_only_its_hosts_by_restarted_egress() {
    if !is_had() {
        return;
    }
    let fenced = EgressFixture::new();
    let home = &fenced.home;
    let said = home.ask("main", "mirror in a session");
    assert!(said.contains(LOOT), "{said}");
    let shell = said.rsplit("of ").next().unwrap().to_owned();
    let first = egress_of(home).unwrap();
    signal(first, Signal::SIGKILL);
    // The egress process is down, or was just replaced.
    let said = home.ask("main", "mirror in a session");
    assert!(said.contains(LOOT), "{said}");
    assert!(said.ends_with(&shell), "it is another session: {said}");
    let reply = home.ask("main", "other in a session");
    assert!(reply.contains("403") && !reply.contains(LOOT), "{reply}");
    wait_until("another egress is shown", || {
        egress_of(home).is_some_and(|egress| egress != first)
    });
    fenced.ends();
}

#[test]
fn sec_3_refusals_are_logged_with_a_rate_limit() {
    if !is_had() {
        return;
    }
    let fenced = EgressFixture::new();
    fenced.home.ask("main", "often");
    let is_of_it = |line: &Value| message(line).contains("of a sandbox was refused");
    let told = fenced.daemon.log().wait_for("a refusal", is_of_it);
    assert_eq!(told["caller"], "agent `prisoner`", "{told}");
    assert!(
        told["why"].as_str().unwrap().contains("does not let"),
        "{told}"
    );
    let EgressFixture { daemon, hosts, .. } = fenced;
    drop(hosts);
    let mut lines = daemon.stop().lines();
    lines.retain(is_of_it);
    // Each of 60 was refused; the log rate limit drops most of the lines.
    assert!(lines.len() < 60, "{} lines", lines.len());
}

#[test]
fn sec_3_example_coding_agent_reaches_its_mirror_and_no_key() {
    if !is_had() {
        return;
    }
    let home = Home::without_project();
    let (hosts, ports) = hosts(&home);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/packages");
    let example = fs::read_to_string(example.join("goondan.yaml")).unwrap();
    let mirror = format!("127.0.0.1:{}", ports["mirror"]);
    let project = example
        .replace("https://packages.example.org", &format!("http://{mirror}"))
        .replace("[packages.example.org]", &format!("[\"{mirror}\"]"))
        .replace("/home/me", home.path().to_str().unwrap());
    home.write("project/goondan.yaml", &project);
    home.write(".ssh/id_ed25519", LOOT);
    let daemon = Daemon::serving(&home);
    let said = home.ask("main", "Install greeting");
    assert!(said.contains("Hello from the mirror."), "{said}");
    let said = home.ask("main", "Look elsewhere");
    assert!(
        said.contains(&format!("can reach only `{mirror}`")),
        "{said}"
    );
    let reply = home.ask("main", "Read my key");
    assert!(reply.contains("No such file or directory"), "{reply}");
    assert!(!reply.contains(LOOT), "{reply}");
    drop(hosts);
    daemon.stop();
}
