//! The checkpoints of one work area.

use std::collections::BTreeSet;
use std::path::Path;

use goondan_durable::Finding;
use goondan_durable::FindingKind;
use goondan_durable::disk::{Folder, NodeKind, read_full};
use goondan_trees::{Digest, Excludes, Manifest};
use sha2::{Digest as _, Sha256};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::index::{self, Index};
use crate::limits::{
    ARCHIVE_WRITE_BYTES, CHECKPOINT_INDEX_BYTES_MAX, CHECKPOINT_METADATA_BYTES_MAX,
    CHECKPOINT_NOTE_BYTES_MAX,
};
use crate::place::{
    CHECKPOINTS, INDEX, LATEST, METADATA, SNAPSHOT, Scope, below, folder_of, read_file,
};
use crate::record::{CheckpointEntry, LatestCheckpoint, Summary, read_manifest, read_summary};

/// The checkpoints of one work area.
#[derive(Debug)]
pub struct Store {
    pub(crate) root: Box<dyn Folder>,
    /// Folder of the saved files, if it is not `root`.
    copy: Option<Box<dyn Folder>>,
    pub(crate) scope: Scope,
    /// The task, if it is one's.
    pub(crate) task_id: Option<String>,
    pub(crate) boot: String,
    pub(crate) excludes: Excludes,
    /// Index of the newest checkpoint, once it was loaded.
    index: Option<Index>,
    /// Paths that the latest survey left out, which a restore does not change.
    pub(crate) untouched: BTreeSet<String>,
}

/// A checkpoint that can be read.
#[derive(Debug)]
pub(crate) struct ReadableCheckpoint {
    pub(crate) summary: Summary,
    pub(crate) manifest: Manifest,
}

impl Store {
    /// Opens the checkpoints of a work area; finishes or rolls back an interrupted operation, and
    /// reports it.
    ///
    /// `root` is the work area. `task_id` is the task in the `metadata.json` of new checkpoints.
    /// `boot` identifies one start of the machine, such as Linux's `boot_id`: cached facts about
    /// files are not trusted after a crash of the machine.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]; the caller can retry.
    pub fn open(
        root: Box<dyn Folder>,
        task_id: impl Into<String>,
        boot: impl Into<String>,
    ) -> Result<(Self, Vec<Finding>), CheckpointError> {
        Self::open_for(Scope::Task, root, Some(task_id.into()), boot.into())
    }

    /// Opens the checkpoints of a task that works on a copy of the project, in `copy`. They lie in the work area, too.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]; it can be tried again then.
    pub fn open_copy(
        root: Box<dyn Folder>,
        copy: Box<dyn Folder>,
        task_id: impl Into<String>,
        boot: impl Into<String>,
    ) -> Result<(Self, Vec<Finding>), CheckpointError> {
        let mut store = Self::unopened(Scope::Copy, root, Some(task_id.into()), boot.into())?;
        store.copy = Some(copy);
        let findings = store.recover()?;
        Ok((store, findings))
    }

    pub(crate) fn files(&self) -> &dyn Folder {
        self.copy.as_deref().unwrap_or(self.root.as_ref())
    }

    /// Opens the joint checkpoints of a conversation in the same way (`CKPT-6`). `root` is its directory.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]; it can be tried again then.
    pub fn open_conversation(
        root: Box<dyn Folder>,
        boot: impl Into<String>,
    ) -> Result<(Self, Vec<Finding>), CheckpointError> {
        Self::open_for(Scope::Conversation, root, None, boot.into())
    }

    fn open_for(
        scope: Scope,
        root: Box<dyn Folder>,
        task_id: Option<String>,
        boot: String,
    ) -> Result<(Self, Vec<Finding>), CheckpointError> {
        let mut store = Self::unopened(scope, root, task_id, boot)?;
        let findings = store.recover()?;
        Ok((store, findings))
    }

    pub(crate) fn unopened(
        scope: Scope,
        root: Box<dyn Folder>,
        task_id: Option<String>,
        boot: String,
    ) -> Result<Self, CheckpointError> {
        Ok(Self {
            root,
            copy: None,
            scope,
            task_id,
            boot,
            excludes: scope.excludes()?,
            index: None,
            untouched: BTreeSet::new(),
        })
    }

