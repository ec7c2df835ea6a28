//! The chat of a connection that shows what waits for people, and whose buttons they press (`STEER-3`).

use std::collections::{BTreeSet, HashMap};

use goondan_protocol::approval::{ApprovalDecision, ApprovalsFollow};
use goondan_protocol::ids::ApprovalId;

/// The buttons that were pressed in one process's time, by the requests that wait for a verdict: of which call, what
/// was wanted, and by whom.
pub(super) type Pressed = HashMap<u64, (ApprovalId, ApprovalDecision, &'static str)>;

/// The calls whose messages have buttons. The connection keeps these, whatever becomes of its processes.
#[derive(Debug, Default)]
pub(super) struct Chat(BTreeSet<ApprovalId>);

impl Chat {
    /// What a process of the connection says first.
    pub(super) fn follow(&self) -> ApprovalsFollow {
        let known = self.0.iter().cloned().collect();
        ApprovalsFollow { known }
    }

    pub(super) fn shown(&self) -> Vec<ApprovalId> {
        self.0.iter().cloned().collect()
    }

    /// A message with buttons is posted.
    pub(super) fn show(&mut self, id: &ApprovalId) {
        let is_new = self.0.insert(id.clone());
        assert!(is_new, "`{id}` is shown twice");
    }

    /// A message loses its buttons.
    pub(super) fn close(&mut self, id: &ApprovalId) {
        let was_there = self.0.remove(id);
        assert!(was_there, "`{id}` was not shown");
    }
}
