//! Content of a simulated disk: the durable state of each file and directory, and the changes
//! since.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

pub(super) type Ino = u64;

#[derive(Debug, Clone)]
pub(super) enum FileChange {
    Append {
        offset: usize,
        data: Vec<u8>,
        /// Number of bytes appended to all files before it.
        before: u64,
    },
    SetLen {
        len: usize,
        before: u64,
    },
}

/// Atomic change of names in one directory: each now refers to this inode, or to none.
#[derive(Debug, Clone)]
pub(super) struct DirChange {
    pub(super) names: Vec<(OsString, Option<Ino>)>,
    /// The other directory of a rename between two, and the number of both halves. File systems
    /// keep both halves or neither.
    pub(super) with: Option<(u64, Ino)>,
}

impl DirChange {
    pub(super) fn link(name: &OsStr, ino: Ino) -> Self {
        Self {
            names: vec![(name.to_owned(), Some(ino))],
            with: None,
        }
    }

    pub(super) fn unlink(name: &OsStr) -> Self {
        Self {
            names: vec![(name.to_owned(), None)],
            with: None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum SimulatedNode {
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
    Pipe,
}

/// Modes of files and directories created by a [`Disk`].
pub(super) const FILE_MODE: u32 = 0o600;
pub(super) const DIRECTORY_MODE: u32 = 0o700;

impl SimulatedNode {
    pub(super) fn file(mode: u32) -> Self {
        Self::File {
            durable: Vec::new(),
            current: Vec::new(),
            changes: Vec::new(),
            mode,
        }
    }

    pub(super) fn dir(mode: u32) -> Self {
        Self::Dir {
            durable: Names::new(),
            current: Names::new(),
            changes: Vec::new(),
            mode,
        }
    }
}

pub(super) type Names = BTreeMap<OsString, Ino>;

pub(super) fn change_names(names: &mut Names, change: DirChange) {
    for (name, ino) in change.names {
        match ino {
            Some(ino) => names.insert(name, ino),
            None => names.remove(&name),
        };
    }
}
