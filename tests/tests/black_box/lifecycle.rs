//! A newcomer's session with `gdn`, from an empty directory to the end of the daemon.

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR, GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::log::{check_line, message};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, tree, wait_until};
use serde_json::json;

use crate::conversation::{check, shape, text};

#[test]
fn newcomer_gets_from_an_empty_directory_to_an_answer_and_back() {
    let home = Home::without_project();
    let made = home.gdn(&["init", "my-swarm", "--no-git"]).exits(0);
    assert!(
        home.project().join("my-swarm/goondan.yaml").is_file(),
        "{made:#?}"
    );
    let before = tree::snapshot(&home.project(), |_| true);
    let project = ["--project", "my-swarm"];
    let gdn = |args: &[&str]| home.gdn(&[&project, args].concat());

    gdn(&["validate"]).exits(0);
    let run = gdn(&["run"])
        .exits(0)
        .tells(&["Started the daemon: pid ", "logs"]);
    let run = run
        .prints(&["assistant (entry)"])
        .tells(&["chat", "logs -f"]);
    let pid = gdn(&["status", "--json"]).exits(0).json()["pid"]
        .as_u64()
        .unwrap();
    assert!(run.stderr.contains(&format!("pid {pid}")), "{run:#?}");
    // The second time it only attaches.
    let run = gdn(&["run", "--json"]).exits(0).json();
    assert_eq!(
        (&run["daemon"]["started"], &run["daemon"]["pid"]),
        (&false.into(), &pid.into())
    );

    let sent = gdn(&["send", "run echo hello"]).exits(0);
    assert_eq!(sent.stdout, "Here is what it printed:\nhello\n");
    let sent = sent.tells(&["bash__exec"]);
    assert!(!sent.stderr.contains("error"), "{sent:#?}");
    let mut command = home.command(&bin(GDN), &[&project[..], &["chat"]].concat());
    command.stdin(std::process::Stdio::piped());
    let mut chat = RunningProgram::start(command);
    chat.say("my name is Ada");
    chat.say("/history 1");
    chat.say("who am I");
    chat.wait()
        .exits(0)
        .prints(&["Nice to meet you, Ada.", "You are Ada; you told me so."]);

    gdn(&["status"])
        .exits(0)
        .prints(&["running", &pid.to_string(), "my-swarm"]);
    gdn(&["ps"])
        .exits(0)
        .prints(&["agent", "assistant", "main", "idle"]);
    gdn(&["instance", "list"])
        .exits(0)
        .prints(&["main", "assistant", "idle"]);
    gdn(&["instance", "show"])
        .exits(0)
        .prints(&["assistant", "8", "state"]);
    gdn(&["instance", "history"])
        .exits(0)
        .prints(&["run echo hello", "who am I"]);
    gdn(&["instance", "history", "--limit", "1"])
        .exits(0)
        .prints(&["You are Ada"]);
    gdn(&["logs"])
        .exits(0)
        .prints(&["turn committed and answered", "agent assistant/main"]);
    gdn(&["workspace", "list"]).exits(0).prints(&["my-swarm"]);

    gdn(&["restart"]).exits(0).prints(&["1 process"]);
    assert_eq!(
        gdn(&["send", "who am I"]).exits(0).stdout,
        "You are Ada; you told me so.\n"
    );
    gdn(&["instance", "delete", "main"])
        .exits(2)
        .tells(&["--yes"]);
    gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    gdn(&["instance", "list"])
        .exits(0)
        .prints(&["No conversations"]);
    assert!(
        !gdn(&["send", "who am I"])
            .exits(0)
            .stdout
            .contains("You are Ada")
    );

    gdn(&["stop"]).exits(0);
    gdn(&["send", "hi"]).exits(5).tells(&["not running", "run"]);
    gdn(&["shutdown"])
        .exits(0)
        .prints(&["Stopped the daemon", &pid.to_string()]);
    assert!(!processes::is_alive(u32::try_from(pid).unwrap()));
    gdn(&["status"]).exits(3);
    assert_eq!(home.running(ORCHESTRATOR), []);
    // ROOT-2: the project directory was never written to.
    assert_eq!(tree::snapshot(&home.project(), |_| true), before);
}

