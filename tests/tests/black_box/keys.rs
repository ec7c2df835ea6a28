//! Conversations with keys that are not valid directory names (`INST-1`, `INST-5`).

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use goondan_tests::projects::LAB;
use goondan_tests::tree::{self, FileEntry};
use goondan_tests::{Daemon, Home, http, wait_until};

use crate::conversation::{check, shape, text};

/// Keys that a careless store would confuse, or that would leave its directory.
fn wild_keys() -> Vec<String> {
    let mut keys: Vec<String> = [
        "user@a",
        "user#a",
        "user%40a",
        "가나다",
        "라마바",
        "../../x",
        "../canary",
        "..",
        ".",
        "./x",
        "/",
        "/etc/passwd",
        "a/b",
        "a_b",
        "a b",
        " ",
        "A",
        "a",
        "\u{e9}",
        "e\u{301}",
        "a\nb",
        "-x",
        "--json",
        "telegram:123",
        "x.",
        ".x",
        "con",
        "%2e%2e",
        "~",
        "$HOME",
        "*",
        "'",
        "\\",
    ]
    .map(String::from)
    .into();
    keys.push("x".repeat(300));
    keys.push("x".repeat(301));
    keys.push("긴".repeat(300));
    keys
}

fn send(home: &Home, key: &str, text: &str) {
    let instance = format!("--instance={key}");
    home.gdn(&["send", "--quiet", &instance, text]).exits(0);
}

/// Files that no key may reach: next to the home, the System Root, the workspace and the instances.
fn place_canaries(home: &Home) {
    let workspace = home.workspace_dir();
    let places: [PathBuf; 5] = [
        home.path().to_owned(),
        home.state_root(),
        home.state_root().join("workspaces"),
        workspace.clone(),
        home.project(),
    ];
    for place in places {
        for name in ["x", "canary", "b", "a/b"] {
            let dir = place.strip_prefix(home.path()).unwrap().join(name);
            home.write(dir.join("file").to_str().unwrap(), "untouched");
        }
    }
}

/// Everything in the home except what may change: the instances themselves, the audit log, and the
/// daemon's files in `run`.
fn surroundings(home: &Home) -> BTreeMap<PathBuf, FileEntry> {
    let workspace = home.workspace_dir();
    let changing = [
        workspace.join("instances"),
        workspace.join("audit.jsonl"),
        workspace.join("manifest.jsonl"),
        // Paths that track conversations outside of their folders.
        workspace.join("known"),
        home.state_root().join("run"),
    ];
    tree::snapshot(home.path(), |path| !changing.iter().any(|dir| path == dir))
}

fn instance_dirs(home: &Home) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(home.workspace_dir().join("instances"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn inst_1_unusual_keys_are_separate_and_harmless_conversations() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    send(&home, "first", "echo first");
    place_canaries(&home);
    let before = surroundings(&home);
    let keys = wild_keys();
    for (number, key) in keys.iter().enumerate() {
        send(&home, key, &format!("echo number {number}"));
    }
    for (number, key) in keys.iter().enumerate() {
        let messages = home.history(key);
        check(&messages);
        assert_eq!(shape(&messages), "ua", "key {key:?}: {messages:#?}");
        assert_eq!(
            text(&messages[1]),
            format!("number {number}"),
            "key {key:?}"
        );
    }
    let listed = home.gdn_json(&["instance", "list"]);
    let mut listed: Vec<String> = listed["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|instance| instance["instanceKey"].as_str().unwrap().to_owned())
        .collect();
    listed.sort();
    let mut expected = [keys.clone(), vec!["first".to_owned()]].concat();
    expected.sort();
    assert_eq!(listed, expected);
    // One directory each, even on case-insensitive file systems.
    let dirs = instance_dirs(&home);
    assert_eq!(dirs.len(), expected.len());
    assert!(
        dirs.iter().all(|name| *name == name.to_lowercase()),
        "{dirs:?}"
    );
    assert_eq!(surroundings(&home), before);

    // Every second conversation is deleted. The others are kept, and so is everything around them.
    for key in keys.iter().step_by(2) {
        let deleted = home.gdn_json(&["instance", "delete", "--yes", "--", key]);
        assert_eq!(deleted["existed"], true, "key {key:?}");
        let again = home.gdn_json(&["instance", "delete", "--yes", "--", key]);
        assert_eq!(again["existed"], false, "key {key:?}");
    }
    assert_eq!(surroundings(&home), before);
    assert_eq!(
        instance_dirs(&home).len(),
        expected.len() - keys.len().div_ceil(2)
    );
    for (number, key) in keys.iter().enumerate().skip(1).step_by(2) {
        let messages = home.history(key);
        assert_eq!(
            text(&messages[1]),
            format!("number {number}"),
            "key {key:?}"
        );
    }
    // A deleted conversation starts over.
    send(&home, &keys[0], "echo reborn");
    assert_eq!(home.history(&keys[0]).len(), 2);
}

#[test]
fn inst_1_keys_that_cannot_be_are_refused_with_the_reason() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let too_long = "x".repeat(1025);
    for (key, reason) in [("", "empty"), (too_long.as_str(), "1024")] {
        let instance = format!("--instance={key}");
        home.gdn(&["send", &instance, "echo hi"])
            .exits(2)
            .tells(&[reason]);
        home.gdn(&["instance", "delete", "--yes", "--", key])
            .exits(2)
            .tells(&[reason]);
        home.gdn(&["instance", "history", "--", key])
            .exits(2)
            .tells(&[reason]);
    }
    let address = daemon.webhook("hook");
    let long = [("x-goondan-instance-key", too_long.as_str())];
    let refused = http::post(address, "/hook", &long, "echo hi").unwrap();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (400, Some("bad_instance_key"))
    );
    let empty = [("x-goondan-instance-key", "")];
    let refused = http::post(address, "/hook", &empty, "echo hi").unwrap();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (400, Some("bad_instance_key"))
    );
    let instances = home.gdn_json(&["instance", "list"]);
    assert_eq!(instances["instances"], serde_json::json!([]));
}

