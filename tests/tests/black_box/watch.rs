//! A project that is edited while it runs: watched, reloaded, restarted.

use std::fs;
use std::path::Path;

use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, tree, wait_until};
use serde_json::Value;

use crate::conversation::shape;

/// [`LAB`] with a different answer, and a prompt file for the other agent.
fn lab(answer: &str) -> String {
    let answer = format!("say: \"{answer} ${{text}}\"");
    LAB.replace("say: \"${text}\"", &answer).replace(
        "  name: helper\nspec:\n",
        "  name: helper\nspec:\n  prompt: {systemRef: prompts/helper.md}\n",
    )
}

fn watched(answer: &str) -> (Home, Daemon) {
    let home = Home::new(&lab(answer));
    home.write("project/prompts/helper.md", "Be kind.\n");
    let daemon = Daemon::start(&home);
    home.gdn(&["run", "--watch"]).exits(0).prints(&["Watch"]);
    let is_watched = || workspace(&home)["watch"] == "events";
    wait_until("the project is watched", is_watched);
    (home, daemon)
}

fn workspace(home: &Home) -> Value {
    home.gdn_json(&["status"])["workspaces"][0].clone()
}

fn pid_of(home: &Home, key: &str) -> Value {
    home.ps_agent(key).unwrap()["pid"].clone()
}

fn connector_pid(home: &Home) -> Value {
    let connectors = home.ps().into_iter();
    let mut connectors = connectors.filter(|process| process["role"] == "connector");
    connectors.next().unwrap()["pid"].clone()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person's changes to a project are not state of goondan"
)]
fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

/// A digest as shortened in a table.
fn head(digest: &Value) -> String {
    digest.as_str().unwrap().chars().take(8).collect()
}

/// Saves like many editors: writes a new file, and renames it into place.
fn save_by_rename(home: &Home, text: &str) {
    home.write("project/.goondan.yaml.swp", &home.filled_in(text));
    let project = home.project();
    rename(
        &project.join(".goondan.yaml.swp"),
        &project.join("goondan.yaml"),
    );
}

fn wait_for_change(daemon: &Daemon, seen: usize) -> Value {
    daemon
        .log()
        .wait_for_after(seen, "the change is taken up", |line| {
            message(line) == "configuration changed"
        })
}

#[test]
fn sup_8_configuration_edit_restarts_only_affected_processes() {
    let (home, daemon) = watched("one");
    assert_eq!(home.ask("main", "echo x"), "one x");
    home.gdn(&["send", "--agent", "helper", "--instance", "h", "echo x"])
        .exits(0);
    let helper = "helper:h";
    let before = (
        pid_of(&home, "main"),
        pid_of(&home, helper),
        connector_pid(&home),
    );

    // A prompt: only its agent's process.
    let seen = daemon.log().lines().len();
    home.write("project/prompts/helper.md", "Be short.\n");
    let line = wait_for_change(&daemon, seen);
    assert_eq!(line["changes"], serde_json::json!(["Agent/helper changed"]));
    assert_eq!(line["restarting"], 1);
    home.gdn(&["send", "--agent", "helper", "--instance", "h", "echo y"])
        .exits(0);
    assert_ne!(pid_of(&home, helper), before.1);
    assert_eq!(
        (pid_of(&home, "main"), connector_pid(&home)),
        (before.0.clone(), before.2.clone())
    );
    assert_eq!(shape(&home.history(helper)), "uaua");

    // A connection: only its connector.
    let seen = daemon.log().lines().len();
    save_by_rename(&home, &lab("one").replace("path: /hook", "path: /other"));
    let line = wait_for_change(&daemon, seen);
    assert_eq!(
        line["changes"],
        serde_json::json!(["Connection/hook changed"])
    );
    wait_until("the connector is another", || {
        let pid = connector_pid(&home);
        pid.is_u64() && pid != before.2
    });
    assert_eq!(pid_of(&home, "main"), before.0);

    // A model: processes of agents that use it, on their next turn.
    let seen = daemon.log().lines().len();
    save_by_rename(&home, &lab("two").replace("path: /hook", "path: /other"));
    wait_for_change(&daemon, seen);
    assert_eq!(home.ask("main", "echo x"), "two x");
    assert_eq!(shape(&home.history("main")), "uaua");

    // The swarm: all processes.
    let connector = connector_pid(&home);
    let seen = daemon.log().lines().len();
    let edited = lab("two").replace("gracePeriodSeconds: 60", "gracePeriodSeconds: 61");
    save_by_rename(&home, &edited.replace("path: /hook", "path: /other"));
    let line = wait_for_change(&daemon, seen);
    assert_eq!(line["changes"], serde_json::json!(["Swarm changed"]));
    wait_until("the connector is another", || {
        let pid = connector_pid(&home);
        pid.is_u64() && pid != connector
    });
}

