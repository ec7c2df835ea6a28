//! From an accepted event to its committed turn.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

use goondan_tests::{Daemon, Home};

use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, quantile_ms};

const LATENCY_TURNS: usize = 1_000;
const HISTORY_TURNS: usize = 5_000;
pub(crate) const BUSY_AGENTS: usize = 20;
const BUSY_TURNS: usize = 10_000;
/// Concurrent events per agent, so that its inbox is never empty.
pub(crate) const BUSY_DEPTH: usize = 4;

/// One agent, one event after the other, with a short history and with one of 10,000 messages.
pub(crate) fn latency() -> AgentsBenchResult {
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home).measured();
    let mut client = BenchClient::connect(&home)?;
    measure_latency(&mut client, "no history")?;
    let (mut asked, mut answered) = (0, 0);
    while answered < HISTORY_TURNS {
        while asked < HISTORY_TURNS && asked < answered + 64 {
            client.ask("main")?;
            asked += 1;
        }
        client.next_answer()?;
        answered += 1;
    }
    measure_latency(&mut client, "10,000 messages")?;
    daemon.stop();
    Ok(())
}

fn measure_latency(client: &mut BenchClient, history: &str) -> AgentsBenchResult {
    for _ in 0..20 {
        client.ask_and_wait("main")?;
    }
    let mut times = one_by_one(client, LATENCY_TURNS)?;
    println!(
        "latency, {history}: an event and its committed turn: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms",
        quantile_ms(&mut times, 500),
        quantile_ms(&mut times, 900),
        quantile_ms(&mut times, 990),
    );
    Ok(())
}

/// Measures the duration of each of several consecutive turns.
pub(crate) fn one_by_one(
    client: &mut BenchClient,
    turns: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut times = Vec::with_capacity(turns);
    for _ in 0..turns {
        let start = Instant::now();
        client.ask_and_wait("main")?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Many agents, each always busy.
pub(crate) fn turns_per_second() -> AgentsBenchResult {
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home).measured();
    let rate = busy(&mut BenchClient::connect(&home)?, BUSY_TURNS)?;
    println!("turns, {BUSY_AGENTS} agents, everything durable: {rate:.0} turns/s");
    daemon.stop();
    Ok(())
}

/// Measures turns per second over all [`BUSY_AGENTS`].
pub(crate) fn busy(client: &mut BenchClient, turns: usize) -> Result<f64, Box<dyn Error>> {
    let keys: Vec<String> = (0..BUSY_AGENTS).map(|n| format!("agent-{n}")).collect();
    for key in &keys {
        client.ask_and_wait(key)?;
    }
    let start = Instant::now();
    let mut asked: HashMap<u64, &str> = HashMap::new();
    for key in keys
        .iter()
        .flat_map(|key| std::iter::repeat_n(key, BUSY_DEPTH))
        .take(turns)
    {
        asked.insert(client.ask(key)?, key);
    }
    let (mut sent, mut answered) = (asked.len(), 0);
    while answered < turns {
        let (id, _) = client.next_answer()?;
        let key = asked.remove(&id).ok_or("an answer to nothing")?;
        answered += 1;
        if sent < turns {
            asked.insert(client.ask(key)?, key);
            sent += 1;
        }
    }
    Ok(turns as f64 / start.elapsed().as_secs_f64())
}
