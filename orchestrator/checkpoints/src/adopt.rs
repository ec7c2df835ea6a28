//! Checkpoints in the plain format, which another program made: its `metadata.json` has neither a manifest nor its digest.
//! They get an archive and a manifest of ours, so that they are restored, drilled and verified like all others (`CKPT-4`).

use std::path::Path;

use goondan_durable::disk::NodeKind;
use goondan_durable::register::Register;
use goondan_protocol::time::Timestamp;
use goondan_trees::extract::{Options, extract};
use goondan_trees::{Digest, TreeError, Unreadable, Writers, remove_all, survey};
use serde::Deserialize;

use crate::archive::{self, ArchiveParams};
use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;
use crate::limits::tree_limits;
use crate::make::not_held;
use crate::place::{METADATA, PARTIAL, SNAPSHOT, Stream, below, folder_of, write_new};
use crate::record::{AgentState, Consistency, Summary, write};
use crate::registry::metadata_of;
use crate::store::Store;

/// Directory in which an archive is unpacked, below the new checkpoint's directory.
const TREE: &str = "tree";

/// `metadata.json` in the plain format. Other fields are ignored, because sizes and checksums are
/// computed again.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plain {
    id: CheckpointId,
    #[serde(default)]
    task_id: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    phase: u32,
    #[serde(default)]
    progress: u8,
    agent_state: AgentState,
    #[serde(default)]
    tokens_used: u64,
    created_at: Timestamp,
    #[serde(default)]
    manifest_digest: Option<Digest>,
}

/// A checkpoint that stays in the plain format, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionFailure {
    pub id: CheckpointId,
    pub problem: String,
}

impl Store {
    /// Rewrites checkpoints of the plain format whose archives can be unpacked, and returns the
    /// checkpoints whose archives cannot. `register` has the claims about their metadata, if there
    /// are any.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`]. Each checkpoint is then either unchanged or rewritten.
    pub fn adopt(
        &self,
        register: Option<&Register<'_>>,
    ) -> Result<Vec<AdoptionFailure>, CheckpointError> {
        let mut left = Vec::new();
        if !self.has_checkpoints()? {
            return Ok(left);
        }
        for id in self.ids()? {
            let Some(plain) = self.plain(id)? else {
                continue;
            };
            if !self.has_archive(id)? {
                continue;
            }
            let staging = below(format!("{PARTIAL}{id}"));
            let adopted = self.adopt_one(id, plain, register);
            remove_all(self.root.as_ref(), &staging)?;
            match adopted {
                Ok(()) => {}
                Err(
                    error @ (CheckpointError::Io { .. }
                    | CheckpointError::Tree(TreeError::Io { .. })),
                ) => return Err(error),
                Err(error) => left.push(AdoptionFailure {
                    id,
                    problem: error.to_string(),
                }),
            }
        }
        Ok(left)
    }

    /// True if a checkpoint is in the plain format.
    pub(crate) fn is_plain(&self, id: CheckpointId) -> Result<bool, CheckpointError> {
        Ok(self.plain(id)?.is_some())
    }

    fn plain(&self, id: CheckpointId) -> Result<Option<Plain>, CheckpointError> {
        let Ok(text) = self.metadata(id)? else {
            return Ok(None);
        };
        let plain = serde_json::from_slice::<Plain>(&text).ok();
        Ok(plain.filter(|plain| plain.id == id && plain.manifest_digest.is_none()))
    }

    fn has_archive(&self, id: CheckpointId) -> Result<bool, CheckpointError> {
        let path = folder_of(id).join(SNAPSHOT);
        let stat = self.root.look(&path).during("inspect", &path)?;
        Ok(stat.is_some_and(|stat| stat.kind == NodeKind::File))
    }

    /// Recreates both files of a checkpoint from its archive, and replaces the existing ones.
    fn adopt_one(
        &self,
        id: CheckpointId,
        plain: Plain,
        register: Option<&Register<'_>>,
    ) -> Result<(), CheckpointError> {
        let root = self.root.as_ref();
        let staging = below(format!("{PARTIAL}{id}"));
        remove_all(root, &staging)?;
        root.create_dir(&staging, 0o700)
            .during("create", &staging)?;
        let folder = root.below(&staging).during("open", &staging)?;
        let path = folder_of(id).join(SNAPSHOT);
        let packed = root.read(&path).during("open", &path)?;
        let options = Options {
            is_gzip: true,
            strips_first_name: false,
            limits: tree_limits(),
        };
        extract(Stream::new(packed), folder.as_ref(), TREE, options)?;

        let at = Path::new(TREE);
        let tree = folder.below(at).during("open", at)?;
        let found = survey(
            tree.as_ref(),
            &self.excludes,
            tree_limits(),
            Writers::AtRest,
            Unreadable::Refused,
        )?;
        let path = staging.join(SNAPSHOT);
        let mut file = root.create(&path, 0o600).during("create", &path)?;
        let writing = ArchiveParams {
            source: tree.as_ref(),
            base: None,
            consistency: Consistency::Stopped,
            begun: i128::MIN,
            may_move: self.scope.may_move(),
        };
        let written = archive::write(writing, &found.found, file.as_mut())?;
        file.sync().during("sync", &path)?;
        let summary = Summary {
            id,
            task_id: plain.task_id,
            pinned: None,
            kind: plain.kind,
            name: plain.name,
            phase: plain.phase,
            progress: plain.progress,
            agent_state: plain.agent_state,
            tokens_used: plain.tokens_used,
            created_at: plain.created_at,
            // It is unknown if the agent was idle.
            consistency: Consistency::Live,
            snapshot_size: written.bytes,
            checksum: Some(written.checksum),
            manifest_digest: Some(written.manifest.digest()?),
        };
        let text = write(
            &summary,
            &not_held(&found, &written.unreadable),
            &written.manifest,
        )?;
        write_new(root, &staging.join(METADATA), &text)?;
        drop(tree);
        remove_all(root, &staging.join(TREE))?;
        root.sync_dir(&staging).during("sync", &staging)?;

        if let Some(register) = register {
            register.release(&metadata_of(id))?;
        }
        let path = folder_of(id);
        root.exchange(&staging, &path).during("exchange", &path)?;
        let at = below("");
        root.sync_dir(&at).during("sync", &at)
    }
}
