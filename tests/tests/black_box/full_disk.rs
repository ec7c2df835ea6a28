//! A disk that is really full (`MSG-10`, `MSG-13`): a small one, in a mount namespace of the test's own.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};

use crate::tasks;

/// Set for the process that runs on the small disk.
const ON_SMALL_DISK: &str = "GOONDAN_TEST_ON_SMALL_DISK";

const SMALL_DISK_BYTES: u64 = 16 * 1024 * 1024;

/// Larger than the unused rest of any file's last block.
const LARGE_INPUT_BYTES: usize = 64 * 1024;

/// Larger than the arguments of a program may be.
const INPUT_OF_STDIN_BYTES: usize = 400_000;

/// More such inputs than a daemon can store whose files are limited to 2,000 blocks of any size that
/// shells use.
const INPUTS_MAX: usize = 10;

/// Runs the test `name` again, with its temporary directory on a separate disk. Returns false if
/// the system does not allow mounts.
fn on_small_disk(name: &str) -> bool {
    let mut unshare = Command::new("unshare");
    let may = unshare.args(["--user", "--map-root-user", "--mount"]);
    if !may
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("not tried: this system does not let its users mount a disk of their own");
        return false;
    }
    let place = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={SMALL_DISK_BYTES} small \"$0\" && cd / && TMPDIR=\"$0\" exec \"$@\""
    );
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-euc",
            &script,
        ])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ON_SMALL_DISK, "1")
        .status();
    assert!(status.unwrap().success(), "it failed on the small disk");
    true
}

/// Fills the disk of `dir` to the last byte.
#[expect(
    clippy::disallowed_methods,
    reason = "a test file is not state of goondan"
)]
fn fill(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("filler");
    let mut file = File::create(&path).unwrap();
    for size in [64 * 1024, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    path
}

#[test]
fn msg_10_full_disk_acknowledges_nothing_and_recovers_with_room() {
    if std::env::var_os(ON_SMALL_DISK).is_none() {
        on_small_disk("full_disk::msg_10_full_disk_acknowledges_nothing_and_recovers_with_room");
        return;
    }
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo one"), "one");
    let filler = fill(home.path());

    let large = format!("echo {}", "y".repeat(LARGE_INPUT_BYTES));
    let refused = home.gdn(&["send", "--event-id", "two", &large]);
    let told = ["No space left on device", "the event was not accepted"];
    refused.exits(8).tells(&told);
    daemon.log().wait_for("the failure is reported", |line| {
        line["level"] == "error" && line.to_string().contains("No space left on device")
    });
    // It can still be inspected.
    assert_eq!(home.gdn_json(&["status"])["pid"], daemon.pid());

    std::fs::remove_file(filler).unwrap();
    let sent = || home.gdn(&["send", "--event-id", "two", &large]);
    wait_until("there is room", || sent().code == 0);
    sent().exits(0);
    assert_eq!(home.ask("main", "echo three"), "three");
    assert_eq!(
        home.history("main").len(),
        6,
        "nothing is lost, nothing is there twice"
    );
    let starts = daemon.log().saying("orchestrator started");
    assert_eq!(starts.len(), 1, "{starts:#?}");
    home.gdn(&["verify"]).exits(0);
}

#[test]
fn msg_10_a_limit_of_file_sizes_refuses_events_and_the_daemon_lives() {
    let home = Home::new(
        "
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^long$', step: 1}
        call: [{tool: bash__exec, args: {command: yes | head -c 3000000}}]
      - when: {user: '^long$'}
        say: '${result}'
      - say: hello
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec: {modelConfig: {modelRef: Model/main}, tools: [{kind: Tool, name: bash, package: '@goondan/base'}]}
",
    );
    let program = bin(ORCHESTRATOR);
    let limited = "ulimit -f 2000 && exec \"$0\"";
    let arguments = ["-c", limited, program.to_str().unwrap()];
    let command = home.command(Path::new("/bin/sh"), &arguments);
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    // The process of an agent lives as well.
    let long = home.ask("long", "long");
    let reason = "the full output could not be stored: File too large";
    assert!(long.contains(reason), "{long}");
    home.write("input.txt", &"x".repeat(INPUT_OF_STDIN_BYTES));
    let send = || {
        let mut command = home.command(&bin(GDN), &["send", "-"]);
        command.stdin(File::open(home.path().join("input.txt")).unwrap());
        RunningProgram::start(command).wait()
    };
    let refused = (0..INPUTS_MAX).map(|_| send()).find(|ran| ran.code != 0);
    refused.unwrap().tells(&["File too large"]);
    assert_eq!(home.gdn_json(&["status"])["pid"], daemon.pid());
    let starts = daemon.log().saying("orchestrator started");
    assert_eq!(starts.len(), 1, "{starts:#?}");
}

#[test]
fn task_1_a_full_disk_is_no_damage_of_a_task() {
    if std::env::var_os(ON_SMALL_DISK).is_none() {
        on_small_disk("full_disk::task_1_a_full_disk_is_no_damage_of_a_task");
        return;
    }
    let home = tasks::example();
    let _daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    tasks::wait_for(&home, "waiting_question");
    let filler = fill(home.path());
    // There may be space in its history for the answer; then it is accepted, even if other writes
    // fail.
    let answered = home.gdn(&["task", "answer", "shop", "engineers"]);
    assert!([0, 8].contains(&answered.code), "{answered:?}");
    std::fs::remove_file(filler).unwrap();
    if answered.code != 0 {
        wait_until("there is room", || {
            home.gdn(&["task", "answer", "shop", "engineers"]).code == 0
        });
    }
    tasks::wait_for(&home, "waiting_review");
    home.gdn(&["verify"]).exits(0);
}
