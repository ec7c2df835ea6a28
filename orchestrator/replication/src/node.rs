//! A node: all workspaces that it owns or follows, and the process by which it accesses the log.
//!
//! Each workspace has a state machine, [`owner::WorkspaceOwner`] or [`standby::Standby`]. This module
//! connects them: it dispatches answers, tracks heartbeats, ranks the candidates for a takeover,
//! and decides when the applied position is noted.
//!
//! A deposed node has children that rely on its ownership, and batches that will never be
//! acknowledged. The only reliable reaction is to exit and restart as a standby
//! ([`NodeEffect::Deposed`]). A node that releases a workspace voluntarily, with nothing in progress
//! ([`NodeInput::Release`]), becomes its standby.
//!
//! # When it takes a workspace over
//!
//! As [`standby::Standby`] does, and immediately if a client opens the workspace here and no other
//! node has it, or if the last owner was an earlier incarnation of this node.

use std::collections::{BTreeMap, HashMap};

use goondan_protocol::ids::WorkspaceId;

use crate::chain::Chain;
use crate::limits::{HEADS_MAX, HEADS_MS, HEARTBEAT_MS, LIST_MS, PROBE_MS, SNAPSHOT_RECORDS};
use crate::log::{Attempt, PutAnswer, ReadAnswer};
use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::operation::FileOperation;
use crate::owner::{self, BatchId, OwnershipLoss};
use crate::record::SnapshotReference;
use crate::standby::{self, ApplyFailure, FilesState, RecordChanges, StandbyTrouble};
use crate::wire::{Beat, LogAnswer, LogCommand, LogRequest, ServerCheck};

mod answers;
mod liveness;
mod places;
mod snapshot_schedule;
mod snapshots;

use liveness::HeartbeatTable;
pub use liveness::Successors;
use places::{HostedWorkspace, WorkspaceRole};

#[derive(Debug, Clone)]
pub enum NodeInput {
    /// A workspace has a log, or files here. `chain` is the position that this node has applied.
    Joined {
        /// Position and workspace of the log.
        chain: Chain,
        files: FilesState,
    },
    /// A client requests the workspace on this node; [`NodeInput::Joined`] came before.
    Wanted(WorkspaceId),
    /// File operations of a batch. The files are synced, or will be before the batch is reported.
    Batch {
        workspace: WorkspaceId,
        batch: BatchId,
        operations: Vec<FileOperation>,
        /// True if a caller waits for the batch.
        is_awaited: bool,
    },
    /// A snapshot of the files of a workspace after all earlier batches. The snapshot is a batch
    /// itself.
    Snapshot {
        workspace: WorkspaceId,
        batch: BatchId,
        /// Name of the stored snapshot.
        reference: SnapshotReference,
    },
    /// A workspace that this node owns must be released: its files no longer change.
    Release {
        workspace: WorkspaceId,
        to: NodeId,
    },
    /// Cancels a release, unless its record was already written.
    Keep(WorkspaceId),
    /// Reports if this node could run a workspace. If not, it does not take the workspace over, and
    /// does not report that it follows it.
    Fit {
        workspace: WorkspaceId,
        /// Reason, if the node cannot run it.
        unfit: Option<String>,
    },
    FilesDone {
        workspace: WorkspaceId,
        outcome: FilesOutcome,
    },
    /// The client of the log has answered [`NodeEffect::Ask`].
    Answered {
        id: u64,
        answer: LogAnswer,
    },
    /// The process has connected or ended; its knowledge of records in doubt ends with it.
    Connected(bool),
    /// A user requests to rebuild the files of a workspace that this node follows.
    Rebuild(WorkspaceId),
    /// Starts or ends draining: the node takes no workspace that another node can take.
    Drains(bool),
    /// A user requests a check of the server's settings.
    Check,
    /// A task that stores or reads a snapshot requests a part from the log.
    Forward {
        id: u64,
        ask: LogCommand,
    },
    Tick,
}

