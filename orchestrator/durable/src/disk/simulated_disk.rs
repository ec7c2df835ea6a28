//! An in-memory file system that can lose unsynced data.
//!
//! Every file and directory has a durable state and a list of changes since the last sync. A crash
//! ([`SimulatedDisk::after_crash`]) keeps any subset of the changes, including torn appends and
//! holes of zeros, which is more hostile than real file systems.
//!
//! Calls are counted from 1. [`SimulatedDisk::crash_at`] stops the machine in the N-th call, and
//! [`SimulatedDisk::fail_at`] makes the N-th call fail, so that tests can try every N.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskEntry, DiskFile, EntryKind, Stat};

mod crash;
mod folder;
mod machine;
mod node;

pub use crash::Crash;
pub use machine::CallFault;

use crash::{CrashChoice, settle};
use machine::{ROOT, SimulatedMachine, errno, not_found};
use node::{DIRECTORY_MODE, DirChange, FileChange, Ino, SimulatedNode};

/// An in-memory file system. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<SimulatedMachine>>);

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedDisk({} calls)", self.calls())
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedDisk {
    /// Creates an empty file system.
    #[must_use]
    pub fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, SimulatedNode::dir(DIRECTORY_MODE))]);
        Self(Arc::new(Mutex::new(SimulatedMachine {
            nodes,
            next_ino: ROOT + 1,
            ..SimulatedMachine::default()
        })))
    }

    #[must_use]
    pub fn calls(&self) -> u64 {
        self.machine().calls
    }

    /// Returns the number of bytes appended so far.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.machine().bytes_written
    }

    /// Stops the machine in call `call`: that call and all later ones fail. The changes of the call
    /// may or may not survive.
    pub fn crash_at(&self, call: u64) {
        self.machine().crash_at = Some(call);
    }

    /// Makes call `call` fail; with `for_ever`, every later one too.
    pub fn fail_at(&self, call: u64, fault: CallFault, for_ever: bool) {
        self.machine().fault = Some((call, fault, for_ever));
    }

    /// Sets the reported free bytes. The limit is not enforced.
    pub fn set_free_bytes(&self, free_bytes: u64) {
        self.machine().free_bytes = Some(free_bytes);
    }

    /// True if the machine has stopped.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.machine().is_down
    }

    /// Returns the number of writes or syncs on a file handle after a failed sync.
    #[must_use]
    pub fn reused_after_failed_sync(&self) -> u64 {
        self.machine().reused_after_failed_sync
    }

    /// Returns the file system after a restart of the machine.
    #[must_use]
    pub fn after_crash(&self, crash: Crash) -> Self {
        let mut choice = CrashChoice::new(crash);
        let mut machine = self.machine().clone();
        choice.bytes_before = machine.oldest_unsynced();
        if crash != Crash::ProcessOnly {
            for node in machine.nodes.values_mut() {
                settle(node, &mut choice);
            }
        }
        machine.calls = 0;
        machine.crash_at = None;
        machine.fault = None;
        machine.is_down = false;
        Self(Arc::new(Mutex::new(machine)))
    }

    /// Returns the number of bytes appended since the oldest unsynced append.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        let machine = self.machine();
        machine.bytes_written - machine.oldest_unsynced()
    }

    /// Creates a durable file, for tests of existing data.
    ///
    /// # Errors
    ///
    /// If its directory is missing.
    pub fn plant(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        super::append_all(file.as_mut(), content)?;
        file.sync()?;
        self.sync_dir(path.parent().unwrap_or(Path::new("/")))
    }

    /// Creates a named pipe.
    ///
    /// # Errors
    ///
    /// I/O errors.
    pub fn plant_pipe(&self, path: &Path) -> io::Result<()> {
        self.call(|machine| {
            let (dir, name) = machine.place(path)?;
            machine.add(dir, name, SimulatedNode::Pipe);
            Ok(())
        })?;
        self.sync_dir(path.parent().unwrap_or(Path::new("/")))
    }

    fn machine(&self) -> MutexGuard<'_, SimulatedMachine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    ino: Ino,
    has_failed: bool,
}

