//! Captures a workspace's files at one moment while they continue to change; used for snapshots.
//!
//! At that moment every file is hard-linked into a separate directory and its length is recorded.
//! Later appends are beyond that length; a removed, renamed or replaced file remains available
//! through the link; content that is truncated in place is kept in memory by the code that
//! truncates it ([`PendingCopies`]). Writers therefore never wait for the copy.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::disk::{Disk, DiskFile, EntryKind, read_full};
use goondan_replication::limits::APPEND_BYTES_MAX;
use goondan_replication::names::Hash;
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::record::RecordFault;
use goondan_replication::record::parts::{PartBuilder, SnapshotPart};
use goondan_replication::tree::TreeDigest;
use sha2::{Digest as _, Sha256};

use crate::pending_copies::PendingCopies;
use crate::walk;

/// Reason why a capture does not result in a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// I/O error of the disk or of the snapshot store.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Content that was truncated meanwhile could not be kept.
    #[error(
        "files were truncated before they were copied and could not be kept; waiting for a later snapshot"
    )]
    Void,
    /// A part cannot be encoded.
    #[error("failed to write a part: {0}")]
    Part(#[from] RecordFault),
}

#[derive(Debug, Clone, Copy)]
enum CapturedNode {
    Directory,
    File(CapturedFile),
}

#[derive(Debug, Clone, Copy)]
struct CapturedFile {
    /// Name of its hard link.
    number: u64,
    inode: u64,
    len: u64,
}

/// Captured files of a workspace. Its directory is removed on drop.
pub struct Capture {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    entries: BTreeMap<RelativePath, CapturedNode>,
    uncopied: PendingCopies,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("dir", &self.dir)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Captures the replicated files of `workspace` under names in `dir`, which is recreated. The
    /// caller must prevent all changes during the call.
    ///
    /// # Errors
    ///
    /// The error of the disk.
    pub(crate) fn take(disk: Arc<dyn Disk>, workspace: &Path, dir: &Path) -> io::Result<Self> {
        disk.remove_tree(dir)?;
        disk.create_dir(dir)?;
        // From here on, everything created is removed with the capture.
        let mut capture = Self {
            disk,
            dir: dir.to_owned(),
            entries: BTreeMap::new(),
            uncopied: PendingCopies::default(),
        };
        for (path, kind) in walk::entries(capture.disk.as_ref(), workspace, None)? {
            let captured = if kind == EntryKind::Directory {
                CapturedNode::Directory
            } else {
                capture.link(&workspace.join(path.as_str()))?
            };
            capture.entries.insert(path, captured);
        }
        Ok(capture)
    }

    fn link(&self, file: &Path) -> io::Result<CapturedNode> {
        let number = self.entries.len() as u64;
        let name = self.name(number);
        self.disk.link(file, &name)?;
        let found = self.disk.stat(&name)?;
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        let (inode, len) = (found.inode, found.len);
        self.uncopied.add(inode, len);
        Ok(CapturedNode::File(CapturedFile { number, inode, len }))
    }

    /// The files that remain to be copied, for code that truncates files.
    pub(crate) fn uncopied(&self) -> PendingCopies {
        self.uncopied.clone()
    }

    fn name(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Passes all files to `keep`, in parts from which
    /// [`Replica::restore`](crate::Replica::restore) recreates them, and returns their digest.
    ///
    /// # Errors
    ///
    /// [`CaptureError`]. The parts passed so far are useless then.
    pub fn give(
        &self,
        keep: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    ) -> Result<Hash, CaptureError> {
        let mut parts = Parts {
            builder: PartBuilder::default(),
            keep,
        };
        let mut digest = TreeDigest::default();
        for (path, captured) in &self.entries {
            match captured {
                CapturedNode::Directory => {
                    digest.directory(path);
                    parts.push(FileOperation::CreateDir { path: path.clone() })?;
                }
                CapturedNode::File(file) => {
                    let content = self.file(path, *file, &mut parts)?;
                    digest.file(path, file.len, content);
                    self.uncopied.copied(file.inode);
                }
            }
        }
        // Content read after a truncation is detected here.
        if self.uncopied.is_void() {
            return Err(CaptureError::Void);
        }
        let digest = digest.finish();
        let Parts { builder, keep } = parts;
        keep(builder.finish(digest).encode()?)?;
        Ok(digest)
    }

    fn file(
        &self,
        path: &RelativePath,
        captured: CapturedFile,
        parts: &mut Parts<'_>,
    ) -> Result<Hash, CaptureError> {
        parts.push(FileOperation::Create { path: path.clone() })?;
        let CapturedFile { number, inode, len } = captured;
        let mut file = self.disk.open_read(&self.name(number))?;
        let (mut offset, mut hash) = (0, Sha256::new());
        while offset < len {
            let mut bytes = read_some(file.as_mut(), offset, len)?;
            // The data just read may lack truncated content, or contain newer content instead.
            if let Some(content) = self.uncopied.content(inode) {
                bytes = some_of(&content, offset);
            }
            if bytes.is_empty() {
                return Err(CaptureError::Void);
            }
            hash.update(&bytes);
            let read = bytes.len() as u64;
            parts.push(FileOperation::Append {
                path: path.clone(),
                offset,
                bytes,
            })?;
            offset += read;
        }
        Ok(Hash(hash.finalize().into()))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.uncopied.end();
        if let Err(error) = self.disk.remove_tree(&self.dir) {
            tracing::warn!(
                path = %self.dir.display(),
                error = &error as &dyn std::error::Error,
                "failed to remove a snapshot's source files; the next start retries"
            );
        }
    }
}

/// The content of a file from `offset` on: as much as one operation may contain, and nothing beyond
/// `len`.
fn read_some(file: &mut dyn DiskFile, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let rest = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; rest.min(APPEND_BYTES_MAX)];
    let read = read_full(file, &mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Like [`read_some`], for content in memory.
fn some_of(content: &[u8], offset: u64) -> Vec<u8> {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|offset| content.get(offset..));
    let rest = rest.unwrap_or_default();
    rest.get(..APPEND_BYTES_MAX).unwrap_or(rest).to_vec()
}

struct Parts<'k> {
    builder: PartBuilder,
    keep: &'k mut dyn FnMut(Vec<u8>) -> io::Result<()>,
}

impl Parts<'_> {
    fn push(&mut self, operation: FileOperation) -> Result<(), CaptureError> {
        let full = self.builder.push(operation);
        full.map_or(Ok(()), |part: SnapshotPart| {
            Ok((self.keep)(part.encode()?)?)
        })
    }
}
