//! Cost of a checkpoint compared with `tar czf` of the same files in the same run; see
//! docs/performance.md.
//!
//! `GOONDAN_BENCH_DIR` sets the working directory, and thereby the file system;
//! `GOONDAN_BENCH_FILES` the number of files in the tree.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics on any failure and prints its measurements"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;
use goondan_checkpoints::{
    AgentState, CheckpointReceipt, CheckpointSelector, Consistency, MakeCheckpoint, Retention,
    Store,
};
use goondan_durable::disk::{Folder as _, append_all};
use goondan_protocol::time::Timestamp;
use goondan_trees::RealFolder;

/// Average file size, as in 500 MB of 30,000 files.
const FILE_BYTES: usize = 17_000;
const FILES_EACH: usize = 25;
const ROUNDS: usize = 15;

fn main() {
    // `cargo test` runs this binary without the argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let files = std::env::var("GOONDAN_BENCH_FILES").ok();
    let files = files.map_or(30_000, |files| files.parse().unwrap());
    let temporary = match std::env::var_os("GOONDAN_BENCH_DIR") {
        Some(dir) => tempfile::tempdir_in(dir).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let root = temporary.path().join("task");
    std::fs::create_dir(&root).unwrap();
    let bytes = fill(&root, files);
    println!("{files} files, {:.0} MB", megabytes(bytes));
    let (tar, tar_took) = tar(&root, &temporary.path().join("tar.tar.gz"));
    println!(
        "tar czf                      {} {:.1} MB",
        seconds(tar_took),
        megabytes(tar)
    );
    let mut store = open(&root);
    let (first, took) = timed(|| make(&mut store));
    let size = first.snapshot_bytes;
    println!(
        "first checkpoint             {} {:.1} MB, {:.3} of tar czf",
        seconds(took),
        megabytes(size),
        ratio(size, tar)
    );
    let (mut unchanged, mut changed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (made, took) = measured(|| make(&mut store));
        assert!(made.is_unchanged && made.files_read <= 2, "{made:?}");
        unchanged.push(took);
        edit(&root, round);
        prune(&mut store);
        let (made, took) = measured(|| make(&mut store));
        assert!(!made.is_unchanged && made.files_read <= 50, "{made:?}");
        changed.push(took);
        prune(&mut store);
    }
    let nothing = show("nothing changed", &unchanged);
    let one = show("one file changed", &changed);
    let more = |one: Duration, nothing: Duration| one.as_secs_f64() - nothing.as_secs_f64();
    println!(
        "one file changed, more       {:+.0} ms, on a processor {:+.0} ms",
        more(one.0, nothing.0) * 1e3,
        more(one.1, nothing.1) * 1e3
    );
    let mut reopened = Vec::new();
    for _ in 0..ROUNDS {
        let (_, took) = measured(|| make(&mut open(&root)));
        reopened.push(took);
        prune(&mut store);
    }
    let (_, _) = show("nothing changed, opened anew", &reopened);
    let (drill, took) = timed(|| store.drill(now()).unwrap());
    assert_eq!(drill.problem, None);
    println!("drill                        {}", seconds(took));
    edit(&root, ROUNDS);
    let (restored, took) = timed(|| {
        store
            .restore(CheckpointSelector::Latest, false, now())
            .unwrap()
    });
    assert_eq!(restored.changed.len(), 1);
    println!("restore of one file          {}", seconds(took));
}

fn make(store: &mut Store) -> CheckpointReceipt {
    let request = MakeCheckpoint {
        kind: "periodic",
        phase: 1,
        progress: 50,
        agent_state: AgentState {
            status: "running".to_owned(),
            current_step: None,
        },
        tokens_used: 0,
        consistency: Consistency::Stopped,
        name: None,
        pinned: None,
    };
    store.make(&request, now()).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

fn open(root: &Path) -> Store {
    let folder = Box::new(RealFolder::open(root).unwrap());
    Store::open(folder, "task", "boot").unwrap().0
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// Also measures the CPU time, which excludes other processes.
fn measured<T>(work: impl FnOnce() -> T) -> (T, MeasuredTime) {
    let start = on_processor();
    let (done, elapsed) = timed(work);
    let on_processor = on_processor().saturating_sub(start);
    (
        done,
        MeasuredTime {
            elapsed,
            on_processor,
        },
    )
}

/// Elapsed and CPU time of an operation.
#[derive(Clone, Copy)]
struct MeasuredTime {
    elapsed: Duration,
    on_processor: Duration,
}

/// CPU time of this single-threaded program.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Keeps the newest two, like a task's retention.
fn prune(store: &mut Store) {
    let two = Retention {
        count: 2,
        bytes: None,
    };
    store.prune(two).unwrap();
}

/// Prints the median, minimum and maximum of some times, and the median CPU time; returns the
/// medians.
fn show(what: &str, times: &[MeasuredTime]) -> (Duration, Duration) {
    let sorted = |of: fn(&MeasuredTime) -> Duration| {
        let mut sorted: Vec<Duration> = times.iter().map(of).collect();
        sorted.sort_unstable();
        sorted
    };
    let elapsed = sorted(|took| took.elapsed);
    let on_processor = sorted(|took| took.on_processor);
    let at = |times: &[Duration], at: usize| times.get(at).copied().unwrap_or_default();
    let middle = times.len() / 2;
    let medians = (at(&elapsed, middle), at(&on_processor, middle));
    println!(
        "{what:<28} {} (at best {}, at worst {}), of which on a processor {}",
        seconds(medians.0),
        seconds(at(&elapsed, 0)),
        seconds(at(&elapsed, times.len() - 1)),
        seconds(medians.1)
    );
    medians
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "printed with few digits")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ratio(one: u64, other: u64) -> f64 {
    megabytes(one) / megabytes(other)
}

/// Creates a tree of mostly text from a small vocabulary, and some random data.
fn fill(root: &Path, files: usize) -> u64 {
    let folder = RealFolder::open(root).unwrap();
    let mut random = Rng::with_seed(16);
    let words: Vec<String> = std::iter::repeat_with(|| {
        let len = random.usize(2..10);
        std::iter::repeat_with(|| random.lowercase())
            .take(len)
            .collect()
    })
    .take(4000)
    .collect();
    let mut bytes = 0;
    for number in 0..files {
        let directory = format!("src/part_{:03}", number / FILES_EACH);
        if number == 0 {
            folder.create_dir(Path::new("src"), 0o755).unwrap();
        }
        if number % FILES_EACH == 0 {
            folder.create_dir(Path::new(&directory), 0o755).unwrap();
        }
        let len = random.usize(..2 * FILE_BYTES);
        let content = content(&mut random, &words, len);
        let name = format!("{directory}/file_{number:05}.txt");
        let mut file = folder.create(Path::new(&name), 0o644).unwrap();
        append_all(file.as_mut(), &content).unwrap();
        bytes += content.len() as u64;
    }
    bytes
}

fn content(random: &mut Rng, words: &[String], len: usize) -> Vec<u8> {
    if random.u8(..10) == 0 {
        return std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    }
    let mut content = Vec::with_capacity(len + 16);
    while content.len() < len {
        // Few words are frequent, as in natural text.
        let at = random.usize(..words.len()) * random.usize(..words.len()) / words.len();
        content.extend_from_slice(words.get(at).unwrap().as_bytes());
        content.push(if random.u8(..9) == 0 { b'\n' } else { b' ' });
    }
    content
}

/// Rewrites one file in the middle of the tree.
fn edit(root: &Path, round: usize) {
    let folder = RealFolder::open(root).unwrap();
    let path = format!(
        "src/part_{:03}/file_{:05}.txt",
        10 + round,
        (10 + round) * FILES_EACH
    );
    let path = Path::new(&path);
    let content = format!("edited in round {round}\n").repeat(500);
    folder.remove(path).unwrap();
    let mut file = folder.create(path, 0o644).unwrap();
    append_all(file.as_mut(), content.as_bytes()).unwrap();
    // Ensures that the file is not treated as one being written.
    std::thread::sleep(Duration::from_millis(50));
}

fn tar(root: &Path, archive: &Path) -> (u64, Duration) {
    let (status, took) = timed(|| {
        let mut command = Command::new("tar");
        command.arg("czf").arg(archive).arg("-C").arg(root).arg(".");
        command.status().unwrap()
    });
    assert!(status.success());
    (std::fs::metadata(archive).unwrap().len(), took)
}
