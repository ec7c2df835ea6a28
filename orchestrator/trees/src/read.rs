//! Reading and copying of single paths.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, append_all, read_full};
use sha2::{Digest as _, Sha256};

use crate::error::{IoContext as _, TreeError};
use crate::limits::{COPY_CHUNK_BYTES, SYNC_FILES};
use crate::manifest::{Digest, TreeEntry};
use crate::path::RelativePath;

/// Reads a file to its end in chunks; returns its length and digest. More than `most` bytes are an
/// error of kind [`io::ErrorKind::FileTooLarge`].
pub(crate) fn drain(
    file: &mut dyn DiskFile,
    most: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    // One extra byte detects the end of the file in the first read.
    let mut chunk = vec![0; len.saturating_add(1).min(COPY_CHUNK_BYTES)];
    let mut hasher = Sha256::new();
    let mut offset = 0;
    loop {
        let read = read_full(file, &mut chunk, offset)?;
        let piece = chunk.get(..read).unwrap_or_default();
        offset += read as u64;
        if offset > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        hasher.update(piece);
        take(piece)?;
        if read < chunk.len() {
            return Ok((offset, Digest::finish(hasher)));
        }
    }
}

/// State of a path in a folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathOccupancy {
    /// The path does not exist.
    Free,
    Entry(TreeEntry),
    /// A pipe, a socket or a device.
    Special,
}

impl PathOccupancy {
    /// True if the path holds this entry.
    pub(crate) fn is(&self, entry: Option<&TreeEntry>) -> bool {
        match self {
            Self::Free => entry.is_none(),
            Self::Entry(found) => Some(found) == entry,
            Self::Special => false,
        }
    }

    /// Returns the entry, if it is a valid one.
    pub(crate) fn entry(self) -> Option<TreeEntry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Free | Self::Special => None,
        }
    }
}

/// As [`observe`]; a special file is not an error.
pub(crate) fn standing(folder: &dyn Folder, path: &Path) -> io::Result<PathOccupancy> {
    match observe(folder, path) {
        Ok(None) => Ok(PathOccupancy::Free),
        Ok(Some(entry)) => Ok(PathOccupancy::Entry(entry)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(PathOccupancy::Special),
        Err(error) => Err(error),
    }
}

/// Returns the current entry at a path, reading files to their end; `None` if the path does not
/// exist.
///
/// # Errors
///
/// I/O errors; for a special file of kind [`io::ErrorKind::Unsupported`].
pub fn observe(folder: &dyn Folder, path: &Path) -> io::Result<Option<TreeEntry>> {
    let Some(stat) = folder.look(path)? else {
        return Ok(None);
    };
    Ok(Some(match stat.kind {
        NodeKind::Directory => TreeEntry::Directory { mode: stat.mode },
        NodeKind::Link => TreeEntry::Link {
            target: folder.read_link(path)?.as_bytes().to_vec(),
        },
        NodeKind::File => {
            let mut file = folder.read(path)?;
            let (bytes, sha256) = drain(file.as_mut(), u64::MAX, |_| Ok(()))?;
            TreeEntry::File {
                mode: stat.mode,
                bytes,
                sha256,
            }
        }
        NodeKind::Special => return Err(io::ErrorKind::Unsupported.into()),
    }))
}

/// New files that are synced together, in batches of the open-file limit.
#[derive(Debug)]
pub(crate) struct Syncs<'f> {
    folder: &'f dyn Folder,
    paths: Vec<RelativePath>,
    files: Vec<Box<dyn DiskFile>>,
}

impl<'f> Syncs<'f> {
    /// Creates a batch for files in this folder.
    pub(crate) fn new(folder: &'f dyn Folder) -> Self {
        Self {
            folder,
            paths: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Adds a file to be synced by the end.
    pub(crate) fn add(
        &mut self,
        path: &RelativePath,
        file: Box<dyn DiskFile>,
    ) -> Result<(), TreeError> {
        self.paths.push(path.clone());
        self.files.push(file);
        if self.files.len() >= SYNC_FILES {
            self.finish()?;
        }
        Ok(())
    }

    /// Syncs the remaining files. Added files are durable only after this.
    pub(crate) fn finish(&mut self) -> Result<(), TreeError> {
        let mut files = std::mem::take(&mut self.files);
        let paths = std::mem::take(&mut self.paths);
        let results = self.folder.sync_files(&mut files);
        for (path, result) in paths.iter().zip(results) {
            result.during("sync", path)?;
        }
        Ok(())
    }
}

/// The copied entry, and its new unsynced file; `None` for a link.
pub(crate) type CopiedEntry = (TreeEntry, Option<Box<dyn DiskFile>>);

/// Copies a file or link to a new name, and returns the copied entry. `mode` applies to a new file.
///
/// If the file system supports it, the new file shares the blocks of the old one.
pub(crate) fn copy(
    from: (&dyn Folder, &Path),
    to: (&dyn Folder, &Path),
    mode: u32,
    most: u64,
) -> io::Result<CopiedEntry> {
    let (from, path) = from;
    let (to, new) = to;
    let stat = from.look(path)?.ok_or(io::ErrorKind::NotFound)?;
    match stat.kind {
        NodeKind::Link => {
            let target = from.read_link(path)?;
            to.create_link(new, Path::new(&target))?;
            let target = target.as_bytes().to_vec();
            Ok((TreeEntry::Link { target }, None))
        }
        NodeKind::File => {
            let mut source = from.read(path)?;
            if source.len()? > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut file = to.create(new, mode)?;
            let (bytes, sha256) = if file.share(source.as_ref())? {
                // Hashes the cloned copy, because the source may change.
                drain(file.as_mut(), most, |_| Ok(()))?
            } else {
                drain(source.as_mut(), most, |piece| {
                    append_all(file.as_mut(), piece)
                })?
            };
            let entry = TreeEntry::File {
                mode,
                bytes,
                sha256,
            };
            Ok((entry, Some(file)))
        }
        NodeKind::Directory | NodeKind::Special => Err(io::ErrorKind::Unsupported.into()),
    }
}
