//! Sandboxes and proposals with the real binaries: submitted, reviewed, applied, rolled back.

#![expect(
    clippy::disallowed_methods,
    reason = "files that a worker writes need not be durable"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// A project with a few files next to its configuration.
pub(crate) fn home() -> Home {
    let home = Home::new(LAB);
    for (path, text) in [
        ("src/a.txt", "one two three\n"),
        ("src/b.txt", "b\n"),
        ("src/old.txt", "moves from here\n"),
    ] {
        home.write(&format!("project/{path}"), text);
    }
    home
}

fn read(home: &Home, path: &str) -> Option<String> {
    fs::read_to_string(home.project().join(path)).ok()
}

/// Prepares a sandbox of `src` and has its worker change it.
pub(crate) fn worked(home: &Home) -> PathBuf {
    let prepare = [
        "sandbox", "prepare", "--run", "r1", "--agent", "coder", "src",
    ];
    let prepared = home.gdn_json(&prepare);
    let work = PathBuf::from(prepared["workDir"].as_str().unwrap());
    fs::write(work.join("src/a.txt"), "one 2 three\n").unwrap();
    fs::write(work.join("src/bytes.bin"), [0, 159, 146, 150]).unwrap();
    fs::rename(work.join("src/old.txt"), work.join("src/new.txt")).unwrap();
    let proposal = PathBuf::from(prepared["proposalDir"].as_str().unwrap());
    fs::write(proposal.join("test.log"), "12 tests passed\n").unwrap();
    work
}

