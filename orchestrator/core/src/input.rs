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

/// An event or a result that the core handles.
#[derive(Debug)]
pub enum CoreInput {
    /// A client sent a request.
    Request {
        /// Token for the response.
        token: RequestToken,
        peer: Peer,
        call: Box<Call>,
    },
    /// A client has disconnected; its requests need no answers.
    ClientGone {
        /// The client's open requests.
        tokens: Vec<RequestToken>,
    },
    /// A workspace was read from disk, or the read failed.
    Loaded(Box<WorkspaceLoadResult>),
    /// The instances of a workspace, or the reason why they could not be listed.
    Listed {
        workspace_id: WorkspaceId,
        purpose: ListPurpose,
        result: Result<InstanceListing, ControlError>,
    },
    /// A workspace's record was written, or the write failed.
    WorkspaceWritten {
        workspace_id: WorkspaceId,
        result: Result<(), ControlError>,
    },
    /// This node cannot load a workspace, so another node must run it.
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
    /// Result of an operation on the secret store.
    Secrets {
        /// Token for the response.
        token: RequestToken,
        result: Result<SecretsResult, ControlError>,
    },
    /// Result of an operation on sandboxes and proposals.
    Proposals {
        workspace_id: WorkspaceId,
        /// True if a caller requested it; false for operations that were finished at the daemon's
        /// start.
        is_asked: bool,
        done: ProposalsResult,
    },
    /// Result of an operation on the bundle of a conversation.
    Bundle(Box<BundleResult>),
    /// Result of an operation on the work area of a task.
    Tasks(Box<TaskResult>),
    /// Result of an operation on OAuth documents.
    OAuth(OAuthResult),
    /// Result of an operation on the joint checkpoints of a conversation.
    Joint(Box<JointResult>),
    Spawned {
        process: ProcessId,
        pid: u32,
    },
    /// A process sent a message.
    Message {
        process: ProcessId,
        message: Box<ToOrchestrator>,
        /// The request id, if the process waits for an answer.
        request_id: Option<u64>,
        /// Trace of the message.
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
    /// The mechanism that reports changes of a project's files has changed.
    Watching {
        workspace_id: WorkspaceId,
        how: FileWatchMode,
    },
    /// A signal requests that the daemon stops.
    Stop {
        /// Grace period of turns, in milliseconds; as configured if absent.
        grace_period_ms: Option<u64>,
    },
    /// A second signal requests an immediate stop.
    ForceStop,
}

/// Purpose of reading a workspace from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPurpose {
    /// The workspace was registered when the daemon started.
    Start,
    Open {
        /// Token for the response.
        token: RequestToken,
        settings: WorkspaceSettings,
    },
    /// A client or a signal requested a reload of the configuration.
    Reload(Option<RequestToken>),
    Watch,
    /// A client requested a restart of processes, with the current configuration.
    Restart {
        /// Token for the response.
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
    /// The configuration, or its problems.
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
