//! A daemon that starts with a broken project runs the last good configuration.

use goondan_tests::home::AGENT;
use goondan_tests::log::message;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

fn workspace(home: &Home) -> Value {
    home.gdn_json(&["status"])["workspaces"][0].clone()
}

fn kept(home: &Home) -> Value {
    let path = home.workspace_dir().join("configuration.json");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn wait_until_kept(home: &Home) {
    let digest = workspace(home)["configDigest"].clone();
    wait_until("the configuration is kept", || {
        kept(home)["digest"] == digest
    });
}

#[test]
fn sup_8_daemon_started_on_a_broken_file_runs_the_last_good_one() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo one"), "one");
    let digest = workspace(&home)["configDigest"].clone();
    wait_until_kept(&home);
    drop(daemon.kill());

    for broken in [
        "kind: [",
        "kind: Nonsense\n",
        &home.filled_in(LAB).replace("provider:", "provier:"),
    ] {
        home.write("project/goondan.yaml", broken);
        let daemon = Daemon::start(&home);
        daemon.log().wait_for("it is reported", |line| {
            message(line) == "running last known good configuration" && line["level"] == "error"
        });
        let status = workspace(&home);
        assert_eq!(
            (&status["lastKnownGood"], &status["configDigest"]),
            (&true.into(), &digest)
        );
        home.gdn(&["status"])
            .exits(16)
            .prints(&["last known good"])
            .tells(&[
                "goondan.yaml",
                "The last known good configuration runs instead: ",
                ", of 20",
                "to stop it instead: `gdn run --strict`",
            ]);
        home.gdn(&["ps"]).exits(16).tells(&["last known good"]);
        assert_eq!(home.ask("main", "echo again"), "again");
        // It remains the last known good one, however often the daemon starts.
        assert_eq!(kept(&home)["digest"], digest);
        drop(daemon.stop());
    }

    home.write("project/goondan.yaml", &home.filled_in(LAB));
    let daemon = Daemon::start(&home);
    let status = workspace(&home);
    assert!(status.get("lastKnownGood").is_none() && status.get("problem").is_none());
    drop(daemon.stop());
}

#[test]
fn sup_8_run_and_reload_report_errors_and_the_last_good_config() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let digest = workspace(&home)["configDigest"].clone();
    wait_until_kept(&home);
    let since = kept(&home)["since"].clone();
    // The daemon is running it, so no fallback is needed.
    home.write(
        "project/goondan.yaml",
        &home.filled_in(LAB).replace("provider:", "provier:"),
    );
    let head: String = digest.as_str().unwrap().chars().take(8).collect();
    for command in ["run", "reload"] {
        home.gdn(&[command]).exits(6).tells(&[
            "unknown field `provier`",
            "goondan.yaml:",
            &format!("The previous configuration continues to run: {head}, since 20"),
        ]);
    }
    drop(daemon.stop());

    let daemon = Daemon::start(&home);
    for command in ["run", "reload"] {
        let output = home.gdn(&[command]).exits(6).tells(&[
            "unknown field `provier`",
            "goondan.yaml:",
            &format!("The last known good configuration runs instead: {head}, of 20"),
            "to stop it instead: `gdn run --strict`",
        ]);
        let (wrong, runs) = (
            output.stderr.find("provier"),
            output.stderr.find("last known good"),
        );
        assert!(wrong < runs, "{}", output.stderr);
    }
    home.gdn(&["run"])
        .exits(6)
        .prints(&[&format!("last known good, {head}"), "Agents"]);
    let as_json = home.gdn(&["run", "--json"]).exits(6);
    let ran: Value = serde_json::from_str(&as_json.stdout).unwrap();
    let workspace = &ran["workspace"];
    assert_eq!(
        (
            &workspace["lastKnownGood"],
            &workspace["configDigest"],
            &workspace["configSince"]
        ),
        (&true.into(), &digest, &since)
    );
    let error: Value = serde_json::from_str(&as_json.stderr).unwrap();
    assert_eq!(error["code"], "invalidConfiguration");
    let as_json = home.gdn(&["reload", "--json"]).exits(6);
    let reloaded: Value = serde_json::from_str(&as_json.stdout).unwrap();
    let reloaded = &reloaded["workspaces"][0];
    assert_eq!(
        (
            &reloaded["lastKnownGood"],
            &reloaded["configDigest"],
            &reloaded["configSince"]
        ),
        (&true.into(), &digest, &since)
    );
    assert_eq!(home.ask("main", "echo on"), "on");

    // The command in the hint works, and its effect persists.
    home.gdn(&["run", "--strict"]).exits(6).tells(&[
        "unknown field `provier`",
        &format!("The last known good configuration runs instead: {head}, of 20"),
        "It was stopped",
    ]);
    assert!(home.running(AGENT).is_empty());
    drop(daemon.stop());
    let daemon = Daemon::start(&home);
    let list = home.gdn_json(&["workspace", "list"]);
    assert_eq!(list["workspaces"], serde_json::json!([]));
    drop(daemon.stop());
    let strict = home.gdn(&["run", "--strict"]).exits(6);
    assert!(!strict.stderr.contains("last known good"), "{strict:#?}");
    strict.tells(&["unknown field `provier`"]);
    home.write("project/goondan.yaml", &home.filled_in(LAB));
    home.gdn(&["run", "--strict"]).exits(0);
    assert_eq!(home.ask("main", "echo more"), "more");
    assert_eq!(home.history("main").len(), 4, "the conversation goes on");
    home.gdn(&["shutdown"]).exits(0);
}

