//! Two daemons with one log: a workspace survives the loss of its node (`REP-1`).
//!
//! Each has a separate state root, and both have the project at the same path. Without PostgreSQL
//! these tests are skipped with a message.

use std::collections::BTreeSet;
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::PostgresServer;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::wait::{PATIENCE, within};
use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::{Value, json};

use crate::proposals;

/// Exit code of a daemon whose workspace another node owns.
const DEPOSED: i32 = 7;
/// The exit code of `gdn` without a daemon.
const NOT_RUNNING: i32 = 3;
/// The exit code of `gdn daemon verify` that found damage.
const DAMAGED: i32 = 15;

/// Number of faults of three daemons; the long form is 100.
const FAULTS_VAR: &str = "GOONDAN_TEST_REPLICATION_FAULTS";
const FAULTS: u64 = 6;

/// Waits until two nodes have the same files: deferred writes are complete, and replicated.
fn have_the_same_files(one: &ClusterNode, other: &ClusterNode) {
    let are_same = || (one.files() == other.files()).then_some(());
    if within(PATIENCE, are_same).is_some() {
        return;
    }
    let (one, other) = (one.files(), other.files());
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name));
    let differ: Vec<_> = differ.collect();
    panic!("not the same on both: {differ:?}");
}

fn says(messages: &Value, text: &str) -> bool {
    messages.to_string().contains(text)
}

#[test]
fn rep_1_workspace_resumes_on_another_node_after_a_kill() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    for n in 0..3 {
        assert_eq!(a.ask("x", &format!("echo {n}")), n.to_string());
    }
    a.gdn(&["node", "list"])
        .exits(0)
        .prints(&["this one", "RUNS ON"]);
    // The server settings that speed up the tests are not safe for production.
    a.gdn(&["doctor"])
        .exits(16)
        .prints(&["log server", "fsync: off", "set `fsync = on`"]);
    a.waits_until_followed_by("b");
    let before = a.history("x");
    let sent = ["send", "--no-wait", "--instance", "x", "hold h"];
    a.gdn(&sent).exits(0);
    wait_until("the tool runs", || a.home.note("h.runs") == "run\n");
    drop(daemon_a.kill());

    b.waits_until_it_runs();
    // The call in progress ended with its node, and is reported with an unknown outcome.
    a.home.write("notes/h.go", "");
    wait_until("the turn is over", || says(&b.history("x"), "done h"));
    let after = b.history("x");
    for message in before.as_array().unwrap() {
        assert!(
            after.as_array().unwrap().contains(message),
            "{message} is lost"
        );
    }
    assert!(says(&after, "E_TOOL_INTERRUPTED"), "{after:#}");
    assert_eq!(b.ask("x", "echo on"), "on");
    let told = b.workspace().unwrap();
    assert_eq!((&told["owner"], &told["epoch"]), (&json!("b"), &json!(2)));

    // The first node is now a standby, and reports it.
    let daemon_a = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    let refused = a.gdn(&["run"]).exits(10);
    refused.tells(&["node b runs this workspace", "gdn daemon node list"]);
    drop(daemon_b.kill());
    a.waits_until_it_runs();
    assert_eq!(a.ask("x", "echo back"), "back");
    assert!(says(&a.history("x"), "on"));
    drop(daemon_a.stop());
}

