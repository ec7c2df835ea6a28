//! The machine of a simulated disk: it counts calls, fails them, and stops.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

use super::node::{DirChange, FILE_MODE, FileChange, Ino, Names, SimulatedNode, change_names};

pub(super) const ROOT: Ino = 0;

/// Effect of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// This `errno`, without other effect. After a failed sync the durability of the changes is
    /// undefined.
    Errno(i32),
    /// An append accepts only this many bytes; other calls are not affected.
    ShortWrite(usize),
}

#[derive(Clone, Default)]
pub(super) struct SimulatedMachine {
    pub(super) nodes: BTreeMap<Ino, SimulatedNode>,
    pub(super) next_ino: Ino,
    pub(super) next_pair: u64,
    /// Creation or last change of each file, by a clock that advances with every change.
    pub(super) versions: BTreeMap<Ino, u64>,
    pub(super) clock: u64,
    pub(super) calls: u64,
    pub(super) bytes_written: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) fault: Option<(u64, CallFault, bool)>,
    pub(super) is_down: bool,
    /// Reported free bytes; not enforced.
    pub(super) free_bytes: Option<u64>,
    pub(super) reused_after_failed_sync: u64,
}

pub(super) fn errno(code: nix::errno::Errno) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}

pub(super) fn not_found() -> io::Error {
    errno(nix::errno::Errno::ENOENT)
}

/// Action for a counted call.
#[derive(Clone, Copy)]
pub(super) enum CallTurn {
    Go,
    /// Execute it, then stop the machine.
    Last,
}

impl SimulatedMachine {
    /// Counts a call, and fails it if a fault is due. `append_len` is the length of an append.
    pub(super) fn count(&mut self, append_len: Option<&mut usize>) -> io::Result<CallTurn> {
        if self.is_down {
            return Err(io::Error::other("the machine is down"));
        }
        self.calls += 1;
        if let Some((at, fault, for_ever)) = self.fault
            && (self.calls == at || (for_ever && self.calls > at))
        {
            match (fault, append_len) {
                (CallFault::Errno(code), _) => return Err(io::Error::from_raw_os_error(code)),
                (CallFault::ShortWrite(most), Some(len)) => *len = (*len).min(most),
                (CallFault::ShortWrite(_), None) => {}
            }
        }
        Ok(if self.crash_at == Some(self.calls) {
            CallTurn::Last
        } else {
            CallTurn::Go
        })
    }

    pub(super) fn finish(&mut self, turn: CallTurn) -> io::Result<()> {
        match turn {
            CallTurn::Go => Ok(()),
            CallTurn::Last => {
                self.is_down = true;
                Err(io::Error::other("the machine stops"))
            }
        }
    }

    pub(super) fn names(&self, ino: Ino) -> io::Result<&Names> {
        match self.nodes.get(&ino) {
            Some(SimulatedNode::Dir { current, .. }) => Ok(current),
            _ => Err(errno(nix::errno::Errno::ENOTDIR)),
        }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Ino> {
        let mut ino = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                ino = *self.names(ino)?.get(name).ok_or_else(not_found)?;
            }
        }
        Ok(ino)
    }

    pub(super) fn place<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p OsStr)> {
        let name = path.file_name().ok_or_else(not_found)?;
        Ok((self.find(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    pub(super) fn change_dir(&mut self, dir: Ino, change: DirChange) {
        if let Some(SimulatedNode::Dir {
            current, changes, ..
        }) = self.nodes.get_mut(&dir)
        {
            change_names(current, change.clone());
            changes.push(change);
        }
    }

    /// Changes names in one or two directories atomically.
    pub(super) fn change_both(
        &mut self,
        one: (Ino, OsString, Option<Ino>),
        other: (Ino, OsString, Option<Ino>),
    ) {
        let (dir, name, ino) = one;
        let (other_dir, other_name, other_ino) = other;
        if dir == other_dir {
            let names = vec![(name, ino), (other_name, other_ino)];
            self.change_dir(dir, DirChange { names, with: None });
            return;
        }
        self.next_pair += 1;
        let pair = self.next_pair;
        for (dir, partner, name, ino) in [
            (dir, other_dir, name, ino),
            (other_dir, dir, other_name, other_ino),
        ] {
            let change = DirChange {
                names: vec![(name, ino)],
                with: Some((pair, partner)),
            };
            self.change_dir(dir, change);
        }
    }

    pub(super) fn open(&mut self, path: &Path, make: bool) -> io::Result<Ino> {
        let (dir, name) = self.place(path)?;
        if let Some(ino) = self.names(dir)?.get(name) {
            return Ok(*ino);
        }
        if !make {
            return Err(not_found());
        }
        Ok(self.add(dir, name, SimulatedNode::file(FILE_MODE)))
    }

    pub(super) fn add(&mut self, dir: Ino, name: &OsStr, node: SimulatedNode) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.nodes.insert(ino, node);
        self.changed(ino);
        self.change_dir(dir, DirChange::link(name, ino));
        ino
    }

    pub(super) fn file(&mut self, ino: Ino) -> io::Result<(&mut Vec<u8>, &mut Vec<FileChange>)> {
        match self.nodes.get_mut(&ino) {
            Some(SimulatedNode::File {
                current, changes, ..
            }) => Ok((current, changes)),
            _ => Err(errno(nix::errno::Errno::EISDIR)),
        }
    }

    /// Returns the number of bytes appended before the oldest unsynced append.
    pub(super) fn oldest_unsynced(&self) -> u64 {
        let changes = self.nodes.values().filter_map(|node| match node {
            SimulatedNode::File { changes, .. } => changes.first(),
            SimulatedNode::Dir { .. } | SimulatedNode::Link { .. } | SimulatedNode::Pipe => None,
        });
        let before = changes.map(|change| match change {
            FileChange::Append { before, .. } | FileChange::SetLen { before, .. } => *before,
        });
        before.min().unwrap_or(self.bytes_written)
    }

    pub(super) fn truncate(&mut self, ino: Ino, len: usize) -> io::Result<()> {
        let before = self.bytes_written;
        let (current, changes) = self.file(ino)?;
        current.truncate(len);
        changes.push(FileChange::SetLen { len, before });
        self.changed(ino);
        Ok(())
    }

    pub(super) fn changed(&mut self, ino: Ino) {
        self.clock += 1;
        self.versions.insert(ino, self.clock);
    }

    pub(super) fn version_of(&self, ino: Ino) -> u64 {
        self.versions.get(&ino).copied().unwrap_or_default()
    }

    /// Syncs the name changes of a directory, all or up to one half of a rename. This also syncs
    /// the other halves, with all changes before them.
    pub(super) fn sync_names(&mut self, dir: Ino, up_to: Option<u64>) {
        let Some(SimulatedNode::Dir {
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
