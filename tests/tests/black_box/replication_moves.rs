//! A workspace moves only to nodes that can run it, and a failed move leaves it on its node
//! (`REP-1`).
//!
//! Without PostgreSQL these tests are skipped.

use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::{PostgresServer, ROLE};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

/// Exit code of `gdn` if something is degraded.
const DEGRADED: i32 = 16;
/// Exit code for an invalid request.
const USAGE: i32 = 2;
/// Exit code for a workspace that another node owns.
const CONFLICT: i32 = 10;

/// A daemon with the variable that the project needs.
fn with_key(node: &ClusterNode) -> Daemon {
    let mut command = node.home.command(&bin(ORCHESTRATOR), &[]);
    command.env("HOOK_KEY", "a-shared-secret");
    Daemon::start_command(&node.home, command)
}

/// A project that needs a variable.
fn with_secret() -> String {
    LAB.replace(
        "    path: /hook\n",
        "    path: /hook\n  secrets: {hmac: {valueFrom: {env: HOOK_KEY}}}\n",
    )
}

#[test]
fn rep_1_a_standby_that_could_not_run_a_workspace_takes_it_not() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::with(Home::new(&with_secret()), "a", &server.url());
    let b = a.beside(&server, "b");
    let daemon_a = with_key(&a);
    a.gdn(&["run"]).exits(0);
    assert_eq!(a.ask("x", "echo 1"), "1");
    let daemon_b = Daemon::start(&b.home);
    wait_until("the standby says what it lacks", || {
        b.workspace()
            .is_some_and(|it| it["unfit"].to_string().contains("HOOK_KEY"))
    });
    b.gdn(&["node", "list"])
        .exits(0)
        .tells(&["b cannot run it", "HOOK_KEY"]);
    wait_until("the owner does not hear that it follows", || {
        let ran = a.gdn(&["node", "move", &workspace_of(&a)]);
        assert_ne!(ran.code, 0, "{ran:?}");
        ran.stderr.contains("can run it")
    });
    assert!(a.runs());

    drop(daemon_a.kill());
    wait_until("the owner is missed", || {
        b.workspace().unwrap()["isOwnerHeard"] == false
    });
    b.gdn(&["node", "list"])
        .exits(0)
        .prints(&["a (not responding)"]);
    b.gdn(&["status"])
        .exits(DEGRADED)
        .tells(&["node a", "does not respond"]);
    assert!(!b.runs());
    drop(daemon_b.stop());
    let daemon_b = with_key(&b);
    b.waits_until_it_runs();
    assert_eq!(b.ask("x", "echo 2"), "2");
    drop(daemon_b.stop());
}

/// Database role whose clients see only the first records of each log.
const BEHIND: &str = "behind";
/// Lag of a node that is far behind: the limit, with a margin for the records of a turn.
const LAG: u64 = 1_100;
/// Events that are sent between two looks at it.
const EVENTS_AT_ONCE: usize = 20;

/// Has clients of [`BEHIND`] see the records of all logs up to a position.
fn hides_records_after(server: &PostgresServer, position: u64) {
    drop(server.sql(&format!(
        "CREATE ROLE {BEHIND} LOGIN; \
         GRANT USAGE ON SCHEMA goondan TO {BEHIND}; \
         GRANT ALL ON ALL TABLES IN SCHEMA goondan TO {BEHIND}; \
         ALTER TABLE goondan.records ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY {BEHIND} ON goondan.records TO {BEHIND} USING (seq <= {position})"
    )));
}

/// Position of a node in the log of the workspace, as another node knows it.
fn position_of(known_by: &ClusterNode, node: &str) -> Option<u64> {
    let workspace = known_by.workspace()?;
    let replicas = workspace["replicas"].as_array()?;
    let replica = replicas.iter().find(|it| it["node"] == node)?;
    replica["position"].as_u64()
}