/// Operation on the files of a workspace that another node may own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesWork {
    /// Apply the records after the applied position.
    Apply(Vec<RecordChanges>),
    /// Return the digest of all files.
    Digest,
    /// Check that the files match the records.
    Verify,
    /// Restore the files from a snapshot, or remove all files.
    Restore(Option<SnapshotReference>),
    /// Capture the files of a workspace that this node owns, submit the capture as a batch, and
    /// store it as a snapshot.
    Capture(SnapshotReference),
    /// Durably note the applied position, after all earlier changes. Nothing waits for it.
    Note(Chain),
    /// The seal is in the log: make all changes durable, note that the files may be ahead of the
    /// log from now on, and allow writes to the workspace. With the first record of a log, existing
    /// files become part of the workspace.
    Own(Chain),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesOutcome {
    /// [`FilesWork::Apply`] is done, or the records do not match the files.
    Applied(Result<(), ApplyFailure>),
    /// Result of [`FilesWork::Digest`].
    Digested(Hash),
    /// Result of [`FilesWork::Verify`].
    Verified(bool),
    /// [`FilesWork::Restore`] has ended; false if the files could not be restored.
    Restored(bool),
    /// [`FilesWork::Own`] is done.
    Owned,
    /// All parts of a snapshot are stored; `None` if that failed.
    Captured(SnapshotReference, Option<CapturedSnapshot>),
    /// The disk failed, so the state of the files is unknown. Work on the workspace pauses for
    /// [`crate::limits::LEFT_MS`].
    Failed,
}

/// Captured files that are stored as a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedSnapshot {
    pub digest: Hash,
    pub parts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEffect {
    /// Send a request to the client of the log.
    Ask(LogRequest),
    /// Operate on files. Operations on one workspace are executed in order, together with
    /// [`NodeEffect::Own`].
    Files {
        workspace: WorkspaceId,
        work: FilesWork,
    },
    /// A workspace has a log that this node does not know, or has left: join it.
    Found(WorkspaceId),
    /// This node owns the workspace and must run it.
    Own(WorkspaceId),
    /// The workspace was released: its files match its log up to here.
    Released(Chain),
    /// A batch is in the log.
    Acknowledge(WorkspaceId, BatchId),
    /// A client opens a workspace here that another node owns.
    Elsewhere(WorkspaceId, NodeId),
    /// A client requests the workspace here, but its log has ended: the node that ran it left the
    /// cluster and keeps it.
    LogEnded(WorkspaceId, NodeId),
    /// This node no longer owns the workspace. Exit: children must stop, and no batch may be
    /// acknowledged.
    Deposed(WorkspaceId, NodeExit),
    /// Settings of the server; `None` if they are unknown.
    Checked(Option<Vec<ServerCheck>>),
    /// Answer of the log to [`NodeInput::Forward`]; `None` if the request was not sent, or the answer
    /// is lost.
    Forwarded { id: u64, answer: Option<LogAnswer> },
    /// Report this to the user.
    Say(WorkspaceId, StandbyTrouble),
}

/// Reason why a node must exit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeExit {
    #[error(transparent)]
    Deposed(OwnershipLoss),
    /// A record was offered, and the process that knew the outcome has ended.
    #[error(
        "goondan-replica ended while it appended a record to the log; the outcome is unknown until \
         a node takes the workspace over again"
    )]
    InDoubt,
}

/// Status of a workspace on this node, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceStatus {
    pub workspace: WorkspaceId,
    /// True if this node owns the workspace.
    pub is_owned: bool,
    /// True if a person must decide about this node's files.
    pub is_stopped: bool,
    /// True if this node's disk has failed; the node retries later.
    pub is_failed: bool,
    /// The node that left the cluster and keeps the workspace: the log has ended.
    pub ended_by: Option<NodeId>,
    /// Owner according to the applied log; `None` after a release that no node has taken.
    pub owner: Option<NodeId>,
    /// True if the owner is this node, or has sent a recent heartbeat.
    pub is_owner_heard: bool,
    /// Reason why this node could not run the workspace, and so does not take it over, or passes it
    /// on.
    pub unfit: Option<String>,
    /// The epoch of the last seal.
    pub epoch: Epoch,
    /// Applied position of this node.
    pub position: Position,
    /// Last known end of the log.
    pub head: Position,
    /// Nodes with recent heartbeats, and their positions.
    pub nodes: BTreeMap<NodeId, Position>,
}

