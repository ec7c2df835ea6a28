//! Rollback and cleanup of a swap. Decides by the current state, so it is idempotent.

use std::io;
use std::path::Path;

use goondan_durable::disk::{Folder, NodeKind};

use super::plan::{SwapAction, SwapPlan};
use super::{DisplacedFile, kept};
use crate::error::{IoContext as _, TreeError};
use crate::path::RelativePath;
use crate::read::{PathOccupancy, standing};

/// Restores the old tree. Returns the paths that a user changed in the meantime, which stay
/// unchanged. All new files must have been staged.
pub(super) fn undo(root: &dyn Folder, plan: &SwapPlan) -> Result<Vec<RelativePath>, TreeError> {
    let mut left = Vec::new();
    let mut note = |is_back: bool, path: &RelativePath| {
        if !is_back {
            left.push(path.clone());
        }
    };
    for action in plan.replacements() {
        note(exchange_back(root, &action)?, action.path);
    }
    for action in plan.creations() {
        note(move_back(root, &action)?, action.path);
    }
    // Files moved out of a directory must be durable before the directory is removed.
    plan.sync(root)?;
    for directory in plan.directories_made() {
        match root.remove_dir(directory.as_path()) {
            Ok(()) => {}
            Err(error)
                if is_one_of(
                    &error,
                    &[io::ErrorKind::NotFound, io::ErrorKind::NotADirectory],
                ) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                note(false, directory);
            }
            Err(error) => return Err(error).during("remove", directory),
        }
    }
    for (directory, mode) in plan.directories_removed() {
        match root.create_dir(directory.as_path(), mode) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error)
                if is_one_of(
                    &error,
                    &[io::ErrorKind::NotFound, io::ErrorKind::NotADirectory],
                ) =>
            {
                note(false, directory);
            }
            Err(error) => return Err(error).during("create", directory),
        }
    }
    plan.sync(root)?;
    for action in plan.removals() {
        note(put_back(root, action.path, &action.staged)?, action.path);
    }
    for (path, aside) in plan.specials() {
        note(put_back(root, path, &aside)?, path);
    }
    plan.sync(root)?;
    Ok(left)
}

fn is_one_of(error: &io::Error, kinds: &[io::ErrorKind]) -> bool {
    kinds.contains(&error.kind())
}

fn found(root: &dyn Folder, path: &Path) -> Result<PathOccupancy, TreeError> {
    standing(root, path).during("inspect", path.display())
}

/// True if the path has its old content again, or was never changed.
fn exchange_back(root: &dyn Folder, action: &SwapAction<'_>) -> Result<bool, TreeError> {
    let path = action.path.as_path();
    let aside = found(root, &action.staged)?;
    if aside == PathOccupancy::Free || aside.is(action.after()) {
        return Ok(true);
    }
    if !found(root, path)?.is(action.after()) {
        return Ok(false);
    }
    match root.exchange(&action.staged, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.during("exchange", action.path)?,
    }
    if found(root, &action.staged)?.is(action.after()) {
        return Ok(true);
    }
    // If a user writes between check and exchange, the user's file stays.
    match root.exchange(&action.staged, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other.during("exchange", action.path)?,
    }
    Ok(false)
}

/// True if the new file is removed again.
fn move_back(root: &dyn Folder, action: &SwapAction<'_>) -> Result<bool, TreeError> {
    let path = action.path.as_path();
    if root
        .look(&action.staged)
        .during("inspect", action.path)?
        .is_some()
    {
        return Ok(true);
    }
    let there = found(root, path)?;
    if there == PathOccupancy::Free {
        return Ok(true);
    }
    if !there.is(action.after()) {
        return Ok(false);
    }
    match root.rename_new(path, &action.staged) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        other => other.during("move aside", action.path)?,
    }
    if found(root, &action.staged)?.is(action.after()) {
        return Ok(true);
    }
    // A user wrote between check and rename, so move the file back. If another write came first, it
    // stays aside and is reported.
    match root.rename_new(&action.staged, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.during("put back", action.path)?,
    }
    Ok(false)
}

/// True if the moved file is at its path again.
fn put_back(root: &dyn Folder, path: &RelativePath, aside: &Path) -> Result<bool, TreeError> {
    if root.look(aside).during("inspect", path)?.is_none() {
        return Ok(true);
    }
    match root.rename_new(aside, path.as_path()) {
        Ok(()) => Ok(true),
        Err(error)
            if is_one_of(
                &error,
                &[
                    io::ErrorKind::AlreadyExists,
                    io::ErrorKind::NotFound,
                    io::ErrorKind::NotADirectory,
                ],
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error).during("put back", path),
    }
}

/// Removes the staging directory, except for user files, which are reported.
pub(super) fn clear(
    root: &dyn Folder,
    plan: &SwapPlan,
    is_committed: bool,
) -> Result<Vec<DisplacedFile>, TreeError> {
    let staging = plan.staging().as_path();
    let mut all_kept = Vec::new();
    let stat = root.look(staging).during("inspect", plan.staging())?;
    if stat.is_none_or(|stat| stat.kind != NodeKind::Directory) {
        // A killed process may have removed it without a sync.
        root.sync_dir(Path::new("")).during("sync", ".")?;
        return Ok(all_kept);
    }
    for action in plan.actions() {
        let aside = found(root, &action.staged)?;
        if aside == PathOccupancy::Free {
            continue;
        }
        // The old file is also in the journal, and the new one in its source; a pipe has no
        // content.
        let is_known = aside == PathOccupancy::Special
            || aside.is(action.before())
            || (!is_committed && aside.is(action.after()));
        if is_known {
            root.remove(&action.staged).during("remove", action.path)?;
        } else {
            all_kept.push(kept(action.path, &action.staged));
        }
    }
    for (path, aside) in plan.specials() {
        match root
            .look(&aside)
            .during("inspect", path)?
            .map(|stat| stat.kind)
        {
            None => {}
            Some(NodeKind::Special) => root.remove(&aside).during("remove", path)?,
            Some(_) => all_kept.push(kept(path, &aside)),
        }
    }
    match root.remove_dir(staging) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
        other => other.during("remove", plan.staging())?,
    }
    root.sync_dir(Path::new("")).during("sync", ".")?;
    Ok(all_kept)
}