#[test]
fn sup_8_a_strict_daemon_runs_no_last_known_good_configuration() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "hold x"]).exits(0);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    wait_until_kept(&home);
    drop(daemon.kill());
    home.write("project/goondan.yaml", "kind: Nonsense\n");
    let program = goondan_tests::binaries::bin(goondan_tests::home::ORCHESTRATOR);
    let daemon = Daemon::start_command(&home, home.command(&program, &["--strict"]));
    home.gdn(&["status"])
        .exits(16)
        .prints(&["problem"])
        .tells(&["Nonsense"]);
    assert!(home.running(AGENT).is_empty());
    // Once it is fixed, the work in progress continues.
    home.write("project/goondan.yaml", &home.filled_in(LAB));
    home.gdn(&["run"]).exits(0);
    home.write("notes/x.go", "");
    wait_until("the turn finishes", || home.history("main").len() == 6);
    drop(daemon.stop());
}

const WITH_TOKEN: &str = "    path: /hook\n  secrets:\n    hmac: {valueFrom: {env: TOKEN}}\n";

#[test]
fn sec_1_environment_files_are_remembered_without_their_values() {
    let home = Home::new(&LAB.replace("    path: /hook\n", WITH_TOKEN));
    let daemon = Daemon::start(&home);
    home.gdn(&["run"]).exits(6).tells(&["`TOKEN` is not set"]);
    home.write("prod.env", "TOKEN=hunter2-and-more\n");
    home.gdn(&["validate", "--env-file", "../prod.env"])
        .exits(0);
    home.gdn(&["config", "show", "--env-file", "../prod.env"])
        .exits(0)
        .prints(&["prod.env:1"]);
    home.gdn(&["run", "--env-file", "../prod.env"])
        .exits(0)
        .prints(&["prod.env"]);
    wait_until_kept(&home);
    let dir = home.workspace_dir();
    for name in ["configuration.json", "workspace.json"] {
        let text = std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    drop(daemon.stop());

    // Also remembered for the last known good configuration.
    home.write("project/goondan.yaml", "kind: [");
    let daemon = Daemon::start(&home);
    assert_eq!(workspace(&home)["lastKnownGood"], true);
    assert_eq!(home.ask("main", "echo on"), "on");
    drop(daemon.stop());

    // A missing value is reported, and nothing runs.
    std::fs::remove_file(home.path().join("prod.env")).unwrap();
    let _daemon = Daemon::start(&home);
    home.gdn(&["status"])
        .exits(16)
        .prints(&["problem"])
        .tells(&["cannot run either", "`TOKEN` is not set"]);
}

#[test]
fn sec_1_a_configuration_with_a_secret_written_out_is_not_kept() {
    let written = WITH_TOKEN.replace("valueFrom: {env: TOKEN}", "value: hunter2-and-more");
    let home = Home::new(&LAB.replace("    path: /hook\n", &written));
    let daemon = Daemon::serving(&home);
    daemon.log().wait_for("it is reported", |line| {
        message(line) == "configuration not stored as last known good"
    });
    drop(daemon.stop());
    assert_eq!(kept(&home), Value::Null);
}

#[test]
fn sec_2_configuration_value_is_in_no_log_and_no_runtime_event() {
    let home = Home::new(&LAB.replace("    path: /hook\n", WITH_TOKEN));
    home.write("project/.env", "TOKEN=hunter2-and-more\n");
    let daemon = Daemon::serving(&home);
    // An agent receives it in a message, and its tool prints it: the events are recorded and
    // logged.
    home.ask("main", "echo it is hunter2-and-more");
    home.ask("main", "work hunter2-and-more");
    let turns = home
        .workspace_dir()
        .join("instances/main/messages/runtime-events.jsonl");
    wait_until("the turns are recorded", || {
        let events = std::fs::read_to_string(&turns).unwrap_or_default();
        events.matches("turn.completed").count() == 2
    });
    let events = std::fs::read_to_string(&turns).unwrap();
    assert!(
        events.contains("[masked]") && !events.contains("hunter2"),
        "{events}"
    );
    // The message itself is unchanged.
    assert!(
        home.history("main")[0]
            .to_string()
            .contains("hunter2-and-more")
    );
    let log = daemon.stop();
    for line in log.lines() {
        assert!(!line.to_string().contains("hunter2"), "{line}");
    }
}