#[test]
fn rep_1_an_owner_that_slept_ends_and_its_children_with_it() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    a.waits_until_followed_by("b");
    processes::signal(daemon_a.pid(), Signal::SIGSTOP);
    b.waits_until_it_runs();
    assert_eq!(b.ask("x", "echo 2"), "2");
    processes::signal(daemon_a.pid(), Signal::SIGCONT);
    let told = daemon_a.ends_with(DEPOSED);
    assert!(
        told.contains("node b has taken the workspace over"),
        "{told}"
    );

    let daemon_a = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    have_the_same_files(&a, &b);
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_lost_server_blocks_acknowledgments_until_it_returns() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    server.crash();
    let mut sending = a
        .home
        .start_gdn(&["send", "--no-wait", "--instance", "x", "echo 2"]);
    daemon.log().wait_for("it is noticed", |line| {
        line["process"] == "replica" && line["reason"] == "the connection was lost"
    });
    assert!(!sending.has_ended(), "acknowledged without the log");
    server.start();
    sending.wait().exits(0);
    assert_eq!(a.ask("x", "echo 3"), "3");
    let history = a.history("x").to_string();
    assert_eq!(history.matches("echo 2").count(), 1, "{history}");
    // It does not wait forever when it must stop either.
    server.crash();
    let sending = a
        .home
        .start_gdn(&["send", "--no-wait", "--instance", "x", "echo 4"]);
    drop(daemon.stop());
    assert_ne!(sending.wait().code, 0, "acknowledged without the log");
}

#[test]
fn rep_1_files_older_than_the_log_are_added_to_it() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::with(proposals::home(), "a", &server.url());
    let config = a.home.state_root().join("config.json");
    let replicating = std::fs::read(&config).unwrap();
    a.home.write("state/config.json", "{}");
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo before"), "before");
    let work = a.home.work_dir("x");
    let own = work.join("own");
    a.home.write(
        own.strip_prefix(a.home.path()).unwrap().to_str().unwrap(),
        "of the tools",
    );
    let new = [
        "task",
        "new",
        "Before",
        "--id",
        "before",
        "--agent",
        "worker",
        "--description",
        "Wait.",
    ];
    a.gdn(&new).exits(0);
    proposals::worked(&a.home);
    a.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    drop(daemon.stop());

    a.home.write(
        "state/config.json",
        std::str::from_utf8(&replicating).unwrap(),
    );
    let daemon = Daemon::start(&a.home);
    a.waits_until_it_runs();
    assert!(says(&a.history("x"), "before"));
    assert_eq!(std::fs::read(&own).unwrap(), b"of the tools");
    let b = a.beside(&server, "b");
    let daemon_b = Daemon::start(&b.home);
    a.waits_until_followed_by("b");
    drop(daemon.kill());
    b.waits_until_it_runs();
    assert!(says(&b.history("x"), "before"));
    assert_eq!(b.ask("x", "echo after"), "after");
    let task = b.json(&["task", "show", "before"]);
    assert_eq!(task["info"]["title"], "Before");
    b.gdn(&["proposal", "reject", "r1", "coder", "--reason", "not now"])
        .exits(0);
    b.gdn(&["verify"]).exits(0);

    // Its files are recreated there, and files from tools are unchanged.
    let daemon = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    drop(daemon_b.kill());
    a.waits_until_it_runs();
    assert!(says(&a.history("x"), "after"));
    assert_eq!(std::fs::read(&own).unwrap(), b"of the tools");
    let shown = a.json(&["proposal", "show", "r1", "coder"]);
    assert_eq!(shown["state"], "rejected");
    drop(daemon.stop());
}

#[test]
fn rep_1_standby_with_altered_files_rebuilds_them() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    for n in 0..5 {
        a.ask("x", &format!("echo number {n}"));
    }
    a.waits_until_followed_by("b");
    let workspace = b.home.workspace_dir();
    let messages = workspace.join("instances/x/messages");
    let altered = alter(&b.home, &messages, "number 2", "number 9");
    assert!(altered, "nothing to alter");
    drop(daemon_a.kill());
    b.waits_until_it_runs();
    daemon_b.log().wait_for("it is said", |line| {
        line["message"] == "damaged workspace file on this node"
    });
    let history = b.history("x").to_string();
    assert!(
        history.contains("number 2") && !history.contains("number 9"),
        "{history}"
    );
    b.gdn(&["verify"]).exits(0);
    drop(daemon_b.stop());
}

