//! A file system in memory that forgets what was not synced.
//!
//! Every file and every directory keeps two things: what is durable, and the changes since the last
//! sync, one by one. A crash ([`SimulatedDisk::after_crash`]) keeps any subset of those changes, torn
//! appends and holes of zeros included, which is more hostile than real file systems are.
//!
//! Calls are counted from 1. [`SimulatedDisk::crash_at`] stops the machine in the N-th call, and
//! [`SimulatedDisk::fail_at`] makes the N-th call fail, so that tests can try every N.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, Entry, EntryKind, Stat};

mod folder;

type Ino = u64;
const ROOT: Ino = 0;

/// Which unsynced changes survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// None of them.
    LoseUnsynced,
    /// All of them.
    KeepUnsynced,
    /// A subset chosen by this seed; appends may be torn at any byte.
    Subset(u64),
    /// All changes of names, and so many bytes of the appends, in the order they were made; a cut
    /// counts as no byte.
    KeepBytes(u64),
    /// Only the process ended, not the machine: all of them are seen, and none is durable yet.
    ProcessOnly,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With this `errno`, without effect. On a sync, what becomes of the unsynced changes is open.
    Errno(i32),
    /// An append takes only so many bytes; other calls are not affected.
    ShortWrite(usize),
}

#[derive(Debug, Clone)]
enum FileChange {
    Append {
        offset: usize,
        data: Vec<u8>,
        /// How many bytes of all files were appended before it.
        before: u64,
    },
    SetLen {
        len: usize,
        before: u64,
    },
}

/// Names of one directory that change at once: each stands for this from now on, or for nothing.
#[derive(Debug, Clone)]
struct DirChange {
    names: Vec<(OsString, Option<Ino>)>,
    /// The other directory of a rename from one to another, and the number both halves share: file
    /// systems keep both halves or neither.
    with: Option<(u64, Ino)>,
}

impl DirChange {
    fn link(name: &OsStr, ino: Ino) -> Self {
        Self {
            names: vec![(name.to_owned(), Some(ino))],
            with: None,
        }
    }

    fn unlink(name: &OsStr) -> Self {
        Self {
            names: vec![(name.to_owned(), None)],
            with: None,
        }
    }
}

#[derive(Debug, Clone)]
enum Node {
    File {
        durable: Vec<u8>,
        current: Vec<u8>,
        changes: Vec<FileChange>,
        mode: u32,
    },
    Dir {
        durable: Names,
        current: Names,
        changes: Vec<DirChange>,
        mode: u32,
    },
    Link {
        target: OsString,
    },
}

/// The modes of what a [`Disk`] makes.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

impl Node {
    fn file(mode: u32) -> Self {
        Self::File {
            durable: Vec::new(),
            current: Vec::new(),
            changes: Vec::new(),
            mode,
        }
    }

    fn dir(mode: u32) -> Self {
        Self::Dir {
            durable: Names::new(),
            current: Names::new(),
            changes: Vec::new(),
            mode,
        }
    }
}

type Names = BTreeMap<OsString, Ino>;

#[derive(Clone, Default)]
struct Machine {
    nodes: BTreeMap<Ino, Node>,
    next_ino: Ino,
    next_pair: u64,
    /// How often each file was changed.
    versions: BTreeMap<Ino, u64>,
    calls: u64,
    bytes_written: u64,
    crash_at: Option<u64>,
    fault: Option<(u64, Fault, bool)>,
    is_down: bool,
    reused_after_failed_sync: u64,
}

