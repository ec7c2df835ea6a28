//! Notifications that a connection sends when a task waits for a person or has ended. No I/O.
//!
//! An Agent's `notify` names an action of a connection and its arguments. Placeholders such as
//! `${need}` in string arguments are filled in when the notification is sent. `$${` produces a
//! literal `${`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::{ConnectionName, WorkspaceId};
use crate::service::{ActionSpec, service_of};
use crate::task::TaskId;

/// Event that triggers a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyOn {
    /// The agent or goondan asks a question.
    Question,
    /// The agent's program requests a permission.
    Permission,
    /// A dependency must be provided.
    Dependency,
    /// A phase waits for review.
    Review,
    /// The budget blocks the task.
    Budget,
    /// The task completed.
    Completed,
    /// The task failed.
    Failed,
    /// A person canceled the task.
    Cancelled,
}

impl NotifyOn {
    /// Their names, in the order of [`NotifyOn::ALL`].
    pub const WORDS: [&str; 8] = [
        "question",
        "permission",
        "dependency",
        "review",
        "budget",
        "completed",
        "failed",
        "cancelled",
    ];

    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::Question,
        Self::Permission,
        Self::Dependency,
        Self::Review,
        Self::Budget,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Events in which a task waits for a person.
    pub const WAITS: [Self; 5] = [
        Self::Question,
        Self::Permission,
        Self::Dependency,
        Self::Review,
        Self::Budget,
    ];

    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let all = Self::ALL.into_iter().zip(Self::WORDS);
        let mut words = all.filter(|(on, _)| *on == self).map(|(_, word)| word);
        words.next().unwrap_or_default()
    }

    /// Looks up a variant by its name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|on| on.as_str() == word)
    }
}

/// An entry of an Agent's `notify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Notify {
    /// The connection.
    pub connection: ConnectionName,
    /// The tool of its service.
    pub service: String,
    /// The action.
    pub action: String,
    /// Its arguments, with unfilled placeholders.
    pub args: Value,
    /// The events that trigger it.
    pub on: Vec<NotifyOn>,
}

/// Looks up an action of a service by the name of the service's tool.
#[must_use]
pub fn action_of(service: &str, action: &str) -> Option<&'static ActionSpec> {
    let mut actions = service_of(service)?.actions.iter();
    actions.find(|it| it.name == action)
}

/// Content of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice<'a> {
    /// The workspace.
    pub workspace_id: &'a WorkspaceId,
    /// The task.
    pub task_id: &'a TaskId,
    /// The task's title.
    pub title: &'a str,
    /// The event.
    pub on: NotifyOn,
    /// The question, the missing item, or the result.
    pub need: &'a str,
    /// The command to run next.
    pub command: &'a str,
}

impl Notice<'_> {
    /// Names of the placeholders.
    pub const PLACES: [&'static str; 8] = [
        "message",
        "json",
        "taskId",
        "title",
        "on",
        "need",
        "command",
        "workspaceId",
    ];

    fn value_of(&self, place: &str) -> Option<String> {
        Some(match place {
            "message" => self.message(),
            "json" => self.json().to_string(),
            "taskId" => self.task_id.to_string(),
            "title" => self.title.to_owned(),
            "on" => self.on.as_str().to_owned(),
            "need" => self.need.to_owned(),
            "command" => self.command.to_owned(),
            "workspaceId" => self.workspace_id.to_string(),
            _ => return None,
        })
    }

    /// All values as text for people.
    fn message(&self) -> String {
        let (task, title, on) = (self.task_id, self.title, self.on.as_str());
        let mut text = format!("{title} ({task}): {on}\n");
        for part in [self.need, self.command] {
            if !part.is_empty() {
                text.push('\n');
                text.push_str(part);
                text.push('\n');
            }
        }
        text
    }

    /// All values as JSON for programs.
    fn json(&self) -> Value {
        json!({
            "workspaceId": self.workspace_id,
            "taskId": self.task_id,
            "title": self.title,
            "on": self.on,
            "need": self.need,
            "command": self.command,
        })
    }

    /// Fills in every placeholder of the arguments.
    #[must_use]
    pub fn fill(&self, args: &Value) -> Value {
        match args {
            Value::String(text) => Value::String(self.fill_text(text)),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => {
                let filled = fields.iter();
                let filled = filled.map(|(name, value)| (name.clone(), self.fill(value)));
                Value::Object(filled.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => args.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        for part in parts_of(text) {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                // Names were checked when the configuration was loaded.
                TemplatePart::Place(name) => {
                    filled.push_str(&self.value_of(name).unwrap_or_default());
                }
                TemplatePart::Open(rest) => filled.push_str(rest),
            }
        }
        filled
    }
}

/// A part of a text with placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePart<'a> {
    /// Literal text.
    Text(&'a str),
    /// The name of a placeholder.
    Place(&'a str),
    /// An unclosed `${` and the rest of the text.
    Open(&'a str),
}

/// Splits a text into its parts, in order.
#[must_use]
pub fn parts_of(text: &str) -> Vec<TemplatePart<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            parts.push(TemplatePart::Text(before));
            let (literal, after) = from.split_at(2);
            parts.push(TemplatePart::Text(literal));
            rest = after;
            continue;
        }
        parts.push(TemplatePart::Text(before));
        let Some((name, after)) = from.get(2..).and_then(|named| named.split_once('}')) else {
            parts.push(TemplatePart::Open(from));
            return parts;
        };
        parts.push(TemplatePart::Place(name));
        rest = after;
    }
    parts.push(TemplatePart::Text(rest));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_8_notification_placeholders_are_filled_and_nothing_else() {
        let (workspace_id, task_id) = ("w".parse().unwrap(), "shop".parse().unwrap());
        let notice = Notice {
            workspace_id: &workspace_id,
            task_id: &task_id,
            title: "A \"shop\"",
            on: NotifyOn::Question,
            need: "Which ${title}?",
            command: "gdn task answer shop b",
        };
        let filled = |text: &str| notice.fill(&json!({"a": [text], "n": 1}));
        assert_eq!(
            filled("${taskId}: ${need} $${need} $5 ${"),
            json!({"a": ["shop: Which ${title}? ${need} $5 ${"], "n": 1})
        );
        for place in Notice::PLACES {
            let text = format!("${{{place}}}");
            let value = notice.value_of(place).unwrap();
            assert_eq!(filled(&text)["a"][0], value.as_str());
            assert!(!value.is_empty(), "{place}");
        }
        let read: Value = serde_json::from_str(&notice.value_of("json").unwrap()).unwrap();
        assert_eq!(read["title"], "A \"shop\"");
        let message = notice.value_of("message").unwrap();
        assert!(message.ends_with("\ngdn task answer shop b\n"), "{message}");
    }

    #[test]
    fn task_8_each_occasion_has_its_word() {
        for on in NotifyOn::ALL {
            assert_eq!(NotifyOn::of_word(on.as_str()), Some(on));
            assert_eq!(serde_json::to_value(on).unwrap(), on.as_str());
        }
    }
}
