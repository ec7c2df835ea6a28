//! Running child processes.

use std::collections::BTreeMap;

use goondan_protocol::ids::WorkspaceId;

use super::ProcessOwner;
use crate::ProcessId;
use crate::limits::CHILD_PROCESSES_MAX;

/// Running child processes, with their owners.
///
/// Lists a process from its start until its exit is reported. After that, messages to the process
/// are dropped. Ids are never reused.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    owners: BTreeMap<ProcessId, ProcessOwner>,
    latest: u64,
}

impl ProcessTable {
    /// Adds a process that is being started.
    pub(super) fn add(&mut self, owner: ProcessOwner) -> ProcessId {
        self.latest += 1;
        let process = ProcessId(self.latest);
        self.owners.insert(process, owner);
        process
    }

    /// Handles an exit. Returns the owner; `None` if the process is unknown.
    pub(super) fn remove(&mut self, process: ProcessId) -> Option<ProcessOwner> {
        self.owners.remove(&process)
    }

    pub(crate) fn owner_of(&self, process: ProcessId) -> Option<&ProcessOwner> {
        self.owners.get(&process)
    }

    pub(super) fn is_up(&self, process: ProcessId) -> bool {
        self.owners.contains_key(&process)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ProcessId> {
        self.owners.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// True if another process may be started.
    pub(crate) fn has_place(&self) -> bool {
        self.owners.len() < CHILD_PROCESSES_MAX
    }

    /// True if a process of this workspace runs.
    pub(super) fn is_any_of(&self, id: &WorkspaceId) -> bool {
        self.owners.values().any(|owner| owner.workspace_id() == id)
    }

    /// True if any agent runs.
    pub(super) fn is_any_agent(&self) -> bool {
        let mut owners = self.owners.values();
        owners.any(|owner| matches!(owner, ProcessOwner::Agent(_)))
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, process: ProcessId, owner: ProcessOwner) {
        self.owners.insert(process, owner);
    }
}
