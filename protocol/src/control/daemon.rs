//! `daemon.*`: the daemon itself and its processes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::proxy::NetworkSettings;
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
pub struct ConnectResult {
    /// The daemon's exact version.
    pub version: Version,
    /// The daemon's process id.
    pub pid: u32,
    /// The System Root it owns.
    pub state_root: PathBuf,
    /// Its log directory; absent if it only logs to stdout.
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
    /// Start time.
    pub started_at: Timestamp,
    /// The path of its program, with all links resolved; absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The System Root it owns.
    pub state_root: PathBuf,
    /// Its log directory; absent if it only logs to stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// The control group that contains one group per child; absent if control groups are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Log lines dropped because stdout was read too slowly.
    pub dropped_log_lines: u64,
    /// Time of the last dropped log line; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lines_dropped_at: Option<Timestamp>,
    /// Its file descriptors; absent if the system does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Exhausted resources, for which idle agents are stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_of: Vec<Resource>,
    /// Number of conversations whose agents wait for capacity.
    #[serde(default)]
    pub waiting_for_room: usize,
    /// True if an operator lets other processes of the same user read the memory of the daemon and
    /// its children, which holds secrets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_open: bool,
    /// Origin of the state root, if it was restored from a backup and no person has resumed it: no
    /// process starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<RestoredFrom>,
    /// True if it is stopping.
    pub stopping: bool,
    /// The registered workspaces: the first page of `workspace.list`.
    pub workspaces: Vec<WorkspaceInfo>,
    /// Start of the next page of workspaces; absent if the first page has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_workspace: Option<WorkspaceId>,
}

/// Origin of a restored state root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredFrom {
    /// Id of the backup.
    pub backup_id: String,
    /// Time of the backup.
    pub taken_at: Timestamp,
    /// Time of the restore.
    pub restored_at: Timestamp,
}

/// The file descriptors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenFiles {
    /// Number of open descriptors.
    pub open: u64,
    /// Limit of open descriptors.
    pub limit: u64,
}

/// A resource that can be exhausted.
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
    /// The name shown to people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "file descriptors",
            Self::Processes => "processes",
            Self::Memory => "memory",
        }
    }
}

/// `daemon.check`: tests the capabilities of the daemon's processes in their environment. A service
/// manager or a container can restrict them more than a person's shell. Takes at most a few
/// seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckDaemon {}

/// Result of `daemon.check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonCheck {
    /// Rights that the kernel can enforce on programs that the daemon starts.
    pub rights: Facts,
    /// Reason why paths cannot be opened beneath a directory (`openat2`), which file tools,
    /// sandboxes and proposals need; absent if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_open_beneath: Option<String>,
    /// Projects that the daemon cannot write to. Proposals cannot be applied there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_projects: Vec<PathBuf>,
    /// Proxies and certificate authorities of its outgoing connections.
    #[serde(default)]
    pub network: NetworkSettings,
}

/// `daemon.holdWrites`: holds all changes of the daemon's files for a short time, so that a client
/// can copy them in one state. Ends with `daemon.releaseWrites`, with the connection, or after
/// `maxMs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldWrites {
    /// Longest duration, in milliseconds; at most [`WRITE_HOLD_MS_MAX`].
    pub max_ms: u64,
}

/// Longest duration for which a client can hold the daemon's writes, in milliseconds.
pub const WRITE_HOLD_MS_MAX: u64 = 10_000;

/// `daemon.releaseWrites`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseWrites {}

/// Result of `daemon.releaseWrites`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesReleased {
    /// True if the writes of this connection were held until now.
    pub held: bool,
}

/// `daemon.resume`: starts the processes of a restored state root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeDaemon {}

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
