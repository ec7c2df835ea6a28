//! Contents of `metadata.json` and `latest.json` (`CKPT-1`, `CKPT-2`).

use goondan_protocol::control::PinnedConversation;
use goondan_protocol::time::Timestamp;
use goondan_trees::{Digest, Manifest, RelativePath, TreeEntry, read_local_manifest};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::CheckpointError;
use crate::id::CheckpointId;
use crate::limits::{CHECKPOINT_NAME_CHARS_MAX, CHECKPOINT_TYPE_CHARS_MAX};

/// Type of the checkpoint of the current files that a restore creates.
pub const PRE_RESTORE: &str = "pre_restore";

/// Consistency of the files in a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Consistency {
    /// No process wrote during the checkpoint: all files are from one moment.
    Stopped,
    /// A process may have written during the checkpoint: each file is from some moment of the copy.
    #[default]
    Live,
}

/// Activity of the task's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// The agent's status, such as `running`.
    pub status: String,
    pub current_step: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeCheckpoint<'m> {
    /// Reason for the checkpoint: `periodic`, `phase_completion`, `dependency_request`,
    /// `user_question`, `rate_limit`, `error`, `manual_pause` or another word of lower-case letters
    /// and `_`.
    pub kind: &'m str,
    /// The phase of the task.
    pub phase: u32,
    pub progress: u8,
    pub agent_state: AgentState,
    pub tokens_used: u64,
    /// [`Consistency::Stopped`] if the agent is idle.
    pub consistency: Consistency,
    /// Name given by a user. [`prune`](crate::Store::prune) never removes a named checkpoint.
    pub name: Option<String>,
    /// The pinned conversation, without the digest of its messages; `None` for a task.
    pub pinned: Option<PinnedConversation>,
}

impl MakeCheckpoint<'_> {
    pub(crate) fn check(&self) -> Result<(), CheckpointError> {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        if self.kind.is_empty()
            || self.kind.len() > CHECKPOINT_TYPE_CHARS_MAX
            || !self.kind.bytes().all(is_word)
        {
            return Err(CheckpointError::invalid(format!(
                "the type of a checkpoint must have 1 to {CHECKPOINT_TYPE_CHARS_MAX} lower-case letters and `_`"
            )));
        }
        if self.progress > 100 {
            return Err(CheckpointError::invalid(
                "the progress of a task must be at most 100 percent",
            ));
        }
        let is_name = |name: &String| {
            let len = name.chars().count();
            (1..=CHECKPOINT_NAME_CHARS_MAX).contains(&len) && !name.chars().any(char::is_control)
        };
        if self.name.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(CheckpointError::invalid(format!(
                "the name of a checkpoint must be one line of 1 to {CHECKPOINT_NAME_CHARS_MAX} characters"
            )));
        }
        if let Some(name) = &self.name
            && name.parse::<CheckpointId>().is_ok()
        {
            return Err(CheckpointError::invalid(format!(
                "`{name}` is the id of a checkpoint and cannot be a name"
            )));
        }
        Ok(())
    }
}

/// Metadata of a checkpoint besides its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    pub(crate) id: CheckpointId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pinned: Option<PinnedConversation>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) phase: u32,
    pub(crate) progress: u8,
    pub(crate) agent_state: AgentState,
    pub(crate) tokens_used: u64,
    pub(crate) created_at: Timestamp,
    #[serde(default)]
    pub(crate) consistency: Consistency,
    pub(crate) snapshot_size: u64,
    /// SHA-256 of `snapshot.tar.gz`; `None` for a checkpoint of another program that was not
    /// [adopted](crate::Store::adopt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<Digest>,
    /// Digest of the manifest, to detect damage; `None` in the plain format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) manifest_digest: Option<Digest>,
}

/// A path that a snapshot does not contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OmittedPath {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// `metadata.json`, as written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFile<'w> {
    #[serde(flatten)]
    summary: &'w Summary,
    left_out: &'w [OmittedPath],
    files: ManifestPaths<'w>,
    manifest: &'w Manifest,
}

/// The paths of a manifest without its directories.
struct ManifestPaths<'w>(&'w Manifest);

impl Serialize for ManifestPaths<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (path, entry) in self.0.entries() {
            if !entry.is_directory() {
                list.serialize_element(path)?;
            }
        }
        list.end()
    }
}

/// The manifest of `metadata.json`.
#[derive(Deserialize)]
struct ManifestField {
    #[serde(deserialize_with = "read_local_manifest")]
    manifest: Manifest,
}

/// Writes `metadata.json`.
pub(crate) fn write(
    summary: &Summary,
    left_out: &[OmittedPath],
    manifest: &Manifest,
) -> Result<Vec<u8>, CheckpointError> {
    json(&MetadataFile {
        summary,
        left_out,
        files: ManifestPaths(manifest),
        manifest,
    })
}

/// Parses the part of `metadata.json` besides the files.
pub(crate) fn read_summary(text: &[u8]) -> Result<Summary, String> {
    let summary: Summary = serde_json::from_slice(text)
        .map_err(|error| format!("failed to read `metadata.json`: {error}"))?;
    Ok(summary)
}

