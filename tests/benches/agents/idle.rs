//! Cost of idle agents.

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use goondan_tests::home::AGENT;
use goondan_tests::{Daemon, Home};

use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, knob, quantile_ms};

/// Agents that start concurrently.
const STARTING_MAX: usize = 8;
/// Ticks of `/proc/<pid>/stat` per second, on every current Linux.
pub(crate) const TICKS_PER_S: f64 = 100.0;

/// Holds idle agents, and prints their cost and their daemon's.
pub(crate) fn many() -> AgentsBenchResult {
    let agents = knob("GOONDAN_BENCH_AGENTS", 200);
    let hold_s = knob("GOONDAN_BENCH_HOLD_S", 20);
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home).measured();
    let before = Descriptors::of(daemon.pid())?;
    let mut client = BenchClient::connect(&home)?;
    let mut starting = VecDeque::new();
    for n in 0..agents {
        starting.push_back(client.ask(&format!("agent-{n}"))?);
        if starting.len() == STARTING_MAX {
            client.next_answer()?;
            starting.pop_front();
        }
    }
    for _ in starting {
        client.next_answer()?;
    }
    // If memory, processes or descriptors do not suffice for all agents, the longest idle ones were
    // stopped.
    let pids: Vec<u32> = home.running(AGENT).iter().map(|agent| agent.pid).collect();
    let (daemon_ticks, switches) = (ticks(daemon.pid())?, switches_of_all(&pids));
    std::thread::sleep(Duration::from_secs(hold_s as u64));
    let still: usize = home.running(AGENT).len();
    let after = Descriptors::of(daemon.pid())?;
    let each = (after.channels - before.channels) as f64 / still.max(1) as f64;
    let held_s = hold_s as f64;
    let mut pss_kb = Vec::with_capacity(pids.len());
    for pid in &pids {
        // An agent that was stopped for capacity has none.
        pss_kb.extend(number(&format!("/proc/{pid}/smaps_rollup"), "Pss:").ok());
    }
    pss_kb.sort_unstable();
    let mean = pss_kb.iter().sum::<u64>() as f64 / pss_kb.len().max(1) as f64;
    println!(
        "idle, {agents} conversations, {} agents held for {hold_s} s, {still} of them to the end: \
         {each:.2} descriptors each, and {} of conversations kept open; PSS of an agent {mean:.0} kB \
         on average, {} kB at most; {:.2} switches/s each; daemon: RSS {} MB, {:.2} % of a core",
        pids.len(),
        after.files - before.files,
        pss_kb.last().copied().unwrap_or_default(),
        switches_of_all(&pids).saturating_sub(switches) as f64 / pids.len() as f64 / held_s,
        number(&format!("/proc/{}/status", daemon.pid()), "VmRSS:")? / 1_024,
        (ticks(daemon.pid())? - daemon_ticks) as f64 / TICKS_PER_S / held_s * 100.0,
    );
    second_events(&mut client, agents)?;
    daemon.stop();
    Ok(())
}

/// Sends a second event to each conversation, one after the other: stopped agents are started
/// again.
fn second_events(client: &mut BenchClient, agents: usize) -> AgentsBenchResult {
    let mut times: Vec<Duration> = Vec::with_capacity(agents);
    for n in 0..agents {
        let start = Instant::now();
        client.ask_and_wait(&format!("agent-{n}"))?;
        times.push(start.elapsed());
    }
    println!(
        "idle, a second event in each of {agents} conversations: p50 {:.2} ms, p99 {:.2} ms, {:.2} ms at most",
        quantile_ms(&mut times, 500),
        quantile_ms(&mut times, 990),
        quantile_ms(&mut times, 1_000),
    );
    Ok(())
}

/// The file descriptors of a process.
struct Descriptors {
    /// Sockets and pipes: the descriptors of children.
    channels: usize,
    /// Other descriptors: files of conversations that the store keeps open, which have a separate
    /// limit.
    files: usize,
}

impl Descriptors {
    fn of(pid: u32) -> Result<Self, Box<dyn Error>> {
        let (mut channels, mut files) = (0, 0);
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
            // A descriptor that was closed meanwhile is skipped.
            let Ok(target) = fs::read_link(descriptor?.path()) else {
                continue;
            };
            match target.to_string_lossy().split_once(":[") {
                Some(("socket" | "pipe", _)) => channels += 1,
                _ => files += 1,
            }
        }
        Ok(Self { channels, files })
    }
}

/// Number after `name` in a file of `/proc`.
pub(crate) fn number(path: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number
        .ok_or_else(|| format!("{path} has no `{name}`"))?
        .parse()?)
}

/// Of the processes that still run.
fn switches_of_all(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let path = format!("/proc/{pid}/status");
        number(&path, "voluntary_ctxt_switches:").ok()
    };
    pids.iter().filter_map(of).sum()
}

/// The processor time of a process.
pub(crate) fn ticks(pid: u32) -> Result<u64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no such stat")?;
    let mut sum = 0;
    for field in rest.split_whitespace().skip(11).take(2) {
        sum += field.parse::<u64>()?;
    }
    Ok(sum)
}