#[test]
fn rep_1_verify_finds_altered_standby_which_rebuilds_its_files() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    for n in 0..5 {
        a.ask("x", &format!("echo number {n}"));
    }
    a.waits_until_followed_by("b");
    let verify = || b.home.gdn(&["--json", "verify", "--all"]);
    let whole = verify().exits(0).json();
    assert_eq!(whole["instances"], 1, "{whole:#}");
    assert!(whole["files"].as_u64() > Some(3), "{whole:#}");

    let messages = b.home.workspace_dir().join("instances/x/messages");
    assert!(alter(&b.home, &messages, "number 2", "number 9"));
    let id = b.workspace().unwrap()["workspaceId"].clone();
    let found = b
        .home
        .gdn(&["--workspace", id.as_str().unwrap(), "verify"])
        .exits(DAMAGED);
    found.prints(&["x", "rebuilds its files of the workspace"]);
    // Requests meanwhile fail with a retryable error.
    wait_until("the files are as they were written", || verify().code == 0);
    have_the_same_files(&a, &b);
    assert_eq!(a.ask("x", "echo on"), "on");
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_log_starts_at_its_last_snapshot_as_do_late_nodes() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let oldest = || server.sql("SELECT coalesce(min(oldest), 0) FROM goondan.heads");
    let snapshots = || server.sql("SELECT count(DISTINCT reference) FROM goondan.parts");
    let mut asked = 0;
    let mut ask_until = |is_enough: &dyn Fn() -> bool| {
        wait_until("the log has forgotten what a snapshot has", || {
            a.ask("x", &format!("echo number {asked}."));
            asked += 1;
            is_enough()
        });
    };
    ask_until(&|| oldest() != "1");
    let first = oldest();
    ask_until(&|| oldest() != first);
    wait_until("one snapshot is left", || snapshots() == "1");

    // An empty node begins with it.
    let daemon_b = Daemon::start(&b.home);
    a.waits_until_followed_by("b");
    let restored = "workspace files restored from a snapshot";
    let is_restored = |line: &Value| line["message"] == restored;
    daemon_b.log().wait_for("it is restored", is_restored);
    drop(daemon_a.kill());
    b.waits_until_it_runs();
    let history = b.history("x").to_string();
    for n in 0..asked {
        let times = history.matches(&format!("number {n}.")).count();
        assert_eq!(times, 2, "number {n}: {history}");
    }
    b.gdn(&["verify"]).exits(0);
    assert_eq!(b.ask("x", "echo on"), "on");

    // So does a node that was killed while it owned the workspace: its files may contain records
    // that are not in the log.
    let daemon_a = Daemon::start(&a.home);
    b.waits_until_followed_by("a");
    daemon_a.log().wait_for("it is restored", is_restored);
    have_the_same_files(&a, &b);
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn rep_1_workspace_moves_and_returns_while_its_daemons_run() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let b = a.beside(&server, "b");
    let daemon_a = Daemon::serving(&a.home);
    let daemon_b = Daemon::start(&b.home);
    let mut asked = 0;
    let mut ask = |node: &ClusterNode| {
        let text = format!("number {asked}.");
        assert_eq!(node.ask("x", &format!("echo {text}")), text);
        asked += 1;
    };
    ask(&a);
    a.waits_until_followed_by("b");
    let workspace = a.workspace().unwrap()["workspaceId"].clone();
    let workspace = workspace.as_str().unwrap();
    a.gdn(&["node", "move", workspace, "--to", "c"])
        .exits(2)
        .tells(&["node `c` has not recently reported", "nodes that have: b"]);
    ask(&a);
    for (from, to, name) in [(&a, &b, "b"), (&b, &a, "a"), (&a, &b, "b")] {
        let moved = from.gdn_node(&["--json", "move", workspace, "--to", name]);
        let moved = moved.exits(0).json();
        assert_eq!(moved["node"], name);
        to.waits_until_it_runs();
        assert!(!from.runs());
        ask(to);
        to.waits_until_followed_by(if name == "a" { "b" } else { "a" });
        to.gdn(&["verify"]).exits(0);
    }
    // A drained node hands everything to the other one, and takes nothing back.
    b.gdn_node(&["drain"])
        .exits(0)
        .prints(&["runs on a", "takes no workspace"]);
    a.waits_until_it_runs();
    ask(&a);
    b.gdn(&["node", "list"])
        .exits(0)
        .tells(&["b takes no workspace that another node can run"]);
    b.gdn(&["node", "drain", "--undo"]).exits(0);
    let history = a.history("x").to_string();
    for n in 0..asked {
        let times = history.matches(&format!("number {n}.")).count();
        assert_eq!(times, 2, "number {n}: {history}");
    }
    have_the_same_files(&a, &b);
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

