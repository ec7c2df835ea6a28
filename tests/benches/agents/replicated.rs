//! Cost of a log in PostgreSQL: turns with and without it, compared with plain inserts on the same
//! server, and the time until another node has caught up. Also the same turns on a server with slow
//! commits.
//!
//! Skipped with a message without PostgreSQL.

use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use goondan_tests::postgres::{PostgresServer, programs};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::answer::{BUSY_AGENTS, busy, one_by_one};
use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, knob, quantile_ms};

/// Number of rounds, in which all measurements alternate.
const ROUNDS: usize = 7;
/// Turns of all agents in a round.
const TURNS: usize = 4_000;
/// Turns of one agent in a round, one after the other.
const LATENCY_TURNS: usize = 300;
/// Duration of the plain inserts in a round, in seconds.
const INSERTS_S: u32 = 2;
/// A row of 1 KiB, from a client that waits for each commit.
const INSERT: &str = "INSERT INTO plain (record) VALUES (decode(repeat('78', 1024), 'hex'))";
const TABLE: &str = "CREATE TABLE plain (id bigserial PRIMARY KEY, record bytea NOT NULL)";
/// More records than are written, so that a follower reads each.
const NO_SNAPSHOT: u64 = 1_000_000_000;

/// Action on the server and the node with its log there, after the measurements.
type FollowUp = fn(&PostgresServer, &mut BenchClient) -> AgentsBenchResult;

pub(crate) fn beside_plain_inserts() -> AgentsBenchResult {
    on_server("replicated", &["fsync=on"], follows)
}

/// Each commit is delayed by 2.2 ms, as on a slow disk, even without concurrent ones.
pub(crate) fn with_slow_commits() -> AgentsBenchResult {
    let settings = ["fsync=on", "commit_delay=2200", "commit_siblings=0"];
    on_server("replicated, slow commits", &settings, |_, _| Ok(()))
}

/// Measures turns and inserts on a server with these settings; each row begins with the name.
fn on_server(name: &str, settings: &[&str], afterwards: FollowUp) -> AgentsBenchResult {
    let Some(server) = PostgresServer::running(settings) else {
        return Ok(());
    };
    drop(server.sql(TABLE));
    let (off, on) = (Home::new(INSTANT), Home::new(INSTANT));
    has_log(&on, &server, "a");
    let daemons = [&off, &on].map(|home| Daemon::serving(home).measured());
    let (mut off, mut client) = (BenchClient::connect(&off)?, BenchClient::connect(&on)?);
    let (mut many, mut one) = (BenchRounds::default(), BenchRounds::default());
    for _ in 0..ROUNDS {
        many.inserts.push(inserts(&server, BUSY_AGENTS)?.0);
        many.off.push(busy(&mut off, TURNS)?);
        many.on.push(busy(&mut client, TURNS)?);
        one.inserts.push(inserts(&server, 1)?.1);
        one.off
            .push(quantile_ms(&mut one_by_one(&mut off, LATENCY_TURNS)?, 500));
        one.on.push(quantile_ms(
            &mut one_by_one(&mut client, LATENCY_TURNS)?,
            500,
        ));
    }
    let ratio = many.ratio();
    let [plain, without, with] = many.medians();
    println!(
        "{name}, {BUSY_AGENTS} agents: {with:.0} turns/s, without a log {without:.0}/s; {BUSY_AGENTS} clients make \
         {plain:.0} plain inserts/s: {ratio:.2} of it"
    );
    let [plain, without, with] = one.medians();
    println!(
        "{name}, 1 agent: a turn p50 {with:.2} ms, without a log {without:.2} ms; a plain insert {plain:.2} ms"
    );
    drop(off);
    afterwards(&server, &mut client)?;
    for daemon in daemons {
        daemon.stop();
    }
    Ok(())
}

#[derive(Default)]
struct BenchRounds {
    inserts: Vec<f64>,
    off: Vec<f64>,
    on: Vec<f64>,
}

impl BenchRounds {
    fn medians(self) -> [f64; 3] {
        [self.inserts, self.off, self.on].map(median)
    }

    /// Median ratio of the rate with a log to the rate of inserts in the same round.
    fn ratio(&self) -> f64 {
        let rounds = self.on.iter().zip(&self.inserts);
        median(rounds.map(|(on, inserts)| on / inserts).collect())
    }
}

/// A node with an existing log, and one that starts to follow it.
fn follows(server: &PostgresServer, client: &mut BenchClient) -> AgentsBenchResult {
    let wanted = knob("GOONDAN_BENCH_FOLLOWED_TURNS", 100_000);
    let before = position(client, "a")?;
    let rate = busy(client, wanted)?;
    let head = position(client, "a")?;
    let records = (head - before) as f64;
    let written = records / wanted as f64 * rate;

    let standby = Home::without_project();
    has_log(&standby, server, "b");
    let began = Instant::now();
    let daemon = Daemon::start(&standby).measured();
    let mut other = BenchClient::connect_to_daemon(&standby)?;
    let first = position(&mut other, "b")?;
    wait_until("the new node has followed all", || {
        position(&mut other, "b").is_ok_and(|position| position >= head)
    });
    let took = began.elapsed().as_secs_f64();
    let read = head as f64 / took;
    println!(
        "replicated: {wanted} turns at {rate:.0}/s, {written:.0} records/s; a new node has followed {head} records \
         after {took:.1} s (at the first look {first}): {read:.0}/s, {:.1} times as fast",
        read / written
    );
    daemon.stop();
    Ok(())
}

/// Makes a daemon share its workspaces through this server.
fn has_log(home: &Home, server: &PostgresServer, node: &str) {
    let replication = json!({
        "node": node,
        "postgres": server.url(),
        "snapshotAfterRecords": NO_SNAPSHOT,
    });
    let config = json!({ "replication": replication }).to_string();
    home.write("state/config.json", &config);
}

/// Plain inserts per second with this number of clients, and their average latency in milliseconds.
fn inserts(
    server: &PostgresServer,
    clients: usize,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(INSERT.as_bytes())?;
    let program = programs().ok_or("there is no PostgreSQL")?.join("pgbench");
    let ran = Command::new(program)
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={clients}"))
        .arg(format!("--time={INSERTS_S}"))
        .arg("--file")
        .arg(script.path())
        .arg(server.url())
        .output()?;
    let said = String::from_utf8(ran.stdout)?;
    let number = |before: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(before));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse::<f64>().ok())
            .ok_or_else(|| format!("pgbench: {}", String::from_utf8_lossy(&ran.stderr)))
    };
    Ok((number("tps = ")?, number("latency average = ")?))
}

/// Position of a node in the log of the only workspace.
fn position(client: &mut BenchClient, node: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let page = client.ask_method("node.list")?;
    let replicas = page.pointer("/workspaces/0/replicas");
    let replicas = replicas.and_then(Value::as_array).into_iter().flatten();
    let mut own = replicas.filter(|it| it["node"] == node);
    Ok(own
        .next()
        .and_then(|it| it["position"].as_u64())
        .unwrap_or(0))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
