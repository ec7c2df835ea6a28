//! Restores the files of a checkpoint (`CKPT-4`).
//!
//! verify → compare with the current files → unpack the differences → checkpoint of the current
//! files → swap → modes of directories → compare.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind};
use goondan_durable::{Finding, FindingKind};
use goondan_protocol::time::Timestamp;
use goondan_trees::extract::extract_listed;
use goondan_trees::freeze::Reason;
use goondan_trees::swap::{self, Specials, SwapRecovery, SwapSite};
use goondan_trees::{
    Manifest, ManifestBuilder, Names, PathChange, RelativePath, Survey, TreeEntry, TreeError,
    changes, observe, remove_all, to_text,
};
use serde::{Deserialize, Serialize};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::index::Index;
use crate::limits::{CHECKPOINT_NOTE_BYTES_MAX, tree_limits};
use crate::place::{
    CHECKPOINTS, REMOVING, RESTORING, SNAPSHOT, STAGING, Scope, Stream, below, folder_of,
    read_file, write_new,
};
use crate::record::{
    AgentState, CheckpointSelector, Consistency, MakeCheckpoint, PRE_RESTORE, RestoreResult, json,
};
use crate::store::{ReadableCheckpoint, Store};

/// The unpacked files, in [`RESTORING`].
const NEW: &str = "new";
/// The journal of the swap, in [`RESTORING`].
const JOURNAL: &str = "journal";
/// Record of the restore in progress, in [`RESTORING`].
const NOTE: &str = "restore.json";

/// Data that recovery needs to finish or roll back a restore.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Note {
    used: CheckpointId,
    pre_restore: CheckpointId,
}

impl Store {
    /// Restores the work area's files, or reports the changes that a restore would make
    /// (`is_dry_run`). No process may write in the work area meanwhile.
    ///
    /// Files that are not in the checkpoint are removed; the previous files are saved in a
    /// checkpoint of type [`PRE_RESTORE`]. `.metadata` and paths that no snapshot contains stay
    /// unchanged. The restore is atomic. [`CheckpointSelector::Latest`] skips damaged checkpoints and lists
    /// them.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]. After any error except [`CheckpointError::Unfinished`], no file has
    /// changed.
    pub fn restore(
        &mut self,
        which: CheckpointSelector,
        is_dry_run: bool,
        now: Timestamp,
    ) -> Result<RestoreResult, CheckpointError> {
        let (id, whole, fell_back_from) = self.chosen(which)?;
        let current = self.current()?;
        let differences = self.differences(&current, &whole.manifest);
        let restored = restore_result(id, fell_back_from, &differences);
        if differences.is_empty() {
            return Ok(restored);
        }
        self.check_place(&differences)?;
        if is_dry_run {
            return Ok(restored);
        }
        self.bring_back(restored, (&whole, &current, &differences), None, now)
    }

    /// Checks that the changes can be applied, before anything is written.
    pub(crate) fn check_place(&self, differences: &[PathChange]) -> Result<(), CheckpointError> {
        let place = SwapSite {
            journal: self.root.as_ref(),
            root: self.files(),
            names: Names::Local,
            specials: Specials::Remove,
        };
        swap::plan(place, &for_swap(differences), STAGING)?;
        Ok(())
    }

    /// Changes the files that differ. `held_in` is the checkpoint of the current files, if it
    /// exists already.
    pub(crate) fn bring_back(
        &mut self,
        mut restored: RestoreResult,
        (whole, current, differences): (&ReadableCheckpoint, &Manifest, &[PathChange]),
        held_in: Option<CheckpointId>,
        now: Timestamp,
    ) -> Result<RestoreResult, CheckpointError> {
        let id = restored.used;
        let restoring = below(RESTORING);
        let prepared = self.prepare(id, whole, (current, differences), held_in, now);
        let pre_restore = match prepared {
            Ok(pre_restore) => pre_restore,
            Err(error) => {
                drop(remove_all(self.root.as_ref(), &restoring));
                return Err(error);
            }
        };
        restored.pre_restore = Some(pre_restore);
        let kept = self.put_in_place(current, &whole.manifest, differences)?;
        restored.kept = kept.iter().map(ToString::to_string).collect();
        let found = self.current()?;
        let differs = self.differences(&found, &whole.manifest).into_iter();
        // A directory stays if it contains paths that no snapshot contains.
        let is_wrong = |change: &PathChange| {
            change.new.is_some() || !change.old.as_ref().is_some_and(TreeEntry::is_directory)
        };
        restored.differs = differs.filter(is_wrong).map(|change| change.path).collect();
        Ok(restored)
    }

