//! A watching client connects, disconnects, and is checked.

use goondan_protocol::ids::WorkspaceId;

use super::World;
use crate::CoreInput;
use crate::exchange::Peer;

/// Number of steps between checks of the client's view.
const STEPS_OF_LOOK: u64 = 16;

impl World {
    /// Starts or ends the client's watch.
    pub(in crate::simulation) fn come_or_go(&mut self, id: WorkspaceId) {
        if self.watcher.token().is_some() {
            if let Some(token) = self.watcher.goes_away() {
                let tokens = vec![token];
                self.input(CoreInput::ClientGone { tokens });
            }
            return;
        }
        let snapshots = self.watcher.snapshots;
        let (token, call) = self.watcher.comes(id);
        self.input(CoreInput::Request {
            token,
            peer: Peer::person(),
            call: Box::new(call),
        });
        let is_watching = self.watcher.token().is_some();
        let is_known = is_watching && self.watcher.snapshots == snapshots;
        self.watcher.came_back += u64::from(is_known);
    }

    /// Checks that the process states seen by the client are correct.
    pub(in crate::simulation) fn check_watcher(&self) {
        if self.watcher.token().is_none() || !self.steps.is_multiple_of(STEPS_OF_LOOK) {
            return;
        }
        let processes = self
            .core
            .fleet
            .view()
            .processes(&self.core.calls, None, None);
        let processes: Vec<_> = processes.collect();
        self.watcher.sees(&processes);
    }
}