/// Reason why the files of a workspace on this node cannot be verified like those of a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStandby {
    /// The node has no files of the workspace.
    #[error("this node has no files of the workspace")]
    Unknown,
    #[error("this node runs the workspace")]
    Owned,
    /// The files are being rebuilt.
    #[error("this node is rebuilding its files of the workspace from the log")]
    Rebuilding,
    #[error("this node's disk has failed; it retries the workspace in some seconds")]
    Failed,
}

#[derive(Debug, Clone)]
enum RequestOrigin {
    Put(WorkspaceId, Attempt),
    Look(WorkspaceId, Attempt),
    Read(WorkspaceId, Attempt),
    Seal(WorkspaceId, Attempt),
    Heads,
    List,
    Beat,
    Check,
    Standing,
    Probe(u64),
    Trim(WorkspaceId),
    ForgetSnapshots,
    Forwarded(u64),
}

impl RequestOrigin {
    /// Workspace whose state machine waits for the answer.
    fn workspace(&self) -> Option<&WorkspaceId> {
        match self {
            Self::Put(workspace, _)
            | Self::Look(workspace, _)
            | Self::Read(workspace, _)
            | Self::Seal(workspace, _) => Some(workspace),
            Self::Heads
            | Self::List
            | Self::Beat
            | Self::Check
            | Self::Standing
            | Self::Probe(_)
            | Self::Trim(_)
            | Self::ForgetSnapshots
            | Self::Forwarded(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct ReplicationNode {
    id: NodeId,
    life: Incarnation,
    places: BTreeMap<WorkspaceId, HostedWorkspace>,
    asked: HashMap<u64, RequestOrigin>,
    requests: u64,
    is_connected: bool,
    /// Last reported reason why the log's server does not answer.
    trouble: Option<String>,
    /// Time since which the server has not confirmed a probe's commit.
    unconfirmed_since_ms: Option<u64>,
    probe_due_ms: u64,
    drains: bool,
    snapshot_records: u64,
    hearing: HeartbeatTable,
    /// Time of the last input.
    now_ms: u64,
    heads_due_ms: u64,
    beat_due_ms: u64,
    list_due_ms: u64,
    effects: Vec<NodeEffect>,
}

impl ReplicationNode {
    /// A node without workspaces and without a connection. `life` is random.
    #[must_use]
    pub fn new(id: NodeId, life: Incarnation, now_ms: u64) -> Self {
        Self {
            hearing: HeartbeatTable::new(id.clone()),
            id,
            life,
            places: BTreeMap::new(),
            asked: HashMap::new(),
            requests: 0,
            is_connected: false,
            trouble: None,
            unconfirmed_since_ms: None,
            probe_due_ms: now_ms.saturating_add(PROBE_MS),
            drains: false,
            snapshot_records: SNAPSHOT_RECORDS,
            now_ms,
            heads_due_ms: now_ms,
            beat_due_ms: now_ms,
            list_due_ms: now_ms,
            effects: Vec::new(),
        }
    }

    /// Sets the number of records between snapshots, instead of [`SNAPSHOT_RECORDS`].
    #[must_use]
    pub fn with_snapshots_after(mut self, records: u64) -> Self {
        self.snapshot_records = records;
        self
    }

    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.id
    }

    /// True if the log can be reached.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// True if the node is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drains
    }

    /// The nodes that a workspace which this node owns can be moved to; none if it does not own it.
    #[must_use]
    pub fn successors(&self, now_ms: u64, workspace: &WorkspaceId) -> Option<Successors> {
        let place = self.places.get(workspace)?;
        let WorkspaceRole::Owner(owner) = &place.role else {
            return None;
        };
        let head = owner.chain().position();
        Some(self.hearing.successors(now_ms, workspace, head))
    }

    /// Other nodes with recent heartbeats as followers of a workspace.
    #[must_use]
    pub fn followers(&self, now_ms: u64, workspace: &WorkspaceId) -> Vec<NodeId> {
        self.hearing.followers(now_ms, workspace)
    }

    /// True if this node has joined a workspace's log.
    #[must_use]
    pub fn knows(&self, workspace: &WorkspaceId) -> bool {
        self.places.contains_key(workspace)
    }

    /// Checks that this node is a standby whose files match a record.
    ///
    /// # Errors
    ///
    /// [`NotStandby`] if they do not.
    pub fn follows(&self, workspace: &WorkspaceId) -> Result<(), NotStandby> {
        let place = self.places.get(workspace).ok_or(NotStandby::Unknown)?;
        match &place.role {
            WorkspaceRole::Standby(standby) if standby.is_rebuilding() => {
                Err(NotStandby::Rebuilding)
            }
            WorkspaceRole::Standby(_) => Ok(()),
            WorkspaceRole::Owner(_) | WorkspaceRole::TakingOver { .. } => Err(NotStandby::Owned),
            WorkspaceRole::Left { .. } => Err(NotStandby::Failed),
        }
    }

    #[must_use]
    pub fn standings(&self) -> Vec<WorkspaceStatus> {
        let places = self.places.iter();
        places
            .map(|(workspace, place)| {
                let chain = place.chain();
                let owner = chain.owner().filter(|owner| owner.released.is_none());
                let owner = owner.map(|owner| &owner.node);
                let is_heard = |owner: &NodeId| {
                    let owner = (owner, chain.epoch());
                    self.hearing
                        .is_heard_as_owner(self.now_ms, workspace, owner)
                };
                WorkspaceStatus {
                    workspace: workspace.clone(),
                    is_owned: place.is_owned(),
                    is_stopped: place.is_stopped(),
                    is_failed: place.is_failed(),
                    ended_by: chain.ended_by().cloned(),
                    owner: owner.cloned(),
                    is_owner_heard: place.is_owned() || owner.is_some_and(is_heard),
                    unfit: place.unfit.clone(),
                    epoch: chain.epoch(),
                    position: chain.position(),
                    head: place.head.max(chain.position()),
                    nodes: self.hearing.of(workspace),
                }
            })
            .collect()
    }

    /// Owned workspaces: the last confirmed state of each log, and true if nothing is in flight, so
    /// that the files match the log.
    pub fn owned(&self) -> impl Iterator<Item = (&Chain, bool)> {
        self.places.values().filter_map(|place| match &place.role {
            WorkspaceRole::Owner(owner) => Some((owner.chain(), owner.is_quiet())),
            WorkspaceRole::Standby(_)
            | WorkspaceRole::TakingOver { .. }
            | WorkspaceRole::Left { .. } => None,
        })
    }

    /// Owned workspaces whose logs do not confirm records or probes, and since when. New events
    /// cannot be acknowledged there.
    pub fn unanswered(&self) -> impl Iterator<Item = (&WorkspaceId, u64)> {
        let places = self.places.iter();
        places.filter_map(|(workspace, place)| match &place.role {
            WorkspaceRole::Owner(owner) => {
                let since = owner.unanswered_since_ms().into_iter();
                let since_ms = since.chain(self.unconfirmed_since_ms).min()?;
                Some((workspace, since_ms))
            }
            WorkspaceRole::Standby(_)
            | WorkspaceRole::TakingOver { .. }
            | WorkspaceRole::Left { .. } => None,
        })
    }

    /// Known reason why the log's server does not answer; `None` without problems.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        if self.is_connected {
            self.trouble.as_deref()
        } else {
            Some("goondan-replica, which connects to the log's server, is not running")
        }
    }

