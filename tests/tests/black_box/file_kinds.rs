//! An agent or a person replaces a path with another kind of file, or with another directory at the
//! moment in which the daemon writes.

#![expect(
    clippy::disallowed_methods,
    reason = "files that an agent writes need not be durable"
)]

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, wait_until};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::proposals::{home as project_home, worked};
use crate::tasks::{area, example, new_shop, new_task, wait_for};

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Replacements of a directory.
type Kind = (&'static str, fn(&Path));

const KINDS: [Kind; 4] = [
    ("a link to a directory", |path| {
        symlink("docs", path).unwrap();
    }),
    ("a link to nothing", |path| symlink("none", path).unwrap()),
    ("a pipe", pipe),
    ("a file", |path| fs::write(path, "file").unwrap()),
];

#[test]
fn ckpt_4_restore_succeeds_if_a_directory_changed_its_kind() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    wait_for(&home, "waiting_question");
    let parts = area(&home).join("parts");
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("one"), "one").unwrap();
    let first = home.gdn_json(&["task", "checkpoint", "shop"]);
    let first = first["checkpointId"].as_str().unwrap();
    for (kind, make) in KINDS {
        fs::remove_dir_all(&parts).unwrap();
        make(&parts);
        home.gdn(&["task", "checkpoint", "shop"]).exits(0);
        let restored = home.gdn_json(&["task", "restore", "shop", first, "--yes"]);
        let one = fs::read_to_string(parts.join("one"));
        assert!(one.is_ok_and(|one| one == "one"), "{kind}: {restored}");
    }
    // A file that is in no checkpoint is not removed, and the error names it.
    fs::remove_dir_all(&parts).unwrap();
    fs::write(&parts, "file").unwrap();
    let made = home.gdn_json(&["task", "checkpoint", "shop"]);
    let made = made["checkpointId"].as_str().unwrap();
    fs::remove_file(&parts).unwrap();
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join(".env"), "KEY=1").unwrap();
    home.gdn(&["task", "restore", "shop", made, "--yes"])
        .exits(10)
        .tells(&["nothing was restored", "`parts/.env` is in the way"]);
    assert!(parts.join(".env").exists());
    // Without a sandbox, an agent can replace the work area itself.
    let (work_area, moved) = (area(&home), home.path().join("moved"));
    fs::rename(&work_area, &moved).unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &work_area).unwrap();
    home.gdn(&["task", "restore", "shop", first, "--yes"])
        .exits(10)
        .tells(&["was replaced by a symbolic link", "move the directory back"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(&work_area).unwrap();
    fs::rename(&moved, &work_area).unwrap();
    home.gdn(&["task", "restore", "shop", first, "--yes"])
        .exits(0);
}

#[test]
fn ckpt_6_rewind_succeeds_if_a_directory_changed_its_kind() {
    let project = Commands::new()
        .run("^make$", "mkdir parts; echo one > parts/one; echo done")
        .run("^pipe$", "rm -r parts; mkfifo parts; echo done")
        .run("^link$", "rm -r parts; ln -s /etc parts; echo done")
        .agent("maker", &[BASH], "{}");
    let home = Home::new(&project.yaml());
    let _daemon = Daemon::serving(&home);
    home.ask("main", "make");
    let made = home.gdn_json(&["instance", "checkpoint"]);
    let made = made["checkpointId"].as_str().unwrap();
    let parts = home.work_dir("main").join("parts");
    for word in ["pipe", "link"] {
        home.ask("main", word);
        assert!(!fs::symlink_metadata(&parts).unwrap().is_dir(), "{word}");
        home.gdn(&["rewind", "--to", made, "--yes"]).exits(0);
        assert_eq!(fs::read_to_string(parts.join("one")).unwrap(), "one\n");
    }
}

#[test]
fn prop_3_blocking_pipe_is_reported_by_check_and_apply() {
    let home = project_home();
    let _daemon = Daemon::serving(&home);
    worked(&home);
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    let blocked = home.project().join("src/new.txt");
    pipe(&blocked);
    for (command, exit) in [("check", 10), ("apply", 10)] {
        let mut arguments = vec!["proposal", command, "r1", "coder"];
        if command == "apply" {
            arguments.push("--yes");
        }
        let output = home.gdn(&arguments).exits(exit);
        let printed = format!("{}{}", output.stdout, output.stderr);
        assert!(
            printed.contains("src/new.txt") && printed.contains("a pipe"),
            "{output:?}"
        );
    }
    assert!(
        fs::symlink_metadata(&blocked)
            .unwrap()
            .file_type()
            .is_fifo()
    );
    fs::remove_file(&blocked).unwrap();
    home.gdn(&["proposal", "check", "r1", "coder"]).exits(0);
    home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(0);
    // The project's directory was replaced: a rollback reports it.
    let src = home.project().join("src");
    fs::rename(&src, home.project().join("moved")).unwrap();
    symlink("moved", &src).unwrap();
    home.gdn(&["proposal", "revert", "r1", "coder", "--yes"])
        .exits(10)
        .tells(&["src/a.txt"]);
    fs::remove_file(&src).unwrap();
    fs::rename(home.project().join("moved"), &src).unwrap();
    home.gdn(&["proposal", "revert", "r1", "coder", "--yes"])
        .exits(0);
}

/// Sets a flag when it is dropped, also by a panic.
struct EndOnDrop<'f>(&'f AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process of the agent replaces the log directory with a link that leads out, while the daemon
/// writes there.
#[test]
fn sec_7_logs_exchanged_for_a_link_are_written_nowhere_else() {
    let home = example();
    home.write_program(
        "project/agent.sh",
        "#!/bin/sh\ncat > /dev/null\ni=0\nwhile [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; done\n\
         touch finished\nsleep 4321\n",
    );
    let _daemon = Daemon::serving(&home);
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    new_shop(&home, &["--start"]);
    let logs = area(&home).join(".logs");
    let link = area(&home).join("link");
    // The log files exist before the program, and its sandbox needs their directory.
    let written = || fs::read_to_string(logs.join("stdout.log")).unwrap_or_default();
    wait_until("the program writes", || written().contains("line 1\n"));
    symlink(&outside, &link).unwrap();
    let (is_over, exchanges) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &logs, AT_FDCWD, &link, flags).unwrap();
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        // A wait in vain ends the exchanges, too; otherwise the scope would wait for them forever.
        let _end = EndOnDrop(&is_over);
        let finished = area(&home).join("finished");
        wait_until("all lines are written", || finished.exists());
    });
    assert!(exchanges.load(Ordering::Relaxed) > 1_000);
    let written: Vec<_> = fs::read_dir(&outside).unwrap().collect();
    assert!(written.is_empty(), "{written:?}");
}

/// A program names a nonexistent directory in its HANDOFF.
#[test]
fn prop_6_program_is_notified_of_an_invalid_handoff_path() {
    let home = example();
    home.write_program(
        "project/agent.sh",
        "#!/bin/sh\ncat > /dev/null\nmkdir work\necho '{}' > proposal.json\n\
         for json in proposal.json work/proposal.json; do\n\
         printf '[HANDOFF]\\nGoal: x\\nSandboxWorkDir: work\\nProposalJson: %s\\n[/HANDOFF]\\n' $json\n\
         done\nsleep 4321\n",
    );
    let _daemon = Daemon::serving(&home);
    new_shop(&home, &["--start"]);
    let history = area(&home).join(".metadata/history.jsonl");
    let text = || fs::read_to_string(&history).unwrap_or_default();
    wait_until("the second one is refused", || {
        text().contains("`ProposalJson` names `work/proposal.json`, which does not exist")
    });
    assert_eq!(
        text().matches("which does not exist").count(),
        1,
        "{}",
        text()
    );
}
