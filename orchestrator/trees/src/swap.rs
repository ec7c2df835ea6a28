//! Atomic application of changes to a tree with concurrent writers (`PROP-3`, `CKPT-4`).
//!
//! # Steps
//!
//! 1. Every path is compared with the old state of its change. Files to be replaced are copied into
//!    the journal.
//! 2. The plan becomes durable in the journal, so that recovery can find every file.
//! 3. The new files are written into a staging directory at the root of the tree and synced:
//!    `staged`.
//! 4. Pipes, sockets and devices that make way and old files are renamed into the staging
//!    directory. New files are renamed out of it to names that must be free; where both exist, they
//!    are exchanged atomically. The removed file is read, and if it differs from the expected one,
//!    everything is rolled back.
//! 5. Every directory is synced, then the journal says `committed`. The staging directory is
//!    removed.
//!
//! # Guarantees
//!
//! * After a crash at any moment, [`recover`] makes the tree all old or all new: old before
//!   `committed`, new after it.
//! * Data that a user writes to a path during a swap is at that path afterwards, or in the staging
//!   directory and reported as [`DisplacedFile`]. It is never replaced or removed unread.
//!
//! # Limitations
//!
//! * A program that holds an old file open and writes through that handle later writes to an
//!   unlinked file. Only its writes before the last check are detected.
//! * Between steps 4 and 5 other programs see some paths old and some new, and a path that changes
//!   its kind is briefly missing.
//! * The file system must support exchanging names and renaming without replacing (ext4, xfs,
//!   btrfs, tmpfs do; some network file systems do not), and the tree must be on one file system.
//!   Otherwise the first rename fails, and nothing has changed.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind, append_all, read_all};

use crate::changes::PathChange;
use crate::error::{IoContext as _, TreeError};
use crate::fresh::remove_all;
use crate::limits::SWAP_PLAN_BYTES_MAX;
use crate::path::{Names, RelativePath};
use crate::quote::to_text;
use crate::read::{Syncs, copy, observe, standing};

mod plan;
mod undo;

use plan::{SwapAction, SwapPlan};

/// Name of the plan in a journal.
pub const PLAN: &str = "plan.json";
/// Other files of the journal.
const PLAN_PARTIAL: &str = "plan.json.tmp";
const STAGED: &str = "staged";
const COMMITTED: &str = "committed";
const OLD: &str = "old";

/// Reason why a swap failed.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// Some paths differ from the old state of their changes. Nothing has changed.
    #[error("{} of the paths changed in the meantime, first `{}`; check it and create the changes again",
        stale.len(), first(stale))]
    Stale {
        /// The paths with their current state.
        stale: Vec<StalePath>,
        /// User files that could not be moved back, because the user wrote again at that moment.
        kept: Vec<DisplacedFile>,
    },
    /// An unrelated entry is in the way. Nothing has changed.
    #[error("`{by}` is in the way; move it away")]
    Blocked {
        /// The entry: a pipe, a socket, a device; a non-directory where a directory is needed; or
        /// an entry of a directory that a file replaces.
        by: RelativePath,
    },
    /// The changes are inconsistent: a bug of the caller, or a forged record.
    #[error("failed to change `{path}`: {problem}")]
    Impossible {
        path: RelativePath,
        problem: &'static str,
    },
    /// The journal belongs to another swap.
    #[error("the journal of the swap is not empty; recover it first, or use a new one")]
    Used,
    /// An I/O error before anything changed, or everything was rolled back.
    #[error("nothing was changed")]
    Tree(#[from] TreeError),
    /// An I/O error, and the rollback failed too. [`recover`] finishes it.
    #[error("the tree is partly changed; recovery will finish the change")]
    Unfinished(#[source] TreeError),
}

fn first(stale: &[StalePath]) -> String {
    stale
        .first()
        .map_or(String::new(), |stale| stale.path.to_string())
}

/// A path with an unexpected state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePath {
    pub path: RelativePath,
    pub expected: Option<crate::TreeEntry>,
    /// The current entry; `None` if it does not exist or is a special file.
    pub found: Option<crate::TreeEntry>,
}