/// A file system in memory; clones share it.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<Machine>>);

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
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::dir(DIRECTORY_MODE))]);
        Self(Arc::new(Mutex::new(Machine {
            nodes,
            next_ino: ROOT + 1,
            ..Machine::default()
        })))
    }

    /// How many calls were made so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.machine().calls
    }

    /// How many bytes were appended so far.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.machine().bytes_written
    }

    /// Stops the machine in call `call`: that call and all later ones fail. What the call changes may
    /// or may not survive.
    pub fn crash_at(&self, call: u64) {
        self.machine().crash_at = Some(call);
    }

    /// Makes call `call` fail; with `for_ever`, every later one too.
    pub fn fail_at(&self, call: u64, fault: Fault, for_ever: bool) {
        self.machine().fault = Some((call, fault, for_ever));
    }

    /// Whether the machine has stopped.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.machine().is_down
    }

    /// How many times a file handle was written to or synced after a sync of it had failed.
    #[must_use]
    pub fn reused_after_failed_sync(&self) -> u64 {
        self.machine().reused_after_failed_sync
    }

    /// The file system as it is found when the machine starts again.
    #[must_use]
    pub fn after_crash(&self, crash: Crash) -> Self {
        let mut choice = Choice::new(crash);
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

    /// How many bytes were appended since the oldest unsynced append.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        let machine = self.machine();
        machine.bytes_written - machine.oldest_unsynced()
    }

    /// Puts a whole durable file there, as if it had always been: for tests of found data.
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

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides which unsynced changes survive.
struct Choice {
    crash: Crash,
    state: u64,
    /// How many bytes were appended before the oldest unsynced append.
    bytes_before: u64,
    /// What was decided of renames from one directory to another.
    pairs: BTreeMap<u64, bool>,
}

impl Choice {
    fn new(crash: Crash) -> Self {
        let seed = if let Crash::Subset(seed) = crash {
            seed
        } else {
            0
        };
        Self {
            crash,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            bytes_before: 0,
            pairs: BTreeMap::new(),
        }
    }

    /// A number below `bound` (which is not 0), by xorshift: enough for choosing.
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap_or(0) % bound
    }

    fn keeps(&mut self) -> bool {
        match self.crash {
            Crash::LoseUnsynced => false,
            Crash::KeepUnsynced | Crash::ProcessOnly | Crash::KeepBytes(_) => true,
            Crash::Subset(_) => self.below(2) == 0,
        }
    }

    fn keeps_names(&mut self, change: &DirChange) -> bool {
        let Some((pair, _)) = change.with else {
            return self.keeps();
        };
        if let Some(kept) = self.pairs.get(&pair) {
            return *kept;
        }
        let kept = self.keeps();
        self.pairs.insert(pair, kept);
        kept
    }

    /// Whether a cut survives that was made after so many bytes were appended.
    fn keeps_cut(&mut self, before: u64) -> bool {
        match self.crash {
            Crash::KeepBytes(kept) => before <= self.bytes_before + kept,
            _ => self.keeps(),
        }
    }

    /// How many of `len` bytes survive that were appended after `before` others.
    fn bytes(&mut self, len: usize, before: u64) -> usize {
        match self.crash {
            Crash::KeepBytes(kept) => {
                let left = (self.bytes_before + kept).saturating_sub(before);
                len.min(usize::try_from(left).unwrap_or(usize::MAX))
            }
            Crash::LoseUnsynced => 0,
            Crash::KeepUnsynced | Crash::ProcessOnly => len,
            Crash::Subset(_) => match self.below(3) {
                0 => 0,
                1 => len,
                _ => self.below(len + 1),
            },
        }
    }
}

fn settle(node: &mut Node, choice: &mut Choice) {
    match node {
        Node::File {
            durable,
            current,
            changes,
            ..
        } => {
            for change in changes.drain(..) {
                match change {
                    FileChange::Append {
                        offset,
                        data,
                        before,
                    } => {
                        let kept = choice.bytes(data.len(), before);
                        if kept > 0 {
                            if durable.len() < offset {
                                durable.resize(offset, 0);
                            }
                            durable.truncate(offset);
                            durable.extend(data.into_iter().take(kept));
                        }
                    }
                    FileChange::SetLen { len, before } => {
                        if choice.keeps_cut(before) {
                            durable.truncate(len);
                        }
                    }
                }
            }
            current.clone_from(durable);
        }
        Node::Dir {
            durable,
            current,
            changes,
            ..
        } => {
            for change in changes.drain(..) {
                if choice.keeps_names(&change) {
                    change_names(durable, change);
                }
            }
            current.clone_from(durable);
        }
        // Its content comes and goes with its name.
        Node::Link { .. } => {}
    }
}

