//! Rewinds to a joint checkpoint of a conversation (`CKPT-6`).
//!
//! This module handles the files: those of the work directory are replaced atomically, and those of
//! the conversation are only unpacked. The conversation's owner moves them into place and ensures
//! that both happen or neither; every step here is idempotent.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use goondan_protocol::time::Timestamp;
use goondan_trees::extract::extract_listed;
use goondan_trees::{PathChange, RelativePath, TreeEntry, TreeError, changes, remove_all};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::place::{BASE, CHECKPOINTS, REWINDING, SNAPSHOT, Scope, Stream, below, folder_of};
use crate::record::{
    CheckpointReceipt, CheckpointSelector, MakeCheckpoint, PRE_RESTORE, RestoreResult,
};
use crate::restore::restore_result;
use crate::store::{ReadableCheckpoint, Store};

#[derive(Debug)]
pub struct RewindPlan {
    /// Changes to the work directory.
    pub files: RestoreResult,
    /// Changes to the conversation: its messages and the states of its extensions.
    pub conversation: Vec<PathChange>,
    /// Path of the unpacked conversation, below the conversation's directory.
    pub unpacked: PathBuf,
    whole: ReadableCheckpoint,
}

impl RewindPlan {
    /// True if anything differs.
    #[must_use]
    pub fn changes_anything(&self) -> bool {
        let files = &self.files;
        let lists = [&files.added, &files.changed, &files.removed];
        !self.conversation.is_empty() || lists.iter().any(|paths| !paths.is_empty())
    }

    /// The state pinned by the checkpoint.
    #[must_use]
    pub fn pinned(&self) -> Option<&goondan_protocol::control::PinnedConversation> {
        self.whole.summary.pinned.as_ref()
    }

    /// State files of extensions that change.
    pub fn extensions(&self) -> impl Iterator<Item = &RelativePath> {
        let is_state = |change: &&PathChange| change.path.as_bytes().starts_with(b"extensions/");
        self.conversation
            .iter()
            .filter(is_state)
            .map(|change| &change.path)
    }
}

impl Store {
    /// Verifies a checkpoint, computes the changes of a rewind, and unpacks its conversation.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]; the files of the work directory and of the conversation are unchanged.
    pub fn plan_rewind(
        &mut self,
        which: CheckpointSelector,
    ) -> Result<RewindPlan, CheckpointError> {
        let (id, whole, fell_back_from) = self.chosen(which)?;
        if self.scope != Scope::Conversation || whole.summary.pinned.is_none() {
            let problem = format!("`{id}` is not a checkpoint of a conversation");
            return Err(CheckpointError::invalid(problem));
        }
        let current = self.current()?;
        let files = self.differences(&current, &whole.manifest);
        self.check_place(&files)?;
        // goondan's own directories always exist, and changes of their times are irrelevant.
        let is_content = |change: &PathChange| {
            let is_directory =
                |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
            self.scope.is_own(&change.path)
                && !is_directory(&change.old)
                && !is_directory(&change.new)
                && !change.path.as_bytes().ends_with(b"base.sums.jsonl")
        };
        let conversation = changes(&current, &whole.manifest).into_iter();
        let conversation = conversation.filter(is_content).collect();
        let unpacked = self.unpack_conversation(id, &whole)?;
        Ok(RewindPlan {
            files: restore_result(id, fell_back_from, &files),
            conversation,
            unpacked,
            whole,
        })
    }

    /// Makes a checkpoint of the state before a rewind. Durable on return.
    ///
    /// # Errors
    ///
    /// See [`Store::make`].
    pub fn make_before_rewind(
        &mut self,
        request: &MakeCheckpoint<'_>,
        now: Timestamp,
    ) -> Result<CheckpointReceipt, CheckpointError> {
        let request = MakeCheckpoint {
            kind: PRE_RESTORE,
            ..request.clone()
        };
        self.make_any(&request, now).map(|held| held.made)
    }

    /// Restores the files of the work directory atomically. `held_in` is the checkpoint of the
    /// current state. Idempotent.
    ///
    /// # Errors
    ///
    /// See [`Store::restore`].
    pub fn rewind_files(
        &mut self,
        plan: &RewindPlan,
        held_in: CheckpointId,
        now: Timestamp,
    ) -> Result<(), CheckpointError> {
        let current = self.current()?;
        let differences = self.differences(&current, &plan.whole.manifest);
        if differences.is_empty() {
            return Ok(());
        }
        let restored = restore_result(plan.files.used, Vec::new(), &differences);
        let what = (&plan.whole, &current, differences.as_slice());
        self.bring_back(restored, what, Some(held_in), now)?;
        Ok(())
    }

    /// True if the files of the work directory are certainly those of a checkpoint.
    #[must_use]
    pub fn is_as_held(&mut self, id: CheckpointId) -> bool {
        let held = self.described(id).ok().and_then(Result::ok);
        let current = self.current().ok();
        let both = current.zip(held);
        both.is_some_and(|(current, held)| self.differences(&current, &held.manifest).is_empty())
    }

    /// Removes the unpacked conversation, after it was moved into place.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`].
    pub fn forget_unpacked(&self) -> Result<(), CheckpointError> {
        Ok(remove_all(self.root.as_ref(), &below(REWINDING))?)
    }

    /// Iterates over the lines of the current or the unpacked messages.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`].
    pub fn each_message(
        &self,
        unpacked: Option<&RewindPlan>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), CheckpointError> {
        let path = unpacked.map_or_else(|| PathBuf::from(BASE), |plan| plan.unpacked.join(BASE));
        let file = self.root.read(&path).during("open", &path)?;
        let mut lines = BufReader::new(Stream::new(file));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).during("read", &path)? > 0 {
            each(&line);
            line.clear();
        }
        Ok(())
    }

    fn unpack_conversation(
        &self,
        id: CheckpointId,
        whole: &ReadableCheckpoint,
    ) -> Result<PathBuf, CheckpointError> {
        let path = below(REWINDING);
        let root = self.root.as_ref();
        remove_all(root, &path)?;
        self.check_free(whole.summary.pinned.as_ref().map_or(0, |p| p.base_bytes))?;
        root.create_dir(&path, 0o700).during("create", &path)?;
        let at = Path::new(CHECKPOINTS);
        root.sync_dir(at).during("sync", at)?;
        let into = root.below(&path).during("open", &path)?;
        let archive = folder_of(id).join(SNAPSHOT);
        let file = root.read(&archive).during("open", &archive)?;
        let is_wanted = |path: &RelativePath| {
            let entry = whole.manifest.get(path);
            self.scope.is_own(path) && entry.is_some_and(|entry| !entry.is_directory())
        };
        match extract_listed(
            Stream::new(file),
            &whole.manifest,
            into.as_ref(),
            &is_wanted,
        ) {
            Ok(()) => Ok(path),
            Err(error @ TreeError::Io { .. }) => Err(error.into()),
            Err(error) => Err(CheckpointError::Damaged {
                id,
                problem: error.to_string(),
            }),
        }
    }
}