/// A user's file that could not stay at its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplacedFile {
    pub path: RelativePath,
    /// Its current location, below the root of the tree.
    pub at: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwapRecovery {
    /// No swap was in progress.
    Nothing,
    /// The swap was not committed: the tree is old, except for the paths that a user changed in the
    /// meantime (`left`).
    Old {
        /// Paths kept as changed by a user.
        left: Vec<RelativePath>,
        /// User files that could not stay at their paths.
        kept: Vec<DisplacedFile>,
    },
    /// The swap was committed: the tree is new.
    New {
        /// User files that could not stay at their paths.
        kept: Vec<DisplacedFile>,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct SwapSite<'p> {
    /// The journal: an empty directory owned by goondan, kept as long as the swap can be reverted.
    pub journal: &'p dyn Folder,
    pub root: &'p dyn Folder,
    /// Names that may be changed.
    pub names: Names,
    /// Policy for pipes, sockets and devices in the way.
    pub specials: Specials,
}

/// Policy for a pipe, a socket or a device in the way of a new file. They have no content to lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// Fail with [`SwapError::Blocked`].
    Refuse,
    Remove,
}

/// Runs the checks of [`swap`] without changing anything.
///
/// # Errors
///
/// As [`swap`].
pub fn plan(place: SwapSite<'_>, changes: &[PathChange], staging: &str) -> Result<(), SwapError> {
    let staging = RelativePath::new(staging.as_bytes()).map_err(TreeError::from)?;
    SwapPlan::make(place, changes, staging).map(drop)
}

/// Applies changes: all or none. Durable when it returns. Returns the user files that could not
/// stay at their paths.
///
/// `new` holds the new files by their paths in the tree. `staging` is the name of a directory at
/// the root of the tree that exists only during the swap.
///
/// # Errors
///
/// [`SwapError`]. Except for [`SwapError::Unfinished`], the tree is unchanged.
pub fn swap(
    place: SwapSite<'_>,
    new: &dyn Folder,
    changes: &[PathChange],
    staging: &str,
) -> Result<Vec<DisplacedFile>, SwapError> {
    let staging = RelativePath::new(staging.as_bytes()).map_err(TreeError::from)?;
    if has(place.journal, PLAN)? || has(place.journal, OLD)? {
        return Err(SwapError::Used);
    }
    let plan = SwapPlan::make(place, changes, staging)?;
    keep_old(place, &plan)?;
    write_plan(place.journal, &plan)?;
    let done = stage(place, new, &plan)
        .map_err(SwapError::from)
        .and_then(|()| put_in_place(place.root, &plan));
    match done {
        Ok(()) => {}
        Err(error) => return Err(take_back(place, &plan, error)),
    }
    mark(place.journal, COMMITTED).map_err(SwapError::Unfinished)?;
    undo::clear(place.root, &plan, true).map_err(SwapError::Unfinished)
}

/// Finishes an interrupted swap. Idempotent, and can be called at any time.
///
/// # Errors
///
/// [`TreeError`]; call it again after the I/O problem is fixed.
pub fn recover(place: SwapSite<'_>) -> Result<SwapRecovery, TreeError> {
    let Some(plan) = read_plan(place.journal, place.names)? else {
        clear_journal(place.journal)?;
        return Ok(SwapRecovery::Nothing);
    };
    if has(place.journal, COMMITTED)? {
        // The mark may exist without being synced when its process ended.
        place
            .journal
            .sync_dir(Path::new(""))
            .during("sync", "journal")?;
        let kept = undo::clear(place.root, &plan, true)?;
        return Ok(SwapRecovery::New { kept });
    }
    let (left, kept) = undo_all(place, &plan)?;
    Ok(SwapRecovery::Old { left, kept })
}

/// A part of a journal that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Path of the file below the journal.
    pub path: PathBuf,
    /// True if it does not exist.
    pub is_missing: bool,
}

