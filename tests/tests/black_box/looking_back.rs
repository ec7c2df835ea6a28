//! History: the audit log and the turns of a conversation.

use std::fs;
use std::io::Write as _;

use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

fn events(audit: &Value) -> Vec<(String, String)> {
    let records = audit["records"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    records
        .map(|found| {
            assert!(found["workspaceId"].is_string());
            let record = &found["record"];
            assert!(record["at"].is_string());
            (text(&record["event"]), text(&record["instanceKey"]))
        })
        .collect()
}

#[test]
fn inst_6_audit_log_lists_lifecycles_and_skips_damaged_records() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["audit"]).exits(0).prints(&["No records"]);
    home.ask("a", "echo hello");
    home.ask("b", "echo hello");
    home.gdn(&["restart", "--instance", "a"]).exits(0);
    home.gdn(&["instance", "delete", "b", "--yes"]).exits(0);
    let expected = [
        ("instance.created", "a"),
        ("instance.created", "b"),
        ("instance.restarted", "a"),
        ("instance.deleted", "b"),
    ]
    .map(|(event, key)| (event.to_owned(), key.to_owned()));
    let mut audit = Value::Null;
    wait_until("all of it is in the log", || {
        audit = home.gdn_json(&["audit"]);
        events(&audit).len() == expected.len()
    });
    assert_eq!(events(&audit), expected);
    assert_eq!(audit["earlier"], false);
    assert_eq!(audit["unreadable"], 0);
    let last = home.gdn_json(&["audit", "--lines", "1", "--all"]);
    assert_eq!(events(&last), expected[3..]);
    assert_eq!(last["earlier"], true);
    let shown = home.gdn(&["audit"]).exits(0);
    assert!(shown.stdout.starts_with("AT "), "{shown:?}");
    shown.prints(&["instance.restarted  a", "agentName=worker"]);
    // More than a page has.
    let more = home.gdn_json(&["audit", "--lines", "10001"]);
    assert_eq!(more["records"], audit["records"]);

    // A crash leaves half a line; the disk leaves another one broken.
    daemon.kill();
    let path = home.workspace_dir().join("audit.jsonl");
    let mut log = fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"\0\0\0\n{\"at\":\"20").unwrap();
    let _daemon = Daemon::start(&home);
    home.ask("c", "echo hello");
    wait_until("what comes later is read", || {
        audit = home.gdn_json(&["audit"]);
        events(&audit).len() == expected.len() + 1
    });
    assert_eq!(events(&audit)[..4], expected);
    assert_eq!(events(&audit)[4].1, "c");
    assert_eq!(audit["unreadable"], 1, "the half line was set aside");
    let shown = home.gdn(&["audit"]).exits(0);
    shown.tells(&["warning:", "1 line"]);
}

fn turns(home: &Home) -> Vec<Value> {
    let output = home.gdn_json(&["instance", "history", "--turns"]);
    assert_eq!(output["unreadable"], 0);
    output["turns"].as_array().unwrap().clone()
}

#[test]
fn msg_12_turns_are_listed_with_outcomes_attempts_and_tools() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.gdn(&["instance", "history", "--turns"]).exits(5);
    let sent = home.gdn_json(&["send", "--event-id", "one", "work 7"]);
    home.gdn(&["send", "--event-id", "two", "fail"]).exits(7);
    let asking = home.start_gdn(&["send", "--event-id", "three", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let pid = home.ps_agent("main").unwrap()["pid"].as_u64().unwrap();
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    wait_until("the tool runs again", || {
        home.note("x.runs") == "run\nagain\n"
    });

    let told = turns(&home);
    assert_eq!(told.len(), 3, "{told:#?}");
    let [one, two, three] = &told[..] else {
        panic!("{told:#?}")
    };
    assert_eq!(one["eventId"], "one");
    assert_eq!(one["traceId"], sent["traceId"]);
    assert_eq!(
        (&one["outcome"], &one["attempts"], &one["steps"]),
        (&"completed".into(), &1.into(), &2.into())
    );
    assert_eq!(
        one["tools"],
        serde_json::json!([{"name": "bash__exec", "calls": 1, "failed": 0}])
    );
    assert!(one["durationMs"].is_u64());
    assert_eq!(
        (&two["eventId"], &two["outcome"]),
        (&"two".into(), &"failed".into())
    );
    assert!(
        two["reason"].as_str().unwrap().contains("overloaded"),
        "{two}"
    );
    assert_eq!(
        (&three["eventId"], &three["outcome"]),
        (&"three".into(), &"inProgress".into())
    );
    assert_eq!(three["attempts"], 2);

    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
    wait_until("its end is recorded", || {
        turns(&home)[2]["outcome"] == "completed"
    });
    let three = &turns(&home)[2];
    assert_eq!(three["tools"][0]["calls"], 2);
    assert_eq!(three["tools"][0]["failed"], 1, "the interrupted call");
    let shown = home.gdn(&["instance", "history", "--turns", "--limit", "2"]);
    shown.exits(0).prints(&[
        "(1 earlier turn omitted)",
        "bash__exec 2 (1 failed)",
        "three",
    ]);
}
