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

/// `instance.list`: one page of the conversations there are (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInstances {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only this agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<AgentName>,
    /// Only those with this text in their key or in the name of their agent, in small or large letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<String>,
    /// In which order.
    #[serde(default, skip_serializing_if = "InstanceOrder::is_default")]
    pub order: InstanceOrder,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<InstanceCursor>,
    /// Most conversations on the page, at most and if it is not said [`MAX_INSTANCES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The order of conversations in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceOrder {
    /// By workspace and key. What changes meanwhile keeps its place, so that all pages together miss nothing.
    #[default]
    Key,
    /// By their last change, the latest first. What changes meanwhile moves to the first page.
    Changed,
}

impl InstanceOrder {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The last conversation of a page. A client hands it back as it got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceCursor {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its key.
    pub instance_key: InstanceKey,
    /// When it had last changed.
    pub updated_at: Timestamp,
}

/// Result of `instance.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancesPage {
    /// The conversations.
    pub instances: Vec<InstanceSummary>,
    /// How many there are of those that are asked for, on all pages.
    pub total: usize,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceCursor>,
}

impl ListInstances {
    /// The page of these conversations that is asked for.
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

/// What a list is ordered by.
type Place<'a> = (&'a WorkspaceId, &'a InstanceKey, Timestamp);

impl InstanceOrder {
    fn compare(self, one: Place<'_>, other: Place<'_>) -> Ordering {
        let by_key = (one.0, one.1).cmp(&(other.0, other.1));
        match self {
            Self::Key => by_key,
            Self::Changed => other.2.cmp(&one.2).then(by_key),
        }
    }
}

impl InstanceCursor {
    fn place(&self) -> Place<'_> {
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
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl InstanceSummary {
    fn place(&self) -> Place<'_> {
        (&self.workspace_id, &self.instance_key, self.updated_at)
    }

    /// The place of a page that ends with it.
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
    /// What the list shows.
    #[serde(flatten)]
    pub summary: InstanceSummary,
    /// Its directory.
    pub directory: PathBuf,
    /// Where its tools work.
    pub work_dir: PathBuf,
    /// Confirmed messages.
    pub messages: u64,
    /// Bytes of the confirmed messages.
    pub base_bytes: u64,
    /// Events that wait for their turn or are in it.
    pub pending_events: usize,
    /// Its process, if one runs or is to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// State of its extensions, by name.
    pub extensions: std::collections::BTreeMap<String, Value>,
    /// When it was rewound, the oldest first (`CKPT-6`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewinds: Vec<RewindRecord>,
}

/// `instance.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceHistory {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Where the page begins: 0, then what the page before said in `next`.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `instance.history`: one page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Confirmed messages.
    pub messages: Vec<Message>,
    /// Messages of the open turn, not confirmed yet; behind the last confirmed message only,
    /// on further pages if they are many.
    pub pending: Vec<Message>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `instance.page`: the conversation from its end on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstancePage {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Where the page ends: what the page behind it said in `previous`; none for the latest messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Most messages on the page.
    pub limit: u64,
    /// Whether messages come whole. Otherwise texts end behind [`crate::limits::SHOWN_TEXT_BYTES`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// Result of `instance.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// The messages, and those of the open turn behind the latest of them.
    #[serde(flatten)]
    pub history: History,
    /// Where the page before this one ends; none if this one begins with the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// Confirmed messages there are.
    pub total: u64,
    /// The messages on the page of which a text was cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<CutMessage>,
}

/// A message of which a page shows a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CutMessage {
    /// The message.
    pub message_id: MessageId,
    /// Where it is; none if it is of the open turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// `message.get`: one message, whole (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetMessage {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The message.
    pub message_id: MessageId,
    /// Where it is, as the page said; none if it is of the open turn.
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
    /// Where the page begins: 0, then what the page before said in `next`.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `instance.turns`: one page of what happened in the turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnsPage {
    /// What happened, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Lines of this page that cannot be read and were passed over.
    pub unreadable: u64,
    /// Whether an event waits for its turn or is in it now.
    pub busy: bool,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `instance.export`: one part of a conversation's archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Whether records that are damaged are left out; otherwise they are an error.
    #[serde(default)]
    pub skip_damaged: bool,
    /// Where the part begins: none for the first, then what the part before said in `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<ExportPosition>,
}

/// How far an export has come. A client hands it back as it got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportPosition {
    /// Bytes of the confirmed messages when the export began: it ends there.
    pub until: u64,
    /// The checksum of the checksums of those messages: they must not change meanwhile.
    pub revision: u32,
    /// Bytes of them that are exported.
    pub offset: u64,
    /// The latest extension that is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Bytes of the lines that follow this position that were handed out already.
    pub skip: usize,
    /// Messages so far.
    pub messages: u64,
    /// Extensions so far.
    pub extensions: u64,
    /// Damaged records that were left out so far.
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
    /// Messages in the archive so far.
    pub messages: u64,
    /// Extensions whose state is in the archive so far.
    pub extensions: u64,
    /// Damaged records that were left out so far.
    pub damaged: u64,
    /// Events that wait or are worked on: what becomes of them is not in the archive.
    pub pending_events: usize,
    /// Where the next part begins; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ExportPosition>,
}

/// `instance.import`: makes a conversation from an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation it becomes; there must be none yet.
    pub instance_key: InstanceKey,
    /// The agent it belongs to then.
    pub agent: AgentName,
    /// The archive, absolute. The daemon reads it.
    pub path: PathBuf,
}

/// Result of `instance.import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// Messages of the conversation.
    pub messages: u64,
    /// Extensions that have a state.
    pub extensions: u64,
}

/// `instance.prune` (`INST-7`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PruneInstances {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Those whose last change is longer ago, in milliseconds, instead of those that are due by the
    /// swarm's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// Only tell which they are.
    #[serde(default)]
    pub dry_run: bool,
}

/// Result of `instance.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// The conversations that are due, or were deleted; oldest first.
    pub instances: Vec<Prunable>,
    /// Whether they were deleted.
    pub deleted: bool,
}

/// A conversation that nobody has used for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prunable {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Since when it may be deleted.
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

/// Result of `instance.delete`. What is not there is deleted with success (`INST-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// Whether there was anything to delete.
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
    fn obs_1_what_changes_between_pages_keeps_its_place_by_key() {
        let list = ListInstances {
            limit: Some(1),
            ..ListInstances::default()
        };
        let now = "2026-01-01T00:00:59.000Z".parse().unwrap();
        let change = |all: &mut Vec<InstanceSummary>| all[2].updated_at = now;
        assert_eq!(keys(list, change), ["a", "b", "c", "d:Ann"]);
    }

    #[test]
    fn a_list_is_narrowed_by_agent_and_by_text_and_counts_what_is_left() {
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
