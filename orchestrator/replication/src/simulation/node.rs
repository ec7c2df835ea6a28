//! A node: the shell around the state machines, its memory and its disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::application::EventStep;
use crate::chain::Chain;
use crate::log::{Attempt, PutAnswer, ReadAnswer};
use crate::names::{Hash, Incarnation, NodeId, Position};
use crate::owner::{BatchId, WorkspaceOwner};
use crate::standby::{ApplyFailure, FilesState, Standby};
use crate::tree::MemoryTree;

/// Input that arrives at a node.
#[derive(Debug, Clone)]
pub(super) enum Arrival {
    Put(Attempt, PutAnswer),
    Sealed(Attempt, PutAnswer),
    Looked(Attempt, ReadAnswer),
    Read(Attempt, ReadAnswer),
    Heard(Position),
    Synced(BatchId),
    Event(u64),
    ToolEnded(u64),
    SnapshotKept(Position, Hash),
    Applied(Result<(), ApplyFailure>),
    Tick,
}

/// State of a node that survives a kill.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) chain: Chain,
    pub(super) tree: MemoryTree,
    pub(super) should_be: MemoryTree,
    pub(super) files: FilesState,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum BatchPurpose {
    Line(u64, EventStep),
    Chore,
    Snapshot,
}

/// State of an owner's work.
#[derive(Debug)]
pub(super) struct Ownership {
    pub(super) machine: WorkspaceOwner,
    pub(super) batches: HashMap<BatchId, BatchPurpose>,
    /// Last recorded step of each event, acknowledged or not.
    pub(super) events: BTreeMap<u64, EventStep>,
    pub(super) next_batch: u64,
    /// Number of snapshots in progress.
    pub(super) snapshots: usize,
    /// Positions and hashes of the snapshot records of this life.
    pub(super) begun: BTreeMap<Position, Hash>,
    pub(super) kept: Vec<Position>,
    pub(super) heartbeat_due_ms: u64,
}

#[derive(Debug)]
pub(super) enum SimulatedRole {
    Down,
    Standby(Box<Standby>),
    Owner(Box<Ownership>),
}

#[derive(Debug)]
pub(super) struct SimulatedClusterNode {
    pub(super) id: NodeId,
    pub(super) life: Incarnation,
    pub(super) role: SimulatedRole,
    /// The files as programs see them.
    pub(super) tree: MemoryTree,
    /// The files that the records produce, as checksums would show.
    pub(super) should_be: MemoryTree,
    pub(super) disk: Disk,
    /// The node is paused until this time; input is queued.
    pub(super) paused_until_ms: u64,
    pub(super) waiting: VecDeque<Arrival>,
    /// The node is disconnected until this time.
    pub(super) cut_off_until_ms: u64,
}

impl SimulatedClusterNode {
    pub(super) fn new(id: NodeId, chain: Chain) -> Self {
        let disk = Disk {
            chain,
            tree: MemoryTree::default(),
            should_be: MemoryTree::default(),
            files: FilesState::AsNoted,
        };
        Self {
            id,
            life: Incarnation(0),
            role: SimulatedRole::Down,
            tree: MemoryTree::default(),
            should_be: MemoryTree::default(),
            disk,
            paused_until_ms: 0,
            waiting: VecDeque::new(),
            cut_off_until_ms: 0,
        }
    }

    /// Starts a life with the state on disk.
    pub(super) fn start(&mut self, life: Incarnation, now_ms: u64) {
        self.life = life;
        self.waiting.clear();
        self.tree = self.disk.tree.clone();
        self.should_be = self.disk.should_be.clone();
        let chain = self.disk.chain.clone();
        let standby = Standby::new(self.id.clone(), life, chain, self.disk.files, now_ms);
        self.role = SimulatedRole::Standby(Box::new(standby));
    }

    pub(super) fn owner(&mut self) -> Option<&mut Ownership> {
        match &mut self.role {
            SimulatedRole::Owner(owner) => Some(owner),
            SimulatedRole::Down | SimulatedRole::Standby(_) => None,
        }
    }
}
