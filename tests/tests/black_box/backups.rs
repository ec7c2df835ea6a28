//! Backups of a daemon that works, their restore, and the paused start after it.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use goondan_tests::projects::LAB;
use goondan_tests::tree::snapshot;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::text;

/// Directory of backups of a home.
fn backups(home: &Home) -> String {
    home.path().join("backups").display().to_string()
}

/// Creates an identity and returns its file and its recipient.
fn identity(home: &Home) -> (String, String) {
    let file = home.path().join("identity.txt").display().to_string();
    let created = home.gdn_json(&["backup", "identity", &file]);
    (file, created["recipient"].as_str().unwrap().to_owned())
}

/// Replaces the state root by the latest backup.
fn replace_state(home: &Home, identity: &str) -> Value {
    let aside = home.path().join("state-of-before");
    fs::rename(home.state_root(), aside).unwrap();
    home.gdn_json(&["backup", "restore", &backups(home), "--identity", identity])
}

#[test]
fn backup_of_a_stopped_daemon_is_restored_byte_by_byte() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.ask("other", "work 7");
    drop(daemon.stop());
    let (file, recipient) = identity(&home);
    let dir = backups(&home);
    let made = home.gdn_json(&["backup", "create", &dir, "--recipient", &recipient]);
    assert_eq!(made["skipped"], json!([]), "{made:#}");
    assert_eq!(made["heldMs"], Value::Null);
    let root = home.state_root();
    let is_part = |path: &Path| {
        let left_out = ["run", "logs", "caches", "system/restored.json"];
        let path = path.strip_prefix(&root).unwrap();
        !left_out.iter().any(|name| path.starts_with(name))
    };
    let before = snapshot(&root, is_part);
    assert!(before.len() > 20, "{before:?}");
    replace_state(&home, &file);
    let after = snapshot(&root, is_part);
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    for (path, entry) in &before {
        assert!(after[path].is_alike(entry), "{path:?} differs");
    }
}

#[test]
fn state_of_a_working_daemon_is_restored_paused_and_resumed() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let (file, recipient) = identity(&home);
    let dir = backups(&home);
    let create = ["backup", "create", dir.as_str(), "--recipient", &recipient];
    home.ask("main", "echo one");
    home.gdn(&["send", "--no-wait", "--instance", "held", "hold it"])
        .exits(0);
    let runs = home.notes().join("it.runs");
    wait_until("the tool runs", || runs.exists());

    // Conversations continue during backups.
    let is_over = AtomicBool::new(false);
    let (asked, made) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(
                    home.ask("busy", &format!("echo {asked}")),
                    asked.to_string()
                );
                asked += 1;
            }
            asked
        });
        let made: Vec<Value> = (0..3).map(|_| home.gdn_json(&create)).collect();
        is_over.store(true, Ordering::Relaxed);
        (asking.join().unwrap(), made)
    });
    for backup in &made {
        assert_eq!(backup["skipped"], json!([]), "{backup:#}");
        assert!(backup["heldMs"].as_u64().unwrap() < 10_000, "{backup:#}");
    }
    assert!(made[2]["newBytes"].as_u64() < made[0]["newBytes"].as_u64());
    let checked = home.gdn_json(&["backup", "verify", &dir, "--identity", &file]);
    assert_eq!(checked["findings"], json!([]));
    assert_eq!(checked["opened"].as_array().unwrap().len(), 3);
    // The turn in progress would delay a stop.
    drop(daemon.kill());

    replace_state(&home, &file);
    let found = home.gdn_json(&["verify", "--offline"]);
    assert_eq!(found["instances"], 3, "{found:#}");
    let daemon = Daemon::start(&home);
    home.gdn(&["verify", "--offline"])
        .exits(10)
        .tells(&["daemon shutdown"]);
    let status = home.gdn(&["status", "--json"]).exits(16).json();
    assert_eq!(status["restored"]["backupId"], made[2]["id"]);
    home.gdn(&["status"]).exits(16).prints(&["Paused"]);
    let found = home.gdn_json(&["verify", "--all"]);
    let is_error = |finding: &Value| finding["severity"] == "error";
    let findings = found["findings"].as_array().unwrap();
    assert!(!findings.iter().any(is_error), "{found:#}");
    // The state can be read, and no process of an agent runs.
    let busy = home.history("busy");
    assert!(!busy.is_empty() && busy.len() <= 2 * asked, "{busy:?}");
    for pair in busy.chunks_exact(2) {
        assert_eq!(format!("echo {}", text(&pair[1])), text(&pair[0]));
    }
    let waiting = home.ps_agent("held").unwrap();
    assert!(
        waiting["detail"]
            .as_str()
            .unwrap()
            .contains("backup resume"),
        "{waiting:#}"
    );
    assert!(home.running("goondan-agent-process").is_empty());
    let lines = || fs::read_to_string(&runs).unwrap().lines().count();
    let before = lines();

    let resumed = home.gdn_json(&["backup", "resume"]);
    assert_eq!(resumed["restored"]["backupId"], made[2]["id"]);
    // The interrupted turn continues: its tool call is reported as interrupted, and its model repeats it.
    wait_until("the turn continues", || lines() > before);
    fs::write(home.notes().join("it.go"), "").unwrap();
    wait_until("the turn ends", || {
        let history = home.history("held");
        history.last().is_some_and(|last| text(last) == "done it")
    });
    assert_eq!(home.ask("main", "echo on"), "on");
    assert_eq!(home.gdn_json(&["status"])["restored"], Value::Null);
    drop(daemon.stop());
    // The pause does not return.
    let daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "echo again"), "again");
    drop(daemon);
}

