//! Files that are not replicated survive when everything else is recreated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Crash, Disk, EntryKind, SimulatedDisk};
use goondan_replication::operation::FileOperation;

use crate::world::{bare, content, dir, memory, relative, replica};

const ASIDE: &str = "/r/aside";
/// Each file contains its own path.
const APART: [&str; 7] = [
    "sandboxes/r/coder/sandbox.json",
    "tasks/t/src",
    "tasks/t/.metadata/secrets.yaml",
    "instances/i/work/a",
    "instances/i/.checkpoints/c",
    "instances/j/work/a",
    "tasks/gone/src",
];

fn plant(disk: &SimulatedDisk, path: &str) {
    let path = dir().join(path);
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    for dir in above.into_iter().filter(|above| above.starts_with(dir())) {
        disk.create_dir(dir).unwrap();
        disk.sync_dir(dir.parent().unwrap()).unwrap();
    }
    let name = path.strip_prefix(dir()).unwrap().to_str().unwrap();
    disk.plant(&path, name.as_bytes()).unwrap();
}

/// A workspace of a former owner.
fn former() -> SimulatedDisk {
    let disk = bare();
    for path in [
        "workspace.json",
        "instances/i/metadata.json",
        "instances/j/metadata.json",
        "tasks/t/.metadata/history.jsonl",
        "tasks/gone/.metadata/history.jsonl",
    ] {
        plant(&disk, path);
    }
    for path in APART {
        plant(&disk, path);
    }
    disk
}

/// The content of the log: one of the instances and one of the tasks.
fn log() -> Vec<FileOperation> {
    let dirs = [
        "instances",
        "instances/i",
        "tasks",
        "tasks/t",
        "tasks/t/.metadata",
        "sandboxes",
        "sandboxes/r",
    ];
    let files = [
        "instances/i/metadata.json",
        "tasks/t/.metadata/history.jsonl",
    ];
    let dirs = dirs.map(|path| FileOperation::CreateDir {
        path: relative(path),
    });
    let files = files.map(|path| FileOperation::Create {
        path: relative(path),
    });
    dirs.into_iter().chain(files).collect()
}

pub(crate) fn files(disk: &SimulatedDisk, below: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    if disk.stat(below).unwrap().is_none() {
        return found;
    }
    for entry in disk.list(below).unwrap() {
        let path = below.join(&entry.name);
        if entry.kind == EntryKind::Directory {
            found.extend(files(disk, &path));
        } else {
            found.insert(path);
        }
    }
    found
}

/// Asserts that each file that is not replicated exists exactly once.
fn has_all(disk: &SimulatedDisk, context: &str) {
    let mut found: Vec<_> = [dir(), ASIDE.into()]
        .iter()
        .flat_map(|root| files(disk, root))
        .filter_map(|path| String::from_utf8(content(disk, &path).unwrap()).ok())
        .filter(|content| APART.contains(&content.as_str()))
        .collect();
    found.sort();
    let mut expected = APART.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected, "{context}");
}

fn crashes() -> impl Iterator<Item = Crash> {
    let fixed = [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly];
    fixed.into_iter().chain((0..6).map(Crash::Subset))
}

/// Runs an operation on a disk that fails at each call in turn, and then again on the result;
/// passes each final state to `look`.
fn at_every_call(
    before: &SimulatedDisk,
    run: impl Fn(&SimulatedDisk) -> std::io::Result<()>,
    look: impl Fn(&SimulatedDisk, &str),
) {
    let mut call = 1;
    loop {
        let stopped = before.after_crash(Crash::ProcessOnly);
        stopped.crash_at(call);
        let done = run(&stopped);
        for crash in crashes() {
            let context = format!("stopped at call {call}, {crash:?}");
            let disk = stopped.after_crash(crash);
            has_all(&disk, &context);
            run(&disk).unwrap();
            look(&disk, &context);
            look(&disk.after_crash(Crash::LoseUnsynced), &context);
        }
        if !stopped.is_down() {
            return done.unwrap();
        }
        call += 1;
    }
}

fn clear(disk: &SimulatedDisk) -> std::io::Result<()> {
    replica(disk).clear(Path::new(ASIDE))
}

fn put_back(disk: &SimulatedDisk) -> std::io::Result<()> {
    replica(disk).put_back(Path::new(ASIDE))
}

#[test]
fn rep_1_crash_during_clearing_loses_no_unreplicated_files() {
    at_every_call(&former(), clear, |disk, context| {
        has_all(disk, context);
        assert!(disk.list(&dir()).unwrap().is_empty(), "{context}");
    });
}

#[test]
fn rep_1_a_crash_while_things_are_put_back_loses_none() {
    let disk = former();
    clear(&disk).unwrap();
    let mut made = replica(&disk);
    made.apply(&log()).unwrap().unwrap();
    made.sync().unwrap();
    at_every_call(&disk, put_back, |disk, context| {
        has_all(disk, context);
        for (at, path) in APART.iter().enumerate() {
            let is_back = at < APART.len() - 2;
            let found = content(disk, &dir().join(path));
            assert_eq!(found.is_some(), is_back, "{path}: {context}");
            let kept = Path::new(ASIDE).join("1").join(path);
            assert_eq!(
                content(disk, &kept).is_some(),
                !is_back,
                "{path}: {context}"
            );
        }
        assert_eq!(replica(disk).digest().unwrap(), memory(&log()).digest());
    });
}

#[test]
fn files_set_aside_twice_are_kept_twice_and_the_later_return() {
    let disk = former();
    clear(&disk).unwrap();
    plant(&disk, "instances/i/metadata.json");
    plant(&disk, "instances/i/work/later");
    clear(&disk).unwrap();
    let mut made = replica(&disk);
    made.apply(&log()).unwrap().unwrap();
    made.put_back(Path::new(ASIDE)).unwrap();
    assert!(content(&disk, &dir().join("instances/i/work/later")).is_some());
    assert!(content(&disk, &Path::new(ASIDE).join("1/instances/i/work/a")).is_some());
    // It stays there until it is removed.
    put_back(&disk).unwrap();
    assert!(content(&disk, &Path::new(ASIDE).join("1/instances/i/work/a")).is_some());
    let left = disk.list(Path::new(ASIDE)).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
}
