//! The digest of the replicated files of a workspace.

use std::io;
use std::path::Path;

use goondan_durable::disk::{Disk, EntryKind, read_full};
use goondan_replication::names::Hash;
use goondan_replication::tree::TreeDigest;
use sha2::{Digest as _, Sha256};

use crate::limits::READ_BACK_BYTES;
use crate::walk;

pub(super) fn of(disk: &dyn Disk, dir: &Path) -> io::Result<Hash> {
    let mut digest = TreeDigest::default();
    let mut chunk = vec![0; READ_BACK_BYTES];
    for (path, kind) in walk::entries(disk, dir, None)? {
        if kind == EntryKind::Directory {
            digest.directory(&path);
        } else {
            let (len, hash) = content(disk, &dir.join(path.as_str()), &mut chunk)?;
            digest.file(&path, len, hash);
        }
    }
    Ok(digest.finish())
}

/// Length and content hash of a file.
fn content(disk: &dyn Disk, path: &Path, chunk: &mut [u8]) -> io::Result<(u64, Hash)> {
    let mut file = disk.open_read(path)?;
    let (mut len, mut hash) = (0, Sha256::new());
    loop {
        let read = read_full(file.as_mut(), chunk, len)?;
        let bytes = chunk.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((len, Hash(hash.finalize().into())));
        }
        hash.update(bytes);
        len += read as u64;
    }
}
