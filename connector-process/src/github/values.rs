//! Values of a payload as they stand in a sentence.

use serde_json::Value;

use crate::limits::GITHUB_NAME_CHARS_MAX;

/// The name of a branch or tag.
pub(super) fn ref_name(full: &str) -> &str {
    let mut prefixes = ["refs/heads/", "refs/tags/"].into_iter();
    let short = prefixes.find_map(|prefix| full.strip_prefix(prefix));
    short.unwrap_or(full)
}

/// The scalar at a JSON Pointer, on one line and not empty.
pub(super) fn scalar(body: &Value, pointer: &str) -> Option<String> {
    let text = match body.pointer(pointer)? {
        Value::String(text) => one_line(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// A text on one line, shortened to the length of a name.
pub(super) fn one_line(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    match line.char_indices().nth(GITHUB_NAME_CHARS_MAX) {
        Some((end, _)) => {
            line.truncate(end);
            line.push('…');
            line
        }
        None => line,
    }
}