    /// Lists the checkpoints, oldest first.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`]. A damaged checkpoint is listed as damaged.
    pub fn list(&self) -> Result<Vec<CheckpointEntry>, CheckpointError> {
        self.list_behind(None)?.collect()
    }

    /// Lists the checkpoints after `after`, oldest first; all if it is `None`. Each is read lazily.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn list_behind(
        &self,
        after: Option<CheckpointId>,
    ) -> Result<impl Iterator<Item = Result<CheckpointEntry, CheckpointError>>, CheckpointError>
    {
        let ids = self.ids()?.into_iter();
        let behind = ids.filter(move |id| after.is_none_or(|after| after < *id));
        Ok(behind.map(|id| self.listed(id)))
    }

    /// Finds a checkpoint by its id or its name. If several have the name, returns the newest.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::UnknownName`], or as [`list`](Self::list).
    pub fn find(&self, id_or_name: &str) -> Result<CheckpointId, CheckpointError> {
        if let Ok(id) = id_or_name.parse() {
            return Ok(id);
        }
        for id in self.ids()?.into_iter().rev() {
            if self.listed(id)?.name() == Some(id_or_name) {
                return Ok(id);
            }
        }
        let name = id_or_name.to_owned();
        Err(CheckpointError::UnknownName { name })
    }

    fn listed(&self, id: CheckpointId) -> Result<CheckpointEntry, CheckpointError> {
        let mut size = 0;
        for name in [SNAPSHOT, METADATA] {
            let path = folder_of(id).join(name);
            let stat = self.root.look(&path).during("inspect", &path)?;
            size += stat.map_or(0, |stat| stat.len);
        }
        let (about, damaged) = match self.summary(id)? {
            Err(problem) => (None, Some(problem)),
            Ok(summary) => {
                let path = folder_of(id).join(SNAPSHOT);
                let stat = self.root.look(&path).during("inspect", &path)?;
                let found = stat
                    .filter(|stat| stat.kind == NodeKind::File)
                    .map(|stat| stat.len);
                let damaged = match found {
                    None => Some(format!("`{SNAPSHOT}` is missing")),
                    Some(len) if len != summary.snapshot_size => Some(format!(
                        "`{SNAPSHOT}` has {len} bytes instead of {}",
                        summary.snapshot_size
                    )),
                    Some(_) => None,
                };
                (Some(summary.into()), damaged)
            }
        };
        Ok(CheckpointEntry {
            id,
            size,
            about,
            damaged,
        })
    }

    /// Reads every checkpoint in full and returns the problems.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`] if the folder of checkpoints cannot be read.
    pub fn verify(&self) -> Result<Vec<Finding>, CheckpointError> {
        let mut findings = Vec::new();
        for id in self.ids()? {
            if let Err(problem) = self.whole(id)?
                && !self.is_plain(id)?
            {
                let path = folder_of(id);
                findings.push(
                    Finding::new(&path, FindingKind::DamagedRecord, problem)
                        .advice("use an earlier checkpoint, and remove this one's folder"),
                );
            }
        }
        let told = self.latest()?;
        let expected = self.newest_told()?;
        if told.as_ref().map(|told| told.checkpoint_id) != expected {
            findings.push(Finding::new(
                &below(LATEST),
                FindingKind::UnfinishedWork,
                "it does not name the newest checkpoint; opening the checkpoints repairs it",
            ));
        }
        Ok(findings)
    }

    /// The ids of all checkpoints, the oldest first.
    pub(crate) fn ids(&self) -> Result<Vec<CheckpointId>, CheckpointError> {
        let at = Path::new(CHECKPOINTS);
        let names = self.root.names(at).during("list", at)?;
        let mut ids = Vec::new();
        for name in names {
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = folder_of(id);
            let stat = self.root.look(&path).during("inspect", &path)?;
            if stat.is_some_and(|stat| stat.kind == NodeKind::Directory) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    pub(crate) fn metadata(
        &self,
        id: CheckpointId,
    ) -> Result<Result<Vec<u8>, String>, CheckpointError> {
        let path = folder_of(id).join(METADATA);
        Ok(
            match read_file(self.root.as_ref(), &path, CHECKPOINT_METADATA_BYTES_MAX) {
                Ok(Some(text)) => Ok(text),
                Ok(None) => Err(format!("`{METADATA}` is missing")),
                // A special file, or a file that is too long, is invalid metadata.
                Err(CheckpointError::Io { source, .. })
                    if matches!(
                        source.kind(),
                        std::io::ErrorKind::FileTooLarge | std::io::ErrorKind::InvalidInput
                    ) =>
                {
                    Err(format!("failed to read `{METADATA}`: {source}"))
                }
                Err(error) => return Err(error),
            },
        )
    }

    /// Metadata of a checkpoint, or the problem with it.
    pub(crate) fn summary(
        &self,
        id: CheckpointId,
    ) -> Result<Result<Summary, String>, CheckpointError> {
        let text = self.metadata(id)?;
        Ok(text
            .and_then(|text| read_summary(&text))
            .and_then(|summary| own(summary, id)))
    }

    /// Metadata and manifest of a checkpoint, without reading its archive.
    pub(crate) fn described(
        &self,
        id: CheckpointId,
    ) -> Result<Result<ReadableCheckpoint, String>, CheckpointError> {
        let text = match self.metadata(id)? {
            Ok(text) => text,
            Err(problem) => return Ok(Err(problem)),
        };
        let read = || {
            let summary = own(read_summary(&text)?, id)?;
            let manifest = read_manifest(&text, &summary)?;
            Ok(ReadableCheckpoint { summary, manifest })
        };
        Ok(read())
    }

    /// The same, of one whose archive has the digest it had.
    pub(crate) fn whole(
        &self,
        id: CheckpointId,
    ) -> Result<Result<ReadableCheckpoint, String>, CheckpointError> {
        let whole = match self.described(id)? {
            Ok(whole) => whole,
            Err(problem) => return Ok(Err(problem)),
        };
        let path = folder_of(id).join(SNAPSHOT);
        if self.root.look(&path).during("inspect", &path)?.is_none() {
            return Ok(Err(format!("`{SNAPSHOT}` is missing")));
        }
        let mut file = match self.root.read(&path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(format!("failed to read `{SNAPSHOT}`: {error}"))),
        };
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; ARCHIVE_WRITE_BYTES];
        let mut offset = 0;
        loop {
            let read = match read_full(file.as_mut(), &mut chunk, offset) {
                Ok(read) => read,
                Err(error) => return Ok(Err(format!("failed to read `{SNAPSHOT}`: {error}"))),
            };
            hasher.update(chunk.get(..read).unwrap_or_default());
            offset += read as u64;
            if offset > whole.summary.snapshot_size || read < chunk.len() {
                break;
            }
        }
        let is_whole = offset == whole.summary.snapshot_size
            && Some(Digest::finish(hasher)) == whole.summary.checksum;
        Ok(if is_whole {
            Ok(whole)
        } else {
            Err(format!("`{SNAPSHOT}` has been changed"))
        })
    }

    /// Content of `latest.json`; `None` if it cannot be read.
    pub(crate) fn latest(&self) -> Result<Option<LatestCheckpoint>, CheckpointError> {
        let path = below(LATEST);
        let text = match read_file(self.root.as_ref(), &path, CHECKPOINT_NOTE_BYTES_MAX) {
            Ok(text) => text,
            Err(CheckpointError::Io { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// The checkpoint that `latest.json` should name.
    pub(crate) fn newest_told(&self) -> Result<Option<CheckpointId>, CheckpointError> {
        for id in self.ids()?.into_iter().rev() {
            let summary = self.summary(id)?;
            if summary.is_ok_and(|summary| summary.kind != crate::PRE_RESTORE) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Takes the index of this checkpoint's files.
    pub(crate) fn take_index(&mut self, base: CheckpointId) -> Option<Index> {
        let index = self.index.take().or_else(|| {
            let path = below(INDEX);
            // An unreadable index is rebuilt.
            let read = read_file(self.root.as_ref(), &path, CHECKPOINT_INDEX_BYTES_MAX).ok()??;
            index::read(&read, &self.boot)
        });
        index.filter(|index| index.base == base)
    }

    pub(crate) fn keep_index(&mut self, index: Index) {
        self.index = Some(index);
    }
}

fn own(summary: Summary, id: CheckpointId) -> Result<Summary, String> {
    if summary.id == id {
        Ok(summary)
    } else {
        Err(format!("`{METADATA}` belongs to `{}`", summary.id))
    }
}
