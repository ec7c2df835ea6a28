//! Cost of a record through the program, compared with a plain insert loop on the same server in
//! the same run; see docs/performance.md.
//!
//! `GOONDAN_BENCH_DIR` sets the directory of the server's files, and thereby the file system.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark panics on any failure and prints its measurements"
)]

use std::thread;
use std::time::{Duration, Instant};

use goondan_replication::log::PutAnswer;
use goondan_replication::names::Position;
use goondan_tests::postgres::PostgresServer;
use tokio_postgres::NoTls;

#[path = "../tests/server/records.rs"]
mod records;
#[path = "../tests/server/replica.rs"]
#[expect(dead_code, reason = "shared with tests, which use more of it")]
mod replica;

use records::{behind, bytes, chain, seal, workspace};
use replica::Replica;

/// Size of a record in bytes.
const BYTES: usize = 1_024;
const LONG: Duration = Duration::from_secs(2);
/// Number of rounds. The two variants alternate, and the median of the ratios counts.
const ROUNDS: usize = 7;

fn main() {
    // `cargo test` runs this binary without the argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Some(dir) = std::env::var_os("GOONDAN_BENCH_DIR") {
        tempfile::env::override_temp_dir(dir.as_ref()).unwrap();
    }
    let Some(server) = PostgresServer::running(&["fsync=on"]) else {
        return;
    };
    let replica = Replica::ready(&server.url());
    let url = server.url();
    let table = "CREATE TABLE plain (workspace text, seq bigint, record bytea, PRIMARY KEY (workspace, seq))";
    drop(server.sql(table));
    for workspaces in [1, 20] {
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let name = |n: usize| format!("w{workspaces}-{round}-{n}");
            plain.push(rate(workspaces, |n, until| inserts(&url, &name(n), until)));
            ours.push(rate(workspaces, |n, until| puts(&replica, &name(n), until)));
        }
        let ratios = plain.iter().zip(&ours).map(|(plain, ours)| ours / plain);
        let ratio = median(ratios.collect());
        let (plain, ours) = (median(plain), median(ours));
        println!(
            "{workspaces:2} workspaces: put {ours:6.0}/s, plain insert {plain:6.0}/s, ratio {ratio:.2}"
        );
        let read = (0..ROUNDS).map(|round| reads(&replica, &format!("w{workspaces}-{round}-0")));
        let read = median(read.collect());
        println!(
            "               read {read:6.0}/s, {:.1} times as fast as put",
            read / ours
        );
    }
}

/// Total operations per second of all threads.
fn rate(each: usize, work: impl Fn(usize, Instant) -> u64 + Sync) -> f64 {
    let began = Instant::now();
    let until = began + LONG;
    let done: u64 = thread::scope(|scope| {
        let work = &work;
        let begin = |n| scope.spawn(move || work(n, until));
        let workers: Vec<_> = (0..each).map(begin).collect();
        workers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    per_second(done, began.elapsed())
}

/// Inserts records with a separate client, one at a time.
fn inserts(url: &str, name: &str, until: Instant) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (client, driver) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(driver);
        let insert = "INSERT INTO plain VALUES ($1, $2, $3)";
        let insert = client.prepare(insert).await.unwrap();
        let mut seq = 0_i64;
        let record = vec![b'x'; BYTES];
        while Instant::now() < until {
            seq += 1;
            client
                .execute(&insert, &[&name, &seq, &record])
                .await
                .unwrap();
        }
        seq.unsigned_abs()
    })
}

/// Appends records as an owner, one after the other.
fn puts(replica: &Replica, name: &str, until: Instant) -> u64 {
    let first = seal(&chain(name), 1);
    let mut seen = chain(name);
    let mut put = first;
    while Instant::now() < until {
        assert_eq!(replica.put(&put), PutAnswer::Done);
        seen = behind(&seen, &put);
        put = bytes(&seen, BYTES);
    }
    seen.position().0
}

/// Records per second that a standby reads, page by page.
fn reads(replica: &Replica, name: &str) -> f64 {
    let began = Instant::now();
    let mut read = 0;
    loop {
        let page = replica.page(&workspace(name), Position(read + 1));
        read += page.records.len() as u64;
        if Position(read) >= page.head {
            return per_second(read, began.elapsed());
        }
    }
}

fn per_second(count: u64, took: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / took.as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