#[test]
fn prop_3_a_worker_hands_in_and_a_person_applies_and_takes_back() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    worked(&home);
    home.gdn(&["sandbox", "list"])
        .exits(0)
        .prints(&["r1", "coder", "none"]);
    home.gdn(&["sandbox", "show", "r1", "coder"])
        .exits(0)
        .prints(&["src/a.txt", "goondan.yaml", "it was not selected"]);
    let made = home.gdn_json(&["proposal", "create", "r1", "coder", "--notes", "for Ada"]);
    assert_eq!(made["state"], "open");
    home.gdn(&["proposal", "show", "r1", "coder"])
        .exits(0)
        .prints(&[
            "for Ada",
            "src/old.txt → src/new.txt",
            "-one two three\n+one 2 three\n",
            "── src/old.txt → src/new.txt\n  moved, content unchanged\n",
            "── src/bytes.bin\nnew file mode 100644\n  binary  4 B\n",
            "12 tests passed",
            "goondan.yaml",
        ]);
    let patch = home
        .gdn(&["proposal", "diff", "r1", "coder"])
        .exits(0)
        .stdout;
    assert!(
        patch.starts_with("diff --git a/src/a.txt b/src/a.txt\n"),
        "{patch}"
    );
    home.gdn(&["proposal", "check", "r1", "coder"]).exits(0);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one two three\n");
    // Without a terminal, no confirmation is possible.
    home.gdn(&["proposal", "apply", "r1", "coder"])
        .exits(2)
        .tells(&["--yes"]);
    let applied = home.gdn_json(&["proposal", "apply", "r1", "coder", "--yes"]);
    assert_eq!(applied["files"].as_array().unwrap().len(), 4);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one 2 three\n");
    assert_eq!(read(&home, "src/new.txt").unwrap(), "moves from here\n");
    assert_eq!(read(&home, "src/old.txt"), None);
    home.gdn(&["proposal", "revert", "r1", "coder", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one two three\n");
    assert_eq!(read(&home, "src/old.txt").unwrap(), "moves from here\n");
    assert_eq!(read(&home, "src/new.txt"), None);
    let log = home.workspace_dir().join("sandboxes/r1/events.jsonl");
    let log = fs::read_to_string(log).unwrap();
    for kind in ["created", "reviewed", "applied", "reverted"] {
        assert!(log.contains(&format!("\"proposal_{kind}\"")), "{log}");
    }
    wait_until("the audit log has all of it", || {
        let audit = home.gdn(&["audit"]).stdout;
        ["proposalCreated", "proposalApplied", "proposalReverted"]
            .iter()
            .all(|event| audit.contains(event))
    });
}

#[test]
fn box_4_sandbox_and_proposal_of_real_files_record_their_base() {
    let home = home();
    let head = "0123456789abcdef0123456789abcdef01234567";
    home.write("project/.git/HEAD", &format!("{head}\n"));
    home.write("project/node_modules/x.js", "");
    home.write("outside.txt", "outside");
    std::os::unix::fs::symlink("../../outside.txt", home.project().join("src/out")).unwrap();
    let _daemon = Daemon::serving(&home);
    for (path, problem, hint) in [
        (
            "../outside.txt",
            "are not allowed",
            "relative to the project",
        ),
        ("/etc/passwd", "absolute", "relative to the project"),
        (".git/config", ".git", "never copied"),
        ("node_modules", "excludes it", "--allow node_modules"),
        ("src/out", "src/out", "src/out"),
    ] {
        let prepare = ["sandbox", "prepare", "--run", "r1", "--agent", "coder"];
        let refused = home.gdn(&[&prepare[..], &[path]].concat());
        assert_ne!(refused.code, 0, "{path}");
        refused.tells(&[problem, hint]);
    }
    fs::remove_file(home.project().join("src/out")).unwrap();

    let work = worked(&home);
    let sandbox = work.parent().unwrap();
    let json = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(sandbox.join(path)).unwrap()).unwrap()
    };
    let record = json("sandbox.json");
    assert_eq!(record["base"]["gitHead"], head);
    for file in ["src/a.txt", "src/b.txt", "src/old.txt"] {
        let content = fs::read(sandbox.join("input").join(file)).unwrap();
        assert_eq!(content, fs::read(home.project().join(file)).unwrap());
        let digest = Command::new("sha256sum")
            .arg(home.project().join(file))
            .output()
            .unwrap();
        let digest = String::from_utf8(digest.stdout).unwrap();
        let recorded = record["given"][file]["sha256"].as_str().unwrap();
        assert!(digest.starts_with(recorded), "{file}: {recorded}");
    }

    fs::write(sandbox.join("proposal/summary.md"), "# Better\n").unwrap();
    home.gdn(&["proposal", "create", "r1", "coder", "--notes", "for Ada"])
        .exits(0);
    let proposal = json("proposal/proposal.json");
    assert_eq!(proposal["runId"], "r1");
    assert_eq!(proposal["agentId"], "coder");
    assert_eq!(proposal["base"]["gitHead"], head);
    assert_eq!(proposal["notes"], "for Ada");
    for field in ["version", "createdAt"] {
        assert!(!proposal[field].is_null(), "{field}: {proposal}");
    }
    // Every path leads from the sandbox to a file or directory.
    let paths = proposal["paths"].as_object().unwrap();
    for name in ["inputDir", "workDir", "patchFile", "summaryFile"] {
        let path = sandbox.join(paths[name].as_str().unwrap());
        assert!(path.exists(), "{name}: {}", path.display());
    }
    let changed = proposal["changedFiles"].as_array().unwrap();
    let changed: Vec<&str> = changed
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert!(changed.contains(&"src/a.txt") && changed.contains(&"src/new.txt"));
    let patch = fs::read_to_string(sandbox.join("proposal/changes.patch")).unwrap();
    assert!(patch.contains("+one 2 three"), "{patch}");
}

#[test]
fn prop_4_user_edits_are_not_overwritten_and_reasons_are_listed() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    worked(&home);
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    home.write("project/src/a.txt", "a person's\n");
    home.gdn(&["proposal", "check", "r1", "coder"])
        .exits(10)
        .prints(&[
            "src/a.txt",
            "it was changed after",
            "given",
            "proposed",
            "found",
        ]);
    home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(10)
        .tells(&["src/a.txt", "nothing was changed"]);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "a person's\n");
    assert_eq!(read(&home, "src/old.txt").unwrap(), "moves from here\n");
    home.gdn(&["proposal", "reject", "r1", "coder", "--reason", "later"])
        .exits(0);
    home.gdn(&["sandbox", "remove", "r1", "coder"]).exits(0);
    home.gdn(&["proposal", "show", "r1", "coder"]).exits(5);
    home.gdn(&["sandbox", "prepare", "--run", "r1", "--agent", "x", "../x"])
        .exits(2)
        .tells(&["are not allowed"]);
}