    /// Checkpoints that were not made by a restore, newest first, including unreadable ones.
    pub(crate) fn candidates(&self) -> Result<Vec<CheckpointId>, CheckpointError> {
        let mut candidates = Vec::new();
        for id in self.ids()?.into_iter().rev() {
            let summary = self.summary(id)?;
            if !summary.is_ok_and(|summary| summary.kind == PRE_RESTORE) {
                candidates.push(id);
            }
        }
        Ok(candidates)
    }

    /// The selected checkpoint, verified, and the damaged ones that were skipped.
    #[expect(clippy::type_complexity, reason = "three things, each plain")]
    pub(crate) fn chosen(
        &self,
        which: CheckpointSelector,
    ) -> Result<
        (
            CheckpointId,
            ReadableCheckpoint,
            Vec<(CheckpointId, String)>,
        ),
        CheckpointError,
    > {
        match which {
            CheckpointSelector::Id(id) => {
                if !self.ids()?.contains(&id) {
                    return Err(CheckpointError::Unknown { id });
                }
                match self.whole(id)? {
                    Ok(whole) => Ok((id, whole, Vec::new())),
                    Err(problem) => Err(CheckpointError::Damaged { id, problem }),
                }
            }
            CheckpointSelector::Latest => {
                let mut passed: Vec<(CheckpointId, String)> = Vec::new();
                for id in self.candidates()? {
                    match self.whole(id)? {
                        Ok(whole) => return Ok((id, whole, passed)),
                        Err(problem) => passed.push((id, problem)),
                    }
                }
                let count = passed.len();
                let (id, problem) = passed.into_iter().next().ok_or(CheckpointError::None)?;
                Err(CheckpointError::AllDamaged { count, id, problem })
            }
        }
    }

    /// Manifest of the work area's current files.
    pub(crate) fn current(&mut self) -> Result<Manifest, CheckpointError> {
        let found = self.survey(Consistency::Stopped)?;
        let newest = self.ids()?.last().copied();
        let index = newest.and_then(|newest| self.take_index(newest));
        let manifest = self.read_all(self.files(), &found, index.as_ref());
        let manifest = manifest.map(|(manifest, unreadable)| {
            let kept =
                |reason: &Reason| matches!(reason, Reason::Unreadable | Reason::Sparse { .. });
            let kept = found.left_out.iter().filter(|left| kept(&left.reason));
            let kept = kept.map(|left| left.path.clone());
            let files = unreadable.iter().map(|path| to_text(path.as_bytes()));
            self.untouched = kept.chain(files).collect();
            manifest
        });
        if let Some(index) = index {
            self.keep_index(index);
        }
        manifest
    }

