//! Making a checkpoint (`CKPT-1`, `CKPT-2`, `CKPT-3`).

use std::path::{Path, PathBuf};

use goondan_durable::disk::NodeKind;
use goondan_protocol::control::PinnedConversation;
use goondan_protocol::time::Timestamp;
use goondan_trees::freeze::Reason;
use goondan_trees::{
    Digest, Manifest, RelativePath, Survey, TreeEntry, TreeError, Unreadable, Writers, remove_all,
    survey, to_text,
};
use sha2::{Digest as _, Sha256};

use crate::archive::{self, ArchiveParams, UnsyncedArchive};
use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::index::{self, Index};
use crate::limits::{CHECKPOINT_FREE_BYTES_MIN, CHECKPOINTS_MAX, tree_limits};
use crate::place::{
    BASE, CHECKPOINTS, INDEX, LATEST, METADATA, PARTIAL, SNAPSHOT, Scope, below, folder_of,
    replace, replace_unsynced, write_new,
};
use crate::record::{
    CheckpointReceipt, Consistency, LatestCheckpoint, MakeCheckpoint, OmittedPath, PRE_RESTORE,
    Summary, json, write,
};
use crate::store::Store;

/// Bytes that `metadata.json` has for each entry, roughly and at most.
const METADATA_BYTES_EACH: u64 = 512;

/// A checkpoint that was made, and what it holds.
pub(crate) struct NewCheckpoint {
    pub(crate) made: CheckpointReceipt,
    pub(crate) manifest: Manifest,
}

impl Store {
    /// Makes a checkpoint of the work area. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Invalid`]; [`CheckpointError::NoRoom`] before anything is written
    /// (`TASK-9`); [`CheckpointError::Tree`] for files that cannot be read, or that change although
    /// the work area must be idle. Existing checkpoints stay unchanged.
    pub fn make(
        &mut self,
        request: &MakeCheckpoint<'_>,
        now: Timestamp,
    ) -> Result<CheckpointReceipt, CheckpointError> {
        if request.kind == PRE_RESTORE {
            return Err(CheckpointError::invalid(format!(
                "`{PRE_RESTORE}` is reserved for checkpoints that a restore creates; use another type"
            )));
        }
        self.make_any(request, now).map(|held| held.made)
    }

    pub(crate) fn make_any(
        &mut self,
        request: &MakeCheckpoint<'_>,
        now: Timestamp,
    ) -> Result<NewCheckpoint, CheckpointError> {
        request.check()?;
        let ids = self.ids()?;
        if ids.len() >= CHECKPOINTS_MAX {
            return Err(CheckpointError::TooMany {
                limit: CHECKPOINTS_MAX,
            });
        }
        let newest = ids.last().copied();
        let id = newest.map_or_else(CheckpointId::first, CheckpointId::next);
        let staging = below(format!("{PARTIAL}{id}"));
        let root = self.root.as_ref();
        remove_all(root, &staging)?;
        root.create_dir(&staging, 0o700)
            .during("create", &staging)?;
        let index = newest.and_then(|newest| self.take_index(newest));
        let filled = self.fill(&staging, (id, newest), request, now, index.as_ref());
        let (held, summary, index) = match filled {
            Ok(filled) => filled,
            Err(error) => {
                // The next opening removes the remains; the first error is the useful one.
                drop(remove_all(self.root.as_ref(), &staging));
                if let Some(index) = index {
                    self.keep_index(index);
                }
                return Err(error);
            }
        };
        let root = self.root.as_ref();
        let path = folder_of(id);
        root.rename_new(&staging, &path).during("rename", &path)?;
        let at = Path::new(CHECKPOINTS);
        root.sync_dir(at).during("sync", at)?;
        if summary.kind != PRE_RESTORE {
            self.tell_latest(&summary)?;
        }
        if let Ok(text) = index::write(&index, &self.boot) {
            // The checkpoint is made; without an index the next one only takes longer.
            drop(replace_unsynced(self.root.as_ref(), &below(INDEX), &text));
        }
        self.keep_index(index);
        Ok(held)
    }

