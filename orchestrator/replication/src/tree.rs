//! Files that records produce, and the digest by which two nodes compare them.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::names::Hash;
use crate::operation::{FileOperation, RelativePath};

/// An operation does not match its files, which therefore do not result from the previous records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}: `{path}`")]
pub struct FileMismatch {
    pub path: RelativePath,
    pub why: MismatchKind,
}

/// Mismatch between an operation and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MismatchKind {
    /// The file does not exist.
    #[error("a file is missing")]
    Missing,
    /// The file is shorter than the offset of the append.
    #[error("a file is shorter than its records require")]
    Shorter,
    /// A directory is in the place of a file, or a file in the place of a directory.
    #[error("a file is in the place of a directory, or a directory in the place of a file")]
    OtherKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MemoryNode {
    File(Vec<u8>),
    Directory,
}

/// In-memory files of a workspace, as its records produce them from nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    nodes: BTreeMap<RelativePath, MemoryNode>,
}

impl MemoryTree {
    /// Applies a change.
    ///
    /// # Errors
    ///
    /// [`FileMismatch`] if the files do not result from the previous records; nothing is changed
    /// then.
    pub fn apply(&mut self, operation: &FileOperation) -> Result<(), FileMismatch> {
        match operation {
            FileOperation::Create { path } => {
                self.is_file_or_free(path)?;
                self.nodes
                    .insert(path.clone(), MemoryNode::File(Vec::new()));
            }
            FileOperation::Append {
                path,
                offset,
                bytes,
            } => self.append(path, *offset, bytes)?,
            FileOperation::SetLen { path, len } => {
                let content = self.file_mut(path)?;
                let len = usize::try_from(*len).map_err(|_| misfit(path, MismatchKind::Shorter))?;
                // Our records only truncate, so a length that would require memory is invalid.
                if len > content.len() {
                    return Err(misfit(path, MismatchKind::Shorter));
                }
                content.truncate(len);
            }
            FileOperation::Rename { from, to } => self.rename(from, to)?,
            FileOperation::RemoveFile { path } => {
                self.is_file_or_free(path)?;
                self.nodes.remove(path);
            }
            FileOperation::CreateDir { path } => match self.nodes.get(path) {
                Some(MemoryNode::File(_)) => return Err(misfit(path, MismatchKind::OtherKind)),
                Some(MemoryNode::Directory) => {}
                None => {
                    self.nodes.insert(path.clone(), MemoryNode::Directory);
                }
            },
            FileOperation::RemoveTree { path } => {
                self.nodes.retain(|known, _| !known.is_within(path));
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        path: &RelativePath,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FileMismatch> {
        if offset == 0 && !self.nodes.contains_key(path) {
            self.nodes
                .insert(path.clone(), MemoryNode::File(Vec::new()));
        }
        let content = self.file_mut(path)?;
        match usize::try_from(offset) {
            Ok(offset) if offset <= content.len() => content.truncate(offset),
            _ => return Err(misfit(path, MismatchKind::Shorter)),
        }
        content.extend_from_slice(bytes);
        Ok(())
    }

    fn rename(&mut self, from: &RelativePath, to: &RelativePath) -> Result<(), FileMismatch> {
        if !self.nodes.contains_key(from) {
            // The files already contain the change.
            let is_done = self.nodes.contains_key(to);
            return if is_done {
                Ok(())
            } else {
                Err(misfit(from, MismatchKind::Missing))
            };
        }
        if to.is_within(from) {
            let is_same = to == from;
            return if is_same {
                Ok(())
            } else {
                Err(misfit(to, MismatchKind::OtherKind))
            };
        }
        let named = |path: &RelativePath| {
            let new = path.moved(from, to);
            new.map(|new| (path.clone(), new))
                .ok_or_else(|| misfit(to, MismatchKind::OtherKind))
        };
        let within = self.nodes.keys().filter(|path| path.is_within(from));
        let moved = within.map(named).collect::<Result<Vec<_>, _>>()?;
        self.nodes
            .retain(|path, _| path.is_within(from) || !path.is_within(to));
        for (path, new) in moved {
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(new, node);
            }
        }
        Ok(())
    }

    fn is_file_or_free(&self, path: &RelativePath) -> Result<(), FileMismatch> {
        match self.nodes.get(path) {
            Some(MemoryNode::Directory) => Err(misfit(path, MismatchKind::OtherKind)),
            Some(MemoryNode::File(_)) | None => Ok(()),
        }
    }

    fn file_mut(&mut self, path: &RelativePath) -> Result<&mut Vec<u8>, FileMismatch> {
        match self.nodes.get_mut(path) {
            Some(MemoryNode::File(content)) => Ok(content),
            Some(MemoryNode::Directory) => Err(misfit(path, MismatchKind::OtherKind)),
            None => Err(misfit(path, MismatchKind::Missing)),
        }
    }

    /// The content of a file; `None` if it does not exist.
    #[must_use]
    pub fn file(&self, path: &RelativePath) -> Option<&[u8]> {
        match self.nodes.get(path)? {
            MemoryNode::File(content) => Some(content),
            MemoryNode::Directory => None,
        }
    }

    #[must_use]
    pub fn digest(&self) -> Hash {
        let mut digest = TreeDigest::default();
        for (path, node) in &self.nodes {
            match node {
                MemoryNode::File(content) => {
                    digest.file(path, content.len() as u64, Hash::of(content));
                }
                MemoryNode::Directory => digest.directory(path),
            }
        }
        digest.finish()
    }
}

fn misfit(path: &RelativePath, why: MismatchKind) -> FileMismatch {
    FileMismatch {
        path: path.clone(),
        why,
    }
}

/// Computes the digest of a tree from its paths in ascending order. Nodes with the same files get
/// the same digest.
#[derive(Debug, Clone, Default)]
pub struct TreeDigest(Sha256);

impl TreeDigest {
    /// Adds a file by the hash of its content.
    pub fn file(&mut self, path: &RelativePath, len: u64, content: Hash) {
        self.entry(b'f', path);
        self.0.update(len.to_be_bytes());
        self.0.update(content.0);
    }

    pub fn directory(&mut self, path: &RelativePath) {
        self.entry(b'd', path);
    }

    fn entry(&mut self, kind: u8, path: &RelativePath) {
        self.0.update([kind]);
        self.0.update((path.as_str().len() as u64).to_be_bytes());
        self.0.update(path.as_str());
    }

    /// The digest of everything added.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