    /// Reads the surveyed files, except those in the index. Also returns the files that the user has
    /// no right to read.
    pub(crate) fn read_all(
        &self,
        source: &dyn Folder,
        found: &Survey,
        index: Option<&Index>,
    ) -> Result<(Manifest, Vec<RelativePath>), CheckpointError> {
        let mut unreadable = Vec::new();
        let mut builder = ManifestBuilder::new(tree_limits(), Names::Local);
        for one in &found.found {
            let known = index.and_then(|index| index.digest_of(&one.path, &one.stat));
            let entry = match (one.stat.kind, known, &one.target) {
                (NodeKind::File, Some(sha256), _) => Some(TreeEntry::File {
                    mode: one.stat.mode,
                    bytes: one.stat.len,
                    sha256,
                }),
                (NodeKind::Link, _, Some(target)) => Some(TreeEntry::Link {
                    target: target.clone(),
                }),
                (NodeKind::Directory, ..) => Some(TreeEntry::Directory {
                    mode: one.stat.mode,
                }),
                _ => {
                    let at = one.path.as_path();
                    match observe(source, at) {
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                            unreadable.push(one.path.clone());
                            continue;
                        }
                        other => other.during("read", at)?,
                    }
                }
            };
            let path = one.path.clone();
            let entry = entry.ok_or_else(|| TreeError::Changing { path: path.clone() })?;
            builder.add(path, entry)?;
        }
        Ok((builder.finish(), unreadable))
    }

    /// Changes from the current files to the target.
    pub(crate) fn differences(&self, current: &Manifest, target: &Manifest) -> Vec<PathChange> {
        let mut differences = changes(current, target);
        differences
            .retain(|change| !self.scope.is_own(&change.path) && !self.is_left_out(&change.path));
        differences
    }

    /// True if no snapshot may contain the path, even if a manifest lists it, or if it is unreadable
    /// or lies in an unreadable directory.
    fn is_left_out(&self, path: &RelativePath) -> bool {
        let mut parts = path.ancestors();
        parts.push(path.clone());
        parts.iter().any(|part| {
            let is_untouched = self.untouched.contains(&to_text(part.as_bytes()));
            is_untouched || self.excludes.reason(part.as_bytes(), true).is_some()
        })
    }

    /// Unpacks the new files, makes a checkpoint of the current ones, and records both. From then
    /// on recovery can finish the restore.
    fn prepare(
        &mut self,
        id: CheckpointId,
        whole: &ReadableCheckpoint,
        (current, differences): (&Manifest, &[PathChange]),
        held_in: Option<CheckpointId>,
        now: Timestamp,
    ) -> Result<CheckpointId, CheckpointError> {
        let restoring = below(RESTORING);
        let (new, journal) = (restoring.join(NEW), restoring.join(JOURNAL));
        let root = self.root.as_ref();
        remove_all(root, &restoring)?;
        for path in [&restoring, &new, &journal] {
            root.create_dir(path, 0o700).during("create", path)?;
        }
        let comes =
            |change: &&PathChange| matches!(&change.new, Some(entry) if !entry.is_directory());
        let wanted: BTreeSet<&RelativePath> = differences
            .iter()
            .filter(comes)
            .map(|change| &change.path)
            .collect();
        let into = root.below(&new).during("open", &new)?;
        let archive = folder_of(id).join(SNAPSHOT);
        let file = root.read(&archive).during("open", &archive)?;
        let is_wanted = |path: &RelativePath| wanted.contains(path);
        match extract_listed(
            Stream::new(file),
            &whole.manifest,
            into.as_ref(),
            &is_wanted,
        ) {
            Err(error @ TreeError::Io { .. }) => return Err(error.into()),
            Err(error) => {
                let problem = error.to_string();
                return Err(CheckpointError::Damaged { id, problem });
            }
            Ok(()) => {}
        }
        let (pre_restore, held) = self.hold(id, whole, held_in, now)?;
        let moved = changes(&held, current);
        if let Some(change) = moved.iter().find(|one| !self.scope.is_own(&one.path)) {
            let path = change.path.clone();
            return Err(TreeError::Changing { path }.into());
        }
        let root = self.root.as_ref();
        // The journal must exist before the note, because the note makes recovery search for it.
        root.sync_dir(&restoring).during("sync", &restoring)?;
        let note = json(&Note {
            used: id,
            pre_restore,
        })?;
        write_new(root, &restoring.join(NOTE), &note)?;
        root.sync_dir(&restoring).during("sync", &restoring)?;
        let at = Path::new(CHECKPOINTS);
        root.sync_dir(at).during("sync", at)?;
        Ok(pre_restore)
    }

    /// Returns the checkpoint of the files before a restore, and its manifest; makes the checkpoint
    /// if there is none yet.
    fn hold(
        &mut self,
        id: CheckpointId,
        whole: &ReadableCheckpoint,
        held_in: Option<CheckpointId>,
        now: Timestamp,
    ) -> Result<(CheckpointId, Manifest), CheckpointError> {
        if let Some(held_in) = held_in {
            let held = self.described(held_in)?;
            let damaged = |problem| CheckpointError::Damaged {
                id: held_in,
                problem,
            };
            return Ok((held_in, held.map_err(damaged)?.manifest));
        }
        let summary = &whole.summary;
        let request = MakeCheckpoint {
            kind: PRE_RESTORE,
            phase: summary.phase,
            progress: summary.progress,
            agent_state: AgentState {
                status: summary.agent_state.status.clone(),
                current_step: Some(format!("restoring {id}")),
            },
            tokens_used: summary.tokens_used,
            consistency: Consistency::Stopped,
            name: None,
            pinned: None,
        };
        let held = self.make_any(&request, now)?;
        Ok((held.made.checkpoint_id, held.manifest))
    }

    /// Applies the changes atomically.
    fn put_in_place(
        &mut self,
        current: &Manifest,
        target: &Manifest,
        differences: &[PathChange],
    ) -> Result<Vec<swap::DisplacedFile>, CheckpointError> {
        let restoring = below(RESTORING);
        let new = restoring.join(NEW);
        let (root, files) = (self.root.as_ref(), self.files());
        let swapped = open_up(files, current, differences).and_then(|()| {
            let new = root.below(&new).during("open", &new)?;
            let staging = free_name(files)?;
            with_journal((root, files), |place| {
                swap::swap(place, new.as_ref(), &for_swap(differences), &staging)
                    .map_err(CheckpointError::from)
            })
        });
        match swapped {
            Ok(kept) => {
                set_modes(self.scope, files, target)?;
                self.forget_restore()?;
                Ok(kept)
            }
            Err(error @ CheckpointError::Unfinished(_)) => Err(error),
            Err(error) => {
                set_modes(self.scope, files, current)?;
                self.forget_restore()?;
                Err(error)
            }
        }
    }

    /// Finishes or undoes a restore that a crash interrupted.
    pub(crate) fn finish_restore(&mut self) -> Result<Vec<Finding>, CheckpointError> {
        let restoring = below(RESTORING);
        let root = self.root.as_ref();
        let path = restoring.join(NOTE);
        let note = read_file(root, &path, CHECKPOINT_NOTE_BYTES_MAX)?;
        let note: Option<Note> = note.and_then(|text| serde_json::from_slice(&text).ok());
        let Some(note) = note else {
            // No file was replaced before the note was durable.
            self.forget_restore()?;
            return Ok(Vec::new());
        };
        let recovered = with_journal((root, self.files()), |place| {
            swap::recover(place).map_err(CheckpointError::from)
        })?;
        let (of, what, kept) = match recovered {
            SwapRecovery::New { kept } => (note.used, "it was finished", kept),
            SwapRecovery::Old { kept, .. } => (note.pre_restore, "it was rolled back", kept),
            SwapRecovery::Nothing => (note.pre_restore, "it had not started", Vec::new()),
        };
        let mut problem = format!("a restore of `{}` was interrupted: {what}", note.used);
        for kept in kept {
            problem.push_str(&format!("; {kept}"));
        }
        match self.described(of)? {
            Ok(whole) => set_modes(self.scope, self.files(), &whole.manifest)?,
            Err(damage) => problem.push_str(&format!(
                "; directory modes may be more permissive than before, because `{of}` is damaged: {damage}"
            )),
        }
        self.forget_restore()?;
        let finding = Finding::new(&restoring, FindingKind::UnfinishedWork, problem);
        Ok(vec![finding])
    }

    /// Removes all temporary files of a restore.
    fn forget_restore(&self) -> Result<(), CheckpointError> {
        let root = self.root.as_ref();
        let (path, aside) = (below(RESTORING), below(format!("{REMOVING}restore")));
        let at = Path::new(CHECKPOINTS);
        remove_all(root, &aside)?;
        // Renamed atomically, because recovery would misread a partial journal.
        root.rename_new(&path, &aside).during("rename", &path)?;
        root.sync_dir(at).during("sync", at)?;
        remove_all(root, &aside)?;
        root.sync_dir(at).during("sync", at)
    }
}

