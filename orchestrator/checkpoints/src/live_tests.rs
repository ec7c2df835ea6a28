//! Goal: a checkpoint made during concurrent writes is intact, and with [`Consistency::Stopped`] a
//! concurrent write is rejected. Method: a folder in which one file changes on every read and
//! another disappears, or in which names that begin with `locked` cannot be read.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use goondan_durable::disk::{DiskFile, Folder, NodeStat, append_all};
use goondan_trees::TreeError;

use crate::place::OWN;
use crate::world::{World, at, request};
use crate::{CheckpointError, CheckpointSelector, Consistency, MakeCheckpoint, Store};

#[derive(Debug)]
struct ChangingFolder {
    inner: Box<dyn Folder>,
    world: World,
}

impl ChangingFolder {
    fn write(&self, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str());
        match name {
            Some("gone") => self.world.remove("src/gone"),
            Some("growing" | "history.jsonl") => {
                let path = Path::new(crate::world::ROOT).join(path);
                let mut file = goondan_durable::disk::Disk::open(&self.world.disk, &path).unwrap();
                append_all(file.as_mut(), b"more\n").unwrap();
            }
            _ => {}
        }
    }
}

impl Folder for ChangingFolder {
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>> {
        if path.parent().is_some_and(is_locked) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.inner.look(path)
    }
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        if is_locked(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut names = self.inner.names(path)?;
        if path == Path::new(OWN) {
            // The daemon's temporary file is listed, but already renamed when it is opened.
            names.push("task.json.tmp".into());
        }
        Ok(names)
    }
    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.write(path);
        if is_locked(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.inner.read(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        self.inner.read_link(path)
    }
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.inner.create(path, mode)
    }
    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.inner.create_link(path, target)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.inner.create_dir(path, mode)
    }
    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.inner.set_dir_mode(path, mode)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.inner.exchange(one, other)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        self.inner.below(path)
    }
}

fn is_locked(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("locked"))
}

/// The checkpoints of a work area to which the daemon is writing.
fn busy(world: &World) -> Store {
    let busy = Box::new(ChangingFolder {
        inner: world.folder(),
        world: world.clone(),
    });
    Store::open(busy, "task", "boot").unwrap().0
}

fn made(files: &[&str], consistency: Consistency) -> (World, Result<usize, CheckpointError>) {
    let world = World::new();
    for file in files {
        world.write(file, "first\n");
    }
    let mut store = busy(&world);
    let request = MakeCheckpoint {
        consistency,
        ..request("periodic")
    };
    let made = store.make(&request, at(0)).map(|made| made.files);
    (world, made)
}

#[test]
fn ckpt_3_writes_during_the_copy_do_not_break_a_checkpoint() {
    let files = ["src/growing", "src/gone"];
    let (world, count) = made(&files, Consistency::Live);
    // Thirteen files are unchanged, and the growing one has the content of some moment.
    assert_eq!(count.unwrap(), 14);
    assert_eq!(world.store().drill(at(1)).unwrap().problem, None);
    for file in files {
        let (world, refused) = made(&[file], Consistency::Stopped);
        assert!(refused.is_err(), "{file}");
        assert!(world.store().list().unwrap().is_empty());
    }
    let (_, refused) = made(&["src/growing"], Consistency::Stopped);
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, CheckpointError::Tree(TreeError::Changing { .. })),
        "{error}"
    );
    // The daemon may write the history at any time.
    let (world, count) = made(&[], Consistency::Stopped);
    assert_eq!(count.unwrap(), 13);
    assert_eq!(world.store().drill(at(1)).unwrap().problem, None);
}

#[test]
fn ckpt_4_daemon_writes_during_a_restore_do_not_fail_it() {
    let (world, count) = made(&[], Consistency::Stopped);
    count.unwrap();
    world.write("src/main.rs", "changed\n");
    let restored = busy(&world)
        .restore(CheckpointSelector::Latest, false, at(1))
        .unwrap();
    assert!(restored.differs.is_empty(), "{restored:?}");
    assert_eq!(world.read("src/main.rs").unwrap(), b"fn main() {}\n");
}

#[test]
fn ckpt_3_unreadable_paths_are_left_out_and_not_restored() {
    let world = World::new();
    world.write("locked-file", "secret\n");
    world.write("locked-directory/inner", "secret\n");
    // A checkpoint from before they were locked.
    let first = world.store().make(&request("periodic"), at(0)).unwrap();
    world.write("src/main.rs", "changed\n");
    let mut store = busy(&world);
    let made = store.make(&request("periodic"), at(1)).unwrap();
    assert_eq!(made.left_out, first.left_out + 2);
    let restored = store
        .restore(CheckpointSelector::Id(first.checkpoint_id), false, at(2))
        .unwrap();
    assert!(restored.differs.is_empty(), "{restored:?}");
    assert_eq!(world.read("src/main.rs").unwrap(), b"fn main() {}\n");
    assert_eq!(world.read("locked-directory/inner").unwrap(), b"secret\n");
}
