//! The records of which nobody knows whether they stand.
//!
//! A commit that waits for a synchronous standby can be cut short: by a person, or by a server that is stopped. Then
//! the record stands on one disk, everybody can read it, and the standby does not have it. Whoever offered it looks
//! for it, would find it, and acknowledge it. So what was offered and not answered is noted here, and is not told of
//! before a commit behind it was confirmed ([`crate::puts::Puts::confirmed`]).
//!
//! The notes are in memory: a node that starts again takes over by a seal, and that is a commit behind everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::names::Position;

use crate::limits::DOUBTS_MAX;

/// The last position in doubt of each workspace that has one; shared by those who ask one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubts(Arc<Mutex<HashMap<WorkspaceId, Position>>>);

impl Doubts {
    /// Something is offered, and no answer has come. Returns whether it was in doubt before; none if there are too many
    /// doubts for another one.
    pub(crate) fn raise(&self, workspace: &WorkspaceId, position: Position) -> Option<bool> {
        let mut doubts = self.lock();
        let known = doubts.get(workspace).copied();
        if known.is_none() && doubts.len() >= DOUBTS_MAX {
            return None;
        }
        let position = known.map_or(position, |known| known.max(position));
        doubts.insert(workspace.clone(), position);
        Some(known.is_some())
    }

    /// What stands is known to be durable.
    pub(crate) fn settle(&self, workspace: &WorkspaceId) {
        self.lock().remove(workspace);
    }

    /// Whether what stands up to a position may be less durable than it should be.
    pub(crate) fn reach(&self, workspace: &WorkspaceId, head: Position) -> bool {
        self.lock()
            .get(workspace)
            .is_some_and(|position| *position <= head)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Position>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_reaches_whoever_sees_its_position_and_is_settled_once() {
        let (doubts, workspace) = (Doubts::default(), WorkspaceId::new("w").unwrap());
        assert_eq!(doubts.raise(&workspace, Position(5)), Some(false));
        assert!(!doubts.reach(&workspace, Position(4)));
        assert!(doubts.reach(&workspace, Position(5)));
        assert_eq!(doubts.raise(&workspace, Position(4)), Some(true));
        assert!(
            !doubts.reach(&workspace, Position(4)),
            "the later one counts"
        );
        doubts.settle(&workspace);
        assert!(!doubts.reach(&workspace, Position(9)));
    }

    #[test]
    fn the_number_of_doubts_is_bounded() {
        let doubts = Doubts::default();
        let named = |n: usize| WorkspaceId::new(format!("w{n}")).unwrap();
        for n in 0..DOUBTS_MAX {
            assert_eq!(doubts.raise(&named(n), Position(1)), Some(false));
        }
        assert_eq!(doubts.raise(&named(DOUBTS_MAX), Position(1)), None);
        assert_eq!(doubts.raise(&named(0), Position(2)), Some(true));
    }
}
