//! Measures the disk usage of a work area (`TASK-9`), from the sizes of its files and the file
//! system's statistics.

use std::path::Path;

use goondan_core::{DiskMeasurement, TaskRef, TaskResult};
use goondan_durable::disk::Folder as _;
use goondan_trees::RealFolder;

use super::TaskIo;

/// Measures a work area, and the sandbox of a copy of the project, and reports the result.
pub(super) fn look(ground: &TaskIo, at: TaskRef, copy: Option<&Path>) {
    let result = measure(&ground.work_area(&at), copy);
    ground.report(TaskResult::Measured { at, result });
}

/// Disk usage of a work area, which may change meanwhile, including the sandbox of its copy of the
/// project.
pub(super) fn measure(path: &Path, copy: Option<&Path>) -> Result<DiskMeasurement, String> {
    let mut measured = measure_one(path)?;
    // The sandbox does not exist before the first run.
    let sandbox = copy.and_then(Path::parent).filter(|path| path.is_dir());
    if let Some(sandbox) = sandbox {
        let other = measure_one(sandbox)?;
        measured.bytes = measured.bytes.saturating_add(other.bytes);
    }
    Ok(measured)
}

fn measure_one(path: &Path) -> Result<DiskMeasurement, String> {
    let told = |error: &(dyn std::error::Error + 'static)| {
        let error = goondan_log::error_chain(error);
        format!("failed to read `{}`: {error}", path.display())
    };
    let folder = RealFolder::open(path).map_err(|error| told(&error))?;
    let bytes = goondan_trees::size(&folder).map_err(|error| told(&error))?;
    let free_bytes = folder.free_bytes().map_err(|error| told(&error))?;
    Ok(DiskMeasurement { bytes, free_bytes })
}