#[test]
fn unusable_backups_change_nothing_and_name_the_next_step() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    drop(daemon.stop());
    let (file, recipient) = identity(&home);
    let dir = backups(&home);
    home.gdn(&["backup", "create", &dir])
        .exits(2)
        .tells(&["contains all secrets", "--recipient age1"]);
    home.gdn(&["backup", "create", &dir, "--recipient", "age1x"])
        .exits(2)
        .tells(&["not an age recipient"]);
    home.gdn(&["backup", "list", &dir])
        .exits(5)
        .tells(&["not a directory with backups"]);
    home.gdn_json(&["backup", "create", &dir, "--recipient", &recipient]);
    let restore = ["backup", "restore", dir.as_str(), "--identity", &file];
    home.gdn(&restore)
        .exits(10)
        .tells(&["is not empty", "gdn daemon shutdown"]);
    fs::rename(home.state_root(), home.path().join("aside")).unwrap();
    home.gdn(&["backup", "restore", &dir]).exits(2).tells(&[
        "is encrypted for",
        &recipient,
        "--identity FILE",
    ]);
    for entry in fs::read_dir(home.path().join("backups/packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    home.gdn(&restore).exits(15).tells(&["is damaged"]);
    assert!(!home.state_root().exists());
    home.gdn(&["backup", "verify", &dir])
        .exits(15)
        .prints(&["differs from its digest"]);
    let listed = home.gdn_json(&["backup", "list", &dir]);
    assert_eq!(listed["backups"].as_array().unwrap().len(), 1);
}

#[test]
fn disk_usage_is_shown_by_kind_and_garbage_is_removed() {
    // Without a policy, neither conversations nor tasks are due.
    let never = LAB.replace("  policy:\n", "  policy:\n    tasks: {keepDays: 0}\n");
    let home = Home::new(&never);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.ask("other", "work 1");
    let status = home.gdn_json(&["status", "--disk"]);
    let classes = status["disk"]["classes"].as_array().unwrap();
    let bytes = |class: &str| {
        let found = classes.iter().find(|it| it["class"] == class).unwrap();
        found["bytes"].as_u64().unwrap()
    };
    assert!(
        bytes("conversations") > 0 && bytes("traces") > 0,
        "{status:#}"
    );
    assert_eq!(bytes("sandboxes"), 0);
    home.gdn(&["status", "--disk"]).exits(0).prints(&[
        "conversations",
        "gdn conversation prune",
        "are free",
    ]);

    let due = home.gdn_json(&["gc", "--dry-run"]);
    assert_eq!(due["conversations"], json!([]), "{due:#}");
    let due = home.gdn_json(&["gc", "--older-than", "0s", "--dry-run"]);
    assert_eq!(due["conversations"].as_array().unwrap().len(), 2, "{due:#}");
    home.gdn(&["gc", "--older-than", "0s"])
        .exits(2)
        .tells(&["confirmation required", "daemon gc --older-than 0s --yes"]);
    let removed = home.gdn_json(&["gc", "--older-than", "0s", "--yes"]);
    assert_eq!(removed["conversations"], due["conversations"]);
    let left = home.gdn_json(&["instance", "list"]);
    assert_eq!(left["instances"], json!([]), "{left:#}");
    home.gdn(&["gc", "--older-than", "0s"])
        .exits(0)
        .prints(&["Nothing can be removed."]);
    drop(daemon.stop());
}
