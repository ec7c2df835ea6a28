//! Checkpoints of a copy of the project, which lies outside of the work area that holds them (`REPO-1`, `CKPT-4`).

use std::path::Path;

use goondan_durable::disk::{Crash, Disk as _, Folder, SimulatedDisk, append_all, read_all};
use goondan_trees::remove_all;

use crate::world::{ROOT, World, at, request};
use crate::{CheckpointError, CheckpointSelector, Store};

const COPY: &str = "/copy";

fn copy(disk: &SimulatedDisk) -> Box<dyn Folder> {
    disk.folder(Path::new(COPY))
}

fn write(disk: &SimulatedDisk, path: &str, content: &str) {
    let folder = copy(disk);
    remove_all(folder.as_ref(), Path::new(path)).unwrap();
    let mut file = folder.create(Path::new(path), 0o644).unwrap();
    append_all(file.as_mut(), content.as_bytes()).unwrap();
    file.sync().unwrap();
    folder.sync_dir(Path::new("")).unwrap();
}

/// Files of the copy, two of them changed together.
fn read(disk: &SimulatedDisk) -> [Option<String>; 3] {
    ["a.rs", ".cache", "new.rs"].map(|path| {
        let mut file = copy(disk).read(Path::new(path)).ok()?;
        String::from_utf8(read_all(file.as_mut(), 99).unwrap()).ok()
    })
}

fn open(disk: &SimulatedDisk) -> Result<Store, CheckpointError> {
    let root = disk.folder(Path::new(ROOT));
    Store::open_copy(root, copy(disk), "task_1", "boot").map(|(store, _)| store)
}

#[test]
fn repo_1_a_copy_of_the_project_is_restored_whole_or_not_at_all() {
    let world = World::empty();
    let disk = world.disk;
    disk.create_dir(Path::new(COPY)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    // Names that are reserved in a work area belong to the project here.
    write(&disk, "a.rs", "old");
    write(&disk, ".cache", "old");
    open(&disk)
        .unwrap()
        .make(&request("periodic"), at(0))
        .unwrap();
    let old = read(&disk);
    for path in ["a.rs", ".cache", "new.rs"] {
        write(&disk, path, "new");
    }
    let new = read(&disk);
    assert_ne!(old, new);
    for call in 1.. {
        let disk = disk.after_crash(Crash::ProcessOnly);
        disk.crash_at(disk.calls() + call);
        let restored = open(&disk)
            .and_then(|mut store| store.restore(CheckpointSelector::Latest, false, at(1)));
        let is_whole = !disk.is_down();
        let found = disk.after_crash(Crash::Subset(call));
        drop(open(&found).unwrap());
        let files = read(&found);
        assert!(
            files == old || (files == new && !is_whole),
            "call {call}: {files:?}"
        );
        if is_whole {
            let restored = restored.unwrap();
            assert_eq!(restored.changed.len(), 2);
            assert_eq!(restored.removed.len(), 1);
            return;
        }
    }
}
