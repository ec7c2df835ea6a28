//! The log on a server fulfills the guarantees of [`goondan_replication::log`].

use std::sync::Mutex;
use std::thread;

use goondan_replication::chain::Chain;
use goondan_replication::limits::{READ_BYTES_MAX, RECORD_BYTES_MAX};
use goondan_replication::log::{MemoryLog, PutAnswer, ReadAnswer};
use goondan_replication::names::{Epoch, Hash, Incarnation, NodeId, Position};
use goondan_replication::record::SnapshotReference;
use goondan_replication::wire::{
    Beat, KeptSnapshot, LogAnswer, LogCommand, ServerCheck, ServerCheckVerdict, SnapshotPartRef,
};

use crate::records::{behind, bytes, chain, seal, workspace};
use crate::replica::Replica;
use goondan_tests::postgres::PostgresServer;

/// Environment variable for the seed of random operations.
const SEED_VAR: &str = "GOONDAN_TEST_SEED";

/// Compares random records from writers with different states against the log in memory.
#[test]
fn rep_1_the_log_on_a_server_answers_as_the_one_in_memory() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let given = std::env::var(SEED_VAR).ok().and_then(|it| it.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED_VAR}={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kinds = [0; 5];
    // Enough for every kind of answer to occur with any seed.
    for life in 0..20 {
        let name = format!("w{life}");
        let mut memory = MemoryLog::default();
        let mut writers: Vec<Chain> = vec![chain(&name); 3];
        for step in 0..100 {
            let which = random.usize(..writers.len());
            let position = Position(random.u64(0..memory.head().0 + 3));
            match random.u32(0..10) {
                0..6 => {
                    let put = seal(&writers[which], random.u64(0..3));
                    let answer = memory.put(&put);
                    assert_eq!(replica.put(&put), answer, "step {step}");
                    match answer {
                        PutAnswer::Done => kinds[0] += 1,
                        PutAnswer::Taken(_) => kinds[1] += 1,
                        PutAnswer::Behind { .. } => kinds[2] += 1,
                        _ => kinds[3] += 1,
                    }
                    // Sometimes a writer with a wrong state.
                    if answer == PutAnswer::Done || random.u32(0..6) == 0 {
                        writers[which] = behind(&writers[which], &put);
                    }
                }
                6 | 7 => writers[which] = writers[random.usize(..writers.len())].clone(),
                8 => {
                    let page = ReadAnswer::Page(memory.read(position));
                    assert_eq!(replica.read(&workspace(&name), position), page);
                }
                _ if random.u32(0..5) < 3 => {
                    // The hash of the record at this position, or of another one.
                    let first = memory.read(position).records.into_iter().next();
                    let hash = first.filter(|_| random.u32(0..4) > 0);
                    let hash = hash.map_or(Hash([7; 32]), |bytes| Hash::of(&bytes));
                    let was = memory.oldest();
                    let oldest = memory.trim(position, hash);
                    kinds[4] += u32::from(oldest != was);
                    let answer = replica.ask(LogCommand::Trim {
                        workspace: workspace(&name),
                        before: without_parts(position, hash),
                    });
                    assert_eq!(answer, LogAnswer::Trimmed(oldest));
                }
                _ => {}
            }
        }
    }
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
}

/// A snapshot without parts.
fn without_parts(at: Position, hash: Hash) -> KeptSnapshot {
    KeptSnapshot {
        reference: SnapshotReference::new("none").unwrap(),
        parts: 0,
        at,
        hash,
    }
}

