//! Damaged files: `gdn daemon verify` reports them, and sets damage aside (`MSG-11`).

use std::fs;
use std::path::Path;

use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::Value;

use crate::conversation::{shape, text};

fn of_severity(report: &Value, severity: &str) -> Vec<Value> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|found| found["severity"] == severity)
        .cloned()
        .collect()
}

#[test]
fn msg_11_flipped_bit_is_found_reported_and_set_aside() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    for question in ["echo one", "echo two", "echo three"] {
        home.ask("main", question);
    }
    home.ask("other", "echo untouched");
    let clean = home.gdn_json(&["verify"]);
    assert_eq!(clean["instances"], 2);
    assert!(of_severity(&clean, "error").is_empty(), "{clean:#}");
    assert!(of_severity(&clean, "warning").is_empty(), "{clean:#}");
    drop(daemon.stop());

    // The text is still valid, and so is the JSON: only a checksum can detect the change.
    let base = home
        .workspace_dir()
        .join("instances/main/messages/base.jsonl");
    let before = fs::read_to_string(&base).unwrap();
    assert_eq!(before.matches("echo two").count(), 1);
    let within_home = base.strip_prefix(home.path()).unwrap().to_str().unwrap();
    home.write(within_home, &before.replace("echo two", "echo tvo"));

    let daemon = Daemon::start(&home);
    let report = home.gdn(&["verify", "--json"]).exits(15).json();
    let errors = of_severity(&report, "error");
    assert_eq!(errors.len(), 1, "{report:#}");
    assert_eq!(errors[0]["instanceKey"], "main");
    assert_eq!(errors[0]["line"], 3);
    assert!(errors[0]["path"].as_str().unwrap().ends_with("base.jsonl"));
    home.gdn(&["verify", "--instance", "other"]).exits(0);

    let repaired = home.gdn_json(&["verify", "--repair"]);
    let kept = repaired["kept"].as_array().unwrap();
    let of_base = format!("{}.damaged", base.display());
    assert!(kept.contains(&of_base.as_str().into()), "{repaired:#}");
    assert!(fs::read_to_string(of_base).unwrap().contains("echo tvo"));
    let after = home.gdn_json(&["verify"]);
    assert!(of_severity(&after, "error").is_empty(), "{after:#}");
    let messages = home.history("main");
    assert_eq!(shape(&messages), "uaaua");
    assert_eq!(text(&messages[4]), "three");
    assert_eq!(home.ask("main", "echo on"), "on");
    drop(daemon);
}

#[test]
fn damaged_workspace_files_are_reported_and_not_repaired() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    let clean = home.gdn_json(&["verify"]);
    assert_eq!(clean["findings"], serde_json::json!([]));
    drop(daemon.stop());
    let audit = home.workspace_dir().join("audit.jsonl");
    let before = fs::read_to_string(&audit).unwrap();
    let within_home = audit.strip_prefix(home.path()).unwrap().to_str().unwrap();
    home.write(within_home, &format!("{before}{{\"at\":\n{{}}\n"));

    let _daemon = Daemon::start(&home);
    for arguments in [&["verify"][..], &["verify", "--repair"]] {
        let report = home.gdn_json(arguments);
        let warnings = of_severity(&report, "warning");
        assert_eq!(warnings.len(), 1, "{report:#}");
        assert!(
            warnings[0]["path"]
                .as_str()
                .unwrap()
                .ends_with("audit.jsonl")
        );
        assert_eq!(warnings[0]["instanceKey"], Value::Null);
        assert_eq!(warnings[0]["line"], before.lines().count() + 1);
        assert_eq!(report["kept"], serde_json::json!([]));
    }
    // They belong to no conversation.
    home.gdn(&["verify", "--instance", "main"]).exits(0);
}

/// Path relative to the home, for [`Home::write`].
fn within<'a>(home: &Home, path: &'a Path) -> &'a str {
    path.strip_prefix(home.path()).unwrap().to_str().unwrap()
}

#[test]
fn msg_11_truncated_audit_log_is_reported_until_acknowledged() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("one", "echo one");
    home.ask("two", "echo two");
    drop(daemon.stop());
    let audit = home.workspace_dir().join("audit.jsonl");
    let before = fs::read_to_string(&audit).unwrap();
    let first = before.lines().next().unwrap();
    home.write(within(&home, &audit), &format!("{first}\n"));

    let daemon = Daemon::start(&home);
    let told = || {
        let report = home.gdn(&["verify", "--json"]).exits(15).json();
        let errors = of_severity(&report, "error");
        assert_eq!(errors.len(), 1, "{report:#}");
        assert!(errors[0]["path"].as_str().unwrap().ends_with("audit.jsonl"));
        assert_eq!(errors[0]["kind"], "missing-records");
    };
    told();
    // It is also kept when the log is extended, and across restarts.
    home.ask("three", "echo three");
    drop(daemon.stop());
    let _daemon = Daemon::start(&home);
    told();
    home.gdn(&["verify", "--repair"]).exits(0);
    home.gdn(&["verify"])
        .exits(0)
        .prints(&["all files are intact"]);
    let audit = fs::read_to_string(&audit).unwrap();
    assert!(audit.contains("workspace.acknowledged"), "{audit}");
}

