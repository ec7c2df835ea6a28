//! The metadata of every instance of the open workspaces, in memory.
//!
//! Ten thousand instances are listed without reading ten thousand files: the workspace's folders are
//! read once, when it is opened, and the writer threads, which are the only ones to change anything
//! (`ROOT-11`), keep the index true.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::{InstanceKey, InstanceRef, WorkspaceId};

use crate::instance::Metadata;

type Workspaces = HashMap<WorkspaceId, BTreeMap<InstanceKey, Metadata>>;

#[derive(Debug, Default)]
struct State {
    workspaces: Workspaces,
    /// Which workspaces were forgotten, the last at the end: whoever holds files of one open lets go of them.
    forgotten: Vec<WorkspaceId>,
}

/// The metadata of every instance of the open workspaces; clones share it.
#[derive(Debug, Clone, Default)]
pub struct InstanceIndex(Arc<Mutex<State>>);

impl InstanceIndex {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a workspace with the instances that were found on disk. One that is taken up already
    /// stays as it is. To be called before the first operation on the workspace.
    pub fn take_up(&self, id: &WorkspaceId, found: &[Metadata]) {
        self.state()
            .workspaces
            .entry(id.clone())
            .or_insert_with(|| {
                let by_key = found
                    .iter()
                    .map(|metadata| (metadata.instance_key.clone(), metadata));
                by_key
                    .map(|(key, metadata)| (key, metadata.clone()))
                    .collect()
            });
    }

    /// Forgets a workspace that was closed. Whoever holds files of it open lets go of them before the next operation:
    /// another node may change them until the workspace is taken up again.
    pub fn forget(&self, id: &WorkspaceId) {
        let mut state = self.state();
        state.workspaces.remove(id);
        state.forgotten.push(id.clone());
    }

    /// The workspaces that were forgotten since so many had been.
    pub(crate) fn forgotten_since(&self, count: usize) -> Vec<WorkspaceId> {
        let state = self.state();
        state.forgotten.get(count..).unwrap_or_default().to_vec()
    }

    /// Every instance of a workspace, by key; none if the workspace was not taken up.
    #[must_use]
    pub fn list(&self, id: &WorkspaceId) -> Option<Vec<Metadata>> {
        Some(self.state().workspaces.get(id)?.values().cloned().collect())
    }

    /// What an instance's metadata is now.
    pub(crate) fn put(&self, at: &InstanceRef, metadata: &Metadata) {
        if let Some(workspace) = self.state().workspaces.get_mut(&at.workspace_id)
            && workspace.get(&at.instance_key) != Some(metadata)
        {
            workspace.insert(at.instance_key.clone(), metadata.clone());
        }
    }

    /// An instance is gone.
    pub(crate) fn remove(&self, at: &InstanceRef) {
        if let Some(workspace) = self.state().workspaces.get_mut(&at.workspace_id) {
            workspace.remove(&at.instance_key);
        }
    }
}
