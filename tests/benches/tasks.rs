//! Cost of 200 tasks, 20 of which run, and of one run, with the real binaries. See
//! `docs/performance.md`.
//!
//! `cargo bench -p goondan-tests --bench tasks`. `GOONDAN_BENCH_TASKS` is the number of tasks
//! (default 200), `GOONDAN_BENCH_LISTS` the number of times that they are listed (default 15), and
//! `GOONDAN_BENCH_RUNS` the number of runs next to the program alone (default 21).

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measure prints its result"
)]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_protocol::time::Timestamp;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// Tasks whose agents always work: the maximum number of concurrent processes.
const RUNNING: usize = 20;

/// An agent that asks and waits, and one that works and reports it.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/bench"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: asker}
spec: {runtime: {kind: cli, command: [./asker.sh]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: coder}
spec: {runtime: {kind: cli, command: [./coder.sh], format: claude-stream-json}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec: {runtime: {kind: cli, command: [./worker.sh]}}
"#;

const ASKER: &str = "#!/bin/sh\ncat > /dev/null\nprintf '[USER_QUESTION]\\nquestion: Which?\\n[/USER_QUESTION]\\n'\n";

const WORKER: &str = "#!/bin/sh\ncat > /dev/null\nwhile :; do echo 'I work.'; sleep 1; done\n";

/// A program that calls one tool, and reports it and its result like `claude`.
const CODER: &str = r#"#!/bin/sh
read -r prompt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo '{"type":"assistant","message":{"id":"m-1","role":"assistant","content":[{"type":"tool_use","id":"t-1","name":"Bash","input":{"command":"date > made.txt"}}]}}'
date > made.txt
echo '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t-1","content":""}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"Done."}'
"#;

/// Result of a measurement.
type Outcome = Result<(), Box<dyn Error>>;

fn knob(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A value of `/proc/<pid>/status`, in kilobytes.
fn kilobytes(pid: u32, name: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    Ok(figure.ok_or("the system does not tell it")?.parse()?)
}

fn hire(home: &Home, agent: &str, count: usize) {
    for n in 0..count {
        let title = format!("{agent}-{n}");
        let new = [
            "task",
            "new",
            &title,
            "--id",
            &title,
            "--agent",
            agent,
            "--description",
            "Build a shop.",
            "--start",
        ];
        home.gdn(&new).exits(0);
    }
}

fn with_status(home: &Home, status: &str) -> usize {
    let listed = home.gdn_json(&["task", "list"]);
    let tasks = listed.get("tasks").and_then(Value::as_array);
    let of_status = tasks
        .into_iter()
        .flatten()
        .filter(|task| task.get("status").is_some_and(|it| it == status));
    of_status.count()
}

/// Median duration of a command.
fn median(home: &Home, args: &[&str], times: usize) -> Duration {
    let mut taken: Vec<Duration> = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        home.gdn(args).exits(0);
        taken.push(start.elapsed());
    }
    middle(taken)
}

/// The middle one.
fn middle(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied().unwrap_or_default()
}

/// Time of an event in a task's history.
fn time_of(history: &str, event: &str) -> Result<i64, Box<dyn Error>> {
    let lines = history.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = lines.collect::<Result<_, _>>()?;
    let found = events
        .iter()
        .find(|it| it.get("event").is_some_and(|it| it == event));
    let at = found.and_then(|it| it.get("timestamp")?.as_str());
    let at: Timestamp = at.ok_or("the history lacks an event")?.parse()?;
    Ok(at.as_unix_millis())
}

/// Compares the program alone, from its start to its end, with a run of it by the daemon, from the
/// decision to start it to its recorded result. The client is not included.
fn overhead(home: &Home, runs: usize) -> Outcome {
    let (mut alone, mut with, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..runs {
        let program = home.project().join("coder.sh");
        let dir = home.path().join(format!("alone-{n}"));
        fs::create_dir(&dir)?;
        let start = Instant::now();
        let mut child = Command::new(program)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("no input")?;
        stdin.write_all(b"{}\n")?;
        drop(stdin);
        child.wait_with_output()?;
        let by_itself = start.elapsed();
        let id = format!("coder-{n}");
        let new = ["task", "new", &id, "--id", &id, "--agent", "coder"];
        let rest = ["--description", "Build a shop.", "--start"];
        home.gdn(&[&new[..], &rest[..]].concat()).exits(0);
        let history = home.workspace_dir().join("tasks").join(&id);
        let history = history.join(".metadata/history.jsonl");
        let read = || fs::read_to_string(&history).unwrap_or_default();
        wait_until("the run is over", || read().contains("\"run_ended\""));
        let history = read();
        let millis = time_of(&history, "task_completed")? - time_of(&history, "run_requested")?;
        let by_daemon = Duration::from_millis(u64::try_from(millis)?);
        alone.push(by_itself);
        with.push(by_daemon);
        more.push(by_daemon.saturating_sub(by_itself));
    }
    let millis = |taken: Vec<Duration>| middle(taken).as_secs_f64() * 1_000.0;
    println!(
        "one run with a tool call: alone {:.1} ms, with goondan {:.1} ms, {:.1} ms more, medians of {runs}",
        millis(alone),
        millis(with),
        millis(more),
    );
    Ok(())
}

fn main() -> Outcome {
    let tasks = knob("GOONDAN_BENCH_TASKS", 200).max(RUNNING);
    let lists = knob("GOONDAN_BENCH_LISTS", 15);
    let home = Home::new(PROJECT);
    home.write_program("project/asker.sh", ASKER);
    home.write_program("project/worker.sh", WORKER);
    home.write_program("project/coder.sh", CODER);
    let daemon = Daemon::serving(&home).measured();
    overhead(&home, knob("GOONDAN_BENCH_RUNS", 21))?;
    let bare = median(&home, &["task", "list"], lists);
    let before = kilobytes(daemon.pid(), "VmRSS:")?;
    hire(&home, "asker", tasks - RUNNING);
    wait_until("those that ask have asked", || {
        with_status(&home, "waiting_question") == tasks - RUNNING
    });
    hire(&home, "worker", RUNNING);
    wait_until("the others work", || home.running("sleep").len() == RUNNING);
    let listed = median(&home, &["task", "list"], lists);
    let needs = median(&home, &["task", "list", "--needs-me"], lists);
    let (after, peak) = (
        kilobytes(daemon.pid(), "VmRSS:")?,
        kilobytes(daemon.pid(), "VmHWM:")?,
    );
    let mb = |kilobytes: u64| kilobytes.saturating_sub(before) as f64 / 1_024.0;
    println!(
        "tasks, {tasks} of which {RUNNING} run: `gdn task list` {:.1} ms (with none {:.1} ms), with --needs-me {:.1} ms, \
         medians of {lists}; daemon: RSS {:.1} MB more than the {:.1} MB without tasks, {:.1} MB more at most",
        listed.as_secs_f64() * 1_000.0,
        bare.as_secs_f64() * 1_000.0,
        needs.as_secs_f64() * 1_000.0,
        mb(after),
        before as f64 / 1_024.0,
        mb(peak),
    );
    drop(daemon.stop());
    Ok(())
}