#[test]
fn prop_4_a_stale_proposal_is_merged_into_a_new_one_and_applied() {
    let home = home();
    home.write("project/src/long.txt", "1\n2\n3\n4\n5\n");
    let _daemon = Daemon::serving(&home);
    let work = worked(&home);
    fs::write(work.join("src/long.txt"), "one\n2\n3\n4\n5\n").unwrap();
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    home.gdn(&["proposal", "merge", "r1", "coder"])
        .exits(2)
        .tells(&["can be applied without a merge"]);
    home.write("project/src/long.txt", "1\n2\n3\n4\nfive\n");
    home.write("project/src/b.txt", "a person's\n");
    for refused in ["apply", "check"] {
        let yes: &[&str] = if refused == "apply" { &["--yes"] } else { &[] };
        let arguments = [&["proposal", refused, "r1", "coder"], yes].concat();
        home.gdn(&arguments)
            .exits(10)
            .tells(&["proposal merge r1 coder"]);
    }
    home.gdn(&["proposal", "merge", "r1", "coder"])
        .exits(0)
        .prints(&["coder-merged in run r1", "of the project: src/long.txt"])
        .tells(&["proposal apply r1 coder-merged"]);
    assert_eq!(read(&home, "src/long.txt").unwrap(), "1\n2\n3\n4\nfive\n");
    home.gdn(&["proposal", "show", "r1", "coder-merged"])
        .exits(0)
        .prints(&[
            "Merged from",
            "coder in run r1",
            "Lines of both",
            "-1\n+one\n",
        ]);
    home.gdn(&["proposal", "apply", "r1", "coder-merged", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "src/long.txt").unwrap(), "one\n2\n3\n4\nfive\n");
    assert_eq!(read(&home, "src/b.txt").unwrap(), "a person's\n");
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one 2 three\n");
    assert_eq!(read(&home, "src/new.txt").unwrap(), "moves from here\n");
    wait_until("the audit log says what it was merged from", || {
        home.gdn(&["audit"]).stdout.contains("merged from")
    });
}

#[test]
fn prop_4_conflicting_merge_makes_nothing_and_lists_every_file() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    worked(&home);
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    home.write("project/src/a.txt", "uno two three\n");
    home.write("project/src/old.txt", "still needed\n");
    home.gdn(&["proposal", "merge", "r1", "coder"])
        .exits(10)
        .prints(&[
            "src/a.txt: the project and the proposal both changed the same lines: in the project line 1",
            "src/old.txt: it was changed in the project, and the proposal deletes it",
        ])
        .tells(&["2 files in conflict", "nothing was created"]);
    let merged = home.gdn(&["--json", "proposal", "merge", "r1", "coder"]);
    let conflicts = merged.exits(10).json()["conflicts"].clone();
    assert_eq!(conflicts.as_array().unwrap().len(), 2);
    assert_eq!(conflicts[0]["kind"], "conflict");
    assert_eq!(conflicts[1]["found"]["kind"], "file");
    let listed = home.gdn_json(&["sandbox", "list"]);
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "uno two three\n");
}

