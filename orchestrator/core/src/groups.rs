//! Paths of the cgroups of child processes, below the cgroup delegated to the daemon.

use std::path::{Path, PathBuf};

use crate::ProcessId;

/// Prefix of a child's cgroup name.
pub const CHILD_GROUP_PREFIX: &str = "child-";

/// Cgroup within a child's cgroup for the program of a task, without the process that communicates
/// with the daemon.
pub const PROGRAM_GROUP: &str = "program";

/// Returns the cgroup of a child and its descendants.
#[must_use]
pub fn child_group(divided: &Path, process: ProcessId) -> PathBuf {
    divided.join(format!("{CHILD_GROUP_PREFIX}{}", process.0))
}

/// Returns the cgroup of a task's program (`TASK-8`).
#[must_use]
pub fn program_group(divided: &Path, process: ProcessId) -> PathBuf {
    child_group(divided, process).join(PROGRAM_GROUP)
}
