//! Plan of a swap, decided before anything changes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use goondan_durable::disk::{Folder, NodeKind};
use serde::{Deserialize, Serialize};

use super::{Specials, StalePath, SwapError, SwapSite};
use crate::changes::PathChange;
use crate::error::{IoContext as _, TreeError};
use crate::manifest::TreeEntry;
use crate::path::{LocalPath, Names, RelativePath};
use crate::read::standing;

/// Mode of implied parent directories.
const DIRECTORY_MODE: u32 = 0o755;

/// The plan, as stored in the journal.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SwapPlan {
    staging: RelativePath,
    changes: Vec<PathChange>,
    /// Directories to create, outermost first, with their modes.
    make: Vec<(RelativePath, u32)>,
    /// Directories to remove, innermost first, with their modes.
    remove: Vec<(RelativePath, u32)>,
    /// Pipes, sockets and devices to move away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    specials: Vec<RelativePath>,
}

/// Deserialized form of the plan, with paths of type `P`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredPlan<P> {
    staging: RelativePath,
    changes: Vec<StoredChange<P>>,
    make: Vec<(P, u32)>,
    remove: Vec<(P, u32)>,
    #[serde(default = "Vec::new")]
    specials: Vec<P>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredChange<P> {
    path: P,
    old: Option<TreeEntry>,
    new: Option<TreeEntry>,
}

impl<P: Into<RelativePath>> From<StoredPlan<P>> for SwapPlan {
    fn from(plan: StoredPlan<P>) -> Self {
        let change = |change: StoredChange<P>| PathChange {
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
            specials: plan.specials.into_iter().map(Into::into).collect(),
        }
    }
}

/// Action on one file or link.
#[derive(Debug)]
pub(super) struct SwapAction<'p> {
    pub(super) path: &'p RelativePath,
    /// Its path in the staging directory: holds the new file before, and the old file after.
    pub(super) staged: PathBuf,
    change: &'p PathChange,
}

fn leaf(entry: Option<&TreeEntry>) -> Option<&TreeEntry> {
    entry.filter(|entry| !entry.is_directory())
}

impl SwapAction<'_> {
    pub(super) fn before(&self) -> Option<&TreeEntry> {
        leaf(self.change.old.as_ref())
    }

    pub(super) fn after(&self) -> Option<&TreeEntry> {
        leaf(self.change.new.as_ref())
    }
}

impl TreeEntry {
    pub(super) fn mode(&self) -> u32 {
        match self {
            Self::File { mode, .. } | Self::Directory { mode } => *mode,
            Self::Link { .. } => 0o777,
        }
    }
}

impl TreeEntry {
    /// True if the content is the same. Permission bits of copies are goondan's own.
    pub(super) fn holds(&self, expected: &Self) -> bool {
        match (self, expected) {
            (
                Self::File { bytes, sha256, .. },
                Self::File {
                    bytes: expected_bytes,
                    sha256: expected_sha256,
                    ..
                },
            ) => (bytes, sha256) == (expected_bytes, expected_sha256),
            _ => self == expected,
        }
    }
}

impl SwapPlan {
    /// Parses a stored plan.
    pub(super) fn read(text: &[u8], names: Names) -> Result<Self, serde_json::Error> {
        match names {
            Names::Portable => {
                serde_json::from_slice::<StoredPlan<RelativePath>>(text).map(Self::from)
            }
            Names::Local => serde_json::from_slice::<StoredPlan<LocalPath>>(text).map(Self::from),
        }
    }