    /// Latest time for the next [`NodeInput::Tick`], in milliseconds of the caller's clock.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        let own = [
            self.heads_due_ms,
            self.beat_due_ms,
            self.list_due_ms,
            self.probe_due_ms,
        ];
        let places = self.places.values().filter_map(HostedWorkspace::due_ms);
        places.chain(own).min().unwrap_or(0)
    }

    /// Handles an input at a time, in monotonic milliseconds; returns the effects, in order.
    pub fn handle(&mut self, now_ms: u64, input: NodeInput) -> Vec<NodeEffect> {
        self.now_ms = now_ms;
        match input {
            NodeInput::Joined { chain, files } => self.joined(now_ms, chain, files),
            NodeInput::Wanted(workspace) => self.wanted(now_ms, &workspace),
            NodeInput::Batch {
                workspace,
                batch: id,
                operations,
                is_awaited,
            } => {
                let bytes = operations.iter().map(FileOperation::encoded_bytes_max);
                if let Some(place) = self.places.get_mut(&workspace) {
                    place.snapshots.wrote(bytes.sum());
                }
                // The caller syncs its files before it reports the batch.
                let input = owner::OwnerInput::Batch {
                    id,
                    operations,
                    is_awaited,
                };
                self.tell_owner(now_ms, &workspace, input);
                self.tell_owner(now_ms, &workspace, owner::OwnerInput::Synced(id));
            }
            NodeInput::Snapshot {
                workspace,
                batch: id,
                reference,
            } => {
                let input = owner::OwnerInput::Snapshot { id, reference };
                self.tell_owner(now_ms, &workspace, input);
                self.tell_owner(now_ms, &workspace, owner::OwnerInput::Synced(id));
            }
            NodeInput::Release { workspace, to } => self.release(now_ms, &workspace, to),
            NodeInput::Keep(workspace) => self.keep(now_ms, &workspace),
            NodeInput::Fit { workspace, unfit } => {
                if let Some(place) = self.places.get_mut(&workspace) {
                    place.unfit = unfit;
                }
                self.rank_of(now_ms, &workspace);
            }
            NodeInput::FilesDone { workspace, outcome } => {
                self.files_done(now_ms, &workspace, outcome);
            }
            NodeInput::Answered { id, answer } => self.answered(now_ms, id, answer),
            NodeInput::Rebuild(workspace) => {
                self.tell_standby(now_ms, &workspace, standby::StandbyInput::Rebuild);
            }
            NodeInput::Connected(is_so) => self.connected(now_ms, is_so),
            NodeInput::Drains(is_so) => {
                self.drains = is_so;
                self.rank(now_ms);
            }
            NodeInput::Check => {
                if !self.ask(RequestOrigin::Check, LogCommand::Check) {
                    self.effects.push(NodeEffect::Checked(None));
                }
            }
            NodeInput::Forward { id, ask } => {
                if !self.ask(RequestOrigin::Forwarded(id), ask) {
                    self.effects
                        .push(NodeEffect::Forwarded { id, answer: None });
                }
            }
            NodeInput::Tick => self.tick(now_ms),
        }
        std::mem::take(&mut self.effects)
    }

    fn tick(&mut self, now_ms: u64) {
        let due = |place: &HostedWorkspace| place.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let due: Vec<WorkspaceId> = self
            .places
            .iter()
            .filter(|(_, place)| due(place))
            .map(|(workspace, _)| workspace.clone())
            .collect();
        for workspace in due {
            self.tell_owner(now_ms, &workspace, owner::OwnerInput::Tick);
            self.tell_standby(now_ms, &workspace, standby::StandbyInput::Tick);
            self.note_if_due(now_ms, &workspace);
            self.begin_anew(now_ms, &workspace);
        }
        if self.heads_due_ms <= now_ms {
            self.heads_due_ms = now_ms.saturating_add(HEADS_MS);
            self.ask_for_heads();
            self.ask(RequestOrigin::Standing, LogCommand::Standing);
        }
        if self.beat_due_ms <= now_ms {
            self.beat_due_ms = now_ms.saturating_add(HEARTBEAT_MS);
            self.beat();
        }
        if self.list_due_ms <= now_ms {
            let is_asked = self.ask(RequestOrigin::List, LogCommand::List { after: None });
            let next_ms = if is_asked { LIST_MS } else { HEADS_MS };
            self.list_due_ms = now_ms.saturating_add(next_ms);
        }
        if self.probe_due_ms <= now_ms {
            self.probe_due_ms = now_ms.saturating_add(PROBE_MS);
            self.probe(now_ms);
        }
    }

    /// Checks that the server confirms commits, if this node owns a workspace and has written
    /// nothing lately: a server that answers reads may have lost the standby whose confirmation it
    /// needs.
    fn probe(&mut self, now_ms: u64) {
        let owns = |place: &HostedWorkspace| matches!(place.role, WorkspaceRole::Owner(_));
        if self.places.values().any(owns) {
            self.ask(RequestOrigin::Probe(now_ms), LogCommand::Probe);
        } else {
            self.unconfirmed_since_ms = None;
        }
    }

    fn ask_for_heads(&mut self) {
        let names: Vec<WorkspaceId> = self.places.keys().cloned().collect();
        for some in names.chunks(HEADS_MAX) {
            self.ask(RequestOrigin::Heads, LogCommand::Heads(some.to_vec()));
        }
    }

    /// Sends heartbeats for each workspace that this node owns or could run; while draining, only
    /// for owned ones, so that no node waits for it.
    fn beat(&mut self) {
        let drains = self.drains;
        let heard = self.places.iter().filter_map(|(workspace, place)| {
            let chain = place.chain();
            let owns = place.is_owned();
            let is_idle = place.is_stopped() || place.is_failed();
            let could_run = !drains && place.unfit.is_none();
            (!is_idle && (owns || could_run)).then(|| Beat {
                workspace: workspace.clone(),
                node: self.id.clone(),
                life: self.life,
                epoch: chain.epoch(),
                position: chain.position(),
                owns,
            })
        });
        let beats: Vec<Beat> = heard.collect();
        for some in beats.chunks(HEADS_MAX) {
            self.ask(RequestOrigin::Beat, LogCommand::Beat(some.to_vec()));
        }
    }

    /// Sends a request if connected. Otherwise the caller must handle the failure.
    fn ask(&mut self, asked: RequestOrigin, ask: LogCommand) -> bool {
        if self.is_connected {
            self.requests += 1;
            let id = self.requests;
            self.asked.insert(id, asked);
            self.effects.push(NodeEffect::Ask(LogRequest { id, ask }));
        }
        self.is_connected
    }

    fn connected(&mut self, now_ms: u64, is_so: bool) {
        self.is_connected = is_so;
        let asked = std::mem::take(&mut self.asked);
        if is_so {
            (self.heads_due_ms, self.beat_due_ms) = (now_ms, now_ms);
            self.list_due_ms = now_ms;
            return self.tick(now_ms);
        }
        for question in asked.into_values() {
            match question {
                RequestOrigin::Put(workspace, _) => self.in_doubt(&workspace),
                RequestOrigin::Look(workspace, attempt) => {
                    // Its state machine checks whether an offered record is stored.
                    self.in_doubt(&workspace);
                    let none = owner::OwnerInput::Looked(attempt, ReadAnswer::Unavailable);
                    self.tell_owner(now_ms, &workspace, none);
                }
                RequestOrigin::Read(workspace, attempt) => {
                    let none = standby::StandbyInput::Read(attempt, ReadAnswer::Unavailable);
                    self.tell_standby(now_ms, &workspace, none);
                }
                RequestOrigin::Seal(workspace, attempt) => {
                    let none = standby::StandbyInput::Sealed(attempt, PutAnswer::Unknown);
                    self.tell_standby(now_ms, &workspace, none);
                }
                RequestOrigin::Check => self.effects.push(NodeEffect::Checked(None)),
                RequestOrigin::Forwarded(id) => {
                    self.effects
                        .push(NodeEffect::Forwarded { id, answer: None });
                }
                RequestOrigin::Trim(workspace) => self.trim_ended(&workspace),
                RequestOrigin::Heads
                | RequestOrigin::List
                | RequestOrigin::Beat
                | RequestOrigin::Standing
                | RequestOrigin::Probe(_)
                | RequestOrigin::ForgetSnapshots => {}
            }
        }
    }

    /// The process that knew the outcome of an owner's record has ended.
    fn in_doubt(&mut self, workspace: &WorkspaceId) {
        let Some(place) = self.places.get_mut(workspace) else {
            return;
        };
        if matches!(&place.role, WorkspaceRole::Owner(owner) if !owner.is_quiet()) {
            place.leave(None);
            let ended = NodeEffect::Deposed(workspace.clone(), NodeExit::InDoubt);
            self.effects.push(ended);
        }
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
