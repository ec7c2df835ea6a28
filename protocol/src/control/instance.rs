//! `instance.*`: conversations.

use std::cmp::Ordering;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AgentName, InstanceKey, MessageId, WorkspaceId};
use crate::limits::MAX_INSTANCES_PAGE;
use crate::message::Message;
use crate::observe::RuntimeEvent;
use crate::time::Timestamp;

use super::{ProcessInfo, RewindRecord};

/// `instance.list`: one page of the conversations (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInstances {
    /// Return only conversations of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Return only conversations of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// Return only conversations whose key or agent name contains this text, ignoring case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<String>,
    /// Sort order.
    #[serde(default, skip_serializing_if = "InstanceOrder::is_default")]
    pub order: InstanceOrder,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<InstanceCursor>,
    /// Page size; defaults to and is capped at [`MAX_INSTANCES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The order of conversations in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceOrder {
    /// By workspace and key. A conversation that changes meanwhile keeps its position, so all pages
    /// together are complete.
    #[default]
    Key,
    /// By last change, latest first. A conversation that changes meanwhile moves to the first page.
    Changed,
}

impl InstanceOrder {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "signature required by serde"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The last conversation of a page. Opaque to clients, which return it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceCursor {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its key.
    pub instance_key: InstanceKey,
    /// Time of its last change.
    pub updated_at: Timestamp,
}

/// Result of `instance.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancesPage {
    /// The conversations.
    pub instances: Vec<InstanceSummary>,
    /// Number of matching conversations on all pages.
    pub total: usize,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceCursor>,
}

impl ListInstances {
    /// The requested page of these conversations.
    #[must_use]
    pub fn page_of(&self, mut all: Vec<InstanceSummary>) -> InstancesPage {
        let wanted = self.containing.as_ref().map(|text| text.to_lowercase());
        all.retain(|one| {
            let is_of_agent = self.agent_name.as_ref();
            let has_text = |text: &String| {
                let has = |name: &str| name.to_lowercase().contains(text.as_str());
                has(one.instance_key.as_str()) || has(one.agent_name.as_str())
            };
            is_of_agent.is_none_or(|agent| *agent == one.agent_name)
                && wanted.as_ref().is_none_or(has_text)
        });
        let total = all.len();
        if let Some(after) = &self.after {
            all.retain(|one| self.order.compare(after.place(), one.place()) == Ordering::Less);
        }
        all.sort_by(|one, other| self.order.compare(one.place(), other.place()));
        let limit = self.limit.unwrap_or(MAX_INSTANCES_PAGE);
        let limit = limit.clamp(1, MAX_INSTANCES_PAGE);
        let is_last = all.len() <= limit;
        all.truncate(limit);
        let next = all.last().filter(|_| !is_last);
        InstancesPage {
            next: next.map(InstanceSummary::cursor),
            instances: all,
            total,
        }
    }
}

/// Sort key of a list.
type InstanceSortKey<'a> = (&'a WorkspaceId, &'a InstanceKey, Timestamp);

impl InstanceOrder {
    fn compare(self, one: InstanceSortKey<'_>, other: InstanceSortKey<'_>) -> Ordering {
        let by_key = (one.0, one.1).cmp(&(other.0, other.1));
        match self {
            Self::Key => by_key,
            Self::Changed => other.2.cmp(&one.2).then(by_key),
        }
    }
}

impl InstanceCursor {
    fn place(&self) -> InstanceSortKey<'_> {
        (&self.workspace_id, &self.instance_key, self.updated_at)
    }
}

/// One instance, in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSummary {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The agent.
    pub agent_name: AgentName,
    /// `idle` or `processing`.
    pub status: String,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last change.
    pub updated_at: Timestamp,
}

impl InstanceSummary {
    fn place(&self) -> InstanceSortKey<'_> {
        (&self.workspace_id, &self.instance_key, self.updated_at)
    }

    /// The cursor of a page that ends with this conversation.
    #[must_use]
    pub fn cursor(&self) -> InstanceCursor {
        InstanceCursor {
            workspace_id: self.workspace_id.clone(),
            instance_key: self.instance_key.clone(),
            updated_at: self.updated_at,
        }
    }
}

