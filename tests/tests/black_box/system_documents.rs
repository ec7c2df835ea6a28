//! Goal: encrypted documents below `system/` can be verified, and opened and changed by `sops`
//! itself (`SYS-3`).
//!
//! Method: the real binaries create each kind of document: a secret, a grant, a login in progress,
//! and the lock of a renewal that a kill of the daemon interrupted. The test damages them in
//! several ways, or runs `sops` on them.

#![expect(
    clippy::disallowed_methods,
    reason = "a test damages files without the daemon"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_tests::authorization_server::{AuthorizationServer, ResponseFault};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

use super::oauth::{address_of, files, home, log_in, model, oauth_files, paste};
use super::secrets;

/// The documents below `system/`, without the identity and logs.
fn documents(home: &Home) -> Vec<PathBuf> {
    let all = files(&home.state_root().join("system")).into_iter();
    let documents = all.map(|(path, _)| path);
    let documents =
        documents.filter(|path| path.ends_with(".sops.yaml") || path.ends_with(".lock"));
    documents.map(PathBuf::from).collect()
}

fn of_kind(home: &Home, kind: &str) -> PathBuf {
    let mut found = documents(home).into_iter();
    let found = found.find(|path| path.iter().any(|part| part == kind));
    found.unwrap_or_else(|| panic!("there is nothing of {kind}"))
}

/// The findings of `gdn daemon verify --all`: file, problem and advice.
fn findings(home: &Home, code: i32) -> Vec<(PathBuf, String, String)> {
    let ran = home.gdn(&["verify", "--all", "--json"]).exits(code);
    let line = ran.stdout.lines().next().unwrap();
    let found: Value = serde_json::from_str(line).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = found["findings"].as_array().unwrap().iter();
    let found = found.filter(|it| it["severity"] == "error");
    found
        .map(|it| {
            let path = PathBuf::from(text(&it["path"]));
            (path, text(&it["problem"]), text(&it["advice"]))
        })
        .collect()
}

fn replace(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

#[test]
fn sys_3_verify_names_bad_documents_with_a_remedy_for_each() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let _daemon = Daemon::serving(&home);
    log_in(&home, &server);
    secrets::set(&home, "app", "key", "a-value-of-it", &[]).exits(0);
    let mut login = paste(&home);
    drop(address_of(&login));
    assert_eq!(findings(&home, 0), []);

    for (kind, advice) in [
        ("grants", "`gdn secret oauth login idp`"),
        ("sessions", "start the login again"),
        ("secrets", "`gdn secret remove app`"),
    ] {
        let path = of_kind(&home, kind);
        let good = fs::read(&path).unwrap();
        let is_told = |damage: &str, bytes: &[u8]| {
            replace(&path, bytes);
            let found = findings(&home, 15);
            assert_eq!(found.len(), 1, "{damage} of {kind}: {found:?}");
            assert_eq!(found[0].0, path, "{damage}");
            assert!(found[0].2.contains(advice), "{damage}: {found:?}");
        };
        is_told("cut off", &good[..good.len() / 2]);
        let text = String::from_utf8(good.clone()).unwrap();
        let data = text.find("data:").unwrap() + "data:".len();
        let mut changed = good.clone();
        changed[data] = if changed[data] == b'A' { b'B' } else { b'A' };
        is_told("changed", &changed);
        is_told("emptied", b"");
        replace(&path, &good);
    }
    // A document that can be decrypted, but belongs to another.
    let grant = of_kind(&home, "grants");
    let stray = grant.with_file_name(format!("{}.sops.yaml", "0".repeat(64)));
    fs::copy(&grant, &stray).unwrap();
    let found = findings(&home, 15);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, stray);
    assert!(found[0].1.contains("another application"), "{found:?}");
    fs::remove_file(&stray).unwrap();

    let identity = home.state_root().join("system/identity.age");
    let aside = home.state_root().join("aside");
    fs::rename(&identity, &aside).unwrap();
    let found = findings(&home, 15);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("3 documents"), "{found:?}");
    fs::rename(&aside, &identity).unwrap();
    assert_eq!(findings(&home, 0), []);
    login.say("nothing");
    drop(login.wait());
}

/// Runs `sops` with the identity of this home.
fn sops(home: &Home, args: &[&str], file: &Path, behind: &[&str]) -> String {
    let ran = Command::new("sops")
        .args(args)
        .args(["--input-type", "yaml"])
        .arg(file)
        .args(behind)
        .env(
            "SOPS_AGE_KEY_FILE",
            home.state_root().join("system/identity.age"),
        )
        .env("HOME", home.path())
        .current_dir(home.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{args:?} {file:?}: {stderr}");
    String::from_utf8(ran.stdout).unwrap()
}

fn decrypted(home: &Home, file: &Path) -> Value {
    let json = sops(home, &["decrypt", "--output-type", "json"], file, &[]);
    serde_json::from_str(&json).unwrap()
}

fn edit(home: &Home, file: &Path, key: &str, value: &str) {
    let (index, value) = (json!([key]).to_string(), json!(value).to_string());
    let args = ["set", "--output-type", "yaml"];
    sops(home, &args, file, &[&index, &value]);
}

#[test]
fn sys_3_sops_edits_each_document_kind_and_edits_are_read_back() {
    if !needs::optional_program("sops") {
        return;
    }
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    let token = server.access_token().unwrap();
    secrets::set(&home, "app", "key", "a-value-of-it", &[]).exits(0);
    let login = paste(&home);
    drop(address_of(&login));
    server.next(ResponseFault::LosesReply);
    let before = server.requests("refresh_token");
    let refresh = home.start_gdn(&["oauth", "refresh", "idp"]);
    wait_until("the server is asked", || {
        server.requests("refresh_token") > before
    });
    daemon.kill();
    drop((refresh.wait(), login.wait()));
    assert_eq!(documents(&home).len(), 4);

    let [secret, grant, session, lock] =
        ["secrets", "grants", "sessions", "locks"].map(|kind| of_kind(&home, kind));
    assert_eq!(decrypted(&home, &secret), json!({"key": "a-value-of-it"}));
    let told = decrypted(&home, &grant);
    assert_eq!(
        (&told["kind"], &told["accessToken"]),
        (&json!("grant"), &json!(token))
    );
    let told = decrypted(&home, &session);
    assert_eq!(
        (&told["kind"], &told["status"]),
        (&json!("session"), &json!("open"))
    );
    let told = decrypted(&home, &lock);
    assert_eq!(
        (&told["kind"], &told["generation"]),
        (&json!("lock"), &json!("1"))
    );

    edit(&home, &secret, "key", "changed-by-sops");
    edit(&home, &grant, "scope", "changed-by-sops");
    edit(&home, &session, "expiresAt", "2999-01-01T00:00:00.000Z");
    edit(&home, &lock, "since", "2026-01-01T00:00:00.000Z");
    let asked = server.requests("refresh_token");
    let daemon = Daemon::start(&home);
    // The lock marks the outcome of the renewal as unknown: the server is queried again.
    wait_until("the lock is read", || {
        server.requests("refresh_token") > asked && oauth_files(&home, "locks") == 0
    });
    assert_eq!(
        home.gdn_json(&["oauth", "show", "idp"])["scope"],
        "changed-by-sops"
    );
    assert_eq!(findings(&home, 0), []);
    assert_eq!(oauth_files(&home, "sessions"), 1);
    let told = decrypted(&home, &secret);
    assert_eq!(told, json!({"key": "changed-by-sops"}));
    let is_unreadable = |line: &Value| line["message"] == "failed to read OAuth document";
    assert!(!daemon.log().lines().iter().any(is_unreadable));
}
