//! Heartbeats of nodes for workspaces, compared by counters and never by clocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use goondan_protocol::ids::WorkspaceId;

use crate::limits::{NEAR_RECORDS, NODE_GONE_AFTER_MS, TAKE_OVER_AFTER_MS};
use crate::names::{Epoch, NodeId, Position};
use crate::placement::KnownNodes;
use crate::wire::LastHeartbeat;

#[derive(Debug)]
struct HeartbeatRecord {
    count: u64,
    position: Position,
    /// Epoch in which the node owned the workspace, if it did.
    owned: Option<Epoch>,
    /// Time of the last new heartbeat; `None` if there was none since this node started.
    at_ms: Option<u64>,
}

/// The nodes that a workspace could be moved to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Successors {
    /// Nodes near the end of the log, best first.
    pub near: Vec<NodeId>,
    /// Nodes far behind, and their lag in records.
    pub far_behind: BTreeMap<NodeId, u64>,
}

/// Last heartbeats of nodes.
#[derive(Debug)]
pub(super) struct HeartbeatTable {
    own: NodeId,
    last: HashMap<WorkspaceId, BTreeMap<NodeId, HeartbeatRecord>>,
    /// Time of the last heartbeat of each node, for any workspace.
    nodes: BTreeMap<NodeId, u64>,
}

impl HeartbeatTable {
    pub(super) fn new(own: NodeId) -> Self {
        Self {
            own,
            last: HashMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Records a heartbeat; true if it is new. Heartbeats found at the start may be old, and count
    /// only from the next change on.
    pub(super) fn hear(&mut self, now_ms: u64, heard: &LastHeartbeat) -> bool {
        let (beat, count) = (&heard.beat, heard.count);
        let of_workspace = self.last.entry(beat.workspace.clone()).or_default();
        let before = of_workspace.get(&beat.node);
        let is_new = before.is_some_and(|last| last.count != count);
        let at_ms = if is_new {
            Some(now_ms)
        } else {
            before.and_then(|last| last.at_ms)
        };
        let last = HeartbeatRecord {
            count,
            position: beat.position,
            owned: beat.owns.then_some(beat.epoch),
            at_ms,
        };
        of_workspace.insert(beat.node.clone(), last);
        if is_new {
            self.nodes.insert(beat.node.clone(), now_ms);
        }
        is_new
    }

    /// True if a node's heartbeat for a workspace is recent.
    pub(super) fn is_heard(&self, now_ms: u64, workspace: &WorkspaceId, node: &NodeId) -> bool {
        let last = self.last.get(workspace).and_then(|of| of.get(node));
        let at_ms = last.and_then(|last| last.at_ms);
        at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < TAKE_OVER_AFTER_MS)
    }

    /// True if a node's heartbeat as the owner of a workspace, in this epoch or a later one, is
    /// recent. A node may have died after its seal, before it ran anything.
    pub(super) fn is_heard_as_owner(
        &self,
        now_ms: u64,
        workspace: &WorkspaceId,
        (node, epoch): (&NodeId, Epoch),
    ) -> bool {
        let last = self.last.get(workspace).and_then(|of| of.get(node));
        let owns = last
            .and_then(|last| last.owned)
            .is_some_and(|it| it >= epoch);
        owns && self.is_heard(now_ms, workspace, node)
    }

    /// Nodes that sent heartbeats for a workspace, and their positions.
    pub(super) fn of(&self, workspace: &WorkspaceId) -> BTreeMap<NodeId, Position> {
        let last = self.last.get(workspace).into_iter().flatten();
        let heard = last.filter(|(_, last)| last.at_ms.is_some());
        heard
            .map(|(node, last)| (node.clone(), last.position))
            .collect()
    }

    /// Other live nodes that sent heartbeats for a workspace.
    pub(super) fn followers(&self, now_ms: u64, workspace: &WorkspaceId) -> Vec<NodeId> {
        let is_living = |last: &HeartbeatRecord| {
            let at_ms = last.at_ms;
            at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < NODE_GONE_AFTER_MS)
        };
        let last = self.last.get(workspace).into_iter().flatten();
        let others = last.filter(|(node, last)| **node != self.own && is_living(last));
        others.map(|(node, _)| node.clone()).collect()
    }

    /// Positions of the other live nodes that sent heartbeats for a workspace.
    pub(super) fn living_of(&self, now_ms: u64, workspace: &WorkspaceId) -> Vec<Position> {
        let living: BTreeSet<_> = self.living(now_ms).collect();
        let last = self.last.get(workspace).into_iter().flatten();
        let others = last.filter(|(node, _)| living.contains(node) && **node != self.own);
        others.map(|(_, last)| last.position).collect()
    }

    /// Other nodes with recent heartbeats for a workspace, in order of preference; nodes that are
    /// far behind are separate, with their lag.
    pub(super) fn successors(
        &self,
        now_ms: u64,
        workspace: &WorkspaceId,
        head: Position,
    ) -> Successors {
        let last = self.last.get(workspace).into_iter().flatten();
        let heard =
            last.filter(|(node, _)| **node != self.own && self.is_heard(now_ms, workspace, node));
        let behind: BTreeMap<&NodeId, u64> = heard
            .map(|(node, last)| (node, head.0.saturating_sub(last.position.0)))
            .collect();
        let mut nodes = KnownNodes::default();
        for node in behind.keys() {
            // Nodes beyond the limit are ignored.
            nodes.join((*node).clone()).ok();
        }
        let mut successors = Successors::default();
        for node in nodes.order(workspace) {
            match behind.get(&node) {
                Some(records) if *records > NEAR_RECORDS => {
                    successors.far_behind.insert(node, *records);
                }
                Some(_) | None => successors.near.push(node),
            }
        }
        successors
    }

    /// Number of live nodes, including this one.
    pub(super) fn nodes(&self, now_ms: u64) -> u64 {
        self.living(now_ms).count() as u64
    }

    fn living(&self, now_ms: u64) -> impl Iterator<Item = &NodeId> {
        let is_living = move |at_ms: &u64| now_ms.saturating_sub(*at_ms) < NODE_GONE_AFTER_MS;
        let others = self
            .nodes
            .iter()
            .filter(move |(node, at_ms)| **node != self.own && is_living(at_ms));
        others.map(|(node, _)| node).chain([&self.own])
    }

    /// Number of nodes that try to take a workspace before this one.
    pub(super) fn rank(&self, now_ms: u64, workspace: &WorkspaceId, owner: Option<&NodeId>) -> u64 {
        let mut nodes = KnownNodes::default();
        let own = std::iter::once(&self.own);
        for node in own.chain(self.living(now_ms)) {
            // Nodes beyond the limit are ignored; the seal decides anyway.
            nodes.join(node.clone()).ok();
        }
        nodes.rank(workspace, &self.own, owner).unwrap_or(0)
    }
}
