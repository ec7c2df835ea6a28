//! Messages and turns of conversations.

use std::collections::BTreeSet;

use goondan_protocol::control::{InstancePage, InstanceTurns, ListInstances, Method as _};
use goondan_protocol::ids::WorkspaceId;
use serde_json::{Value, json};

use super::cursor::{OpenItem, Part, Stage};
use super::{Hit, Pause, Search, items, optional_text, text_of};
use crate::limits::{SEARCH_PAGE_ITEMS, SEARCH_PAGE_MESSAGES};

/// Fields of a turn's event that people search.
const TURN_FIELDS: [&str; 8] = [
    "toolName",
    "detail",
    "traceId",
    "turnId",
    "eventId",
    "stepId",
    "toolCallId",
    "agentName",
];

impl Search<'_> {
    pub(super) async fn conversations(&mut self) -> Result<(), Pause> {
        if let Some(open) = self.cursor.item.clone() {
            self.conversation(open).await?;
        }
        let mut is_first = self.cursor.after.is_none();
        loop {
            let params = json!({
                "workspaceId": self.only, "order": "changed", "after": self.cursor.after,
                "limit": SEARCH_PAGE_ITEMS,
            });
            let Some(page) = self.ask(ListInstances::NAME, &params).await? else {
                return Ok(());
            };
            for instance in items(&page, "instances") {
                let changed = optional_text(instance, "updatedAt");
                let changed = changed.and_then(|at| at.parse().ok());
                if self.cursor.stage == Stage::Changed && changed <= self.cursor.newest {
                    return Ok(());
                }
                if self.cursor.stage == Stage::Conversations && is_first {
                    self.cursor.newest = changed;
                }
                is_first = false;
                let Ok(workspace) = WorkspaceId::new(text_of(instance, "workspaceId")) else {
                    continue;
                };
                let key = text_of(instance, "instanceKey");
                self.cursor.after = Some(json!({
                    "workspaceId": workspace, "instanceKey": key,
                    "updatedAt": instance.get("updatedAt"),
                }));
                self.read += 1;
                let open = OpenItem {
                    workspace_id: workspace,
                    id: key.to_owned(),
                    part: Part::Messages,
                    at: None,
                };
                self.conversation(open).await?;
            }
            if !self.turn(page.get("next")) {
                return Ok(());
            }
        }
    }

    /// The rest of a conversation: its messages from the end on, then its turns.
    async fn conversation(&mut self, mut open: OpenItem) -> Result<(), Pause> {
        loop {
            self.cursor.item = Some(open.clone());
            self.rest().await?;
            let next = match open.part {
                Part::Messages => self.messages(&open).await?,
                Part::Turns | Part::Work => self.turns(&open).await?,
            };
            match (next, open.part) {
                (Some(next), _) if Some(next) != open.at => open.at = Some(next),
                (_, Part::Messages) => {
                    open.part = Part::Turns;
                    open.at = None;
                }
                (_, Part::Turns | Part::Work) => break,
            }
        }
        self.cursor.item = None;
        self.rest().await
    }

    /// A page of messages. Returns the end of the page before it.
    async fn messages(&mut self, open: &OpenItem) -> Result<Option<u64>, Pause> {
        let params = json!({
            "workspaceId": open.workspace_id, "instanceKey": open.id, "before": open.at,
            "limit": SEARCH_PAGE_MESSAGES, "whole": true,
        });
        let Some(page) = self.ask(InstancePage::NAME, &params).await? else {
            return Ok(None);
        };
        // Messages of the turn in progress are the latest.
        let pending = items(&page, "pending").iter().rev();
        for message in pending.chain(items(&page, "messages").iter().rev()) {
            let content = message.pointer("/data/content").unwrap_or(&Value::Null);
            let Some(text) = self.needle.find_in(content) else {
                continue;
            };
            self.hit(Hit {
                kind: "message",
                workspace_id: Some(open.workspace_id.as_str()),
                id: &open.id,
                title: &open.id,
                text,
                at: optional_text(message, "createdAt"),
                place: optional_text(message, "id"),
            })
            .await?;
        }
        Ok(page.get("previous").and_then(Value::as_u64))
    }

    /// A page of events of turns; one hit for each turn. Returns the start of the next page.
    async fn turns(&mut self, open: &OpenItem) -> Result<Option<u64>, Pause> {
        let params = json!({
            "workspaceId": open.workspace_id, "instanceKey": open.id,
            "offset": open.at.unwrap_or(0),
        });
        let Some(page) = self.ask(InstanceTurns::NAME, &params).await? else {
            return Ok(None);
        };
        let mut found = BTreeSet::new();
        for event in items(&page, "events") {
            let turn = text_of(event, "turnId");
            if found.contains(turn) {
                continue;
            }
            let Some(text) = self.needle.find_in_fields(event, &TURN_FIELDS) else {
                continue;
            };
            found.insert(turn);
            self.hit(Hit {
                kind: "trace",
                workspace_id: Some(open.workspace_id.as_str()),
                id: text_of(event, "traceId"),
                title: &open.id,
                text,
                at: optional_text(event, "timestamp"),
                place: optional_text(event, "spanId"),
            })
            .await?;
        }
        Ok(page.get("next").and_then(Value::as_u64))
    }
}
