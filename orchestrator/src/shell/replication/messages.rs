//! Messages between the threads of replication, and their waiters.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use goondan_protocol::control::{ControlError, NodesCheck, NodesPage, Verification};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::LogBatch;
use goondan_replication::chain::Chain;
use goondan_replication::names::NodeId;
use goondan_replication::node::{FilesOutcome, FilesWork, Successors};
use goondan_replication::standby::FilesState;
use goondan_replication::wire::{LogAnswer, LogCommand, LogRequest, LogResponse};
use tokio::sync::mpsc;

use crate::limits::ACQUIRE_TIMEOUT_MS;

/// Reason why this node does not own a workspace.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::shell) enum NotOwner {
    /// Another node owns it, and sends heartbeats.
    #[error("node {0} runs this workspace")]
    Elsewhere(NodeId),
    #[error(
        "node {0} left the other nodes and keeps this workspace: its log has ended, and no other node can run it"
    )]
    LogEnded(NodeId),
    /// The log did not answer, or has not decided.
    #[error("failed to take over the workspace within {} s: {why}", ACQUIRE_TIMEOUT_MS / 1_000)]
    Undecided { why: &'static str },
}

/// Waits until this node owns a workspace.
pub(super) type OwnershipWaiter = Sender<Result<(), NotOwner>>;

/// Waits for the result of a verification.
pub(super) type Verifier = Sender<Result<Verification, ControlError>>;

/// Message to the thread of the machine.
#[derive(Debug)]
pub(super) enum Message {
    /// A batch is for its workspace's log.
    HandedOver(LogBatch),
    /// The process that connects to the log is ready for requests.
    Connected(mpsc::UnboundedSender<LogRequest>),
    Disconnected,
    Answered(LogResponse),
    /// Applied position of a workspace's log; `is_wanted` if the local files are in no log yet.
    Joined {
        chain: Chain,
        files: FilesState,
        is_wanted: bool,
    },
    /// Something was done with files.
    FilesDone(WorkspaceId, FilesOutcome),
    /// A workspace is wanted here.
    Acquire {
        workspace: WorkspaceId,
        answer: OwnershipWaiter,
    },
    /// Files of a followed workspace were verified.
    Verified {
        workspace: WorkspaceId,
        found: Result<Verification, ControlError>,
        answer: Verifier,
    },
    /// Result of a fitness check: the reason why this node could not run a workspace, or `None`.
    Fit(WorkspaceId, Option<String>),
    /// The release of a workspace was canceled: it runs here again.
    Keep(WorkspaceId),
    Asked(ReplicationCommand),
    /// The daemon is stopping, and does not wait for a log that does not answer.
    Stopping,
    /// There are no more writes: the thread must end when the log has everything.
    Stop(Sender<()>),
}

/// Requests of clients, and of the threads that copy snapshots.
#[derive(Debug)]
pub(super) enum ReplicationCommand {
    /// A request to the log for a snapshot's part.
    Forward {
        ask: LogCommand,
        /// Gets `None` if the request was not sent, or the answer is lost.
        answer: Sender<Option<LogAnswer>>,
    },
    /// List the nodes to which an owned workspace can be moved, best first; `None` if this node
    /// does not own it.
    Successors(WorkspaceId, Sender<Option<Successors>>),
    /// A workspace no longer runs here: release it to another node.
    Release(Release),
    Drains(bool),
    /// List the other nodes with recent heartbeats for a workspace.
    Followers(WorkspaceId, Sender<Vec<NodeId>>),
    /// This node leaves the others.
    Leave(LeaveCluster),
    /// Verify the files of a workspace that another node runs.
    Verify(WorkspaceId, Verifier),
    /// Return the status of everything.
    List(Sender<NodesPage>),
    /// Check the settings of the log's server.
    Check(Sender<NodesCheck>),
}

#[derive(Debug)]
pub(super) struct Release {
    pub(super) workspace: WorkspaceId,
    pub(super) to: NodeId,
    /// Gets true after the release, or immediately false if a change has not reached the log yet.
    pub(super) answer: Sender<bool>,
}

/// This node leaves the cluster: no log is followed any longer.
#[derive(Debug)]
pub(super) struct LeaveCluster {
    /// The workspaces that it runs on without a log.
    pub(super) keeps: BTreeSet<WorkspaceId>,
    /// Gets true if everything else was moved away.
    pub(super) answer: Sender<bool>,
}

/// Work for the thread that changes files.
#[derive(Debug)]
pub(super) enum FilesJob {
    /// Determine the applied position of a workspace's log.
    Join(WorkspaceId),
    Work(WorkspaceId, FilesWork),
    /// Look whether the files of a workspace are as they were written.
    Verify(WorkspaceId, Verifier),
    /// This node owns the workspace: notify the waiters, or run it.
    Start {
        workspace: WorkspaceId,
        waiters: Vec<OwnershipWaiter>,
        /// True if this node did not own it before.
        is_new: bool,
    },
    /// The files match the log: note that.
    Leave(Chain),
    /// This node leaves the others: put away the files of workspaces that it does not keep, and every note.
    PutAway(LeaveCluster),
    /// End, and confirm it.
    End(Sender<()>),
}
