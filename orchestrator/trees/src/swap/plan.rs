//! What a swap is going to do, decided before anything is done.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind};
use serde::{Deserialize, Serialize};

use super::{Place, Stale, SwapError};
use crate::changes::Change;
use crate::error::{IoContext as _, TreeError};
use crate::manifest::Entry;
use crate::path::{LocalPath, Names, RelativePath};
use crate::read::observe;

/// The modes of directories that a file needs and no change tells of.
const DIRECTORY_MODE: u32 = 0o755;

/// What is done, as it is in the journal.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    staging: RelativePath,
    changes: Vec<Change>,
    /// Directories that are not there and will be, the outermost first, with their modes.
    make: Vec<(RelativePath, u32)>,
    /// Directories that are there and will not be, the innermost first, with their modes.
    remove: Vec<(RelativePath, u32)>,
}

/// The same as it is read back, with paths that may have some names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlanOf<P> {
    staging: RelativePath,
    changes: Vec<ChangeOf<P>>,
    make: Vec<(P, u32)>,
    remove: Vec<(P, u32)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeOf<P> {
    path: P,
    old: Option<Entry>,
    new: Option<Entry>,
}

impl<P: Into<RelativePath>> From<PlanOf<P>> for Plan {
    fn from(plan: PlanOf<P>) -> Self {
        let change = |change: ChangeOf<P>| Change {
            path: change.path.into(),
            old: change.old,
            new: change.new,
        };
        let with_mode = |(path, mode): (P, u32)| (path.into(), mode);
        Self {
            staging: plan.staging,
            changes: plan.changes.into_iter().map(change).collect(),
            make: plan.make.into_iter().map(with_mode).collect(),
            remove: plan.remove.into_iter().map(with_mode).collect(),
        }
    }
}

/// What is done to one file or link.
#[derive(Debug)]
pub(super) struct Action<'p> {
    pub(super) path: &'p RelativePath,
    /// Where it stands in the staging directory: before, what is to come; after, what was.
    pub(super) staged: PathBuf,
    change: &'p Change,
}

fn leaf(entry: Option<&Entry>) -> Option<&Entry> {
    entry.filter(|entry| !entry.is_directory())
}

impl Action<'_> {
    pub(super) fn before(&self) -> Option<&Entry> {
        leaf(self.change.old.as_ref())
    }

    pub(super) fn after(&self) -> Option<&Entry> {
        leaf(self.change.new.as_ref())
    }
}

impl Entry {
    pub(super) fn mode(&self) -> u32 {
        match self {
            Self::File { mode, .. } | Self::Directory { mode } => *mode,
            Self::Link { .. } => 0o777,
        }
    }
}

impl Plan {
    /// Reads a plan back.
    pub(super) fn read(text: &[u8], names: Names) -> Result<Self, serde_json::Error> {
        match names {
            Names::Portable => serde_json::from_slice::<PlanOf<RelativePath>>(text).map(Self::from),
            Names::Local => serde_json::from_slice::<PlanOf<LocalPath>>(text).map(Self::from),
        }
    }

    /// Compares the tree with what the changes were made for, and decides what becomes of directories.
    pub(super) fn make(
        place: Place<'_>,
        changes: &[Change],
        staging: RelativePath,
    ) -> Result<Self, SwapError> {
        let root = place.root;
        let mut known = BTreeMap::new();
        for change in changes {
            change.path.check(place.names).map_err(TreeError::from)?;
            let impossible = |problem| {
                Err(SwapError::Impossible {
                    path: change.path.clone(),
                    problem,
                })
            };
            if known.insert(&change.path, change).is_some() {
                return impossible("it is changed twice");
            }
            if change.path.as_bytes().split(|byte| *byte == b'/').next() == Some(staging.as_bytes())
            {
                return impossible("it is in the directory that the swap needs itself");
            }
        }
        for change in changes.iter().filter(|change| change.new.is_some()) {
            let is_blocked = |parent: &RelativePath| {
                known
                    .get(parent)
                    .is_some_and(|change| !change.new.as_ref().is_some_and(Entry::is_directory))
            };
            if change.path.ancestors().iter().any(is_blocked) {
                return Err(SwapError::Impossible {
                    path: change.path.clone(),
                    problem: "it stands in something that is no directory then",
                });
            }
        }
        check(root, changes)?;
        let remove = directories_to_remove(root, changes, &known)?;
        let make = directories_to_make(root, changes, &known)?;
        Ok(Self {
            staging,
            changes: changes.to_vec(),
            make,
            remove,
        })
    }

    pub(super) fn staging(&self) -> &RelativePath {
        &self.staging
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// What is done to files and links.
    pub(super) fn actions(&self) -> impl DoubleEndedIterator<Item = Action<'_>> {
        let numbered = self.changes.iter().enumerate();
        let staging = self.staging.as_path();
        let actions = numbered.map(move |(number, change)| Action {
            path: &change.path,
            staged: staging.join(number.to_string()),
            change,
        });
        actions.filter(|action| action.before().is_some() || action.after().is_some())
    }

