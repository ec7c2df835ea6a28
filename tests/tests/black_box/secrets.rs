//! Goal: a project uses a value from the secret store, follows its changes, and the value is never
//! stored in plain text (`SEC-1`, `SEC-2`, `SYS-1`).
//!
//! Method: the real binaries. The effect of a secret is observed from outside: by the signature
//! that the webhook accepts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR, CommandOutput, GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::{LAB, lab_at};
use goondan_tests::provider::{
    OPENAI_DONE, Provider, ProviderResponse, openai, openai_delta, openai_saying,
};
use goondan_tests::{Daemon, Home, http, processes, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

const FIRST: &str = "the-first-of-the-values";
const SECOND: &str = "another-one-altogether";

/// The lab project, whose webhook accepts what is signed with an entry of the secret `hook`.
fn project() -> String {
    let with_secret = "    path: /hook\n  secrets:\n    hmac: {valueFrom: {secretRef: {ref: \
                       Secret/hook, key: hmac}}}\n";
    LAB.replace("    path: /hook\n", with_secret)
}

/// Runs `gdn secret set` with the value on stdin.
pub(crate) fn set(
    home: &Home,
    name: &str,
    key: &str,
    value: &str,
    options: &[&str],
) -> CommandOutput {
    let args = [&["secret", "set", name, key], options].concat();
    let mut command = home.command(&bin(GDN), &args);
    command.stdin(Stdio::piped());
    let mut running = RunningProgram::start(command);
    running.say(value);
    running.wait()
}

/// The webhook's answer to a request that is signed with `secret`.
fn status(daemon: &Daemon, secret: &str) -> u16 {
    let body = "echo hello";
    let keyed = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let signature = hex::encode(keyed.chain_update(body).finalize().into_bytes());
    let signature = format!("sha256={signature}");
    let headers = [("x-hub-signature-256", signature.as_str())];
    let mut status = 0;
    // A connector that is being replaced is briefly unavailable.
    wait_until("the webhook answers", || {
        let answer = http::post(daemon.webhook("hook"), "/hook", &headers, body);
        status = answer.map_or(0, |answer| answer.status);
        status != 0
    });
    status
}

/// Every file below a directory that contains a text.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            } else if entry.file_type().unwrap().is_file() {
                let bytes = fs::read(&path).unwrap();
                if bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
                {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}

#[track_caller]
fn is_nowhere(home: &Home, value: &str) {
    assert_eq!(files_with(home.path(), value), Vec::<String>::new());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn problem(home: &Home) -> Value {
    home.gdn_json(&["status"])["workspaces"][0]["problem"]["message"].clone()
}

#[test]
fn sec_1_secret_lifecycle_leaves_no_plain_text_anywhere() {
    let home = Home::new(&project());
    let daemon = Daemon::start(&home);
    // Before it is set, nothing of the project runs, and the required action is reported.
    for command in ["run", "validate"] {
        home.gdn(&[command]).exits(6).tells(&[
            "E_CONFIG_MISSING_SECRET",
            "secret `hook` does not exist",
            "gdn secret set hook hmac --for .",
            "goondan.yaml:",
        ]);
    }
    let added = set(&home, "hook", "hmac", FIRST, &[]).exits(0);
    let added = added.prints(&["Added Secret/hook hmac"]);
    added.tells(&[
        "identity.age",
        "Keep a copy",
        "No running workspace uses it",
        "gdn secret allow hook --project DIR",
    ]);
    home.gdn(&["secret", "allow", "hook"]).exits(0);
    home.gdn(&["validate"]).exits(0);
    home.gdn(&["run"]).exits(0);
    assert_eq!(status(&daemon, FIRST), 202);
    assert_eq!(status(&daemon, SECOND), 401);

    // A change restarts its users, and is reported.
    let changed = set(&home, "hook", "hmac", SECOND, &["--json"])
        .exits(0)
        .json();
    assert_eq!(changed["schema"], "gdn.secret.set/v1");
    assert_eq!(changed["change"], "changed");
    assert!(changed.get("madeIdentity").is_none());
    let reload = &changed["workspaces"][0];
    let changes = json!([{"resource": "Connection/hook", "change": "changed"}]);
    assert_eq!(
        (&reload["changes"], &reload["processes"]),
        (&changes, &json!(1))
    );
    wait_until("the new value holds", || status(&daemon, SECOND) == 202);
    assert_eq!(status(&daemon, FIRST), 401);

    // Changes of unrelated secrets restart nothing.
    let other = set(&home, "unused", "k", "of-no-importance", &[]).exits(0);
    other.tells(&["No running workspace uses it"]);

    let state = home.state_root();
    let system = state.join("system");
    for (path, expected) in [
        ("", 0o700),
        ("secrets", 0o700),
        ("identity.age", 0o600),
        ("secrets/hook.sops.yaml", 0o600),
        ("audit.jsonl", 0o600),
        ("consents.json", 0o600),
    ] {
        assert_eq!(mode(&system.join(path)), expected, "{path}");
    }
    let listed = home.gdn(&["secret", "list"]).exits(0);
    listed
        .prints(&["hook", "hmac", "unused", "good"])
        .tells(&["age1"]);
    home.gdn(&["config", "show"])
        .exits(0)
        .prints(&["Secret/hook hmac", "••••••"]);
    home.gdn(&["audit", "--all"]).exits(0).prints(&[
        "identity.created",
        "secret.set",
        "secret=hook key=hmac",
        "secret.allowed",
    ]);

    // The text of a message is unchanged; in the log, current and earlier values are masked.
    home.ask("main", &format!("work {SECOND}"));
    home.ask("main", &format!("work {FIRST}"));
    home.gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    is_nowhere(&home, FIRST);
    is_nowhere(&home, SECOND);
    let identity = fs::read_to_string(system.join("identity.age")).unwrap();
    let key = identity.lines().last().unwrap();
    assert_eq!(files_with(home.path(), key).len(), 1);

    // Removed while in use: running processes continue, and the problem is visible.
    let removed = home.gdn(&["secret", "remove", "hook"]);
    removed.exits(2).tells(&["gdn secret remove hook --yes"]);
    let removed = home
        .gdn(&["secret", "remove", "hook", "hmac", "--yes"])
        .exits(0);
    removed
        .prints(&["Removed Secret/hook hmac", "not reloaded"])
        .tells(&[
            "secret `hook` does not exist",
            "The previous configuration continues to run",
        ]);
    assert!(
        problem(&home)
            .as_str()
            .unwrap()
            .contains("secret `hook` does not exist")
    );
    assert_eq!(status(&daemon, SECOND), 202);
    assert!(!system.join("secrets/hook.sops.yaml").exists());
    home.gdn(&["secret", "remove", "hook", "--yes"])
        .exits(5)
        .tells(&["secret `hook` does not exist", "gdn secret list"]);

    // After it is set again, the project recovers automatically.
    let again = set(&home, "hook", "hmac", FIRST, &[]).exits(0);
    again.prints(&["Connection/hook changed"]);
    assert_eq!(problem(&home), Value::Null);
    wait_until("the value holds", || status(&daemon, FIRST) == 202);

    let log = daemon.stop();
    for line in log.lines() {
        let line = line.to_string();
        assert!(!line.contains(FIRST) && !line.contains(SECOND), "{line}");
        assert!(!line.contains("AGE-SECRET-KEY"), "{line}");
    }
    // It persists across a restart.
    let daemon = Daemon::start(&home);
    assert_eq!(status(&daemon, FIRST), 202);
}

#[test]
fn sec_1_secret_as_argument_or_invalid_input_changes_nothing() {
    let home = Home::new(LAB);
    let refused = home.gdn(&["secret", "set", "hook", "hmac", "hunter2-and-more"]);
    assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    refused.exits(2).tells(&[
        "secrets cannot be passed as arguments",
        "in its history",
        "gdn secret set hook hmac < FILE",
    ]);
    assert!(home.running(ORCHESTRATOR).is_empty());
    home.gdn(&["secret", "set", "hook", "hmac"])
        .exits(2)
        .tells(&["the value is empty"]);
    for (name, key) in [("../hook", "hmac"), ("hook", "a/b"), ("", "k")] {
        home.gdn(&["secret", "set", name, key]).exits(2);
    }
    assert!(!home.state_root().exists());

    // The first secret of a project that needs it: no daemon runs yet.
    let long = "x".repeat(64 * 1024 + 1);
    set(&home, "hook", "hmac", &long, &[])
        .exits(2)
        .tells(&["more than 65536 bytes"]);
    set(&home, "hook", "hmac", FIRST, &[])
        .exits(0)
        .tells(&["Started the daemon"]);
    set(&home, "hook", "sops", FIRST, &[])
        .exits(2)
        .tells(&["`sops` is not a valid key of a secret"]);
    home.gdn(&["shutdown"]).exits(0);
    is_nowhere(&home, FIRST);
}

#[test]
fn sec_1_damaged_secret_and_lost_identity_are_reported_and_kept() {
    let home = Home::new(&project());
    set(&home, "hook", "hmac", FIRST, &["--for", "."]).exits(0);
    home.gdn(&["run"]).exits(0);
    home.gdn(&["shutdown"]).exits(0);
    let system = home.state_root().join("system");
    let path = system.join("secrets/hook.sops.yaml");
    let good = fs::read_to_string(&path).unwrap();
    let damaged = good.replacen("tag:", "tag:A", 1);
    home.write("state/system/secrets/hook.sops.yaml", &damaged);

    let daemon = Daemon::start(&home);
    let text = problem(&home).to_string();
    assert!(text.contains("E_CONFIG_UNREADABLE_SECRET"), "{text}");
    assert!(
        text.contains("damaged, or changed without the key"),
        "{text}"
    );
    assert!(home.running(CONNECTOR).is_empty() && home.running(AGENT).is_empty());
    set(&home, "hook", "hmac", SECOND, &[])
        .exits(15)
        .tells(&["damaged, or changed", "backup"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    home.gdn(&["secret", "list"])
        .exits(0)
        .prints(&["unreadable"])
        .tells(&["damaged, or changed"]);
    home.write("state/system/secrets/hook.sops.yaml", &good);
    home.gdn(&["reload"]).exits(0);
    assert_eq!(status(&daemon, FIRST), 202);

    let identity = fs::read_to_string(system.join("identity.age")).unwrap();
    fs::remove_file(system.join("identity.age")).unwrap();
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["no identity found"]);
    set(&home, "other", "k", SECOND, &[])
        .exits(15)
        .tells(&["no identity found"]);
    assert!(!system.join("identity.age").exists());
    assert_eq!(status(&daemon, FIRST), 202);
    drop(daemon.stop());

    // If the daemon receives it through its environment, it is neither on disk nor passed to a
    // child.
    let key = identity.lines().last().unwrap();
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.env("GOONDAN_AGE_IDENTITY", key);
    let daemon = Daemon::start_command(&home, command);
    assert_eq!(status(&daemon, FIRST), 202);
    home.gdn(&["secret", "list"])
        .exits(0)
        .tells(&["$GOONDAN_AGE_IDENTITY"]);
    for program in [AGENT, CONNECTOR] {
        let _answer = home.ask("main", "echo hello");
        let children = home.running(program);
        assert!(!children.is_empty());
        for child in children {
            let environment = processes::environment(child.pid);
            assert!(!environment.contains("AGE"), "{environment}");
        }
    }
    is_nowhere(&home, key);
    // No configuration can access it either.
    let stolen = home.filled_in(LAB).replace(
        "    path: /hook\n",
        "    path: /hook\n  secrets:\n    hmac: {valueFrom: {env: GOONDAN_AGE_IDENTITY}}\n",
    );
    home.write("project/goondan.yaml", &stolen);
    home.gdn(&["reload"])
        .exits(6)
        .tells(&["`GOONDAN_AGE_IDENTITY` is not set"]);
    drop(daemon.stop());
}

#[test]
fn sup_8_key_change_applies_to_the_next_call_not_the_current() {
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "bash__exec", "arguments": json!({"command": "true"}).to_string()}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let call = openai(&[openai_delta(&call), end]) + OPENAI_DONE;
    let (go, wait) = channel::<()>();
    let provider = Provider::start(move |received| match received.number {
        0 => {
            wait.recv().unwrap();
            ProviderResponse::stream(&call)
        }
        1 => ProviderResponse::stream(&openai_saying(&["Done."])),
        _ => ProviderResponse::stream(&openai_saying(&["Later."])),
    });
    let endpoint = provider.endpoint();
    let home = Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  apiKey: {{valueFrom: {{secretRef: {{ref: Secret/provider, key: apiKey}}}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
"#
    ));
    let daemon = Daemon::start(&home);
    let allowed = set(&home, "provider", "apiKey", FIRST, &["--for", "."]).exits(0);
    allowed.tells(&["can use it."]);
    home.gdn(&["run"]).exits(0);
    let asking = home.start_gdn(&["send", "Hi."]);
    wait_until("the provider is asked", || provider.received().len() == 1);
    let changed = set(&home, "provider", "apiKey", SECOND, &[]).exits(0);
    changed.prints(&["Model/hosted changed"]);
    go.send(()).unwrap();
    assert_eq!(asking.wait().exits(0).stdout, "Done.\n");
    assert_eq!(home.ask("main", "And now?"), "Later.");
    let received = provider.received();
    // A key is replaced because the old one is no longer valid: no turn may continue with it.
    let keys: Vec<&str> = received
        .iter()
        .map(|request| request.header("authorization").unwrap())
        .collect();
    let (first, second) = (format!("Bearer {FIRST}"), format!("Bearer {SECOND}"));
    assert_eq!(keys, [&*first, &*second, &*second]);
    daemon.stop().check(false);
    is_nowhere(&home, FIRST);
    is_nowhere(&home, SECOND);
}

#[test]
fn sec_6_secret_is_released_only_to_a_consented_workspace() {
    let home = Home::new(&project());
    let daemon = Daemon::start(&home);
    set(&home, "hook", "hmac", FIRST, &[]).exits(0);
    // A reference alone is not sufficient, with or without a daemon, and nothing of the project
    // runs.
    let root = home.project().canonicalize().unwrap();
    let command = format!("gdn secret allow hook --project {}", root.display());
    for wanting in [&["run"][..], &["validate"], &["run", "--json"]] {
        let refused = home.gdn(wanting).exits(6);
        let output = format!("{}{}", refused.stdout, refused.stderr);
        assert!(output.contains("E_CONFIG_SECRET_NOT_ALLOWED"), "{output}");
        assert!(output.contains(&command), "{output}");
        assert!(output.contains("Connection/hook"), "{output}");
    }
    assert!(home.running(CONNECTOR).is_empty());

    // Another project's consent does not apply.
    home.write("elsewhere/goondan.yaml", &home.filled_in(&project()));
    let elsewhere = home.path().join("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    home.gdn(&["secret", "allow", "hook", "--project", elsewhere])
        .exits(0)
        .prints(&["Allowed Secret/hook"]);
    home.gdn(&["run"]).exits(6);
    home.gdn(&["secret", "allow", "nothing"])
        .exits(5)
        .tells(&["secret `nothing` does not exist"]);

    home.gdn(&["secret", "allow", "hook"]).exits(0);
    home.gdn(&["secret", "allow", "hook"])
        .exits(0)
        .tells(&["It was already allowed"]);
    home.gdn(&["run"]).exits(0);
    assert_eq!(status(&daemon, FIRST), 202);
    let listed = home.gdn_json(&["secret", "list"]);
    let roots: Vec<&str> = listed["consents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|consent| consent["projectRoot"].as_str().unwrap())
        .collect();
    assert_eq!(roots.len(), 2, "{roots:?}");
    assert!(roots.contains(&root.to_str().unwrap()), "{roots:?}");
    home.gdn(&["secret", "list"])
        .exits(0)
        .prints(&["ALLOWED TO", "hook"]);

    // After a revocation it stops immediately, even if the file is unreadable by then.
    let before = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write("project/goondan.yaml", "{");
    home.gdn(&["secret", "deny", "hook"])
        .exits(0)
        .prints(&["Denied Secret/hook"]);
    wait_until("the webhook is gone", || home.running(CONNECTOR).is_empty());
    home.write("project/goondan.yaml", &before);
    home.gdn(&["reload"])
        .exits(6)
        .tells(&["E_CONFIG_SECRET_NOT_ALLOWED"]);
    assert!(home.running(CONNECTOR).is_empty());
    let shown = problem(&home).to_string();
    assert!(shown.contains("gdn secret allow hook"), "{shown}");

    // It is also denied after a restart, even though a configuration with it was stored as the last
    // known good.
    drop(daemon.stop());
    let daemon = Daemon::start(&home);
    assert!(problem(&home).to_string().contains("SECRET_NOT_ALLOWED"));
    assert!(home.running(CONNECTOR).is_empty());

    // It recovers automatically once access is allowed again.
    home.gdn(&["secret", "allow", "hook"]).exits(0);
    wait_until("the value holds", || status(&daemon, FIRST) == 202);
    assert_eq!(problem(&home), Value::Null);
    // A package with a different name in the same directory is a different workspace without any
    // consent.
    let renamed = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: other}}\nspec: {{version: \
         1.0.0}}\n---\n{}",
        before.trim_start().trim_start_matches("---")
    );
    home.write("project/goondan.yaml", &renamed);
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["E_CONFIG_SECRET_NOT_ALLOWED"]);
    home.write("project/goondan.yaml", &before);
    home.gdn(&["secret", "deny", "hook", "--all"]).exits(0);
    assert_eq!(home.gdn_json(&["secret", "list"])["consents"], json!([]));
    home.gdn(&["audit", "--all"])
        .exits(0)
        .prints(&["secret.allowed", "secret.denied"]);
    drop(daemon.stop());
}

/// A command without the capabilities that let root bypass file permissions.
#[cfg(target_os = "linux")]
fn as_anyone(command: &std::process::Command) -> std::process::Command {
    if !nix::unistd::geteuid().is_root() {
        let mut same = std::process::Command::new(command.get_program());
        same.args(command.get_args());
        return same;
    }
    let mut without = std::process::Command::new("setpriv");
    without.args(["--bounding-set=-all", "--inh-caps=-all", "--"]);
    without.arg(command.get_program()).args(command.get_args());
    without
}

#[cfg(target_os = "linux")]
#[test]
fn sec_6_process_memory_is_private_and_a_crash_leaves_no_core() {
    // Root without capabilities cannot create a user namespace.
    let home = Home::new(&lab_at("landlock"));
    let program = home.command(&bin(ORCHESTRATOR), &[]);
    let mut command = as_anyone(&program);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env_remove("GOONDAN_ALLOW_DEBUGGER");
    command.current_dir(program.get_current_dir().unwrap());
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    wait_until("the connector runs", || !home.running(CONNECTOR).is_empty());
    let connector = home.running(CONNECTOR)[0].pid;
    assert_eq!(home.ask("main", "echo one"), "one");
    let agent = home.running(AGENT)[0].pid;
    let reads = |pid: u32, file: &str| {
        let mut reader = std::process::Command::new("dd");
        reader.args([&format!("if=/proc/{pid}/{file}"), "of=/dev/null", "count=0"]);
        let output = as_anyone(&reader).output().unwrap();
        output.status.success()
    };
    // An unprotected process of the same user must be readable, or the test would prove nothing.
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("600");
    let mut open = as_anyone(&sleep).spawn().unwrap();
    wait_until("a process that hides nothing can be read", || {
        reads(open.id(), "environ") && reads(open.id(), "mem")
    });
    open.kill().unwrap();
    open.wait().unwrap();
    for pid in [daemon.pid(), connector, agent] {
        // It protects itself before it receives anything secret.
        wait_until("it can be read no more", || !reads(pid, "mem"));
        assert!(!reads(pid, "environ"), "{pid}");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let values: Vec<&str> = core.unwrap().split_whitespace().skip(4).take(2).collect();
        assert_eq!(values, ["0", "0"], "{pid}");
    }
    drop(daemon.stop());
}

/// The workspace configuration decides which files are secret: a file from which it takes variables
/// is not readable, regardless of its name.
#[test]
fn sec_2_file_named_by_env_file_is_closed_to_the_file_tools() {
    let read = "
      - when: {user: '^read (?P<path>.*)$', step: 1}
        call:
          - tool: file-system__read
            args: {path: \"$GOONDAN_PROJECT_ROOT/${path}\"}
      - when: {user: '^read ', tool: file-system__read, result: '(?s)(?P<found>.*)'}
        say: \"${found}\"
      - say: \"I do not understand.\"";
    let home = Home::new(&LAB.replace("\n      - say: \"I do not understand.\"", read));
    home.write("project/deploy.settings", "TOKEN=hunter2\n");
    let daemon = Daemon::serving(&home);
    let ask = || home.ask("main", "read deploy.settings");
    assert!(ask().contains("hunter2"));
    home.gdn(&["run", "--env-file", "deploy.settings"]).exits(0);
    wait_until("it is refused", || ask().starts_with("E_FILE_SECRET"));
    drop(daemon.stop());
}
