//! Lists whose items are hits themselves, and the logs.

use std::collections::VecDeque;

use goondan_protocol::control::{
    FollowLogs, ListApprovals, ListEvents, ListInstances, ListQuestions, ListWorkspaces,
    Method as _, ReadAudit,
};
use goondan_protocol::ids::WorkspaceId;
use serde_json::{Value, json};

use super::{Hit, Pause, Search, items, optional_text, text_of};
use crate::limits::{SEARCH_LOG_HITS_MAX, SEARCH_LOG_LINES, SEARCH_PAGE_ITEMS};

/// A list whose items are searched in some of their fields, and are hits themselves.
pub(super) struct PlainList {
    method: &'static str,
    /// Field of the result with the items.
    items: &'static str,
    kind: &'static str,
    id: &'static str,
    title: &'static str,
    at: &'static str,
    fields: &'static [&'static str],
}

pub(super) const NAMES: PlainList = PlainList {
    method: ListInstances::NAME,
    items: "instances",
    kind: "conversation",
    id: "instanceKey",
    title: "instanceKey",
    at: "updatedAt",
    fields: &["instanceKey", "agentName"],
};

pub(super) const APPROVALS: PlainList = PlainList {
    method: ListApprovals::NAME,
    items: "approvals",
    kind: "approval",
    id: "approvalId",
    title: "toolName",
    at: "askedAt",
    fields: &[
        "summary",
        "toolName",
        "approvalId",
        "instanceKey",
        "agentName",
    ],
};

pub(super) const QUESTIONS: PlainList = PlainList {
    method: ListQuestions::NAME,
    items: "questions",
    kind: "question",
    id: "questionId",
    title: "questionId",
    at: "askedAt",
    fields: &["message", "questionId", "instanceKey", "agentName"],
};

const EVENTS: PlainList = PlainList {
    method: ListEvents::NAME,
    items: "events",
    kind: "event",
    id: "instanceKey",
    title: "eventId",
    at: "since",
    fields: &["input", "eventId", "reason", "instanceKey"],
};

