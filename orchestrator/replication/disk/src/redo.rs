//! Decides which changes can be repeated on files that already contain them.
//!
//! A standby only notes the state of its files from time to time. After a crash it resumes at its
//! last note, on files that contain any part of the later changes. Most changes are idempotent
//! there: an append contains its offset, and a created file is truncated first. Some are not, such
//! as these two, repeated on the files that they result in:
//!
//! ```text
//! rename x.tmp to x, create x.tmp        the new x.tmp becomes x
//! make b, rename a to b                  b is emptied, and there is no a
//! ```
//!
//! The changes since the last note form a [`Window`]. A change that would make the window
//! impossible to repeat must wait for a note. The rule is conservative: it excludes some harmless
//! changes.
//!
//! # Truncated files
//!
//! Stores truncate journals constantly, and a note each time would dominate a standby's work. The
//! following is therefore admitted, although the append may find a shorter file when it is
//! repeated:
//!
//! ```text
//! append to a at 5, cut a to 0
//! ```
//!
//! During the window, `a` keeps its initial content up to the shortest length it is truncated to,
//! and is rewritten from that truncation on. A repeated append beyond the end of the file is
//! therefore skipped and recorded as owed ([`crate::Replica::owes`]); a later truncation in the
//! same window settles it. Until then no note is written. A file that is still owed at the end of a
//! window differs from the log.
//!
//! # State of a path in a window
//!
//! A path is **made** in the window if repeating the window's changes recreates its content
//! regardless of its state. It is **needed** if the changes cannot be repeated without it. Only a
//! path that is made and not needed may be missing.

use std::collections::{BTreeMap, BTreeSet};

use goondan_replication::operation::{FileOperation, RelativePath};

use crate::limits::WINDOW_OPERATIONS_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedoNodeKind {
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, Default)]
struct RedoEntry {
    /// Kind of the path in the window, which it may still have when the window is repeated.
    kind: Option<RedoNodeKind>,
    is_made: bool,
    is_needed: bool,
    /// True if it was removed or renamed in the window, even if it exists again.
    was_gone: bool,
}

/// The changes since the last note.
#[derive(Debug, Clone, Default)]
pub struct Window {
    operations: usize,
    paths: BTreeMap<RelativePath, RedoEntry>,
    /// Renamed paths that would move a newer file of the same name if the rename were repeated.
    sources: BTreeSet<RelativePath>,
}

impl Window {
    /// True if all changes can still be repeated after adding this one. The first change is always
    /// admitted.
    #[must_use]
    pub fn admits(&self, operation: &FileOperation) -> bool {
        if self.operations >= WINDOW_OPERATIONS_MAX {
            return false;
        }
        match operation {
            FileOperation::Create { path }
            | FileOperation::Append { path, .. }
            | FileOperation::SetLen { path, .. } => self.can_stand(path, RedoNodeKind::File),
            FileOperation::CreateDir { path } => self.can_stand(path, RedoNodeKind::Directory),
            FileOperation::RemoveFile { path } | FileOperation::RemoveTree { path } => {
                !self.is_anything_needed(path)
            }
            FileOperation::Rename { from, to } => self.admits_rename(from, to),
        }
    }

    fn admits_rename(&self, from: &RelativePath, to: &RelativePath) -> bool {
        if from == to {
            return true;
        }
        let is_moved_on = self.is_source(from) || self.is_source(to);
        if is_moved_on || self.is_anything_needed(from) || self.is_anything_needed(to) {
            return false;
        }
        // The source is missing when the rename is repeated: its earlier changes could not be
        // repeated, and changes of the target would corrupt it.
        if !self.is_made(from) {
            return !self.is_touched(from) && !self.is_touched(to);
        }
        // A repeated rename of a file replaces any file. A directory would replace the target with
        // its content.
        let is_file = self.kind(from) == Some(RedoNodeKind::File);
        is_file && self.can_stand(to, RedoNodeKind::File) || !self.is_touched(to)
    }