pub(crate) fn restore_result(
    used: CheckpointId,
    fell_back_from: Vec<(CheckpointId, String)>,
    differences: &[PathChange],
) -> RestoreResult {
    let paths = |is_old: bool, is_new: bool| {
        let fits =
            |change: &&PathChange| change.old.is_some() == is_old && change.new.is_some() == is_new;
        let paths = differences.iter().filter(fits);
        paths.map(|change| change.path.clone()).collect()
    };
    RestoreResult {
        used,
        fell_back_from,
        added: paths(false, true),
        changed: paths(true, true),
        removed: paths(true, false),
        pre_restore: None,
        kept: Vec::new(),
        differs: Vec::new(),
    }
}

/// The changes of a swap. Modes of directories are set afterwards, so that files can be created in
/// the directories before.
fn for_swap(differences: &[PathChange]) -> Vec<PathChange> {
    let is_directory =
        |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
    let moves = differences
        .iter()
        .filter(|change| !(is_directory(&change.old) && is_directory(&change.new)));
    let opened = |change: &PathChange| {
        let mut change = change.clone();
        if let Some(TreeEntry::Directory { mode }) = &mut change.new {
            *mode |= 0o700;
        }
        change
    };
    moves.map(opened).collect()
}

/// Makes the directories of changed files writable.
fn open_up(
    root: &dyn Folder,
    current: &Manifest,
    differences: &[PathChange],
) -> Result<(), CheckpointError> {
    let parents: BTreeSet<RelativePath> = differences
        .iter()
        .flat_map(|change| change.path.ancestors())
        .collect();
    for path in parents {
        if let Some(TreeEntry::Directory { mode }) = current.get(&path)
            && mode & 0o700 != 0o700
        {
            let at = path.as_path();
            let set = root.set_dir_mode(at, mode | 0o700);
            set.during("set the mode of", at)?;
        }
    }
    Ok(())
}