impl Search<'_> {
    pub(super) async fn workspaces(&mut self) -> Result<(), Pause> {
        loop {
            let params = json!({
                "workspaceId": self.only, "after": self.cursor.after, "limit": SEARCH_PAGE_ITEMS,
            });
            let Some(page) = self.ask(ListWorkspaces::NAME, &params).await? else {
                return Ok(());
            };
            for workspace in items(&page, "workspaces") {
                self.names_of(workspace).await?;
            }
            if !self.turn(page.get("next")) {
                return Ok(());
            }
            self.rest().await?;
        }
    }

    /// Names in the configuration of a workspace.
    async fn names_of(&mut self, workspace: &Value) -> Result<(), Pause> {
        let id = text_of(workspace, "workspaceId");
        let title = match text_of(workspace, "package") {
            "" => text_of(workspace, "projectRoot"),
            package => package,
        };
        let fields = ["package", "projectRoot", "workspaceId"];
        if let Some(text) = self.needle.find_in_fields(workspace, &fields) {
            self.hit(Hit {
                kind: "workspace",
                workspace_id: Some(id),
                id,
                title,
                text,
                at: None,
                place: None,
            })
            .await?;
        }
        for (field, kind) in [
            ("agents", "agent"),
            ("taskAgents", "agent"),
            ("connections", "connection"),
        ] {
            for name in items(workspace, field).iter().filter_map(Value::as_str) {
                let Some(text) = self.needle.find(name) else {
                    continue;
                };
                self.hit(Hit {
                    kind,
                    workspace_id: Some(id),
                    id: name,
                    title: name,
                    text,
                    at: None,
                    place: None,
                })
                .await?;
            }
        }
        Ok(())
    }

    pub(super) async fn plain(
        &mut self,
        list: &PlainList,
        of: Option<&WorkspaceId>,
    ) -> Result<(), Pause> {
        loop {
            let mut params = json!({
                "workspaceId": of.or(self.only.as_ref()), "after": self.cursor.after,
                "limit": SEARCH_PAGE_ITEMS,
            });
            if list.method == NAMES.method
                && let Some(params) = params.as_object_mut()
            {
                params.insert("containing".to_owned(), json!(self.text));
            }
            let Some(page) = self.ask(list.method, &params).await? else {
                return Ok(());
            };
            for item in items(&page, list.items) {
                let Some(text) = self.needle.find_in_fields(item, list.fields) else {
                    continue;
                };
                let workspace_id = match of {
                    Some(id) => id.as_str(),
                    None => text_of(item, "workspaceId"),
                };
                self.hit(Hit {
                    kind: list.kind,
                    workspace_id: Some(workspace_id),
                    id: text_of(item, list.id),
                    title: text_of(item, list.title),
                    text,
                    at: optional_text(item, list.at),
                    place: None,
                })
                .await?;
            }
            if !self.turn(page.get("next")) {
                return Ok(());
            }
            self.rest().await?;
        }
    }

    /// Lists that the daemon returns for one workspace at a time: proposals, or events.
    pub(super) async fn of_each_workspace(&mut self, are_proposals: bool) -> Result<(), Pause> {
        loop {
            if let Some(id) = self.cursor.workspace.clone() {
                match are_proposals {
                    true => self.proposals(&id).await?,
                    false => self.plain(&EVENTS, Some(&id)).await?,
                }
            }
            let Some(next) = self.next_workspace().await? else {
                return Ok(());
            };
            self.cursor = self.cursor.of_workspace(next);
            self.rest().await?;
        }
    }

    async fn next_workspace(&mut self) -> Result<Option<WorkspaceId>, Pause> {
        let after = &self.cursor.workspace;
        if let Some(only) = &self.only {
            return Ok(after.is_none().then(|| only.clone()));
        }
        let params = json!({ "after": after, "limit": 1 });
        let page = self.ask(ListWorkspaces::NAME, &params).await?;
        let workspaces = page.as_ref().map(|page| items(page, "workspaces"));
        let first = workspaces.and_then(<[Value]>::first);
        Ok(first.and_then(|first| WorkspaceId::new(text_of(first, "workspaceId")).ok()))
    }

    pub(super) async fn audit(&mut self) -> Result<(), Pause> {
        loop {
            let params = json!({
                "workspaceId": self.only, "before": self.cursor.after, "limit": SEARCH_PAGE_ITEMS,
            });
            let Some(page) = self.ask(ReadAudit::NAME, &params).await? else {
                return Ok(());
            };
            for line in items(&page, "records").iter().rev() {
                let record = line.get("record").unwrap_or(&Value::Null);
                let Some(text) = self.needle.find_in(record) else {
                    continue;
                };
                self.hit(Hit {
                    kind: "audit",
                    workspace_id: optional_text(line, "workspaceId"),
                    id: text_of(record, "event"),
                    title: text_of(record, "event"),
                    text,
                    at: optional_text(record, "at"),
                    place: None,
                })
                .await?;
            }
            if !self.turn(page.get("previous")) {
                return Ok(());
            }
            self.rest().await?;
        }
    }

    /// The lines of the log that the daemon keeps, latest first.
    pub(super) async fn log(&mut self) -> Result<(), Pause> {
        let params = json!({
            "workspaceId": self.only, "tail": SEARCH_LOG_LINES, "follow": false,
        });
        let mut found = VecDeque::new();
        let needle = self.needle.clone();
        self.ask_with(FollowLogs::NAME, &params, |params| {
            let Ok(Value::Object(mut notice)) = serde_json::from_str(params.get()) else {
                return;
            };
            let line = notice.remove("line").unwrap_or_default();
            if let Some(text) = needle.find_in(&line) {
                found.push_front((line, text));
                found.truncate(SEARCH_LOG_HITS_MAX);
            }
        })
        .await?;
        for (line, text) in found {
            self.hit(Hit {
                kind: "log",
                workspace_id: optional_text(&line, "workspaceId"),
                id: text_of(&line, "message"),
                title: text_of(&line, "message"),
                text,
                at: optional_text(&line, "timestamp"),
                place: None,
            })
            .await?;
        }
        Ok(())
    }
}
