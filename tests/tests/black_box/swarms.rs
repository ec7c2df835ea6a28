//! Several Swarms in a project; one runs.

use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

/// Two Swarms with one agent each, which says which one it is.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: day}
spec: {provider: scripted, options: {rules: [{say: "day: ${input}"}]}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: night}
spec: {provider: scripted, options: {rules: [{say: "night: ${input}"}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: day-clerk}
spec: {modelConfig: {modelRef: Model/day}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: night-clerk}
spec: {modelConfig: {modelRef: Model/night}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: day}
spec: {entryAgent: Agent/day-clerk, agents: [{ref: Agent/day-clerk}], instanceKey: day}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: night}
spec: {entryAgent: Agent/night-clerk, agents: [{ref: Agent/night-clerk}], instanceKey: night}
"#;

fn workspace(home: &Home) -> Value {
    home.gdn_json(&["status"])["workspaces"][0].clone()
}

fn reply(home: &Home, text: &str) -> String {
    home.gdn(&["send", text]).exits(0).stdout
}

#[test]
fn compat_1_named_swarm_runs_through_reloads_and_restarts() {
    let home = Home::new(PROJECT);
    let daemon = Daemon::start(&home);
    home.gdn(&["run"])
        .exits(0)
        .prints(&["day (not running: night)"]);
    assert_eq!(reply(&home, "hi"), "day: hi\n");

    home.gdn(&["run", "--swarm", "night"])
        .exits(0)
        .prints(&["night (not running: day)"]);
    assert_eq!(reply(&home, "hi"), "night: hi\n");
    home.gdn(&["ps"])
        .exits(0)
        .tells(&["Swarm night (not running: day)"]);
    // Later starts and reloads keep the choice.
    home.gdn(&["run"]).exits(0);
    home.write(
        "project/goondan.yaml",
        &PROJECT.replace("night: $", "late: $"),
    );
    home.gdn(&["reload"]).exits(0);
    assert_eq!(reply(&home, "hi"), "late: hi\n");

    // An unknown name changes nothing.
    let noon = ["run", "--swarm", "noon"];
    home.gdn(&noon)
        .exits(6)
        .tells(&["the Swarm `noon` to run does not exist; the project has `day`, `night`"]);
    assert_eq!(workspace(&home)["swarm"], json!("night"));
    assert_eq!(reply(&home, "hi"), "late: hi\n");

    // Neither does a restart of the daemon.
    daemon.stop();
    let _daemon = Daemon::start(&home);
    wait_until("the workspace is open", || {
        workspace(&home)["swarm"] == json!("night")
    });
    assert_eq!(workspace(&home)["idleSwarms"], json!(["day"]));
    assert_eq!(reply(&home, "hi"), "late: hi\n");

    // Nor does an edit of the watched files.
    home.gdn(&["run", "--watch"]).exits(0);
    wait_until("the project is watched", || {
        workspace(&home)["watch"] == "events"
    });
    home.write(
        "project/goondan.yaml",
        &PROJECT.replace("night: $", "later: $"),
    );
    wait_until("the edit is active", || reply(&home, "hi") == "later: hi\n");

    home.gdn(&["run", "--first-swarm"])
        .exits(0)
        .prints(&["day (not running: night)"]);
    assert_eq!(reply(&home, "hi"), "day: hi\n");
}

#[test]
fn compat_1_validate_reads_the_named_swarm() {
    let home = Home::new(PROJECT);
    home.gdn(&["validate"])
        .exits(0)
        .prints(&["day-clerk (entry)"])
        .tells(&["Swarm `night` does not run, because Swarm `day` runs"]);
    let night = home.gdn_json(&["validate", "-s", "night"]);
    assert_eq!(night["entryAgent"], json!("night-clerk"));
    assert_eq!(night["swarm"], json!("night"));
    assert_eq!(night["idleSwarms"], json!(["day"]));
    home.gdn(&["validate", "-s", "noon"])
        .exits(6)
        .tells(&["the project has `day`, `night`"]);
    home.gdn(&["config", "show", "--swarm", "night"])
        .exits(0)
        .tells(&["Swarm: night (not running: day)"]);
}
