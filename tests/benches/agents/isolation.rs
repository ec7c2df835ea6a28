//! Turn latency of one conversation while another misbehaves (`SEC-8`).

use std::fs;
use std::time::{Duration, Instant};

use goondan_tests::binaries::example;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::misbehaviour::{EXAMPLE, TURN, order_to_say};
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, quantile_ms};

/// Turns measured without a misbehaving conversation.
const QUIET_TURNS: usize = 500;

/// Measures with no misbehavior, with a conversation that keeps appending 8 MB, and with one that
/// floods the daemon with reports.
pub(crate) fn misbehaviour() -> AgentsBenchResult {
    let append = json!({
        "type": "turn.append", "from": "child", "to": "orchestrator",
        "payload": {"turnId": TURN, "seq": "{n}", "event": {"type": "append", "message": {
            "id": "{turn}:{n}", "data": {"role": "user", "content": "{fill}"}, "metadata": {},
            "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
        }}},
        "times": 150, "fillBytes": 8_000_000,
    });
    let report = json!({
        "type": "observe", "from": "child", "to": "orchestrator",
        "payload": {
            "type": "turn.completed", "timestamp": "2026-01-01T00:00:00.000Z",
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
            "agentName": "worker", "instanceKey": "k", "turnId": TURN, "detail": "{fill}",
        },
        "times": 100_000, "fillBytes": 500,
    });
    measure("150 appends of 8 MB in one turn", append)?;
    measure("100,000 reports in one turn", report)
}

fn measure(what: &str, frame: Value) -> AgentsBenchResult {
    let home = Home::new(INSTANT);
    let bin_dir = home.bin_dir_of_its_own();
    for name in [AGENT, CONNECTOR] {
        fs::hard_link(example(EXAMPLE), bin_dir.path().join(name))?;
    }
    let daemon = Daemon::start_in(&home, bin_dir.path()).measured();
    home.gdn(&["run"]).exits(0);
    let (mut bystander, mut other) = (BenchClient::connect(&home)?, BenchClient::connect(&home)?);
    bystander.ask_and_wait("bystander")?;
    let mut quiet = Vec::with_capacity(QUIET_TURNS);
    for _ in 0..QUIET_TURNS {
        quiet.push(turn_of(&mut bystander)?);
    }
    order_to_say(home.path(), AGENT, &[frame]);
    let misbehaving = std::thread::spawn(move || {
        // Regardless of the result, the turn is over.
        other.ask_and_wait("k").is_ok()
    });
    let mut beside = Vec::new();
    while !misbehaving.is_finished() {
        beside.push(turn_of(&mut bystander)?);
    }
    println!(
        "beside, {what}: a turn of another conversation took p50 {:.2} ms, p99 {:.2} ms, {:.0} ms at most \
         ({} turns); before that p50 {:.2} ms, p99 {:.2} ms",
        quantile_ms(&mut beside, 500),
        quantile_ms(&mut beside, 990),
        quantile_ms(&mut beside, 1_000),
        beside.len(),
        quantile_ms(&mut quiet, 500),
        quantile_ms(&mut quiet, 990),
    );
    daemon.stop();
    Ok(())
}

fn turn_of(client: &mut BenchClient) -> Result<Duration, Box<dyn std::error::Error>> {
    let start = Instant::now();
    client.ask_and_wait("bystander")?;
    Ok(start.elapsed())
}
