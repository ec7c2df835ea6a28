//! Nodes, a log, and the network between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use goondan_protocol::ids::WorkspaceId;

use super::application::{self, EventStep};
use super::node::{Arrival, BatchPurpose, Ownership, SimulatedClusterNode, SimulatedRole};
use super::{Bug, SimulationFaults};
use crate::chain::Chain;
use crate::limits::{HEARTBEAT_MS, READ_RECORDS_MAX};
use crate::log::{Attempt, MemoryLog, PutAnswer, PutRequest, ReadAnswer};
use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::owner::{self, BatchId, OwnershipLoss, WorkspaceOwner};
use crate::placement::KnownNodes;
use crate::record::{Body, LogRecord, SnapshotReference};
use crate::retention::forgettable;
use crate::standby::{self, FilesState, StandbyTrouble};
use crate::tree::MemoryTree;

mod arrivals;
mod log;
mod owners;
mod standbys;

const NODES: usize = 3;
/// Duration of faults, in simulated milliseconds.
const TROUBLED_MS: u64 = 60_000;
/// Time limit for recovery, in simulated milliseconds.
const HEALING_MS: u64 = 200_000;
/// Interval of a node's clock ticks, in milliseconds.
const TICK_MS: u64 = 100;

#[derive(Debug, Clone)]
enum PendingLogRequest {
    Put(Attempt, PutRequest),
    Seal(Attempt, PutRequest),
    Look(Attempt, Position),
    Read(Attempt, Position),
    Trim(Position, Hash),
}

#[derive(Debug, Clone)]
enum SimulatedEvent {
    Asks(usize, Incarnation, PendingLogRequest),
    Arrives(usize, Incarnation, Arrival),
    Client(u64),
    Fault,
}

/// Occurrences per kind of event, to detect runs in which nothing happened.
#[derive(Debug, Default, Clone)]
pub(super) struct EventCoverage(BTreeMap<&'static str, u64>);

impl EventCoverage {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(super) fn is_everything(&self) {
        for what in [
            "acknowledged",
            "taken over",
            "sealed",
            "pause",
            "cut off",
            "kill",
            "altered",
            "log down",
            "lost tail",
            "lost answer",
            "late packet",
            "unknown outcome",
            "made anew",
            "read on",
            "snapshot",
            "forgotten",
            "two owners",
            "refused as behind",
            "found its own",
            "said",
        ] {
            assert!(self.0.contains_key(what), "{what} never happened: {self:?}");
        }
    }
}

pub(super) struct World {
    pub(super) plan: SimulationFaults,
    pub(super) workspace: WorkspaceId,
    pub(super) log: MemoryLog,
    /// All stored records, including truncated ones.
    pub(super) everything: Vec<Vec<u8>>,
    pub(super) nodes: Vec<SimulatedClusterNode>,
    pub(super) acknowledged: BTreeSet<u64>,
    pub(super) tool_runs: HashMap<u64, usize>,
    pub(super) owners: BTreeMap<Epoch, BTreeSet<(usize, u64)>>,
    /// Reports of problems that only a person can fix.
    pub(super) has_said: Vec<String>,
    pub(super) steps: u64,
    pub(super) seen: EventCoverage,
    /// Snapshots; true for those taken after all faults had ended.
    snapshots: HashMap<String, (MemoryTree, bool)>,
    /// Positions of the records of snapshots taken after all faults had ended.
    last_snapshots: BTreeSet<Position>,
    /// Start of the log after each truncation, with the position of the last record at that time.
    trims: Vec<(Position, Position)>,
    placement: KnownNodes,
    rng: fastrand::Rng,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), SimulatedEvent>,
    sequence: u64,
    lives: u64,
    log_down_until_ms: u64,
    events: u64,
    is_healed: bool,
    is_traced: bool,
}

impl World {
    pub(super) fn new(seed: u64, plan: SimulationFaults, is_traced: bool) -> Self {
        let workspace = WorkspaceId::new("w").unwrap();
        let id = |n| NodeId::new(&format!("n{n}")).unwrap();
        let mut placement = KnownNodes::default();
        for n in 0..NODES {
            placement.join(id(n)).unwrap();
        }
        let nodes =
            (0..NODES).map(|n| SimulatedClusterNode::new(id(n), Chain::new(workspace.clone())));
        let mut world = Self {
            plan,
            nodes: nodes.collect(),
            workspace,
            log: MemoryLog::default(),
            everything: Vec::new(),
            acknowledged: BTreeSet::new(),
            tool_runs: HashMap::new(),
            owners: BTreeMap::new(),
            has_said: Vec::new(),
            steps: 0,
            seen: EventCoverage::default(),
            snapshots: HashMap::new(),
            last_snapshots: BTreeSet::new(),
            trims: Vec::new(),
            placement,
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            lives: 0,
            log_down_until_ms: 0,
            events: 0,
            is_healed: false,
            is_traced,
        };
        for n in 0..NODES {
            world.start(n);
        }
        world.after(1, SimulatedEvent::Client(0));
        world.after(3_000, SimulatedEvent::Fault);
        world
    }