#[test]
fn every_documented_json_output_is_printed() {
    let home = Home::new(LAB);
    let _daemon = Daemon::start(&home);
    let forms: [(&[&str], &str); 14] = [
        (&["init", "other", "--no-git"], "gdn.init/v1"),
        (&["validate"], "gdn.validate/v1"),
        (&["run"], "gdn.run/v1"),
        (&["send", "echo hi"], "gdn.send/v1"),
        (&["ps"], "gdn.ps/v1"),
        (&["status"], "gdn.status/v1"),
        (&["instance", "list"], "gdn.instance.list/v1"),
        (&["instance", "show"], "gdn.instance.show/v1"),
        (&["instance", "history"], "gdn.instance.history/v1"),
        (
            &["instance", "delete", "main", "--yes"],
            "gdn.instance.delete/v1",
        ),
        (&["workspace", "list"], "gdn.workspace.list/v1"),
        (&["restart"], "gdn.restart/v1"),
        (&["stop"], "gdn.workspace.close/v1"),
        (&["shutdown"], "gdn.shutdown/v1"),
    ];
    // The last one stops the daemon; the harness sees that it ends well.
    for (args, schema) in forms {
        let ran = home.gdn(&[&["--json"], args].concat()).exits(0);
        assert_eq!(ran.json()["schema"], schema, "{args:?}");
        assert_eq!(ran.stdout.lines().count(), 1, "{args:?}");
    }
}

#[test]
fn in_the_foreground_the_log_is_on_stdout_and_nowhere_else() {
    let home = Home::new(LAB);
    let command = home.command(&bin(GDN), &["run", "--foreground"]);
    let daemon = Daemon::start_command(&home, command);
    // The project is opened by the same command.
    daemon.webhook("hook");
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let status = home.gdn_json(&["status"]);
    assert_eq!(status["pid"], daemon.pid());
    assert!(status.get("logDir").is_none(), "{status}");
    let pid = daemon.pid();
    processes::signal(pid, Signal::SIGINT);
    let log = daemon.wait();
    assert!(!home.state_root().join("logs").exists());
    let lines = log.lines();
    assert_eq!(message(lines.last().unwrap()), "orchestrator ended");
    assert!(!home.state_root().join("run/orchestrator.sock").exists());
}

#[test]
fn log_4_background_log_is_in_files_that_rotate_and_are_bounded() {
    const MAX_FILE_BYTES: u64 = 16_384;
    const MAX_FILES: usize = 3;
    let home = Home::new(LAB);
    let config = json!({"log": {"maxFileBytes": MAX_FILE_BYTES, "maxFiles": MAX_FILES}});
    home.write("state/config.json", &config.to_string());
    let run = home.gdn_json(&["run"]);
    let logs = home.state_root().join("logs");
    assert_eq!(run["daemon"]["started"], true);
    assert_eq!(run["daemon"]["logDir"], logs.to_str().unwrap());
    let files = || -> Vec<u64> {
        let entries = std::fs::read_dir(&logs).unwrap();
        // A file may be renamed during the check.
        entries
            .filter_map(|entry| Some(entry.unwrap().metadata().ok()?.len()))
            .collect()
    };
    let mut asked = 0;
    wait_until("the first files make way", || {
        home.ask("main", &format!("work {asked}"));
        asked += 1;
        assert!(files().len() <= MAX_FILES);
        files().len() == MAX_FILES && asked > 60
    });
    home.gdn(&["shutdown"]).exits(0);
    assert!(
        files().iter().all(|bytes| *bytes <= MAX_FILE_BYTES),
        "{:?}",
        files()
    );
    // Every line is complete; the newest are included.
    let lines = home.log_files();
    assert_eq!(message(lines.last().unwrap()), "orchestrator ended");
    assert!(lines.len() > 50, "{}", lines.len());
    // The next daemon continues with the same files.
    home.gdn(&["run"]).exits(0);
    home.gdn(&["shutdown"]).exits(0);
    let lines = home.log_files();
    assert!(
        lines
            .iter()
            .filter(|line| message(line) == "orchestrator ended")
            .count()
            >= 2
    );
}

