//! Where the control groups of children are, below the one that the daemon divides.

use std::path::{Path, PathBuf};

use crate::ProcessId;

/// How the name of a child's group begins.
pub const CHILD_GROUP_PREFIX: &str = "child-";

/// The group within a child's in which the program of a task runs, without the process that hears the daemon.
pub const PROGRAM_GROUP: &str = "program";

/// The group of a child with all it starts.
#[must_use]
pub fn child_group(divided: &Path, process: ProcessId) -> PathBuf {
    divided.join(format!("{CHILD_GROUP_PREFIX}{}", process.0))
}

/// The group of a task's program (`TASK-8`).
#[must_use]
pub fn program_group(divided: &Path, process: ProcessId) -> PathBuf {
    child_group(divided, process).join(PROGRAM_GROUP)
}
