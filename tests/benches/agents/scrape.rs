//! Cost of requesting the daemon's metrics (`OBS-3`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use goondan_tests::{Daemon, Home};

use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, knob, quantile_ms};

/// Number of times that each request is made.
const REQUESTS: usize = 200;
/// Number of rounds with and without a concurrent client.
const ROUNDS: usize = 8;
const TURNS: usize = 1_000;
const BUSY: usize = 8;
/// Pause between requests of the concurrent client: ten times as often as the endpoint would
/// request.
const PAUSE: Duration = Duration::from_millis(100);

/// Measures requests next to `daemon.status` with many conversations, and turns with a concurrent
/// client.
pub(crate) fn scrapes() -> AgentsBenchResult {
    let agents = knob("GOONDAN_BENCH_AGENTS", 200);
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home).measured();
    let mut client = BenchClient::connect(&home)?;
    for n in 0..agents {
        client.ask_and_wait(&format!("agent-{n}"))?;
    }
    let (mut scrapes, mut statuses) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        for (method, times) in [
            ("daemon.metrics", &mut scrapes),
            ("daemon.status", &mut statuses),
        ] {
            let start = Instant::now();
            client.ask_method(method)?;
            times.push(start.elapsed());
        }
    }
    println!(
        "scrape, {agents} conversations: p50 {:.2} ms, p99 {:.2} ms; `daemon.status` p50 {:.2} ms",
        quantile_ms(&mut scrapes, 500),
        quantile_ms(&mut scrapes, 990),
        quantile_ms(&mut statuses, 500),
    );
    let (mut alone, mut asked) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        alone += turns(&mut client)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asking = asker(&home, Arc::clone(&stop))?;
        asked += turns(&mut client)?;
        stop.store(true, Ordering::Relaxed);
        asking.join().map_err(|_| "who asks panicked")?;
    }
    println!(
        "turns with a scrape each {} ms: {:.3} of the turns without",
        PAUSE.as_millis(),
        alone.as_secs_f64() / asked.as_secs_f64(),
    );
    daemon.stop();
    Ok(())
}

/// Client that sends requests repeatedly.
fn asker(
    home: &Home,
    stop: Arc<AtomicBool>,
) -> Result<std::thread::JoinHandle<()>, Box<dyn std::error::Error>> {
    let mut client = BenchClient::connect(home)?;
    Ok(std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) && client.ask_method("daemon.metrics").is_ok() {
            std::thread::sleep(PAUSE);
        }
    }))
}

/// Measures the duration of a round's turns.
fn turns(client: &mut BenchClient) -> Result<Duration, Box<dyn std::error::Error>> {
    let start = Instant::now();
    for _ in 0..TURNS / BUSY {
        for n in 0..BUSY {
            client.ask(&format!("agent-{n}"))?;
        }
        for _ in 0..BUSY {
            client.next_answer()?;
        }
    }
    Ok(start.elapsed())
}
