//! What `metadata.json` and `latest.json` say of a checkpoint (`CKPT-1`, `CKPT-2`).

use goondan_protocol::control::PinnedConversation;
use goondan_protocol::time::Timestamp;
use goondan_trees::{Digest, Entry, Manifest, RelativePath, read_local_manifest};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::CheckpointError;
use crate::id::CheckpointId;
use crate::limits::{CHECKPOINT_NAME_CHARS_MAX, CHECKPOINT_TYPE_CHARS_MAX};

/// The type of the checkpoint that is made of what a restore takes away.
pub const PRE_RESTORE: &str = "pre_restore";

/// Whether somebody was writing while a checkpoint was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Consistency {
    /// Nobody was: the files are those of one moment.
    Stopped,
    /// Somebody may have been: each file is as it was at some moment of the copying.
    #[default]
    Live,
}

/// What the task's agent was doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// Its status, such as `running`.
    pub status: String,
    /// The step it was at.
    pub current_step: Option<String>,
}

/// What a checkpoint is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeCheckpoint<'m> {
    /// Why: `periodic`, `phase_completion`, `dependency_request`, `user_question`, `rate_limit`, `error`,
    /// `manual_pause` or another word of lower-case letters and `_`.
    pub kind: &'m str,
    /// The phase of the task.
    pub phase: u32,
    /// How far it is, in percent.
    pub progress: u8,
    /// What its agent was doing.
    pub agent_state: AgentState,
    /// Tokens used so far.
    pub tokens_used: u64,
    /// Whether the agent stands still.
    pub consistency: Consistency,
    /// What a person calls it. One with a name is never removed by [`prune`](crate::Store::prune).
    pub name: Option<String>,
    /// What it pins of a conversation, without the digest of its messages; none for a task's.
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
                "the type of a checkpoint is a word of 1 to {CHECKPOINT_TYPE_CHARS_MAX} lower-case letters and `_`"
            )));
        }
        if self.progress > 100 {
            return Err(CheckpointError::invalid(
                "the progress of a task is at most 100 percent",
            ));
        }
        let is_name = |name: &String| {
            let len = name.chars().count();
            (1..=CHECKPOINT_NAME_CHARS_MAX).contains(&len) && !name.chars().any(char::is_control)
        };
        if self.name.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(CheckpointError::invalid(format!(
                "the name of a checkpoint is one line of 1 to {CHECKPOINT_NAME_CHARS_MAX} characters"
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

/// What is said of a checkpoint beside its files.
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
    /// SHA-256 of `snapshot.tar.gz`; none of a checkpoint of another program that was not [adopted](crate::Store::adopt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<Digest>,
    /// The digest of the manifest, so that a damaged one is not believed; none likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) manifest_digest: Option<Digest>,
}

/// Something that a snapshot does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotHeld {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// `metadata.json` as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'w> {
    #[serde(flatten)]
    summary: &'w Summary,
    left_out: &'w [NotHeld],
    files: Files<'w>,
    manifest: &'w Manifest,
}

/// The paths of a manifest without its directories.
struct Files<'w>(&'w Manifest);

impl Serialize for Files<'_> {
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
struct WithManifest {
    #[serde(deserialize_with = "read_local_manifest")]
    manifest: Manifest,
}

/// Writes `metadata.json`.
pub(crate) fn write(
    summary: &Summary,
    left_out: &[NotHeld],
    manifest: &Manifest,
) -> Result<Vec<u8>, CheckpointError> {
    json(&Written {
        summary,
        left_out,
        files: Files(manifest),
        manifest,
    })
}

/// Reads what `metadata.json` says beside the files.
pub(crate) fn read_summary(text: &[u8]) -> Result<Summary, String> {
    let summary: Summary = serde_json::from_slice(text)
        .map_err(|error| format!("`metadata.json` cannot be read: {error}"))?;
    Ok(summary)
}

