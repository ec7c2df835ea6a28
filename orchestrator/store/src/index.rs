//! In-memory metadata of every instance of the open workspaces.
//!
//! It lists ten thousand instances without reading ten thousand files. The workspace's folders are
//! read once, when the workspace is opened. The writer threads, which make all changes (`ROOT-11`),
//! keep the index current.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_protocol::ids::{InstanceKey, InstanceRef, WorkspaceId};

use crate::instance::Metadata;

type Workspaces = HashMap<WorkspaceId, BTreeMap<InstanceKey, Metadata>>;

#[derive(Debug, Default)]
struct State {
    workspaces: Workspaces,
    /// Forgotten workspaces, newest last. A worker with open files of such a workspace closes them.
    forgotten: Vec<WorkspaceId>,
}

/// Metadata of every instance of the open workspaces. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct InstanceIndex(Arc<Mutex<State>>);

impl InstanceIndex {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a workspace with its instances on disk. A workspace that is present stays unchanged.
    /// Call it before the first operation on the workspace.
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

    /// Removes a closed workspace. Workers close its files before their next operation, because
    /// another node may change the files until the workspace is added again.
    pub fn forget(&self, id: &WorkspaceId) {
        let mut state = self.state();
        state.workspaces.remove(id);
        state.forgotten.push(id.clone());
    }

    /// Returns the workspaces that were forgotten after the first `count`.
    pub(crate) fn forgotten_since(&self, count: usize) -> Vec<WorkspaceId> {
        let state = self.state();
        state.forgotten.get(count..).unwrap_or_default().to_vec()
    }

    /// Returns every instance of a workspace, by key; `None` if the workspace is not loaded.
    #[must_use]
    pub fn list(&self, id: &WorkspaceId) -> Option<Vec<Metadata>> {
        Some(self.state().workspaces.get(id)?.values().cloned().collect())
    }

    /// Stores an instance's current metadata.
    pub(crate) fn put(&self, at: &InstanceRef, metadata: &Metadata) {
        if let Some(workspace) = self.state().workspaces.get_mut(&at.workspace_id)
            && workspace.get(&at.instance_key) != Some(metadata)
        {
            workspace.insert(at.instance_key.clone(), metadata.clone());
        }
    }

    pub(crate) fn remove(&self, at: &InstanceRef) {
        if let Some(workspace) = self.state().workspaces.get_mut(&at.workspace_id) {
            workspace.remove(&at.instance_key);
        }
    }
}
