//! A log whose server does not confirm, or does not let this node connect: all commands report it,
//! with the reason (`REP-1`).
//!
//! Without PostgreSQL these tests are skipped.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use goondan_tests::alerts::rules;
use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::{PostgresServer, ROLE};
use goondan_tests::projects::LAB;
use goondan_tests::promql::Scrapes;
use goondan_tests::scrape::Scrape;
use goondan_tests::{Daemon, Home, wait_until};

/// Exit code of `gdn` if something is degraded.
const DEGRADED: i32 = 16;

/// True if the alert for a silent log would fire with the current metrics, if they lasted long
/// enough.
fn fires(node: &ClusterNode) -> bool {
    let output = node.home.gdn(&["metrics"]).exits(0).stdout;
    let mut all = rules().into_iter();
    let rule = all.find(|rule| rule.name == "GoondanNothingAcknowledged");
    let expression = rule.unwrap().expression.replace("> 15", "> 1");
    let mut scrapes = Scrapes::default();
    scrapes.add(Scrape::read(&output));
    !scrapes.evaluate(&expression).is_empty()
}

/// Age of the oldest event.
fn oldest_age(node: &ClusterNode) -> f64 {
    let output = node.home.gdn(&["metrics"]).exits(0).stdout;
    let age = Scrape::read(&output).sum("goondan_event_oldest_age_seconds", &[]);
    age.unwrap_or(0.0)
}

/// Waits until `status`, `ps`, `node list` and `doctor` report that nothing is acknowledged, and
/// the reason.
fn all_say(node: &ClusterNode, reason: &str) {
    let told = ["nothing is acknowledged for", reason];
    wait_until("the status says so, and why", || {
        let output = node.gdn(&["status"]).stderr;
        told.iter().all(|told| output.contains(told))
    });
    node.gdn(&["status"]).exits(DEGRADED).tells(&told);
    node.gdn(&["ps"]).exits(DEGRADED).tells(&told);
    node.gdn(&["node", "list"]).exits(0).tells(&told);
    node.gdn(&["doctor"]).exits(DEGRADED).prints(&[reason]);
    wait_until("the alert fires", || fires(node));
}

fn all_is_well(node: &ClusterNode) {
    wait_until("the status is well again", || {
        node.gdn(&["status"]).code == 0
    });
    node.gdn(&["ps"]).exits(0);
    assert!(!fires(node));
}

#[test]
fn rep_1_missing_synchronous_standby_is_reported_everywhere() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let a = ClusterNode::first(&server);
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");
    all_is_well(&a);

    assert_eq!(
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (gone)'"),
        "ALTER SYSTEM"
    );
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    wait_until("the server waits for a standby", || {
        server.sql("SHOW synchronous_standby_names") == "ANY 1 (gone)"
    });
    // Before anything is written.
    all_say(&a, "a synchronous standby");
    assert_eq!(oldest_age(&a), 0.0);
    let sending = a
        .home
        .start_gdn(&["--project", &a.project, "send", "--instance", "x", "echo 2"]);
    wait_until("the age of what waits to be acknowledged grows", || {
        oldest_age(&a) > 1.0
    });
    all_say(&a, "a synchronous standby");
    daemon.log().wait_for("the log says so", |line| {
        line["message"] == "nothing is acknowledged: the workspace's log does not confirm writes"
    });

    assert_eq!(
        server.sql("ALTER SYSTEM RESET synchronous_standby_names"),
        "ALTER SYSTEM"
    );
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    sending.wait().exits(0).prints(&["2"]);
    all_is_well(&a);
    drop(daemon.stop());
}

#[test]
fn rep_1_a_rotated_password_is_named_and_read_again() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let made = "CREATE ROLE node LOGIN SUPERUSER PASSWORD 'before'";
    assert_eq!(server.sql(made), "CREATE ROLE");
    let rules = format!("local all {ROLE} trust\nlocal all node scram-sha-256\n");
    std::fs::write(server.sql("SHOW hba_file"), rules).unwrap();
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    let url = |password: &str| {
        format!(
            "postgres://node:{password}@/postgres?host={}",
            server.host()
        )
    };
    let a = ClusterNode::with(Home::new(LAB), "a", &url("before"));
    let daemon = Daemon::serving(&a.home);
    assert_eq!(a.ask("x", "echo 1"), "1");

    assert_eq!(server.sql("ALTER ROLE node PASSWORD 'after'"), "ALTER ROLE");
    let ended =
        "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE usename = 'node'";
    assert_eq!(server.sql(ended), "t");
    let sending = a
        .home
        .start_gdn(&["--project", &a.project, "send", "--instance", "x", "echo 2"]);
    all_say(&a, "password authentication failed");

    let config = a.home.state_root().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    a.home.write(
        "state/config.json",
        &text.replace("node:before@", "node:after@"),
    );
    sending.wait().exits(0).prints(&["2"]);
    all_is_well(&a);
    let log = daemon.stop();
    let log = format!("{:?}", log.lines());
    assert!(
        !log.contains("before@") && !log.contains("after@"),
        "a password is in the log"
    );
}
