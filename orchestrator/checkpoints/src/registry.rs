//! Records the existence of checkpoints outside of the folder in which an agent can write
//! (`MSG-11`).

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind};
use goondan_durable::register::Register;
use goondan_durable::{FileError, Finding, FindingKind, Severity};
use goondan_trees::extract::extract_listed;
use goondan_trees::{RelativePath, TreeError, remove_all};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::place::{METADATA, SNAPSHOT, Scope, Stream, below, folder_of};
use crate::prune::Retention;
use crate::store::Store;

/// Prefix of the names of checkpoints that were moved aside.
const DAMAGED: &str = "damaged-";

impl From<FileError> for CheckpointError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io {
                operation,
                path,
                source,
            } => Self::Io {
                operation,
                path: path.display().to_string(),
                source,
            },
            error @ (FileError::Damaged { .. } | FileError::Unwritable { .. }) => {
                Self::invalid(error.to_string())
            }
        }
    }
}

impl Store {
    /// The checkpoints in a work area, as they are: nothing that was interrupted is finished, so that it may be looked at
    /// while others make checkpoints.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`].
    pub fn look(root: Box<dyn Folder>, task_id: Option<String>) -> Result<Self, CheckpointError> {
        let scope = match task_id {
            Some(_) => Scope::Task,
            None => Scope::Conversation,
        };
        Self::unopened(scope, root, task_id, String::new())
    }

    /// Records checkpoints that the register does not have yet.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`].
    pub fn note(&self, register: &Register<'_>) -> Result<(), CheckpointError> {
        let ids = self.ids()?.into_iter();
        let paths: Vec<String> = ids.map(metadata_of).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        register.note_new(&paths);
        Ok(())
    }

    /// As [`Self::prune`], but first retracts the register's claims about the removed checkpoints.
    ///
    /// # Errors
    ///
    /// As [`Self::prune`].
    pub fn prune_known(
        &mut self,
        retention: Retention,
        register: &Register<'_>,
    ) -> Result<Vec<CheckpointId>, CheckpointError> {
        for id in self.prunable(retention)? {
            register.release(&metadata_of(id))?;
        }
        self.prune(retention)
    }

    /// Reads every checkpoint in full and returns the problems, with absolute paths. Checkpoints
    /// that are created or removed concurrently are not findings.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`] if the folder of checkpoints cannot be read.
    pub fn check(&self, root: &Path) -> Result<Vec<Finding>, CheckpointError> {
        let mut findings = Vec::new();
        if !self.has_checkpoints()? {
            return Ok(findings);
        }
        for id in self.ids()? {
            let Err(problem) = self.whole(id)? else {
                continue;
            };
            // One of another program is as it came, and says itself that it cannot be restored.
            if self.is_plain(id)? {
                continue;
            }
            if self.ids()?.contains(&id) {
                let path = root.join(folder_of(id));
                let finding = Finding::new(&path, FindingKind::DamagedRecord, problem);
                findings.push(finding.severity(Severity::Error).advice(
                    "use another checkpoint; `gdn daemon verify --repair` sets this one aside",
                ));
            }
        }
        Ok(findings)
    }

    /// Renames checkpoints that are damaged, and returns where they are now, by absolute paths.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`].
    pub fn set_aside(
        &self,
        root: &Path,
        register: &Register<'_>,
    ) -> Result<Vec<PathBuf>, CheckpointError> {
        let mut kept = Vec::new();
        if !self.has_checkpoints()? {
            return Ok(kept);
        }
        for id in self.ids()? {
            if self.whole(id)?.is_ok() || self.is_plain(id)? {
                continue;
            }
            register.release(&metadata_of(id))?;
            let mut number = 1;
            let aside = loop {
                let aside = below(match number {
                    1 => format!("{DAMAGED}{id}"),
                    _ => format!("{DAMAGED}{id}-{number}"),
                });
                let stat = self.root.look(&aside).during("inspect", &aside)?;
                if stat.is_none() {
                    break aside;
                }
                number += 1;
            };
            let path = folder_of(id);
            self.root
                .rename_new(&path, &aside)
                .during("rename", &path)?;
            kept.push(root.join(aside));
        }
        let at = below("");
        self.root.sync_dir(&at).during("sync", &at)?;
        Ok(kept)
    }

    /// Unpacks one file of each checkpoint that is whole, the newest first, into a folder, and hands its path there to
    /// `take`, until that returns true.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`], and what `take` returns.
    pub fn find_file<E: From<CheckpointError>>(
        &self,
        file: &RelativePath,
        into: &dyn Folder,
        mut take: impl FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        if !self.has_checkpoints()? {
            return Ok(());
        }
        // The outermost directory, because extraction creates each directory above the file.
        let above = file.ancestors();
        let top = above.first().unwrap_or(file);
        for id in self.ids()?.into_iter().rev() {
            let Ok(whole) = self.whole(id)? else {
                continue;
            };
            if whole.manifest.get(file).is_none() {
                continue;
            }
            let archive = folder_of(id).join(SNAPSHOT);
            let packed = self.root.read(&archive).during("open", &archive)?;
            remove_all(into, top.as_path()).map_err(CheckpointError::from)?;
            let is_wanted = |path: &RelativePath| path == file;
            match extract_listed(Stream::new(packed), &whole.manifest, into, &is_wanted) {
                Ok(()) => {}
                Err(error @ TreeError::Io { .. }) => {
                    return Err(CheckpointError::from(error).into());
                }
                // Another checkpoint may have it.
                Err(_) => continue,
            }
            if take()? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn has_checkpoints(&self) -> Result<bool, CheckpointError> {
        let at = below("");
        let stat = self.root.look(&at).during("inspect", &at)?;
        Ok(stat.is_some_and(|stat| stat.kind == NodeKind::Directory))
    }
}

/// Path of a checkpoint's metadata below its work area. The metadata contains the digests of all
/// other files.
pub(crate) fn metadata_of(id: CheckpointId) -> String {
    folder_of(id).join(METADATA).display().to_string()
}
