//! What a log in PostgreSQL costs: turns with it and without it, next to plain inserts on the same server, and how
//! quickly another node follows.
//!
//! Without PostgreSQL it is left out, and says so.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use goondan_tests::postgres::{Server, programs};
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::client::Client;
use crate::{INSTANT, Outcome, knob, quantile_ms};

/// How often each is measured, all taking turns.
const ROUNDS: usize = 7;
const AGENTS: usize = 20;
/// Events of one agent that are under way at once.
const DEPTH: usize = 4;
/// Turns of all agents in a round.
const TURNS: usize = 4_000;
/// Turns of one agent in a round, one after the other.
const LATENCY_TURNS: usize = 300;
/// How long plain inserts are made in a round, in seconds.
const INSERTS_S: u32 = 2;
/// A row of 1 KiB, by a client that waits for each commit.
const INSERT: &str = "INSERT INTO plain (record) VALUES (decode(repeat('78', 1024), 'hex'))";
const TABLE: &str = "CREATE TABLE plain (id bigserial PRIMARY KEY, record bytea NOT NULL)";
/// More records than are written: what follows reads each.
const NO_SNAPSHOT: u64 = 1_000_000_000;

pub(crate) fn beside_plain_inserts() -> Outcome {
    let Some(server) = Server::running(&["fsync=on"]) else {
        return Ok(());
    };
    drop(server.sql(TABLE));
    let (off, on) = (Home::new(INSTANT), Home::new(INSTANT));
    has_log(&on, &server, "a");
    let daemons = [&off, &on].map(|home| Daemon::serving(home).measured());
    let (mut off, mut client) = (Client::connect(&off)?, Client::connect(&on)?);
    let (mut many, mut one) = (Round::default(), Round::default());
    for _ in 0..ROUNDS {
        many.inserts.push(inserts(&server, AGENTS)?.0);
        many.off.push(turns(&mut off, TURNS)?);
        many.on.push(turns(&mut client, TURNS)?);
        one.inserts.push(inserts(&server, 1)?.1);
        one.off.push(latency_ms(&mut off)?);
        one.on.push(latency_ms(&mut client)?);
    }
    let ratio = many.ratio();
    let [plain, without, with] = many.medians();
    println!(
        "replicated, {AGENTS} agents: {with:.0} turns/s, without a log {without:.0}/s; {AGENTS} clients make \
         {plain:.0} plain inserts/s: {ratio:.2} of it"
    );
    let [plain, without, with] = one.medians();
    println!(
        "replicated, 1 agent: a turn p50 {with:.2} ms, without a log {without:.2} ms; a plain insert {plain:.2} ms"
    );
    drop(off);
    follows(&server, &mut client)?;
    for daemon in daemons {
        daemon.stop();
    }
    Ok(())
}

/// What was measured in each round.
#[derive(Default)]
struct Round {
    inserts: Vec<f64>,
    off: Vec<f64>,
    on: Vec<f64>,
}

impl Round {
    /// Of each the median.
    fn medians(self) -> [f64; 3] {
        [self.inserts, self.off, self.on].map(median)
    }

    /// The median of what was measured with a log next to the inserts of the same round.
    fn ratio(&self) -> f64 {
        let rounds = self.on.iter().zip(&self.inserts);
        median(rounds.map(|(on, inserts)| on / inserts).collect())
    }
}

/// A node that has written a while, and one that begins to follow it.
fn follows(server: &Server, client: &mut Client) -> Outcome {
    let wanted = knob("GOONDAN_BENCH_FOLLOWED_TURNS", 100_000);
    let before = head(client)?;
    let rate = turns(client, wanted)?;
    let head = head(client)?;
    let records = (head - before) as f64;
    let written = records / wanted as f64 * rate;

    let standby = Home::without_project();
    has_log(&standby, server, "b");
    let began = Instant::now();
    let daemon = Daemon::start(&standby).measured();
    let mut other = Client::connect_to_daemon(&standby)?;
    let mut first = None;
    loop {
        let position = position(&mut other, "b")?;
        first = first.or(Some(position).filter(|it| *it > 0));
        if position >= head {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = began.elapsed().as_secs_f64();
    let read = head as f64 / took;
    println!(
        "replicated: {wanted} turns at {rate:.0}/s, {written:.0} records/s; a new node has followed {head} records \
         after {took:.1} s (at the first look {}): {read:.0}/s, {:.1} times as fast",
        first.unwrap_or(0),
        read / written
    );
    daemon.stop();
    Ok(())
}

/// Has a daemon share its workspaces through this server.
fn has_log(home: &Home, server: &Server, node: &str) {
    let replication = json!({
        "node": node,
        "postgres": server.url(),
        "snapshotAfterRecords": NO_SNAPSHOT,
    });
    let config = json!({ "replication": replication }).to_string();
    home.write("state/config.json", &config);
}

/// How many plain inserts so many clients make a second, and how long one takes on average, in milliseconds.
fn inserts(server: &Server, clients: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
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

/// How many turns a second all agents make, each with something to do all the time.
fn turns(client: &mut Client, wanted: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let keys: Vec<String> = (0..AGENTS).map(|n| format!("agent-{n}")).collect();
    for key in &keys {
        client.ask_and_wait(key)?;
    }
    let began = Instant::now();
    let mut asked: HashMap<u64, &str> = HashMap::new();
    for key in keys.iter().cycle().take(wanted.min(AGENTS * DEPTH)) {
        asked.insert(client.ask(key)?, key);
    }
    let (mut sent, mut answered) = (asked.len(), 0);
    while answered < wanted {
        let (id, _) = client.next_answer()?;
        let key = asked.remove(&id).ok_or("an answer to nothing")?;
        answered += 1;
        if sent < wanted {
            asked.insert(client.ask(key)?, key);
            sent += 1;
        }
    }
    Ok(wanted as f64 / began.elapsed().as_secs_f64())
}

/// How long a turn takes, from its event to its commit, at the median.
fn latency_ms(client: &mut Client) -> Result<f64, Box<dyn std::error::Error>> {
    let mut times = Vec::with_capacity(LATENCY_TURNS);
    for _ in 0..LATENCY_TURNS {
        let began = Instant::now();
        client.ask_and_wait("main")?;
        times.push(began.elapsed());
    }
    Ok(quantile_ms(&mut times, 500))
}

/// How far the log is written.
fn head(client: &mut Client) -> Result<u64, Box<dyn std::error::Error>> {
    // What is put off is written within a moment.
    std::thread::sleep(Duration::from_secs(2));
    position(client, "a")
}

/// How far a node has followed the log of the one workspace.
fn position(client: &mut Client, node: &str) -> Result<u64, Box<dyn std::error::Error>> {
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
