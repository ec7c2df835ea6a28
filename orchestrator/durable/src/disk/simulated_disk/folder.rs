//! A folder on a simulated disk.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use super::SimulatedDisk;
use super::machine::{errno, not_found};
use super::node::{DirChange, Ino, Names, SimulatedNode};
use crate::disk::folder::{Folder, NodeKind, NodeStat};
use crate::disk::{Disk as _, DiskFile};

#[derive(Debug)]
struct SimulatedFolder {
    disk: SimulatedDisk,
    root: PathBuf,
}

impl SimulatedDisk {
    /// Returns a directory of this disk as a folder.
    #[must_use]
    pub fn folder(&self, root: &Path) -> Box<dyn Folder> {
        Box::new(SimulatedFolder {
            disk: self.clone(),
            root: root.to_owned(),
        })
    }
}

impl SimulatedFolder {
    fn at(&self, path: &Path) -> io::Result<PathBuf> {
        let inside = |part| matches!(part, Component::Normal(_));
        if path.components().all(inside) {
            Ok(self.root.join(path))
        } else {
            Err(errno(Errno::EXDEV))
        }
    }

    fn add(&self, path: &Path, node: SimulatedNode) -> io::Result<Ino> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let (dir, name) = machine.place(&path)?;
            if machine.names(dir)?.contains_key(name) {
                return Err(errno(Errno::EEXIST));
            }
            Ok(machine.add(dir, name, node))
        })
    }
}

impl Folder for SimulatedFolder {
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let ino = match machine.find(&path) {
                Ok(ino) => ino,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let (kind, mode, len) = match machine.nodes.get(&ino) {
                Some(SimulatedNode::File { current, mode, .. }) => {
                    (NodeKind::File, *mode, current.len() as u64)
                }
                Some(SimulatedNode::Dir { mode, .. }) => (NodeKind::Directory, *mode, 0),
                Some(SimulatedNode::Link { .. }) => (NodeKind::Link, 0o777, 0),
                Some(SimulatedNode::Pipe) => (NodeKind::Special, 0o600, 0),
                None => return Ok(None),
            };
            let changed = i128::from(machine.version_of(ino));
            Ok(Some(NodeStat {
                kind,
                mode,
                len,
                version: [0, i128::from(ino), changed, changed],
            }))
        })
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let ino = machine.find(&path)?;
            Ok(machine.names(ino)?.keys().cloned().collect())
        })
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let path = self.at(path)?;
        let ino = self.disk.call(|machine| {
            let ino = machine.open(&path, false)?;
            machine.file(ino)?;
            Ok(ino)
        })?;
        Ok(self.disk.handle(ino))
    }

    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let ino = machine.find(&path)?;
            match machine.nodes.get(&ino) {
                Some(SimulatedNode::Link { target }) => Ok(target.clone()),
                _ => Err(errno(Errno::EINVAL)),
            }
        })
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let ino = self.add(path, SimulatedNode::file(mode))?;
        Ok(self.disk.handle(ino))
    }

    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let target = target.as_os_str().to_owned();
        self.add(path, SimulatedNode::Link { target }).map(drop)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.add(path, SimulatedNode::dir(mode)).map(drop)
    }

    fn set_dir_mode(&self, path: &Path, new: u32) -> io::Result<()> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let ino = machine.find(&path)?;
            match machine.nodes.get_mut(&ino) {
                Some(SimulatedNode::Dir { mode, .. }) => *mode = new,
                _ => return Err(errno(Errno::ENOTDIR)),
            }
            Ok(())
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.at(from)?, self.at(to)?);
        self.disk.call(|machine| {
            let (from_dir, from) = machine.place(&from)?;
            let (to_dir, to) = machine.place(&to)?;
            let ino = *machine.names(from_dir)?.get(from).ok_or_else(not_found)?;
            if machine.names(to_dir)?.contains_key(to) {
                return Err(errno(Errno::EEXIST));
            }
            machine.change_both(
                (from_dir, from.to_owned(), None),
                (to_dir, to.to_owned(), Some(ino)),
            );
            Ok(())
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let (one, other) = (self.at(one)?, self.at(other)?);
        self.disk.call(|machine| {
            let (dir, name) = machine.place(&one)?;
            let (other_dir, other_name) = machine.place(&other)?;
            let found = |names: &Names, name| names.get(name).copied().ok_or_else(not_found);
            let ino = found(machine.names(dir)?, name)?;
            let other_ino = found(machine.names(other_dir)?, other_name)?;
            machine.change_both(
                (dir, name.to_owned(), Some(other_ino)),
                (other_dir, other_name.to_owned(), Some(ino)),
            );
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(&self.at(path)?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.at(path)?;
        self.disk.call(|machine| {
            let (dir, name) = machine.place(&path)?;
            let ino = *machine.names(dir)?.get(name).ok_or_else(not_found)?;
            if !machine.names(ino)?.is_empty() {
                return Err(errno(Errno::ENOTEMPTY));
            }
            machine.change_dir(dir, DirChange::unlink(name));
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(&self.at(path)?)
    }

    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        let root = self.at(path)?;
        self.disk.call(|machine| {
            let ino = machine.find(&root)?;
            machine.names(ino).map(drop)
        })?;
        Ok(self.disk.folder(&root))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(self.disk.machine().free_bytes)
    }
}
