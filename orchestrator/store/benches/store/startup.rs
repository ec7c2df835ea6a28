//! Startup of a daemon with many instances, and an idle daemon.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use goondan_durable::disk::{Disk, RealDisk, append_all};
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::InstanceStore;
use goondan_store::root::Layout;
use goondan_store::workspace;

use crate::world::{BenchWriters, append, at, event, median, timed};
use crate::{StoreBenchResult, say};

const INSTANCES: usize = 10_000;
const OPEN_TURNS: usize = 50;
const STARTS: usize = 5;
/// Idle time in seconds; `GOONDAN_BENCH_IDLE_S` overrides it.
const IDLE_S: u64 = 10;

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut file = RealDisk.create(to)?;
    append_all(file.as_mut(), &std::fs::read(from)?)
}

/// Creates [`INSTANCES`] copies of one instance with a completed turn, without syncing each.
fn make(layout: &Layout, rig: &BenchWriters) -> StoreBenchResult {
    let instances = layout.instances(&rig.workspace_id);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let agent = "agent".parse()?;
    let first = "i0".parse()?;
    let mut store = InstanceStore::create(disk.clone(), &instances, &first, &agent, at(), ".new")?;
    store.accept(event("e0")?)?;
    store.begin_turn("t0".parse()?, &"e0".parse()?, at())?;
    store.append_event(&"t0".parse()?, 1, &append("m0")?)?;
    store.complete_turn(&"t0".parse()?, 1, crate::world::completed(), at())?;
    store.sync()?;
    store.finish_turn()?;
    drop(store);
    let from = instances.join("i0");
    for n in 1..INSTANCES {
        let key = format!("i{n}");
        let to = instances.join(instance_dir_name(&key.parse()?));
        for dir in ["", "messages", "extensions", "work"] {
            disk.create_dir(&to.join(dir))?;
        }
        for entry in disk.list(&from.join("messages"))? {
            let path = Path::new("messages").join(&entry.name);
            copy(&from.join(&path), &to.join(&path))?;
        }
        let text = std::fs::read_to_string(from.join("metadata.json"))?;
        let mut file = disk.create(&to.join("metadata.json"))?;
        append_all(
            file.as_mut(),
            text.replace("\"i0\"", &format!("\"{key}\"")).as_bytes(),
        )?;
        if n <= OPEN_TURNS {
            let mut store = InstanceStore::open(disk.clone(), &to)?;
            store.accept(event("e1")?)?;
            store.begin_turn("t1".parse()?, &"e1".parse()?, at())?;
            store.append_event(&"t1".parse()?, 1, &append("m1")?)?;
            store.sync()?;
        }
    }
    Ok(())
}

pub(crate) fn many_instances(dir: &Path) -> StoreBenchResult {
    let rig = BenchWriters::new(dir)?;
    let layout = rig.layout.clone();
    make(&layout, &rig)?;
    let instances = layout.instances(&rig.workspace_id);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (mut starts, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let (done, time) = timed(|| -> Result<usize, Box<dyn Error>> {
            workspace::open(disk.as_ref(), &layout, Path::new("/p"), None)?;
            let (busy, _) = workspace::instances_with_work(disk.as_ref(), &instances)?;
            for metadata in &busy {
                let dir = instances.join(instance_dir_name(&metadata.instance_key));
                InstanceStore::open(disk.clone(), &dir)?;
            }
            Ok(busy.len())
        });
        assert_eq!(done?, OPEN_TURNS, "open turns");
        starts.push(time);
        let (found, time) = timed(|| workspace::list_instances(disk.as_ref(), &instances));
        assert_eq!(found?.0.len(), INSTANCES, "instances");
        lists.push(time);
    }
    say(&format!(
        "{INSTANCES} instances, {OPEN_TURNS} with open turns: found and opened in {:.0} ms; listed in {:.0} ms",
        median(starts).as_secs_f64() * 1_000.0,
        median(lists).as_secs_f64() * 1_000.0
    ))
}

/// Bytes submitted by this process to the block layer; `None` if the system does not count them.
fn bytes_written() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?;
    line.parse().ok()
}

pub(crate) fn idle(dir: &Path) -> StoreBenchResult {
    let mut rig = BenchWriters::new(dir)?;
    for n in 0..64 {
        rig.in_turn(&format!("i{n}"))?;
    }
    // Pending writes finish within this time.
    std::thread::sleep(Duration::from_millis(
        2 * goondan_store::limits::METADATA_INTERVAL_MS,
    ));
    let seconds = std::env::var("GOONDAN_BENCH_IDLE_S")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(IDLE_S);
    let before = bytes_written();
    std::thread::sleep(Duration::from_secs(seconds));
    let written = bytes_written()
        .zip(before)
        .map(|(after, before)| after - before);
    say(&match written {
        Some(bytes) => format!("64 open instances, {seconds} s: {bytes} bytes written"),
        None => "this system does not count what a process writes".to_owned(),
    })
}