/// `instance.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// One instance, in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDetail {
    /// The fields shown in lists.
    #[serde(flatten)]
    pub summary: InstanceSummary,
    /// Its directory.
    pub directory: PathBuf,
    /// The working directory of its tools.
    pub work_dir: PathBuf,
    /// Number of confirmed messages.
    pub messages: u64,
    /// Bytes of the confirmed messages.
    pub base_bytes: u64,
    /// Number of pending events, including the one of the current turn.
    pub pending_events: usize,
    /// Its process, if one runs or will be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// State of its extensions, by name.
    pub extensions: std::collections::BTreeMap<String, Value>,
    /// Its rewinds, oldest first (`CKPT-6`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewinds: Vec<RewindRecord>,
    /// Number of schedules that its agent created.
    #[serde(default)]
    pub schedules: usize,
}

/// `instance.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceHistory {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Start of the page: 0, then `next` of the previous page.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `instance.history`: one page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Confirmed messages.
    pub messages: Vec<Message>,
    /// Unconfirmed messages of the open turn. They follow the last confirmed message, on further
    /// pages if necessary.
    pub pending: Vec<Message>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `instance.page`: one page of the conversation, read from its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstancePage {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// End of the page: `previous` of the following page; absent for the latest messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Largest number of messages on the page.
    pub limit: u64,
    /// True for complete messages. Otherwise texts are truncated to
    /// [`crate::limits::SHOWN_TEXT_BYTES`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// Result of `instance.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// The messages; those of the open turn follow the latest confirmed message.
    #[serde(flatten)]
    pub history: History,
    /// End of the preceding page; absent if this one starts with the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// Total number of confirmed messages.
    pub total: u64,
    /// The messages with a truncated text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<TruncatedMessage>,
}

/// A message that a page shows truncated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TruncatedMessage {
    /// The message.
    pub message_id: MessageId,
    /// Its offset; absent for a message of the open turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// `message.get`: one complete message (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetMessage {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The message.
    pub message_id: MessageId,
    /// Its offset, as returned with the page; absent for a message of the open turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// Result of `message.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WholeMessage {
    /// The message.
    pub message: Message,
}

/// `instance.turns` (`MSG-12`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceTurns {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Start of the page: 0, then `next` of the previous page. Ignored with `before`.
    #[serde(default)]
    pub offset: u64,
    /// End of the page: [`InstanceTurns::END`] for the latest events, then `previous` of the
    /// following page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

impl InstanceTurns {
    /// An offset beyond every log. The largest integer that JavaScript represents exactly.
    pub const END: u64 = (1 << 53) - 1;
}

/// Result of `instance.turns`: one page of runtime events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnsPage {
    /// The events, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Number of unreadable lines that were skipped.
    pub unreadable: u64,
    /// True if an event is pending or its turn runs.
    pub busy: bool,
    /// Start of the next page; absent on the last page, and with `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// End of the preceding page; absent on the first page, and without `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
}

/// `instance.export`: one part of a conversation's archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// True to leave out damaged records. If false, they are an error.
    #[serde(default)]
    pub skip_damaged: bool,
    /// Start of the part: absent for the first, then `next` of the previous part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<ExportPosition>,
}

/// Progress of an export. Opaque to clients, which return it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportPosition {
    /// Size of the confirmed messages when the export began, which is where it ends.
    pub until: u64,
    /// Checksum of the checksums of those messages, which must not change during the export.
    pub revision: u32,
    /// Bytes of confirmed messages already exported.
    pub offset: u64,
    /// The last exported extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Bytes after this position that were already returned.
    pub skip: usize,
    /// Number of messages so far.
    pub messages: u64,
    /// Number of extensions so far.
    pub extensions: u64,
    /// Number of damaged records left out so far.
    pub damaged: u64,
    /// The checksum of the archive so far.
    pub crc32: u32,
}

/// Result of `instance.export`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportPart {
    /// The next bytes of the archive.
    pub text: String,
    /// Number of messages in the archive so far.
    pub messages: u64,
    /// Number of extensions whose state is in the archive so far.
    pub extensions: u64,
    /// Number of damaged records left out so far.
    pub damaged: u64,
    /// Number of pending and running events. Their results are not in the archive.
    pub pending_events: usize,
    /// Start of the next part; absent after the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ExportPosition>,
}