    pub(super) fn run(&mut self) {
        while self.now_ms < TROUBLED_MS {
            self.step();
        }
    }

    /// Ends all faults, after which every guarantee must hold.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.log_down_until_ms = 0;
        for n in 0..NODES {
            self.nodes[n].cut_off_until_ms = 0;
            self.nodes[n].paused_until_ms = 0;
            if matches!(self.nodes[n].role, SimulatedRole::Down) {
                self.start(n);
            }
        }
        let until_ms = self.now_ms + HEALING_MS;
        while !self.is_well() {
            let given_up = self.now_ms > until_ms;
            if given_up && self.plan.loses_tails && !self.has_said.is_empty() {
                return;
            }
            assert!(
                !given_up,
                "it does not get well: {:?}",
                self.nodes.iter().map(|it| &it.role).collect::<Vec<_>>()
            );
            self.step();
        }
    }

    /// True if every accepted event is answered, a last snapshot is stored, and all nodes have it.
    fn is_well(&mut self) -> bool {
        let head = self.log.head();
        let mut is_last = false;
        let Some(n) = (0..NODES).rev().find(|n| {
            self.nodes[*n]
                .owner()
                .is_some_and(|it| it.machine.position() == head)
        }) else {
            return false;
        };
        if let Some(owner) = self.nodes[n].owner()
            && owner.machine.is_quiet()
            && owner
                .events
                .values()
                .all(|said| *said == EventStep::Answered)
            && owner.batches.is_empty()
        {
            let last = self
                .everything
                .last()
                .map(|bytes| LogRecord::decode(bytes).unwrap().body);
            is_last = matches!(last, Some(Body::SnapshotKept { at, .. }) if self.last_snapshots.contains(&at));
            if !is_last && owner.snapshots == 0 {
                self.snapshot(n);
            }
        }
        let all_waited = self
            .queue
            .values()
            .all(|what| !matches!(what, SimulatedEvent::Asks(..)));
        is_last
            && all_waited
            && self.nodes.iter().all(|node| match &node.role {
                SimulatedRole::Owner(owner) => owner.machine.position() == head,
                SimulatedRole::Standby(standby) => {
                    standby.chain().position() == head || standby.is_stopped()
                }
                SimulatedRole::Down => false,
            })
    }

    pub(super) fn step(&mut self) {
        let ((at_ms, _), what) = self.queue.pop_first().unwrap();
        self.now_ms = at_ms.max(self.now_ms);
        self.steps += 1;
        self.trace(|| format!("{what:?}"));
        match what {
            SimulatedEvent::Asks(n, life, question) => self.ask(n, life, question),
            SimulatedEvent::Arrives(n, life, arrival) => self.arrive(n, life, arrival),
            SimulatedEvent::Client(event) => self.client(event),
            SimulatedEvent::Fault => self.fault(),
        }
    }

    fn trace(&self, text: impl Fn() -> String) {
        if self.is_traced {
            let text: String = text().chars().take(240).collect();
            eprintln!("{:>7} {text}", self.now_ms);
        }
    }

    fn after(&mut self, ms: u64, what: SimulatedEvent) {
        self.sequence += 1;
        self.queue.insert((self.now_ms + ms, self.sequence), what);
    }

    fn start(&mut self, n: usize) {
        self.lives += 1;
        let life = Incarnation(self.lives);
        let now_ms = self.now_ms;
        self.nodes[n].start(life, now_ms);
        let rank = self
            .placement
            .rank(&self.workspace, &self.nodes[n].id.clone(), None);
        self.standby_input(n, standby::StandbyInput::Rank(rank));
        self.after(TICK_MS, SimulatedEvent::Arrives(n, life, Arrival::Tick));
    }

    /// A client sends an event to a node that claims the workspace, until it is acknowledged.
    fn client(&mut self, event: u64) {
        if event == self.events && !self.is_healed {
            self.events += 1;
            let next = self.rng.u64(50..1_500);
            self.after(next, SimulatedEvent::Client(self.events));
        }
        if event >= self.events || self.acknowledged.contains(&event) {
            return;
        }
        let owners: Vec<_> = (0..NODES)
            .filter(|n| self.nodes[*n].owner().is_some())
            .collect();
        if owners.len() > 1 {
            self.seen.note("two owners");
        }
        if let Some(n) = self.rng.choice(owners) {
            let life = self.nodes[n].life;
            self.after(1, SimulatedEvent::Arrives(n, life, Arrival::Event(event)));
        }
        self.after(2_000, SimulatedEvent::Client(event));
    }

    fn fault(&mut self) {
        if self.is_healed {
            return;
        }
        let n = self.rng.usize(0..NODES);
        let until_ms = self.now_ms + self.rng.u64(100..15_000);
        match self.rng.u8(0..12) {
            0 | 1 => {
                self.seen.note("pause");
                self.nodes[n].paused_until_ms = until_ms;
            }
            2 => {
                self.seen.note("cut off");
                self.nodes[n].cut_off_until_ms = until_ms;
            }
            3 | 4 => self.kill(n),
            5 => self.alter(n),
            6 => {
                self.seen.note("log down");
                self.log_down_until_ms = self.now_ms + self.rng.u64(100..8_000);
            }
            7..10 if self.plan.loses_tails => self.lose_tail(),
            _ => {
                let mut rests = self.nodes.iter_mut().map(SimulatedClusterNode::owner);
                if let Some(n) = rests.position(|it| it.is_some_and(|it| it.snapshots == 0)) {
                    self.snapshot(n);
                }
            }
        }
        let next = self.rng.u64(500..6_000);
        self.after(next, SimulatedEvent::Fault);
    }

    fn kill(&mut self, n: usize) {
        self.seen.note("kill");
        if self.nodes[n].owner().is_some() {
            // Any written data may survive or not: the files of an owner do not match any record.
            let tree = self.nodes[n].tree.clone();
            self.nodes[n].disk.tree = tree;
            self.nodes[n].disk.files = FilesState::PerhapsAhead;
        }
        self.nodes[n].role = SimulatedRole::Down;
        self.nodes[n].paused_until_ms = 0;
        self.start(n);
    }

    /// Changes a byte of a standby's disk.
    fn alter(&mut self, n: usize) {
        let is_mended =
            matches!(&self.nodes[n].role, SimulatedRole::Standby(standby) if standby.mends());
        if !is_mended || self.is_healed {
            return;
        }
        let path = application::path(&format!("d0/f{}", self.rng.u8(0..3)));
        let Some(content) = self.nodes[n].tree.file(&path).filter(|it| !it.is_empty()) else {
            return;
        };
        self.seen.note("altered");
        let mut content = content.to_vec();
        let at = self.rng.usize(0..content.len());
        content[at] ^= 1;
        let node = &mut self.nodes[n];
        for tree in [&mut node.tree, &mut node.disk.tree] {
            for operation in crate::operation::FileOperation::appends(&path, 0, &content) {
                drop(tree.apply(&operation));
            }
        }
    }

    /// The log's server fails over to one without the latest records.
    fn lose_tail(&mut self) {
        // Usually a few records; sometimes enough to include snapshot records.
        let lost_max = if self.rng.bool() { 4 } else { 31 };
        let lost = self.rng.u64(1..lost_max);
        let Some(last) = self
            .log
            .head()
            .0
            .checked_sub(lost)
            .filter(|last| *last > 0)
            .map(Position)
        else {
            return;
        };
        self.seen.note("lost tail");
        let at = |position: Position| usize::try_from(position.0).unwrap();
        self.everything.truncate(at(last));
        // The new server also lacks the latest truncations.
        self.trims.retain(|(head, _)| *head <= last);
        let oldest = self.trims.last().map_or(Position(1), |(_, oldest)| *oldest);
        self.log = MemoryLog::of(oldest, &self.everything[at(oldest) - 1..]);
        // A power failure affects more than one machine.
        if self.rng.u8(0..3) == 0 {
            for n in 0..NODES {
                if self.nodes[n].owner().is_some() {
                    self.kill(n);
                }
            }
        }
    }

    /// Captures the files in their current state, even with records in flight.
    fn snapshot(&mut self, n: usize) {
        let tree = self.nodes[n].tree.clone();
        let name = format!("snapshot {}", self.snapshots.len());
        let reference = SnapshotReference::new(&name).unwrap();
        self.snapshots.insert(name, (tree, self.is_healed));
        let Some(owner) = self.nodes[n].owner() else {
            return;
        };
        owner.next_batch += 1;
        owner.snapshots += 1;
        let id = BatchId(owner.next_batch);
        owner.batches.insert(id, BatchPurpose::Snapshot);
        self.owner_input(n, owner::OwnerInput::Snapshot { id, reference });
        self.owner_input(n, owner::OwnerInput::Synced(id));
    }
}