#[test]
fn sup_8_turn_in_progress_finishes_on_its_first_configuration() {
    let (home, daemon) = watched("one");
    let asking = home.start_gdn(&["send", "--instance", "busy", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let digest = workspace(&home)["configDigest"].clone();
    let pid = pid_of(&home, "busy");
    let seen = daemon.log().lines().len();
    home.write(
        "project/goondan.yaml",
        &home.filled_in(&lab("two").replace("done ${name}", "really done ${name}")),
    );
    wait_for_change(&daemon, seen);
    let process = home.ps_agent("busy").unwrap();
    assert_eq!(
        (&process["pid"], &process["state"]),
        (&pid, &"processing".into())
    );
    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    assert_eq!(home.ask("busy", "echo y"), "two y");
    assert_eq!(shape(&home.history("busy")), "uataua");

    // Each turn reports the configuration it ran with.
    let turns = home.gdn_json(&["instance", "history", "--turns", "busy"])["turns"].clone();
    assert_eq!(turns[0]["configDigests"], serde_json::json!([digest]));
    let now = workspace(&home)["configDigest"].clone();
    assert_eq!(turns[1]["configDigests"], serde_json::json!([now]));
    assert_ne!(digest, now);
    home.gdn(&["instance", "history", "--turns", "busy"])
        .exits(0)
        .prints(&[&head(&digest), &head(&now)]);
}

#[test]
fn sup_8_invalid_edit_is_reported_until_fixed_without_effect() {
    let (home, daemon) = watched("one");
    assert_eq!(home.ask("main", "echo x"), "one x");
    let pid = pid_of(&home, "main");
    save_by_rename(&home, &lab("two").replace("provider:", "provier:"));
    daemon.log().wait_for("it is reported", |line| {
        line["level"] == "error"
            && line["error"]
                .as_str()
                .is_some_and(|e| e.contains("provier"))
    });
    home.gdn(&["status"])
        .exits(16)
        .prints(&["problem"])
        .tells(&["provier"]);
    home.gdn(&["ps"]).exits(16).tells(&["provier", "hint:"]);
    assert_eq!(home.ask("main", "echo y"), "one y");
    assert_eq!(pid_of(&home, "main"), pid);
    save_by_rename(&home, &lab("one"));
    wait_until("the problem clears", || {
        workspace(&home).get("problem").is_none()
    });
    assert_eq!(pid_of(&home, "main"), pid);
}

#[test]
fn sup_8_added_removed_files_and_replaced_project_are_detected() {
    let (home, daemon) = watched("one");
    let before = tree::snapshot(&home.project(), |_| true);
    let extra = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: extra}\n\
                 spec: {modelConfig: {modelRef: Model/main}}\n";
    let agents = || workspace(&home)["agents"].as_array().unwrap().len();
    home.write("project/resources/more/extra.yaml", extra);
    wait_until("the new agent is there", || agents() == 3);
    fs::remove_dir_all(home.project().join("resources")).unwrap();
    wait_until("the agent is gone", || agents() == 2);

    // A branch switch: many files change at once, and intermediate states may be invalid.
    let aside = home.path().join("aside");
    rename(&home.project(), &aside);
    let has_problem = || workspace_of(&home, &aside).get("problem").is_some();
    wait_until("its end is reported", has_problem);
    fs::create_dir(home.project()).unwrap();
    home.write("project/prompts/helper.md", "Be kind.\n");
    home.write("project/goondan.yaml", &home.filled_in(&lab("two")));
    wait_until("the other branch runs", || {
        workspace(&home).get("problem").is_none()
    });
    assert_eq!(home.ask("main", "echo x"), "two x");
    fs::remove_dir_all(home.project()).unwrap();
    rename(&aside, &home.project());
    let mut answer = String::new();
    wait_until("the first branch runs again", || {
        if workspace(&home).get("problem").is_none() {
            answer = home.ask("main", "echo x");
        }
        answer == "one x"
    });
    // ROOT-2: watching writes nothing.
    assert_eq!(tree::snapshot(&home.project(), |_| true), before);
    drop(daemon.stop());
}

/// The workspace while the project is moved away: `gdn` cannot find it by its directory then.
fn workspace_of(home: &Home, working_directory: &Path) -> Value {
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let mut command = home.command(&gdn, &["--json", "status"]);
    command.current_dir(working_directory);
    let ran = goondan_tests::home::RunningProgram::start(command).wait();
    // Exit code 16 reports a degraded workspace, which the caller must judge.
    assert!([0, 16].contains(&ran.code), "{ran:?}");
    ran.json()["workspaces"][0].clone()
}

#[test]
fn sup_8_watching_is_remembered_and_can_be_taken_back() {
    let (home, daemon) = watched("one");
    drop(daemon.stop());
    let daemon = Daemon::start(&home);
    wait_until("it is watched again", || {
        workspace(&home)["watch"] == "events"
    });
    let seen = daemon.log().lines().len();
    save_by_rename(&home, &lab("two"));
    wait_for_change(&daemon, seen);
    home.gdn(&["run", "--no-watch"]).exits(0);
    assert_eq!(workspace(&home)["watch"], "off");
    save_by_rename(&home, &lab("three"));
    // Nothing changes before a reload is requested.
    assert_eq!(home.ask("main", "echo x"), "two x");
    let reloaded = home.gdn(&["reload"]).exits(0);
    reloaded.prints(&["Agent/helper changed, Agent/worker changed", "1 process"]);
    assert_eq!(home.ask("main", "echo x"), "three x");
}

#[test]
fn sup_8_reload_and_sighup_report_changes_or_the_refusal() {
    let home = Home::new(&lab("one"));
    home.write("project/prompts/helper.md", "Be kind.\n");
    let daemon = Daemon::serving(&home);
    home.gdn(&["reload"]).exits(0).prints(&["unchanged"]);
    save_by_rename(&home, &lab("two").replace("provider:", "provier:"));
    let refused = home.gdn(&["reload"]).exits(6);
    let refused = refused.tells(&["provier", "goondan.yaml", "reload`"]);
    refused.prints(&["not reloaded"]);
    save_by_rename(&home, &lab("two"));
    let seen = daemon.log().lines().len();
    processes::signal(daemon.pid(), Signal::SIGHUP);
    wait_for_change(&daemon, seen);
    assert_eq!(home.ask("main", "echo x"), "two x");
    let reloaded = home.gdn_json(&["reload", "--project", "."]);
    assert_eq!(reloaded["workspaces"][0]["changes"], serde_json::json!([]));
}
