//! Preparing a sandbox of 1,000 files, submitting changes to all of them, and applying them, with
//! the real binaries, compared with the same operations in git: `git worktree add`, `git diff`,
//! `git apply`. See `docs/performance.md`.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measure prints its result, and what it measures on need not last"
)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_tests::daemon::Daemon;
use goondan_tests::home::Home;
use goondan_tests::projects::LAB;

const FILES: usize = 1_000;
const FILES_IN_A_DIRECTORY: usize = 20;
const LINES: usize = 80;
const ROUNDS: usize = 3;
/// Maximum duration of each step.
const TARGET: Duration = Duration::from_secs(2);

/// Measured steps, and their equivalents in git.
const STEPS: [(&str, &str); 3] = [
    ("prepare", "git worktree add"),
    ("create", "git diff"),
    ("apply", "git apply"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let home = Home::new(LAB);
    let project = home.project();
    for number in 0..FILES {
        write(&project, number, &text(number, None))?;
    }
    fs::write(project.join(".gitignore"), ".goondan*\n")?;
    git(&project, &["init", "-q"])?;
    git(&project, &["add", "."])?;
    git(&project, &["commit", "-q", "-m", "all"])?;
    let _daemon = Daemon::serving(&home);
    let mut ours: [Vec<Duration>; 3] = Default::default();
    let mut gits: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS {
        let times = by_goondan(&home, round)?;
        let baseline = by_git(&home, round)?;
        for (all, times) in [(&mut ours, times), (&mut gits, baseline)] {
            for (all, time) in all.iter_mut().zip(times) {
                all.push(time);
            }
        }
    }
    println!("{FILES} files of {LINES} lines, one changed in each; {ROUNDS} rounds, medians in ms");
    for (((step, command), ours), gits) in STEPS.iter().zip(&mut ours).zip(&mut gits) {
        let (least, most, median) = (best(ours), worst(ours), middle(ours));
        let baseline = middle(gits);
        println!(
            "{step:>8} {:>6} ({} to {}){}; {command}: {} ({:.1} of it)",
            median.as_millis(),
            least.as_millis(),
            most.as_millis(),
            if median < TARGET { "" } else { ", too slow" },
            baseline.as_millis(),
            median.as_secs_f64() / baseline.as_secs_f64(),
        );
    }
    Ok(())
}

fn path_of(number: usize) -> String {
    format!("src/{:02}/{number}.txt", number / FILES_IN_A_DIRECTORY)
}

/// Text of a file after a round.
fn text(number: usize, round: Option<usize>) -> String {
    let line = |line: usize| match round {
        Some(round) if line == LINES / 2 => format!("changed in round {round}, file {number}\n"),
        _ => format!("line {line} of file {number}, as it was in the beginning\n"),
    };
    (0..LINES).map(line).collect()
}

fn write(root: &Path, number: usize, text: &str) -> std::io::Result<()> {
    let path = root.join(path_of(number));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

fn by_goondan(home: &Home, round: usize) -> Result<[Duration; 3], Box<dyn Error>> {
    let run = format!("round-{round}");
    let prepare = ["sandbox", "prepare", "--run", &run, "--agent", "a", "src"];
    let start = Instant::now();
    let prepared = home.gdn_json(&prepare);
    let prepared_in = start.elapsed();
    let work = prepared.get("workDir").and_then(|path| path.as_str());
    let work = PathBuf::from(work.ok_or("no working directory")?);
    for number in 0..FILES {
        write(&work, number, &text(number, Some(round)))?;
    }
    let start = Instant::now();
    home.gdn(&["proposal", "create", &run, "a"]).exits(0);
    let created_in = start.elapsed();
    let start = Instant::now();
    home.gdn(&["proposal", "apply", &run, "a", "--yes"])
        .exits(0);
    let applied_in = start.elapsed();
    let last = fs::read_to_string(home.project().join(path_of(FILES - 1)))?;
    assert_eq!(last, text(FILES - 1, Some(round)));
    home.gdn(&["sandbox", "remove", &run, "a"]).exits(0);
    git(&home.project(), &["checkout", "-q", "--", "."])?;
    Ok([prepared_in, created_in, applied_in])
}

fn by_git(home: &Home, round: usize) -> Result<[Duration; 3], Box<dyn Error>> {
    let project = home.project();
    let work = home.path().join("worktree");
    let named = work.display().to_string();
    let start = Instant::now();
    git(&project, &["worktree", "add", "-q", "--detach", &named])?;
    let prepared_in = start.elapsed();
    for number in 0..FILES {
        write(&work, number, &text(number, Some(round)))?;
    }
    let patch = home.path().join("changes.patch");
    let output = format!("--output={}", patch.display());
    let start = Instant::now();
    git(&work, &["diff", "--binary", "--full-index", &output])?;
    let created_in = start.elapsed();
    let start = Instant::now();
    git(&project, &["apply", &patch.display().to_string()])?;
    let applied_in = start.elapsed();
    git(&project, &["checkout", "-q", "--", "."])?;
    git(&project, &["worktree", "remove", "--force", &named])?;
    Ok([prepared_in, created_in, applied_in])
}

fn git(directory: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let status = Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdout(Stdio::null())
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("git {} failed", arguments.join(" ")).into())
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn best(times: &[Duration]) -> Duration {
    times.iter().min().copied().unwrap_or_default()
}

fn worst(times: &[Duration]) -> Duration {
    times.iter().max().copied().unwrap_or_default()
}
