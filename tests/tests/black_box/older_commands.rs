//! Familiar commands and options of goondan 0.0.3 (`COMPAT-4`).

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::{Daemon, Home};

const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: "You said: ${input}"}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/clerk, instanceKey: main}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: local}
spec:
  connectorRef: {kind: Connector, name: cli, package: "@goondan/base"}
  ingress:
    rules:
      - match: {event: stdin_message}
        route: {agentRef: Agent/clerk}
"#;

#[test]
fn compat_4_known_commands_and_options_work_as_before() {
    let home = Home::new(PROJECT);
    let _daemon = Daemon::serving(&home);
    let ran = home
        .gdn(&["run", "--swarm", "team", "--no-install", "--input", "hi"])
        .exits(0);
    assert_eq!(ran.stdout, "You said: hi\n");
    let mut talking = home.command(&bin(GDN), &["run", "--interactive"]);
    talking.stdin(Stdio::piped());
    let mut chat = RunningProgram::start(talking);
    chat.say("there");
    chat.wait_for_stdout("You said: there");
    chat.say("/quit");
    chat.wait().exits(0);
    home.gdn(&["instance", "list", "--agent", "clerk"])
        .exits(0)
        .prints(&["main"]);
    home.gdn(&["instance", "list", "--agent", "other"])
        .exits(5)
        .tells(&["no agent `other`"]);
    home.gdn(&["instance", "restart", "main"]).exits(0);
    home.gdn(&["logs", "-i", "main", "--process", "agent"])
        .exits(0);
    home.gdn(&["restart", "--fresh", "--yes"]).exits(0);
    home.gdn(&["instance", "delete", "main", "--force"])
        .exits(0);
    home.gdn(&["doctor"]);
    let studio = home.start_gdn(&["studio"]);
    studio.wait_for_stdout("http://127.0.0.1:");
    drop(studio);
    let made = home.path().join("made");
    home.gdn(&["init", "-t", "minimal", "--no-git", &made.to_string_lossy()])
        .exits(0);
    assert!(made.join("goondan.yaml").exists());
}
