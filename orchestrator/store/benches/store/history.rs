//! Long conversations: folding a turn and loading.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use goondan_durable::disk::{Disk, RealDisk, append_all};
use goondan_store::instance::InstanceStore;

use crate::world::{append, at, completed, event, median, message, timed};
use crate::{StoreBenchResult, say};

const FOLDS: u32 = 41;
const APPENDS: u64 = 10;
const LOADS: usize = 7;
const LONG: usize = 100_000;

/// Creates an instance with `messages` messages, opened once so that it has checksums.
fn instance(dir: &Path, messages: usize) -> Result<PathBuf, Box<dyn Error>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.create_dir(dir)?;
    let name = format!("b{messages}");
    let (key, agent) = (name.parse()?, "agent".parse()?);
    drop(InstanceStore::create(
        disk.clone(),
        dir,
        &key,
        &agent,
        at(),
        ".new",
    )?);
    let dir = dir.join(name);
    let mut file = disk.open(&dir.join("messages").join("base.jsonl"))?;
    let mut lines = Vec::new();
    for n in 0..messages {
        serde_json::to_writer(&mut lines, &message(&format!("old{n}")))?;
        lines.push(b'\n');
    }
    append_all(file.as_mut(), &lines)?;
    file.sync()?;
    drop(InstanceStore::open(disk, &dir)?);
    Ok(dir)
}

/// Runs one turn of [`APPENDS`] appends; returns the time of commit and fold.
fn turn(store: &mut InstanceStore, n: u32) -> Result<std::time::Duration, Box<dyn Error>> {
    let (event, turn_id) = (event(&format!("e{n}"))?, format!("t{n}").parse()?);
    let event_id = event.id.clone();
    store.accept(event)?;
    store.sync()?;
    store.begin_turn(format!("t{n}").parse()?, &event_id, at())?;
    for seq in 1..=APPENDS {
        store.append_event(&turn_id, seq, &append(&format!("m{n}.{seq}"))?)?;
    }
    store.sync()?;
    let (done, time) = timed(|| {
        store.complete_turn(&turn_id, APPENDS, completed(), at())?;
        store.sync()?;
        store.finish_turn()
    });
    done?;
    Ok(time)
}

pub(crate) fn fold(dir: &Path) -> StoreBenchResult {
    let sizes = [0, 1_000, 10_000, LONG];
    let mut stores = Vec::new();
    for size in sizes {
        let dir = instance(dir, size)?;
        stores.push(InstanceStore::open(Arc::new(RealDisk), &dir)?);
    }
    let mut times = vec![Vec::new(); sizes.len()];
    // The sizes alternate, so that a busy disk affects every size.
    for n in 0..FOLDS {
        for (store, times) in stores.iter_mut().zip(&mut times) {
            times.push(turn(store, n)?);
        }
    }
    let mut at_zero = None;
    for (size, times) in sizes.into_iter().zip(times) {
        let time = median(times).as_secs_f64() * 1_000.0;
        let zero = *at_zero.get_or_insert(time);
        say(&format!(
            "fold of {APPENDS} appends onto {size:>6} messages: {time:.2} ms, {:.2} of an empty base",
            time / zero
        ))?;
    }
    Ok(())
}

pub(crate) fn load(dir: &Path) -> StoreBenchResult {
    let dir = instance(dir, LONG)?;
    let base = dir.join("messages").join("base.jsonl");
    let bytes = std::fs::metadata(&base)?.len();
    let (mut ours, mut plain, mut opens) = (Vec::new(), Vec::new(), Vec::new());
    // Excludes the memory used to create the history.
    if let Ok(mut file) = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/clear_refs")
    {
        file.write_all(b"5")?;
    }
    let before = resident_bytes("VmRSS")?;
    for _ in 0..LOADS {
        let (done, time) = timed(|| {
            Command::new("cat")
                .arg(&base)
                .stdout(Stdio::null())
                .status()
        });
        assert!(done?.success(), "cat failed");
        plain.push(time);
        let (store, time) = timed(|| InstanceStore::open(Arc::new(RealDisk), &dir));
        let mut store = store?;
        opens.push(time);
        let (count, time) = timed(|| -> Result<usize, Box<dyn Error>> {
            let (mut offset, mut count) = (Some(0), 0);
            while let Some(from) = offset {
                let page = store.page(from)?;
                assert!(page.damage.is_empty(), "{:?}", page.damage);
                count += page.messages.len();
                offset = page.next;
            }
            Ok(count)
        });
        assert_eq!(count?, LONG, "messages");
        ours.push(time);
    }
    let (ours, plain, open) = (median(ours), median(plain), median(opens));
    let peak = resident_bytes("VmHWM")?.saturating_sub(before);
    say(&format!(
        "{LONG} messages, {} MB: {:.0} ms, verified, page by page; cat {:.0} ms, ratio {:.1}; opening {:.2} ms; \
         memory of the store at most {} MB",
        bytes / 1_000_000,
        ours.as_secs_f64() * 1_000.0,
        plain.as_secs_f64() * 1_000.0,
        ours.as_secs_f64() / plain.as_secs_f64(),
        open.as_secs_f64() * 1_000.0,
        peak / 1_000_000
    ))
}

/// Returns a size from `/proc/self/status` in bytes; 0 if unavailable.
fn resident_bytes(name: &str) -> Result<u64, Box<dyn Error>> {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return Ok(0);
    };
    let line = text.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.map_or(Ok(0), str::parse::<u64>)? * 1024)
}
