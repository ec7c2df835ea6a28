//! Benchmarks of the store, compared with the same machine without it.
//!
//! `cargo bench -p goondan-store` runs everything, `cargo bench -p goondan-store -- fold` the
//! benchmarks with `fold` in their names. Each benchmark and its baseline run together on one file
//! system: the directory in `GOONDAN_BENCH_DIR`, or the system's temporary directory.
//! `GOONDAN_BENCH_IDLE_S` is the duration of the idle measurement. Results and targets are in
//! `docs/performance.md`.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};

mod appends;
mod history;
mod startup;
mod world;

pub(crate) type StoreBenchResult = Result<(), Box<dyn Error>>;
/// A benchmark that works in the given directory.
type Measure = fn(&Path) -> StoreBenchResult;

const MEASURES: [(&str, Measure); 6] = [
    ("appends", appends::one_in_flight),
    ("group", appends::several_in_flight),
    ("fold", history::fold),
    ("load", history::load),
    ("startup", startup::many_instances),
    ("idle", startup::idle),
];

pub(crate) fn say(line: &str) -> StoreBenchResult {
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
}

fn main() -> StoreBenchResult {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let dir = std::env::var_os("GOONDAN_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    for (name, measure) in MEASURES {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let temp = tempfile::tempdir_in(&dir)?;
            say(&format!("## {name}"))?;
            measure(temp.path())?;
        }
    }
    Ok(())
}