    /// Compares the tree with the old state of the changes, and plans the directories.
    pub(super) fn make(
        place: SwapSite<'_>,
        changes: &[PathChange],
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
                return impossible("duplicate change");
            }
            if change.path.as_bytes().split(|byte| *byte == b'/').next() == Some(staging.as_bytes())
            {
                return impossible("the path is in the staging directory");
            }
        }
        for change in changes.iter().filter(|change| change.new.is_some()) {
            let is_blocked = |parent: &RelativePath| {
                known
                    .get(parent)
                    .is_some_and(|change| !change.new.as_ref().is_some_and(TreeEntry::is_directory))
            };
            if change.path.ancestors().iter().any(is_blocked) {
                return Err(SwapError::Impossible {
                    path: change.path.clone(),
                    problem: "its parent would not be a directory",
                });
            }
        }
        check(root, changes)?;
        let specials = specials_in_the_way(root, changes, &known)?;
        if let (Specials::Refuse, Some(by)) = (place.specials, specials.first()) {
            return Err(SwapError::Blocked { by: by.clone() });
        }
        let remove = directories_to_remove(root, changes, &known, &specials)?;
        let make = directories_to_make(root, changes, &known, &specials)?;
        Ok(Self {
            staging,
            changes: changes.to_vec(),
            make,
            remove,
            specials: specials.into_iter().collect(),
        })
    }

    pub(super) fn staging(&self) -> &RelativePath {
        &self.staging
    }

    pub(super) fn changes(&self) -> &[PathChange] {
        &self.changes
    }

    /// Returns the actions on files and links.
    pub(super) fn actions(&self) -> impl DoubleEndedIterator<Item = SwapAction<'_>> {
        let numbered = self.changes.iter().enumerate();
        let staging = self.staging.as_path();
        let actions = numbered.map(move |(number, change)| SwapAction {
            path: &change.path,
            staged: staging.join(number.to_string()),
            change,
        });
        actions.filter(|action| action.before().is_some() || action.after().is_some())
    }

    pub(super) fn removals(&self) -> impl Iterator<Item = SwapAction<'_>> {
        self.actions().filter(|action| action.after().is_none())
    }

    pub(super) fn creations(&self) -> impl Iterator<Item = SwapAction<'_>> {
        self.actions().filter(|action| action.before().is_none())
    }

    pub(super) fn replacements(&self) -> impl Iterator<Item = SwapAction<'_>> {
        self.actions()
            .filter(|action| action.before().is_some() && action.after().is_some())
    }

    /// True if a file or link is created at a free path.
    pub(super) fn is_created(&self, path: &RelativePath) -> bool {
        self.creations().any(|action| action.path == path)
    }

    /// True if something replaces a moved file or its parent directory.
    pub(super) fn reuses_names(&self) -> bool {
        let is_made = |path: &RelativePath| self.make.iter().any(|(made, _)| made == path);
        !self.remove.is_empty()
            || !self.specials.is_empty()
            || self.removals().any(|action| is_made(action.path))
    }

    /// Returns the special files to move away, with their names in the staging directory.
    pub(super) fn specials(&self) -> impl Iterator<Item = (&RelativePath, PathBuf)> {
        let staging = self.staging.as_path();
        let numbered = self.specials.iter().enumerate();
        numbered.map(move |(number, path)| (path, staging.join(format!("special-{number}"))))
    }

    pub(super) fn directories_to_remove(&self) -> impl Iterator<Item = &RelativePath> {
        self.remove.iter().map(|(path, _)| path)
    }

    /// Returns the removed directories, outermost first, with modes.
    pub(super) fn directories_removed(&self) -> impl Iterator<Item = (&RelativePath, u32)> {
        self.remove.iter().rev().map(|(path, mode)| (path, *mode))
    }

    pub(super) fn directories_to_make(&self) -> impl Iterator<Item = (&RelativePath, u32)> {
        self.make.iter().map(|(path, mode)| (path, *mode))
    }

    /// Returns the created directories, innermost first.
    pub(super) fn directories_made(&self) -> impl Iterator<Item = &RelativePath> {
        self.make.iter().rev().map(|(path, _)| path)
    }

    /// Returns the directories with changed names, including the root and the staging directory.
    fn touched_directories(&self) -> BTreeSet<PathBuf> {
        let touched = self.actions().map(|action| action.path);
        let directories = self.make.iter().chain(&self.remove).map(|(path, _)| path);
        let touched = touched.chain(directories).chain(&self.specials);
        let parents = touched.filter_map(RelativePath::parent);
        let mut directories: BTreeSet<PathBuf> =
            parents.map(|parent| parent.as_path().to_owned()).collect();
        directories.insert(self.staging.as_path().to_owned());
        directories.insert(PathBuf::new());
        directories
    }

    /// Syncs all changed directories that exist.
    pub(super) fn sync(&self, root: &dyn Folder) -> Result<(), TreeError> {
        // The root comes last, because names below it are unreachable without its own.
        for directory in self.touched_directories().into_iter().rev() {
            match root.sync_dir(&directory) {
                Err(error) if is_missing(&error) => {}
                other => other.during("sync", directory.display())?,
            }
        }
        Ok(())
    }
}

/// True if a path or its parent directory does not exist.
fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn is_special(root: &dyn Folder, path: &RelativePath) -> Result<bool, TreeError> {
    let stat = root.look(path.as_path()).during("inspect", path)?;
    Ok(stat.is_some_and(|stat| stat.kind == NodeKind::Special))
}