#[test]
fn root_10_truncated_workspace_record_is_reported_and_restored() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    let record = home.workspace_dir().join("workspace.json");
    let before = fs::read_to_string(&record).unwrap();
    let cut: String = before.chars().take(20).collect();
    home.write(within(&home, &record), &cut);
    let told = || {
        let report = home.gdn(&["verify", "--all", "--json"]).exits(15).json();
        let errors = of_severity(&report, "error");
        assert_eq!(errors.len(), 1, "{report:#}");
        assert_eq!(errors[0]["path"], record.to_str().unwrap());
        report
    };
    assert_eq!(told()["instances"], 1);
    drop(daemon.stop());
    assert_eq!(fs::read_to_string(&record).unwrap().len(), 20);
    let copies = home.state_root().join("system/workspaces");
    let copy = fs::read_dir(&copies).unwrap().next().unwrap().unwrap();

    // Without its copy, the owners of the conversations are unknown; this is reported.
    let kept = fs::read_to_string(copy.path()).unwrap();
    fs::remove_file(copy.path()).unwrap();
    let daemon = Daemon::start(&home);
    let report = told();
    assert_eq!(report["instances"], 0);
    let problem = report["findings"][0]["problem"].as_str().unwrap();
    assert!(
        problem.contains("its conversation is not listed"),
        "{problem}"
    );
    drop(daemon.stop());

    home.write(within(&home, &copy.path()), &kept);
    let _daemon = Daemon::start(&home);
    wait_until("the record is put back", || {
        fs::read_to_string(&record).is_ok_and(|record| record == before)
    });
    home.gdn(&["verify", "--all"])
        .exits(0)
        .prints(&["1 conversation", "all files are intact"]);
    assert_eq!(home.ask("main", "echo on"), "on");
}

#[test]
fn permanent_loss_is_answered_finally_without_revealing_paths() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    drop(daemon.stop());
    let metadata = home.workspace_dir().join("instances/main/metadata.json");
    let within_home = metadata.strip_prefix(home.path()).unwrap();
    home.write(within_home.to_str().unwrap(), "{");

    let daemon = Daemon::start(&home);
    let address = daemon.webhook("hook");
    let headers = [("x-goondan-instance-key", "main")];
    let refused = http::post(address, "/hook", &headers, "echo two").unwrap();
    assert_eq!(refused.status, 500, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "damaged");
    assert_eq!(refused.header("retry-after"), None);
    assert!(!refused.body.contains("metadata"), "{refused:?}");
    assert!(
        !refused.body.contains(home.path().to_str().unwrap()),
        "{refused:?}"
    );

    let output = home
        .gdn(&["send", "--json", "--instance", "main", "echo three"])
        .exits(15);
    assert_eq!(output.error_json()["retryable"], false);
    let path = metadata.to_str().unwrap();
    assert!(
        output.error_json()["message"]
            .as_str()
            .unwrap()
            .contains(path)
    );
    daemon.log().wait_for("the log names the file", |line| {
        let error = line["error"].as_str().unwrap_or_default();
        line["message"] == "event refused" && error.contains(path)
    });
    // The others are unchanged.
    let headers = [("x-goondan-instance-key", "other")];
    let accepted = http::post(address, "/hook", &headers, "echo two").unwrap();
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(home.ask("other", "echo three"), "three");
}

/// A duplicate first record, as after a manual copy, is a repetition and not a loss.
#[test]
fn msg_11_duplicate_first_record_is_reported_and_reruns_nothing() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.ask("main", "echo two");
    drop(daemon.stop());
    let inbox = home
        .workspace_dir()
        .join("instances/main/messages/inbox.jsonl");
    let before = fs::read_to_string(&inbox).unwrap();
    let first = before.split_inclusive('\n').next().unwrap();
    assert!(first.contains("\"accepted\""), "{first}");
    let within_home = inbox.strip_prefix(home.path()).unwrap().to_str().unwrap();
    home.write(within_home, &format!("{first}{before}"));

    let _daemon = Daemon::start(&home);
    let report = home.gdn_json(&["verify"]);
    let findings = report["findings"].as_array().unwrap();
    let kinds: Vec<&Value> = findings.iter().map(|found| &found["kind"]).collect();
    assert_eq!(kinds, ["repeated-record"], "{report:#}");
    assert_eq!(findings[0]["line"], 2);
    assert_eq!(home.ask("main", "echo three"), "three");
    assert_eq!(shape(&home.history("main")), "uauaua");
    // Nothing after it appears to be missing.
    let report = home.gdn_json(&["verify"]);
    assert!(of_severity(&report, "error").is_empty(), "{report:#}");
}

/// An unreadable outcome is lost once, and not forever.
#[test]
fn msg_11_damaged_outcome_is_repaired_and_not_reported_again() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--event-id", "one", "echo one"])
        .exits(0);
    home.gdn(&["send", "--event-id", "two", "echo two"])
        .exits(0);
    drop(daemon.stop());
    let inbox = home
        .workspace_dir()
        .join("instances/main/messages/inbox.jsonl");
    let before = fs::read_to_string(&inbox).unwrap();
    let done = before.lines().find(|line| line.contains("\"done\""));
    let done = done.unwrap();
    let damaged = done.replacen("completed", "comqleted", 1);
    assert_ne!(done, damaged);
    home.write(within(&home, &inbox), &before.replace(done, &damaged));

    let _daemon = Daemon::start(&home);
    home.gdn(&["verify"]).exits(15);
    home.gdn(&["verify", "--repair"]).exits(0);
    let report = home.gdn_json(&["verify"]);
    assert!(of_severity(&report, "error").is_empty(), "{report:#}");
    // The event is complete, and its answer is known to be lost.
    let again = home.gdn(&["send", "--event-id", "one", "echo one"]);
    assert_ne!(again.code, 0, "{again:?}");
    assert_eq!(shape(&home.history("main")), "uaua");
    assert_eq!(home.ask("main", "echo three"), "three");
    home.gdn(&["verify"]).exits(0);
}