/// Replaces one text with another of the same length, in the files of a directory of a home;
/// returns true if it was found.
fn alter(home: &Home, dir: &Path, from: &str, to: &str) -> bool {
    let mut is_there = false;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        if text.contains(from) {
            let within = path.strip_prefix(home.path()).unwrap();
            home.write(within.to_str().unwrap(), &text.replace(from, to));
            is_there = true;
        }
    }
    is_there
}

#[test]
fn rep_1_stopped_daemon_regains_its_workspace_unchanged_at_once() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    drop(daemon.stop());
    let note = wait_for("it is noted", || {
        let notes = std::fs::read_dir(a.home.state_root().join("replication")).unwrap();
        let mut notes = notes.map(|entry| entry.unwrap().path());
        let note = notes.find(|path| path.extension().is_some_and(|it| it == "json"))?;
        Some(std::fs::read_to_string(note).unwrap())
    });
    assert!(
        note.contains("asNoted"),
        "its files are to be made anew: {note}"
    );
    let daemon = Daemon::start(&a.home);
    a.waits_until_it_runs();
    assert_eq!(a.ask("x", "echo 2"), "2");
    assert!(says(&a.history("x"), "echo 1"));
    drop(daemon.stop());
}

#[test]
fn rep_1_a_daemon_does_not_write_past_the_log_it_has_followed() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    drop(daemon.stop());
    a.home.write("state/config.json", "{}");
    let refused = a.home.command(&bin(ORCHESTRATOR), &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(printed.contains("restore `replication`"), "{printed}");
}

#[test]
fn rep_1_a_server_that_was_never_reached_changes_nothing() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("x", "echo before"), "before");
    drop(daemon.stop());
    let url = format!("postgres:///goondan?host={}", home.notes().display());
    let config = json!({"replication": {"node": "a", "postgres": url}}).to_string();
    home.write("state/config.json", &config);
    let daemon = Daemon::start(&home);
    daemon.log().wait_for("it is asked for", |line| {
        line["process"] == "replica" && line["level"] == "warn"
    });
    drop(daemon.stop());
    home.write("state/config.json", "{}");
    let daemon = Daemon::serving(&home);
    assert!(
        home.history("x")
            .iter()
            .any(|it| it.to_string().contains("echo before"))
    );
    assert_eq!(home.ask("x", "echo after"), "after");
    drop(daemon.stop());
}

/// Three daemons, and the expected results.
struct Swarm {
    nodes: Vec<ClusterNode>,
    daemons: Vec<Option<Daemon>>,
    server: PostgresServer,
    /// Answered texts, with their conversations.
    answered: Vec<(String, String)>,
    sent: u64,
}

impl Swarm {
    fn new(server: PostgresServer) -> Self {
        let a = ClusterNode::first(&server);
        let others = ["b", "c"].map(|name| a.beside(&server, name));
        let mut swarm = Self {
            daemons: vec![Some(Daemon::serving(&a.home)), None, None],
            nodes: vec![a],
            server,
            answered: Vec::new(),
            sent: 0,
        };
        swarm.nodes.extend(others);
        swarm.starts_all();
        swarm
    }

