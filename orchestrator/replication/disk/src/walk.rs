//! The replicated files of a workspace on a disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind};
use goondan_replication::operation::RelativePath;

use crate::scope::is_replicated;

/// A name that no record can contain.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be replicated: its name is not UTF-8 or is too long", path.display())]
struct UnencodablePath {
    path: PathBuf,
}

/// All replicated files and directories below the workspace's directory `dir`, ascending;
/// directories precede their content. With `below`, only that path and its content. Entries that
/// are neither files nor directories are ignored.
///
/// # Errors
///
/// The error of the disk, or [`io::ErrorKind::InvalidData`] for a name that no record can contain.
pub(crate) fn entries(
    disk: &dyn Disk,
    dir: &Path,
    below: Option<&RelativePath>,
) -> io::Result<BTreeMap<RelativePath, EntryKind>> {
    let mut found = BTreeMap::new();
    let mut open = Vec::new();
    match below {
        None => open.push(None),
        Some(path) => match disk.stat(&dir.join(path.as_str()))? {
            Some(stat) if stat.kind == EntryKind::Directory => {
                found.insert(path.clone(), stat.kind);
                open.push(Some(path.clone()));
            }
            Some(stat) if stat.kind == EntryKind::File => {
                found.insert(path.clone(), stat.kind);
            }
            Some(_) | None => {}
        },
    }
    while let Some(parent) = open.pop() {
        let parent_path = parent
            .as_ref()
            .map_or_else(|| dir.to_owned(), |path| dir.join(path.as_str()));
        for entry in disk.list(&parent_path)? {
            if entry.kind == EntryKind::Other {
                continue;
            }
            let path = named(parent.as_ref(), entry.name.to_str()).ok_or_else(|| {
                let path = parent_path.join(&entry.name);
                io::Error::new(io::ErrorKind::InvalidData, UnencodablePath { path })
            })?;
            if !is_replicated(&path) {
                continue;
            }
            if entry.kind == EntryKind::Directory {
                open.push(Some(path.clone()));
            }
            found.insert(path, entry.kind);
        }
    }
    Ok(found)
}

fn named(parent: Option<&RelativePath>, name: Option<&str>) -> Option<RelativePath> {
    let name = name?;
    let path = parent.map_or_else(|| name.to_owned(), |parent| format!("{parent}/{name}"));
    RelativePath::new(&path).ok()
}