/// `instance.import`: creates a conversation from an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The key of the new conversation, which must not exist yet.
    pub instance_key: InstanceKey,
    /// The agent of the new conversation.
    pub agent: AgentName,
    /// Absolute path of the archive, which the daemon reads.
    pub path: PathBuf,
}

/// Result of `instance.import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportResult {
    /// Number of imported messages.
    pub messages: u64,
    /// Number of extensions with a state.
    pub extensions: u64,
}

/// `instance.prune` (`INST-7`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PruneInstances {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Minimum time since the last change, in milliseconds. If absent, the swarm's retention policy
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// True to list the conversations without deleting them.
    #[serde(default)]
    pub dry_run: bool,
}

/// Result of `instance.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancePruneResult {
    /// The conversations that are due or were deleted, oldest first.
    pub instances: Vec<Prunable>,
    /// True if they were deleted.
    pub deleted: bool,
}

/// A conversation that was not used for a long time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prunable {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// Time of its last change.
    pub updated_at: Timestamp,
    /// Time from which it may be deleted.
    pub due_at: Timestamp,
}

/// `instance.delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// Result of `instance.delete`. Deleting a missing conversation succeeds (`INST-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDeleteResult {
    /// True if the conversation existed.
    pub existed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(key: &str, agent: &str, changed: &str) -> InstanceSummary {
        InstanceSummary {
            workspace_id: "w".parse().unwrap(),
            instance_key: key.parse().unwrap(),
            agent_name: agent.parse().unwrap(),
            status: "idle".to_owned(),
            created_at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
            updated_at: format!("2026-01-01T00:00:{changed}.000Z").parse().unwrap(),
        }
    }

    fn all() -> Vec<InstanceSummary> {
        vec![
            summary("b", "clerk", "03"),
            summary("a", "clerk", "01"),
            summary("d:Ann", "writer", "02"),
            summary("c", "clerk", "03"),
        ]
    }

    fn keys(mut list: ListInstances, change: impl Fn(&mut Vec<InstanceSummary>)) -> Vec<String> {
        let (mut all, mut keys) = (all(), Vec::new());
        loop {
            let page = list.page_of(all.clone());
            keys.extend(
                page.instances
                    .iter()
                    .map(|one| one.instance_key.to_string()),
            );
            change(&mut all);
            list.after = page.next;
            if list.after.is_none() {
                return keys;
            }
        }
    }

    #[test]
    fn obs_1_the_pages_of_a_list_miss_and_repeat_nothing() {
        for limit in [1, 2, 3, 4, 5, MAX_INSTANCES_PAGE + 1] {
            for (order, whole) in [
                (InstanceOrder::Key, ["a", "b", "c", "d:Ann"]),
                (InstanceOrder::Changed, ["b", "c", "d:Ann", "a"]),
            ] {
                let list = ListInstances {
                    order,
                    limit: Some(limit),
                    ..ListInstances::default()
                };
                assert_eq!(keys(list, |_| {}), whole, "{limit} {order:?}");
            }
        }
    }

    #[test]
    fn obs_1_item_changed_between_pages_keeps_its_place_by_key() {
        let list = ListInstances {
            limit: Some(1),
            ..ListInstances::default()
        };
        let now = "2026-01-01T00:00:59.000Z".parse().unwrap();
        let change = |all: &mut Vec<InstanceSummary>| all[2].updated_at = now;
        assert_eq!(keys(list, change), ["a", "b", "c", "d:Ann"]);
    }

    #[test]
    fn instance_list_filters_by_agent_and_text_and_counts_the_rest() {
        let list = ListInstances {
            containing: Some("aNN".to_owned()),
            ..ListInstances::default()
        };
        let page = list.page_of(all());
        assert_eq!(
            (page.total, page.instances[0].instance_key.as_str()),
            (1, "d:Ann")
        );
        let list = ListInstances {
            agent_name: Some("clerk".parse().unwrap()),
            limit: Some(1),
            ..ListInstances::default()
        };
        let page = list.page_of(all());
        assert_eq!((page.total, page.instances.len()), (3, 1));
        assert!(page.next.is_some());
    }
}
