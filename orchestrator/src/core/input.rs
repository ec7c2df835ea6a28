//! What can happen to the orchestrator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::{Bundle, Sources};
use goondan_protocol::control::{Call, ControlError, Watching};
use goondan_protocol::ids::{ConnectionName, InstanceKey, WorkspaceId};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_store::instance::Metadata;
use goondan_store::workspace::{WithWork, WorkspaceRecord};
use goondan_store::writer::Completion;

use super::connection_state::StateDone;
use super::secrets::SecretsDone;
use super::{Accounts, ListPurpose, ListedInstances, Supply};

/// The time at which something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds on a clock that only moves forwards: for delays.
    pub(crate) mono_ms: u64,
    /// The calendar's time: for records.
    pub(crate) wall: Timestamp,
}

/// Names one child process of this run of the daemon; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(pub(crate) u64);

/// Names one request of one client connection; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestToken(pub(crate) u64);

/// The client that makes a request, as the kernel tells of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its process, as it was when it connected.
    pub(crate) pid: Option<u32>,
    /// Whether it was started by the daemon's own children: an agent's tool, or a connector.
    pub(crate) is_below_daemon: bool,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// A client asks for something.
    Request {
        token: RequestToken,
        peer: Peer,
        call: Box<Call>,
    },
    /// A client is gone; nobody waits for these any more.
    ClientGone { tokens: Vec<RequestToken> },
    /// A workspace was read from disk, or could not be.
    Loaded(Box<Loaded>),
    /// The instances of a workspace, or why they could not be listed.
    Listed {
        workspace_id: WorkspaceId,
        purpose: ListPurpose,
        result: Result<ListedInstances, ControlError>,
    },
    /// A workspace's record was written, or could not be.
    WorkspaceWritten {
        workspace_id: WorkspaceId,
        result: Result<(), ControlError>,
    },
    /// What a connection remembers was read or kept, or could not be.
    ConnectionState {
        workspace_id: WorkspaceId,
        connection: ConnectionName,
        result: Result<StateDone, String>,
    },
    /// The secret store was looked into or changed, or could not be.
    Secrets {
        token: RequestToken,
        result: Result<SecretsDone, ControlError>,
    },
    /// A process was started.
    Spawned { process: ProcessId, pid: u32 },
    /// A process said something.
    Message {
        process: ProcessId,
        message: Box<ToOrchestrator>,
        request_id: Option<u64>,
        trace: Option<TraceContext>,
    },
    /// A process sent what is no message, or does not read what it is sent.
    Broken { process: ProcessId, problem: String },
    /// A process is gone, or could not be started.
    Exited { process: ProcessId, how: String },
    /// A process could not be started, since there are no descriptors, processes or memory left.
    NoRoom { process: ProcessId, how: String },
    /// How much there is of what processes need.
    Supply(Supply),
    /// The store reports.
    Stored(Completion),
    /// Time passed.
    Tick,
    /// The configuration of every workspace is to be read again.
    Reload,
    /// Files of a watched project changed.
    FilesChanged { workspace_id: WorkspaceId },
    /// Changes of a project's files are noticed in this way from now on.
    Watching {
        workspace_id: WorkspaceId,
        how: Watching,
    },
    /// The daemon is asked to stop, by a signal.
    Stop { grace_period_ms: Option<u64> },
    /// The daemon is asked to stop, for the second time.
    ForceStop,
}

/// Why a workspace is read from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadPurpose {
    /// It was registered when the daemon started.
    Start,
    /// A client opens it.
    Open {
        token: RequestToken,
        settings: Settings,
    },
    /// A client or a signal has its configuration read again.
    Reload(Option<RequestToken>),
    /// Its files changed.
    Watch,
    /// A client restarts processes of it, with the configuration as it is now.
    Restart {
        token: RequestToken,
        request: goondan_protocol::control::Restart,
    },
}

impl LoadPurpose {
    /// The client that waits for this workspace alone.
    pub(super) fn token(&self) -> Option<RequestToken> {
        match self {
            Self::Open { token, .. } | Self::Restart { token, .. } => Some(*token),
            Self::Start | Self::Reload(_) | Self::Watch => None,
        }
    }
}

/// What a client says about how a workspace is run; what it does not say stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) watch: Option<bool>,
    pub(crate) env_files: Option<Vec<PathBuf>>,
}

/// A workspace, read from disk.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) purpose: LoadPurpose,
    /// The workspace it was read for, if that is known.
    pub(crate) workspace_id: Option<WorkspaceId>,
    /// What its configuration was read from, whatever came of it.
    pub(crate) sources: Arc<Sources>,
    /// What was found.
    pub(crate) result: Result<LoadedWorkspace, ControlError>,
}

/// Why the last known good configuration runs.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// What is wrong with the project's own.
    pub(crate) error: ControlError,
    /// When the last known good one was taken up.
    pub(crate) since: Timestamp,
}

/// What was found on disk of a workspace.
#[derive(Debug)]
pub(crate) struct LoadedWorkspace {
    pub(crate) record: WorkspaceRecord,
    /// The configuration, or what is wrong with it.
    pub(crate) bundle: Result<Bundle, ControlError>,
    /// Why the configuration is the last known good one, if it is.
    pub(crate) fallback: Option<Fallback>,
    /// Whether the files it was read from may be kept: no secret is written out in them.
    pub(crate) may_be_kept: bool,
    /// What replies of models took so far, by its ledger.
    pub(crate) accounts: Accounts,
    /// Instances with something to do.
    pub(crate) with_work: Vec<WithWork>,
    /// How many events of which instances are parked.
    pub(crate) parked: BTreeMap<InstanceKey, u64>,
    /// Every instance, if it is read to begin conversations anew; otherwise none.
    pub(crate) to_begin_anew: Vec<Metadata>,
}