/// Reads the manifest of `metadata.json`, which may be hostile.
pub(crate) fn read_manifest(text: &[u8], summary: &Summary) -> Result<Manifest, String> {
    let Some(expected) = summary.manifest_digest else {
        return Err(
            "another program created it, and its archive is missing or cannot be unpacked"
                .to_owned(),
        );
    };
    let ManifestField { manifest } = serde_json::from_slice(text)
        .map_err(|error| format!("failed to read the manifest in `metadata.json`: {error}"))?;
    let digest = manifest.digest().map_err(|error| error.to_string())?;
    if digest != expected {
        return Err("the manifest in `metadata.json` has been changed".to_owned());
    }
    for (path, entry) in manifest.entries() {
        if mode_of(entry) & !0o777 != 0 {
            return Err(format!("`{path}` has modes that checkpoints do not store"));
        }
    }
    Ok(manifest)
}

fn mode_of(entry: &TreeEntry) -> u32 {
    match entry {
        TreeEntry::File { mode, .. } | TreeEntry::Directory { mode } => *mode,
        TreeEntry::Link { .. } => 0,
    }
}

/// `latest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LatestCheckpoint {
    pub(crate) checkpoint_id: CheckpointId,
    pub(crate) path: String,
    pub(crate) created_at: Timestamp,
    pub(crate) phase: u32,
    pub(crate) progress: u8,
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

pub(crate) fn json(record: &impl Serialize) -> Result<Vec<u8>, CheckpointError> {
    let mut text = serde_json::to_vec(record).map_err(|error| CheckpointError::Unwritable {
        problem: error.to_string(),
    })?;
    text.push(b'\n');
    Ok(text)
}

/// Result of making a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReceipt {
    pub checkpoint_id: CheckpointId,
    /// Bytes of its archive.
    pub snapshot_bytes: u64,
    /// Files and links in it.
    pub files: usize,
    /// True if the work area's files equal those of the previous checkpoint, without `.metadata`.
    pub is_unchanged: bool,
    /// Number of files that were read, because they are new, changed, or not in the index.
    pub files_read: usize,
    /// Number of omitted paths: special files, and files that look like secrets.
    pub left_out: usize,
}

/// A checkpoint in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub id: CheckpointId,
    /// Bytes of its folder's files.
    pub size: u64,
    /// Its metadata; `None` if that is unreadable.
    pub about: Option<CheckpointMetadata>,
    /// Damage that is visible without reading the archive.
    pub damaged: Option<String>,
}

impl CheckpointEntry {
    /// Reason for the checkpoint; empty if its metadata is unreadable.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.about.as_ref().map_or("", |about| &about.kind)
    }

    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.about.as_ref()?.name.as_deref()
    }

    /// When it was made; `None` if its metadata is unreadable.
    #[must_use]
    pub fn created_at(&self) -> Option<Timestamp> {
        self.about.as_ref().map(|about| about.created_at)
    }

    /// Size of the archive in bytes; of all files if the archive cannot be read.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        let about = self.about.as_ref();
        about.map_or(self.size, |about| about.snapshot_bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMetadata {
    pub kind: String,
    /// Name given by a user.
    pub name: Option<String>,
    /// The phase the task was in.
    pub phase: u32,
    pub progress: u8,
    pub created_at: Timestamp,
    pub consistency: Consistency,
    pub agent_state: AgentState,
    /// Tokens that the task had used.
    pub tokens_used: u64,
    /// Bytes of its archive.
    pub snapshot_bytes: u64,
    /// The pinned conversation, if it is a conversation's checkpoint.
    pub pinned: Option<PinnedConversation>,
}

impl From<Summary> for CheckpointMetadata {
    fn from(summary: Summary) -> Self {
        Self {
            kind: summary.kind,
            name: summary.name,
            phase: summary.phase,
            progress: summary.progress,
            created_at: summary.created_at,
            consistency: summary.consistency,
            agent_state: summary.agent_state,
            tokens_used: summary.tokens_used,
            snapshot_bytes: summary.snapshot_size,
            pinned: summary.pinned,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointSelector {
    /// The newest intact checkpoint that was not made by a restore.
    Latest,
    /// This checkpoint.
    Id(CheckpointId),
}

/// Result of a restore or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreResult {
    pub used: CheckpointId,
    /// Newer checkpoints that are damaged, with their damage: a warning.
    pub fell_back_from: Vec<(CheckpointId, String)>,
    /// Restored paths that did not exist.
    pub added: Vec<RelativePath>,
    pub changed: Vec<RelativePath>,
    /// Paths that were created later.
    pub removed: Vec<RelativePath>,
    /// Checkpoint of the files before the restore; `None` if nothing changed, or in a dry run.
    pub pre_restore: Option<CheckpointId>,
    /// Current paths of files that were written during the swap, below the work area.
    pub kept: Vec<String>,
    /// Paths that differ from the checkpoint because of a concurrent write.
    pub differs: Vec<RelativePath>,
}
