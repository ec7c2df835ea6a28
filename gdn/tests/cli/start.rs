//! `gdn run` and `gdn demo` with a script in place of the daemon's program.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use goondan_protocol::control::Call;
use serde_json::json;

use crate::daemon::{Act, Daemon, answer};
use crate::home::{GdnOutput, Home, completed, progress, sent};

/// Maximum wait for an expected result.
const PATIENCE: Duration = Duration::from_secs(30);

/// Installs `gdn` beside a `goondan-orchestrator` that is this shell script.
///
/// Another process writes the programs, because a file that this process holds open for writing while another test's
/// thread forks could not be executed ("text file busy").
fn install(home: &Home, script: &str) -> PathBuf {
    let bin = home.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let text = home.path().join("script");
    fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    let gdn = bin.join("gdn");
    let copies = [
        (Path::new(env!("CARGO_BIN_EXE_gdn")), gdn.as_path()),
        (&text, &bin.join("goondan-orchestrator")),
    ];
    for (from, to) in copies {
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).arg(from).arg(to).status();
        assert!(status.unwrap().success());
    }
    gdn
}

fn run(home: &Home, gdn: &Path, args: &[&str]) -> GdnOutput {
    GdnOutput::of(home.command_of(gdn, args).output().unwrap())
}

fn opening(home: &Home) -> Daemon {
    let workspace = home.workspace();
    home.daemon(move |call| match call {
        Call::OpenWorkspace(_) => answer(workspace.clone()),
        _ => vec![],
    })
}

#[test]
fn a_running_daemon_is_used() {
    let home = Home::new();
    let gdn = install(&home, "echo 'must not be started' >&2; exit 1");
    let daemon = opening(&home);
    let ran = run(&home, &gdn, &["run"]).exits(0);
    assert!(!ran.stderr.contains("Started"), "{ran:?}");
    for text in [
        "Workspace    w1\n",
        "Agents       buyer, clerk (entry)\n",
        "Connections  hook\n",
    ] {
        assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
    }
    let calls = daemon.calls();
    let [Call::OpenWorkspace(open), Call::WatchProcesses(_)] = calls.as_slice() else {
        panic!("{calls:?}")
    };
    assert_eq!(open.project_root, home.project());
}

/// A killed daemon's socket accepts connections until the system has cleaned up.
#[test]
fn a_daemon_that_is_just_going_is_not_taken_for_one_that_runs() {
    let home = Home::new();
    let gdn = install(&home, "echo 'error: started' >&2; exit 1");
    let run_dir = home.state_root().join("run");
    fs::create_dir_all(&run_dir).unwrap();
    let listener = UnixListener::bind(run_dir.join("orchestrator.sock")).unwrap();
    let going = std::thread::spawn(move || {
        for _ in 0..3 {
            drop(listener.accept().unwrap());
        }
    });
    run(&home, &gdn, &["run"]).exits(13).tells(&[": started\n"]);
    going.join().unwrap();
}

#[test]
fn a_daemon_is_started_in_the_background_and_waited_for() {
    let home = Home::new();
    let called = home.path().join("called");
    // Written and then renamed, so that a reader sees the complete file.
    let script = format!(
        "echo \"$PWD $*\" > {called}.new; mv {called}.new {called}",
        called = called.display()
    );
    let gdn = install(&home, &script);
    let started = home.command_of(&gdn, &["run", "--json"]).spawn().unwrap();
    let called = wait_for(&called);
    let _daemon = opening(&home);
    let ran = GdnOutput::of(started.wait_with_output().unwrap()).exits(0);
    let json = ran.json();
    assert_eq!(json["schema"], "gdn.run/v1");
    assert_eq!(json["daemon"]["started"], true);
    assert_eq!(json["workspace"]["workspaceId"], "w1");
    let root = home.state_root();
    let root = root.display();
    assert_eq!(
        called,
        format!("/ --detach --state-root {root} --log-dir {root}/logs\n")
    );
}

#[test]
fn a_daemon_that_ends_at_once_is_quoted() {
    let home = Home::new();
    let gdn = install(
        &home,
        "echo 'error: the state root is owned by pid 7' >&2; exit 3",
    );
    run(&home, &gdn, &["run"]).exits(13).tells(&[
        "error: the daemon could not start (exit status: 3): the state root is owned by pid 7\n",
        "hint: run it in this terminal: `gdn run --foreground`",
    ]);
}

#[test]
fn missing_program_is_reported() {
    let home = Home::new();
    let gdn = install(&home, "");
    fs::remove_file(home.path().join("bin/goondan-orchestrator")).unwrap();
    let mut command = home.command_of(&gdn, &["run"]);
    command.env("PATH", "/nonexistent");
    let ran = GdnOutput::of(command.output().unwrap()).exits(13);
    ran.tells(&["cannot run goondan-orchestrator", "cargo build --release"]);
}

#[test]
fn foreground_becomes_the_daemon() {
    let home = Home::new();
    let gdn = install(&home, "echo \"$*\"; exit 42");
    let ran = run(&home, &gdn, &["run", "--foreground"]).exits(42);
    assert_eq!(
        ran.stdout,
        format!(
            "--state-root {} --open {}\n",
            home.state_root().display(),
            home.project().display()
        )
    );
}