/// Checks the journal of a committed swap: the plan is readable, the commit mark exists, and the
/// old files match the plan. Changes nothing. In a journal without a plan no damage can be
/// detected.
///
/// # Errors
///
/// [`TreeError`] if the plan or an old file cannot be read.
pub fn check(journal: &dyn Folder, names: Names) -> Result<Vec<Damage>, TreeError> {
    let mut damage = Vec::new();
    let Some(plan) = read_plan(journal, names)? else {
        return Ok(damage);
    };
    if !has(journal, COMMITTED)? {
        damage.push(Damage {
            path: PathBuf::from(COMMITTED),
            is_missing: true,
        });
    }
    for action in plan.actions() {
        let Some(expected) = action.before() else {
            continue;
        };
        let path = Path::new(OLD).join(action.path.as_path());
        let found = observe(journal, &path).during("read", action.path)?;
        if found.as_ref().is_none_or(|found| !found.holds(expected)) {
            damage.push(Damage {
                path,
                is_missing: found.is_none(),
            });
        }
    }
    Ok(damage)
}

/// Takes a committed swap back, as a swap of its own with a journal of its own.
///
/// # Errors
///
/// As [`swap`]: paths changed since then are [`SwapError::Stale`]. [`SwapError::Used`] if `done` is
/// not the journal of a committed swap.
pub fn revert(
    done: &dyn Folder,
    place: SwapSite<'_>,
    staging: &str,
) -> Result<Vec<DisplacedFile>, SwapError> {
    let plan = read_plan(done, place.names)?;
    let (Some(plan), true) = (plan, has(done, COMMITTED)?) else {
        return Err(SwapError::Used);
    };
    let old = done.below(Path::new(OLD)).during("open", OLD)?;
    let changes: Vec<PathChange> = plan
        .changes()
        .iter()
        .cloned()
        .map(PathChange::inverse)
        .collect();
    swap(place, old.as_ref(), &changes, staging)
}

fn has(journal: &dyn Folder, name: &str) -> Result<bool, TreeError> {
    Ok(journal
        .look(Path::new(name))
        .during("inspect", name)?
        .is_some())
}

fn mark(journal: &dyn Folder, name: &str) -> Result<(), TreeError> {
    let mut file = journal
        .create(Path::new(name), 0o600)
        .during("create", name)?;
    file.sync().during("sync", name)?;
    journal.sync_dir(Path::new("")).during("sync", "journal")
}

/// Copies files to be replaced into the journal, by their paths.
fn keep_old(place: SwapSite<'_>, plan: &SwapPlan) -> Result<(), SwapError> {
    let journal = place.journal;
    let made = journal
        .create_dir(Path::new(OLD), 0o700)
        .during("create", OLD);
    made?;
    let old = journal.below(Path::new(OLD)).during("open", OLD)?;
    let mut directories = std::collections::BTreeSet::new();
    let mut syncs = Syncs::new(old.as_ref());
    for action in plan.actions() {
        let Some(expected) = action.before() else {
            continue;
        };
        for parent in action.path.ancestors() {
            if directories.insert(parent.clone()) {
                old.create_dir(parent.as_path(), 0o700)
                    .during("create", &parent)?;
            }
        }
        let at = action.path.as_path();
        let copied = copy(
            (place.root, at),
            (old.as_ref(), at),
            expected.mode(),
            u64::MAX,
        );
        match copied.during("keep", action.path) {
            Ok((found, file)) if found == *expected => {
                if let Some(file) = file {
                    syncs.add(action.path, file)?;
                }
            }
            found => {
                remove_all(journal, Path::new(OLD))?;
                found?;
                return Err(stale(place.root, &action));
            }
        }
    }
    syncs.finish()?;
    for directory in directories {
        old.sync_dir(directory.as_path())
            .during("sync", &directory)?;
    }
    old.sync_dir(Path::new("")).during("sync", OLD)?;
    Ok(())
}

