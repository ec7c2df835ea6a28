//! Recovery of operations interrupted by a crash.

use std::path::Path;

use goondan_durable::disk::NodeKind;
use goondan_durable::{Finding, FindingKind};
use goondan_trees::remove_all;

use crate::error::{CheckpointError, IoContext as _};
use crate::place::{CHECKPOINTS, DRILL, LATEST, PARTIAL, REMOVING, RESTORING, TEMPORARY, below};
use crate::store::Store;

impl Store {
    /// Creates and recovers the directory of checkpoints.
    pub(crate) fn recover(&mut self) -> Result<Vec<Finding>, CheckpointError> {
        let at = Path::new(CHECKPOINTS);
        let root = self.root.as_ref();
        match root.look(at).during("inspect", at)?.map(|stat| stat.kind) {
            Some(NodeKind::Directory) => {}
            None => root.create_dir(at, 0o700).during("create", at)?,
            Some(_) => {
                return Err(CheckpointError::invalid(format!(
                    "`{CHECKPOINTS}` is not a directory; move it away"
                )));
            }
        }
        // Renames of an exited process may not be durable yet.
        root.sync_dir(Path::new("")).during("sync", at)?;
        root.sync_dir(at).during("sync", at)?;
        let mut findings = self.recover_restore()?;
        let root = self.root.as_ref();
        for name in root.names(at).during("list", at)? {
            let text = name.to_string_lossy();
            let is_left = text.starts_with(PARTIAL)
                || text.starts_with(REMOVING)
                || text.ends_with(TEMPORARY)
                || text == DRILL;
            if is_left {
                let path = below(&name);
                remove_all(root, &path)?;
                if text != DRILL && !text.ends_with(TEMPORARY) {
                    let problem = "interrupted work; it was rolled back";
                    findings.push(Finding::new(&path, FindingKind::UnfinishedWork, problem));
                }
            }
        }
        root.sync_dir(at).during("sync", at)?;
        findings.extend(self.recover_latest()?);
        Ok(findings)
    }

    /// Makes `latest.json` name the newest checkpoint.
    fn recover_latest(&self) -> Result<Option<Finding>, CheckpointError> {
        let (told, expected) = (self.latest()?, self.newest_told()?);
        if told.map(|told| told.checkpoint_id) == expected {
            return Ok(None);
        }
        let path = below(LATEST);
        match expected {
            Some(id) => {
                if let Ok(summary) = self.summary(id)? {
                    self.tell_latest(&summary)?;
                }
            }
            None => remove_all(self.root.as_ref(), &path)?,
        }
        let problem = "it did not name the newest checkpoint; it was written again";
        Ok(Some(Finding::new(
            &path,
            FindingKind::UnfinishedWork,
            problem,
        )))
    }

    /// Completes or rolls back a restore.
    fn recover_restore(&mut self) -> Result<Vec<Finding>, CheckpointError> {
        let path = below(RESTORING);
        if self.root.look(&path).during("inspect", &path)?.is_none() {
            return Ok(Vec::new());
        }
        self.finish_restore()
    }
}
