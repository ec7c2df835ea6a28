//! Listing of a tree without reading its files (`CKPT-3`, `CKPT-5`).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{Folder, NodeKind, NodeStat};

use crate::error::{IoContext as _, TreeError};
use crate::excludes::{Excludes, Reason};
use crate::freeze::ExcludedEntry;
use crate::limits::Limits;
use crate::path::{Names, RelativePath};
use crate::quote::to_text;
use crate::size::{is_forbidden, stored_bytes};

/// Assumption about concurrent writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// No writer: a change during the listing is an error.
    AtRest,
    /// Writers are possible: entries that disappear are ignored.
    AtWork,
}

/// Treatment of paths that the user has no right to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// An error.
    Refused,
    /// They are left out.
    LeftOut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedPath {
    pub path: RelativePath,
    pub stat: NodeStat,
    /// Bytes that a file occupies on the disk.
    pub stored: u64,
    /// Its target, if it is a link.
    pub target: Option<Vec<u8>>,
}

/// All entries of a tree, with local names ([`Names::Local`]) and links to any target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Files, directories and links, in byte order of their paths.
    pub found: Vec<SurveyedPath>,
    /// Excluded entries, including devices, sockets and pipes.
    pub left_out: Vec<ExcludedEntry>,
}

/// Lists all entries of a tree.
///
/// # Errors
///
/// [`TreeError::Limit`], [`TreeError::Io`], and [`TreeError::Changing`] if the tree changes
/// although no writer is expected.
pub fn survey(
    source: &dyn Folder,
    excludes: &Excludes,
    limits: Limits,
    writers: Writers,
    unreadable: Unreadable,
) -> Result<Survey, TreeError> {
    let mut work = SurveyWalk {
        source,
        excludes,
        limits,
        writers,
        unreadable,
        bytes: 0,
        survey: Survey::default(),
    };
    let mut directories = vec![None];
    while let Some(directory) = directories.pop() {
        work.directory(directory.as_ref(), &mut directories)?;
    }
    let mut survey = work.survey;
    survey.found.sort_by(|one, other| one.path.cmp(&other.path));
    survey
        .left_out
        .sort_by(|one, other| one.path.cmp(&other.path));
    Ok(survey)
}

struct SurveyWalk<'s> {
    source: &'s dyn Folder,
    excludes: &'s Excludes,
    limits: Limits,
    writers: Writers,
    unreadable: Unreadable,
    bytes: u64,
    survey: Survey,
}

impl SurveyWalk<'_> {
    fn directory(
        &mut self,
        at: Option<&RelativePath>,
        inner: &mut Vec<Option<RelativePath>>,
    ) -> Result<(), TreeError> {
        let path = at.map_or(Path::new(""), RelativePath::as_path);
        let names = match self.source.names(path) {
            Err(error) if self.is_gone(&error) => return Ok(()),
            Err(error) if self.may_leave_out(&error) => {
                if let Some(at) = at {
                    self.leave_out(at, Reason::Unreadable);
                    return Ok(());
                }
                return Err(error).during("list", path.display());
            }
            other => other.during("list", path.display())?,
        };
        for name in names {
            if let Some(directory) = self.name(at, &name)? {
                inner.push(Some(directory));
            }
        }
        Ok(())
    }

    fn may_leave_out(&self, error: &io::Error) -> bool {
        self.unreadable == Unreadable::LeftOut && is_forbidden(error)
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        self.writers == Writers::AtWork && matches!(error.kind(), NotFound | NotADirectory)
    }

    /// Adds one name; returns it if it is a directory.
    fn name(
        &mut self,
        above: Option<&RelativePath>,
        name: &OsString,
    ) -> Result<Option<RelativePath>, TreeError> {
        let path = match above {
            Some(above) => above.join_allowed(name.as_bytes(), Names::Local)?,
            None => RelativePath::allowed(name.as_bytes(), Names::Local)?,
        };
        let looked = match self.source.look(path.as_path()) {
            Err(error) if self.may_leave_out(&error) => {
                self.leave_out(&path, Reason::Unreadable);
                return Ok(None);
            }
            other => other.during("inspect", &path)?,
        };
        let Some(stat) = looked else {
            // Excluded entries may come and go even without writers in the tree.
            let is_left_out = self.excludes.reason(path.as_bytes(), false).is_some();
            return if is_left_out || self.writers == Writers::AtWork {
                Ok(None)
            } else {
                Err(TreeError::Changing { path })
            };
        };
        let is_directory = stat.kind == NodeKind::Directory;
        if let Some(reason) = self.excludes.reason(path.as_bytes(), is_directory) {
            self.leave_out(&path, reason);
            return Ok(None);
        }
        let target = match stat.kind {
            NodeKind::Directory | NodeKind::File => None,
            NodeKind::Special => {
                self.leave_out(&path, Reason::Special);
                return Ok(None);
            }
            NodeKind::Link => match self.source.read_link(path.as_path()) {
                Err(error) if self.is_gone(&error) => return Ok(None),
                other => Some(other.during("read", &path)?.as_bytes().to_vec()),
            },
        };
        if self.survey.found.len() >= self.limits.entries() {
            let limit = self.limits.entries() as u64;
            return Err(TreeError::limit("entries", limit, &path));
        }
        let mut stored = 0;
        if stat.kind == NodeKind::File {
            let counted = stored_bytes(self.source, path.as_path(), stat.len);
            stored = counted.during("inspect", &path)?;
            let bytes = self.bytes.saturating_add(stat.len);
            // Such a file takes little room, but cannot be copied with its holes.
            if bytes > self.limits.bytes() && stored < stat.len / 2 {
                self.leave_out(&path, Reason::Sparse { bytes: stat.len });
                return Ok(None);
            }
            self.bytes = bytes;
        }
        if self.bytes > self.limits.bytes() {
            return Err(TreeError::limit("bytes", self.limits.bytes(), &path));
        }
        self.survey.found.push(SurveyedPath {
            path: path.clone(),
            stat,
            stored,
            target,
        });
        Ok(is_directory.then_some(path))
    }

    fn leave_out(&mut self, path: &RelativePath, reason: Reason) {
        self.survey.left_out.push(ExcludedEntry {
            path: to_text(path.as_bytes()),
            reason,
        });
    }
}