fn stale(root: &dyn Folder, action: &SwapAction<'_>) -> SwapError {
    SwapError::Stale {
        stale: vec![StalePath {
            path: action.path.clone(),
            expected: action.before().cloned(),
            found: observe(root, action.path.as_path()).unwrap_or_default(),
        }],
        kept: Vec::new(),
    }
}

fn write_plan(journal: &dyn Folder, plan: &SwapPlan) -> Result<(), TreeError> {
    let text = serde_json::to_vec(plan).map_err(|error| TreeError::Unwritable {
        problem: error.to_string(),
    })?;
    if text.len() > SWAP_PLAN_BYTES_MAX {
        return Err(TreeError::Limit {
            what: "bytes in the plan of a swap",
            limit: SWAP_PLAN_BYTES_MAX as u64,
            path: PLAN.to_owned(),
        });
    }
    let partial = Path::new(PLAN_PARTIAL);
    journal.remove(partial).during("remove", PLAN_PARTIAL)?;
    let mut file = journal
        .create(partial, 0o600)
        .during("create", PLAN_PARTIAL)?;
    append_all(file.as_mut(), &text).during("write", PLAN_PARTIAL)?;
    file.sync().during("sync", PLAN_PARTIAL)?;
    journal
        .rename_new(partial, Path::new(PLAN))
        .during("rename into place", PLAN)?;
    journal.sync_dir(Path::new("")).during("sync", "journal")
}

fn read_plan(journal: &dyn Folder, names: Names) -> Result<Option<SwapPlan>, TreeError> {
    if !has(journal, PLAN)? {
        return Ok(None);
    }
    let mut file = journal.read(Path::new(PLAN)).during("open", PLAN)?;
    let text = read_all(file.as_mut(), SWAP_PLAN_BYTES_MAX).during("read", PLAN)?;
    let plan = SwapPlan::read(&text, names).map_err(|error| TreeError::Io {
        operation: "read",
        path: PLAN.to_owned(),
        source: error.into(),
    })?;
    Ok(Some(plan))
}

/// Clears a journal of a swap that never began or was rolled back.
fn clear_journal(journal: &dyn Folder) -> Result<(), TreeError> {
    for name in [PLAN, PLAN_PARTIAL] {
        journal.remove(Path::new(name)).during("remove", name)?;
    }
    // After the plan is durably removed, no reader needs the staged files.
    journal.sync_dir(Path::new("")).during("sync", "journal")?;
    journal.remove(Path::new(STAGED)).during("remove", STAGED)?;
    remove_all(journal, Path::new(OLD))?;
    journal.sync_dir(Path::new("")).during("sync", "journal")
}

/// Writes the new files into the staging directory.
fn stage(place: SwapSite<'_>, new: &dyn Folder, plan: &SwapPlan) -> Result<(), TreeError> {
    let staging = plan.staging().as_path();
    place
        .root
        .create_dir(staging, 0o700)
        .during("create", plan.staging())?;
    let mut syncs = Syncs::new(place.root);
    for action in plan.actions() {
        let Some(expected) = action.after() else {
            continue;
        };
        let at = action.path.as_path();
        let copied = copy(
            (new, at),
            (place.root, &action.staged),
            expected.mode(),
            u64::MAX,
        );
        let (copied, file) = copied.during("copy", action.path)?;
        if copied != *expected {
            return Err(TreeError::Damaged {
                path: action.path.clone(),
            });
        }
        if let Some(file) = file {
            syncs.add(action.path, file)?;
        }
    }
    syncs.finish()?;
    place
        .root
        .sync_dir(staging)
        .during("sync", plan.staging())?;
    place.root.sync_dir(Path::new("")).during("sync", ".")?;
    mark(place.journal, STAGED)
}

