//! Description of a requested action, for a person to read before allowing it (`AGENT-5`).

use serde_json::Value;

use crate::event::{ChoicePrompt, Consent, PermissionRequest};
use crate::limits::PERMISSION_DETAIL_CHARS_MAX;

/// Context lines around a change.
const CONTEXT_LINES: usize = 2;

/// Permission request for a tool of `claude`, and of programs with the same format.
pub(crate) fn of_tool(id: &str, tool: &str, input: &Value) -> PermissionRequest {
    let consent = match tool {
        "AskUserQuestion" => questions(input).map_or(Consent::Tool, Consent::Choices),
        "ExitPlanMode" => Consent::Plan(shortened(text(input, "plan").to_owned())),
        _ => Consent::Tool,
    };
    PermissionRequest {
        id: id.to_owned(),
        tool: tool.to_owned(),
        kind: tool.to_owned(),
        detail: shortened(detail_of_input(input)),
        consent,
        input: input.clone(),
        options: Vec::new(),
    }
}

fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Describes the input of a tool: its command, its change, or all of it.
pub(crate) fn detail_of_input(input: &Value) -> String {
    match input.get("command") {
        Some(Value::String(command)) => return command.clone(),
        // A program and its arguments.
        Some(Value::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            return words.join(" ");
        }
        _ => {}
    }
    if let Some((_, change)) = change_of_input(input) {
        return change;
    }
    match input {
        Value::Null => String::new(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        input => serde_json::to_string_pretty(input).unwrap_or_default(),
    }
}

/// Path and diff of the file that a tool changes, from the tool's input.
pub(crate) fn change_of_input(input: &Value) -> Option<(&str, String)> {
    let path = ["file_path", "filePath", "path", "notebook_path"].map(|name| text(input, name));
    let path = path.into_iter().find(|path| !path.is_empty())?;
    let edits = input.get("edits").and_then(Value::as_array);
    let edits: Vec<&Value> = edits.map_or_else(|| vec![input], |edits| edits.iter().collect());
    let changes = edits.into_iter().filter_map(|edit| {
        let old = ["old_string", "oldString", "old_text"].map(|name| text(edit, name));
        let new = [
            "new_string",
            "newString",
            "new_text",
            "content",
            "new_source",
        ];
        let new = new.map(|name| text(edit, name));
        let first = |texts: &[&str]| {
            let mut texts = texts.iter().filter(|text| !text.is_empty());
            texts.next().copied().unwrap_or_default().to_owned()
        };
        let (old, new) = (first(&old), first(&new));
        (!old.is_empty() || !new.is_empty()).then(|| diff(path, &old, &new))
    });
    let changes: String = changes.collect();
    (!changes.is_empty()).then_some((path, changes))
}

/// Diff of a file with some context lines.
pub(crate) fn diff(path: &str, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(one, other)| one == other);
    let head = same.count();
    let rest = old.len().min(new.len()) - head;
    let same = old.iter().rev().zip(new.iter().rev()).take(rest);
    let tail = same.take_while(|(one, other)| one == other).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut shown = format!("--- {path}\n+++ {path}\n@@ line {} @@\n", head + 1);
    let mut add = |mark: char, lines: &[&str]| {
        for line in lines {
            shown.push(mark);
            shown.push_str(line);
            shown.push('\n');
        }
    };
    add(
        ' ',
        old.get(head.saturating_sub(CONTEXT_LINES)..head)
            .unwrap_or_default(),
    );
    add('-', old.get(head..old_end).unwrap_or_default());
    add('+', new.get(head..new_end).unwrap_or_default());
    let after = (old_end + CONTEXT_LINES).min(old.len());
    add(' ', old.get(old_end..after).unwrap_or_default());
    shown
}

fn questions(input: &Value) -> Option<Vec<ChoicePrompt>> {
    let asked = input.get("questions")?.as_array()?;
    let asked = asked.iter().map(|asked| {
        let options = asked.get("options").and_then(Value::as_array);
        let options = options.into_iter().flatten();
        let options = options.map(|option| (text(option, "label"), text(option, "description")));
        ChoicePrompt {
            question: text(asked, "question").to_owned(),
            options: options
                .map(|(label, about)| (label.to_owned(), about.to_owned()))
                .collect(),
        }
    });
    let asked: Vec<ChoicePrompt> = asked.filter(|asked| !asked.question.is_empty()).collect();
    (!asked.is_empty()).then_some(asked)
}

/// Truncates a text to the limit, with a note about the omitted characters.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(PERMISSION_DETAIL_CHARS_MAX) {
        let left_out = text.split_off(at).chars().count();
        text.push_str(&format!("\n[{left_out} more characters]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agent_5_a_request_shows_the_command_or_the_change() {
        let detail = |tool, input| of_tool("1", tool, &input).detail;
        let command = json!({"command": "rm -rf build", "description": "clean"});
        assert_eq!(detail("Bash", command), "rm -rf build");
        let written = json!({"file_path": "/w/a.txt", "content": "one\ntwo\n"});
        let expected = "--- /w/a.txt\n+++ /w/a.txt\n@@ line 1 @@\n+one\n+two\n";
        assert_eq!(detail("Write", written), expected);
        let edited = json!({"file_path": "a", "old_string": "1\n2\n3\n4\n5", "new_string": "1\n2\n3\nfour\n5"});
        let expected = "--- a\n+++ a\n@@ line 4 @@\n 2\n 3\n-4\n+four\n 5\n";
        assert_eq!(detail("Edit", edited), expected);
        let other = json!({"url": "https://example.org"});
        assert!(detail("WebFetch", other).contains("https://example.org"));
        let long = json!({"command": "x".repeat(PERMISSION_DETAIL_CHARS_MAX + 7)});
        assert!(detail("Bash", long).ends_with("\n[7 more characters]"));
    }

    #[test]
    fn agent_5_questions_and_plans_of_a_program_are_no_tools() {
        let input = json!({"questions": [{"question": "Which?", "header": "DB", "options": [{"label": "A", "description": "a"}]}]});
        let Consent::Choices(asked) = of_tool("1", "AskUserQuestion", &input).consent else {
            panic!("no choices");
        };
        assert_eq!(asked[0].question, "Which?");
        assert_eq!(asked[0].options, [("A".to_owned(), "a".to_owned())]);
        let plan = of_tool("1", "ExitPlanMode", &json!({"plan": "1. Do it."})).consent;
        assert_eq!(plan, Consent::Plan("1. Do it.".to_owned()));
        let broken = of_tool("1", "AskUserQuestion", &json!({"questions": 7})).consent;
        assert_eq!(broken, Consent::Tool);
    }
}