    fn starts_all(&mut self) {
        for (node, daemon) in self.nodes.iter().zip(&mut self.daemons) {
            if daemon.is_none() {
                *daemon = Some(Daemon::start(&node.home));
            }
        }
    }

    /// Index of the node that runs the workspace, except the given one.
    fn owner(&self, but: Option<usize>) -> usize {
        let mut all = 0..self.nodes.len();
        wait_for("a node runs the workspace", || {
            all.clone()
                .find(|at| {
                    Some(*at) != but && self.daemons[*at].is_some() && self.nodes[*at].runs()
                })
                .inspect(|_| all = 0..self.nodes.len())
        })
    }

    /// Sends new questions to the current owner until one is answered.
    fn asks(&mut self, but: Option<usize>) {
        let key = format!("k{}", self.sent % 3);
        wait_for("a question is answered", || {
            let text = format!("number {}.", self.sent);
            self.sent += 1;
            let owner = &self.nodes[self.owner(but)];
            let asked = owner.gdn(&["send", "--instance", &key, &format!("echo {text}")]);
            let is_answered = asked.code == 0 && asked.stdout.trim_end() == text;
            is_answered.then(|| self.answered.push((key.clone(), text)))
        });
    }

    fn kills(&mut self, at: usize) {
        if let Some(daemon) = self.daemons[at].take() {
            drop(daemon.kill());
        }
    }

    /// Stops a daemon until another one runs the workspace, or has answered.
    fn pauses(&mut self, at: usize) {
        let was_owner = self.owner(None) == at;
        let pid = self.daemons[at].as_ref().unwrap().pid();
        processes::signal(pid, Signal::SIGSTOP);
        self.asks(Some(at));
        processes::signal(pid, Signal::SIGCONT);
        if was_owner {
            let daemon = self.daemons[at].take().unwrap();
            daemon.ends_with(DEPOSED);
        }
    }

    /// Kills the log client. If a record was in flight, the daemon exits, too.
    fn kills_the_program(&mut self, at: usize) {
        let home = &self.nodes[at].home;
        for replica in processes::running(home.path(), "goondan-replica") {
            processes::signal(replica.pid, Signal::SIGKILL);
        }
        let has_ended = wait_for("it is started again, or its daemon ends", || {
            let listed = home.gdn(&["--json", "node", "list"]);
            match listed.code {
                0 => (listed.json()["isConnected"] == true).then_some(false),
                NOT_RUNNING => Some(true),
                _ => None,
            }
        });
        if has_ended {
            let daemon = self.daemons[at].take().unwrap();
            daemon.ends_with(DEPOSED);
        }
    }
}

#[test]
fn rep_1_no_answered_event_is_lost_or_duplicated_under_faults() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let faults = std::env::var(FAULTS_VAR).map_or(FAULTS, |text| text.parse().unwrap());
    let mut random = Random::announced();
    let mut swarm = Swarm::new(server);
    for _ in 0..faults {
        swarm.asks(None);
        let at = usize::try_from(random.below(3)).unwrap();
        match random.below(4) {
            0 => swarm.kills(at),
            1 => swarm.pauses(at),
            2 => {
                swarm.server.crash();
                swarm.server.start();
            }
            _ => swarm.kills_the_program(at),
        }
        swarm.asks(None);
        swarm.starts_all();
    }
    let owner = swarm.owner(None);
    for (key, text) in &swarm.answered {
        let history = swarm.nodes[owner].history(key).to_string();
        let times = history.matches(text.as_str()).count();
        assert_eq!(
            times, 2,
            "{key}: `{text}` is not there once, with its answer: {history}"
        );
    }
    for other in ["a", "b", "c"] {
        swarm.nodes[owner].waits_until_followed_by(other);
    }
    wait_until("all nodes have the same files", || {
        let of_owner = swarm.nodes[owner].files();
        swarm.nodes.iter().all(|node| node.files() == of_owner)
    });
}
