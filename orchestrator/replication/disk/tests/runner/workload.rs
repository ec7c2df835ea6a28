//! Random operations on files.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{CallFault, Disk, DiskFile, EntryKind, SimulatedDisk};

use crate::world::{Owner, dir};

const FILES: [&str; 7] = [
    "a",
    "b",
    "d/a",
    "d/b",
    "instances/i/a",
    "instances/i/messages/a",
    "instances/i/swarm-bundle/a",
];
const DIRECTORIES: [&str; 7] = [
    "d",
    "e",
    "instances",
    "instances/i",
    "instances/j",
    "instances/i/messages",
    "instances/i/work",
];

/// Range of `count` seeds, or as many as `GOONDAN_REPLICATED_DISK_SEEDS` specifies, starting at
/// `GOONDAN_TEST_SEED`.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let knob = |name| std::env::var(name).ok()?.parse().ok();
    let first = knob("GOONDAN_TEST_SEED").unwrap_or(0);
    first..first + knob("GOONDAN_REPLICATED_DISK_SEEDS").unwrap_or(count)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    Some,
}

/// Performs random operations on an owner's files; operations that are not possible are skipped.
pub(crate) fn run(owner: &Owner, seed: u64, steps: usize, faults: Faults) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut open: Vec<Box<dyn DiskFile>> = Vec::new();
    for _ in 0..steps {
        if faults == Faults::Some && chance.u8(..8) == 0 {
            let fault = match chance.u8(..3) {
                0 => CallFault::Errno(5),
                1 => CallFault::Errno(28),
                _ => CallFault::ShortWrite(chance.usize(1..4)),
            };
            let at = owner.disk.calls() + chance.u64(1..6);
            owner.disk.fail_at(at, fault, false);
        }
        step(
            owner.replicated.as_ref(),
            &owner.disk,
            &mut chance,
            &mut open,
        )
        .ok();
    }
    // Cancels a pending fault.
    owner.disk.fail_at(0, CallFault::Errno(5), false);
}

fn any(chance: &mut fastrand::Rng, names: &[&str]) -> PathBuf {
    dir().join(chance.choice(names).unwrap())
}

fn step(
    disk: &dyn Disk,
    inner: &SimulatedDisk,
    chance: &mut fastrand::Rng,
    open: &mut Vec<Box<dyn DiskFile>>,
) -> std::io::Result<()> {
    let is_dir = |path: &Path| {
        let stat = inner.stat(path).ok().flatten();
        stat.is_some_and(|stat| stat.kind == EntryKind::Directory)
    };
    match chance.u8(..16) {
        0..2 => disk.create_dir(&any(chance, &DIRECTORIES)),
        2..4 => {
            let path = any(chance, &FILES);
            let file = if chance.bool() {
                disk.open(&path)?
            } else {
                disk.create(&path)?
            };
            if open.len() > 4 {
                open.remove(0);
            }
            open.push(file);
            Ok(())
        }
        4..9 => match chance.choice(open.iter_mut()) {
            Some(file) => file
                .append(&vec![chance.u8(..); chance.usize(1..9)])
                .map(drop),
            None => Ok(()),
        },
        9 => match chance.choice(open.iter_mut()) {
            Some(file) => {
                let len = file.len()?;
                file.set_len(chance.u64(..=len))
            }
            None => Ok(()),
        },
        10 => {
            let path = any(chance, &FILES);
            // The simulated disk would also remove a directory.
            if is_dir(&path) {
                return Ok(());
            }
            disk.remove_file(&path)
        }
        11 => disk.remove_tree(&any(chance, &DIRECTORIES)),
        12 => disk.rename(&any(chance, &FILES), &any(chance, &FILES)),
        13 => {
            let (from, to) = (any(chance, &DIRECTORIES), any(chance, &DIRECTORIES));
            // The simulated disk would permit it.
            if to.starts_with(&from) || !is_dir(&from) {
                return Ok(());
            }
            disk.rename(&from, &to)
        }
        14 => match chance.choice(open.iter_mut()) {
            Some(file) => file.sync(),
            None => Ok(()),
        },
        _ => disk.sync_dir(&any(chance, &DIRECTORIES)),
    }
}
