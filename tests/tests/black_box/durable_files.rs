//! Changes every file of two workspaces with one of each kind: a conversation with a bundle and a
//! joint checkpoint, a sandbox with a proposal, a task with checkpoints and a secret. Each file is
//! removed, emptied, truncated at its last line, and changed by one bit, and `gdn daemon verify` must
//! report it, unless it is listed here with a reason (`MSG-11`).

use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::authorization_server::AuthorizationServer;
use goondan_tests::{CommandOutput, Daemon, Home, wait_until};

use crate::bundles::poet;
use crate::tasks::{self, example};
use crate::{oauth, secrets};

/// Files below the System Root that a verification does not need, with reasons.
const DERIVED: [(&str, &str); 19] = [
    ("state/config.json", "a person's own"),
    (
        "system/identity.age",
        "a changed key opens no secret, which is found",
    ),
    ("/workspace.json", "a person may edit it: that is a warning"),
    ("/logs/", "log of the daemon"),
    ("/run/", "socket and lock of the daemon"),
    ("system/format.json", "written again by each start"),
    ("system/workspaces/", "copy of workspace.json"),
    ("known/", "what is known of the other files"),
    (
        "manifest.jsonl",
        "the same, of conversations and audit logs",
    ),
    (
        "configuration.json",
        "a fallback, sealed itself, written again by each start",
    ),
    (
        "usage.jsonl",
        "noted every 16 KiB, so that a reply costs nothing more",
    ),
    ("messages/llm.jsonl", "for people, not synced"),
    ("messages/runtime-events.jsonl", "for people, not synced"),
    ("messages/base.sums.jsonl", "made again from base.jsonl"),
    ("swarm-bundle/base.ref", "written again from cursor.yaml"),
    ("swarm-bundle/head.ref", "written again from cursor.yaml"),
    ("swarm-bundle/effective/", "copy of a revision, for people"),
    (
        "swarm-bundle/changesets/",
        "working copies, which agents write",
    ),
    (".checkpoints/index", "spares work, written again"),
];

/// Files of a task or a sandbox that belong to an agent or are derived from others.
const OF_AGENTS: [&str; 10] = [
    "tasks/shop/docs/",
    "tasks/shop/.logs/",
    "tasks/shop/.metadata/task.json",
    "tasks/shop/.metadata/agent-state.json",
    "tasks/shop/.metadata/tokens.json",
    ".checkpoints/latest.json",
    "/work/",
    "/coder/proposal/",
    "instances/main/metadata.json",
    "/published",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Removed,
    Emptied,
    Cut,
    Flipped,
}

impl Damage {
    const ALL: [Self; 4] = [Self::Removed, Self::Emptied, Self::Cut, Self::Flipped];

    /// Content of the file afterwards; none if it was removed.
    fn of(self, content: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Removed => None,
            Self::Emptied => Some(Vec::new()),
            Self::Cut => {
                // Removes a whole line, if there are several, so that no line is torn.
                let end = content.len().saturating_sub(1);
                let line = content[..end].iter().rposition(|byte| *byte == b'\n');
                Some(content[..line.map_or(content.len() / 2, |at| at + 1)].to_vec())
            }
            Self::Flipped => {
                let mut content = content.to_vec();
                let middle = content.len() / 2;
                content[middle] ^= 1;
                Some(content)
            }
        }
    }
}

