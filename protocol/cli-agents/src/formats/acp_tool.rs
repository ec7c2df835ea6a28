//! Details of tool calls of the Agent Client Protocol.
//!
//! Agents differ in where they put them: the command is the title or a field of `rawInput`, a
//! change is a part of the content or the input, and the output is content, `rawOutput` or an
//! extension. So the messages are read as they are.

use serde_json::Value;

use super::text;
use crate::event::{ToolDetail, ToolKind};
use crate::permission::diff;

/// Details from a report of a call. Only the last report, at the end, contains output.
pub(super) fn detail_of_call(call: &Value, is_end: bool) -> ToolDetail {
    let title = text(call, "title");
    let name = match text(call, "name") {
        "" => title,
        name => name,
    };
    let input = call.get("rawInput").unwrap_or(&Value::Null);
    let kind = text(call, "kind");
    let content = call.get("content").and_then(Value::as_array);
    let content: Vec<&Value> = content.into_iter().flatten().collect();
    let diffs = content.iter().filter(|part| text(part, "type") == "diff");
    let diffs = diffs.map(|change| {
        let path = text(change, "path");
        let change = diff(path, text(change, "oldText"), text(change, "newText"));
        (path.to_owned(), change)
    });
    let diffs: Vec<(String, String)> = diffs.collect();
    let command = match text(input, "cmd") {
        "" => None,
        command => Some(command),
    };
    let mut detail = match command {
        Some(command) => ToolDetail::named(name).command(command),
        None => ToolDetail::of_input(name, input),
    };
    if !diffs.is_empty() {
        detail = detail.changes(diffs);
    } else if detail.kind == ToolKind::Other && kind == "execute" {
        // Without an input, the title of an ended call is its command.
        let command = if is_end && input.is_null() { title } else { "" };
        detail = detail.command(command);
    } else if detail.kind == ToolKind::Other && matches!(kind, "edit" | "delete" | "move") {
        let places = call.get("locations").and_then(Value::as_array);
        let paths = places.into_iter().flatten();
        let paths = paths.map(|place| (text(place, "path").to_owned(), String::new()));
        detail = detail.changes(paths);
    }
    if is_end {
        detail
            .printed(&output_of(call, &content))
            .exited(exit_of(call))
    } else {
        detail
    }
}

fn output_of(call: &Value, content: &[&Value]) -> String {
    let texts = content.iter();
    let texts = texts.filter_map(|part| part.pointer("/content/text")?.as_str());
    let texts: Vec<&str> = texts.collect();
    let raw = call.get("rawOutput").unwrap_or(&Value::Null);
    let named = ["aggregated_output", "output", "formatted_output", "stdout"];
    let mut outputs = named.into_iter().map(|name| text(raw, name));
    let output = outputs.find(|output| !output.is_empty());
    let delta = call.pointer("/_meta/terminal_output_delta/data");
    let output = output.or_else(|| raw.as_str()).or_else(|| delta?.as_str());
    match output {
        Some(output) => output.to_owned(),
        None => texts.join("\n"),
    }
}

fn exit_of(call: &Value) -> Option<i64> {
    let places = [
        "/rawOutput/exit_code",
        "/rawOutput/exitCode",
        "/rawOutput/metadata/exit",
        "/_meta/terminal_exit/exit_code",
    ];
    places.into_iter().find_map(|at| call.pointer(at)?.as_i64())
}