    /// Writes `latest.json`.
    pub(crate) fn tell_latest(&self, summary: &Summary) -> Result<(), CheckpointError> {
        let latest = LatestCheckpoint {
            checkpoint_id: summary.id,
            path: folder_of(summary.id).display().to_string(),
            created_at: summary.created_at,
            phase: summary.phase,
            progress: summary.progress,
            kind: summary.kind.clone(),
        };
        replace(self.root.as_ref(), &below(LATEST), &json(&latest)?)
    }

    /// Writes both files of a checkpoint, synced.
    fn fill(
        &self,
        staging: &Path,
        (id, newest): (CheckpointId, Option<CheckpointId>),
        request: &MakeCheckpoint<'_>,
        now: Timestamp,
        index: Option<&Index>,
    ) -> Result<(NewCheckpoint, Summary, Index), CheckpointError> {
        let root = self.root.as_ref();
        let path = staging.join(SNAPSHOT);
        let mut file = root.create(&path, 0o600).during("create", &path)?;
        let stat = root.look(&path).during("inspect", &path)?;
        // The time by the clock that the files' times are of.
        let begun = stat.map_or(i128::MIN, |stat| stat.version[3]);
        let found = self.survey(request.consistency)?;
        self.check_room(&found, index)?;
        let writing = ArchiveParams {
            source: self.files(),
            base: index.and_then(|index| Some((index, root.read(&snapshot_of(index)).ok()?))),
            consistency: request.consistency,
            begun,
            may_move: self.scope.may_move(),
        };
        let written = archive::write(writing, &found.found, file.as_mut())?;
        file.sync().during("sync", &path)?;
        let summary = self.summary_of(id, request, now, &written)?;
        let left_out = not_held(&found, &written.unreadable);
        let text = write(&summary, &left_out, &written.manifest)?;
        write_new(root, &staging.join(METADATA), &text)?;
        root.sync_dir(staging).during("sync", staging)?;
        let content = content_of(self.scope, &written.manifest);
        let before = self.content_before(index, newest)?;
        let made = CheckpointReceipt {
            checkpoint_id: id,
            snapshot_bytes: written.bytes,
            files: files_in(&written.manifest),
            is_unchanged: before == Some(content),
            files_read: written.files_read,
            left_out: left_out.len(),
        };
        let UnsyncedArchive {
            manifest,
            bytes,
            files,
            members,
            ..
        } = written;
        let index = Index {
            base: id,
            archive_bytes: bytes,
            content,
            files,
            members,
        };
        Ok((NewCheckpoint { made, manifest }, summary, index))
    }

    /// Builds the metadata of a checkpoint.
    fn summary_of(
        &self,
        id: CheckpointId,
        request: &MakeCheckpoint<'_>,
        now: Timestamp,
        written: &UnsyncedArchive,
    ) -> Result<Summary, CheckpointError> {
        let pinned = request.pinned.clone();
        let pinned = pinned.map(|pinned| with_digest(pinned, &written.manifest));
        Ok(Summary {
            id,
            pinned: pinned.transpose()?,
            task_id: self.task_id.clone(),
            kind: request.kind.to_owned(),
            name: request.name.clone(),
            phase: request.phase,
            progress: request.progress,
            agent_state: request.agent_state.clone(),
            tokens_used: request.tokens_used,
            created_at: now,
            consistency: request.consistency,
            snapshot_size: written.bytes,
            checksum: Some(written.checksum),
            manifest_digest: Some(written.manifest.digest()?),
        })
    }

    /// Digest of the content that the newest checkpoint would restore.
    fn content_before(
        &self,
        index: Option<&Index>,
        newest: Option<CheckpointId>,
    ) -> Result<Option<Digest>, CheckpointError> {
        if let Some(index) = index {
            return Ok(Some(index.content));
        }
        let Some(newest) = newest else {
            return Ok(None);
        };
        let before = self.described(newest)?;
        Ok(before
            .ok()
            .map(|before| content_of(self.scope, &before.manifest)))
    }

    /// Surveys the files for a snapshot.
    pub(crate) fn survey(&self, consistency: Consistency) -> Result<Survey, CheckpointError> {
        let writers = match consistency {
            Consistency::Stopped => Writers::AtRest,
            Consistency::Live => Writers::AtWork,
        };
        Ok(survey(
            self.files(),
            &self.excludes,
            tree_limits(),
            writers,
            Unreadable::LeftOut,
        )?)
    }