#[test]
fn rep_1_drain_and_move_choose_no_node_that_is_far_behind() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    // Without snapshots, which a node far behind would read in place of the records.
    a.is_configured(&json!({ "node": "a", "postgres": server.url() }));
    let b = a.beside(&server, "b");
    let of_behind = server.url().replace(ROLE, BEHIND);
    b.is_configured(&json!({ "node": "b", "postgres": of_behind }));
    let daemon_a = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    let first = position_of(&a, "a").unwrap();
    hides_records_after(&server, first);
    let daemon_b = Daemon::start(&b.home);
    wait_until("the standby reports its position", || {
        position_of(&a, "b").is_some()
    });
    let mut events = 1;
    while position_of(&a, "a").unwrap() < first + LAG {
        for _ in 0..EVENTS_AT_ONCE {
            let sent = a.gdn(&["send", "--no-wait", "--instance", "x", "echo more"]);
            drop(sent.exits(0));
        }
        events += EVENTS_AT_ONCE;
    }
    assert_eq!(a.ask("x", "echo 2"), "2");

    let workspace = workspace_of(&a);
    for command in [&["drain"][..], &["move", &workspace]] {
        a.gdn_node(command).exits(USAGE).tells(&[
            "node `b` is",
            "records behind",
            "needs time to catch up",
        ]);
        assert!(a.runs());
    }
    a.gdn_node(&["move", &workspace, "--to", "b"])
        .exits(USAGE)
        .tells(&["records behind"]);
    assert_eq!(a.ask("x", "echo 3"), "3");

    // A near node is chosen instead.
    let c = a.beside(&server, "c");
    // A snapshot of this one would replace the records that `b` sees, and `b` would miss them.
    c.is_configured(&json!({ "node": "c", "postgres": server.url() }));
    let daemon_c = Daemon::start(&c.home);
    a.waits_until_followed_by("c");
    a.gdn_node(&["drain"]).exits(0).prints(&["runs on c"]);
    c.waits_until_it_runs();
    assert!(!a.runs());

    // It is chosen again once it has read everything.
    // Without its policy, row-level security would hide all records, and the log would be another.
    drop(server.sql("ALTER TABLE goondan.records DISABLE ROW LEVEL SECURITY"));
    drop(server.sql(&format!("DROP POLICY {BEHIND} ON goondan.records")));
    c.waits_until_followed_by("b");
    drop(daemon_a.stop());
    c.gdn_node(&["drain"]).exits(0).prints(&["runs on b"]);
    b.waits_until_it_runs();
    assert_eq!(b.ask("x", "echo 4"), "4");
    let answered = b.history("x").as_array().unwrap().len() / 2;
    assert_eq!(answered, events + 3);
    drop(daemon_c.stop());
    drop(daemon_b.stop());
}

fn workspace_of(node: &ClusterNode) -> String {
    let workspace = node.workspace().unwrap();
    workspace["workspaceId"].as_str().unwrap().to_owned()
}

#[test]
fn rep_1_move_without_a_responding_target_is_undone() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    a.waits_until_followed_by("b");
    processes::signal(daemon_b.pid(), Signal::SIGSTOP);
    a.gdn(&["node", "move", &workspace_of(&a), "--to", "b"])
        .exits(DEGRADED)
        .tells(&["it runs here again"]);
    a.waits_until_it_runs();
    assert_eq!(a.ask("x", "echo 2"), "2");
    processes::signal(daemon_b.pid(), Signal::SIGCONT);
    a.waits_until_followed_by("b");
    assert!(!b.runs());
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_a_node_that_cannot_load_a_workspace_hands_it_on() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::with(Home::new(&with_secret()), "a", &server.url());
    let b = a.beside(&server, "b");
    let daemon_a = with_key(&a);
    a.gdn(&["run"]).exits(0);
    assert_eq!(a.ask("x", "echo 1"), "1");
    drop(daemon_a.stop());
    // Alone, it owns its workspace again, but cannot load it.
    let daemon_a = Daemon::start(&a.home);
    wait_until("it says so", || {
        let listed = a.gdn(&["node", "list"]).exits(0).stderr;
        listed.contains("a has it and cannot run it") && listed.contains("HOOK_KEY")
    });
    // Nodes hear that it is unfit before it owns the workspace.
    wait_until("its status says why", || {
        let status = a.gdn(&["status"]);
        status.code == DEGRADED && status.stderr.contains("HOOK_KEY")
    });
    let daemon_b = with_key(&b);
    b.waits_until_it_runs();
    assert_eq!(b.ask("x", "echo 2"), "2");
    a.gdn(&["node", "list"])
        .exits(0)
        .tells(&["a cannot run it", "HOOK_KEY"]);
    assert!(!a.runs());
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_a_node_that_leaves_runs_nothing_that_others_run() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    a.waits_until_followed_by("b");
    let config_of = |node: &ClusterNode| node.home.state_root().join("config.json");
    let without = |node: &ClusterNode| node.home.write("state/config.json", "{}");

    // The required action is reported each time, until it is done.
    let config = std::fs::read_to_string(config_of(&a)).unwrap();
    a.gdn(&["node", "leave"])
        .exits(USAGE)
        .tells(&["remove `replication` from"]);
    without(&a);
    a.gdn(&["node", "leave"])
        .exits(USAGE)
        .tells(&["node drain"]);
    a.gdn(&["node", "leave", "--keep"])
        .exits(USAGE)
        .tells(&["node `b` follows workspace", "node leave` on `b` first"]);
    let ended = daemon_a.stop();
    let refused = Daemon::starting(&a.home, a.home.command(&bin(ORCHESTRATOR), &[])).ends();
    assert_eq!(refused.0, Some(1), "{refused:?}");
    assert!(refused.1.contains("gdn daemon node leave"), "{refused:?}");
    drop(ended);

    // The follower leaves; the owner keeps the workspace, and is the last node.
    without(&b);
    b.gdn(&["node", "leave"])
        .exits(0)
        .prints(&["Node b has left"]);
    drop(daemon_b.wait());
    let daemon_b = Daemon::start(&b.home);
    assert!(!b.runs());
    assert!(
        !b.home
            .state_root()
            .join("workspaces")
            .join(name_of(&a))
            .exists()
    );
    a.home.write("state/config.json", &config);
    let daemon_a = Daemon::start(&a.home);
    a.waits_until_it_runs();
    without(&a);
    wait_until("b was not heard for long", || {
        a.gdn(&["node", "leave", "--keep"]).code == 0
    });
    drop(daemon_a.wait());
    let daemon_a = Daemon::start(&a.home);
    a.waits_until_it_runs();
    assert_eq!(a.ask("x", "echo 2"), "2");
    assert_eq!(a.history("x").as_array().unwrap().len(), 4);

    // A node with the old log runs nothing.
    let c = a.beside(&server, "c");
    let daemon_c = Daemon::start(&c.home);
    wait_until("it says who keeps it", || {
        c.home.gdn(&["node", "list"]).stdout.contains("a (left)")
    });
    c.gdn(&["run"])
        .exits(CONFLICT)
        .tells(&["its log has ended"]);
    assert!(!c.runs());
    for daemon in [daemon_a, daemon_b, daemon_c] {
        drop(daemon.stop());
    }
}

