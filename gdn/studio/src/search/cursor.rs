//! Position of a search. The page returns it to continue.

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Searched data, in the order of the search: short lists first, so that names appear at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stage {
    /// Workspaces, and the names of their agents and connections.
    #[default]
    Workspaces,
    /// Names of conversations.
    Names,
    Approvals,
    Questions,
    /// Events that have not ended.
    Events,
    /// Tasks with their live work.
    Tasks,
    /// Proposals with their patches.
    Proposals,
    Audit,
    Log,
    /// Messages and turns of conversations, the latest conversation first.
    Conversations,
    /// Conversations that changed during the search, because they have moved to the front of the
    /// list, where the search had passed already.
    Changed,
}

impl Stage {
    pub(super) fn next(self) -> Option<Self> {
        Some(match self {
            Self::Workspaces => Self::Names,
            Self::Names => Self::Approvals,
            Self::Approvals => Self::Questions,
            Self::Questions => Self::Events,
            Self::Events => Self::Tasks,
            Self::Tasks => Self::Proposals,
            Self::Proposals => Self::Audit,
            Self::Audit => Self::Log,
            Self::Log => Self::Conversations,
            Self::Conversations => Self::Changed,
            Self::Changed => return None,
        })
    }
}

/// Part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Part {
    Messages,
    Turns,
    /// Live work of a task.
    Work,
}

/// An item that was searched in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OpenItem {
    pub(super) workspace_id: WorkspaceId,
    /// The conversation or task.
    pub(super) id: String,
    pub(super) part: Part,
    /// Position in the part, as the daemon returned it; absent at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
}

/// Position of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cursor {
    pub(super) stage: Stage,
    /// Of a list of one workspace: the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) workspace: Option<WorkspaceId>,
    /// Position in the list, after the item that was begun last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) item: Option<OpenItem>,
    /// Time of the latest change when the conversations were begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<Timestamp>,
}

impl Cursor {
    /// The start of the next stage; `None` at the end of the search.
    pub(super) fn next_stage(&self) -> Option<Self> {
        Some(Self {
            stage: self.stage.next()?,
            newest: self.newest,
            ..Self::default()
        })
    }

    /// The start of the same list of another workspace.
    pub(super) fn of_workspace(&self, workspace: WorkspaceId) -> Self {
        Self {
            stage: self.stage,
            workspace: Some(workspace),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn obs_5_search_passes_each_stage_once_and_ends() {
        let mut stages = vec![Cursor::default()];
        while let Some(next) = stages.last().and_then(Cursor::next_stage) {
            stages.push(next);
            assert!(stages.len() < 20);
        }
        assert_eq!(stages.len(), 11);
        assert_eq!(stages.last().unwrap().stage, Stage::Changed);
    }

    #[test]
    fn obs_5_search_position_survives_the_page_and_nothing_else_does() {
        let written = json!({
            "stage": "conversations",
            "after": {"workspaceId": "w", "instanceKey": "main"},
            "item": {"workspaceId": "w", "id": "main", "part": "messages", "at": 4096},
            "newest": "2026-01-01T00:00:00.000Z",
        });
        let cursor: Cursor = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&cursor).unwrap(), written);
        let other = json!({"stage": "secrets"});
        assert!(serde_json::from_value::<Cursor>(other).is_err());
        let more = json!({"stage": "log", "method": "secret.list"});
        assert!(serde_json::from_value::<Cursor>(more).is_err());
    }
}
