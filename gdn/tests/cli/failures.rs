//! Failures before a command can run: each has its exit code and hint.

use std::fs;
use std::os::unix::net::UnixListener;

use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::version::Version;
use serde_json::json;

use crate::daemon::{Act, answer};
use crate::home::Home;

#[test]
fn missing_daemon_is_reported_with_the_command_to_start_it() {
    let home = Home::new();
    for args in [
        &["ps"][..],
        &["status"],
        &["send", "x"],
        &["chat"],
        &["logs"],
        &["stop"],
        &["restart"],
        &["instance", "list"],
        &["workspace", "list"],
    ] {
        home.gdn(args)
            .exits(3)
            .tells(&["error: no daemon runs on ", "hint: ", "`gdn run`"]);
    }
    let error = home.gdn(&["--json", "ps"]).exits(3).error_json();
    assert_eq!(error["code"], "daemonNotRunning");
    assert_eq!(error["retryable"], true);
}

#[test]
fn a_socket_that_a_dead_daemon_left_is_no_daemon() {
    let home = Home::new();
    let run = home.state_root().join("run");
    fs::create_dir_all(&run).unwrap();
    drop(UnixListener::bind(run.join("orchestrator.sock")).unwrap());
    home.gdn(&["status"]).exits(3);
}

#[test]
fn another_version_is_refused_by_either_side() {
    let home = Home::new();
    let refusing = home.daemon(|call| match call {
        Call::Connect(_) => vec![Act::Refuse(ControlError::new(
            ErrorCode::VersionMismatch,
            "the other side is goondan 0.0.9",
        ))],
        _ => vec![],
    });
    let pid = std::process::id();
    home.gdn(&["ps"]).exits(4).tells(&[
        "cannot talk to the running daemon",
        "caused by: the other side is goondan 0.0.9",
        "hint: stop the running daemon with `gdn daemon shutdown`",
        &format!("`kill {pid}`"),
    ]);
    drop(refusing);

    let _older = home.daemon(|call| match call {
        Call::Connect(_) => {
            let version = Version {
                goondan: "0.0.9".into(),
                ..Version::current()
            };
            answer(json!({"version": version, "pid": 1, "stateRoot": "/"}))
        }
        _ => vec![],
    });
    home.gdn(&["ps"]).exits(4).tells(&["goondan 0.0.9"]);
    let error = home.gdn(&["ps", "--json"]).exits(4).error_json();
    assert_eq!(error["code"], "versionMismatch");
}

#[test]
fn ctl_1_a_closed_idle_connection_reports_the_reason() {
    let home = Home::new();
    let root = home.state_root();
    let error = || ControlError::new(ErrorCode::Overloaded, "too many").suggest("do that");
    for is_greeted in [false, true] {
        let root = root.clone();
        let _daemon = home.daemon(move |call| match call {
            Call::Connect(_) if is_greeted => {
                let greeted = json!({"version": Version::current(), "pid": 1, "stateRoot": root});
                vec![Act::Answer(greeted), Act::Replace(error())]
            }
            Call::Connect(_) => vec![Act::Replace(error())],
            _ => vec![],
        });
        for args in [&["ps"][..], &["send", "x"]] {
            home.gdn(args)
                .exits(8)
                .tells(&["error: too many\n", "hint: do that\n"]);
        }
    }
}

#[test]
fn a_daemon_of_another_form_is_another_version() {
    let home = Home::new();
    let _odd = home.daemon(|call| match call {
        Call::Connect(_) => answer(json!({"hello": "there"})),
        _ => vec![],
    });
    home.gdn(&["ps"]).exits(4);
}

#[test]
fn missing_project_is_reported_with_ways_to_get_one() {
    let home = Home::new();
    let _daemon = home.daemon(|_| vec![]);
    let mut command = home.command(&["send", "x"]);
    command.current_dir(home.path());
    let ran = crate::home::GdnOutput::of(command.output().unwrap()).exits(5);
    ran.tells(&[
        "error: no goondan.yaml in ",
        "--project DIR",
        "gdn init my-swarm",
    ]);
    home.gdn(&["--project", "/nowhere", "ps"])
        .exits(5)
        .tells(&["cannot open the directory"]);
    home.gdn(&["--project", "/", "ps"])
        .exits(5)
        .tells(&["`gdn init /`"]);
}

#[test]
fn a_project_is_found_from_within() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::ListProcesses(_) => answer(json!({"processes": []})),
        _ => vec![],
    });
    let deep = home.project().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let mut command = home.command(&["ps"]);
    command.current_dir(deep);
    crate::home::GdnOutput::of(command.output().unwrap()).exits(0);
}

#[test]
fn unregistered_project_is_reported_with_gdn_run() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::ListWorkspaces(_) => answer(json!({"workspaces": []})),
        _ => vec![],
    });
    home.gdn(&["send", "x"])
        .exits(5)
        .tells(&["is not running", "hint: start it: `gdn run`"]);
}

#[test]
fn usage_errors_are_json_too() {
    let home = Home::new();
    home.gdn(&["send"]).exits(2).tells(&["<TEXT>"]);
    let ran = home.gdn(&["--json", "send"]).exits(2);
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.error_json()["code"], "usage");
    home.gdn(&["--json", "--help"]).exits(0);
}

#[test]
fn overlong_socket_path_is_reported() {
    let home = Home::new();
    let long = "d".repeat(200);
    home.gdn(&["--state-root", &long, "status"])
        .exits(2)
        .tells(&["shorter directory"]);
}

#[test]
fn incomplete_command_line_is_reported_in_json_too() {
    let home = Home::new();
    let error = home.gdn(&["send", "--json"]).exits(2).error_json();
    let message = error["message"].as_str().unwrap();
    assert_eq!(
        message,
        "the following required arguments were not provided: <TEXT>"
    );
    let hint = error["hint"].as_str().unwrap();
    assert!(
        hint.starts_with("usage: `gdn send") && hint.contains("<TEXT>"),
        "{hint}"
    );
    let error = home.gdn(&["sned", "x", "--json"]).exits(2).error_json();
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("'send'"), "{hint}");
}
