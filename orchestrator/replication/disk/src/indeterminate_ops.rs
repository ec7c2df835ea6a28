//! Resolves changes with an unknown outcome by inspecting the disk.
//!
//! A failed call may have had its full effect, no effect, or a partial effect. Recorded changes
//! must match the files, so the files are inspected. If that fails as well, the change remains
//! unsettled, and nothing else is changed or submitted until it is resolved.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use goondan_durable::disk::{Disk, EntryKind, Stat, read_full};
use goondan_replication::operation::{FileOperation, RelativePath};

use crate::captured_ops::CapturedOps;
use crate::limits::READ_BACK_BYTES;
use crate::walk;

/// Submits the recorded changes if there are many, because reading files back could exceed the
/// memory limit.
pub(crate) type FlushOps<'a> = &'a dyn Fn(&mut CapturedOps);

/// A change with an unknown outcome.
#[derive(Debug, Clone)]
pub(crate) enum IndeterminateOp {
    /// The change happened completely or not at all.
    Whole(FileOperation),
    /// A directory may be partially removed.
    Removal(RelativePath),
    /// A path that is not replicated may have been renamed to a free replicated path.
    Arrival(RelativePath),
    /// The length of a file may differ from this recorded length.
    Length(RelativePath, u64),
}

impl IndeterminateOp {
    /// Inspects the workspace's directory `dir` and records the outcome.
    ///
    /// # Errors
    ///
    /// The error of the disk. The outcome may then be partly recorded; recording it again is
    /// harmless.
    pub(crate) fn settle(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        taken: &mut CapturedOps,
        relieve: FlushOps<'_>,
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

/// Kind of the file or directory at a path, if it exists.
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
        // The file's length determines their outcome.
        FileOperation::Append { .. } | FileOperation::SetLen { .. } => false,
    })
}

fn settle_length(
    disk: &dyn Disk,
    dir: &Path,
    path: &RelativePath,
    known: u64,
    taken: &mut CapturedOps,
    relieve: FlushOps<'_>,
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

/// Records the content of a file from `offset` on.
fn take_content(
    disk: &dyn Disk,
    dir: &Path,
    path: &RelativePath,
    mut offset: u64,
    taken: &mut CapturedOps,
    relieve: FlushOps<'_>,
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
    taken: &mut CapturedOps,
    relieve: FlushOps<'_>,
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
