//! Retention of checkpoints (`CKPT-5`).

use std::path::Path;

use goondan_trees::remove_all;

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::limits::CHECKPOINTS_KEPT;
use crate::place::{CHECKPOINTS, REMOVING, below, folder_of};
use crate::record::CheckpointEntry;
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub count: usize,
    /// Maximum size of all checkpoints in bytes; `None` for no limit.
    pub bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            count: CHECKPOINTS_KEPT,
            bytes: None,
        }
    }
}

impl Store {
    /// The checkpoints that [`Self::prune`] would remove now.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`].
    pub fn prunable(&self, retention: Retention) -> Result<Vec<CheckpointId>, CheckpointError> {
        Ok(doomed(&self.list()?, retention))
    }

    /// Removes the oldest checkpoints beyond the retention limits and returns their ids. Always
    /// keeps the newest, the newest intact one, the one that a restore would use, and all named
    /// ones.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`]; some checkpoints may have been removed.
    pub fn prune(&mut self, retention: Retention) -> Result<Vec<CheckpointId>, CheckpointError> {
        let doomed = self.prunable(retention)?;
        for id in &doomed {
            self.remove(*id)?;
        }
        Ok(doomed)
    }

    fn remove(&self, id: CheckpointId) -> Result<(), CheckpointError> {
        let root = self.root.as_ref();
        let (path, aside) = (folder_of(id), below(format!("{REMOVING}{id}")));
        remove_all(root, &aside)?;
        root.rename_new(&path, &aside).during("rename", &path)?;
        let at = Path::new(CHECKPOINTS);
        // Renames the directory first, so the checkpoint is never partly deleted.
        root.sync_dir(at).during("sync", at)?;
        remove_all(root, &aside)?;
        root.sync_dir(at).during("sync", at)
    }
}

/// Selects the checkpoints to remove; `listed` is sorted from oldest to newest.
fn doomed(listed: &[CheckpointEntry], retention: Retention) -> Vec<CheckpointId> {
    let is_whole = |listed: &&CheckpointEntry| listed.damaged.is_none();
    let is_told = |listed: &&CheckpointEntry| {
        let about = listed.about.as_ref();
        listed.damaged.is_none() && about.is_some_and(|about| about.kind != crate::PRE_RESTORE)
    };
    let spared = [
        listed.last(),
        listed.iter().rev().find(is_whole),
        listed.iter().rev().find(is_told),
    ];
    let spared: Vec<CheckpointId> = spared.into_iter().flatten().map(|one| one.id).collect();
    let mut count = listed.len();
    let mut bytes: u64 = listed.iter().map(|one| one.size).sum();
    let mut doomed = Vec::new();
    for one in listed {
        let fits = count <= retention.count && retention.bytes.is_none_or(|most| bytes <= most);
        if fits {
            break;
        }
        let is_named = one.about.as_ref().is_some_and(|about| about.name.is_some());
        if is_named || spared.contains(&one.id) {
            continue;
        }
        count -= 1;
        bytes = bytes.saturating_sub(one.size);
        doomed.push(one.id);
    }
    doomed
}
