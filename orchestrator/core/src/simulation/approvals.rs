//! Users who approve and deny agents' calls, sometimes two at once (`STEER-3`).

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::{ApprovalInfo, Call, DecideApproval, ListApprovals};

use super::oracle::SimulatedRequest;
use super::workspace_id;
use super::world::World;

fn decide(world: &mut World, info: &ApprovalInfo, decision: ApprovalDecision) {
    let call = Call::DecideApproval(DecideApproval {
        workspace_id: info.workspace_id.clone(),
        approval_id: info.approval_id.clone(),
        decision,
        reason: None,
        input: None,
        always: None,
    });
    world.ask(
        SimulatedRequest::Decide(info.approval_id.clone(), decision),
        call,
    );
}

/// Lists the pending approvals.
pub(super) fn look(world: &mut World) {
    let list = ListApprovals {
        workspace_id: Some(workspace_id(world)),
        ..ListApprovals::default()
    };
    world.ask(SimulatedRequest::ListApprovals, Call::ListApprovals(list));
}

/// Decides some of the listed approvals. They may already be over.
pub(super) fn decide_some(world: &mut World) {
    for info in std::mem::take(&mut world.waiting_calls) {
        for _ in 0..world.rng.u64(0..3) {
            let decision = match world.rng.bool() {
                true => ApprovalDecision::Approved,
                false => ApprovalDecision::Denied,
            };
            decide(world, &info, decision);
        }
    }
    if world.rng.bool() {
        look(world);
    }
}

pub(super) fn decide_all(world: &mut World) {
    for info in std::mem::take(&mut world.waiting_calls) {
        // Another approval of a client would have no effect.
        let first = info.first_approval.as_ref();
        let decision = match first.is_some_and(|first| first.by.is_none()) {
            true => ApprovalDecision::Denied,
            false => ApprovalDecision::Approved,
        };
        decide(world, &info, decision);
    }
    look(world);
}
