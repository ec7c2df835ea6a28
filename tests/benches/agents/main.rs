//! Cost of an agent with the real binaries: starting it, keeping it, and having it answer. See
//! `docs/performance.md`.
//!
//! `cargo bench -p goondan-tests --bench agents` runs everything; a word after `--` selects the
//! measurements with it in their names. Variables: `GOONDAN_BENCH_AGENTS` is the number of idle
//! agents (default 200), `GOONDAN_BENCH_HOLD_S` the seconds they are kept (default 20),
//! `GOONDAN_BENCH_TURNS` the number of turns whose bytes on disk are counted (default 3000),
//! `GOONDAN_BENCH_CONVERSATIONS` the number of conversations in `gdn top` (default 10,000), and
//! `GOONDAN_BENCH_FOLLOWED_TURNS` the number of turns that another node follows (default 100,000).

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measure prints its result"
)]

use std::error::Error;
use std::time::Duration;

mod answer;
mod bytes;
mod client;
mod cost;
mod idle;
mod isolation;
mod replicated;
mod routing;
mod scrape;
mod spawn;
mod tools;
mod top;

pub(crate) type AgentsBenchResult = Result<(), Box<dyn Error>>;

/// A measurement, which prints its results.
type Measure = fn() -> AgentsBenchResult;

const MEASURES: [(&str, Measure); 14] = [
    ("spawn", spawn::spawn_to_ready),
    ("latency", answer::latency),
    ("turns", answer::turns_per_second),
    ("tools", tools::turns_with_tools),
    ("beside", isolation::misbehaviour),
    ("bytes", bytes::per_turn),
    ("cost", cost::embedded_model),
    ("cost-http", cost::model_over_http),
    ("idle", idle::many),
    ("scrape", scrape::scrapes),
    ("top", top::frames),
    ("routing", routing::messages_per_second),
    ("replicated", replicated::beside_plain_inserts),
    ("replicated-slow-commits", replicated::with_slow_commits),
];

/// An agent that answers immediately.
pub(crate) const INSTANT: &str = r"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: instant}
spec: {provider: scripted, options: {rules: [{say: Done.}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec: {modelConfig: {modelRef: Model/instant}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec:
  entryAgent: Agent/worker
  # Longer than any measure takes.
  policy: {lifecycle: {idleSeconds: 86400}}
";

fn main() -> AgentsBenchResult {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    for (name, measure) in MEASURES {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            measure()?;
        }
    }
    Ok(())
}

pub(crate) fn knob(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The time that `permille` of a thousand do not exceed, in milliseconds.
pub(crate) fn quantile_ms(times: &mut [Duration], permille: usize) -> f64 {
    times.sort_unstable();
    let place = (times.len() * permille / 1_000).min(times.len().saturating_sub(1));
    times
        .get(place)
        .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}
