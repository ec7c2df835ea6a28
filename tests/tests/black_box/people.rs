//! Output for a person during an operation, and about earlier failures.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

#[test]
fn obs_2_logs_are_read_over_restarts_and_while_no_daemon_runs() {
    let home = Home::new(LAB);
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("first-life", "echo one"), "one");
    home.gdn(&["shutdown"]).exits(0);

    // No daemon: the entries are in the files.
    let ran = home.gdn(&["logs", "-n", "1000"]).exits(0);
    let ran = ran.prints(&[
        "orchestrator worker/first-life",
        "turn committed and answered",
    ]);
    ran.tells(&["No daemon runs; reading the files in "]);
    let following = home.start_gdn(&["logs", "-f", "-n", "0"]);
    following.wait_for_stderr("No daemon runs");
    home.gdn(&["run"]).exits(0);
    following.wait_for_stderr("A daemon runs again: pid ");
    assert_eq!(home.ask("second-life", "echo two"), "two");
    following.wait_for_stdout("second-life  turn committed and answered");

    // With a daemon: earlier log entries are included.
    let ran = home.gdn(&["logs", "-n", "1000", "--json"]).exits(0);
    let ran = ran.prints(&["first-life", "second-life"]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let mut unique = lines.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(lines.len(), unique.len(), "a line is there twice");

    // Across the end of one daemon and the start of the next.
    home.gdn(&["shutdown"]).exits(0);
    following.wait_for_stderr("The daemon has ended; waiting for the next one.");
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("third-life", "echo three"), "three");
    following.wait_for_stdout("third-life  turn committed and answered");
}

#[test]
fn stop_shows_pending_turns_and_watch_shows_watched_files() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.gdn(&["run", "--watch"])
        .exits(0)
        .prints(&["Watch        on\n", "goondan.yaml"]);
    home.gdn(&["send", "--no-wait", "hold x"]).exits(0);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let stopping = home.start_gdn(&["stop"]);
    stopping.wait_for_stderr("agent worker/main (finishes its turn)");
    home.write("notes/x.go", "");
    stopping.wait().exits(0).prints(&["Stopped workspace"]);
}

#[test]
fn a_failed_command_and_a_failed_turn_are_shown_as_failures() {
    let home = Home::new(&LAB.replace("sleep 0.05; echo ${number}", "exit ${number}"));
    let _daemon = Daemon::serving(&home);
    let sent = home.gdn(&["send", "work 3"]).exits(0);
    let sent = sent.tells(&["✗ bash__exec"]);
    assert!(!sent.stderr.contains('✓'), "{sent:#?}");
    let sent = home.gdn(&["send", "work 0"]).exits(0);
    sent.tells(&["✓ bash__exec"]);
    home.gdn(&["send", "fail"]).exits(7);
    home.gdn(&["instance", "history"]).exits(0).prints(&[
        "✗ bash__exec",
        "✓ bash__exec",
        "turn failed",
        "overloaded",
    ]);
    let history = home.gdn_json(&["instance", "history"]);
    assert_eq!(history["unansweredTurns"][0]["outcome"], "failed");
}

#[test]
fn reload_is_of_one_project_unless_all_are_meant() {
    let home = Home::new(LAB);
    home.write(
        "other/goondan.yaml",
        &home.filled_in(&LAB.replace("@goondan/lab", "@goondan/other")),
    );
    let _daemon = Daemon::serving(&home);
    let other = home.path().join("other");
    home.gdn(&["run", other.to_str().unwrap()]).exits(0);
    let count = |args: &[&str]| {
        let reloaded = home.gdn_json(args);
        reloaded["workspaces"].as_array().unwrap().len()
    };
    assert_eq!(count(&["reload"]), 1);
    assert_eq!(count(&["reload", "--all"]), 2);
}