#[test]
fn inst_5_delete_never_follows_a_link_out_of_the_instance() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    send(&home, "k", "echo hi");
    send(&home, "other", "echo hi");
    place_canaries(&home);
    let before = surroundings(&home);
    let instance = home.workspace_dir().join("instances/k");
    let other = home.workspace_dir().join("instances/other");
    let links: [(&Path, &str); 4] = [
        (home.path(), "work/home"),
        (&other, "work/other"),
        (&home.path().join("canary/file"), "work/file"),
        (&home.path().join("x"), "extensions/x.json"),
    ];
    for (target, link) in links {
        symlink(target, instance.join(link)).unwrap();
    }
    home.gdn(&["instance", "delete", "--yes", "k"]).exits(0);
    assert!(!instance.exists());
    assert_eq!(surroundings(&home), before);
    assert_eq!(home.history("other").len(), 2);

    // A link at the instance's path.
    symlink(home.path().join("canary"), &instance).unwrap();
    let ran = home.gdn(&["instance", "delete", "--yes", "k"]);
    assert!(ran.code == 0 || !ran.stderr.is_empty(), "{ran:#?}");
    if std::fs::symlink_metadata(&instance).is_ok() {
        std::fs::remove_file(&instance).unwrap();
    }
    assert_eq!(surroundings(&home), before);
}

#[test]
fn inst_5_delete_ends_process_and_turn_and_notifies_the_waiter() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--instance", "k", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    home.gdn(&["instance", "delete", "--yes", "k"]).exits(0);
    let told = asking.wait().exits(12);
    assert!(!told.stderr.is_empty());
    assert!(home.running("goondan-agent-process").is_empty());
    assert!(!home.workspace_dir().join("instances/k").exists());
    home.gdn(&["instance", "show", "k"]).exits(5);
    assert_eq!(home.ask("k", "echo anew"), "anew");
    assert_eq!(home.history("k").len(), 2);
    let audit = std::fs::read_to_string(home.workspace_dir().join("audit.jsonl")).unwrap();
    let told: Vec<&str> = audit
        .lines()
        .filter(|line| line.contains("\"k\""))
        .collect();
    assert_eq!(told.len(), 3, "{audit}");
    assert!(
        told[0].contains("instance.created") && told[1].contains("instance.deleted"),
        "{audit}"
    );
}

#[test]
fn root_4_swarm_sets_the_default_conversation_key() {
    let home = Home::new(&LAB.replace(
        "entryAgent: Agent/worker",
        "entryAgent: Agent/worker\n  instanceKey: lobby",
    ));
    let _daemon = Daemon::serving(&home);
    let sent = home.gdn_json(&["send", "echo one"]);
    assert_eq!(sent["instanceKey"], "lobby");
    home.ask("main", "echo two");
    for (named, len) in [(&[][..], 2), (&["lobby"], 2), (&["main"], 2)] {
        let history = home.gdn_json(&[&["instance", "history"], named].concat());
        assert_eq!(history["messages"].as_array().unwrap().len(), len);
    }
    let shown = home.gdn_json(&["instance", "show"]);
    assert_eq!(shown["instanceKey"], "lobby");
    // The suggested command names a conversation only if it is not the default.
    let again = home.gdn(&["send", "--no-wait", "echo three"]).exits(0);
    assert!(!again.stderr.contains("--conversation"), "{}", again.stderr);
    let again = home.gdn(&["send", "--no-wait", "--instance", "main", "echo four"]);
    again.exits(0).tells(&["--conversation main"]);
}
