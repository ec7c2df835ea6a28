//! Inputs of the core: requests, messages of child processes, and results of the store and the
//! shell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::{ProjectConfig, Sources};
use goondan_protocol::control::{Call, ControlError, FileWatchMode, ReplicationStall};
use goondan_protocol::ids::{ConnectionName, InstanceKey, ResourceName, WorkspaceId};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_store::instance::Metadata;
use goondan_store::workspace::{PendingInstance, StoredSchedules, WorkspaceRecord};
use goondan_store::writer::StoreCompletion;

use crate::Accounts;
use crate::exchange::joint::JointResult;
use crate::exchange::oauth::OAuthResult;
use crate::exchange::{
    BundleResult, Peer, ProcessId, ProposalsResult, RequestToken, ResourceUsage, SecretsResult,
    StateResult, TaskResult,
};
use crate::instance_list::{InstanceListing, ListPurpose};
use crate::{StandingApprovals, UnknownCalls};

/// Something that happened.
#[derive(Debug)]
pub enum CoreInput {
    /// A client sent a request.
    Request {
        /// The request that waits for it.
        token: RequestToken,
        peer: Peer,
        call: Box<Call>,
    },
    /// A client has disconnected; its requests need no answers.
    ClientGone {
        /// The requests it waited for.
        tokens: Vec<RequestToken>,
    },
    /// A workspace was read from disk, or could not be.
    Loaded(Box<WorkspaceLoadResult>),
    /// The instances of a workspace, or why they could not be listed.
    Listed {
        workspace_id: WorkspaceId,
        purpose: ListPurpose,
        result: Result<InstanceListing, ControlError>,
    },
    /// A workspace's record was written, or could not be.
    WorkspaceWritten {
        workspace_id: WorkspaceId,
        result: Result<(), ControlError>,
    },
    /// A workspace that this node cannot load must be run by another node.
    HandOn {
        workspace_id: WorkspaceId,
        to: String,
    },
    /// Workspaces without acknowledgments, because their logs do not confirm records.
    Unacknowledged(BTreeMap<WorkspaceId, ReplicationStall>),
    /// The state of a connection was read or stored, or the operation failed.
    ConnectionState {
        workspace_id: WorkspaceId,
        connection: ConnectionName,
        /// The result, or the reason of the failure.
        result: Result<StateResult, String>,
    },
    /// The secret store was looked into or changed, or could not be.
    Secrets {
        /// The request that waits for it.
        token: RequestToken,
        result: Result<SecretsResult, ControlError>,
    },
    /// Something was done about sandboxes and proposals, or could not be.
    Proposals {
        workspace_id: WorkspaceId,
        /// True if a caller requested it; false for operations that were finished at the daemon's
        /// start.
        is_asked: bool,
        done: ProposalsResult,
    },
    /// Something was done about the bundle of a conversation, or could not be.
    Bundle(Box<BundleResult>),
    /// Something was done about the work area of a task, or could not be.
    Tasks(Box<TaskResult>),
    /// Something was done about the documents of OAuth, or could not be.
    OAuth(OAuthResult),
    /// Something was done about the joint checkpoints of a conversation, or could not be.
    Joint(Box<JointResult>),
    Spawned {
        process: ProcessId,
        pid: u32,
    },
    /// A process sent a message.
    Message {
        process: ProcessId,
        message: Box<ToOrchestrator>,
        /// The request, if it wants an answer.
        request_id: Option<u64>,
        /// The trace it belongs to.
        trace: Option<TraceContext>,
    },
    /// A process sent an invalid message, or does not read its messages.
    Broken {
        process: ProcessId,
        problem: String,
    },
    /// A process has exited, or failed to start.
    Exited {
        process: ProcessId,
        how: String,
    },
    /// A process could not be started for lack of descriptors, processes or memory.
    NoRoom {
        process: ProcessId,
        how: String,
    },
    Supply(ResourceUsage),
    Stored(StoreCompletion),
    Tick,
    /// Read the configuration of every workspace again.
    Reload,
    /// Files of a watched project changed.
    FilesChanged {
        workspace_id: WorkspaceId,
    },
    /// Changes of a project's files are noticed in this way from now on.
    Watching {
        workspace_id: WorkspaceId,
        how: FileWatchMode,
    },
    /// A signal requests that the daemon stops.
    Stop {
        /// Grace period of turns, in milliseconds; as configured if absent.
        grace_period_ms: Option<u64>,
    },
    /// The daemon is asked to stop, for the second time.
    ForceStop,
}