    /// Adds a change, admitted or not.
    pub fn add(&mut self, operation: &FileOperation) {
        self.operations += 1;
        match operation {
            FileOperation::Create { path }
            | FileOperation::Append {
                path, offset: 0, ..
            } => self.begin(path, RedoNodeKind::File),
            FileOperation::Append { path, .. } => self.need(path, RedoNodeKind::File),
            FileOperation::SetLen { path, len } => {
                self.need(path, RedoNodeKind::File);
                if *len == 0 {
                    self.paths.entry(path.clone()).or_default().is_made = true;
                }
            }
            FileOperation::CreateDir { path } => self.begin(path, RedoNodeKind::Directory),
            FileOperation::RemoveFile { path } => {
                self.remove(path);
                let known = self.paths.entry(path.clone()).or_default();
                known.kind.get_or_insert(RedoNodeKind::File);
            }
            FileOperation::RemoveTree { path } => self.remove(path),
            FileOperation::Rename { from, to } => self.rename(from, to),
        }
    }

    fn rename(&mut self, from: &RelativePath, to: &RelativePath) {
        if from == to {
            if !self.is_made(from) {
                self.paths.entry(from.clone()).or_default().is_needed = true;
            }
            return;
        }
        self.need_parent(to);
        let known = self.paths.get(from).copied().unwrap_or_default();
        let moved: Vec<_> = self
            .within(from)
            .filter(|(_, known)| known.is_made)
            .filter_map(|(path, known)| Some((path.moved(from, to)?, *known)))
            .collect();
        self.remove(from);
        self.remove(to);
        if known.is_made {
            self.paths.extend(moved);
        } else {
            let known = RedoEntry {
                kind: known.kind,
                is_needed: true,
                ..RedoEntry::default()
            };
            self.paths.insert(to.clone(), known);
        }
        // A repeated creation leaves an existing directory unchanged, including the content of a
        // later one of its name.
        if !known.is_made || known.kind == Some(RedoNodeKind::Directory) {
            self.sources.insert(from.clone());
        }
    }

    fn remove(&mut self, path: &RelativePath) {
        self.paths.entry(path.clone()).or_default();
        let from = self.paths.range_mut(path.clone()..);
        let begins = from.take_while(|(known, _)| known.as_str().starts_with(path.as_str()));
        for (_, known) in begins.filter(|(known, _)| known.is_within(path)) {
            *known = RedoEntry {
                kind: known.kind,
                was_gone: true,
                ..RedoEntry::default()
            };
        }
    }

    /// True if a file or directory of this kind can be at the path, now and when repeated: nothing
    /// was renamed from it, and nothing of the other kind was there.
    fn can_stand(&self, path: &RelativePath, kind: RedoNodeKind) -> bool {
        self.kind(path).is_none_or(|known| known == kind) && !self.is_source(path)
    }

    /// Marks the path's content as determined by the window alone.
    fn begin(&mut self, path: &RelativePath, kind: RedoNodeKind) {
        self.need_parent(path);
        let known = self.paths.entry(path.clone()).or_default();
        known.kind = Some(kind);
        known.is_made = true;
    }

    fn need(&mut self, path: &RelativePath, kind: RedoNodeKind) {
        let known = self.paths.entry(path.clone()).or_default();
        known.kind = Some(kind);
        known.is_needed |= !known.is_made;
    }

    fn need_parent(&mut self, path: &RelativePath) {
        if let Some(parent) = path.parent() {
            self.need(&parent, RedoNodeKind::Directory);
        }
    }

    fn kind(&self, path: &RelativePath) -> Option<RedoNodeKind> {
        self.paths.get(path)?.kind
    }

    fn is_made(&self, path: &RelativePath) -> bool {
        self.paths.get(path).is_some_and(|known| known.is_made)
    }

    /// True if the path or anything in it is needed.
    fn is_anything_needed(&self, path: &RelativePath) -> bool {
        self.within(path).any(|(_, known)| known.is_needed)
    }

    /// True if a change named this path or anything in it, or removed an ancestor.
    fn is_touched(&self, path: &RelativePath) -> bool {
        let gone =
            |(known, what): (&RelativePath, &RedoEntry)| what.was_gone && path.is_within(known);
        self.within(path).next().is_some() || self.paths.iter().any(gone)
    }

    fn is_source(&self, path: &RelativePath) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| path.is_within(source) || source.is_within(path))
    }

    fn within(&self, path: &RelativePath) -> impl Iterator<Item = (&RelativePath, &RedoEntry)> {
        let from = self.paths.range(path.clone()..);
        let begins = from.take_while(|(known, _)| known.as_str().starts_with(path.as_str()));
        begins.filter(|(known, _)| known.is_within(path))
    }
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
