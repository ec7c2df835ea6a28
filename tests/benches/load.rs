//! Loading a long conversation from its file to its agent process, with the real binaries, compared
//! with `cat` of the file. See `docs/performance.md`.

#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measure prints its result, which is a ratio"
)]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_tests::daemon::Daemon;
use goondan_tests::home::{AGENT, Home, ORCHESTRATOR};
use goondan_tests::log::message;
use goondan_tests::projects::LAB;
use serde_json::json;

const MESSAGES: usize = 100_000;
const TEXT_BYTES: usize = 850;
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("long", "echo hello"), "hello");
    daemon.stop();
    let base = write_history(&home)?;
    let bytes = fs::metadata(&base)?.len();

    let mut command = home.command(&goondan_tests::binaries::bin(ORCHESTRATOR), &[]);
    command.env("GOONDAN_LOG", "debug");
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    // The first load adds checksums to the messages.
    assert_eq!(home.ask("long", "echo first"), "first");

    let (mut loads, mut cats, mut agent_peak, mut daemon_peak) = (Vec::new(), Vec::new(), 0, 0);
    for round in 0..ROUNDS {
        home.gdn(&["restart", "--instance", "long"]).exits(0);
        forget_peak(daemon.pid())?;
        touch_memory(bytes)?;
        let start = Instant::now();
        let status = Command::new("cat")
            .arg(&base)
            .stdout(Stdio::null())
            .status()?;
        assert!(status.success(), "cat failed");
        cats.push(start.elapsed());

        let before = resident_bytes(daemon.pid(), "VmRSS")?;
        let text = format!("echo {round}");
        assert_eq!(home.ask("long", &text), round.to_string());
        let line = daemon
            .log()
            .latest(|line| message(line) == "conversation loaded");
        let line = line.ok_or("the log has no duration of the load")?;
        assert!(line["messages"].as_u64() >= Some(MESSAGES as u64), "{line}");
        let elapsed = line["elapsedUs"].as_u64();
        loads.push(Duration::from_micros(elapsed.ok_or("no time was logged")?));
        let agents = home.running(AGENT);
        let agent = agents.first().ok_or("no agent runs")?;
        agent_peak = agent_peak.max(resident_bytes(agent.pid, "VmHWM")?);
        let peak = resident_bytes(daemon.pid(), "VmHWM")?;
        daemon_peak = daemon_peak.max(peak.saturating_sub(before));
    }
    let best = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
    let (best_load, best_cat) = (best(&loads), best(&cats));
    let (load, cat) = (median(loads), median(cats));
    let share = |part: u64| part as f64 / bytes as f64;
    println!(
        "{MESSAGES} messages, {} MB, loaded by a new agent process: {:.0} ms; cat {:.1} ms, ratio {:.1}; \
         at best {:.0} ms, cat {:.1} ms; the agent takes at most {} MB, {:.2} of the file; the daemon at \
         most {} MB more than before",
        bytes / 1_000_000,
        load.as_secs_f64() * 1_000.0,
        cat.as_secs_f64() * 1_000.0,
        load.as_secs_f64() / cat.as_secs_f64(),
        best_load.as_secs_f64() * 1_000.0,
        best_cat.as_secs_f64() * 1_000.0,
        agent_peak / 1_000_000,
        share(agent_peak),
        daemon_peak / 1_000_000,
    );
    Ok(())
}

/// Allocates and frees as much memory as a load needs.
///
/// Many hypervisors reclaim free memory of an idle virtual machine, and the first access afterwards
/// takes ten to twenty times as long as clearing the page. This cost belongs neither to the load
/// nor to `cat`.
fn touch_memory(bytes: u64) -> std::io::Result<()> {
    let mut memory = memmap2::MmapMut::map_anon(usize::try_from(2 * bytes).unwrap_or(usize::MAX))?;
    #[cfg(target_os = "linux")]
    memory.advise(memmap2::Advice::HugePage)?;
    for byte in memory.iter_mut().step_by(4096) {
        *byte = 1;
    }
    Ok(())
}

/// Replaces the conversation's base with a long history.
fn write_history(home: &Home) -> Result<std::path::PathBuf, Box<dyn Error>> {
    let messages = home.workspace_dir().join("instances/long/messages");
    let base = messages.join("base.jsonl");
    let mut lines = Vec::new();
    for n in 0..MESSAGES {
        let record = json!({
            "id": format!("old{n}"), "data": {"role": "user", "content": "x".repeat(TEXT_BYTES)},
            "metadata": {}, "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
        });
        serde_json::to_writer(&mut lines, &record)?;
        lines.push(b'\n');
    }
    fs::remove_file(messages.join("base.sums.jsonl"))?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&base)?;
    file.write_all(&lines)?;
    file.sync_all()?;
    Ok(base)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Resets the peak memory of a process.
fn forget_peak(pid: u32) -> std::io::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    match fs::OpenOptions::new().write(true).open(Path::new(&path)) {
        Ok(mut file) => file.write_all(b"5"),
        Err(_) => Ok(()),
    }
}

/// A memory size of a process from `/proc/<pid>/status`, in bytes; 0 if missing.
fn resident_bytes(pid: u32, name: &str) -> Result<u64, Box<dyn Error>> {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Ok(0);
    };
    let line = text.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.map_or(Ok(0), str::parse::<u64>)? * 1024)
}
