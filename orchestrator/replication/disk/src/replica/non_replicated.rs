//! Preserves files that are not replicated while everything else is recreated.
//!
//! Each path that is moved aside is kept below a number: the lowest one under which the path is
//! free. A path that is moved aside twice exists twice, the later copy under the higher number.
//! Renames are durable in both directories before anything is removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, DiskEntry, EntryKind};

use crate::scope::{are_replicated, is_mixed};

/// Directories below `dir` that may contain both replicated and other paths, relative to it;
/// parents come first. The first one is the empty path, for `dir` itself.
fn mixed(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        for name in directories(disk, &dir.join(&path))? {
            let inner = path.join(name);
            if is_mixed(inner.iter()) {
                open.push(inner);
            }
        }
        found.push(path);
    }
    Ok(found)
}

/// Paths below `dir` that are not replicated, relative to it.
fn apart(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for parent in mixed(disk, dir)? {
        for entry in entries(disk, &dir.join(&parent))? {
            let path = parent.join(entry.name);
            if !are_replicated(path.iter()) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Entries of a directory; empty if the path is not a directory.
fn entries(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<DiskEntry>> {
    match disk.stat(dir)? {
        Some(stat) if stat.kind == EntryKind::Directory => disk.list(dir),
        Some(_) | None => Ok(Vec::new()),
    }
}

/// The names of the directories in a directory.
fn directories(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = entries(disk, dir)?.into_iter();
    let directories = entries.filter(|entry| entry.kind == EntryKind::Directory);
    Ok(directories.map(|entry| entry.name).collect())
}

/// Durably creates the parent directory of `path` and its missing ancestors below `root`.
fn make_parent(disk: &dyn Disk, root: &Path, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| parent.starts_with(root)) else {
        return Ok(());
    };
    make_parent(disk, root, parent)?;
    if disk.stat(parent)?.is_none() {
        disk.create_dir(parent)?;
    }
    // An existing directory is synced, too: a crash may have happened before it was durable.
    sync_parent(disk, parent)
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// Renames durably.
fn move_to(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    disk.rename(from, to)?;
    sync_parent(disk, to)?;
    sync_parent(disk, from)
}

/// Target for moving a path aside: below the lowest number under which it is free.
fn free(disk: &dyn Disk, aside: &Path, place: &Path) -> io::Result<PathBuf> {
    let mut number = 1_u64;
    loop {
        let path = aside.join(number.to_string()).join(place);
        if disk.stat(&path)?.is_none() {
            return Ok(path);
        }
        number += 1;
    }
}

pub(super) fn clear(disk: &dyn Disk, dir: &Path, aside: &Path) -> io::Result<()> {
    // After a crash, a rename of an earlier run may be visible but not durable.
    settle_names(disk, dir, aside)?;
    for place in apart(disk, dir)? {
        let to = free(disk, aside, &place)?;
        make_parent(disk, aside, &to)?;
        move_to(disk, &dir.join(&place), &to)?;
    }
    for entry in disk.list(dir)? {
        let path = dir.join(&entry.name);
        match entry.kind {
            EntryKind::Directory => disk.remove_tree(&path)?,
            EntryKind::File | EntryKind::Other => disk.remove_file(&path)?,
        }
    }
    disk.sync_dir(dir)
}

pub(super) fn put_back(disk: &dyn Disk, dir: &Path, aside: &Path) -> io::Result<()> {
    settle_names(disk, dir, aside)?;
    for number in numbers(disk, aside)?.into_iter().rev() {
        let kept = aside.join(number.to_string());
        for place in apart(disk, &kept)? {
            let to = dir.join(&place);
            let parent = to.parent().unwrap_or(dir);
            let has_parent = disk
                .stat(parent)?
                .is_some_and(|stat| stat.kind == EntryKind::Directory);
            if has_parent && disk.stat(&to)?.is_none() {
                move_to(disk, &kept.join(&place), &to)?;
            }
        }
        remove_if_empty(disk, &kept)?;
    }
    Ok(())
}

/// The numbers under which paths were moved aside, ascending.
fn numbers(disk: &dyn Disk, aside: &Path) -> io::Result<Vec<u64>> {
    let names = directories(disk, aside)?;
    let number = |name: &OsStr| name.to_str()?.parse().ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes directory entries durable that renames to or from `aside` may have changed.
fn settle_names(disk: &dyn Disk, dir: &Path, aside: &Path) -> io::Result<()> {
    let mut roots = vec![dir.to_owned()];
    for number in numbers(disk, aside)? {
        roots.push(aside.join(number.to_string()));
    }
    for root in roots {
        for dir in mixed(disk, &root)?.into_iter().rev() {
            disk.sync_dir(&root.join(dir))?;
        }
    }
    Ok(())
}

/// Removes the directories under a number if they contain no files.
fn remove_if_empty(disk: &dyn Disk, kept: &Path) -> io::Result<()> {
    for dir in mixed(disk, kept)?.into_iter().rev() {
        remove_empty(disk, &kept.join(dir))?;
    }
    Ok(())
}

fn remove_empty(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    if disk.stat(dir)?.is_some() && disk.list(dir)?.is_empty() {
        disk.remove_tree(dir)?;
        sync_parent(disk, dir)?;
    }
    Ok(())
}
