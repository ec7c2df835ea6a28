//! What a work area takes of the disk (`TASK-9`): by the lengths of its files, and by asking the file system.

use std::path::Path;

use goondan_core::{Measured, TaskDone, TaskRef};
use goondan_durable::disk::Folder as _;
use goondan_trees::RealFolder;

use super::Ground;

/// Looks at a work area, and reports.
pub(super) fn look(ground: &Ground, at: TaskRef) {
    let result = measure(&ground.work_area(&at));
    ground.report(TaskDone::Measured { at, result });
}

/// What a work area takes, in which somebody may be writing.
pub(super) fn measure(path: &Path) -> Result<Measured, String> {
    let told = |error: &(dyn std::error::Error + 'static)| {
        let error = goondan_log::error_chain(error);
        format!("cannot look at `{}`: {error}", path.display())
    };
    let folder = RealFolder::open(path).map_err(|error| told(&error))?;
    let bytes = goondan_trees::size(&folder).map_err(|error| told(&error))?;
    let free_bytes = folder.free_bytes().map_err(|error| told(&error))?;
    Ok(Measured { bytes, free_bytes })
}
