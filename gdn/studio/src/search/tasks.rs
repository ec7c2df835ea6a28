//! Tasks, and the live work of their agents.

use goondan_protocol::control::{ListTasks, Method as _, ShowTask, WatchTask};
use goondan_protocol::ids::WorkspaceId;
use serde_json::{Value, json};

use super::cursor::{OpenItem, Part};
use super::{Hit, Pause, Search, items, optional_text, text_of};
use crate::limits::SEARCH_PAGE_ITEMS;

/// Fields of a task with text of people, its agent and programs.
const TASK_FIELDS: [&str; 12] = [
    "description",
    "asks",
    "messages",
    "lastRun",
    "plan",
    "step",
    "failure",
    "documents",
    "verified",
    "recent",
    "proposal",
    "model",
];

impl Search<'_> {
    pub(super) async fn tasks(&mut self) -> Result<(), Pause> {
        if let Some(open) = self.cursor.item.clone() {
            self.work_of(open).await?;
        }
        loop {
            let params = json!({
                "workspaceId": self.only, "needsMe": false, "all": true,
                "after": self.cursor.after, "limit": SEARCH_PAGE_ITEMS,
            });
            let Some(page) = self.ask(ListTasks::NAME, &params).await? else {
                return Ok(());
            };
            for task in items(&page, "tasks") {
                let workspace_id = text_of(task, "workspaceId");
                let Ok(workspace) = WorkspaceId::new(workspace_id) else {
                    continue;
                };
                let id = text_of(task, "taskId");
                self.cursor.after = Some(json!({ "workspaceId": workspace_id, "taskId": id }));
                self.task(task, workspace_id, id).await?;
                self.read += 1;
                let open = OpenItem {
                    workspace_id: workspace,
                    id: id.to_owned(),
                    part: Part::Work,
                    at: None,
                };
                self.cursor.item = Some(open.clone());
                self.rest().await?;
                self.work_of(open).await?;
            }
            if !self.turn(page.get("next")) {
                return Ok(());
            }
        }
    }

    async fn task(&mut self, task: &Value, workspace_id: &str, id: &str) -> Result<(), Pause> {
        let fields = [
            "title",
            "taskId",
            "agent",
            "status",
            "blockedBy",
            "warning",
            "damaged",
        ];
        let mut text = self.needle.find_in_fields(task, &fields);
        if text.is_none() {
            let params = json!({ "workspaceId": workspace_id, "taskId": id });
            let detail = self.ask(ShowTask::NAME, &params).await?;
            text = detail.and_then(|detail| self.needle.find_in_fields(&detail, &TASK_FIELDS));
        }
        let Some(text) = text else {
            return Ok(());
        };
        let title = text_of(task, "title");
        self.hit(Hit {
            kind: "task",
            workspace_id: Some(workspace_id),
            id,
            title: if title.is_empty() { id } else { title },
            text,
            at: optional_text(task, "updatedAt"),
            place: None,
        })
        .await
    }

    /// The live work of a task, from its beginning as far as the daemon keeps it.
    async fn work_of(&mut self, mut open: OpenItem) -> Result<(), Pause> {
        loop {
            let params = json!({
                "workspaceId": open.workspace_id, "taskId": open.id,
                "after": open.at.unwrap_or(0), "wait": false,
            });
            let part = self.ask(WatchTask::NAME, &params).await?;
            let Some(part) = part else {
                break;
            };
            for item in items(&part, "items") {
                let Some(text) = self.needle.find_in(item) else {
                    continue;
                };
                self.hit(Hit {
                    kind: "work",
                    workspace_id: Some(open.workspace_id.as_str()),
                    id: &open.id,
                    title: &open.id,
                    text,
                    at: optional_text(item, "at"),
                    place: None,
                })
                .await?;
            }
            let is_end = part.get("isEnd").and_then(Value::as_bool) != Some(false);
            let next = part.get("next").and_then(Value::as_u64);
            if is_end || next.is_none() || next == open.at {
                break;
            }
            open.at = next;
            self.cursor.item = Some(open.clone());
            self.rest().await?;
        }
        self.cursor.item = None;
        self.rest().await
    }
}
