//! Recorded changes of a workspace that are not submitted yet.

use std::collections::HashMap;

use goondan_replication::limits::APPEND_BYTES_MAX;
use goondan_replication::operation::{FileOperation, RelativePath};

use crate::limits::TAKEN_BYTES_MAX;

/// Changes in order, and the current names of open files.
#[derive(Debug, Default)]
pub(crate) struct CapturedOps {
    operations: Vec<FileOperation>,
    bytes: usize,
    /// Open files by number. A file that is not listed has no name any longer.
    open: HashMap<u64, RelativePath>,
    last_open: u64,
}

impl CapturedOps {
    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// True if the amount requires immediate submission.
    pub(crate) fn is_much(&self) -> bool {
        self.bytes > TAKEN_BYTES_MAX
    }

    /// Removes and returns all changes.
    pub(crate) fn take_out(&mut self) -> Vec<FileOperation> {
        self.bytes = 0;
        std::mem::take(&mut self.operations)
    }

    /// Records a change other than an append.
    pub(crate) fn push(&mut self, operation: FileOperation) {
        self.follow(&operation);
        self.push_only(operation);
    }

    /// Records the partial removal of a directory; `is_left` is true for the paths that remain.
    pub(crate) fn remove_part(
        &mut self,
        path: RelativePath,
        is_left: impl Fn(&RelativePath) -> bool,
    ) {
        self.open
            .retain(|_, open| !open.is_within(&path) || is_left(open));
        self.push_only(FileOperation::RemoveTree { path });
    }

    fn push_only(&mut self, operation: FileOperation) {
        self.bytes += operation.encoded_bytes_max();
        self.operations.push(operation);
    }

    /// Records an append of any length, and merges it with the previous operation if it continues
    /// that one.
    pub(crate) fn append(&mut self, path: &RelativePath, offset: u64, mut bytes: &[u8]) {
        let mut offset = offset;
        if let Some(FileOperation::Append {
            path: last,
            offset: began,
            bytes: joined,
        }) = self.operations.last_mut()
            && last == path
            && began.saturating_add(joined.len() as u64) == offset
        {
            let room = APPEND_BYTES_MAX.saturating_sub(joined.len());
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            joined.extend_from_slice(head);
            self.bytes += head.len();
            offset = offset.saturating_add(head.len() as u64);
            bytes = rest;
        }
        for operation in FileOperation::appends(path, offset, bytes) {
            self.bytes += operation.encoded_bytes_max();
            self.operations.push(operation);
        }
    }

    /// Assigns a number to an open file.
    pub(crate) fn open(&mut self, path: RelativePath) -> u64 {
        self.last_open += 1;
        self.open.insert(self.last_open, path);
        self.last_open
    }

    /// Current name of an open file; `None` if it was removed or replaced.
    pub(crate) fn name_of(&self, open: u64) -> Option<&RelativePath> {
        self.open.get(&open)
    }

    pub(crate) fn close(&mut self, open: u64) {
        self.open.remove(&open);
    }

    /// Discards all changes and open files.
    pub(crate) fn clear(&mut self) {
        self.take_out();
        self.open.clear();
    }

    /// Updates the names of open files.
    fn follow(&mut self, operation: &FileOperation) {
        match operation {
            FileOperation::Rename { from, to } if from != to => {
                self.open
                    .retain(|_, path| path.is_within(from) || !path.is_within(to));
                for path in self.open.values_mut() {
                    if let Some(new) = path.moved(from, to) {
                        *path = new;
                    }
                }
            }
            FileOperation::RemoveFile { path } | FileOperation::RemoveTree { path } => {
                self.open.retain(|_, open| !open.is_within(path));
            }
            FileOperation::Create { .. }
            | FileOperation::Append { .. }
            | FileOperation::SetLen { .. }
            | FileOperation::Rename { .. }
            | FileOperation::CreateDir { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn consecutive_appends_merge_up_to_the_size_limit() {
        let mut taken = CapturedOps::default();
        let bytes = vec![7; APPEND_BYTES_MAX - 1];
        taken.append(&path("a"), 5, b"x");
        taken.append(&path("a"), 6, &bytes);
        taken.append(&path("a"), 5 + APPEND_BYTES_MAX as u64, b"yz");
        taken.append(&path("b"), 0, b"1");
        taken.append(&path("b"), 2, b"2");
        let ends = |operation: &FileOperation| match operation {
            FileOperation::Append { offset, bytes, .. } => (*offset, bytes.len()),
            _ => panic!("{operation:?}"),
        };
        let found: Vec<_> = taken.take_out().iter().map(ends).collect();
        let end = 5 + APPEND_BYTES_MAX as u64;
        assert_eq!(found, [(5, APPEND_BYTES_MAX), (end, 2), (0, 1), (2, 1)]);
        assert!(taken.is_empty() && !taken.is_much());
    }

    #[test]
    fn open_files_follow_their_names() {
        let mut taken = CapturedOps::default();
        let inner = taken.open(path("new/a"));
        let replaced = taken.open(path("old/a"));
        taken.push(FileOperation::Rename {
            from: path("new"),
            to: path("old"),
        });
        assert_eq!(taken.name_of(inner), Some(&path("old/a")));
        assert_eq!(taken.name_of(replaced), None);
        taken.push(FileOperation::RemoveTree { path: path("old") });
        assert_eq!(taken.name_of(inner), None);
    }
}