/// Reads the manifest of `metadata.json`, which may be hostile.
pub(crate) fn read_manifest(text: &[u8], summary: &Summary) -> Result<Manifest, String> {
    let Some(expected) = summary.manifest_digest else {
        return Err(
            "another program made it, and its archive is missing or cannot be unpacked".to_owned(),
        );
    };
    let WithManifest { manifest } = serde_json::from_slice(text)
        .map_err(|error| format!("the manifest in `metadata.json` cannot be read: {error}"))?;
    let digest = manifest.digest().map_err(|error| error.to_string())?;
    if digest != expected {
        return Err("the manifest in `metadata.json` is not as it was written".to_owned());
    }
    for (path, entry) in manifest.entries() {
        if mode_of(entry) & !0o777 != 0 {
            return Err(format!("`{path}` has modes that no checkpoint has"));
        }
    }
    Ok(manifest)
}

fn mode_of(entry: &Entry) -> u32 {
    match entry {
        Entry::File { mode, .. } | Entry::Directory { mode } => *mode,
        Entry::Link { .. } => 0,
    }
}

/// `latest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Latest {
    pub(crate) checkpoint_id: CheckpointId,
    pub(crate) path: String,
    pub(crate) created_at: Timestamp,
    pub(crate) phase: u32,
    pub(crate) progress: u8,
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// A record as JSON.
pub(crate) fn json(record: &impl Serialize) -> Result<Vec<u8>, CheckpointError> {
    let mut text = serde_json::to_vec(record).map_err(|error| CheckpointError::Unwritable {
        problem: error.to_string(),
    })?;
    text.push(b'\n');
    Ok(text)
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// Bytes of its archive.
    pub snapshot_bytes: u64,
    /// Files and links in it.
    pub files: usize,
    /// Whether the work area's files are those of the checkpoint before, `.metadata` aside.
    pub is_unchanged: bool,
    /// Files that were read, since they are new or changed, or nothing is known of them.
    pub files_read: usize,
    /// What is not in it, with why: special files, and what looks like a secret.
    pub left_out: usize,
}

/// A checkpoint as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: CheckpointId,
    /// Bytes of its folder's files.
    pub size: u64,
    /// What it says of itself; none if that cannot be read.
    pub about: Option<About>,
    /// What is wrong with it, as far as can be seen without reading its archive.
    pub damaged: Option<String>,
}

impl Listed {
    /// Why it was made; nothing if that cannot be read.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.about.as_ref().map_or("", |about| &about.kind)
    }

    /// What a person called it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.about.as_ref()?.name.as_deref()
    }

    /// When it was made; the beginning of time if that cannot be read.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        let epoch = Timestamp::from_unix_millis(0);
        self.about.as_ref().map_or(epoch, |about| about.created_at)
    }

    /// Bytes of its archive; of all its files if that cannot be read.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        let about = self.about.as_ref();
        about.map_or(self.size, |about| about.snapshot_bytes)
    }
}

/// What a checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Why it was made.
    pub kind: String,
    /// What a person called it.
    pub name: Option<String>,
    /// The phase the task was in.
    pub phase: u32,
    /// How far it was, in percent.
    pub progress: u8,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether somebody was writing.
    pub consistency: Consistency,
    /// What the agent was doing.
    pub agent_state: AgentState,
    /// Tokens used until then.
    pub tokens_used: u64,
    /// Bytes of its archive.
    pub snapshot_bytes: u64,
    /// What it pins of a conversation, if it is one's.
    pub pinned: Option<PinnedConversation>,
}

impl From<Summary> for About {
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

/// Which checkpoint is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The newest that is whole and was not made by a restore.
    Latest,
    /// This one, and no other.
    Id(CheckpointId),
}

/// What was restored, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Which checkpoint.
    pub used: CheckpointId,
    /// Newer ones that are damaged, with what is wrong: a warning.
    pub fell_back_from: Vec<(CheckpointId, String)>,
    /// Paths that are there again.
    pub added: Vec<RelativePath>,
    /// Paths that were otherwise.
    pub changed: Vec<RelativePath>,
    /// Paths that were made later.
    pub removed: Vec<RelativePath>,
    /// The checkpoint of what was there before; none if nothing changed, or nothing was done.
    pub pre_restore: Option<CheckpointId>,
    /// What somebody wrote at that very moment, and where it is now, below the work area.
    pub kept: Vec<String>,
    /// Paths that are not as the checkpoint has them, since somebody wrote there.
    pub differs: Vec<RelativePath>,
}
