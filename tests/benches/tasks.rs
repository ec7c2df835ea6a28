//! Cost of 200 tasks, 20 of which run, and of a run beside its program alone, with the real
//! binaries. See `docs/performance.md`.
//!
//! `cargo bench -p goondan-tests --bench tasks`. `GOONDAN_BENCH_TASKS` is the number of tasks
//! (default 200), and `GOONDAN_BENCH_LISTS` the number of times that they are listed and that a
//! program runs (default 15).

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measure prints its result"
)]

use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// Tasks whose agents always work: the maximum number of concurrent processes.
const RUNNING: usize = 20;

/// Pause between two looks at a task's files.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// An agent that asks and waits, one that works and reports it, and one that runs one command.
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
metadata: {name: worker}
spec: {runtime: {kind: cli, command: [./worker.sh]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: caller}
spec: {runtime: {kind: cli, command: [./caller.sh]}}
"#;

const ASKER: &str = "#!/bin/sh\ncat > /dev/null\nprintf '[USER_QUESTION]\\nquestion: Which?\\n[/USER_QUESTION]\\n'\n";

const WORKER: &str = "#!/bin/sh\ncat > /dev/null\nwhile :; do echo 'I work.'; sleep 1; done\n";

const CALLER: &str =
    "#!/bin/sh\ncat > /dev/null\nls / > listed\nprintf '=== CUSTOM TASK COMPLETE ===\\n'\n";

type TasksBenchResult = Result<(), Box<dyn Error>>;

fn knob(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A value of `/proc/<pid>/status`, in kilobytes.
fn kilobytes(pid: u32, name: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    Ok(figure.ok_or("the system does not report it")?.parse()?)
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

fn median(home: &Home, args: &[&str], times: usize) -> Duration {
    let mut taken: Vec<Duration> = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        home.gdn(args).exits(0);
        taken.push(start.elapsed());
    }
    taken.sort_unstable();
    taken.get(times / 2).copied().unwrap_or_default()
}

/// Time from the client's start until the task's result is durable.
fn run_as_task(home: &Home, number: usize) -> Result<Duration, Box<dyn Error>> {
    let id = format!("caller-{number}");
    let history = home.workspace_dir().join("tasks").join(&id);
    let history = history.join(".metadata/history.jsonl");
    let start = Instant::now();
    let new = ["task", "new", &id, "--id", &id, "--agent", "caller"];
    home.gdn(&[&new[..], &["--description", "List it.", "--start"]].concat())
        .exits(0);
    while !fs::read_to_string(&history)?.contains("\"task_completed\"") {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(start.elapsed())
}

fn run_alone(home: &Home) -> Result<Duration, Box<dyn Error>> {
    let dir = home.path().join("alone");
    fs::create_dir_all(&dir)?;
    let prompt = home.path().join("prompt");
    home.write("prompt", "List it.");
    let start = Instant::now();
    let mut program = Command::new(home.project().join("caller.sh"));
    program.current_dir(dir).stdin(fs::File::open(prompt)?);
    let ran = program.output()?;
    let taken = start.elapsed();
    if ran.status.success() {
        Ok(taken)
    } else {
        Err(format!("{ran:?}").into())
    }
}

/// Prints what a run with one command takes more than its program alone.
fn overhead(home: &Home, runs: usize) -> TasksBenchResult {
    let (mut alone, mut as_task) = (Vec::new(), Vec::new());
    for number in 0..runs {
        alone.push(run_alone(home)?);
        as_task.push(run_as_task(home, number)?);
    }
    alone.sort_unstable();
    as_task.sort_unstable();
    let of = |taken: &[Duration]| taken.get(runs / 2).copied().unwrap_or_default();
    let (alone, as_task) = (of(&alone), of(&as_task));
    println!(
        "a run with one command: alone {:.1} ms, as a task {:.1} ms, {:.1} ms more, medians of {runs}",
        alone.as_secs_f64() * 1_000.0,
        as_task.as_secs_f64() * 1_000.0,
        as_task.saturating_sub(alone).as_secs_f64() * 1_000.0,
    );
    Ok(())
}

fn main() -> TasksBenchResult {
    let tasks = knob("GOONDAN_BENCH_TASKS", 200).max(RUNNING);
    let lists = knob("GOONDAN_BENCH_LISTS", 15);
    let home = Home::new(PROJECT);
    home.write_program("project/asker.sh", ASKER);
    home.write_program("project/worker.sh", WORKER);
    home.write_program("project/caller.sh", CALLER);
    let daemon = Daemon::serving(&home).measured();
    overhead(&home, lists)?;
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
