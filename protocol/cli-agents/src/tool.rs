//! Details of tool calls, for the stream of a task.

use std::collections::BTreeMap;

use goondan_protocol::task::{ChangedFile, ToolState};
use serde_json::Value;

use crate::event::{ToolActivity, ToolDetail, ToolKind};
use crate::limits::{
    TOOL_CALLS_KEPT, TOOL_DIFF_CHARS_MAX, TOOL_FILES_MAX, TOOL_INPUT_CHARS_MAX,
    TOOL_OUTPUT_CHARS_MAX, TOOL_PATH_CHARS_MAX,
};
use crate::permission::{change_of_input, detail_of_input};

impl ToolDetail {
    /// Details from a tool's input, in the form of `claude` and of programs like it.
    pub(crate) fn of_input(name: &str, input: &Value) -> Self {
        let detail = Self::named(name);
        if input.get("command").is_some_and(|it| !it.is_object()) {
            return detail.command(&detail_of_input(input));
        }
        if let Some((path, diff)) = change_of_input(input) {
            return detail.changes([(path.to_owned(), diff)]);
        }
        let is_given = match input {
            Value::Null => false,
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        };
        if is_given {
            detail.arguments(&input.to_string())
        } else {
            detail
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: beginning(name, TOOL_INPUT_CHARS_MAX),
            ..Self::default()
        }
    }

    pub(crate) fn command(self, command: &str) -> Self {
        Self {
            kind: ToolKind::Command,
            input: beginning(command, TOOL_INPUT_CHARS_MAX),
            ..self
        }
    }

    pub(crate) fn arguments(self, arguments: &str) -> Self {
        Self {
            input: beginning(arguments, TOOL_INPUT_CHARS_MAX),
            ..self
        }
    }

    /// Adds changed files: paths and diffs.
    pub(crate) fn changes(self, changes: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut room = TOOL_DIFF_CHARS_MAX;
        let files = changes.into_iter().take(TOOL_FILES_MAX);
        let files = files.map(|(path, diff)| {
            let diff = beginning(&diff, room);
            room = room.saturating_sub(diff.chars().count());
            changed_file(&path, diff)
        });
        Self {
            kind: ToolKind::FileChange,
            files: files.collect(),
            ..self
        }
    }

    /// Adds the output, and the exit code if the output begins with one.
    pub(crate) fn printed(self, output: &str) -> Self {
        let exit = output.strip_prefix("Exit code ");
        let exit = exit.and_then(|rest| rest.lines().next()?.trim().parse().ok());
        Self {
            output: end(output, TOOL_OUTPUT_CHARS_MAX),
            exit: self.exit.or(exit),
            ..self
        }
    }

    pub(crate) fn exited(self, exit: Option<i64>) -> Self {
        Self {
            exit: exit.or(self.exit),
            ..self
        }
    }

    /// Fills in what an earlier report of the same call contained.
    fn complete(&mut self, earlier: &Self) {
        if self.kind == ToolKind::Other {
            self.kind = earlier.kind;
        }
        for (text, earlier) in [
            (&mut self.name, &earlier.name),
            (&mut self.input, &earlier.input),
            (&mut self.output, &earlier.output),
        ] {
            if text.is_empty() {
                text.clone_from(earlier);
            }
        }
        if self.files.iter().all(|file| file.diff.is_empty()) && !earlier.files.is_empty() {
            self.files.clone_from(&earlier.files);
        }
        self.exit = self.exit.or(earlier.exit);
    }
}

pub(crate) fn changed_file(path: &str, diff: String) -> ChangedFile {
    ChangedFile {
        path: beginning(path, TOOL_PATH_CHARS_MAX),
        diff,
    }
}

/// Open tool calls by their ids: programs report the input at the start, and the output at the end.
#[derive(Debug, Default)]
pub(crate) struct Calls(BTreeMap<String, ToolDetail>);

impl Calls {
    /// Completes a report with the earlier ones of the same call.
    pub(crate) fn report(&mut self, tool: &mut ToolActivity) {
        if tool.detail.name.is_empty() {
            tool.detail.name = beginning(&tool.name, TOOL_INPUT_CHARS_MAX);
        }
        let earlier = self.0.remove(&tool.id);
        if let Some(earlier) = &earlier {
            // The name at the end may be a description.
            if !earlier.name.is_empty() {
                tool.detail.name.clone_from(&earlier.name);
            }
            tool.detail.complete(earlier);
        }
        if tool.state == ToolState::Started && !tool.id.is_empty() {
            self.keep(&tool.id, tool.detail.clone());
        }
    }

    /// Keeps details that a program reports between the start and the end of a call. Returns true
    /// if its input was not known before.
    pub(crate) fn learn(&mut self, id: &str, mut detail: ToolDetail) -> bool {
        let Some(earlier) = self.0.remove(id) else {
            return false;
        };
        let is_news = (!detail.input.is_empty() && earlier.input.is_empty())
            || (!detail.files.is_empty() && earlier.files.is_empty());
        if !earlier.name.is_empty() {
            detail.name.clone_from(&earlier.name);
        }
        detail.complete(&earlier);
        self.keep(id, detail);
        is_news
    }

    fn keep(&mut self, id: &str, detail: ToolDetail) {
        if self.0.len() >= TOOL_CALLS_KEPT {
            self.0.pop_first();
        }
        self.0.insert(id.to_owned(), detail);
    }
}

/// The first characters of a text, with a note about the omitted ones.
pub(crate) fn beginning(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => {
            let (kept, rest) = text.split_at(at);
            format!("{kept}\n[{} more characters]", rest.chars().count())
        }
    }
}

/// The last characters of a text, with a note about the omitted ones.
fn end(text: &str, chars: usize) -> String {
    let text = text.trim_end();
    let all = text.chars().count();
    let beyond = all.saturating_sub(chars);
    match text.char_indices().nth(beyond) {
        Some((at, _)) if beyond > 0 => {
            let (_, kept) = text.split_at(at);
            format!("[{beyond} more characters]\n{kept}")
        }
        _ => text.to_owned(),
    }
}

/// Text of a result: a text, or the texts of its parts.
pub(crate) fn text_of_content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