impl SimulatedDisk {
    fn handle(&self, ino: Ino) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile {
            disk: self.clone(),
            ino,
            has_failed: false,
        })
    }

    fn call<T>(&self, work: impl FnOnce(&mut SimulatedMachine) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.machine();
        let turn = machine.count(None)?;
        let done = work(&mut machine);
        machine.finish(turn)?;
        done
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call(|machine| machine.open(path, true))
            .map(|ino| self.handle(ino))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call(|machine| {
            let ino = machine.open(path, true)?;
            machine.truncate(ino, 0)?;
            Ok(ino)
        })
        .map(|ino| self.handle(ino))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call(|machine| machine.open(path, false))
            .map(|ino| self.handle(ino))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        self.call(|machine| match machine.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(ino) => Ok(Some(match machine.nodes.get(&ino) {
                Some(SimulatedNode::File { current, .. }) => Stat {
                    kind: EntryKind::File,
                    len: current.len() as u64,
                    inode: ino,
                },
                Some(SimulatedNode::Link { .. } | SimulatedNode::Pipe) => Stat {
                    kind: EntryKind::Other,
                    len: 0,
                    inode: ino,
                },
                _ => Stat {
                    kind: EntryKind::Directory,
                    len: 0,
                    inode: ino,
                },
            })),
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        self.call(|machine| {
            let ino = machine.find(path)?;
            let kind = |ino: &Ino| match machine.nodes.get(ino) {
                Some(SimulatedNode::File { .. }) => EntryKind::File,
                Some(SimulatedNode::Link { .. } | SimulatedNode::Pipe) => EntryKind::Other,
                _ => EntryKind::Directory,
            };
            let names = machine.names(ino)?.iter();
            Ok(names
                .map(|(name, ino)| DiskEntry {
                    name: name.clone(),
                    kind: kind(ino),
                })
                .collect())
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|machine| {
            let (dir, name) = machine.place(path)?;
            if !machine.names(dir)?.contains_key(name) {
                machine.add(dir, name, SimulatedNode::dir(DIRECTORY_MODE));
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|machine| {
            let (dir, from) = machine.place(from)?;
            let (to_dir, to) = machine.place(to)?;
            let ino = *machine.names(dir)?.get(from).ok_or_else(not_found)?;
            let replaced = machine.names(to_dir)?.get(to).copied();
            if replaced.is_some_and(|ino| machine.names(ino).is_ok_and(|names| !names.is_empty())) {
                return Err(errno(nix::errno::Errno::ENOTEMPTY));
            }
            machine.change_both(
                (dir, from.to_owned(), None),
                (to_dir, to.to_owned(), Some(ino)),
            );
            Ok(())
        })
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.call(|machine| {
            let ino = machine.find(file)?;
            machine.file(ino)?;
            let (dir, name) = machine.place(name)?;
            if machine.names(dir)?.contains_key(name) {
                return Err(errno(nix::errno::Errno::EEXIST));
            }
            machine.change_dir(dir, DirChange::link(name, ino));
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(|machine| {
            let (dir, name) = machine.place(path)?;
            if machine.names(dir)?.contains_key(name) {
                machine.change_dir(dir, DirChange::unlink(name));
            }
            Ok(())
        })
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        // Each entry is a separate call, so that a crash can happen in between.
        if self.stat(path)?.is_none() {
            return Ok(());
        }
        for entry in self.list(path)? {
            let inner = path.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => self.remove_tree(&inner)?,
                EntryKind::File | EntryKind::Other => self.remove_file(&inner)?,
            }
        }
        self.remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|machine| {
            let ino = machine.find(path)?;
            // A machine that stops in this call has not synced.
            if machine.crash_at != Some(machine.calls) {
                machine.sync_names(ino, None);
            }
            Ok(())
        })
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.call(|machine| {
            let (current, _) = machine.file(self.ino)?;
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            let found = current.get(offset..).unwrap_or_default();
            let len = found.len().min(buf.len());
            buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
            Ok(len)
        })
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut machine = self.disk.machine();
        machine.reused_after_failed_sync += u64::from(self.has_failed);
        let mut len = buf.len();
        let turn = machine.count(Some(&mut len))?;
        let before = machine.bytes_written;
        machine.bytes_written += len as u64;
        let (current, changes) = machine.file(self.ino)?;
        let data = buf.get(..len).unwrap_or_default();
        changes.push(FileChange::Append {
            offset: current.len(),
            data: data.to_vec(),
            before,
        });
        current.extend_from_slice(data);
        machine.changed(self.ino);
        machine.finish(turn).map(|()| len)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.disk.call(|machine| machine.truncate(self.ino, len))
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.call(|machine| {
            machine
                .file(self.ino)
                .map(|(current, _)| current.len() as u64)
        })
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let ino = self.ino;
        let machine = self.disk.0.lock();
        let machine = machine.unwrap_or_else(PoisonError::into_inner);
        Ok(machine.find(path).is_ok_and(|named| named == ino))
    }

    fn inode(&self) -> io::Result<u64> {
        Ok(self.ino)
    }

    fn sync(&mut self) -> io::Result<()> {
        let has_failed = self.has_failed;
        let synced = self.disk.call(|machine| {
            machine.reused_after_failed_sync += u64::from(has_failed);
            let stops_here = machine.crash_at == Some(machine.calls);
            if let Some(SimulatedNode::File {
                durable,
                current,
                changes,
                ..
            }) = machine.nodes.get_mut(&self.ino)
                && !stops_here
            {
                durable.clone_from(current);
                changes.clear();
            }
            Ok(())
        });
        self.has_failed |= synced.is_err();
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{append_all, read_all};

    fn content(disk: &SimulatedDisk, path: &str) -> Option<Vec<u8>> {
        let mut file = disk.open_read(Path::new(path)).ok()?;
        Some(read_all(file.as_mut(), 1 << 20).unwrap())
    }

    #[test]
    fn only_synced_data_is_sure_to_survive() {
        let disk = SimulatedDisk::new();
        let mut file = disk.create(Path::new("/a")).unwrap();
        append_all(file.as_mut(), b"one").unwrap();
        assert_eq!(content(&disk.after_crash(Crash::LoseUnsynced), "/a"), None);
        disk.sync_dir(Path::new("/")).unwrap();
        assert_eq!(
            content(&disk.after_crash(Crash::LoseUnsynced), "/a"),
            Some(vec![])
        );
        file.sync().unwrap();
        append_all(file.as_mut(), b"two").unwrap();
        assert_eq!(
            content(&disk.after_crash(Crash::LoseUnsynced), "/a"),
            Some(b"one".to_vec())
        );
        assert_eq!(
            content(&disk.after_crash(Crash::KeepUnsynced), "/a"),
            Some(b"onetwo".to_vec())
        );
        let lengths: std::collections::BTreeSet<usize> = (0..100)
            .map(|seed| {
                content(&disk.after_crash(Crash::Subset(seed)), "/a")
                    .unwrap()
                    .len()
            })
            .collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }

    #[test]
    fn a_rename_without_directory_sync_may_be_lost() {
        let disk = SimulatedDisk::new();
        disk.plant(Path::new("/new"), b"n").unwrap();
        disk.plant(Path::new("/old"), b"o").unwrap();
        disk.rename(Path::new("/new"), Path::new("/old")).unwrap();
        assert_eq!(
            content(&disk.after_crash(Crash::LoseUnsynced), "/old"),
            Some(b"o".to_vec())
        );
        assert_eq!(
            content(&disk.after_crash(Crash::KeepUnsynced), "/old"),
            Some(b"n".to_vec())
        );
    }

    #[test]
    fn selected_call_fails_and_the_simulated_machine_stops_there() {
        let disk = SimulatedDisk::new();
        disk.fail_at(2, CallFault::Errno(28), false);
        let mut file = disk.create(Path::new("/a")).unwrap();
        assert_eq!(file.append(b"x").unwrap_err().raw_os_error(), Some(28));
        assert_eq!(file.append(b"x").unwrap(), 1);
        disk.crash_at(4);
        assert!(file.append(b"y").is_err());
        assert!(disk.is_down() && file.append(b"z").is_err());
    }
}