/// Every nonempty file below the System Root, except derived ones.
fn durable_files(home: &Home) -> Vec<PathBuf> {
    let root = home.state_root();
    let mut files = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let below = format!("state/{}", path.strip_prefix(&root).unwrap().display());
            let is_derived = DERIVED.iter().any(|(part, _)| below.contains(part));
            let is_of_agents = OF_AGENTS.iter().any(|part| below.contains(part));
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file()
                && !is_derived
                && !is_of_agents
                && entry.metadata().unwrap().len() > 0
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// True if a run of `gdn daemon verify` reports a file, or a folder that contains it, as damaged. A warning is enough
/// for an encrypted document that still opens: people edit those with `sops`.
fn is_reported(ran: &CommandOutput, file: &Path, damage: Damage) -> bool {
    let report = ran.json();
    let mut findings = report["findings"].as_array().unwrap().iter();
    let is_document = file.to_string_lossy().ends_with(".sops.yaml");
    let is_warning_enough = is_document && matches!(damage, Damage::Cut) && ran.code == 0;
    let severity = match is_warning_enough {
        true => "warning",
        false => "error",
    };
    (is_warning_enough || ran.code == 15)
        && findings.any(|finding| {
            let path = Path::new(finding["path"].as_str().unwrap());
            finding["severity"] == severity && (file.starts_with(path) || path.starts_with(file))
        })
}

/// Damages each file in each way, and restores it.
#[expect(
    clippy::disallowed_methods,
    reason = "a test's damage need not be durable"
)]
fn check_every_loss(home: &Home) -> usize {
    let files = durable_files(home);
    let daemon = Daemon::serving(home);
    home.gdn(&["verify", "--all"])
        .exits(0)
        .prints(&["all files are intact"]);
    let mut missed = Vec::new();
    for file in &files {
        let content = fs::read(file).unwrap();
        let mode = fs::metadata(file).unwrap().permissions();
        for damage in Damage::ALL {
            // Files that goondan made read-only cannot be written by their owner.
            if fs::write(file, &content).is_err() {
                let mut writable = mode.clone();
                std::os::unix::fs::PermissionsExt::set_mode(&mut writable, 0o600);
                fs::set_permissions(file, writable).unwrap();
            }
            match damage.of(&content) {
                None => fs::remove_file(file).unwrap(),
                Some(content) => fs::write(file, content).unwrap(),
            }
            let ran = home.gdn(&["verify", "--all", "--json"]);
            if !is_reported(&ran, file, damage) {
                missed.push(format!("{damage:?} {} (exit {})", file.display(), ran.code));
            }
            fs::write(file, &content).unwrap();
            fs::set_permissions(file, mode.clone()).unwrap();
        }
    }
    assert!(missed.is_empty(), "{missed:#?}\nof {files:#?}");
    home.gdn(&["verify", "--all"])
        .exits(0)
        .prints(&["all files are intact"]);
    drop(daemon);
    files.len()
}

#[test]
fn msg_11_every_loss_in_a_conversation_with_a_bundle_is_found() {
    let home = poet();
    home.write("project/src/a.txt", "one\n");
    let daemon = Daemon::serving(&home);
    home.ask("main", "hello");
    home.ask("main", "answer in verse");
    home.gdn(&["instance", "checkpoint", "main"]).exits(0);
    let prepare = [
        "sandbox", "prepare", "--run", "r1", "--agent", "coder", "src",
    ];
    let prepared = home.gdn_json(&prepare);
    let work = prepared["workDir"].as_str().unwrap();
    let within = Path::new(work).strip_prefix(home.path()).unwrap();
    home.write(within.join("src/a.txt").to_str().unwrap(), "two\n");
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    // Its journal is needed to roll it back.
    home.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(0);
    drop(daemon.stop());
    assert!(check_every_loss(&home) > 16);
    let daemon = Daemon::serving(&home);
    remove_journal(work);
    home.gdn(&["proposal", "revert", "r1", "coder", "--yes"])
        .exits(15);
    let file = home.path().join("project/src/a.txt");
    assert_eq!(fs::read_to_string(file).unwrap(), "two\n");
    drop(daemon);
}

/// Removes the old files of an applied proposal.
fn remove_journal(work: &str) {
    let kept = Path::new(work).with_file_name("kept");
    let digest = fs::read_dir(kept).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(digest.path().join("apply")).unwrap();
}

#[test]
fn msg_11_every_loss_of_a_secret_and_of_a_token_is_found() {
    let (server, model) = (AuthorizationServer::start(3_600), oauth::model());
    let home = oauth::home(&server, &model);
    let daemon = Daemon::serving(&home);
    oauth::log_in(&home, &server);
    // A login and its permission are two files.
    secrets::set(&home, "app", "key", "a-value", &["--for", "."]).exits(0);
    drop(daemon.stop());
    assert!(check_every_loss(&home) > 3);

    let daemon = Daemon::serving(&home);
    let secret = home.state_root().join("system/secrets/app.sops.yaml");
    fs::remove_file(&secret).unwrap();
    // A new value does not hide that the old one was lost.
    secrets::set(&home, "app", "other", "a-value", &[]).exits(0);
    let ran = home.gdn(&["verify", "--all", "--json"]).exits(15);
    assert!(
        is_reported(&ran, &secret, Damage::Removed),
        "{}",
        ran.stdout
    );
    home.gdn(&["verify", "--all", "--repair"])
        .prints(&["acknowledged"]);
    home.gdn(&["verify", "--all"]).exits(0);
    home.gdn(&["secret", "remove", "app", "--yes"]).exits(0);
    home.gdn(&["verify", "--all"]).exits(0);
    drop(daemon);
}

