//! Tasks, proposals, and agents' changes to their configuration survive the loss of their node
//! (`REP-1`).

use std::fs;

use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::PostgresServer;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::bundles::{VERSE, poet, status};
use crate::proposals;
use crate::tasks::{area, example, new_task};

fn two(server: &PostgresServer, project: Home) -> (ClusterNode, ClusterNode) {
    let a = ClusterNode::with(project, "a", &server.url());
    let b = a.beside(server, "b");
    (a, b)
}

/// Task as a node shows it; none if the node does not have it yet.
fn shown(node: &ClusterNode, task: &str) -> Option<Value> {
    let ran = node.gdn(&["--json", "task", "show", task]);
    (ran.code == 0).then(|| ran.json())
}

fn waits_for(node: &ClusterNode, task: &str, status: &str) {
    wait_until(&format!("task {task} is {status}"), || {
        shown(node, task).is_some_and(|shown| shown["info"]["status"] == status)
    });
}

/// Kinds of the events in its history.
fn events(node: &ClusterNode) -> Vec<String> {
    let text = fs::read_to_string(area(&node.home).join(".metadata/history.jsonl")).unwrap();
    let of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
    let events = text.lines().map(of);
    events
        .map(|event| event.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn rep_1_task_1_task_resumes_on_another_node_after_a_kill() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let (a, b) = two(&server, example());
    let (daemon_a, daemon_b) = (Daemon::serving(&a.home), Daemon::start(&b.home));
    new_task(&a.home);
    waits_for(&a, "shop", "waiting_question");
    a.gdn(&["task", "answer", "shop", "engineers"]).exits(0);
    waits_for(&a, "shop", "waiting_review");
    // Files that are not in a log: those that its agent wrote.
    assert!(area(&a.home).join("docs").is_dir());
    let before = shown(&a, "shop").unwrap();
    let known = events(&a);
    // Includes records after the last sync, even without further writes.
    a.waits_until_alike(&[&b]);
    drop(daemon_a.kill());

    b.waits_until_it_runs();
    waits_for(&b, "shop", "waiting_review");
    let after = shown(&b, "shop").unwrap();
    assert_eq!(after["info"]["title"], before["info"]["title"]);
    assert_eq!(after["info"]["createdAt"], before["info"]["createdAt"]);
    let here = events(&b);
    assert_eq!(here[..known.len()], known, "what was acknowledged is there");
    // Documents are not in the log.
    assert_eq!(here[known.len()..], ["node_entered", "documents_missing"]);
    for directory in ["src", "docs/planning", ".logs"] {
        assert!(area(&b.home).join(directory).is_dir(), "{directory}");
    }
    // Its agent has no session here, so it hears the answer to its question again and completes the
    // phase without asking.
    let completed = || {
        let events = events(&b).into_iter();
        events.filter(|event| event == "phase_completed").count()
    };
    let earlier = completed();
    b.gdn(&["task", "rework", "shop", "Say why."]).exits(0);
    wait_until("the phase is completed again", || completed() > earlier);
    waits_for(&b, "shop", "waiting_review");
    b.gdn(&["verify"]).exits(0);

    // It is removed with its directory, on the lost node, too.
    b.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    waits_for(&b, "shop", "cancelled");
    b.gdn(&["task", "rm", "shop", "--yes"]).exits(0);
    let daemon_a = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    wait_until("the task is gone", || !area(&a.home).exists());
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_task_10_imported_task_resumes_on_another_node() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let (a, b) = two(&server, example());
    let (daemon_a, daemon_b) = (Daemon::serving(&a.home), Daemon::start(&b.home));
    new_task(&a.home);
    waits_for(&a, "shop", "waiting_question");
    a.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    waits_for(&a, "shop", "cancelled");
    let removed = a.json(&["task", "rm", "shop", "--yes"]);
    let backup = removed["backup"].as_str().unwrap();
    a.gdn(&["task", "import", backup]).exits(0);
    let known = events(&a);
    a.waits_until_followed_by("b");
    drop(daemon_a.kill());
    b.waits_until_it_runs();
    waits_for(&b, "shop", "cancelled");
    assert_eq!(events(&b), known);
    drop(daemon_b.stop());
}

#[test]
fn rep_1_prop_3_submitted_work_is_applied_on_another_node() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let (a, b) = two(&server, proposals::home());
    let (daemon_a, daemon_b) = (Daemon::serving(&a.home), Daemon::start(&b.home));
    proposals::worked(&a.home);
    let made = a.json(&["proposal", "create", "r1", "coder", "--notes", "for Ada"]);
    assert_eq!(made["state"], "open");
    let shown = a.json(&["proposal", "diff", "r1", "coder"]);
    drop(daemon_a.kill());

    b.waits_until_it_runs();
    assert_eq!(b.json(&["proposal", "diff", "r1", "coder"]), shown);
    b.gdn(&["verify"]).exits(0);
    b.gdn(&["proposal", "apply", "r1", "coder", "--yes"])
        .exits(0);
    let read = |path: &str| fs::read_to_string(a.home.project().join(path)).ok();
    assert_eq!(read("src/a.txt").as_deref(), Some("one 2 three\n"));
    assert_eq!(read("src/old.txt"), None);

    // The first node has its latest version.
    let daemon_a = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    drop(daemon_b.kill());
    a.waits_until_it_runs();
    let listed = a.json(&["proposal", "list"]);
    assert_eq!(listed["proposals"][0]["state"], "applied");
    drop(daemon_a.stop());
}

#[test]
fn rep_1_bundle_7_changed_configuration_resumes_on_another_node() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let (a, b) = two(&server, poet());
    let (daemon_a, daemon_b) = (Daemon::serving(&a.home), Daemon::start(&b.home));
    a.ask("main", "answer in verse");
    assert_eq!(a.ask("main", "hello"), VERSE);
    let reply = a.ask("main", "give yourself a shell");
    assert!(reply.contains("waiting"), "{reply}");
    let before = status(&a.home);
    drop(daemon_a.kill());

    b.waits_until_it_runs();
    assert_eq!(b.ask("main", "hello"), VERSE);
    let after = b.json(&["bundle", "status"]);
    assert_eq!(after["active"], before["active"]);
    // It reports the node on which it continues.
    let text = b.history("main").to_string();
    assert!(text.contains("continues on node `b`"), "{text}");
    // Pending decisions can be made here.
    let id = before["changesets"][0]["changesetId"].as_str().unwrap();
    b.gdn(&["bundle", "diff", id])
        .exits(0)
        .prints(&["+kind: Tool"]);
    b.gdn(&["bundle", "approve", id]).exits(0);
    wait_until("it is decided", || {
        b.json(&["bundle", "status"])["changesets"][0]["state"] != "waiting"
    });
    drop(daemon_b.stop());
}
