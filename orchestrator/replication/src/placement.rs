//! Preferred nodes of a workspace. This is only a preference, because the seal decides.
//!
//! Rendezvous hashing: each node gets a number for each workspace, and nodes try in the order of
//! these numbers. Every node computes the same order independently. When a node joins or leaves,
//! only the workspaces that it gets or had move.

use std::collections::BTreeSet;

use goondan_protocol::ids::WorkspaceId;

use crate::limits::NODES_MAX;
use crate::names::{Hash, NodeId};

/// The known nodes, and which of them are draining.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNodes {
    known: BTreeSet<NodeId>,
    draining: BTreeSet<NodeId>,
}

/// The maximum number of nodes is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{NODES_MAX} nodes exist already; remove one before another joins")]
pub struct TooManyNodes;

impl KnownNodes {
    /// Adds a node. A known node is unchanged.
    ///
    /// # Errors
    ///
    /// [`TooManyNodes`].
    pub fn join(&mut self, node: NodeId) -> Result<(), TooManyNodes> {
        if self.known.len() >= NODES_MAX && !self.known.contains(&node) {
            return Err(TooManyNodes);
        }
        self.known.insert(node);
        Ok(())
    }

    pub fn leave(&mut self, node: &NodeId) {
        self.known.remove(node);
        self.draining.remove(node);
    }

    /// Sets or clears draining: a draining node should have no workspaces.
    pub fn drain(&mut self, node: &NodeId, drains: bool) {
        if drains && self.known.contains(node) {
            self.draining.insert(node.clone());
        } else {
            self.draining.remove(node);
        }
    }

    /// True if a node is draining.
    #[must_use]
    pub fn is_draining(&self, node: &NodeId) -> bool {
        self.draining.contains(node)
    }

    /// Order in which nodes try to own a workspace. Draining nodes come last, because a workspace
    /// on a draining node is better than a workspace on none.
    #[must_use]
    pub fn order(&self, workspace: &WorkspaceId) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.known.iter().collect();
        nodes.sort_by_cached_key(|node| {
            let draw = Hash::of(format!("{workspace}\n{node}").as_bytes());
            (self.is_draining(node), draw)
        });
        nodes.into_iter().cloned().collect()
    }

    /// Number of nodes that try before this one when `owner` is gone; `None` if the node is
    /// unknown.
    #[must_use]
    pub fn rank(
        &self,
        workspace: &WorkspaceId,
        node: &NodeId,
        owner: Option<&NodeId>,
    ) -> Option<u64> {
        let order = self.order(workspace);
        let others = order
            .iter()
            .filter(|other| Some(*other) != owner || *other == node);
        let before = others.take_while(|other| *other != node).count();
        self.known.contains(node).then_some(before as u64)
    }

    /// The node to which a draining owner releases a workspace; `None` if there is no better one.
    #[must_use]
    pub fn successor(&self, workspace: &WorkspaceId, owner: &NodeId) -> Option<NodeId> {
        if !self.is_draining(owner) {
            return None;
        }
        let mut order = self.order(workspace).into_iter();
        order.find(|node| node != owner && !self.is_draining(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn nodes(names: &[&str]) -> KnownNodes {
        let mut nodes = KnownNodes::default();
        for name in names {
            nodes.join(node(name)).unwrap();
        }
        nodes
    }

    fn workspaces() -> impl Iterator<Item = WorkspaceId> {
        (0..300).map(|n| WorkspaceId::new(format!("w{n}")).unwrap())
    }

    #[test]
    fn nodes_share_workspaces_and_a_leaving_node_moves_only_its_own() {
        let all = nodes(&["a", "b", "c"]);
        let mut fewer = all.clone();
        fewer.leave(&node("b"));
        let mut had = 0;
        for workspace in workspaces() {
            let (before, after) = (all.order(&workspace), fewer.order(&workspace));
            had += u64::from(before[0] == node("b"));
            if before[0] != node("b") {
                assert_eq!(before[0], after[0]);
            }
        }
        assert!((60..140).contains(&had), "{had} of 300");
    }

    #[test]
    fn draining_node_ranks_last_and_hands_over_its_workspaces() {
        let mut nodes = nodes(&["a", "b", "c"]);
        for workspace in workspaces() {
            assert_eq!(nodes.successor(&workspace, &node("b")), None);
        }
        nodes.drain(&node("b"), true);
        for workspace in workspaces() {
            let order = nodes.order(&workspace);
            assert_eq!(order[2], node("b"));
            assert_eq!(
                nodes.successor(&workspace, &node("b")),
                Some(order[0].clone())
            );
            assert_eq!(nodes.rank(&workspace, &order[1], Some(&order[0])), Some(0));
            assert_eq!(nodes.rank(&workspace, &order[1], None), Some(1));
            assert_eq!(nodes.rank(&workspace, &node("x"), None), None);
        }
        for other in ["a", "c"] {
            nodes.drain(&node(other), true);
        }
        let workspace = workspaces().next().unwrap();
        assert_eq!(
            nodes.successor(&workspace, &node("b")),
            None,
            "no node is better"
        );
        assert_eq!(nodes.order(&workspace).len(), 3);
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let mut nodes = KnownNodes::default();
        for n in 0..NODES_MAX {
            nodes.join(node(&format!("n{n}"))).unwrap();
        }
        assert_eq!(nodes.join(node("one-more")), Err(TooManyNodes));
        nodes.join(node("n0")).unwrap();
    }
}