/// Step 4, and the syncs of step 5.
fn put_in_place(root: &dyn Folder, plan: &SwapPlan) -> Result<(), SwapError> {
    for (path, aside) in plan.specials() {
        match root.rename_new(path.as_path(), &aside) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.during("move aside", path)?,
        }
        let moved = root.look(&aside).during("inspect", path)?;
        if moved.is_some_and(|stat| stat.kind != NodeKind::Special) {
            return Err(SwapError::Stale {
                stale: vec![StalePath {
                    path: path.clone(),
                    expected: None,
                    found: observe(root, &aside).unwrap_or_default(),
                }],
                kept: Vec::new(),
            });
        }
    }
    for action in plan.removals() {
        let at = action.path.as_path();
        match root.rename_new(at, &action.staged) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(stale(root, &action));
            }
            other => other.during("move aside", action.path)?,
        }
        expect(root, &action)?;
    }
    if plan.reuses_names() {
        // While a file may still be moved back, its directory must not be gone and its name must
        // not be reused.
        plan.sync(root)?;
    }
    for directory in plan.directories_to_remove() {
        match root.remove_dir(directory.as_path()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                // A user added an entry. The directory stays, unless a file replaces it.
                if plan.is_created(directory) {
                    return Err(SwapError::Stale {
                        stale: vec![StalePath {
                            path: directory.clone(),
                            expected: None,
                            found: observe(root, directory.as_path()).unwrap_or_default(),
                        }],
                        kept: Vec::new(),
                    });
                }
            }
            other => other.during("remove", directory)?,
        }
    }
    for (directory, mode) in plan.directories_to_make() {
        match root.create_dir(directory.as_path(), mode) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => other.during("create", directory)?,
        }
    }
    for action in plan.creations() {
        match root.rename_new(&action.staged, action.path.as_path()) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(stale(root, &action));
            }
            other => other.during("put in place", action.path)?,
        }
    }
    for action in plan.replacements() {
        match root.exchange(&action.staged, action.path.as_path()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(stale(root, &action));
            }
            other => other.during("exchange", action.path)?,
        }
        expect(root, &action)?;
    }
    plan.sync(root)?;
    Ok(())
}

/// Compares a replaced file with the expected one.
fn expect(root: &dyn Folder, action: &SwapAction<'_>) -> Result<(), SwapError> {
    let found = standing(root, &action.staged).during("read", action.path)?;
    if found.is(action.before()) {
        return Ok(());
    }
    let found = found.entry();
    Err(SwapError::Stale {
        stale: vec![StalePath {
            path: action.path.clone(),
            expected: action.before().cloned(),
            found,
        }],
        kept: Vec::new(),
    })
}

fn undo_all(
    place: SwapSite<'_>,
    plan: &SwapPlan,
) -> Result<(Vec<RelativePath>, Vec<DisplacedFile>), TreeError> {
    let is_staged = has(place.journal, STAGED)?;
    let left = if is_staged {
        place
            .journal
            .sync_dir(Path::new(""))
            .during("sync", "journal")?;
        undo::undo(place.root, plan)?
    } else {
        Vec::new()
    };
    let kept = if is_staged {
        undo::clear(place.root, plan, false)?
    } else {
        // No change was applied yet, so everything staged is an unfinished copy.
        remove_all(place.root, plan.staging().as_path())?;
        place.root.sync_dir(Path::new("")).during("sync", ".")?;
        Vec::new()
    };
    clear_journal(place.journal)?;
    Ok((left, kept))
}

/// Rolls everything back after `error`; returns the error to report.
fn take_back(place: SwapSite<'_>, plan: &SwapPlan, error: SwapError) -> SwapError {
    match (undo_all(place, plan), error) {
        (Err(failed), _) => SwapError::Unfinished(failed),
        (Ok((_, kept)), SwapError::Stale { stale, .. }) => SwapError::Stale { stale, kept },
        (Ok(_), error) => error,
    }
}

/// Describes a file in the staging directory.
fn kept(path: &RelativePath, at: &Path) -> DisplacedFile {
    DisplacedFile {
        path: path.clone(),
        at: at.to_owned(),
    }
}

impl std::fmt::Display for DisplacedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::os::unix::ffi::OsStrExt as _;
        let at = to_text(self.at.as_os_str().as_bytes());
        write!(f, "user changes to `{}` were moved to `{at}`", self.path)
    }
}

#[cfg(test)]
mod tests;