fn change_names(names: &mut Names, change: DirChange) {
    for (name, ino) in change.names {
        match ino {
            Some(ino) => names.insert(name, ino),
            None => names.remove(&name),
        };
    }
}

fn errno(code: nix::errno::Errno) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}

fn not_found() -> io::Error {
    errno(nix::errno::Errno::ENOENT)
}

/// What a call is to do after it was counted.
#[derive(Clone, Copy)]
enum Turn {
    Go,
    /// Do it, and then the machine stops.
    Last,
}

impl Machine {
    /// Counts a call; fails it if it is to fail. `append_len` is how long an append is.
    fn count(&mut self, append_len: Option<&mut usize>) -> io::Result<Turn> {
        if self.is_down {
            return Err(io::Error::other("the machine is down"));
        }
        self.calls += 1;
        if let Some((at, fault, for_ever)) = self.fault
            && (self.calls == at || (for_ever && self.calls > at))
        {
            match (fault, append_len) {
                (Fault::Errno(code), _) => return Err(io::Error::from_raw_os_error(code)),
                (Fault::ShortWrite(most), Some(len)) => *len = (*len).min(most),
                (Fault::ShortWrite(_), None) => {}
            }
        }
        Ok(if self.crash_at == Some(self.calls) {
            Turn::Last
        } else {
            Turn::Go
        })
    }

    fn finish(&mut self, turn: Turn) -> io::Result<()> {
        match turn {
            Turn::Go => Ok(()),
            Turn::Last => {
                self.is_down = true;
                Err(io::Error::other("the machine stops"))
            }
        }
    }

    fn names(&self, ino: Ino) -> io::Result<&Names> {
        match self.nodes.get(&ino) {
            Some(Node::Dir { current, .. }) => Ok(current),
            _ => Err(errno(nix::errno::Errno::ENOTDIR)),
        }
    }

