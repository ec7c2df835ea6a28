//! Goal: programs that run for a model cannot escape from their sandbox by any known method
//! (`SEC-3`, `SEC-6`, `BOX-3`).
//!
//! Method: `escape.py` tries each method together with a similar allowed one, as a command, in a
//! session, from a module, as a connector and from an MCP server of a real daemon; `victim.py` is
//! the target. Without a sandbox the same methods succeed; otherwise the test would prove nothing.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, GDN, RunningProgram};
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs, processes, wait_until};
use serde_json::{Value, json};

const ESCAPE: &str = include_str!("escapes/escape.py");
const VICTIM: &str = include_str!("escapes/victim.py");
pub(crate) const SERVER: &str = include_str!("escapes/server.py");

/// Data outside of the sandbox that must not be readable inside.
const LOOT: &str = "loot-of-the-outside-5519";

/// The context whose programs are not started by a message.
const AS_A_CONNECTOR: &str = "as a connector";

/// The context in which a call ends before its program.
const FROM_A_SERVER: &str = "from an MCP server";

/// A process that commands leave behind, if they can: it sleeps for a number of seconds that
/// distinguishes it from those of the other levels, which are tested concurrently.
const STRAY: &str = "sleep";

fn stray_of(level: &str) -> String {
    let number = match level {
        "full" => 10_000_000,
        "landlock" => 20_000_000,
        _ => 30_000_000,
    };
    (number + std::process::id()).to_string()
}

/// Tools and connections other than the agent. `LEVEL` is their sandbox.
const OTHERS: &str = r#"
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: escape}
spec:
  entry: tools/escape.py
  timeoutSeconds: 300
  exports: [{name: try, description: Tries the ways out., parameters: {type: object}}]
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
  sandbox: {require: LEVEL, write: [NOTES]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: server}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {command: [python3, PROJECT/server.py, SERVED]}
  sandbox: {require: LEVEL, write: [NOTES]}
"#;

/// An agent that tries the escape methods. `LEVEL` is its sandbox.
fn project() -> Commands {
    const TRY: &str =
        "(setsid sleep STRAY &); python3 PROJECT/escape.py PROJECT/plan.json NOTES/results";
    const STEAL: &str = "cat HOME/.ssh/id_ed25519";
    let trying = json!({"command": TRY, "timeoutMs": 300_000});
    let mut trying_in_session = trying.clone();
    trying_in_session["session"] = json!("s");
    let loosened = json!({"command": STEAL, "sandbox": {"require": "off"}});
    Commands::new()
        .run("^keep", &format!("echo {LOOT} > kept"))
        .call("^as a command$", "bash__exec", trying)
        .call("^in a session$", "bash__exec", trying_in_session)
        .call("^from a module$", "escape__try", json!({}))
        .call("^from an MCP server$", "server__try", json!({}))
        .call("^loosened by the call$", "bash__exec", loosened)
        .run(
            "^loosened by the environment$",
            &format!("export GOONDAN_SANDBOX=off BASH_ENV=HOME/.profile; {STEAL}"),
        )
        .agent(
            "prisoner",
            &[BASH, "Tool/escape", "Tool/server"],
            "{require: LEVEL, write: [NOTES]}",
        )
        .with(OTHERS)
}

/// Behavior of the MCP server when its tool is called: it starts the attempts, leaves a process
/// behind, and reports it.
const SERVED: &str = r#"
import os, subprocess, sys

os.makedirs("NOTES/served", exist_ok=True)
words = [sys.executable, "PROJECT/escape.py", "PROJECT/plan.json", "NOTES/results"]
inherited = {"cwd": "NOTES/served", "env": {**os.environ, "TMPDIR": "NOTES/served"}, "stdin": subprocess.DEVNULL}
subprocess.Popen(["setsid", "sleep", "STRAY"], stdout=sys.stderr, **inherited)
subprocess.Popen(words, stdout=sys.stderr, **inherited)
print("begun")
"#;

/// A connector program: it tries the escape methods when a note requests it. Its only directory for
/// temporary files is the one in its connection.
const PROGRAM: &str = r#"
import os, subprocess, sys, time

print('{"type": "status", "ready": true, "detail": "waiting"}', flush=True)
while not os.path.exists("NOTES/go"):
    time.sleep(0.02)
os.makedirs("NOTES/work", exist_ok=True)
words = [sys.executable, "PROJECT/escape.py", "PROJECT/plan.json", "NOTES/results"]
environment = {"TMPDIR": "NOTES/work", **os.environ}
subprocess.run(words, cwd="NOTES/work", env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)
sys.stdin.read()
"#;

