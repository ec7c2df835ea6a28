//! `gdn doctor`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::home::Home;

const PROJECT: &str = "\
apiVersion: goondan.ai/v1
kind: Model
metadata: { name: quick }
spec:
  provider: openai
  model: any
  endpoint: http://127.0.0.1:PORT/v1
  apiKey: { value: nothing }
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: { name: clerk }
spec:
  modelConfig: { modelRef: Model/quick }
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: { name: default }
spec:
  entryAgent: Agent/clerk
  agents: [{ ref: Agent/clerk }]
";

/// Finding of `gdn doctor --json` for one check.
fn finding(report: &Value, check: &str) -> Value {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found
        .unwrap_or_else(|| panic!("{check}: {report:#}"))
        .clone()
}

fn report(home: &Home, args: &[&str]) -> Value {
    let args = [&["doctor", "--json"], args].concat();
    home.gdn(&args).json()
}

fn private_state_root(home: &Home, mode: u32) {
    fs::create_dir_all(home.state_root()).unwrap();
    fs::set_permissions(home.state_root(), PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn rel_1_doctor_names_each_problem_with_its_repair_command() {
    let home = Home::new();
    private_state_root(&home, 0o755);
    let found = home.gdn(&["doctor", "--json"]).exits(16);
    assert_eq!(found.json()["healthy"], json!(false));
    let open = finding(&found.json(), "state directory");
    assert_eq!(open["verdict"], "bad");
    let hint = open["hint"].as_str().unwrap();
    // The project's file is empty, which is not a valid configuration.
    assert_eq!(finding(&found.json(), "project")["verdict"], "bad");
    let mended = std::process::Command::new("sh").args(["-c", hint]).status();
    assert!(mended.unwrap().success(), "{hint}");
    let private = finding(&report(&home, &[]), "state directory");
    assert_eq!(private["verdict"], "ok", "{private}");
}

#[test]
fn healthy_checks_are_reported_and_nothing_is_changed() {
    let home = Home::new();
    let found = report(&home, &[]);
    assert_eq!(finding(&found, "daemon")["verdict"], "ok");
    assert_eq!(finding(&found, "state directory")["verdict"], "ok");
    assert!(!home.state_root().exists());
    let output = home.gdn(&["doctor"]);
    assert!(output.stdout.starts_with("CHECK"), "{}", output.stdout);
}

#[test]
fn servers_of_models_are_tried_only_when_asked() {
    let home = Home::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let project = PROJECT.replace("PORT", &port.to_string());
    fs::write(home.project().join("goondan.yaml"), project).unwrap();
    let quiet = report(&home, &[]);
    // The API key is in plain text.
    assert_eq!(finding(&quiet, "project")["verdict"], "warn", "{quiet:#}");
    let checks = quiet["findings"].as_array().unwrap().iter();
    assert!(checks.clone().all(|it| it["check"] != "model server"));
    let reached = finding(&report(&home, &["--network"]), "model server");
    assert_eq!(reached["verdict"], "ok", "{reached}");
    drop(server);
    let refused = finding(&report(&home, &["--network"]), "model server");
    assert_eq!(refused["verdict"], "bad", "{refused}");
    assert!(refused["hint"].is_string());
}