#[test]
fn logs_are_followed_and_narrowed() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let following = home.start_gdn(&["logs", "-f", "--json"]);
    let of_helper = home.start_gdn(&["logs", "-f", "--agent", "helper"]);
    following.wait_for_stdout("connector ready");
    home.ask("main", "echo hi");
    let asked = home.gdn(&["send", "--agent", "helper", "echo hi"]).exits(0);
    assert_eq!(asked.stdout, "hi\n");
    following.wait_for_stdout("helper:main");
    of_helper.wait_for_stdout("turn committed");
    // The streams continue with the next daemon.
    drop(daemon.stop());
    of_helper.wait_for_stderr("waiting for the next one");
    let _daemon = Daemon::start(&home);
    of_helper.wait_for_stderr("A daemon runs again: pid ");
    let asked = home.gdn(&["send", "--agent", "helper", "echo once more"]);
    asked.exits(0);
    for followed in [&following, &of_helper] {
        wait_until("both lives are reported", || {
            followed.stdout().matches("turn committed").count() >= 2
        });
    }
    let followed = following.stdout();
    let (whole, _) = followed.rsplit_once('\n').unwrap();
    for line in whole.lines() {
        check_line(line).unwrap();
    }
    // At the default level, a turn has two lines: its event, and its end.
    for detail in ["turn started", "step.started", "turn.completed"] {
        assert!(!followed.contains(detail), "{followed}");
    }
    let of_helper = of_helper.stdout();
    assert!(
        of_helper.lines().all(|line| line.contains("helper")),
        "{of_helper}"
    );
}

#[test]
fn workspaces_return_with_the_daemon_until_stopped() {
    let home = Home::new(LAB);
    let other = LAB
        .replace("@goondan/lab", "@goondan/other")
        .replace("echo (", "say (");
    home.write("other/goondan.yaml", &home.filled_in(&other));
    let daemon = Daemon::start(&home);
    let in_other = ["--project", home.path().join("other").to_str().unwrap()].map(str::to_owned);
    let other = |args: &[&str]| {
        let project: Vec<&str> = in_other.iter().map(String::as_str).collect();
        home.gdn(&[&project, args].concat())
    };
    home.gdn(&["run"]).exits(0);
    other(&["run"]).exits(0);
    assert_eq!(home.ask("main", "echo lab"), "lab");
    assert_eq!(other(&["send", "say other"]).exits(0).stdout, "other\n");
    assert_eq!(home.running(CONNECTOR).len(), 2);

    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    // Both start without a request.
    wait_until("both connectors run", || home.running(CONNECTOR).len() == 2);
    assert_eq!(home.history("main").len(), 2);
    assert_eq!(other(&["send", "say again"]).exits(0).stdout, "again\n");

    other(&["stop"]).exits(0);
    wait_until("its processes end", || {
        home.running(CONNECTOR).len() == 1 && home.running(AGENT).is_empty()
    });
    assert_eq!(home.ask("main", "echo undisturbed"), "undisturbed");
    drop(daemon.stop());
    let _daemon = Daemon::start(&home);
    let listed = home.gdn_json(&["workspace", "list"]);
    assert_eq!(
        listed["workspaces"].as_array().unwrap().len(),
        1,
        "{listed}"
    );
    other(&["send", "say hi"]).exits(5);
    // Its conversations are kept.
    other(&["run"]).exits(0);
    let history = other(&["instance", "history", "--json"]).exits(0).json();
    assert_eq!(history["total"], 4);
}

#[test]
fn stop_lets_the_turn_in_progress_finish() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.gdn(&["send", "--no-wait", "hold x"]).exits(0);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let stopping = home.start_gdn(&["stop"]);
    wait_until("the agent is notified", || {
        home.ps_agent("main")
            .is_some_and(|process| process["state"] == "draining")
    });
    home.write("notes/x.go", "");
    stopping.wait().exits(0);
    assert!(home.running(AGENT).is_empty() && home.running(CONNECTOR).is_empty());
    home.gdn(&["run"]).exits(0);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(text(messages.last().unwrap()), "done x");
    assert_eq!(home.note("x.runs"), "run\n");
}

#[test]
fn sup_8_restart_applies_new_configuration_after_current_turn() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--instance", "busy", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    assert_eq!(home.ask("idle", "echo old"), "old");
    let edited = home
        .filled_in(LAB)
        .replace(r#"say: "${text}""#, r#"say: "new ${text}""#);
    home.write(
        "project/goondan.yaml",
        &edited.replace("done ${name}", "really done ${name}"),
    );
    // Nothing changes before a restart is requested.
    assert_eq!(home.ask("idle", "echo one"), "one");
    assert_eq!(home.gdn_json(&["restart"])["processes"], 3);
    assert_eq!(home.ask("idle", "echo two"), "new two");
    home.write("notes/x.go", "");
    // The turn in progress finished with its old configuration.
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    assert_eq!(home.ask("busy", "echo three"), "new three");
    assert_eq!(shape(&home.history("busy")), "uataua");
}