/// Returns the pipes, sockets and devices at a path to be written, or in a directory to be
/// replaced.
fn specials_in_the_way(
    root: &dyn Folder,
    changes: &[PathChange],
    known: &BTreeMap<&RelativePath, &PathChange>,
) -> Result<BTreeSet<RelativePath>, TreeError> {
    let mut specials = BTreeSet::new();
    let mut checked = BTreeSet::new();
    for change in changes.iter().filter(|change| change.new.is_some()) {
        for path in change
            .path
            .ancestors()
            .into_iter()
            .chain([change.path.clone()])
        {
            if checked.insert(path.clone()) && is_special(root, &path)? {
                specials.insert(path);
            }
        }
    }
    let gives_place = |path: &RelativePath| {
        let above = path.ancestors();
        let changed = above
            .iter()
            .chain([path])
            .filter_map(|path| known.get(path));
        changed
            .into_iter()
            .any(|change| leaf(change.new.as_ref()).is_some())
    };
    for (path, change) in known {
        if change.old.as_ref().is_some_and(TreeEntry::is_directory) && gives_place(path) {
            for name in root.names(path.as_path()).during("list", path)? {
                let inner = path.join_allowed(name.as_bytes(), Names::Local)?;
                if is_special(root, &inner)? {
                    specials.insert(inner);
                }
            }
        }
    }
    Ok(specials)
}

/// Checks that every path has the old state of its change.
fn check(root: &dyn Folder, changes: &[PathChange]) -> Result<(), SwapError> {
    let mut stale = Vec::new();
    for change in changes {
        // A special file blocks the new entry, and no change lists it as the old state.
        let found = standing(root, change.path.as_path()).during("inspect", &change.path)?;
        let found = found.entry();
        let is_directory =
            |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
        // Modes of directories never block a change, and a wanted directory may exist already.
        let is_fine = found == change.old
            || (is_directory(&found)
                && (is_directory(&change.old)
                    || (change.old.is_none() && is_directory(&change.new))));
        if !is_fine {
            stale.push(StalePath {
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

/// Returns the directories to remove, innermost first. A directory with other entries stays, unless
/// a file replaces it.
fn directories_to_remove(
    root: &dyn Folder,
    changes: &[PathChange],
    known: &BTreeMap<&RelativePath, &PathChange>,
    specials: &BTreeSet<RelativePath>,
) -> Result<Vec<(RelativePath, u32)>, SwapError> {
    let mut gone = specials.clone();
    let mut remove = Vec::new();
    for change in changes
        .iter()
        .filter(|change| !matches!(change.new, Some(TreeEntry::Directory { .. })))
    {
        if leaf(change.old.as_ref()).is_some() {
            gone.insert(change.path.clone());
        }
    }
    for (path, change) in known.iter().rev() {
        let is_directory =
            |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
        if !is_directory(&change.old) || is_directory(&change.new) {
            continue;
        }
        let mut stays = None;
        for name in root.names(path.as_path()).during("list", path)? {
            let inner = path.join_allowed(name.as_bytes(), Names::Local);
            let inner = inner.map_err(TreeError::from)?;
            if !gone.contains(&inner) {
                stays = Some(inner);
                break;
            }
        }
        match stays {
            None => {
                let stat = root.look(path.as_path()).during("inspect", path)?;
                let mode = stat.map_or(DIRECTORY_MODE, |stat| stat.mode);
                gone.insert((*path).clone());
                remove.push(((*path).clone(), mode));
            }
            Some(by) if change.new.is_some() => return Err(SwapError::Blocked { by }),
            Some(_) => {}
        }
    }
    Ok(remove)
}

/// Returns the directories to create, outermost first.
fn directories_to_make(
    root: &dyn Folder,
    changes: &[PathChange],
    known: &BTreeMap<&RelativePath, &PathChange>,
    specials: &BTreeSet<RelativePath>,
) -> Result<Vec<(RelativePath, u32)>, SwapError> {
    let mut wanted: BTreeMap<RelativePath, u32> = BTreeMap::new();
    for change in changes {
        match &change.new {
            Some(TreeEntry::Directory { mode }) => {
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
        let stat = root.look(path.as_path()).during("inspect", &path)?;
        match stat.map(|stat| stat.kind) {
            Some(NodeKind::Directory) => {}
            None => make.push((path, mode)),
            // A file that becomes a directory; `check` verified it.
            Some(_) if known.get(&path).is_some_and(|change| change.old.is_some()) => {
                make.push((path, mode));
            }
            Some(_) if specials.contains(&path) => make.push((path, mode)),
            Some(_) => return Err(SwapError::Blocked { by: path }),
        }
    }
    Ok(make)
}
