//! Restore drills: test restores of the newest checkpoint.

use goondan_protocol::time::Timestamp;
use goondan_trees::extract::extract_listed;
use goondan_trees::limits::Limits;
use goondan_trees::{Excludes, Unreadable, Writers, remove_all, survey};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::place::{DRILL, SNAPSHOT, Stream, below, folder_of};
use crate::store::{ReadableCheckpoint, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrillResult {
    pub checkpoint_id: CheckpointId,
    pub at: Timestamp,
    pub entries: usize,
    /// The reason that it cannot be restored, if so.
    pub problem: Option<String>,
}

impl Store {
    /// Restores the newest checkpoint not made by a restore into a temporary directory, compares it
    /// with its manifest, and removes the directory.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::None`], [`CheckpointError::NoRoom`], or the file system's error. A
    /// damaged checkpoint is not an error but reported as [`DrillResult::problem`].
    pub fn drill(&mut self, now: Timestamp) -> Result<DrillResult, CheckpointError> {
        let candidates = self.candidates()?;
        let id = *candidates.first().ok_or(CheckpointError::None)?;
        let mut drill = DrillResult {
            checkpoint_id: id,
            at: now,
            entries: 0,
            problem: None,
        };
        let whole = match self.whole(id)? {
            Ok(whole) => whole,
            Err(problem) => {
                drill.problem = Some(problem);
                return Ok(drill);
            }
        };
        self.check_free(whole.manifest.bytes())?;
        drill.entries = whole.manifest.len();
        let path = below(DRILL);
        let root = self.root.as_ref();
        remove_all(root, &path)?;
        root.create_dir(&path, 0o700).during("create", &path)?;
        let tried = self.try_out(id, &whole);
        remove_all(self.root.as_ref(), &path)?;
        drill.problem = tried?;
        Ok(drill)
    }

    /// Unpacks and compares a checkpoint; returns the problem, if any.
    fn try_out(
        &self,
        id: CheckpointId,
        whole: &ReadableCheckpoint,
    ) -> Result<Option<String>, CheckpointError> {
        let path = below(DRILL);
        let into = self.root.below(&path).during("open", &path)?;
        let archive = folder_of(id).join(SNAPSHOT);
        let file = self.root.read(&archive).during("open", &archive)?;
        let manifest = &whole.manifest;
        match extract_listed(Stream::new(file), manifest, into.as_ref(), &|_| true) {
            Err(error @ goondan_trees::TreeError::Io { .. }) => return Err(error.into()),
            Err(error) => return Ok(Some(error.to_string())),
            Ok(()) => {}
        }
        let nothing = Excludes::new::<&str>(&[])
            .map_err(|error| CheckpointError::invalid(error.to_string()))?;
        let found = survey(
            into.as_ref(),
            &nothing,
            Limits::default(),
            Writers::AtRest,
            Unreadable::Refused,
        )?;
        let (found, _) = self.read_all(into.as_ref(), &found, None)?;
        let differs = goondan_trees::changes(manifest, &found);
        Ok(differs
            .first()
            .map(|change| format!("`{}` has changed since it was unpacked", change.path)))
    }
}
