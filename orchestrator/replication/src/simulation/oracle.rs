//! Checks after all faults have ended.

use super::application::{self, EventStep};
use super::node::SimulatedRole;
use super::world::World;
use crate::chain::Chain;
use crate::names::Position;
use crate::record::Body;
use crate::tree::MemoryTree;

/// The files that the log produces, from its beginning.
fn made_of(world: &World) -> (Chain, MemoryTree) {
    let mut chain = Chain::new(world.workspace.clone());
    let mut tree = MemoryTree::default();
    for bytes in &world.everything {
        let (record, _) = chain.follow_bytes(bytes.clone()).unwrap();
        if let Body::Operations(operations) = record.body {
            for operation in operations {
                tree.apply(&operation).unwrap();
            }
        }
    }
    (chain, tree)
}

pub(super) fn look(world: &World) {
    let (chain, tree) = made_of(world);
    assert_eq!(
        chain.position(),
        world.log.head(),
        "the log is not one chain"
    );
    let events = application::read(&tree);
    let lost = world
        .acknowledged
        .iter()
        .filter(|event| !events.contains_key(event));
    let lost: Vec<_> = lost.collect();
    if world.plan.loses_tails && !world.has_said.is_empty() {
        // Records lost by a server cannot be recovered; the report of the loss suffices.
        return;
    }
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    for (event, said) in &events {
        let count = |wanted: EventStep| said.iter().filter(|it| **it == wanted).count();
        assert_eq!(
            count(EventStep::Accepted),
            1,
            "event {event} was not accepted exactly once: {said:?}"
        );
        assert_eq!(
            count(EventStep::Answered),
            1,
            "event {event} was not answered exactly once: {said:?}"
        );
        let starts = count(EventStep::Started);
        assert!(
            starts <= 1 + count(EventStep::Unknown),
            "a tool ran again without a report: {said:?}"
        );
        let runs = world.tool_runs.get(event).copied().unwrap_or(0);
        assert!(
            runs <= starts,
            "a tool of event {event} ran {runs} times: {said:?}"
        );
    }
    for (epoch, owners) in &world.owners {
        assert_eq!(owners.len(), 1, "epoch {epoch} has owners {owners:?}");
    }
    assert!(
        world.has_said.is_empty(),
        "a loss was reported, but nothing was lost: {:?}",
        world.has_said
    );
    let digest = tree.digest();
    for node in &world.nodes {
        let position = match &node.role {
            SimulatedRole::Owner(owner) => owner.machine.position(),
            SimulatedRole::Standby(standby) => standby.chain().position(),
            SimulatedRole::Down => Position::START,
        };
        assert_eq!(position, chain.position(), "{} is behind", node.id);
        assert_eq!(node.tree.digest(), digest, "{} has other files", node.id);
    }
}
