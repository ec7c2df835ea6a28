//! A workspace goes to nodes alone that can run it, and a move that fails leaves it where it was (`REP-1`).
//!
//! Without PostgreSQL these tests are left out.

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::node::Node;
use goondan_tests::postgres::Server;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};

/// The exit code of `gdn` when something does not run as it should.
const DEGRADED: i32 = 16;

/// A daemon with the variable that the project asks for.
fn with_key(node: &Node) -> Daemon {
    let mut command = node.home.command(&bin(ORCHESTRATOR), &[]);
    command.env("HOOK_KEY", "a-shared-secret");
    Daemon::start_command(&node.home, command)
}

#[test]
fn rep_1_a_standby_that_could_not_run_a_workspace_takes_it_not() {
    let Some(server) = Server::running(&[]) else {
        return;
    };
    let project = LAB.replace(
        "    path: /hook\n",
        "    path: /hook\n  secrets: {hmac: {valueFrom: {env: HOOK_KEY}}}\n",
    );
    let a = Node::with(Home::new(&project), "a", &server.url());
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
        .tells(&["b could not run it", "HOOK_KEY"]);
    wait_until("the owner does not hear that it follows", || {
        let ran = a.gdn(&["node", "move", &workspace_of(&a)]);
        assert_ne!(ran.code, 0, "{ran:?}");
        ran.stderr.contains("could run it")
    });
    assert!(a.runs());

    drop(daemon_a.kill());
    wait_until("the owner is missed", || {
        b.workspace().unwrap()["isOwnerHeard"] == false
    });
    b.gdn(&["node", "list"]).exits(0).prints(&["a (not heard)"]);
    assert!(!b.runs());
    drop(daemon_b.stop());
    let daemon_b = with_key(&b);
    b.waits_until_it_runs();
    assert_eq!(b.ask("x", "echo 2"), "2");
    drop(daemon_b.stop());
}

fn workspace_of(node: &Node) -> String {
    let workspace = node.workspace().unwrap();
    workspace["workspaceId"].as_str().unwrap().to_owned()
}

#[test]
fn rep_1_a_move_that_nobody_takes_is_undone() {
    let Some(server) = Server::running(&[]) else {
        return;
    };
    let a = Node::first(&server);
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
fn rep_1_a_node_that_leaves_and_returns_twice_follows_again() {
    let Some(server) = Server::running(&[]) else {
        return;
    };
    let a = Node::first(&server);
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
