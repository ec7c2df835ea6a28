//! Items of a task's stream, from the events of any program (`AGENT-7`).

use goondan_protocol::task::{ChangedFile, PlanStep, TaskItemContent as Item, ToolState};

use crate::event::{CliEvent, Reset, ToolActivity, ToolKind};
use crate::limits::{ITEM_RESULT_CHARS_MAX, ITEM_TEXT_BYTES_MAX};
use crate::tool::beginning;

/// Items of one run. Pieces of text become whole lines, so that no value is split between items.
#[derive(Debug, Default)]
pub struct Stream {
    kind: TextKind,
    rest: String,
    plan: Vec<PlanStep>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TextKind {
    #[default]
    Text,
    Thinking,
}

impl TextKind {
    fn item(self, text: &str) -> Item {
        let text = text.to_owned();
        match self {
            Self::Text => Item::Text { text },
            Self::Thinking => Item::Thinking { text },
        }
    }
}

impl Stream {
    /// Returns the items for an event. Questions, permissions, progress and usage are events of the
    /// task, and come from its history.
    pub fn items(&mut self, event: &CliEvent) -> Vec<Item> {
        let item = match event {
            CliEvent::Text(text) => return self.text(TextKind::Text, text),
            CliEvent::Thinking(text) => return self.text(TextKind::Thinking, text),
            CliEvent::TextEnd => return self.end(),
            CliEvent::Plan(steps) if *steps != self.plan => {
                self.plan.clone_from(steps);
                Some(Item::Plan {
                    steps: steps.clone(),
                })
            }
            CliEvent::Tool(tool) => tool_item(tool),
            CliEvent::FileChanged(file) => Some(Item::FileChange {
                id: String::new(),
                state: ToolState::Completed,
                files: vec![file.clone()],
            }),
            CliEvent::Result(result) => Some(Item::Result {
                is_ok: result.is_ok,
                text: beginning(&result.text, ITEM_RESULT_CHARS_MAX),
                denied: result.denied.clone(),
            }),
            CliEvent::Error(why) | CliEvent::Permanent(why) | CliEvent::Retrying(why) => {
                Some(problem(why))
            }
            CliEvent::RateLimit(reset) => Some(problem(&match reset {
                Reset::At(at) => format!("the provider's limit is reached until {at}"),
                Reset::After(span) => {
                    let seconds = span.as_secs();
                    format!("the provider's limit is reached for {seconds} s")
                }
                Reset::Clock(_) | Reset::Unknown => "the provider's limit is reached".to_owned(),
            })),
            CliEvent::Noise(line) => Some(Item::Output {
                text: beginning(line, ITEM_RESULT_CHARS_MAX),
            }),
            CliEvent::Skipped(bytes) => Some(problem(&format!(
                "{bytes} bytes of a line were not read: it is too long"
            ))),
            CliEvent::Plan(_)
            | CliEvent::Session { .. }
            | CliEvent::PassingSession { .. }
            | CliEvent::SessionRefused(_)
            | CliEvent::Stderr(_)
            | CliEvent::Block(_)
            | CliEvent::ToolMessage(_)
            | CliEvent::Refused(_)
            | CliEvent::Progress(_)
            | CliEvent::Usage(_)
            | CliEvent::Permission(_)
            | CliEvent::PermissionWithdrawn { .. }
            | CliEvent::Unsupported { .. } => None,
        };
        let mut items = match item {
            Some(_) => self.end(),
            None => Vec::new(),
        };
        items.extend(item);
        items
    }

    pub fn end(&mut self) -> Vec<Item> {
        let rest = std::mem::take(&mut self.rest);
        let is_empty = rest.trim().is_empty();
        let item = (!is_empty).then(|| self.kind.item(&rest));
        item.into_iter().collect()
    }

    fn text(&mut self, kind: TextKind, text: &str) -> Vec<Item> {
        let mut items = Vec::new();
        if self.kind != kind {
            items.extend(self.end());
            self.kind = kind;
        }
        self.rest.push_str(text);
        loop {
            let (lines, skipped) = match self.rest.rfind('\n') {
                Some(at) if at <= ITEM_TEXT_BYTES_MAX => (at, 1),
                _ if self.rest.len() > ITEM_TEXT_BYTES_MAX => {
                    let most = self.rest.floor_char_boundary(ITEM_TEXT_BYTES_MAX);
                    match self.rest.get(..most).and_then(|first| first.rfind('\n')) {
                        Some(at) => (at, 1),
                        None => (most, 0),
                    }
                }
                _ => return items,
            };
            let rest = self.rest.split_off(lines + skipped);
            let mut lines = std::mem::replace(&mut self.rest, rest);
            lines.truncate(lines.len() - skipped);
            if !lines.trim().is_empty() {
                items.push(self.kind.item(&lines));
            }
        }
    }
}

fn problem(why: &str) -> Item {
    Item::Problem {
        text: beginning(why, ITEM_RESULT_CHARS_MAX),
    }
}

/// Tools that change the agent's plan, which is an item of its own.
const PLAN_TOOLS: [&str; 2] = ["TodoWrite", "todowrite"];

/// Item of a tool call. A start without details is not shown: they follow.
fn tool_item(tool: &ToolActivity) -> Option<Item> {
    let (id, state, detail) = (tool.id.clone(), tool.state, &tool.detail);
    if PLAN_TOOLS.contains(&detail.name.as_str()) {
        return None;
    }
    let is_bare = detail.input.is_empty() && detail.files.is_empty();
    if state == ToolState::Started && is_bare && detail.kind != ToolKind::Other {
        return None;
    }
    Some(match detail.kind {
        ToolKind::Command => Item::Command {
            id,
            state,
            command: detail.input.clone(),
            exit: detail.exit,
            output: detail.output.clone(),
        },
        ToolKind::FileChange => {
            let files: Vec<ChangedFile> = detail.files.clone();
            Item::FileChange { id, state, files }
        }
        ToolKind::Other => Item::Tool {
            id,
            name: detail.name.clone(),
            state,
            input: detail.input.clone(),
            output: detail.output.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: Vec<Item>) -> Vec<String> {
        let texts = items.into_iter().map(|item| match item {
            Item::Text { text } => text,
            Item::Thinking { text } => format!("({text})"),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn agent_7_pieces_of_text_become_whole_lines() {
        let mut stream = Stream::default();
        let mut said = |event: CliEvent| texts(stream.items(&event));
        let text = |text: &str| CliEvent::Text(text.to_owned());
        assert!(said(text("I be")).is_empty());
        assert_eq!(said(text("gin.\n\nThen I ")), ["I begin.\n"]);
        assert_eq!(said(text("go on.\n")), ["Then I go on."]);
        assert!(said(text("\n")).is_empty(), "nothing but space");
        assert!(said(text("Done")).is_empty());
        assert_eq!(said(CliEvent::TextEnd), ["Done"]);
        assert!(said(CliEvent::Thinking("why".to_owned())).is_empty());
        assert_eq!(said(text("So.\n")), ["(why)", "So."]);
        assert!(said(text("x")).is_empty());
        assert!(
            said(CliEvent::Session {
                id: "s".to_owned(),
                model: None
            })
            .is_empty()
        );
        // Long lines are split, without splitting characters.
        let long = "\u{e4}".repeat(ITEM_TEXT_BYTES_MAX);
        let parts = said(text(&long));
        assert!(parts.len() >= 2 && parts.iter().all(|part| part.len() <= ITEM_TEXT_BYTES_MAX));
        let rest = texts(stream.end());
        assert_eq!(parts.concat() + &rest.concat(), format!("x{long}"));
    }
}
