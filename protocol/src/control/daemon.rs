//! `daemon.*`: the daemon itself and its processes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::sandbox::Facts;
use crate::time::Timestamp;
use crate::version::Version;

use super::WorkspaceInfo;

/// `daemon.connect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connect {
    /// The client's exact version.
    pub version: Version,
}

/// Result of `daemon.connect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connected {
    /// The daemon's exact version.
    pub version: Version,
    /// The daemon's process id.
    pub pid: u32,
    /// The System Root it owns.
    pub state_root: PathBuf,
    /// Where it writes its log: a directory, or none when it writes to stdout only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
}

/// `daemon.status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {}

/// The daemon's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// Its exact version.
    pub version: Version,
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// The file of its program, all links followed; none if the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The System Root it owns.
    pub state_root: PathBuf,
    /// Where it writes its log: a directory, or none when it writes to stdout only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// The control group in which each of its children has one of its own; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Log lines dropped because stdout was read too slowly.
    pub dropped_log_lines: u64,
    /// When that was noticed last; none if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lines_dropped_at: Option<Timestamp>,
    /// Its file descriptors; none if the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// What has run short, so that idle agents are stopped to make room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_of: Vec<Resource>,
    /// Conversations with work whose agents wait for room.
    #[serde(default)]
    pub waiting_for_room: usize,
    /// Whether an operator lets other processes of the same user look into the memory of the daemon and its
    /// children, where secrets are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_open: bool,
    /// Whether it is stopping.
    pub stopping: bool,
    /// The registered workspaces: the first page of `workspace.list`.
    pub workspaces: Vec<WorkspaceInfo>,
    /// After which of them the next page begins; none if all are on the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_workspace: Option<WorkspaceId>,
}

/// The file descriptors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenFiles {
    /// How many there are.
    pub open: u64,
    /// How many there may be.
    pub limit: u64,
}

/// Something that processes need, and that can run short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resource {
    /// File descriptors of the daemon.
    Descriptors,
    /// Processes and threads of the machine, or of the daemon's control group.
    Processes,
    /// Memory of the machine, or of the daemon's control group.
    Memory,
}

impl Resource {
    /// What people call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "file descriptors",
            Self::Processes => "processes",
            Self::Memory => "memory",
        }
    }
}

/// `daemon.check`: tries what the daemon's processes can do where they run. Under a service manager or in a container
/// that can be less than in a person's shell. Takes some seconds at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckDaemon {}

/// Result of `daemon.check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonCheck {
    /// What the kernel can hold programs to that the daemon starts.
    pub rights: Facts,
    /// Why no path can be opened beneath a directory (`openat2`), as file tools, sandboxes and proposals do; missing if
    /// it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_open_beneath: Option<String>,
    /// Projects that the daemon cannot write into, so that no proposal can be applied there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_projects: Vec<PathBuf>,
}

/// `daemon.metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadMetrics {}

/// `daemon.shutdown`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stop {
    /// Overrides each swarm's grace period, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_ms: Option<u64>,
}
