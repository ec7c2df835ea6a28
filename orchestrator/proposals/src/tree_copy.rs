//! Changes files of a directory in place, from another directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{Folder, NodeKind, append_all, read_full};
use goondan_trees::{PathChange, TreeEntry, remove_all};

use crate::error::{IoContext as _, ProposalError};

/// Bytes that are copied at once.
const PART_BYTES: usize = 256 * 1024;

/// Makes the changes in `into`, with the new content in `from`. Durable on return. An interrupted
/// call can be repeated.
pub(crate) fn bring(
    into: &dyn Folder,
    from: &dyn Folder,
    changes: &[PathChange],
) -> Result<(), ProposalError> {
    let is_directory =
        |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
    // Entries of a directory are removed before it.
    for change in changes.iter().rev() {
        let path = change.path.as_path();
        let is_kept = is_directory(&change.old) && is_directory(&change.new);
        if change.old.is_none() || is_kept {
            continue;
        }
        // An interrupted call may have replaced it.
        let found = into.look(path).during("inspect", path)?;
        let is_there = found.is_some_and(|stat| stat.kind == NodeKind::Directory);
        let names = match is_directory(&change.old) && is_there {
            true => into.names(path).during("list", path)?,
            false => Vec::new(),
        };
        // Files that are not part of the tree, such as build output, keep a removed directory.
        if names.is_empty() || change.new.is_some() {
            remove_all(into, path)?;
        }
    }
    let mut directories = Vec::new();
    for change in changes {
        let path = change.path.as_path();
        match &change.new {
            None => {}
            Some(TreeEntry::Directory { mode }) => {
                let found = into.look(path).during("inspect", path)?;
                if found.is_none_or(|stat| stat.kind != NodeKind::Directory) {
                    remove_all(into, path)?;
                    into.create_dir(path, 0o700).during("create", path)?;
                }
                directories.push((path, *mode));
            }
            Some(TreeEntry::File { mode, .. }) => {
                remove_all(into, path)?;
                copy(into, from, path, *mode)?;
            }
            Some(TreeEntry::Link { target }) => {
                remove_all(into, path)?;
                let target = Path::new(OsStr::from_bytes(target));
                into.create_link(path, target).during("create", path)?;
            }
        }
        let above = path.parent().unwrap_or(Path::new(""));
        into.sync_dir(above).during("sync", above)?;
    }
    for (path, mode) in directories.into_iter().rev() {
        into.set_dir_mode(path, mode)
            .during("set the mode of", path)?;
    }
    Ok(())
}

fn copy(into: &dyn Folder, from: &dyn Folder, path: &Path, mode: u32) -> Result<(), ProposalError> {
    let mut source = from.read(path).during("open", path)?;
    let mut target = into.create(path, mode).during("create", path)?;
    let mut part = vec![0; PART_BYTES];
    let mut offset = 0;
    loop {
        let read = read_full(source.as_mut(), &mut part, offset).during("read", path)?;
        let Some(content) = part.get(..read).filter(|content| !content.is_empty()) else {
            break;
        };
        append_all(target.as_mut(), content).during("write", path)?;
        offset += read as u64;
    }
    target.sync().during("sync", path)
}
