//! Goal: operations reserved for people are available to people, and to no program that an agent
//! started, even if it tries to count as a person (`SEC-4`).
//!
//! Method: an agent whose commands are not sandboxed (`require: off`), so that only the daemon's
//! own check remains: it removes its marker, exits before the check, leaves its session and its
//! parents, and calls each reserved method.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, processes, wait_for, wait_until};
use serde_json::{Value, json};

use crate::approvals;
use crate::control::{connect, greeting, receive, request, send, socket, version};

const CLIENT: &str = include_str!("persons/client.py");

/// Methods reserved for people with any parameters.
const PERSON_ONLY: &[&str] = &[
    "approval.decide",
    "bundle.approve",
    "bundle.pin",
    "bundle.rehearse",
    "bundle.reject",
    "bundle.revert",
    "call.settle",
    "event.cancel",
    "event.drop",
    "event.move",
    "event.pause",
    "event.resume",
    "event.retry",
    "instance.checkpoint",
    "instance.delete",
    "instance.rewind",
    "node.drain",
    "node.leave",
    "node.move",
    "oauth.finish",
    "oauth.login",
    "oauth.refresh",
    "oauth.revoke",
    "package.prune",
    "package.store",
    "permission.decide",
    "proposal.apply",
    "proposal.merge",
    "proposal.reject",
    "proposal.revert",
    "question.answer",
    "question.decline",
    "queue.change",
    "secret.allow",
    "secret.deny",
    "secret.remove",
    "secret.rotate",
    "secret.set",
    "task.answer",
    "task.approve",
    "task.budget",
    "task.cancel",
    "task.checkpoint",
    "task.drill",
    "task.import",
    "task.new",
    "task.pause",
    "task.provide",
    "task.remove",
    "task.restore",
    "task.resume",
    "task.rework",
    "task.send",
    "task.start",
];

/// Methods without lasting effects, which any client may call.
const FOR_EVERYONE: &[&str] = &[
    "approval.list",
    "daemon.status",
    "permission.list",
    "question.list",
    "secret.list",
    "task.list",
    "workspace.list",
];

/// The tool `bash`, with approval of each call.
const ASKED: &str = r#"{ref: {kind: Tool, name: bash, package: "@goondan/base"}, approve: {rules: [{when: {command: never}, approve: never}]}}"#;

/// An agent `free` whose commands are not sandboxed, and one `asks` whose command needs approval.
fn home() -> Home {
    let client = "python3 PROJECT/client.py NOTES";
    let gdn = "GDN --state-root STATE --project PROJECT";
    let off = "{require: off}";
    let project = Commands::new()
        .run("^ask$", "echo done >> NOTES/done")
        .run(
            "^soft$",
            &format!("ulimit -S -m 1000; {gdn} approve $(cat NOTES/id) 2>&1; echo ended with $?"),
        )
        .run(
            "^hard$",
            &format!("ulimit -m 1000000; {gdn} approve $(cat NOTES/id) 2>&1; echo ended with $?"),
        )
        .run(
            "^root$",
            &format!(
                "ulimit -H -m unlimited; {gdn} approve $(cat NOTES/id) 2>&1; echo ended with $?"
            ),
        )
        .run("^exited$", &format!("{client} exited"))
        .run("^orphan$", &format!("{client} orphan"))
        .run("^paused$", &format!("{client} paused"))
        .run("^every$", &format!("{client} plain"))
        .agent("free", &[BASH], off)
        .agent("asks", &[ASKED], off);
    let home = Home::without_project();
    let state = home.state_root().display().to_string();
    let yaml = project
        .yaml()
        .replace("GDN", &bin(GDN).display().to_string())
        .replace("STATE", &state)
        .replace("PROJECT", &home.project().display().to_string());
    home.write("project/goondan.yaml", &home.filled_in(&yaml));
    home.write("project/client.py", CLIENT);
    home
}

/// A pending call, and its id in the note `id`.
fn waiting_call(home: &Home) -> (RunningProgram, String) {
    let sending = home.start_gdn(&["send", "--agent", "asks", "--instance", "w", "ask"]);
    let id = approvals::id_of(&approvals::the_call(home));
    home.write("notes/id", &id);
    (sending, id)
}

/// Writes the requests of the agent's client.
fn plan(home: &Home, requests: &[Value]) {
    let (goondan, protocol) = version(home);
    let greeting: Value = serde_json::from_slice(&greeting(&goondan, protocol)).unwrap();
    let daemon = home.gdn_json(&["status"])["pid"].clone();
    let plan = json!({
        "socket": socket(home), "daemon": daemon, "greeting": greeting, "requests": requests,
    });
    home.write("notes/plan.json", &plan.to_string());
    home.write("notes/codes.json", "");
}

/// Result of each request by its method: the error code, or `ok`.
fn codes(home: &Home) -> BTreeMap<String, String> {
    let found = wait_for("the client is done", || {
        serde_json::from_str(&home.note("codes.json")).ok()
    });
    home.write("notes/codes.json", "");
    found
}

/// The requests of the reference, by their methods.
fn examples() -> BTreeMap<String, Value> {
    let reference = include_str!("../../../docs/control-api.md");
    let lines = reference.lines().filter(|line| line.starts_with('{'));
    let requests = lines.filter_map(|line| {
        let request: Value = serde_json::from_str(line).ok()?;
        Some((request.get("method")?.as_str()?.to_owned(), request))
    });
    requests.filter(|(_, it)| it.get("id").is_some()).collect()
}

