//! Edits dependencies within flow collections of `goondan.yaml`, such as `spec: {version: 1.0.0}` and
//! `dependencies: [{name: a, version: ^1}]`. The caller checks the result.

use std::ops::Range;

use serde_json::json;

/// Adds a requirement, or replaces the one at `index`.
pub(super) fn with(text: &str, index: Option<usize>, name: &str, version: &str) -> Option<String> {
    let item = format!("{{name: {}, version: {}}}", json!(name), json!(version));
    let found = FlowCollections::of(text)?;
    match (found.list, index) {
        (Some(list), Some(index)) => Some(replaced(text, list.items.get(index)?, &item)),
        (Some(list), None) => Some(list.with(text, &item)),
        (None, None) => Some(found.spec?.with(text, &format!("dependencies: [{item}]"))),
        (None, Some(_)) => None,
    }
}

/// Removes the requirement at `index`.
pub(super) fn without(text: &str, index: usize) -> Option<String> {
    let found = FlowCollections::of(text)?;
    let list = found.list?;
    match (&found.spec, found.entry) {
        // The key of an empty list is removed, too.
        (Some(spec), Some(entry)) if list.items.len() == 1 => spec.without(text, entry),
        _ => list.without(text, index),
    }
}

/// The collections of the first document that matter.
struct FlowCollections {
    /// `spec: {…}`.
    spec: Option<FlowCollection>,
    /// Index of `dependencies` in it.
    entry: Option<usize>,
    /// `dependencies: […]`.
    list: Option<FlowCollection>,
}

impl FlowCollections {
    fn of(text: &str) -> Option<Self> {
        let mut offset = 0;
        let mut is_in_spec = false;
        let mut has_begun = false;
        for line in text.split_inclusive('\n') {
            let begin = offset;
            offset += line.len();
            if line.starts_with("---") || line.starts_with("...") {
                if has_begun {
                    break;
                }
                continue;
            }
            let content = line.trim_start_matches(' ');
            if content.trim().is_empty() || content.starts_with('#') {
                continue;
            }
            has_begun = true;
            let indent = line.len() - content.len();
            if indent == 0 {
                is_in_spec = content.starts_with("spec:");
                if let Some(open) = value_at(text, begin, "spec", '{') {
                    return Self::in_spec(text, open);
                }
            } else if is_in_spec
                && let Some(open) = value_at(text, begin + indent, "dependencies", '[')
            {
                return Some(Self {
                    spec: None,
                    entry: None,
                    list: Some(FlowCollection::at(text, open)?),
                });
            }
        }
        None
    }

    fn in_spec(text: &str, open: usize) -> Option<Self> {
        let spec = FlowCollection::at(text, open)?;
        let mut items = spec.items.iter();
        let entry = items.position(|item| {
            let key = text.get(item.clone()).and_then(|item| item.split_once(':'));
            key.is_some_and(|(key, _)| key.trim().trim_matches(['"', '\'']) == "dependencies")
        });
        let list = match entry {
            None => None,
            Some(entry) => {
                let item = spec.items.get(entry)?.clone();
                let value = item.start + text.get(item)?.find('[')?;
                Some(FlowCollection::at(text, value)?)
            }
        };
        Some(Self {
            spec: Some(spec),
            entry,
            list,
        })
    }
}

/// Position of the value of `key` at this position, if it begins with `open`.
fn value_at(text: &str, at: usize, key: &str, open: char) -> Option<usize> {
    let rest = text.get(at..)?.strip_prefix(key)?.strip_prefix(':')?;
    let value = rest.trim_start_matches([' ', '\t']);
    value.starts_with(open).then(|| text.len() - value.len())
}

/// `[…]` or `{…}`: the ranges of its items, without the space around them, and of its content.
struct FlowCollection {
    items: Vec<Range<usize>>,
    content: Range<usize>,
}

impl FlowCollection {
    /// Parses the collection that opens at this position.
    fn at(text: &str, open: usize) -> Option<Self> {
        let mut items = Vec::new();
        let mut depth = 0_usize;
        // Begin and end of the current item.
        let mut item: Option<Range<usize>> = None;
        let mut quote: Option<char> = None;
        let mut is_comment = false;
        let mut before = ' ';
        let mut is_escaped = false;
        let mut starts_value = true;
        for (offset, c) in text.get(open..)?.char_indices() {
            let at = open + offset;
            let previous = std::mem::replace(&mut before, c);
            if is_comment {
                is_comment = c != '\n';
                continue;
            }
            if let Some(quoting) = quote {
                let is_end = c == quoting && !is_escaped;
                is_escaped = quoting == '"' && c == '\\' && !is_escaped;
                if is_end {
                    quote = None;
                }
                if let Some(item) = &mut item {
                    item.end = at + c.len_utf8();
                }
                continue;
            }
            match c {
                '#' if previous.is_whitespace() => {
                    is_comment = true;
                    continue;
                }
                c if c.is_whitespace() => continue,
                '[' | '{' => {
                    depth += 1;
                    starts_value = true;
                    if depth == 1 {
                        continue;
                    }
                }
                ']' | '}' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        items.extend(item);
                        return Some(Self {
                            items,
                            content: open + 1..at,
                        });
                    }
                }
                ',' if depth == 1 => {
                    items.push(item.take()?);
                    starts_value = true;
                    continue;
                }
                '"' | '\'' if starts_value => {
                    quote = Some(c);
                    is_escaped = false;
                }
                _ => {}
            }
            starts_value = matches!(c, '[' | '{' | ',' | ':');
            let item = item.get_or_insert(at..at);
            item.end = at + c.len_utf8();
        }
        None
    }

    fn with(&self, text: &str, item: &str) -> String {
        match self.items.last() {
            Some(last) => replaced(text, &(last.end..last.end), &format!(", {item}")),
            None => replaced(text, &self.content, item),
        }
    }

    fn without(&self, text: &str, index: usize) -> Option<String> {
        let item = self.items.get(index)?;
        let range = match (index.checked_sub(1), self.items.get(index + 1)) {
            (_, Some(next)) => item.start..next.start,
            (Some(before), None) => self.items.get(before)?.end..item.end,
            (None, None) => self.content.clone(),
        };
        Some(replaced(text, &range, ""))
    }
}

fn replaced(text: &str, range: &Range<usize>, new: &str) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    format!("{before}{new}{after}")
}