#[test]
fn sup_8_invalid_edit_is_reported_and_running_config_stays() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo before"), "before");
    let agent = home.ps_agent("main").unwrap()["pid"].clone();
    home.write(
        "project/goondan.yaml",
        &home.filled_in(LAB).replace("provider:", "provier:"),
    );
    let refused = home.gdn(&["restart"]).exits(6);
    let refused = refused.tells(&["provier", "goondan.yaml:14:3", "gdn validate"]);
    assert_eq!(refused.stdout, "");
    home.gdn(&["run", "--json"]).exits(6);
    home.gdn(&["validate"]).exits(6).tells(&["provier"]);

    assert_eq!(home.ask("main", "echo after"), "after");
    assert_eq!(home.ps_agent("main").unwrap()["pid"], agent);
    let status = home
        .gdn(&["status"])
        .exits(16)
        .prints(&["problem"])
        .tells(&["provier"]);
    assert!(status.stderr.contains("gdn validate"), "{status:#?}");
    // A reload by signal does not crash it either.
    let seen = daemon.log().lines().len();
    processes::signal(daemon.pid(), Signal::SIGHUP);
    daemon
        .log()
        .wait_for_after(seen, "the reload fails", |line| {
            line["level"] == "error" || line["level"] == "warn"
        });
    assert_eq!(home.ask("main", "echo still"), "still");

    home.write("project/goondan.yaml", &home.filled_in(LAB));
    home.gdn(&["restart"]).exits(0);
    assert_eq!(home.ask("main", "echo mended"), "mended");
    assert!(
        home.gdn_json(&["status"])["workspaces"][0]
            .get("problem")
            .is_none()
    );
}

#[test]
fn restart_fresh_deletes_conversations_and_asks_first() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    for key in ["a", "b"] {
        home.ask(key, "echo hi");
    }
    home.gdn(&["send", "--agent", "helper", "echo hi"]).exits(0);
    home.gdn(&["restart", "--fresh"]).exits(2).tells(&["--yes"]);
    let restarted = home.gdn_json(&["restart", "--instance", "a", "--fresh", "--yes"]);
    assert_eq!(restarted["removed"], json!(["a"]));
    home.gdn(&["instance", "show", "a"]).exits(5);
    assert_eq!(home.history("b").len(), 2);
    let restarted = home.gdn_json(&["restart", "--agent", "worker", "--fresh", "--yes"]);
    assert_eq!(restarted["removed"], json!(["b"]));
    assert_eq!(home.history("helper:main").len(), 2);
}

#[test]
fn exit_codes_distinguish_reasons_of_failed_questions() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let failed = home
        .gdn(&["send", "fail"])
        .exits(7)
        .tells(&["The model is overloaded."]);
    assert_eq!(failed.stdout, "");
    let failed = home.gdn(&["send", "fail", "--json"]).exits(7);
    assert!(failed.stderr.contains("turnFailed"), "{failed:#?}");
    home.gdn(&["send", "hi", "--agent", "nobody"])
        .exits(5)
        .tells(&["nobody"]);
    home.gdn(&["send"]).exits(2);
    home.gdn(&["instance", "show", "nothing"]).exits(5);
    let slow = home
        .gdn(&["send", "--timeout", "1", "hold x"])
        .exits(11)
        .tells(&["--event-id"]);
    assert_eq!(slow.stdout, "");
    let waiting = home.start_gdn(&["send", "echo later"]);
    wait_until("it waits", || {
        home.ps_agent("main")
            .is_some_and(|process| process["pendingEvents"] == 2)
    });
    processes::signal(waiting.pid(), Signal::SIGINT);
    waiting.wait().exits(130).tells(&["--event-id"]);
    // Accepted events continue after their clients have left.
    home.write("notes/x.go", "");
    wait_until("both are answered", || home.history("main").len() == 8);
    // A failed turn is recorded, and the conversation continues.
    let messages = home.history("main");
    assert_eq!(text(messages.last().unwrap()), "later");
    let lost = home.start_gdn(&["send", "hold y"]);
    wait_until("the tool runs", || home.note("y.runs") == "run\n");
    drop(daemon.kill());
    lost.wait().exits(9).tells(&["--event-id"]);
}