#[test]
fn sec_4_a_program_without_its_mark_is_no_person() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    let (sending, id) = waiting_call(&home);
    for way in ["soft", "hard", "root"] {
        let told = home.ask("free", way);
        assert!(told.contains("ended with 17"), "{way}: {told}");
    }
    assert_eq!(home.note("done"), "");
    // A person may, even from a shell with a lowered value of this limit.
    home.gdn(&["approve", &id]).exits(0);
    sending.wait().exits(0);
    assert_eq!(home.note("done"), "done\n");
}

#[test]
fn sec_4_a_client_that_ended_or_left_is_no_person() {
    let home = home();
    let daemon = Daemon::serving(&home);
    let (sending, id) = waiting_call(&home);
    let workspace = home.gdn_json(&["status"])["workspaces"][0]["workspaceId"].clone();
    let params = json!({"workspaceId": workspace, "approvalId": id, "decision": "approved"});
    let decide: Value = serde_json::from_slice(&request("approval.decide", &params)).unwrap();
    plan(&home, &[decide]);
    for way in ["exited", "paused", "orphan"] {
        home.ask("free", way);
        assert_eq!(codes(&home)["approval.decide"], "personNeeded", "{way}");
    }
    assert!(processes::is_alive(daemon.pid()));
    assert_eq!(home.note("done"), "");
    home.gdn(&["deny", &id]).exits(0);
    sending.wait().exits(0);
}

#[test]
fn sec_4_every_method_for_persons_refuses_agents() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    let examples = examples();
    let asked = PERSON_ONLY.iter().chain(FOR_EVERYONE);
    let mut requests: Vec<Value> = asked
        .map(|method| {
            examples
                .get(*method)
                .unwrap_or_else(|| panic!("{method}"))
                .clone()
        })
        .collect();
    for (method, field, value) in [
        ("instance.verify", "repair", json!(true)),
        ("root.verify", "repair", json!(true)),
        ("sandbox.prepare", "allow", json!([".env"])),
        ("sandbox.remove", "force", json!(true)),
        ("instance.prune", "dryRun", json!(false)),
        ("task.prune", "dryRun", json!(false)),
    ] {
        let mut request = examples[method].clone();
        request["params"][field] = value;
        requests.push(request);
    }
    plan(&home, &requests);
    home.ask("free", "every");
    let codes = codes(&home);
    assert_eq!(codes.len(), requests.len());
    for (method, code) in codes {
        let is_for_everyone = FOR_EVERYONE.contains(&method.as_str());
        assert_eq!(code == "personNeeded", !is_for_everyone, "{method}: {code}");
    }
}

#[test]
fn ctl_1_clients_that_wait_keep_no_decision_out() {
    let home = home();
    let daemon = Daemon::serving(&home);
    let (goondan, protocol) = version(&home);
    // Of 33 idle connections of one process, one is closed, and receives the reason.
    let greeted = || {
        let mut stream = connect(&home);
        send(&mut stream, &greeting(&goondan, protocol));
        assert!(receive(&mut stream).get("result").is_some());
        stream
    };
    let mut idle: Vec<_> = (0..33).map(|_| greeted()).collect();
    let closed = receive(&mut idle[0]);
    assert_eq!(closed["error"]["data"]["code"], "overloaded", "{closed}");
    drop(idle);
    let workspace = home.gdn_json(&["status"])["workspaces"][0]["workspaceId"].clone();
    let watch = request("workspace.watch", &json!({"workspaceId": workspace}));
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..150 {
        let mut stream = greeted();
        send(&mut stream, &watch);
        let first = receive(&mut stream);
        refused += usize::from(first["error"]["data"]["code"] == "overloaded");
        waiting.push(stream);
    }
    // One process may use half of the 256 waiting slots.
    assert_eq!(refused, 150 - 128);
    let (sending, id) = waiting_call(&home);
    home.gdn(&["status"]).exits(0);
    home.gdn(&["approve", &id]).exits(0);
    sending.wait().exits(0);
    home.gdn(&["send", "--agent", "free", "--instance", "f", "soft"])
        .exits(0);
    home.gdn(&["shutdown"]).exits(0);
    wait_until("the daemon ends", || !processes::is_alive(daemon.pid()));
    drop(daemon.wait());
}

/// Another user with access to the socket: the request, and the reply.
const STRANGER: &str = r#"
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
try:
    connection.sendall(bytes.fromhex(sys.argv[2]))
    print(len(connection.recv(4096)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"#;

#[test]
fn sec_4_another_user_is_turned_away_without_an_answer() {
    if !nix::unistd::geteuid().is_root() {
        // Only root starts a program as another user.
        return;
    }
    let home = home();
    let daemon = Daemon::serving(&home);
    let (goondan, protocol) = version(&home);
    // File modes alone would block it.
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    let at = socket(&home);
    mode(&at, 0o666).unwrap();
    for dir in at
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(home.path()))
    {
        mode(dir, 0o755).unwrap();
    }
    let greeting = greeting(&goondan, protocol);
    let mut frame = u32::try_from(greeting.len())
        .unwrap()
        .to_be_bytes()
        .to_vec();
    frame.extend(greeting);
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let asked = |user: u32| {
        let mut command = Command::new("python3");
        let words = ["-I", "-c", STRANGER, at.to_str().unwrap(), &hex];
        command.args(words).uid(user).gid(user).current_dir("/");
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(asked(65_534), "0\n");
    assert_ne!(asked(0), "0\n");
    daemon.log().wait_for("the refusal is in the log", |line| {
        line["problem"] == "the peer is user 65534, not 0"
    });
}
