//! Standbys of the server that stop and are replaced.

use goondan_replication::log::{PutAnswer, ReadAnswer};
use goondan_replication::names::Position;
use goondan_replication::wire::{LogAnswer, LogCommand};
use goondan_tests::wait::{wait_for, wait_until};

use crate::records::{behind, chain, seal, workspace};
use crate::replica::{CONNECTIONS, Replica};
use goondan_tests::postgres::{PostgresServer, url_of};

/// A primary whose commits wait for a standby.
fn pair() -> Option<(PostgresServer, PostgresServer)> {
    let primary = PostgresServer::running(&[])?;
    let standby = PostgresServer::standby_of(&primary, "sb");
    drop(primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'sb'"));
    drop(primary.sql("SELECT pg_reload_conf()"));
    wait_until("the standby is synchronous", || {
        primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync"
    });
    Some((primary, standby))
}

/// Number of server processes that serve the program.
fn backends(server: &PostgresServer) -> usize {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'goondan-replica%'";
    server.sql(count).parse().unwrap()
}

#[test]
fn rep_1_puts_wait_for_a_stopped_standby_and_reads_do_not() {
    let Some((primary, standby)) = pair() else {
        return;
    };
    let replica = Replica::ready(&primary.url());
    let first = seal(&chain("w"), 1);
    assert_eq!(replica.put(&first), PutAnswer::Done);
    let paused = standby.paused();
    let seen = behind(&chain("w"), &first);
    let second = seal(&seen, 1);
    let unknown = LogAnswer::Put(PutAnswer::Unknown);
    let unavailable = LogAnswer::Put(PutAnswer::Unavailable);
    let mut answers = Vec::new();
    wait_until("so many are late that no more are begun", || {
        let offered = replica.begin(LogCommand::Put(second.clone()));
        let page = replica.page(&workspace("w"), Position(1));
        assert_eq!(
            page.head,
            Position(1),
            "what is not confirmed is not told of"
        );
        answers.push(offered.recv().unwrap());
        replica.log().contains("too many unfinished statements")
    });
    assert_eq!(answers[0], unknown);
    assert!(
        answers
            .iter()
            .all(|it| *it == unknown || *it == unavailable)
    );
    assert_eq!(replica.ask(LogCommand::Put(second.clone())), unavailable);
    // One connection became two late ones.
    assert_eq!(backends(&primary), CONNECTIONS + 1);
    drop(paused);
    let answer = wait_for("it goes on by itself", || {
        let answer = replica.put(&second);
        (!matches!(answer, PutAnswer::Unknown | PutAnswer::Unavailable)).then_some(answer)
    });
    assert_eq!(answer, PutAnswer::Taken(second.record.bytes().to_vec()));
    assert_eq!(replica.page(&workspace("w"), Position(2)).head, Position(2));
    let third = seal(&behind(&seen, &second), 1);
    assert_eq!(replica.put_when_there(&third), PutAnswer::Done);
    let log = replica.log();
    let late = log
        .lines()
        .filter(|line| line.contains("synchronous standby that does not"));
    assert_eq!(late.count(), 1, "{log}");
}

/// An interrupted wait leaves the record on the primary only. It is neither reported as done nor
/// found there before the standby has it.
#[test]
fn rep_1_a_wait_that_is_cut_short_is_no_commit() {
    let Some((primary, standby)) = pair() else {
        return;
    };
    let replica = Replica::ready(&primary.url());
    let mut seen = chain("w");
    for cut_short in ["pg_cancel_backend", "pg_terminate_backend"] {
        let put = seal(&seen, 1);
        assert_eq!(replica.put_when_there(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
        let paused = standby.paused();
        let put = seal(&seen, 1);
        let offered = replica.begin(LogCommand::Put(put.clone()));
        let cut =
            format!("SELECT {cut_short}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
        wait_until("the commit waits", || primary.sql(&cut) == "t");
        let unknown = LogAnswer::Put(PutAnswer::Unknown);
        assert_eq!(offered.recv().unwrap(), unknown, "{cut_short}");
        let position = put.record.position();
        wait_until("it stands on the primary", || {
            let head = "SELECT max(seq) FROM goondan.records";
            primary.sql(head) == position.to_string()
        });
        let read = replica.read(&workspace("w"), position);
        assert_eq!(read, ReadAnswer::Unavailable, "{cut_short}");
        let again = replica.put(&put);
        assert!(
            matches!(again, PutAnswer::Unknown | PutAnswer::Unavailable),
            "{again:?}"
        );
        drop(paused);
        let page = replica.page(&workspace("w"), position);
        assert_eq!(page.records, [put.record.bytes()]);
        seen = behind(&seen, &put);
    }
    let log = replica.log();
    assert!(log.contains("has not confirmed a commit"), "{log}");
}

#[test]
fn rep_1_failover_to_a_standby_missing_the_tail_is_reported() {
    let Some(primary) = PostgresServer::running(&[]) else {
        return;
    };
    let setup = Replica::ready(&primary.url());
    let standby = PostgresServer::standby_of(&primary, "sb");
    let replica = Replica::ready(&url_of(&[&primary, &standby]));
    let (mut seen, mut puts) = (chain("w"), Vec::new());
    for position in 1..=8 {
        if position == 6 {
            let there = "SELECT count(*) FROM goondan.records";
            wait_until("the standby has five", || standby.sql(there) == "5");
            standby.crash();
        }
        let put = seal(&seen, 1);
        assert_eq!(replica.put(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
        puts.push(put);
    }
    drop(setup);
    primary.crash();
    standby.start();
    let ninth = seal(&seen, 1);
    assert_eq!(
        replica.put(&ninth),
        PutAnswer::Unavailable,
        "a standby takes no records"
    );
    let read = replica.read(&workspace("w"), Position(1));
    assert_eq!(read, ReadAnswer::Unavailable);
    drop(standby.sql("SELECT pg_promote()"));
    assert_eq!(
        replica.put_when_there(&ninth),
        PutAnswer::Behind { head: Position(5) }
    );
    // The owner still has them and appends them again.
    for put in puts[5..].iter().chain([&ninth]) {
        assert_eq!(replica.put(put), PutAnswer::Done);
    }
    assert_eq!(replica.all(&workspace("w")).len(), 9);
}