fn set_modes(scope: Scope, root: &dyn Folder, manifest: &Manifest) -> Result<(), CheckpointError> {
    let entries = manifest.entries().rev();
    for (path, entry) in entries.filter(|(path, _)| !scope.is_own(path)) {
        let TreeEntry::Directory { mode } = entry else {
            continue;
        };
        let at = path.as_path();
        let stat = root.look(at).during("inspect", at)?;
        if stat.is_some_and(|stat| stat.kind == NodeKind::Directory && stat.mode != *mode) {
            root.set_dir_mode(at, *mode).during("set the mode of", at)?;
            root.sync_dir(at).during("sync", at)?;
        }
    }
    Ok(())
}

/// Finds an unused name for the staging directory.
fn free_name(root: &dyn Folder) -> Result<String, CheckpointError> {
    let mut number = 1_u32;
    loop {
        let name = if number == 1 {
            STAGING.to_owned()
        } else {
            format!("{STAGING}-{number}")
        };
        let path = Path::new(&name);
        if root.look(path).during("inspect", path)?.is_none() {
            return Ok(name);
        }
        number += 1;
    }
}

/// Operates on `files` with the journal below `root`.
fn with_journal<T>(
    (root, files): (&dyn Folder, &dyn Folder),
    work: impl FnOnce(SwapSite<'_>) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let path: PathBuf = below(RESTORING).join(JOURNAL);
    let journal = root.below(&path).during("open", &path)?;
    work(SwapSite {
        journal: journal.as_ref(),
        root: files,
        names: Names::Local,
        specials: Specials::Remove,
    })
}
