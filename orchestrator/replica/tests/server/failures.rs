//! Crashing and slow servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};

use goondan_replication::chain::Chain;
use goondan_replication::log::PutAnswer;
use goondan_replication::names::Position;
use goondan_tests::wait::wait_until;

use crate::records::{behind, chain, seal, workspace};
use crate::replica::Replica;
use goondan_tests::postgres::PostgresServer;

/// Appends to a workspace's log until stopped. Returns the expected log.
fn append(replica: &Replica, name: &str, stop: &AtomicBool, done: &AtomicU64) -> Chain {
    let mut seen = chain(name);
    while !stop.load(Ordering::Relaxed) {
        let put = seal(&seen, 1);
        let mut answer = PutAnswer::Unknown;
        // A record with an unknown outcome is put again unchanged.
        while answer == PutAnswer::Unknown {
            answer = replica.put_when_there(&put);
        }
        let is_mine = match answer {
            PutAnswer::Done => true,
            PutAnswer::Taken(found) => found == put.record.bytes(),
            _ => false,
        };
        assert!(
            is_mine,
            "only one writes here, and nothing that was done is lost"
        );
        seen = behind(&seen, &put);
        done.fetch_add(1, Ordering::Relaxed);
    }
    seen
}

#[test]
fn rep_1_server_crashes_lose_and_duplicate_no_acknowledged_put() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let names = ["w0", "w1", "w2", "w3"];
    let chains = thread::scope(|scope| {
        let (replica, stop, done) = (&replica, &stop, &done);
        let begin = |name| scope.spawn(move || append(replica, name, stop, done));
        let writers = names.map(begin);
        for round in 1..=4 {
            let wanted = done.load(Ordering::Relaxed) + 40;
            wait_until("records are appended", || {
                done.load(Ordering::Relaxed) >= wanted
                    || writers.iter().any(ScopedJoinHandle::is_finished)
            });
            if round < 4 {
                server.crash();
                server.start();
            }
        }
        stop.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap())
    });
    for (name, seen) in names.into_iter().zip(chains) {
        let mut stands = chain(name);
        for record in replica.all(&workspace(name)) {
            stands.follow_bytes(record).unwrap();
        }
        assert_eq!(stands, seen, "{name}");
    }
    let log = replica.log();
    assert!(log.contains("log server unreachable"), "{log}");
}

#[test]
fn late_log_server_is_used_and_logged_once() {
    let Some(server) = PostgresServer::made(&[]) else {
        return;
    };
    let replica = Replica::start(&server.url());
    let put = seal(&chain("w"), 1);
    assert_eq!(replica.put(&put), PutAnswer::Unavailable);
    server.start();
    assert_eq!(replica.put_when_there(&put), PutAnswer::Done);
    replica.wait_for_server();
    let log = replica.log();
    for text in ["log server unreachable", "log server reachable"] {
        let count = log.lines().filter(|line| line.contains(text)).count();
        assert_eq!(count, 2, "once for each connection: {log}");
    }
}

#[test]
fn tables_of_another_version_are_left_alone() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    drop(Replica::ready(&server.url()));
    drop(server.sql("UPDATE goondan.format SET version = 99"));
    let replica = Replica::start(&server.url());
    wait_until("it is said", || replica.log().contains("have version 99"));
    assert_eq!(replica.put(&seal(&chain("w"), 1)), PutAnswer::Unavailable);
    assert_eq!(server.sql("SELECT count(*) FROM goondan.records"), "0");
}

#[test]
fn several_programs_make_the_tables_at_once() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replicas = [0; 4].map(|_| Replica::start(&server.url()));
    for (life, replica) in replicas.iter().enumerate() {
        replica.wait_for_server();
        let name = format!("w{life}");
        assert_eq!(replica.put(&seal(&chain(&name), 1)), PutAnswer::Done);
        let page = replica.page(&workspace(&name), Position(1));
        assert_eq!(page.head, Position(1));
    }
    assert_eq!(server.sql("SELECT count(*) FROM goondan.format"), "1");
}

#[test]
fn server_connection_is_encrypted_and_verified_against_the_url() {
    let Some(server) = PostgresServer::with_tls() else {
        return;
    };
    let replica = Replica::ready(&server.tls_url("localhost", "authority.pem"));
    assert_eq!(replica.put(&seal(&chain("w"), 1)), PutAnswer::Done);
    let encrypted =
        "SELECT bool_and(ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'goondan-replica a'";
    assert_eq!(server.sql(encrypted), "t|5");
    for (host, authority) in [
        ("localhost", "other-authority.pem"),
        ("127.0.0.2", "authority.pem"),
    ] {
        let replica = Replica::start(&server.tls_url(host, authority));
        wait_until("it is refused", || {
            replica.log().contains("invalid peer certificate")
        });
        assert_eq!(replica.put(&seal(&chain("w"), 2)), PutAnswer::Unavailable);
    }
}
