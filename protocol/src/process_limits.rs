//! Resource limits of a process.

use serde::{Deserialize, Serialize};

/// Resource limits of a process. Absent limits leave only the system's own limits.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessLimits {
    /// Memory limit in bytes: for the process and its descendants together if they have a control
    /// group, otherwise for each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Limit of open files, sockets and pipes per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Limit of processes and threads, including descendants. Only enforced in a control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

impl ProcessLimits {
    /// True if there are no limits.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
