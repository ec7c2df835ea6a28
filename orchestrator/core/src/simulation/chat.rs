//! The chat of a connection that shows pending approvals with buttons (`STEER-3`).

use std::collections::{BTreeSet, HashMap};

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::decision::DecisionsFollow;
use goondan_protocol::ids::{ApprovalId, DecisionId};

/// Button presses of one process that wait for a verdict, by request: the call, the decision and
/// the user.
pub(super) type PendingPresses = HashMap<u64, (ApprovalId, ApprovalDecision, &'static str)>;

/// The calls whose messages have buttons. Survives the connection's processes.
#[derive(Debug, Default)]
pub(super) struct Chat(BTreeSet<ApprovalId>);

impl Chat {
    /// First message of a process of the connection.
    pub(super) fn follow(&self) -> DecisionsFollow {
        let known = self.0.iter().map(DecisionId::from).collect();
        DecisionsFollow { known }
    }

    pub(super) fn shown(&self) -> Vec<ApprovalId> {
        self.0.iter().cloned().collect()
    }

    /// Posts a message with buttons, or updates it with the first of two approvals.
    pub(super) fn show(&mut self, id: &ApprovalId, is_update: bool) {
        let is_new = self.0.insert(id.clone());
        assert!(is_new || is_update, "`{id}` is shown twice");
    }

    /// Removes a message's buttons.
    pub(super) fn close(&mut self, id: &ApprovalId) {
        let was_there = self.0.remove(id);
        assert!(was_there, "`{id}` was not shown");
    }
}
