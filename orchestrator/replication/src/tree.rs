//! The files that records make, and by what two nodes know that they have the same.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::names::Hash;
use crate::operation::{FileOperation, RelativePath};

/// An operation does not fit the files it is to change: they are not those that the records before it make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}: `{path}`")]
pub struct DoesNotFit {
    /// Which file.
    pub path: RelativePath,
    /// What is wrong with it.
    pub why: Misfit,
}

/// What is wrong with a file that an operation is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// There is none.
    #[error("a file is missing")]
    Missing,
    /// It is shorter than the place at which bytes are to be appended.
    #[error("a file is shorter than its records make it")]
    Shorter,
    /// A directory stands where a file should, or the other way round.
    #[error("a file stands where a directory should, or the other way round")]
    OtherKind,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(Vec<u8>),
    Directory,
}

/// The files of a workspace in memory: what its records make of nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    nodes: BTreeMap<RelativePath, Node>,
}

impl MemoryTree {
    /// Makes one change.
    ///
    /// # Errors
    ///
    /// [`DoesNotFit`] if the files are not those that the records before it make; nothing is changed then.
    pub fn apply(&mut self, operation: &FileOperation) -> Result<(), DoesNotFit> {
        match operation {
            FileOperation::Create { path } => {
                self.is_file_or_free(path)?;
                self.nodes.insert(path.clone(), Node::File(Vec::new()));
            }
            FileOperation::Append {
                path,
                offset,
                bytes,
            } => self.append(path, *offset, bytes)?,
            FileOperation::SetLen { path, len } => {
                let content = self.file_mut(path)?;
                let len = usize::try_from(*len).map_err(|_| misfit(path, Misfit::Shorter))?;
                // Records only ever cut: a length that memory would have to be found for is none of ours.
                if len > content.len() {
                    return Err(misfit(path, Misfit::Shorter));
                }
                content.truncate(len);
            }
            FileOperation::Rename { from, to } => self.rename(from, to)?,
            FileOperation::RemoveFile { path } => {
                self.is_file_or_free(path)?;
                self.nodes.remove(path);
            }
            FileOperation::CreateDir { path } => match self.nodes.get(path) {
                Some(Node::File(_)) => return Err(misfit(path, Misfit::OtherKind)),
                Some(Node::Directory) => {}
                None => {
                    self.nodes.insert(path.clone(), Node::Directory);
                }
            },
            FileOperation::RemoveTree { path } => {
                self.nodes.retain(|known, _| !known.is_within(path));
            }
        }
        Ok(())
    }

    fn append(&mut self, path: &RelativePath, offset: u64, bytes: &[u8]) -> Result<(), DoesNotFit> {
        if offset == 0 && !self.nodes.contains_key(path) {
            self.nodes.insert(path.clone(), Node::File(Vec::new()));
        }
        let content = self.file_mut(path)?;
        match usize::try_from(offset) {
            Ok(offset) if offset <= content.len() => content.truncate(offset),
            _ => return Err(misfit(path, Misfit::Shorter)),
        }
        content.extend_from_slice(bytes);
        Ok(())
    }

    fn rename(&mut self, from: &RelativePath, to: &RelativePath) -> Result<(), DoesNotFit> {
        if !self.nodes.contains_key(from) {
            // Made again over files that have it already.
            let is_done = self.nodes.contains_key(to);
            return if is_done {
                Ok(())
            } else {
                Err(misfit(from, Misfit::Missing))
            };
        }
        if to.is_within(from) {
            let is_same = to == from;
            return if is_same {
                Ok(())
            } else {
                Err(misfit(to, Misfit::OtherKind))
            };
        }
        let named = |path: &RelativePath| {
            let new = path.moved(from, to);
            new.map(|new| (path.clone(), new))
                .ok_or_else(|| misfit(to, Misfit::OtherKind))
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

    fn is_file_or_free(&self, path: &RelativePath) -> Result<(), DoesNotFit> {
        match self.nodes.get(path) {
            Some(Node::Directory) => Err(misfit(path, Misfit::OtherKind)),
            Some(Node::File(_)) | None => Ok(()),
        }
    }

    fn file_mut(&mut self, path: &RelativePath) -> Result<&mut Vec<u8>, DoesNotFit> {
        match self.nodes.get_mut(path) {
            Some(Node::File(content)) => Ok(content),
            Some(Node::Directory) => Err(misfit(path, Misfit::OtherKind)),
            None => Err(misfit(path, Misfit::Missing)),
        }
    }

    /// What a file holds; none if there is no such file.
    #[must_use]
    pub fn file(&self, path: &RelativePath) -> Option<&[u8]> {
        match self.nodes.get(path)? {
            Node::File(content) => Some(content),
            Node::Directory => None,
        }
    }

    /// The digest of all there is.
    #[must_use]
    pub fn digest(&self) -> Hash {
        let mut digest = TreeDigest::default();
        for (path, node) in &self.nodes {
            match node {
                Node::File(content) => digest.file(path, content.len() as u64, Hash::of(content)),
                Node::Directory => digest.directory(path),
            }
        }
        digest.finish()
    }
}

fn misfit(path: &RelativePath, why: Misfit) -> DoesNotFit {
    DoesNotFit {
        path: path.clone(),
        why,
    }
}

/// Adds up a tree, path by path in ascending order: two nodes that have the same files get the same digest.
#[derive(Debug, Clone, Default)]
pub struct TreeDigest(Sha256);

impl TreeDigest {
    /// A file, by the hash of its content.
    pub fn file(&mut self, path: &RelativePath, len: u64, content: Hash) {
        self.entry(b'f', path);
        self.0.update(len.to_be_bytes());
        self.0.update(content.0);
    }

    /// A directory.
    pub fn directory(&mut self, path: &RelativePath) {
        self.entry(b'd', path);
    }

    fn entry(&mut self, kind: u8, path: &RelativePath) {
        self.0.update([kind]);
        self.0.update((path.as_str().len() as u64).to_be_bytes());
        self.0.update(path.as_str());
    }

    /// The digest of what was added.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