/// A module that tries the methods in a separate program.
const MODULE: &str = r#"
import json, subprocess, sys

for line in sys.stdin:
    call = json.loads(line)
    if call["type"] == "call":
        root = call["context"]["projectRoot"]
        words = [sys.executable, f"{root}/escape.py", f"{root}/plan.json", "NOTES/results"]
        work = call["context"]["workDir"]
        done = subprocess.run(words, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        print(json.dumps({"type": "result", "id": call["id"], "output": done.stdout + done.stderr}), flush=True)
"#;

/// A sandboxed project with the targets on its machine.
struct EscapeTarget {
    daemon: Daemon,
    victim: RunningProgram,
    shared: tempfile::NamedTempFile,
    stray: String,
    home: Home,
}

/// Result of one method.
struct EscapeAttempt {
    name: String,
    /// Reason why the escape failed; none if it succeeded.
    refused: Option<String>,
    /// Reason why the similar allowed action failed.
    broken: Option<String>,
    is_for_root: bool,
    is_of_full: bool,
}

impl EscapeTarget {
    fn at(level: &str) -> Self {
        let home = Home::without_project();
        let (own, project) = (home.path().to_str().unwrap(), home.project());
        let project = project.to_str().unwrap();
        let stray = stray_of(level);
        let filled = |text: &str| {
            let text = home.filled_in(text).replace("PROJECT", project);
            text.replace("HOME", own)
                .replace("LEVEL", level)
                .replace("STRAY", &stray)
        };

        let served = home.project().join("served.py");
        let yaml = self::project()
            .yaml()
            .replace("SERVED", served.to_str().unwrap());
        home.write("project/goondan.yaml", &filled(&yaml));
        home.write("project/server.py", SERVER);
        home.write("project/served.py", &filled(SERVED));
        home.write("project/tools/escape.py", &filled(MODULE));
        home.write("project/connectors/escape.py", &filled(PROGRAM));
        home.write("project/tools/escape.mjs", "export const handlers = {};\n");
        home.write("project/escape.py", ESCAPE);
        home.write("project/.git/hooks/post-commit", "");
        home.write("project/decoy", "");
        home.write("project/empty/nothing", "");
        home.write("notes/results.before", "");
        home.write(".ssh/id_ed25519", LOOT);
        home.write(".profile", "");
        for name in ["deleted", "emptied", "moved", "mode"] {
            home.write(&format!("decoys/{name}"), LOOT);
        }
        home.write_program("bin/tool", "#!/bin/sh\ntrue\n");
        home.write("second/goondan.yaml", &second());
        for (name, binary) in [("gdn", GDN), ("agent", AGENT)] {
            fs::copy(bin(binary), home.project().join(name)).unwrap();
        }
        let mut shared = tempfile::Builder::new()
            .prefix("goondan-escapes-")
            .tempfile_in("/dev/shm")
            .unwrap();
        shared.write_all(LOOT.as_bytes()).unwrap();
        let (victim, told) = victim(&home);
        let daemon = Daemon::serving(&home);
        set_secret(&home);
        home.ask("other", "keep it");
        let instances = home.workspace_dir().join("instances");
        let plan = json!({
            "loot": LOOT,
            "home": home.path(),
            "state": home.state_root(),
            "project": home.project(),
            "second": home.path().join("second"),
            "shared": shared.path(),
            "daemon": daemon.pid(),
            "conversation": instances.join("main"),
            "other": instances.join("other"),
            "victim": told,
        });
        home.write("project/plan.json", &plan.to_string());
        Self {
            daemon,
            victim,
            shared,
            stray,
            home,
        }
    }

    /// Tries all methods in one context.
    fn tried(&self, how: &str) -> Vec<EscapeAttempt> {
        let results = self.home.notes().join("results");
        let said = if how == AS_A_CONNECTOR {
            self.home.write("notes/go", "");
            wait_until("the connector has tried", || results.exists());
            String::new()
        } else {
            self.home.ask("main", how)
        };
        if how == FROM_A_SERVER {
            assert!(said.contains("begun"), "{said}");
            wait_until("the server's program has tried", || results.exists());
        }
        let text = fs::read_to_string(&results).unwrap_or_else(|error| {
            panic!("{how}: no results ({error}): {said}");
        });
        fs::remove_file(results).unwrap();
        let tried: Vec<EscapeAttempt> = text.lines().map(EscapeAttempt::of).collect();
        assert_eq!(
            tried.len(),
            ESCAPE.matches("\ncase(").count(),
            "{how}: {said}"
        );
        assert!(tried.len() >= 60, "{how}: {} ways", tried.len());
        tried
    }

    /// The victim is unharmed, and nothing is left of the attempts.
    fn ends(self) {
        assert!(processes::is_alive(self.victim.pid()));
        assert_eq!(fs::read_to_string(self.shared.path()).unwrap(), LOOT);
        drop(self.victim);
        self.daemon.stop();
        assert_eq!(
            processes::with_args(&[STRAY, &self.stray]),
            Vec::<u32>::new()
        );
    }
}

impl EscapeAttempt {
    fn of(line: &str) -> Self {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = |field: &str| case[field].as_str().map(ToOwned::to_owned);
        Self {
            name: text("name").unwrap(),
            refused: text("forbidden"),
            broken: text("allowed"),
            is_for_root: case["root"].as_bool().unwrap(),
            is_of_full: case["full"].as_bool().unwrap(),
        }
    }
}

/// A project without any consent.
fn second() -> String {
    let secret = "apiKey: {valueFrom: {secretRef: {ref: Secret/hook, key: hmac}}}";
    format!(
        "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: main}}\nspec:\n  provider: openai\n  model: m\n  \
         {secret}\n---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: thief}}\nspec:\n  modelConfig: \
         {{modelRef: Model/main}}\n"
    )
}

fn set_secret(home: &Home) {
    let mut command = home.command(&bin(GDN), &["secret", "set", "hook", "hmac"]);
    command.stdin(Stdio::piped());
    let mut setting = RunningProgram::start(command);
    setting.say(LOOT);
    setting.wait().exits(0);
}

/// Starts the target process, and returns the locations of its data.
fn victim(home: &Home) -> (RunningProgram, Value) {
    home.write("victim.py", VICTIM);
    let path = |name: &str| home.path().join(name).display().to_string();
    let (program, file, directory) = (path("victim.py"), path(".ssh/id_ed25519"), path("."));
    let (listed, written) = (path("project"), path("notes"));
    let words = [program.as_str(), LOOT, &file, &directory, &listed, &written];
    let mut command = home.command(Path::new("python3"), &words);
    command.env("KEPT", LOOT).stdin(Stdio::piped());
    let victim = RunningProgram::start(command);
    victim.wait_for_stdout("}\n");
    let output = serde_json::from_str(&victim.stdout()).unwrap();
    (victim, output)
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Checks that no method escapes, and that allowed actions work.
fn holds(level: &str) {
    if !needs::program("python3") || !needs::sandbox(level) {
        return;
    }
    let prison = EscapeTarget::at(level);
    let mut wrong = Vec::new();
    for how in [
        "as a command",
        "in a session",
        "from a module",
        AS_A_CONNECTOR,
        FROM_A_SERVER,
    ] {
        for tried in prison.tried(how) {
            let name = &tried.name;
            if tried.refused.is_none() && (level == "full" || !tried.is_of_full) {
                wrong.push(format!("{how}, it {name}"));
            }
            if let Some(why) = tried.broken {
                wrong.push(format!(
                    "{how}, what is like \"{name}\" does not work: {why}"
                ));
            }
        }
    }
    for how in ["loosened by the call", "loosened by the environment"] {
        let reply = prison.home.ask("main", how);
        assert!(!reply.contains(LOOT), "{level}, {how}: {reply}");
    }
    assert!(wrong.is_empty(), "{level}: {wrong:#?}");
    prison.ends();
}

#[test]
fn sec_3_nothing_leads_out_of_the_level_full() {
    holds("full");
}

#[test]
fn sec_3_nothing_leads_out_of_the_level_landlock() {
    holds("landlock");
}

#[test]
fn sec_3_without_a_sandbox_the_same_ways_lead_out() {
    if !needs::program("python3") {
        return;
    }
    let prison = EscapeTarget::at("off");
    let tried = prison.tried("as a command");
    let (mut out, mut closed) = (0, Vec::new());
    for tried in tried.iter().filter(|it| is_root() || !it.is_for_root) {
        match &tried.refused {
            None => out += 1,
            Some(why) => closed.push(format!("{}: {why}", tried.name)),
        }
    }
    // In a container, the machine itself may be confined.
    if !closed.is_empty() {
        eprintln!(
            "this machine itself is closed to {} ways: {closed:#?}",
            closed.len()
        );
    }
    assert!(out >= 40, "only {out} ways lead out: {closed:#?}");
    prison.ends();
}
