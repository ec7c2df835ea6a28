//! Changes whose outcome the disk did not tell: it is looked for in what is there.
//!
//! A call that failed may have done all, nothing, or a part. What is taken down must be what happened, so the files are
//! looked at; if that fails too, the change stays unsettled, and nothing further is changed or handed over before it is
//! known.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use goondan_durable::disk::{Disk, EntryKind, Stat, read_full};
use goondan_replication::operation::{FileOperation, RelativePath};

use crate::limits::READ_BACK_BYTES;
use crate::taken::Taken;
use crate::walk;

/// Hands over what was taken down if it is much: what is read back may be more than memory should hold.
pub(crate) type Relieve<'a> = &'a dyn Fn(&mut Taken);

/// A change that failed, or of which only the file itself says what it was.
#[derive(Debug, Clone)]
pub(crate) enum Unsettled {
    /// It was made as a whole, or not at all.
    Whole(FileOperation),
    /// A part of a directory may be gone.
    Removal(RelativePath),
    /// Something may have come from where nothing is replicated, to where nothing was.
    Arrival(RelativePath),
    /// A file may have another length than this one, which is taken down.
    Length(RelativePath, u64),
}

impl Unsettled {
    /// Looks at what is there in the workspace's directory `dir`, and takes it down.
    ///
    /// # Errors
    ///
    /// As the disk says. It may have been taken down in part then, in a way that does no harm when it is taken down
    /// again.
    pub(crate) fn settle(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        taken: &mut Taken,
        relieve: Relieve<'_>,
    ) -> io::Result<()> {
        match self {
            Self::Whole(operation) => {
                if is_made(disk, dir, operation)? {
                    taken.push(operation.clone());
                }
                Ok(())
            }
            Self::Removal(path) => {
                let left = walk::entries(disk, dir, Some(path))?;
                taken.remove_part(path.clone(), |path| left.contains_key(path));
                take_entries(disk, dir, left, taken, relieve)
            }
            Self::Arrival(path) => {
                let come = walk::entries(disk, dir, Some(path))?;
                take_entries(disk, dir, come, taken, relieve)
            }
            Self::Length(path, known) => settle_length(disk, dir, path, *known, taken, relieve),
        }
    }
}

/// Whether a file or directory stands there, and which.
fn stat(disk: &dyn Disk, dir: &Path, path: &RelativePath) -> io::Result<Option<Stat>> {
    let found = disk.stat(&dir.join(path.as_str()))?;
    Ok(found.filter(|stat| stat.kind != EntryKind::Other))
}

fn is_made(disk: &dyn Disk, dir: &Path, operation: &FileOperation) -> io::Result<bool> {
    Ok(match operation {
        FileOperation::Create { path } => {
            stat(disk, dir, path)?.is_some_and(|stat| stat.kind == EntryKind::File && stat.len == 0)
        }
        FileOperation::CreateDir { path } => {
            stat(disk, dir, path)?.is_some_and(|stat| stat.kind == EntryKind::Directory)
        }
        FileOperation::RemoveFile { path }
        | FileOperation::RemoveTree { path }
        | FileOperation::Rename { from: path, .. } => stat(disk, dir, path)?.is_none(),
        // These are settled by the file's length.
        FileOperation::Append { .. } | FileOperation::SetLen { .. } => false,
    })
}

fn settle_length(
    disk: &dyn Disk,
    dir: &Path,
    path: &RelativePath,
    known: u64,
    taken: &mut Taken,
    relieve: Relieve<'_>,
) -> io::Result<()> {
    let Some(stat) = stat(disk, dir, path)? else {
        taken.push(FileOperation::RemoveFile { path: path.clone() });
        return Ok(());
    };
    if stat.len < known {
        taken.push(FileOperation::SetLen {
            path: path.clone(),
            len: stat.len,
        });
        return Ok(());
    }
    take_content(disk, dir, path, known, taken, relieve)
}

/// Takes down what a file holds from `offset` on.
fn take_content(
    disk: &dyn Disk,
    dir: &Path,
    path: &RelativePath,
    mut offset: u64,
    taken: &mut Taken,
    relieve: Relieve<'_>,
) -> io::Result<()> {
    let mut file = disk.open_read(&dir.join(path.as_str()))?;
    let mut chunk = vec![0; READ_BACK_BYTES];
    loop {
        let len = read_full(file.as_mut(), &mut chunk, offset)?;
        let bytes = chunk.get(..len).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        taken.append(path, offset, bytes);
        relieve(taken);
        offset = offset.saturating_add(len as u64);
    }
}

fn take_entries(
    disk: &dyn Disk,
    dir: &Path,
    entries: BTreeMap<RelativePath, EntryKind>,
    taken: &mut Taken,
    relieve: Relieve<'_>,
) -> io::Result<()> {
    for (path, kind) in entries {
        if kind == EntryKind::Directory {
            taken.push(FileOperation::CreateDir { path });
            relieve(taken);
        } else {
            taken.push(FileOperation::Create { path: path.clone() });
            take_content(disk, dir, &path, 0, taken, relieve)?;
        }
    }
    Ok(())
}
