//! Values of a payload, formatted for a sentence.

use serde_json::Value;

use crate::limits::EVENT_NAME_CHARS_MAX;

/// Names of a list that a sentence repeats; the rest are counted.
const NAMES_LISTED_MAX: usize = 10;

/// The name of a branch or tag.
pub(crate) fn ref_name(full: &str) -> &str {
    let mut prefixes = ["refs/heads/", "refs/tags/"].into_iter();
    let short = prefixes.find_map(|prefix| full.strip_prefix(prefix));
    short.unwrap_or(full)
}

/// The scalar at a JSON Pointer, on one line and not empty.
pub(crate) fn scalar(body: &Value, pointer: &str) -> Option<String> {
    let text = match body.pointer(pointer)? {
        Value::String(text) => one_line(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// A text on one line, shortened to the length of a name.
pub(crate) fn one_line(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    match line.char_indices().nth(EVENT_NAME_CHARS_MAX) {
        Some((end, _)) => {
            line.truncate(end);
            line.push('…');
            line
        }
        None => line,
    }
}

/// The scalar at a JSON Pointer, in double quotes.
pub(crate) fn quoted(object: &Value, pointer: &str) -> Option<String> {
    scalar(object, pointer).map(|name| format!("\"{name}\""))
}

/// A list in words, with `rest` further names that are already omitted; `None` if it is empty.
pub(crate) fn listed(names: impl Iterator<Item = String>, rest: usize) -> Option<String> {
    let mut names: Vec<String> = names.collect();
    let further = names.len().saturating_sub(NAMES_LISTED_MAX) + rest;
    names.truncate(NAMES_LISTED_MAX);
    if names.is_empty() {
        return None;
    }
    let listed = names.join(", ");
    Some(match further {
        0 => listed,
        further => format!("{listed} and {further} more"),
    })
}