/// The name of the one directory of a workspace.
fn name_of(node: &ClusterNode) -> String {
    let dir = node.home.workspace_dir();
    dir.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Maximum time that a workspace may be without an owner after a failed move.
const UNOWNED_MAX: Duration = Duration::from_secs(15);

#[test]
fn rep_1_move_is_undone_within_seconds_if_its_target_dies() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 0"), "0");
    // Kills before the workspace is given up, before the other node's seal, and after it.
    for number in 0..3 {
        let daemon_b = Daemon::start(&b.home);
        a.waits_until_followed_by("b");
        let (workspace, said) = (workspace_of(&a), daemon_a.log().lines().len());
        let moving = a.home.start_gdn(&["node", "move", &workspace, "--to", "b"]);
        match number {
            0 => {}
            1 => {
                let given_up = "handing the workspace over to another node";
                let step = |line: &Value| line["message"] == given_up;
                daemon_a.log().wait_for_after(said, "it is given up", step);
            }
            _ => {
                let taken = |line: &Value| line["message"] == "this node owns the workspace";
                daemon_b.log().wait_for("it is taken", taken);
            }
        }
        drop(daemon_b.kill());
        let since = Instant::now();
        drop(moving.wait());
        wait_until("it runs here again", || a.runs());
        let took = since.elapsed();
        eprintln!("step {number}: {took:?}");
        assert!(took < UNOWNED_MAX, "step {number}: {took:?}");
        let text = format!("echo {number}");
        assert_eq!(a.ask("x", &text), number.to_string());
    }
    drop(daemon_a.stop());
}

#[test]
fn rep_1_a_node_that_leaves_and_returns_twice_follows_again() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let mut daemon_b = Daemon::start(&b.home);
    assert_eq!(a.ask("x", "echo 0"), "0");
    for round in 1..=3 {
        a.waits_until_followed_by("b");
        drop(daemon_b.stop());
        let note = format!("{}.json", workspace_of(&a));
        std::fs::remove_file(b.home.state_root().join("replication").join(note)).unwrap();
        assert_eq!(a.ask("x", &format!("echo {round}")), round.to_string());
        daemon_b = Daemon::start(&b.home);
        a.waits_until_followed_by("b");
        let before = b.home.state_root().join("replication/before");
        assert_eq!(std::fs::read_dir(before).unwrap().count(), round);
    }
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}
