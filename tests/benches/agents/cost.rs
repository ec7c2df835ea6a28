//! Cost of a turn: counts that do not depend on the load of the machine, and processor time.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, processes};
use serde_json::Value;

use crate::answer::{BUSY_AGENTS, BUSY_DEPTH};
use crate::client::BenchClient;
use crate::idle::number;
use crate::{AgentsBenchResult, INSTANT};

/// Turns that are counted.
const COUNTED_TURNS: usize = 2_000;
/// Bytes of an event's text.
const INPUT_BYTES: usize = 200;
/// After it, each base is synced, each journal is cleared, and the log is written.
const QUIET: Duration = Duration::from_millis(1_500);

/// Turns with the model inside the agent.
pub(crate) fn embedded_model() -> AgentsBenchResult {
    measure("embedded model", INSTANT)
}

/// Turns with a model behind HTTP on loopback.
pub(crate) fn model_over_http() -> AgentsBenchResult {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let model = format!(
        "spec: {{provider: openai, model: fake, endpoint: '{}', apiKey: {{value: key}}}}",
        provider.endpoint()
    );
    let embedded = "spec: {provider: scripted, options: {rules: [{say: Done.}]}}";
    measure("model over HTTP", &INSTANT.replace(embedded, &model))
}

/// Runs turns of busy agents, and prints what they cost each process.
fn measure(what: &str, project: &str) -> AgentsBenchResult {
    let home = Home::new(project);
    let daemon = Daemon::serving(&home);
    let mut client = BenchClient::connect(&home)?;
    turns(&mut client, BUSY_AGENTS * BUSY_DEPTH)?;
    std::thread::sleep(QUIET);
    let pids = programs(&home, &daemon);
    let before = Snapshot::of(&home, &daemon, &mut client, &pids)?;
    turns(&mut client, COUNTED_TURNS)?;
    std::thread::sleep(QUIET);
    let after = Snapshot::of(&home, &daemon, &mut client, &pids)?;

    let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / COUNTED_TURNS as f64;
    println!("cost, {what}, {BUSY_AGENTS} agents, per turn:");
    for (name, used) in &after.processes {
        let past = before.processes.get(name).copied().unwrap_or_default();
        println!(
            "  {name}: {:.0} us, {:.1} switches, {:.1} reads, {:.1} writes",
            each(used.nanos, past.nanos) / 1_000.0,
            each(used.switches, past.switches),
            each(used.reads, past.reads),
            each(used.writes, past.writes),
        );
    }
    println!(
        "  {:.2} syncs, {:.1} lines of {:.0} bytes in all in the log, {:.0} bytes of state before compression",
        each(after.syncs, before.syncs),
        each(after.log_lines, before.log_lines),
        each(after.log_bytes, before.log_bytes),
        each(after.state_bytes, before.state_bytes),
    );
    daemon.stop();
    Ok(())
}

/// Keeps each agent busy until so many turns are committed.
fn turns(client: &mut BenchClient, count: usize) -> AgentsBenchResult {
    let text = "x".repeat(INPUT_BYTES);
    let mut key_of = BTreeMap::new();
    let (mut asked, mut answered) = (0, 0);
    let mut next = 0;
    while answered < count {
        while asked < count && asked < answered + BUSY_AGENTS * BUSY_DEPTH {
            let key = format!("agent-{}", next % BUSY_AGENTS);
            key_of.insert(client.say(&key, &text)?, next % BUSY_AGENTS);
            (asked, next) = (asked + 1, next + 1);
        }
        let (id, _) = client.next_answer()?;
        // The agent that is free gets the next event.
        next = key_of.remove(&id).ok_or("an answer to nothing")?;
        answered += 1;
    }
    Ok(())
}

/// The daemon, the agents and the connectors, by their programs.
fn programs(home: &Home, daemon: &Daemon) -> BTreeMap<&'static str, Vec<u32>> {
    let pids = |program| {
        let running = processes::running(home.path(), program);
        running.iter().map(|process| process.pid).collect()
    };
    BTreeMap::from([
        ("daemon", vec![daemon.pid()]),
        ("agents", pids(AGENT)),
        ("connectors", pids(CONNECTOR)),
    ])
}

/// Resource usage of processes since they started.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessUsage {
    nanos: u64,
    /// Voluntary context switches: waits for another thread, process or disk.
    switches: u64,
    /// Calls that read and write files and pipes; those of sockets are not counted.
    reads: u64,
    writes: u64,
}

struct Snapshot {
    processes: BTreeMap<&'static str, ProcessUsage>,
    syncs: u64,
    log_lines: u64,
    log_bytes: u64,
    state_bytes: u64,
}

impl Snapshot {
    fn of(
        home: &Home,
        daemon: &Daemon,
        client: &mut BenchClient,
        pids: &BTreeMap<&'static str, Vec<u32>>,
    ) -> Result<Self, Box<dyn Error>> {
        let lines = daemon.log().lines();
        let bytes = lines.iter().map(|line| line.to_string().len() as u64 + 1);
        let mut used = BTreeMap::new();
        for (name, pids) in pids {
            used.insert(*name, usage_of(pids)?);
        }
        Ok(Self {
            log_bytes: bytes.sum(),
            log_lines: lines.len() as u64,
            processes: used,
            syncs: syncs(&client.ask_method("daemon.metrics")?)
                .ok_or("the metrics have no count of syncs")?,
            state_bytes: bytes_below(&home.state_root().join("workspaces"))?,
        })
    }
}

fn usage_of(pids: &[u32]) -> Result<ProcessUsage, Box<dyn Error>> {
    let mut used = ProcessUsage::default();
    for pid in pids {
        let io = format!("/proc/{pid}/io");
        used.reads += number(&io, "syscr:")?;
        used.writes += number(&io, "syscw:")?;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?.path();
            // A thread of a pool may have ended meanwhile.
            let Ok(times) = fs::read_to_string(thread.join("schedstat")) else {
                continue;
            };
            let nanos = times
                .split_whitespace()
                .next()
                .ok_or("schedstat is empty")?;
            used.nanos += nanos.parse::<u64>()?;
            let status = thread.join("status").display().to_string();
            used.switches += number(&status, "voluntary_ctxt_switches:")?;
        }
    }
    Ok(used)
}

/// Number of syncs of files and directories by the store.
fn syncs(metrics: &Value) -> Option<u64> {
    let families = metrics.get("families").and_then(Value::as_array)?;
    let is_syncs = |family: &&Value| {
        family.get("metric").and_then(Value::as_str) == Some("goondan_store_sync_seconds")
    };
    let family = families.iter().find(is_syncs)?;
    family
        .pointer("/series/0/value/histogram/count")
        .and_then(Value::as_u64)
}

fn bytes_below(dir: &Path) -> Result<u64, std::io::Error> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
