//! Goal: a person can see each process's confinement as the kernel enforces it (`SEC-3`, `SEC-6`).
//!
//! Method: a daemon with one process of each kind; the output of `gdn ps` is compared with the
//! kernel's state.

use std::fs;
use std::path::Path;

use goondan_protocol::sandbox::{Facts, OwnSandbox, Right};
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

const CLOCK: &str = r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: clock}
spec:
  connectorRef: {kind: Connector, name: cron, package: "@goondan/base"}
  config: {schedules: [{name: yearly, cron: "0 0 1 1 *", input: "happy new year"}]}
"#;

/// One process of each kind; `worker` runs programs.
fn project(sandbox: &str) -> String {
    let project = Commands::new()
        .run("^run$", "echo ran")
        .agent("worker", &[BASH], sandbox)
        .agent("talker", &[], "{}");
    project.with(CLOCK).yaml()
}

/// A field of the kernel's status of a process.
fn kernel_says(process: &Value, field: &str) -> String {
    let pid = process["pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(name, _)| *name == field).unwrap();
    found.1.trim().to_owned()
}

/// Self-confinement of an agent that starts programs at the level `full`, without a network.
fn own_at_full() -> Facts {
    let mut own: Facts = OwnSandbox::Mounts.rights().iter().copied().collect();
    own.insert(Right::Network);
    own
}

/// Network namespace of a process.
fn network_of(pid: impl std::fmt::Display) -> std::path::PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

fn process(home: &Home, name: &str) -> Value {
    let found = || {
        let all = home.ps();
        let mut all = all.into_iter();
        all.find(|it| it["name"] == name && it["confinement"].is_object())
    };
    wait_until("the process is confined", || found().is_some());
    found().unwrap()
}

fn holds(level: &str, filters_of_worker: bool) {
    if !needs::sandbox(level) {
        return;
    }
    let home = Home::new(&project(&format!("{{require: {level}}}")));
    let daemon = Daemon::serving(&home);
    home.ask("main", "run");
    home.gdn(&["send", "--agent", "talker", "hello"]).exits(0);

    let worker = process(&home, "worker");
    assert_eq!(worker["confinement"]["programs"]["level"], level);
    let mode = if filters_of_worker { "2" } else { "0" };
    assert_eq!(kernel_says(&worker, "Seccomp"), mode);
    // The process of an agent does not see a file that does not belong to it.
    let pid = worker["pid"].as_u64().unwrap();
    let seen = |path: &Path| {
        let path = path.strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{pid}/root")).join(path).exists()
    };
    assert!(seen(&home.project().join("goondan.yaml")));
    let has_mounts = worker["confinement"]["own"] == serde_json::to_value(own_at_full()).unwrap();
    assert_eq!(has_mounts, level == "full");
    assert_eq!(network_of(pid) != network_of("self"), has_mounts);
    assert_eq!(worker["confinement"]["lacks"], Value::Null);
    assert_eq!(seen(&home.state_root().join("run")), !has_mounts);
    assert_eq!(seen(&home.notes()), !has_mounts);
    let landlock = serde_json::to_value(Right::LANDLOCK).unwrap();
    for free_of_programs in ["talker", "clock"] {
        let process = process(&home, free_of_programs);
        let confinement = &process["confinement"];
        assert_eq!(confinement["programs"], Value::Null);
        if confinement["own"] != landlock {
            needs::left_out("this kernel has no Landlock, or less of it than is asked for");
            continue;
        }
        assert_eq!(kernel_says(&process, "Seccomp"), "2");
        assert_eq!(kernel_says(&process, "NoNewPrivs"), "1");
    }

    let turn = home.gdn_json(&["instance", "history", "--turns", "main"])["turns"][0].clone();
    let trace = home.gdn_json(&["trace", turn["traceId"].as_str().unwrap()]);
    let spans = trace["spans"].as_array().unwrap();
    let sandboxes: Vec<_> = spans
        .iter()
        .map(|span| (&span["kind"], &span["sandbox"]))
        .collect();
    let (tool, step, turn) = (json!("tool"), json!("step"), json!("turn"));
    let (none, at) = (Value::Null, json!(level));
    let expected = [(&turn, &none), (&step, &none), (&tool, &at), (&step, &none)];
    assert_eq!(sandboxes, expected, "{trace:#}");
    drop(daemon.stop());
}

#[test]
fn sec_3_processes_and_calls_are_shown_with_the_level_full() {
    holds("full", true);
}

#[test]
fn sec_3_processes_and_calls_are_shown_with_the_level_landlock() {
    holds("landlock", true);
}

#[test]
fn sec_3_processes_and_calls_are_shown_without_a_sandbox() {
    holds("off", false);
}

#[test]
fn sec_3_process_with_reduced_confinement_reports_why() {
    if !needs::sandbox("full") {
        return;
    }
    let home = Home::without_project();
    let notes = home.notes();
    home.write("notes/kept", "");
    home.write("secret", "");
    // A program could have placed the link there, so no root may be set up with its target.
    std::os::unix::fs::symlink(home.path().join("secret"), notes.join("link")).unwrap();
    let sandbox = format!(
        "{{require: full, write: [{0}], read: [{0}/link]}}",
        notes.display()
    );
    home.write("project/goondan.yaml", &project(&sandbox));
    let daemon = Daemon::serving(&home);
    home.ask("main", "run");
    let worker = process(&home, "worker");
    let lacks = worker["confinement"]["lacks"].as_str().unwrap();
    assert!(lacks.contains("notes/link` is a link"), "{lacks}");
    let rest: Facts = [Right::Signals, Right::AbstractSockets, Right::SystemCalls].into();
    assert_eq!(
        worker["confinement"]["own"],
        serde_json::to_value(rest).unwrap()
    );
    let logged = daemon
        .log()
        .wait_for("the reason", |line| line["lacks"].is_string());
    assert_eq!(logged["lacks"], lacks);
    assert_eq!(logged["level"], "warn");
    // It starts nothing below its level.
    let text = home.history("main").last().unwrap().to_string();
    let result = home.history("main")[2].to_string();
    assert!(result.contains("E_SANDBOX"), "{result}");
    assert!(text.contains("E_SANDBOX"), "{text}");
    daemon.stop();
}