    fn find(&self, path: &Path) -> io::Result<Ino> {
        let mut ino = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                ino = *self.names(ino)?.get(name).ok_or_else(not_found)?;
            }
        }
        Ok(ino)
    }

    fn place<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p OsStr)> {
        let name = path.file_name().ok_or_else(not_found)?;
        Ok((self.find(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    fn change_dir(&mut self, dir: Ino, change: DirChange) {
        if let Some(Node::Dir {
            current, changes, ..
        }) = self.nodes.get_mut(&dir)
        {
            change_names(current, change.clone());
            changes.push(change);
        }
    }

    fn open(&mut self, path: &Path, make: bool) -> io::Result<Ino> {
        let (dir, name) = self.place(path)?;
        if let Some(ino) = self.names(dir)?.get(name) {
            return Ok(*ino);
        }
        if !make {
            return Err(not_found());
        }
        Ok(self.add(dir, name, Node::file(FILE_MODE)))
    }

    fn add(&mut self, dir: Ino, name: &OsStr, node: Node) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.nodes.insert(ino, node);
        self.change_dir(dir, DirChange::link(name, ino));
        ino
    }

    fn file(&mut self, ino: Ino) -> io::Result<(&mut Vec<u8>, &mut Vec<FileChange>)> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File {
                current, changes, ..
            }) => Ok((current, changes)),
            _ => Err(errno(nix::errno::Errno::EISDIR)),
        }
    }

    /// How many bytes were appended before the oldest append that is not synced.
    fn oldest_unsynced(&self) -> u64 {
        let changes = self.nodes.values().filter_map(|node| match node {
            Node::File { changes, .. } => changes.first(),
            Node::Dir { .. } | Node::Link { .. } => None,
        });
        let before = changes.map(|change| match change {
            FileChange::Append { before, .. } | FileChange::SetLen { before, .. } => *before,
        });
        before.min().unwrap_or(self.bytes_written)
    }

    fn truncate(&mut self, ino: Ino, len: usize) -> io::Result<()> {
        let before = self.bytes_written;
        let (current, changes) = self.file(ino)?;
        current.truncate(len);
        changes.push(FileChange::SetLen { len, before });
        self.changed(ino);
        Ok(())
    }

    fn changed(&mut self, ino: Ino) {
        *self.versions.entry(ino).or_default() += 1;
    }

    fn version_of(&self, ino: Ino) -> u64 {
        self.versions.get(&ino).copied().unwrap_or_default()
    }

    /// Makes the changes of a directory's names durable, all or up to the half of a rename, and so the
    /// other halves with all that came before them.
    fn sync_names(&mut self, dir: Ino, up_to: Option<u64>) {
        let Some(Node::Dir {
            durable, changes, ..
        }) = self.nodes.get_mut(&dir)
        else {
            return;
        };
        let is_last = |change: &DirChange| {
            up_to.is_some_and(|last| change.with.is_some_and(|(pair, _)| pair == last))
        };
        let count = match up_to {
            None => changes.len(),
            Some(_) => changes.iter().position(is_last).map_or(0, |at| at + 1),
        };
        let mut halves = Vec::new();
        for change in changes.drain(..count) {
            halves.extend(change.with);
            change_names(durable, change);
        }
        for (pair, partner) in halves {
            self.sync_names(partner, Some(pair));
        }
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

    fn call<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
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
                Some(Node::File { current, .. }) => Stat {
                    kind: EntryKind::File,
                    len: current.len() as u64,
                },
                Some(Node::Link { .. }) => Stat {
                    kind: EntryKind::Other,
                    len: 0,
                },
                _ => Stat {
                    kind: EntryKind::Directory,
                    len: 0,
                },
            })),
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.call(|machine| {
            let ino = machine.find(path)?;
            let kind = |ino: &Ino| match machine.nodes.get(ino) {
                Some(Node::File { .. }) => EntryKind::File,
                Some(Node::Link { .. }) => EntryKind::Other,
                _ => EntryKind::Directory,
            };
            let names = machine.names(ino)?.iter();
            Ok(names
                .map(|(name, ino)| Entry {
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
                machine.add(dir, name, Node::dir(DIRECTORY_MODE));
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|machine| {
            let (dir, from) = machine.place(from)?;
            let (to_dir, to) = machine.place(to)?;
            if dir != to_dir {
                return Err(errno(nix::errno::Errno::EXDEV));
            }
            let ino = *machine.names(dir)?.get(from).ok_or_else(not_found)?;
            let replaced = machine.names(dir)?.get(to).copied();
            if replaced.is_some_and(|ino| machine.names(ino).is_ok_and(|names| !names.is_empty())) {
                return Err(errno(nix::errno::Errno::ENOTEMPTY));
            }
            let names = vec![(from.to_owned(), None), (to.to_owned(), Some(ino))];
            machine.change_dir(dir, DirChange { names, with: None });
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
        // Entry by entry, each a call of its own, so that a crash can come in between.
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
            // A machine that stops in this very call has not synced.
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

    fn sync(&mut self) -> io::Result<()> {
        let has_failed = self.has_failed;
        let synced = self.disk.call(|machine| {
            machine.reused_after_failed_sync += u64::from(has_failed);
            let stops_here = machine.crash_at == Some(machine.calls);
            if let Some(Node::File {
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
    fn only_what_was_synced_surely_survives() {
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
    fn the_chosen_call_fails_and_the_machine_stops_where_it_was_told() {
        let disk = SimulatedDisk::new();
        disk.fail_at(2, Fault::Errno(28), false);
        let mut file = disk.create(Path::new("/a")).unwrap();
        assert_eq!(file.append(b"x").unwrap_err().raw_os_error(), Some(28));
        assert_eq!(file.append(b"x").unwrap(), 1);
        disk.crash_at(4);
        assert!(file.append(b"y").is_err());
        assert!(disk.is_down() && file.append(b"z").is_err());
    }
}