    /// Refuses a checkpoint that might fill the file system.
    fn check_room(&self, found: &Survey, index: Option<&Index>) -> Result<(), CheckpointError> {
        let is_known =
            |path, stat| index.is_some_and(|index| index.digest_of(path, stat).is_some());
        let to_read = found.found.iter().filter(|entry| {
            entry.stat.kind == NodeKind::File && !is_known(&entry.path, &entry.stat)
        });
        let to_read: u64 = to_read.map(|entry| entry.stored).sum();
        let entries = found.found.len() as u64 * METADATA_BYTES_EACH;
        let base = index.map_or(0, |index| index.archive_bytes);
        self.check_free(to_read.saturating_add(entries).saturating_add(base))
    }

    pub(crate) fn check_free(&self, needed_bytes: u64) -> Result<(), CheckpointError> {
        let at = Path::new(CHECKPOINTS);
        let free = self
            .root
            .free_bytes()
            .during("read the free space of", at)?;
        let kept_bytes = CHECKPOINT_FREE_BYTES_MIN;
        match free {
            Some(free_bytes) if free_bytes < needed_bytes.saturating_add(kept_bytes) => {
                Err(CheckpointError::NoRoom {
                    needed_bytes,
                    free_bytes,
                    kept_bytes,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Adds the digest of the saved messages to the pinned conversation, if they match.
fn with_digest(
    pinned: PinnedConversation,
    held: &Manifest,
) -> Result<PinnedConversation, CheckpointError> {
    let base = RelativePath::new(BASE.as_bytes());
    let base = base.map_err(|error| CheckpointError::invalid(error.to_string()))?;
    match held.get(&base) {
        Some(TreeEntry::File { bytes, sha256, .. }) if *bytes == pinned.base_bytes => {
            Ok(PinnedConversation {
                base_sha256: sha256.to_string(),
                ..pinned
            })
        }
        _ => Err(TreeError::Changing { path: base }.into()),
    }
}

fn snapshot_of(index: &Index) -> PathBuf {
    folder_of(index.base).join(SNAPSHOT)
}

pub(crate) fn not_held(found: &Survey, unreadable: &[RelativePath]) -> Vec<OmittedPath> {
    let told = found.left_out.iter().filter_map(|left| {
        let reason = match &left.reason {
            // Paths that no snapshot ever contains are not listed in each one.
            Reason::Excluded(_) | Reason::NotChosen | Reason::OutsideLink => return None,
            Reason::Rule(what) => (*what).to_owned(),
            Reason::Special => "it is not a file, directory or link".to_owned(),
            Reason::Unreadable => UNREADABLE.to_owned(),
            Reason::Sparse { bytes } => {
                let mib = bytes >> 20;
                format!("it is sparse, and its {mib} MiB exceed the limit of a checkpoint")
            }
        };
        Some(OmittedPath {
            path: left.path.clone(),
            reason,
        })
    });
    let files = unreadable.iter().map(|path| OmittedPath {
        path: to_text(path.as_bytes()),
        reason: UNREADABLE.to_owned(),
    });
    told.chain(files).collect()
}

const UNREADABLE: &str = "the daemon's user has no right to read it";

fn files_in(manifest: &Manifest) -> usize {
    let entries = manifest.entries();
    entries.filter(|(_, entry)| !entry.is_directory()).count()
}

/// One digest of all that a restore would bring back.
pub(crate) fn content_of(scope: Scope, manifest: &Manifest) -> Digest {
    let mut hasher = Sha256::new();
    for (path, entry) in manifest.entries().filter(|(path, _)| !scope.is_own(path)) {
        let (kind, mode, content) = match entry {
            TreeEntry::File { mode, sha256, .. } => (0_u8, *mode, sha256.as_bytes().as_slice()),
            TreeEntry::Directory { mode } => (1, *mode, &[][..]),
            TreeEntry::Link { target } => (2, 0, target.as_slice()),
        };
        let path = path.as_bytes();
        hasher.update([kind]);
        for number in [path.len() as u64, u64::from(mode), content.len() as u64] {
            hasher.update(number.to_le_bytes());
        }
        hasher.update(path);
        hasher.update(content);
    }
    Digest::finish(hasher)
}
