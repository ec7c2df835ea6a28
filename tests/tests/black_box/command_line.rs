//! Errors of `gdn` for wrong names and for connections that do not start (`CTL-1`, `OBS-6`).

use std::fs;
use std::net::TcpListener;

use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home};

use crate::secrets;
use crate::tasks::new_shop;

#[test]
fn ctl_1_unknown_names_are_refused_with_those_there_are() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    for agent in [
        &["chat", "--agent", "wroker"][..],
        &["restart", "--agent", "wroker"],
        &["logs", "--agent", "wroker"],
        &["instance", "list", "--agent", "wroker"],
    ] {
        home.gdn(agent)
            .exits(5)
            .tells(&["no agent `wroker`", "did you mean `worker`?"]);
    }
    for conversation in [
        &["instance", "restart", "mian"][..],
        &["restart", "--instance", "mian"],
        &["restart", "--instance", "mian", "--fresh", "--yes"],
        &["logs", "--instance", "mian"],
        &["event", "list", "--instance", "mian"],
        &["event", "pause", "--all", "--instance", "mian"],
        &["cancel", "--instance", "mian"],
        &["approvals", "--instance", "mian"],
        &["verify", "--instance", "mian"],
        &["bundle", "status", "mian"],
        &["rewind", "mian", "--dry-run"],
        &["instance", "show", "mian"],
        &["instance", "history", "mian"],
        &["instance", "checkpoints", "mian"],
    ] {
        home.gdn(conversation).exits(5).tells(&["`mian`"]);
    }
    home.gdn(&["instance", "restart", "mian"])
        .exits(5)
        .tells(&["did you mean `main`?", "conversations are: main"]);
    home.gdn(&["instance", "restart", "main"]).exits(0);
    home.gdn(&["logs", "--agent", "worker"]).exits(0);
}

#[test]
fn ctl_1_a_state_root_that_is_a_file_is_named_as_such() {
    let home = Home::new(LAB);
    home.write("file", "");
    let file = home.path().join("file");
    let file = file.to_str().unwrap();
    for command in ["status", "run"] {
        home.gdn(&["--state-root", file, command])
            .exits(2)
            .tells(&["is not a directory", "--state-root DIR"]);
    }
    home.gdn(&["--state-root", file, "doctor"])
        .exits(16)
        .prints(&["is not a directory"]);
}

#[test]
fn obs_6_run_fails_while_a_connector_cannot_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let connection = format!(
        r#"---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: taken}}
spec:
  connectorRef: {{kind: Connector, name: github, package: "@goondan/base"}}
  config: {{port: {port}}}
  secrets: {{webhookSecret: {{value: s}}}}
"#
    );
    let home = Home::new(&[LAB, &connection].concat());
    home.gdn(&["run"]).exits(16).tells(&[
        "connector taken is not ready: cannot listen on 127.0.0.1",
        "gdn ps",
    ]);
    // The daemon runs, with the rest of the project.
    assert_eq!(home.ask("main", "echo hello"), "hello");
    // A reload waits for the connectors of changed connections, too.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let other_port = other.local_addr().unwrap().port();
    let changed = yaml.replace(&format!("port: {port}"), &format!("port: {other_port}"));
    home.write("project/goondan.yaml", &changed);
    home.gdn(&["reload"])
        .exits(16)
        .tells(&["connector taken is not ready: cannot listen on 127.0.0.1"]);
    home.gdn(&["logs", "--event", "nosuch"])
        .exits(5)
        .tells(&["no log line of event `nosuch`", "--all --event nosuch"]);
    drop((taken, other));
    home.gdn(&["shutdown"]).exits(0);
    home.gdn(&["run"]).exits(0);
    home.gdn(&["shutdown"]).exits(0);
}

#[test]
fn ctl_1_mistyped_name_of_any_kind_gets_a_suggestion() {
    let home = Home::new(LAB);
    home.write("project/src/a.txt", "one\n");
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.gdn(&["instance", "checkpoint", "main", "--name", "before"])
        .exits(0);
    let prepare = [
        "sandbox", "prepare", "--run", "r1", "--agent", "coder", "src",
    ];
    home.gdn(&prepare).exits(0);
    new_shop(&home, &["--agent", "worker"]);
    home.gdn(&["task", "checkpoint", "shop", "--name", "draft"])
        .exits(0);
    secrets::set(&home, "github", "token", "a-value", &[]).exits(0);
    let workspace = home.gdn_json(&["workspace", "list"]);
    let workspace = workspace["workspaces"][0]["workspaceId"].as_str().unwrap();
    let typo = format!("{workspace}x");
    for (args, near) in [
        (&["task", "show", "shpo"][..], "shop"),
        (&["task", "restore", "shop", "darft", "--yes"], "draft"),
        (
            &[
                "task",
                "new",
                "Bar",
                "--description",
                "x",
                "--agent",
                "wroker",
            ],
            "worker",
        ),
        (&["instance", "show", "mian"], "main"),
        (&["instance", "history", "mian"], "main"),
        (&["instance", "export", "mian"], "main"),
        (&["rewind", "main", "--to", "bfore", "--yes"], "before"),
        (&["send", "--agent", "wroker", "hello"], "worker"),
        (&["sandbox", "list", "--run", "r2"], "r1"),
        (&["proposal", "list", "--run", "r2"], "r1"),
        (&["sandbox", "show", "r1", "codr"], "r1 coder"),
        (&["sandbox", "remove", "r1", "codr"], "r1 coder"),
        (&["proposal", "create", "r", "coder"], "r1 coder"),
        (&["secret", "allow", "gihtub"], "github"),
        (&["secret", "remove", "gihtub", "--yes"], "github"),
        (&["secret", "remove", "github", "tokn", "--yes"], "token"),
        (&["--workspace", &typo, "ps"], workspace),
        (&["schema", "Agnt"], "Agent"),
        (&["man", "tsak"], "task"),
    ] {
        let ran = home.gdn(args);
        assert!([2, 5].contains(&ran.code), "{args:?}: {ran:?}");
        ran.tells(&[&format!("did you mean `{near}`?")]);
    }
    // Names without a close match keep only their own hint.
    let ran = home.gdn(&["task", "show", "nothing-like-it"]);
    assert!(!ran.stderr.contains("did you mean"), "{ran:?}");
}