#[test]
fn msg_11_damaged_sandbox_hides_no_other_and_verify_finds_it() {
    let home = home();
    let daemon = Daemon::serving(&home);
    worked(&home);
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    for agent in ["lost", "writer"] {
        let prepare = ["sandbox", "prepare", "--run", "r1", "--agent", agent, "src"];
        let prepared = home.gdn_json(&prepare);
        let work = PathBuf::from(prepared["workDir"].as_str().unwrap());
        fs::write(work.join("src/a.txt"), agent).unwrap();
        home.gdn(&["proposal", "create", "r1", agent]).exits(0);
    }
    home.gdn(&["verify"]).exits(0).prints(&["3 sandboxes"]);
    let lost = home.workspace_dir().join("sandboxes/r1/lost");
    fs::write(lost.join("sandbox.json"), "{").unwrap();
    let sandboxes = home.workspace_dir().join("sandboxes/r1");
    let digest = home.gdn_json(&["proposal", "show", "r1", "writer"])["digest"].clone();
    let kept = sandboxes.join("writer/kept").join(digest.as_str().unwrap());
    fs::write(kept.join("proposal.json"), "{}").unwrap();
    // Also after the daemon restarts.
    daemon.stop();
    let _daemon = Daemon::start(&home);
    let listed = home.gdn(&["proposal", "list"]).exits(0);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    let state = |agent: &str| {
        let line = lines.iter().find(|line| line.contains(agent)).unwrap();
        ["open", "damaged"].map(|state| line.contains(&format!(" {state} ")))
    };
    assert_eq!(state("coder"), [true, false], "{lines:?}");
    assert_eq!(state("lost"), [false, true], "{lines:?}");
    assert_eq!(state("writer"), [false, true], "{lines:?}");
    home.gdn(&["sandbox", "list"])
        .exits(0)
        .prints(&["coder", "lost", "damaged", "writer"]);
    let listed = home.gdn_json(&["sandbox", "list"]);
    let sandboxes = listed["sandboxes"].as_array().unwrap();
    let times = sandboxes.iter().map(|it| it["createdAt"].is_string());
    // The run's log has the time of the damaged sandbox.
    assert_eq!(times.collect::<Vec<_>>(), [true; 3], "{sandboxes:?}");
    home.gdn(&["proposal", "apply", "r1", "lost", "--yes"])
        .exits(15)
        .tells(&["gdn daemon verify"]);
    let verified = home.gdn(&["--json", "verify"]).exits(15).json();
    let findings = verified["findings"].as_array().unwrap();
    let paths: Vec<&str> = findings
        .iter()
        .map(|finding| finding["path"].as_str().unwrap())
        .collect();
    let expected = [lost.join("sandbox.json"), kept.join("proposal.json")];
    assert_eq!(paths, expected.map(|path| path.display().to_string()));
    home.gdn(&["sandbox", "remove", "r1", "lost"]).exits(15);
    home.gdn(&["sandbox", "remove", "r1", "lost", "--force"])
        .exits(0);
    home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one 2 three\n");
}

#[test]
fn prop_7_nothing_needs_git() {
    let home = home();
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.env("PATH", nowhere.path());
    let _daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    worked(&home);
    let made = home.gdn_json(&["proposal", "create", "r1", "coder"]);
    assert_eq!(made["git"], "notInstalled");
    home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "src/a.txt").unwrap(), "one 2 three\n");
}

/// Number of files, enough to observe a swap halfway.
const MANY: usize = 300;

#[test]
fn prop_3_daemon_killed_during_apply_leaves_all_old_or_all_new() {
    let home = home();
    for number in 0..MANY {
        home.write(&format!("project/src/{number}.txt"), "old\n");
    }
    let daemon = Daemon::serving(&home);
    let prepare = [
        "sandbox", "prepare", "--run", "r1", "--agent", "coder", "src",
    ];
    let prepared = home.gdn_json(&prepare);
    let work = PathBuf::from(prepared["workDir"].as_str().unwrap());
    for number in 0..MANY {
        fs::write(work.join(format!("src/{number}.txt")), "new\n").unwrap();
    }
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    let applying = home.start_gdn(&["proposal", "apply", "r1", "coder", "--yes"]);
    let staging = home.project().join(".goondan-swap");
    let log = home.workspace_dir().join("sandboxes/r1/events.jsonl");
    wait_until("files are being put in place, or all are", || {
        staging.exists()
            || fs::read_to_string(&log)
                .unwrap()
                .contains("proposal_applied")
    });
    daemon.kill();
    drop(applying.wait());
    let _daemon = Daemon::start(&home);
    let shown: Value = home.gdn_json(&["proposal", "show", "r1", "coder"]);
    let expected = match shown["state"].as_str().unwrap() {
        "applied" => "new\n",
        "open" => "old\n",
        other => panic!("{other}"),
    };
    for number in 0..MANY {
        assert_eq!(
            read(&home, &format!("src/{number}.txt")).unwrap(),
            expected,
            "{number}"
        );
    }
    assert!(!staging.exists());
    if expected == "old\n" {
        home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
            .exits(0);
        assert_eq!(read(&home, "src/7.txt").unwrap(), "new\n");
    }
}
