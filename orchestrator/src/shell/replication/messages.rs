//! What the threads of replication say to each other, and who waits for them.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use goondan_protocol::control::{ControlError, NodesCheck, NodesPage, Verification};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::HandedOver;
use goondan_replication::chain::Chain;
use goondan_replication::names::NodeId;
use goondan_replication::node::{FilesWork, Outcome, Successors};
use goondan_replication::standby::Files;
use goondan_replication::wire::{Answer, Ask, Request, Response};
use tokio::sync::mpsc;

use crate::limits::ACQUIRE_TIMEOUT_MS;

/// Why a workspace is not here.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::shell) enum NotHere {
    /// Another node owns it, and was heard.
    #[error("node {0} runs this workspace")]
    Elsewhere(NodeId),
    /// Its log has ended.
    #[error(
        "node {0} left the other nodes and keeps this workspace: its log has ended, and no other node runs it any more"
    )]
    LogEnded(NodeId),
    /// The log was not asked, or has not decided.
    #[error("the workspace could not be taken over within {} s: {why}", ACQUIRE_TIMEOUT_MS / 1_000)]
    Undecided {
        /// What it waits for.
        why: &'static str,
    },
}

/// Whoever waits for a workspace to be this node's.
pub(super) type Waiter = Sender<Result<(), NotHere>>;

/// Whoever waits to hear what was found of files.
pub(super) type Verifier = Sender<Result<Verification, ControlError>>;

/// What comes to the thread that knows how all workspaces stand.
#[derive(Debug)]
pub(super) enum Message {
    /// A batch is for its workspace's log.
    HandedOver(HandedOver),
    /// The program that speaks to the log is there, and takes requests.
    Connected(mpsc::UnboundedSender<Request>),
    /// It is gone.
    Disconnected,
    /// It has answered.
    Answered(Response),
    /// How far a workspace's log was followed here; `is_wanted` if what is here is in no log yet.
    Joined {
        chain: Chain,
        files: Files,
        is_wanted: bool,
    },
    /// Something was done with files.
    FilesDone(WorkspaceId, Outcome),
    /// A workspace is wanted here.
    Acquire {
        workspace: WorkspaceId,
        answer: Waiter,
    },
    /// Files of a workspace that this node stands by for were looked at.
    Verified {
        workspace: WorkspaceId,
        found: Result<Verification, ControlError>,
        answer: Verifier,
    },
    /// Whether this node could run a workspace was looked at: why not, if it could not.
    Fit(WorkspaceId, Option<String>),
    /// A workspace was not given up after all: it is to run here again.
    Keep(WorkspaceId),
    /// Somebody asks, or wants something.
    Asked(Asked),
    /// The daemon is to end, and does not wait for a log that does not answer.
    Stopping,
    /// Nothing is written any more: the thread is to end when the log has all.
    Stop(Sender<()>),
}

/// What clients ask for, and those who copy snapshots.
#[derive(Debug)]
pub(super) enum Asked {
    /// Whoever keeps or reads a snapshot asks the log.
    Forward {
        ask: Ask,
        /// None is told if the log was not asked, or the answer is lost.
        answer: Sender<Option<Answer>>,
    },
    /// Which nodes a workspace of this one can be moved to is asked: the best first, none if it is not this node's.
    Successors(WorkspaceId, Sender<Option<Successors>>),
    /// Nothing of a workspace runs any more: another node is to have it.
    Release(Release),
    /// Whether this node is to take no workspace that another can take.
    Drains(bool),
    /// Which other nodes were lately heard to follow a workspace is asked.
    Followers(WorkspaceId, Sender<Vec<NodeId>>),
    /// This node leaves the others.
    Leave(Leave),
    /// The files of a workspace that another node runs are to be looked at.
    Verify(WorkspaceId, Verifier),
    /// How all stands is asked.
    List(Sender<NodesPage>),
    /// How the logs' server is set is asked.
    Check(Sender<NodesCheck>),
}

/// A workspace is to be given up.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) workspace: WorkspaceId,
    pub(super) to: NodeId,
    /// Told when it is; at once, that it is not, if something of it is still on its way to the log.
    pub(super) answer: Sender<bool>,
}

/// This node leaves the others: nothing is followed any more.
#[derive(Debug)]
pub(super) struct Leave {
    /// The workspaces that it runs on without a log.
    pub(super) keeps: BTreeSet<WorkspaceId>,
    /// Told whether all else is put away.
    pub(super) answer: Sender<bool>,
}

/// What the thread is to do that changes files.
#[derive(Debug)]
pub(super) enum Job {
    /// Look how far a workspace's log was followed here.
    Join(WorkspaceId),
    /// Change files, or look at them.
    Work(WorkspaceId, FilesWork),
    /// Look whether the files of a workspace are as they were written.
    Verify(WorkspaceId, Verifier),
    /// The workspace is this node's: tell whoever waits for it, or run it.
    Start {
        /// Which.
        workspace: WorkspaceId,
        /// Who waits.
        waiters: Vec<Waiter>,
        /// Whether it was not this node's before.
        is_new: bool,
    },
    /// The files are what the log says: note it.
    Leave(Chain),
    /// This node leaves the others: put away the files of workspaces that it does not keep, and every note.
    PutAway(Leave),
    /// End, and say so.
    End(Sender<()>),
}
