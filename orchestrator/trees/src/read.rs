//! Reading what stands at a path, and copying it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, append_all, read_full};
use sha2::{Digest as _, Sha256};

use crate::limits::COPY_CHUNK_BYTES;
use crate::manifest::{Digest, Entry};

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

/// Copies a file or link to a new name, synced, and returns what was copied. `mode` of a file is that of the
/// new one.
pub(crate) fn copy(
    from: (&dyn Folder, &Path),
    to: (&dyn Folder, &Path),
    mode: u32,
    most: u64,
) -> io::Result<Entry> {
    let (from, path) = from;
    let (to, new) = to;
    let stat = from.look(path)?.ok_or(io::ErrorKind::NotFound)?;
    match stat.kind {
        NodeKind::Link => {
            let target = from.read_link(path)?;
            to.create_link(new, Path::new(&target))?;
            Ok(Entry::Link {
                target: target.as_bytes().to_vec(),
            })
        }
        NodeKind::File => {
            let mut source = from.read(path)?;
            let mut file = to.create(new, mode)?;
            let (bytes, sha256) = drain(source.as_mut(), most, |piece| {
                append_all(file.as_mut(), piece)
            })?;
            file.sync()?;
            Ok(Entry::File {
                mode,
                bytes,
                sha256,
            })
        }
        NodeKind::Directory | NodeKind::Special => Err(io::ErrorKind::Unsupported.into()),
    }
}
