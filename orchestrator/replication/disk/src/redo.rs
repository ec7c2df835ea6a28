//! Which changes can be made again over files that have them already.
//!
//! A standby notes how far its files are from time to time only. After a crash it goes on from its last note, over
//! files that have any part of what was made since. Most changes mean the same then: an append says where it begins, a
//! file that is made is emptied first. Some do not, such as these two, made again over the files that they leave:
//!
//! ```text
//! rename x.tmp to x, create x.tmp        the new x.tmp becomes x
//! make b, rename a to b                  b is emptied, and there is no a
//! ```
//!
//! So what was made since the last note is a [`Window`], and a change that would spoil it has to wait for a note. The
//! rule is on the safe side: it keeps out some that would do no harm.
//!
//! # Files that are cut
//!
//! A journal is cut all the time, and waiting for a note each time would be most of a standby's work. So this is let in,
//! though there may be nothing to append to when it is made again:
//!
//! ```text
//! append to a at 5, cut a to 0
//! ```
//!
//! Whatever happened in the window, `a` has what it began with up to the shortest length that it was cut to; from that
//! cut on it is made anew. An append behind the end of a file that is made again is therefore passed over, and owed
//! ([`crate::Replica::owes`]): a cut of the same window makes it good. Until then nothing is noted, and what is owed at
//! the end of a window is a file that is not the log's.
//!
//! # What a window knows of a path
//!
//! It is **made** in the window if making the window's changes again gives it its content whatever it holds. It is
//! **needed** if they cannot be made again without it. Only what is made without being needed can be missing.

use std::collections::{BTreeMap, BTreeSet};

use goondan_replication::operation::{FileOperation, RelativePath};

use crate::limits::WINDOW_OPERATIONS_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// What stood there in the window: it may stand there when that is made again.
    kind: Option<Kind>,
    is_made: bool,
    is_needed: bool,
    /// It was removed, or got another name, whether it is there again or not.
    was_gone: bool,
}

/// The changes that were made since the last note.
#[derive(Debug, Clone, Default)]
pub struct Window {
    operations: usize,
    paths: BTreeMap<RelativePath, Known>,
    /// What got another name and would take along what has its name by now, if that were made again.
    sources: BTreeSet<RelativePath>,
}

impl Window {
    /// Whether, with this change behind them, all can still be made again. The first one always can.
    #[must_use]
    pub fn admits(&self, operation: &FileOperation) -> bool {
        if self.operations >= WINDOW_OPERATIONS_MAX {
            return false;
        }
        match operation {
            FileOperation::Create { path }
            | FileOperation::Append { path, .. }
            | FileOperation::SetLen { path, .. } => self.can_stand(path, Kind::File),
            FileOperation::CreateDir { path } => self.can_stand(path, Kind::Directory),
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
        // What was not made here is not at its old name when it is done again: what happened in it before could not be,
        // and what happened to the new name would spoil it.
        if !self.is_made(from) {
            return !self.is_touched(from) && !self.is_touched(to);
        }
        // A file that is made again takes the place of any other. A directory takes what is in the place with it.
        let is_file = self.kind(from) == Some(Kind::File);
        is_file && self.can_stand(to, Kind::File) || !self.is_touched(to)
    }

    /// Takes a change into account, whether it is admitted or not.
    pub fn add(&mut self, operation: &FileOperation) {
        self.operations += 1;
        match operation {
            FileOperation::Create { path }
            | FileOperation::Append {
                path, offset: 0, ..
            } => self.begin(path, Kind::File),
            FileOperation::Append { path, .. } => self.need(path, Kind::File),
            FileOperation::SetLen { path, len } => {
                self.need(path, Kind::File);
                if *len == 0 {
                    self.paths.entry(path.clone()).or_default().is_made = true;
                }
            }
            FileOperation::CreateDir { path } => self.begin(path, Kind::Directory),
            FileOperation::RemoveFile { path } => {
                self.remove(path);
                let known = self.paths.entry(path.clone()).or_default();
                known.kind.get_or_insert(Kind::File);
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
            let known = Known {
                kind: known.kind,
                is_needed: true,
                ..Known::default()
            };
            self.paths.insert(to.clone(), known);
        }
        // A directory is left as it is when it is made again, with what a later one of its name holds.
        if !known.is_made || known.kind == Some(Kind::Directory) {
            self.sources.insert(from.clone());
        }
    }

    fn remove(&mut self, path: &RelativePath) {
        self.paths.entry(path.clone()).or_default();
        let from = self.paths.range_mut(path.clone()..);
        let begins = from.take_while(|(known, _)| known.as_str().starts_with(path.as_str()));
        for (_, known) in begins.filter(|(known, _)| known.is_within(path)) {
            *known = Known {
                kind: known.kind,
                was_gone: true,
                ..Known::default()
            };
        }
    }

    /// Whether a file or a directory can stand there, then and again: nothing got its name from there, and nothing of
    /// the other kind stood there.
    fn can_stand(&self, path: &RelativePath, kind: Kind) -> bool {
        self.kind(path).is_none_or(|known| known == kind) && !self.is_source(path)
    }

    /// Its content is what the window says, whatever was there.
    fn begin(&mut self, path: &RelativePath, kind: Kind) {
        self.need_parent(path);
        let known = self.paths.entry(path.clone()).or_default();
        known.kind = Some(kind);
        known.is_made = true;
    }

    fn need(&mut self, path: &RelativePath, kind: Kind) {
        let known = self.paths.entry(path.clone()).or_default();
        known.kind = Some(kind);
        known.is_needed |= !known.is_made;
    }

    fn need_parent(&mut self, path: &RelativePath) {
        if let Some(parent) = path.parent() {
            self.need(&parent, Kind::Directory);
        }
    }

    fn kind(&self, path: &RelativePath) -> Option<Kind> {
        self.paths.get(path)?.kind
    }

    fn is_made(&self, path: &RelativePath) -> bool {
        self.paths.get(path).is_some_and(|known| known.is_made)
    }

    /// Whether a path, or anything in it, is needed.
    fn is_anything_needed(&self, path: &RelativePath) -> bool {
        self.within(path).any(|(_, known)| known.is_needed)
    }

    /// Whether a change named this path, anything in it, or removed what it stands in.
    fn is_touched(&self, path: &RelativePath) -> bool {
        let gone = |(known, what): (&RelativePath, &Known)| what.was_gone && path.is_within(known);
        self.within(path).next().is_some() || self.paths.iter().any(gone)
    }

    fn is_source(&self, path: &RelativePath) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| path.is_within(source) || source.is_within(path))
    }

    fn within(&self, path: &RelativePath) -> impl Iterator<Item = (&RelativePath, &Known)> {
        let from = self.paths.range(path.clone()..);
        let begins = from.take_while(|(known, _)| known.as_str().starts_with(path.as_str()));
        begins.filter(|(known, _)| known.is_within(path))
    }
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