#[test]
fn rep_1_of_eight_writers_one_gets_each_position() {
    const POSITIONS: u64 = 60;
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    // Each of the two programs has one statement in flight, so they race in the server.
    let replicas = [Replica::ready(&server.url()), Replica::ready(&server.url())];
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..8 {
            let (replica, done) = (&replicas[writer % 2], &done);
            scope.spawn(move || {
                let mut seen = chain("w");
                while seen.position() < Position(POSITIONS) {
                    let put = seal(&seen, writer as u64);
                    match replica.put(&put) {
                        PutAnswer::Done => {
                            done.lock().unwrap().push(put.clone());
                            seen = behind(&seen, &put);
                        }
                        PutAnswer::Taken(other) => {
                            seen.follow_bytes(other).unwrap();
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|put| put.record.position());
    let stands = replicas[0].all(&workspace("w"));
    let told: Vec<_> = done.iter().map(|put| put.record.bytes().to_vec()).collect();
    assert_eq!(stands, told, "each position was given once, to its writer");
}

#[test]
fn long_records_are_read_as_many_at_once_as_fit() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let (mut memory, mut seen) = (MemoryLog::default(), chain("w"));
    for count in [0, 3, 3, 2, 3] {
        let put = match count {
            0 => seal(&seen, 1),
            mib => bytes(&seen, mib * 1024 * 1024),
        };
        assert!(put.record.bytes().len() < RECORD_BYTES_MAX);
        assert_eq!(memory.put(&put), PutAnswer::Done);
        assert_eq!(replica.put(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
    }
    for from in 1..6 {
        let page = memory.read(Position(from));
        let read: usize = page.records.iter().map(Vec::len).sum();
        assert!(read <= READ_BYTES_MAX);
        assert_eq!(replica.page(&workspace("w"), Position(from)), page);
    }
    let all = replica.all(&workspace("w"));
    assert_eq!(all.len(), 5);
}

#[test]
fn a_long_log_is_forgotten_at_once_and_removed_in_pieces() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    replica.put(&seal(&chain("w"), 1));
    // Removal takes more than one statement. The content of the records is irrelevant.
    let hash = Hash([7; 32]);
    let seven = "decode(repeat('07', 32), 'hex')";
    drop(server.sql(&format!(
        "INSERT INTO goondan.records SELECT 'w', n, {seven}, '' FROM generate_series(2, 2500) AS n;
         UPDATE goondan.heads SET seq = 2500, hash = {seven}",
    )));
    let trim = |before, hash| {
        let workspace = workspace("w");
        let before = without_parts(before, hash);
        replica.ask(LogCommand::Trim { workspace, before })
    };
    let oldest = LogAnswer::Trimmed(Position(1));
    assert_eq!(trim(Position(2400), Hash([8; 32])), oldest);
    assert_eq!(trim(Position(u64::MAX), hash), oldest);
    let oldest = LogAnswer::Trimmed(Position(2400));
    assert_eq!(trim(Position(2400), hash), oldest);
    assert_eq!(trim(Position(2300), hash), oldest, "it never goes back");
    let left = "SELECT min(seq), count(*) FROM goondan.records";
    assert_eq!(server.sql(left), "2400|101");
    let first = replica.put(&seal(&chain("w"), 2));
    let oldest = Position(2400);
    assert_eq!(first, PutAnswer::Forgotten { oldest });
}

#[test]
fn trimmed_but_not_yet_deleted_records_are_not_returned() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let mut memory = MemoryLog::default();
    let mut seen = chain("w");
    for life in 1..=4 {
        let put = seal(&seen, life);
        memory.put(&put);
        assert_eq!(replica.put(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
    }
    // The state after a crash between the two statements.
    drop(server.sql("UPDATE goondan.heads SET oldest = 3"));
    let third = memory.read(Position(3)).records.swap_remove(0);
    memory.trim(Position(3), Hash::of(&third));
    for from in 1..6 {
        let page = memory.read(Position(from));
        assert_eq!(replica.page(&workspace("w"), Position(from)), page);
    }
    let first = seal(&chain("w"), 1);
    assert_eq!(replica.put(&first), memory.put(&first));
}

#[test]
fn node_beats_and_new_heads_are_announced_at_once() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let first = seal(&chain("w1"), 1);
    replica.put(&first);
    replica.put(&seal(&behind(&chain("w1"), &first), 1));
    let beat = |node: &str, position| Beat {
        workspace: workspace("w1"),
        node: NodeId::new(node).unwrap(),
        life: Incarnation(u64::MAX - 1),
        epoch: Epoch(3),
        position: Position(position),
        owns: node == "a",
    };
    for beats in [
        vec![beat("a", 1), beat("a", 2)],
        vec![beat("a", 3), beat("b", 1)],
    ] {
        assert_eq!(replica.ask(LogCommand::Beat(beats)), LogAnswer::Noted);
    }
    let asked = ["w1", "w2", "w1"].map(workspace).to_vec();
    let LogAnswer::Heads(heads) = replica.ask(LogCommand::Heads(asked)) else {
        panic!("no heads");
    };
    let [head] = &heads[..] else {
        panic!("{heads:?}");
    };
    assert_eq!((head.head, head.oldest), (Position(2), Position(1)));
    let heard: Vec<_> = head
        .heard
        .iter()
        .map(|it| (it.beat.clone(), it.count))
        .collect();
    assert_eq!(heard, [(beat("a", 3), 2), (beat("b", 1), 1)]);
}

#[test]
fn workspaces_that_have_a_log_are_listed_in_order() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let list = |after: Option<&str>| {
        let after = after.map(workspace);
        let LogAnswer::Listed(listed) = replica.ask(LogCommand::List { after }) else {
            panic!("no list");
        };
        listed
    };
    assert_eq!(list(None), []);
    for name in ["w2", "w10", "a"] {
        replica.put(&seal(&chain(name), 1));
    }
    assert_eq!(list(None), ["a", "w10", "w2"].map(workspace));
    assert_eq!(list(Some("a")), ["w10", "w2"].map(workspace));
    assert_eq!(list(Some("w2")), []);
}

#[test]
fn snapshots_are_kept_in_parts_and_forgotten() {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let part = |number| SnapshotPartRef {
        workspace: workspace("w"),
        reference: SnapshotReference::new("s").unwrap(),
        number,
    };
    for (number, byte) in [(0, b'x'), (1, b'y'), (0, b'z')] {
        let kept = LogCommand::KeepPart(part(number), vec![byte; 1_000_000]);
        assert_eq!(replica.ask(kept), LogAnswer::Noted);
    }
    for (number, byte) in [(0, b'z'), (1, b'y')] {
        let read = replica.ask(LogCommand::ReadPart(part(number)));
        assert_eq!(read, LogAnswer::Part(Some(vec![byte; 1_000_000])));
    }
    let mut seen = chain("w");
    let mut hashes = Vec::new();
    for life in 1..=3 {
        let put = seal(&seen, life);
        assert_eq!(replica.put(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
        hashes.push(put.record.hash());
    }
    let (second, third) = (hashes[1], hashes[2]);
    let snapshot = |name: &str, parts, hash| KeptSnapshot {
        reference: SnapshotReference::new(name).unwrap(),
        parts,
        at: Position(2),
        hash,
    };
    let trim = |before| {
        let workspace = workspace("w");
        replica.ask(LogCommand::Trim { workspace, before })
    };
    let is_there_after = |before| {
        let workspace = workspace("w");
        let forget = LogCommand::ForgetSnapshots { workspace, before };
        assert_eq!(replica.ask(forget), LogAnswer::Noted);
        let LogAnswer::Part(found) = replica.ask(LogCommand::ReadPart(part(0))) else {
            panic!("no answer");
        };
        found.is_some()
    };
    // A log cannot begin with a snapshot whose parts are missing, because they may be stored on
    // another server.
    let oldest = LogAnswer::Trimmed(Position(1));
    assert_eq!(trim(snapshot("s", 3, second)), oldest);
    // Nothing is removed for a snapshot that the log does not begin with.
    assert!(is_there_after(snapshot("s-later", 0, second)));
    let oldest = LogAnswer::Trimmed(Position(2));
    assert_eq!(trim(snapshot("s", 2, second)), oldest);
    assert!(is_there_after(snapshot("s-later", 0, third)));
    // Snapshots that sort after the named one are kept, and so is the named one.
    for (before, is_there) in [("s", true), ("S-later", true), ("s-later", false)] {
        assert_eq!(
            is_there_after(snapshot(before, 0, second)),
            is_there,
            "{before}"
        );
    }
}

#[test]
fn the_servers_settings_are_looked_at() {
    let Some(server) = PostgresServer::running(&["full_page_writes=off", "synchronous_commit=off"])
    else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let LogAnswer::Checked(findings) = replica.ask(LogCommand::Check) else {
        panic!("nothing was looked at");
    };
    for (what, found, verdict) in [
        ("connection", server.host(), ServerCheckVerdict::Good),
        ("role", "primary", ServerCheckVerdict::Good),
        ("fsync", "off", ServerCheckVerdict::Bad),
        ("full_page_writes", "off", ServerCheckVerdict::Weak),
        ("synchronous_commit", "off", ServerCheckVerdict::Good),
        ("synchronous_standby_names", "", ServerCheckVerdict::Weak),
    ] {
        let is_it = |it: &&ServerCheck| it.what == what;
        let finding = findings.iter().find(is_it).unwrap();
        assert_eq!(
            (&*finding.found, finding.verdict),
            (found, verdict),
            "{what}"
        );
    }
    let version = findings
        .iter()
        .find(|it| it.what == "server_version")
        .unwrap();
    assert_eq!(version.verdict, ServerCheckVerdict::Good);
}