fn wait_for(file: &Path) -> String {
    let deadline = Instant::now() + PATIENCE;
    while !file.exists() {
        assert!(
            Instant::now() < deadline,
            "the daemon's program was not run"
        );
        std::thread::yield_now();
    }
    fs::read_to_string(file).unwrap()
}

/// Runs `gdn demo` against a daemon that replies with `outcome`. Returns the result, the state root it used, and the
/// daemon.
fn demo(home: &Home, more: &[&str], outcome: serde_json::Value) -> (GdnOutput, PathBuf, Daemon) {
    let called = home.path().join("called");
    let script = format!(
        "printf %s \"$3\" > {called}.new; mv {called}.new {called}",
        called = called.display()
    );
    let gdn = install(home, &script);
    let tmp = home.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let args = [&["demo", "--ask", "How many?"], more].concat();
    let mut command = home.command_of(&gdn, &args);
    let started = command.env("TMPDIR", &tmp).spawn().unwrap();
    let state_root = PathBuf::from(wait_for(&called));
    let workspace = home.workspace();
    let (daemon, _) = Daemon::mortal(&state_root, move |call| match call {
        Call::OpenWorkspace(_) => answer(workspace.clone()),
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Answer(sent(call, &outcome)),
        ],
        Call::InstancePage(_) => {
            answer(json!({"messages": [message()], "pending": [], "total": 1}))
        }
        _ => vec![],
    });
    let ran = GdnOutput::of(started.wait_with_output().unwrap());
    (ran, state_root, daemon)
}

fn message() -> serde_json::Value {
    json!({
        "id": "m",
        "data": {"role": "user", "content": "How many?"},
        "createdAt": "2026-11-21T21:06:00.000Z",
        "source": {"type": "user"},
    })
}

#[test]
fn a_demo_asks_shows_stops_and_leaves_nothing_behind() {
    let home = Home::new();
    let (ran, state_root, daemon) = demo(&home, &[], completed("Seven."));
    let ran = ran.exits(0).tells(&[
        " question How many?\n",
        "step 1\n",
        "the conversation has 1 message",
        "its state root removed",
        "gdn init my-swarm",
    ]);
    assert_eq!(ran.stdout, "Seven.\n");
    assert!(state_root.starts_with(home.path().join("tmp")));
    assert!(!state_root.exists());
    let stopped = daemon
        .calls()
        .iter()
        .any(|call| matches!(call, Call::Stop(_)));
    assert!(stopped, "the daemon was not stopped");
}

#[test]
fn demo_keeps_its_state_on_request() {
    let home = Home::new();
    let (ran, state_root, _daemon) = demo(&home, &["--keep", "--json"], completed("Seven."));
    let json = ran.exits(0).json();
    assert_eq!(json["schema"], "gdn.demo/v1");
    assert_eq!(json["answer"]["outcome"]["reply"], "Seven.");
    assert_eq!(json["messages"], 1);
    assert_eq!(json["stateRoot"], state_root.to_str().unwrap());
    assert!(state_root.exists());
}

#[test]
fn a_demo_that_fails_stops_its_daemon_and_keeps_the_logs() {
    let home = Home::new();
    let failed = json!({"status": "failed", "code": "E_MODEL", "message": "no rule matches"});
    let (ran, state_root, daemon) = demo(&home, &[], failed);
    ran.exits(7).tells(&[
        "the turn failed (E_MODEL)",
        &format!("the logs are in {}/logs", state_root.display()),
    ]);
    assert!(state_root.exists());
    assert!(matches!(daemon.calls().last(), Some(Call::Stop(_))));
}

#[test]
fn a_workspace_named_by_its_id_needs_no_project() {
    let home = Home::new();
    let daemon = home.daemon(|_| vec![]);
    let mut command = home.command(&["run", "--workspace", "w1"]);
    let ran = GdnOutput::of(command.current_dir("/").output().unwrap()).exits(0);
    assert!(ran.stdout.starts_with("Workspace    w1\n"), "{ran:?}");
    assert!(matches!(daemon.calls()[..], [Call::WatchProcesses(_)]));
    home.gdn(&["run", "--workspace", "w2"])
        .exits(5)
        .tells(&["`gdn workspace list`"]);
}

#[test]
fn a_demo_that_cannot_start_leaves_nothing_behind() {
    let home = Home::new();
    let gdn = install(&home, "echo 'no' >&2; exit 1");
    let tmp = home.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let mut command = home.command_of(&gdn, &["demo", "--ask", "Hello"]);
    command.env("TMPDIR", &tmp);
    GdnOutput::of(command.output().unwrap())
        .exits(13)
        .tells(&["could not start"]);
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn workspace_with_a_problem_is_opened_with_a_report() {
    let home = Home::new();
    let mut workspace = home.workspace();
    workspace["problem"] = json!({"message": "bad edit", "suggestion": "gdn validate"});
    // Without connections, there is nothing to wait for.
    workspace["connections"] = json!([]);
    let _daemon = home.daemon(move |call| match call {
        Call::OpenWorkspace(_) => answer(workspace.clone()),
        _ => vec![],
    });
    home.gdn(&["run"])
        .exits(0)
        .tells(&["warning: w1: bad edit"]);
}
