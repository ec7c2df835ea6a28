//! Joint checkpoints of conversations, and rewinding to them (`CKPT-6`).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceKey, MessageId, WorkspaceId};
use crate::limits::MAX_CHECKPOINTS_PAGE;
use crate::time::Timestamp;
use crate::usage::Charge;

use super::paging::try_page_of;

/// What a joint checkpoint pins of a conversation beside the files of its work directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedConversation {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// Confirmed messages.
    pub messages: u64,
    /// Bytes of them.
    pub base_bytes: u64,
    /// SHA-256 of them, as hex digits.
    pub base_sha256: String,
    /// The number of the last event that was accepted. Events are never taken back.
    pub inbox_seq: u64,
    /// Extensions with a state.
    pub extensions: u64,
    /// What the conversation had spent. Money is never taken back.
    pub spent: Charge,
    /// The digest of the configuration that ran; none if none did.
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
    /// What a person calls it. One with a name is never removed for its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `instance.checkpoints`: one page of them, the oldest first (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInstanceCheckpoints {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Most checkpoints on the page, at most and if it is not said [`MAX_CHECKPOINTS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `instance.checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceCheckpointsPage {
    /// The checkpoints, the oldest first.
    pub checkpoints: Vec<InstanceCheckpoint>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListInstanceCheckpoints {
    /// The page that begins with these checkpoints, which come in their order and are all behind
    /// [`after`](Self::after). Not more of them are taken than a page and one.
    ///
    /// # Errors
    ///
    /// The first of theirs.
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
    /// Why it was made: `manual`, or `pre_restore` before a rewind.
    #[serde(rename = "type")]
    pub kind: String,
    /// A name that a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When.
    pub created_at: Timestamp,
    /// Bytes that it takes.
    pub snapshot_size: u64,
    /// What it pins; none if that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedConversation>,
    /// Why it cannot be gone back to, if it cannot.
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
    /// Which checkpoint; the newest that is whole and that no rewind made if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// Only tell what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// End a turn that is in progress first, as `event.cancel` does.
    #[serde(default)]
    pub cancel: bool,
}

/// A message that a rewind takes out of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageTakenBack {
    /// Its id.
    pub id: MessageId,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: String,
    /// The head of its text.
    pub head: String,
}

/// The configuration is another than when the checkpoint was made. A rewind does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherConfiguration {
    /// The digest of the one that ran then; none if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// The digest of the one that runs; none if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
}

/// What a rewind changed, or would change. Paths are relative to the conversation's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRewound {
    /// The checkpoint that was used.
    pub checkpoint_id: String,
    /// Newer ones that are damaged, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<InstanceCheckpoint>,
    /// What it pins.
    pub pinned: PinnedConversation,
    /// Whether anything differed from the checkpoint at all.
    pub is_changed: bool,
    /// How many messages went.
    pub messages_removed: u64,
    /// The first of them.
    pub removed_messages: Vec<MessageTakenBack>,
    /// How many messages are there again.
    pub messages_restored: u64,
    /// Files that are there again.
    pub added: Vec<String>,
    /// Files that are as they were.
    pub changed: Vec<String>,
    /// Files that were made later, and are in the checkpoint made before the rewind.
    pub removed: Vec<String>,
    /// Extensions whose state is there again, is as it was, or is gone.
    pub extensions: Vec<String>,
    /// The joint checkpoint made before the rewind; none if it was a rehearsal or nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_rewind: Option<String>,
    /// The configuration, if it is another than then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<OtherConfiguration>,
    /// What the conversation has spent since: that stays spent.
    pub spent_since: Charge,
    /// What is not taken back, for people.
    pub not_rewound: Vec<String>,
}

/// That a conversation was rewound, as it remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindRecord {
    /// When.
    pub at: Timestamp,
    /// To which checkpoint.
    pub checkpoint_id: String,
    /// The checkpoint made before.
    pub pre_rewind: String,
    /// Messages that the conversation had before.
    pub messages_before: u64,
    /// Messages that it had afterwards.
    pub messages_after: u64,
}
