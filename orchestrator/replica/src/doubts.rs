//! Records in doubt: records whose durability is unknown.
//!
//! A commit that waits for a synchronous standby can be interrupted, by an operator or by a server
//! shutdown. The record is then on one disk and visible, but not on the standby. Its owner would
//! look it up, find it, and acknowledge it. Therefore records without an answer are tracked here
//! and not reported until a later commit is confirmed ([`crate::puts::PutLanes::confirmed`]).
//!
//! This state is in memory: a restarted node takes over with a seal, which is a commit after all
//! earlier records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::names::Position;

use crate::limits::DOUBTS_MAX;

/// The last position in doubt of each affected workspace; shared by the users of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct InDoubtPositions(Arc<Mutex<HashMap<WorkspaceId, Position>>>);

impl InDoubtPositions {
    /// Marks a position as in doubt when it is put without an answer. Returns true if the workspace
    /// was in doubt before; `None` if the limit of doubts is reached.
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

    /// Clears a workspace's doubt after a confirmed commit.
    pub(crate) fn settle(&self, workspace: &WorkspaceId) {
        self.lock().remove(workspace);
    }

    /// True if a record up to `head` is in doubt.
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
    fn doubt_is_visible_from_its_position_and_settles_once() {
        let (doubts, workspace) = (InDoubtPositions::default(), WorkspaceId::new("w").unwrap());
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
        let doubts = InDoubtPositions::default();
        let named = |n: usize| WorkspaceId::new(format!("w{n}")).unwrap();
        for n in 0..DOUBTS_MAX {
            assert_eq!(doubts.raise(&named(n), Position(1)), Some(false));
        }
        assert_eq!(doubts.raise(&named(DOUBTS_MAX), Position(1)), None);
        assert_eq!(doubts.raise(&named(0), Position(2)), Some(true));
    }
}