#[test]
fn log_2_lines_for_the_journal_have_priorities_and_no_others_do() {
    let home = Home::new(LAB);
    let path = home.path().join("journal");
    let mut options = std::fs::OpenOptions::new();
    let journal = options.append(true).create(true).open(&path).unwrap();
    let id = journal.metadata().unwrap();
    let start = |stream: &str| {
        let mut command = home.command(&bin(ORCHESTRATOR), &[]);
        command.env("JOURNAL_STREAM", stream);
        command.stdout(journal.try_clone().unwrap());
        command.spawn().unwrap()
    };
    let lines = || -> Vec<String> {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let mut daemon = start(&format!("{}:{}", id.dev(), id.ino()));
    wait_until("it logs", || !lines().is_empty());
    for line in lines() {
        let (priority, line) = line.split_at(3);
        let line: Value = serde_json::from_str(line).unwrap();
        let expected = match line["level"].as_str().unwrap() {
            "warn" => "<4>",
            "error" => "<3>",
            _ => "<6>",
        };
        assert_eq!(priority, expected, "{line}");
    }
    // A second daemon: it fails with a message, which the service manager also receives.
    let manager = UnixDatagram::bind(home.path().join("notify")).unwrap();
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let second = command.output().unwrap();
    assert_eq!(second.status.code(), Some(3));
    let words = String::from_utf8(second.stderr).unwrap();
    assert!(
        words.contains(&daemon.id().to_string()) && !words.contains('<'),
        "{words}"
    );
    let mut told = vec![0; 4096];
    let length = manager.recv(&mut told).unwrap();
    let told = String::from_utf8_lossy(&told[..length]).into_owned();
    assert!(
        told.starts_with("STATUS=error: ") && told.contains("gdn daemon shutdown"),
        "{told}"
    );
    home.gdn(&["shutdown"]).exits(0);
    daemon.wait().unwrap();

    // A file is not the journal, regardless of the environment.
    let before = lines().len();
    let mut daemon = start("1:1");
    wait_until("it logs", || lines().len() > before);
    assert!(lines()[before].starts_with('{'));
    home.gdn(&["shutdown"]).exits(0);
    daemon.wait().unwrap();
}

/// Lines that `gdn logs` selects from all lines with these options.
fn chosen(home: &Home, options: &[&str]) -> Vec<Value> {
    let ran = home.gdn(&[&["logs", "-n", "100000", "--json"], options].concat());
    let ran = ran.exits(0);
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn all_say(lines: &[Value], field: &str, value: &str) {
    assert!(!lines.is_empty(), "{field} {value}");
    for line in lines {
        assert_eq!(line[field], value, "{line}");
    }
}

fn logs_are_chosen(home: &Home) {
    let ask = |key: &str, id: &str| {
        let sent = home.gdn_json(&["send", "--instance", key, "--event-id", id, "echo hi"]);
        sent["traceId"].as_str().unwrap().to_owned()
    };
    let first_trace = ask("ann", "e-1");
    ask("bob", "e-2");
    home.gdn(&["send", "--instance", "ann", "fail"]).exits(7);

    all_say(&chosen(home, &["--instance", "ann"]), "instanceKey", "ann");
    all_say(&chosen(home, &["--event", "e-1"]), "eventId", "e-1");
    all_say(
        &chosen(home, &["--trace", &first_trace]),
        "traceId",
        &first_trace,
    );
    all_say(
        &chosen(home, &["--all", "--process", "orchestrator"]),
        "process",
        "orchestrator",
    );
    let both = chosen(home, &["--instance", "bob", "--event", "e-2"]);
    all_say(&both, "instanceKey", "bob");
    assert_eq!(
        chosen(home, &["--instance", "ann", "--event", "e-2"]),
        [Value::Null; 0]
    );

    let level = |line: &Value| line["level"].as_str().unwrap().to_owned();
    let warnings = chosen(home, &["--level", "warn"]);
    assert!(warnings.iter().all(|line| level(line) != "info"));
    let infos = chosen(home, &["--level", "info"]);
    assert!(infos.iter().any(|line| level(line) == "info"));
    assert!(warnings.len() < infos.len());

    let at = |line: &Value| line["timestamp"].as_str().unwrap().to_owned();
    let moment = at(&both[0]);
    let since = chosen(home, &["--since", &moment]);
    assert!(since.iter().all(|line| at(line) >= moment) && since.contains(&both[0]));
    let until = chosen(home, &["--until", &moment]);
    assert!(until.iter().all(|line| at(line) < moment) && !until.is_empty());
    // With a time range, all lines are shown, not only the latest.
    let all = home.gdn(&["logs", "--json", "--since", "1h"]).exits(0);
    assert!(all.stdout.lines().count() >= since.len() + until.len());
    home.gdn(&["logs", "-f", "--until", "1h"]).exits(2);
    home.gdn(&["logs", "--since", "soon"])
        .exits(2)
        .tells(&["2026-01-31T12:00:00Z"]);
}

#[test]
fn obs_2_log_file_filters_by_time_level_process_and_trace() {
    let home = Home::new(LAB);
    home.gdn(&["run"]).exits(0);
    logs_are_chosen(&home);
    let following = home.start_gdn(&[
        "logs",
        "-f",
        "-n",
        "0",
        "--instance",
        "ann",
        "--level",
        "info",
    ]);
    wait_until("it follows", || {
        assert_eq!(home.ask("bob", "echo no"), "no");
        assert_eq!(home.ask("ann", "echo yes"), "yes");
        following.stdout().contains("turn committed and answered")
    });
    assert!(!following.stdout().contains("worker/bob"));
    home.gdn(&["shutdown"]).exits(0);
    all_say(&chosen(&home, &["--instance", "bob"]), "instanceKey", "bob");
}

#[test]
fn obs_2_daemon_log_filters_by_time_level_process_and_trace() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    logs_are_chosen(&home);
    let following = home.start_gdn(&["logs", "-f", "-n", "0", "--instance", "ann"]);
    wait_until("it follows", || {
        assert_eq!(home.ask("bob", "echo no"), "no");
        assert_eq!(home.ask("ann", "echo yes"), "yes");
        following.stdout().contains("turn committed and answered")
    });
    assert!(!following.stdout().contains("worker/bob"));
}

/// Every table on a person's narrow terminal: no line is longer than it is wide.
#[test]
fn every_table_fits_a_narrow_terminal() {
    let home = Home::new(LAB);
    let project = home.project();
    let long = "a-secret-with-a-rather-long-name-that-says-much";
    let mut set = home.command(
        &bin(GDN),
        &[
            "secret",
            "set",
            long,
            "the-key-of-the-service",
            "--for",
            project.to_str().unwrap(),
        ],
    );
    set.stdin(std::process::Stdio::piped());
    let mut setting = RunningProgram::start(set);
    setting.say("value");
    setting.wait().exits(0);
    home.gdn(&["run"]).exits(0);
    let key = "k".repeat(200);
    assert_eq!(home.ask(&key, "echo hi"), "hi");
    home.gdn(&["send", "--instance", &key, "work 1"]).exits(0);
    let mut too_wide: Vec<String> = Vec::new();
    for columns in [60, 80] {
        for command in [
            &["secret", "list"][..],
            &["workspace", "list"],
            &["instance", "list"],
            &["instance", "history", &key, "--turns"],
            &["event", "list"],
            &["status"],
            &["ps"],
            &["audit"],
            &["audit", "--all"],
            &["usage"],
            &["trace"],
            &["config", "show"],
            &["validate"],
        ] {
            // Sentences next to a table, on stderr, are wrapped by the terminal itself.
            let quietly = "exec \"$0\" \"$@\" 2>/dev/null";
            let program = bin(GDN);
            let words = [&["-c", quietly, program.to_str().unwrap()], command].concat();
            let mut on_terminal = home.command(Path::new("/bin/sh"), &words);
            on_terminal.env("NO_COLOR", "1").env("TERM", "dumb");
            let (code, shown) = Terminal::start(on_terminal, columns).ends();
            assert_eq!(code, Some(0), "{command:?}: {shown}");
            // The heading of a trace is also a sentence.
            let rows = shown.lines().filter(|line| !line.starts_with("Trace "));
            let wide = rows.filter(|line| line.chars().count() > usize::from(columns));
            too_wide.extend(wide.map(|line| format!("{command:?} at {columns}: {line}")));
        }
    }
    assert!(too_wide.is_empty(), "{too_wide:#?}");
    home.gdn(&["shutdown"]).exits(0);
}
