//! What can happen to the orchestrator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::{Bundle, Sources};
use goondan_protocol::control::{Call, ControlError, Unacknowledged, Watching};
use goondan_protocol::ids::{ConnectionName, InstanceKey, WorkspaceId};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_store::instance::Metadata;
use goondan_store::workspace::{WithWork, WorkspaceRecord};
use goondan_store::writer::Completion;

use crate::Accounts;
use crate::UnknownCalls;
use crate::exchange::joint::JointDone;
use crate::exchange::oauth::OAuthDone;
use crate::exchange::{
    BundleDone, Peer, ProcessId, ProposalsDone, RequestToken, SecretsDone, StateDone, Supply,
    TaskDone,
};
use crate::listing::{ListPurpose, ListedInstances};

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A client asks for something.
    Request {
        /// The request that waits for it.
        token: RequestToken,
        /// Who asks.
        peer: Peer,
        /// What for.
        call: Box<Call>,
    },
    /// A client is gone; nobody waits for these any more.
    ClientGone {
        /// The requests it waited for.
        tokens: Vec<RequestToken>,
    },
    /// A workspace was read from disk, or could not be.
    Loaded(Box<Loaded>),
    /// The instances of a workspace, or why they could not be listed.
    Listed {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// What it is for.
        purpose: ListPurpose,
        /// What was found.
        result: Result<ListedInstances, ControlError>,
    },
    /// A workspace's record was written, or could not be.
    WorkspaceWritten {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// How that ended.
        result: Result<(), ControlError>,
    },
    /// A workspace that this node cannot load is to be run by another node.
    HandOn {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The node.
        to: String,
    },
    /// The workspaces of which nothing is acknowledged, since their logs confirm nothing.
    Unacknowledged(BTreeMap<WorkspaceId, Unacknowledged>),
    /// What a connection remembers was read or kept, or could not be.
    ConnectionState {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The connection.
        connection: ConnectionName,
        /// What came of it, or why nothing did.
        result: Result<StateDone, String>,
    },
    /// The secret store was looked into or changed, or could not be.
    Secrets {
        /// The request that waits for it.
        token: RequestToken,
        /// What came of it.
        result: Result<SecretsDone, ControlError>,
    },
    /// Something was done about sandboxes and proposals, or could not be.
    Proposals {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Whether somebody asked for it: nobody for what was finished when the daemon started.
        is_asked: bool,
        /// What came of it.
        done: ProposalsDone,
    },
    /// Something was done about the bundle of a conversation, or could not be.
    Bundle(Box<BundleDone>),
    /// Something was done about the work area of a task, or could not be.
    Tasks(Box<TaskDone>),
    /// Something was done about the documents of OAuth, or could not be.
    OAuth(OAuthDone),
    /// Something was done about the joint checkpoints of a conversation, or could not be.
    Joint(Box<JointDone>),
    /// A process was started.
    Spawned {
        /// The process.
        process: ProcessId,
        /// Its process id.
        pid: u32,
    },
    /// A process said something.
    Message {
        /// The process.
        process: ProcessId,
        /// What it said.
        message: Box<ToOrchestrator>,
        /// The request, if it wants an answer.
        request_id: Option<u64>,
        /// The trace it belongs to.
        trace: Option<TraceContext>,
    },
    /// A process sent what is no message, or does not read what it is sent.
    Broken {
        /// The process.
        process: ProcessId,
        /// What was wrong.
        problem: String,
    },
    /// A process is gone, or could not be started.
    Exited {
        /// The process.
        process: ProcessId,
        /// How it ended.
        how: String,
    },
    /// A process could not be started, since there are no descriptors, processes or memory left.
    NoRoom {
        /// The process.
        process: ProcessId,
        /// What ran short.
        how: String,
    },
    /// How much there is of what processes need.
    Supply(Supply),
    /// The store reports.
    Stored(Completion),
    /// Time passed.
    Tick,
    /// The configuration of every workspace is to be read again.
    Reload,
    /// Files of a watched project changed.
    FilesChanged {
        /// The workspace.
        workspace_id: WorkspaceId,
    },
    /// Changes of a project's files are noticed in this way from now on.
    Watching {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// How.
        how: Watching,
    },
    /// The daemon is asked to stop, by a signal.
    Stop {
        /// How long turns may go on, in milliseconds; as configured if it is not said.
        grace_period_ms: Option<u64>,
    },
    /// The daemon is asked to stop, for the second time.
    ForceStop,
}

/// Why a workspace is read from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPurpose {
    /// It was registered when the daemon started.
    Start,
    /// A client opens it.
    Open {
        /// The request that waits for it.
        token: RequestToken,
        /// How it is to be run.
        settings: Settings,
    },
    /// A client or a signal has its configuration read again.
    Reload(Option<RequestToken>),
    /// Its files changed.
    Watch,
    /// A client restarts processes of it, with the configuration as it is now.
    Restart {
        /// The request that waits for it.
        token: RequestToken,
        /// What is to be restarted.
        request: goondan_protocol::control::Restart,
    },
}

impl LoadPurpose {
    /// Whether the last known good configuration will do if the project's own is not valid: only for what
    /// ran when the daemon ended. A client that opens a project is told what is wrong with it instead, and
    /// an edit that is not valid changes nothing that runs.
    pub fn may_fall_back(&self) -> bool {
        *self == Self::Start
    }

    /// Whether all conversations are listed, since they may be begun anew.
    pub fn begins_anew(&self) -> bool {
        matches!(self, Self::Restart { request, .. } if request.fresh)
    }

    /// What a client says about how the project is run.
    pub fn settings(&self) -> Settings {
        match self {
            Self::Open { settings, .. } => settings.clone(),
            _ => Settings::default(),
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

/// What a client says about how a workspace is run; what it does not say stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether its files are watched.
    pub watch: Option<bool>,
    /// Environment files beside its own.
    pub env_files: Option<Vec<PathBuf>>,
}

/// A workspace, read from disk.
#[derive(Debug)]
pub struct Loaded {
    /// Why it was read.
    pub purpose: LoadPurpose,
    /// The workspace it was read for, if that is known.
    pub workspace_id: Option<WorkspaceId>,
    /// What its configuration was read from, whatever came of it.
    pub sources: Arc<Sources>,
    /// What was found.
    pub result: Result<LoadedWorkspace, ControlError>,
}

/// Why the last known good configuration runs.
#[derive(Debug)]
pub struct Fallback {
    /// What is wrong with the project's own.
    pub error: ControlError,
    /// When the last known good one was taken up.
    pub since: Timestamp,
}

/// What was found on disk of a workspace.
#[derive(Debug)]
pub struct LoadedWorkspace {
    /// Its record.
    pub record: WorkspaceRecord,
    /// The configuration, or what is wrong with it.
    pub bundle: Result<Bundle, ControlError>,
    /// Why the configuration is the last known good one, if it is.
    pub fallback: Option<Fallback>,
    /// Whether the files it was read from may be kept: no secret is written out in them.
    pub may_be_kept: bool,
    /// What replies of models took so far, by its ledger.
    pub accounts: Accounts,
    /// The tool calls of which nobody knows if they had their effect, by its audit log.
    pub unknown_calls: UnknownCalls,
    /// Instances with something to do.
    pub with_work: Vec<WithWork>,
    /// How many events of which instances are parked.
    pub parked: BTreeMap<InstanceKey, u64>,
    /// Every instance, if it is read to begin conversations anew; otherwise none.
    pub to_begin_anew: Vec<Metadata>,
}
