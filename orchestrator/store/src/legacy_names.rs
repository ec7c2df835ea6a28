//! Renames directories that earlier versions named with `%`, which linkers and other tools misread
//! in a path.
//!
//! They are renamed when a workspace is opened, before any other access. The register of a folder
//! is renamed before the folder, so that after a crash in between the register is found under the
//! folder's new name.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::{Disk, EntryKind};
use goondan_durable::names::renamed_directory;
use goondan_durable::register::{REGISTERS, Register};
use goondan_protocol::ids::WorkspaceId;

use crate::error::StoreError;
use crate::root::Layout;

/// Proposals for other nodes, in the folder of a run. Their names begin with that of the sandbox.
const HANDED_ON: &str = ".handed-on";

/// Gives the directories of conversations, runs and sandboxes the names that they have today.
///
/// # Errors
///
/// [`StoreError::File`].
pub(crate) fn rename_directories(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<(), StoreError> {
    let (instances, sandboxes) = (layout.instances(id), layout.sandboxes(id));
    let known = layout.workspace(id).join(REGISTERS);
    for group in [&instances, &sandboxes] {
        let name = group.file_name().unwrap_or_default();
        rename_in(disk, &known.join(name), |_| Ok(()))?;
        rename_in(disk, group, |_| Ok(()))?;
    }
    for run in directories(disk, &sandboxes)? {
        let run = sandboxes.join(run);
        rename_in(disk, &run, |sandbox| {
            // Opening the sandbox records its files again.
            Register::of(disk, &run)
                .here()
                .release(&format!("{sandbox}/"))?;
            rename_handed_on(disk, &run.join(HANDED_ON), sandbox)
        })?;
    }
    Ok(())
}

/// Renames directories. `before` is called with the old name of each.
fn rename_in(
    disk: &dyn Disk,
    dir: &Path,
    before: impl Fn(&str) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut is_changed = false;
    for name in directories(disk, dir)? {
        let Some(today) = renamed_directory(&name) else {
            continue;
        };
        let (from, to) = (dir.join(&name), dir.join(today));
        // A copy that a person made: neither takes the place of the other.
        if disk.stat(&to).during("inspect", &to)?.is_some() {
            continue;
        }
        before(&name)?;
        disk.rename(&from, &to).during("rename", &from)?;
        is_changed = true;
    }
    if is_changed {
        disk.sync_dir(dir).during("sync", dir)?;
    }
    Ok(())
}

/// Renames the proposals of a sandbox that are packed for other nodes.
fn rename_handed_on(disk: &dyn Disk, dir: &Path, sandbox: &str) -> Result<(), StoreError> {
    let Some(today) = renamed_directory(sandbox) else {
        return Ok(());
    };
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(());
    }
    let mut is_changed = false;
    for entry in disk.list(dir).during("list", dir)? {
        let name = entry.name.to_str();
        let Some(rest) = name.and_then(|name| name.strip_prefix(sandbox)) else {
            continue;
        };
        if rest.starts_with('.') {
            let from = dir.join(&entry.name);
            let to = dir.join(format!("{today}{rest}"));
            disk.rename(&from, &to).during("rename", &from)?;
            is_changed = true;
        }
    }
    if is_changed {
        disk.sync_dir(dir).during("sync", dir)?;
    }
    Ok(())
}

/// The names of the directories in a directory, none if it does not exist.
fn directories(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, StoreError> {
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(dir).during("list", dir)?.into_iter();
    let directories = entries.filter(|entry| entry.kind == EntryKind::Directory);
    Ok(directories
        .filter_map(|entry| entry.name.into_string().ok())
        .collect())
}