    pub(super) fn removals(&self) -> impl Iterator<Item = Action<'_>> {
        self.actions().filter(|action| action.after().is_none())
    }

    pub(super) fn creations(&self) -> impl Iterator<Item = Action<'_>> {
        self.actions().filter(|action| action.before().is_none())
    }

    pub(super) fn replacements(&self) -> impl Iterator<Item = Action<'_>> {
        self.actions()
            .filter(|action| action.before().is_some() && action.after().is_some())
    }

    /// Whether a file or link is to be at a path where none was.
    pub(super) fn is_created(&self, path: &RelativePath) -> bool {
        self.creations().any(|action| action.path == path)
    }

    /// Whether something takes the place of what is moved aside, or of a directory that held it.
    pub(super) fn reuses_names(&self) -> bool {
        let is_made = |path: &RelativePath| self.make.iter().any(|(made, _)| made == path);
        !self.remove.is_empty() || self.removals().any(|action| is_made(action.path))
    }

    pub(super) fn directories_to_remove(&self) -> impl Iterator<Item = &RelativePath> {
        self.remove.iter().map(|(path, _)| path)
    }

    /// What was removed, the outermost first, with modes.
    pub(super) fn directories_removed(&self) -> impl Iterator<Item = (&RelativePath, u32)> {
        self.remove.iter().rev().map(|(path, mode)| (path, *mode))
    }

    pub(super) fn directories_to_make(&self) -> impl Iterator<Item = (&RelativePath, u32)> {
        self.make.iter().map(|(path, mode)| (path, *mode))
    }

    /// What was made, the innermost first.
    pub(super) fn directories_made(&self) -> impl Iterator<Item = &RelativePath> {
        self.make.iter().rev().map(|(path, _)| path)
    }

    /// Makes durable what has been done to names, as far as their directories are there.
    pub(super) fn sync(&self, root: &dyn Folder) -> Result<(), TreeError> {
        let touched = self.actions().map(|action| action.path.clone());
        let directories = self
            .make
            .iter()
            .chain(&self.remove)
            .map(|(path, _)| path.clone());
        let parents: BTreeSet<Option<RelativePath>> = touched
            .chain(directories)
            .map(|path| path.parent())
            .collect();
        let parents = parents.iter().flatten().map(RelativePath::as_path);
        for directory in parents.chain([self.staging.as_path(), Path::new("")]) {
            match root.sync_dir(directory) {
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                    ) => {}
                other => other.during("sync", directory.display())?,
            }
        }
        Ok(())
    }
}

/// Every path holds what its change says was there.
fn check(root: &dyn Folder, changes: &[Change]) -> Result<(), SwapError> {
    let mut stale = Vec::new();
    for change in changes {
        let found = match observe(root, change.path.as_path()) {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => None,
            other => other.during("look at", &change.path)?,
        };
        let is_directory = |entry: &Option<Entry>| entry.as_ref().is_some_and(Entry::is_directory);
        // The modes of directories are nobody's reason to refuse, and one that is wanted may be there.
        let is_fine = found == change.old
            || (is_directory(&found)
                && (is_directory(&change.old)
                    || (change.old.is_none() && is_directory(&change.new))));
        if !is_fine {
            stale.push(Stale {
                path: change.path.clone(),
                expected: change.old.clone(),
                found,
            });
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(SwapError::Stale {
        stale,
        kept: Vec::new(),
    })
}

/// The directories that are to go and hold nothing else, the innermost first. One that holds something else
/// stays, unless a file is to take its place.
fn directories_to_remove(
    root: &dyn Folder,
    changes: &[Change],
    known: &BTreeMap<&RelativePath, &Change>,
) -> Result<Vec<(RelativePath, u32)>, SwapError> {
    let mut gone: BTreeSet<RelativePath> = BTreeSet::new();
    let mut remove = Vec::new();
    for change in changes
        .iter()
        .filter(|change| !matches!(change.new, Some(Entry::Directory { .. })))
    {
        if leaf(change.old.as_ref()).is_some() {
            gone.insert(change.path.clone());
        }
    }
    for (path, change) in known.iter().rev() {
        let is_directory = |entry: &Option<Entry>| entry.as_ref().is_some_and(Entry::is_directory);
        if !is_directory(&change.old) || is_directory(&change.new) {
            continue;
        }
        let names = root.names(path.as_path()).during("list", path)?;
        let is_gone = |name: &std::ffi::OsString| {
            path.join_allowed(name.as_bytes(), Names::Local)
                .is_ok_and(|inner| gone.contains(&inner))
        };
        if names.iter().all(is_gone) {
            let stat = root.look(path.as_path()).during("look at", path)?;
            let mode = stat.map_or(DIRECTORY_MODE, |stat| stat.mode);
            gone.insert((*path).clone());
            remove.push(((*path).clone(), mode));
        } else if change.new.is_some() {
            return Err(SwapError::Stale {
                stale: vec![Stale {
                    path: (*path).clone(),
                    expected: change.old.clone(),
                    found: change.old.clone(),
                }],
                kept: Vec::new(),
            });
        }
    }
    Ok(remove)
}

/// The directories that have to be made, the outermost first.
fn directories_to_make(
    root: &dyn Folder,
    changes: &[Change],
    known: &BTreeMap<&RelativePath, &Change>,
) -> Result<Vec<(RelativePath, u32)>, SwapError> {
    let mut wanted: BTreeMap<RelativePath, u32> = BTreeMap::new();
    for change in changes {
        match &change.new {
            Some(Entry::Directory { mode }) => {
                wanted.insert(change.path.clone(), *mode);
            }
            None => continue,
            Some(_) => {}
        }
        for parent in change.path.ancestors() {
            wanted.entry(parent).or_insert(DIRECTORY_MODE);
        }
    }
    let mut make = Vec::new();
    for (path, mode) in wanted {
        let stat = root.look(path.as_path()).during("look at", &path)?;
        match stat.map(|stat| stat.kind) {
            Some(NodeKind::Directory) => {}
            None => make.push((path, mode)),
            // A file that becomes a directory; `check` has seen it.
            Some(_) if known.get(&path).is_some_and(|change| change.old.is_some()) => {
                make.push((path, mode));
            }
            Some(_) => {
                return Err(SwapError::Impossible {
                    path,
                    problem: "it is no directory, and something is to stand in it",
                });
            }
        }
    }
    Ok(make)
}
