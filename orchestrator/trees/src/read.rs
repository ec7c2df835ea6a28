//! Reading what stands at a path, and copying it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, append_all, read_full};
use sha2::{Digest as _, Sha256};

use crate::error::{IoContext as _, TreeError};
use crate::limits::{COPY_CHUNK_BYTES, SYNC_FILES};
use crate::manifest::{Digest, Entry};
use crate::path::RelativePath;

/// Reads a file to its end, in pieces; returns how long it is and its digest. More than `most` bytes are
/// an error of kind [`io::ErrorKind::FileTooLarge`].
pub(crate) fn drain(
    file: &mut dyn DiskFile,
    most: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    // One byte more than the file has, so that its end is seen by the first reading.
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

/// What stands at a path of a folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It names nothing.
    Free,
    /// What a tree can hold.
    Entry(Entry),
    /// A pipe, a socket or a device.
    Special,
}

impl Standing {
    /// True if it is this entry.
    pub(crate) fn is(&self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Free => entry.is_none(),
            Self::Entry(found) => Some(found) == entry,
            Self::Special => false,
        }
    }

    /// What it is, if a tree can hold it.
    pub(crate) fn entry(self) -> Option<Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Free | Self::Special => None,
        }
    }
}

/// As [`observe`]; a special file is no error.
pub(crate) fn standing(folder: &dyn Folder, path: &Path) -> io::Result<Standing> {
    match observe(folder, path) {
        Ok(None) => Ok(Standing::Free),
        Ok(Some(entry)) => Ok(Standing::Entry(entry)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Standing::Special),
        Err(error) => Err(error),
    }
}

/// What a path of a folder is at this moment, read to its end; none if it names nothing.
///
/// # Errors
///
/// As the file system says; a special file is one of kind [`io::ErrorKind::Unsupported`].
pub fn observe(folder: &dyn Folder, path: &Path) -> io::Result<Option<Entry>> {
    let Some(stat) = folder.look(path)? else {
        return Ok(None);
    };
    Ok(Some(match stat.kind {
        NodeKind::Directory => Entry::Directory { mode: stat.mode },
        NodeKind::Link => Entry::Link {
            target: folder.read_link(path)?.as_bytes().to_vec(),
        },
        NodeKind::File => {
            let mut file = folder.read(path)?;
            let (bytes, sha256) = drain(file.as_mut(), u64::MAX, |_| Ok(()))?;
            Entry::File {
                mode: stat.mode,
                bytes,
                sha256,
            }
        }
        NodeKind::Special => return Err(io::ErrorKind::Unsupported.into()),
    }))
}

/// New files that are to be durable: synced together, as many as may be open.
#[derive(Debug)]
pub(crate) struct Syncs<'f> {
    folder: &'f dyn Folder,
    paths: Vec<RelativePath>,
    files: Vec<Box<dyn DiskFile>>,
}

impl<'f> Syncs<'f> {
    /// Of files in this folder.
    pub(crate) fn new(folder: &'f dyn Folder) -> Self {
        Self {
            folder,
            paths: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Syncs a file, sooner or later.
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

    /// Syncs what is left. Nothing that was added is durable before.
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

/// What was copied, and the new file, which is not synced yet; none of a link.
pub(crate) type Copied = (Entry, Option<Box<dyn DiskFile>>);

/// Copies a file or link to a new name, and returns what was copied. `mode` of a file is that of the new one.
///
/// Where the file system can, the new file shares the blocks of the old one.
pub(crate) fn copy(
    from: (&dyn Folder, &Path),
    to: (&dyn Folder, &Path),
    mode: u32,
    most: u64,
) -> io::Result<Copied> {
    let (from, path) = from;
    let (to, new) = to;
    let stat = from.look(path)?.ok_or(io::ErrorKind::NotFound)?;
    match stat.kind {
        NodeKind::Link => {
            let target = from.read_link(path)?;
            to.create_link(new, Path::new(&target))?;
            let target = target.as_bytes().to_vec();
            Ok((Entry::Link { target }, None))
        }
        NodeKind::File => {
            let mut source = from.read(path)?;
            if source.len()? > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut file = to.create(new, mode)?;
            let (bytes, sha256) = if file.share(source.as_ref())? {
                // What was taken over, whatever becomes of the source.
                drain(file.as_mut(), most, |_| Ok(()))?
            } else {
                drain(source.as_mut(), most, |piece| {
                    append_all(file.as_mut(), piece)
                })?
            };
            let entry = Entry::File {
                mode,
                bytes,
                sha256,
            };
            Ok((entry, Some(file)))
        }
        NodeKind::Directory | NodeKind::Special => Err(io::ErrorKind::Unsupported.into()),
    }
}