/// Purpose of reading a workspace from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPurpose {
    /// It was registered when the daemon started.
    Start,
    Open {
        /// The request that waits for it.
        token: RequestToken,
        settings: WorkspaceSettings,
    },
    /// A client or a signal has its configuration read again.
    Reload(Option<RequestToken>),
    Watch,
    /// A client restarts processes, with the current configuration.
    Restart {
        /// The request that waits for it.
        token: RequestToken,
        request: goondan_protocol::control::Restart,
    },
}

impl LoadPurpose {
    /// True if the last known good configuration may replace an invalid one: only for workspaces
    /// that ran when the daemon ended. A client that opens a project gets the errors instead, and
    /// an invalid edit changes nothing that runs.
    pub fn may_fall_back(&self) -> bool {
        *self == Self::Start
    }

    /// True if all conversations must be listed, because they may be restarted from scratch.
    pub fn begins_anew(&self) -> bool {
        matches!(self, Self::Restart { request, .. } if request.fresh)
    }

    /// The client's settings for the project.
    pub fn settings(&self) -> WorkspaceSettings {
        match self {
            Self::Open { settings, .. } => settings.clone(),
            _ => WorkspaceSettings::default(),
        }
    }

    /// The client that waits for this workspace alone.
    pub(super) fn token(&self) -> Option<RequestToken> {
        match self {
            Self::Open { token, .. } | Self::Restart { token, .. } => Some(*token),
            Self::Start | Self::Reload(_) | Self::Watch => None,
        }
    }
}

/// A client's settings for a workspace; absent ones stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// True to watch its files.
    pub watch: Option<bool>,
    /// Environment files beside its own.
    pub env_files: Option<Vec<PathBuf>>,
    /// The Swarm to run; `Some(None)` for the project's first one.
    pub swarm: Option<Option<ResourceName>>,
}

/// A workspace, read from disk.
#[derive(Debug)]
pub struct WorkspaceLoadResult {
    pub purpose: LoadPurpose,
    /// The workspace, if its id is known.
    pub workspace_id: Option<WorkspaceId>,
    /// Sources of its configuration, valid or not.
    pub sources: Arc<Sources>,
    pub result: Result<LoadedWorkspace, ControlError>,
}

/// Reason for running the last known good configuration.
#[derive(Debug)]
pub struct Fallback {
    /// Problem of the project's own configuration.
    pub error: ControlError,
    /// Time at which the last known good configuration was stored.
    pub since: Timestamp,
}

/// A workspace as found on disk.
#[derive(Debug)]
pub struct LoadedWorkspace {
    pub record: WorkspaceRecord,
    /// The configuration, or what is wrong with it.
    pub bundle: Result<ProjectConfig, ControlError>,
    /// Reason for the last known good configuration, if it is in use.
    pub fallback: Option<Fallback>,
    /// True if the source files may be stored: they contain no literal secret.
    pub may_be_kept: bool,
    /// Spending on model replies, from its ledger.
    pub accounts: Accounts,
    /// Tool calls with an unknown outcome, from its audit log.
    pub unknown_calls: UnknownCalls,
    /// Standing approvals, from its audit log.
    pub standing: StandingApprovals,
    /// Schedules of its conversations.
    pub schedules: Vec<StoredSchedules>,
    pub with_work: Vec<PendingInstance>,
    /// Number of parked events of each instance.
    pub parked: BTreeMap<InstanceKey, u64>,
    /// All instances, for a restart of conversations from scratch; otherwise empty.
    pub to_begin_anew: Vec<Metadata>,
}