#[test]
fn msg_11_every_loss_in_a_task_with_checkpoints_is_found() {
    let home = example();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    for (status, step, _) in tasks::STEPS {
        tasks::wait_for(&home, status);
        step(&home);
    }
    tasks::wait_for(&home, "completed");
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
    drop(daemon.stop());
    assert!(check_every_loss(&home) > 8);

    // A new task does not hide the loss of an earlier one, which is one finding.
    fs::remove_dir_all(tasks::area(&home)).unwrap();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    acknowledge_one_loss(&home, "an earlier folder of this name was removed");
    let history = tasks::area(&home).join(".metadata/history.jsonl.damaged");
    assert!(!history.exists(), "an intact history is not rewritten");
    drop(daemon.stop());

    // A new run does not hide the loss of a workspace.
    let workspaces = fs::read_dir(home.state_root().join("workspaces")).unwrap();
    for workspace in workspaces {
        fs::remove_dir_all(workspace.unwrap().path()).unwrap();
    }
    let daemon = Daemon::serving(&home);
    acknowledge_one_loss(&home, "the folder of the workspace was missing");
    drop(daemon);
}

fn acknowledge_one_loss(home: &Home, problem: &str) {
    let report = home.gdn(&["verify", "--all", "--json"]).exits(15).json();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let found = findings[0]["problem"].as_str().unwrap();
    assert!(found.starts_with(problem), "{found}");
    home.gdn(&["verify", "--all", "--repair"]).exits(0);
    home.gdn(&["verify", "--all"]).exits(0);
}

/// Flips one bit of a record in the middle of a history.
#[expect(
    clippy::disallowed_methods,
    reason = "a test's damage need not be durable"
)]
fn damage_history(home: &Home, line: usize) {
    let history = tasks::area(home).join(".metadata/history.jsonl");
    let text = fs::read_to_string(&history).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = &mut lines[line];
    *line = line.replacen("\"timestamp\":\"2", "\"timestamp\":\"3", 1);
    fs::write(&history, lines.join("\n") + "\n").unwrap();
}

#[test]
fn msg_11_a_damaged_history_is_repaired_from_a_checkpoint() {
    let home = example();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    tasks::wait_for(&home, "waiting_question");
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
    let before = home.gdn_json(&["task", "show", "shop"]);
    damage_history(&home, 2);
    // A daemon that has the history open would write its next record to the replaced file.
    home.gdn(&["verify", "--repair"])
        .exits(15)
        .prints(&["the daemon has this history open"]);
    drop(daemon.stop());
    let daemon = Daemon::serving(&home);
    assert!(home.gdn(&["task", "answer", "shop", "engineers"]).code == 15);
    home.gdn(&["verify"]).exits(15);
    home.gdn(&["verify", "--repair"]).exits(0);
    home.gdn(&["verify"]).exits(0);
    tasks::wait_for(&home, "waiting_question");
    let after = home.gdn_json(&["task", "show", "shop"]);
    assert_eq!(after["asks"], before["asks"]);
    home.gdn(&["task", "answer", "shop", "engineers"]).exits(0);
    tasks::wait_for(&home, "waiting_review");
    drop(daemon);
}

#[test]
fn msg_11_a_removed_history_is_repaired_from_all_checkpoints() {
    let home = example();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    tasks::wait_for(&home, "waiting_question");
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
    drop(daemon.stop());
    // No checkpoint has the record of its own creation, so that each of the two is searched.
    fs::remove_dir_all(tasks::area(&home).join(".metadata")).unwrap();
    let _daemon = Daemon::serving(&home);
    home.gdn(&["verify"]).exits(15);
    home.gdn(&["verify", "--repair"])
        .exits(0)
        .prints(&["the task is paused"]);
    home.gdn(&["verify"]).exits(0);
    wait_until("the task is read again", || {
        home.gdn_json(&["task", "show", "shop"])["info"]["status"] == "paused"
    });
}

#[test]
fn msg_11_history_without_an_intact_copy_pauses_its_task() {
    let home = example();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    tasks::wait_for(&home, "waiting_question");
    drop(daemon.stop());
    // The example creates checkpoints automatically.
    let checkpoints = tasks::area(&home).join(".checkpoints");
    fs::remove_dir_all(&checkpoints).unwrap();
    damage_history(&home, 2);
    let _daemon = Daemon::serving(&home);
    for following in [
        &["task", "watch", "shop"][..],
        &["task", "logs", "shop", "--follow"],
    ] {
        home.gdn(following).exits(15).tells(&["task `shop`"]);
    }
    home.gdn(&["verify"]).exits(15);
    home.gdn(&["verify", "--repair"])
        .exits(0)
        .prints(&["the task is paused"]);
    home.gdn(&["verify"]).exits(0);
    wait_until("the task is read again", || {
        home.gdn_json(&["task", "show", "shop"])["info"]["status"] == "paused"
    });
}
