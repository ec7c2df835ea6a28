//! Joint checkpoints of conversations, and rewinding to them (`CKPT-6`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, MessageId, WorkspaceId};
use crate::limits::MAX_CHECKPOINTS_PAGE;
use crate::time::Timestamp;
use crate::usage::Charge;

use super::pages::try_page_of;

/// State of a conversation that a joint checkpoint pins, besides the files of its working
/// directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedConversation {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// Number of confirmed messages.
    pub messages: u64,
    /// Size of the confirmed messages, in bytes.
    pub base_bytes: u64,
    /// SHA-256 of the confirmed messages, in hexadecimal.
    pub base_sha256: String,
    /// Sequence number of the last accepted event. A rewind never removes events.
    pub inbox_seq: u64,
    /// Number of extensions with a state.
    pub extensions: u64,
    /// Usage of the conversation until then. A rewind never refunds it.
    pub spent: Charge,
    /// Digest of the active configuration; absent if none was active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
}

/// `instance.checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Name given by a person. Named checkpoints are never pruned by age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `instance.checkpoints`: one page of the joint checkpoints, oldest first (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInstanceCheckpoints {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Page size; defaults to and is capped at [`MAX_CHECKPOINTS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `instance.checkpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceCheckpointsPage {
    /// The checkpoints, oldest first.
    pub checkpoints: Vec<InstanceCheckpoint>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListInstanceCheckpoints {
    /// The page that starts with these checkpoints, which must be in order and all follow
    /// [`after`](Self::after). At most one checkpoint more than fits on the page is consumed.
    ///
    /// # Errors
    ///
    /// The first error of the iterator.
    pub fn page_of<E>(
        &self,
        checkpoints: impl Iterator<Item = Result<InstanceCheckpoint, E>>,
    ) -> Result<InstanceCheckpointsPage, E> {
        let place_of = |last: &InstanceCheckpoint| last.checkpoint_id.clone();
        let page = try_page_of(checkpoints, self.limit, MAX_CHECKPOINTS_PAGE, place_of);
        page.map(|(checkpoints, next)| InstanceCheckpointsPage { checkpoints, next })
    }
}

/// A joint checkpoint of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceCheckpoint {
    /// Its id, such as `checkpoint_001`.
    pub checkpoint_id: String,
    /// Reason for its creation: `manual`, or `pre_restore` before a rewind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name given by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time of its creation; `None` if its metadata is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Its size, in bytes.
    pub snapshot_size: u64,
    /// The pinned state; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedConversation>,
    /// Reason why it cannot be restored, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// `instance.rewind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RewindInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The checkpoint. If absent, the newest intact one that no rewind created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// True to report the changes without making them.
    #[serde(default)]
    pub dry_run: bool,
    /// True to cancel a running turn first, as `event.cancel` does.
    #[serde(default)]
    pub cancel: bool,
}

/// A message that a rewind removes from a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewoundMessage {
    /// Its id.
    pub id: MessageId,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: String,
    /// The beginning of its text.
    pub head: String,
}

/// Difference between the active configuration and the checkpoint's. A rewind does not change the
/// configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherConfiguration {
    /// Digest of the checkpoint's configuration; absent if none was active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// Digest of the active configuration; absent if none is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
}

/// Changes made by a rewind, or planned in a dry run. Paths are relative to the conversation's
/// directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRewound {
    /// The restored checkpoint.
    pub checkpoint_id: String,
    /// Newer checkpoints that were skipped because they are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<InstanceCheckpoint>,
    /// The state that it pins.
    pub pinned: PinnedConversation,
    /// True if anything differed from the checkpoint.
    pub is_changed: bool,
    /// Number of removed messages.
    pub messages_removed: u64,
    /// The first of the removed messages.
    pub removed_messages: Vec<RewoundMessage>,
    /// Number of restored messages.
    pub messages_restored: u64,
    /// Files that were restored.
    pub added: Vec<String>,
    /// Files whose content was restored.
    pub changed: Vec<String>,
    /// Files that were created later. They remain in the checkpoint made before the rewind.
    pub removed: Vec<String>,
    /// Extensions whose state was restored or removed.
    pub extensions: Vec<String>,
    /// The joint checkpoint made before the rewind; absent in a dry run or if nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_rewind: Option<String>,
    /// The configurations, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<OtherConfiguration>,
    /// Usage since the checkpoint, which is not refunded.
    pub spent_since: Charge,
    /// Effects that cannot be undone, for people to read.
    pub not_rewound: Vec<String>,
}

/// Record of a rewind in the conversation's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindRecord {
    /// Time of the rewind.
    pub at: Timestamp,
    /// The restored checkpoint.
    pub checkpoint_id: String,
    /// The checkpoint made before the rewind.
    pub pre_rewind: String,
    /// Number of messages before.
    pub messages_before: u64,
    /// Number of messages after.
    pub messages_after: u64,
}
