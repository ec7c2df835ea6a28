//! The words of Slack's blocks. Pure.

use serde_json::Value;

use super::markup::plain;
use super::{file_words, joined, list};
use crate::payload::text;

/// Nested elements of an unknown block that are read.
const DEPTH_MAX: usize = 8;

/// The words of the blocks that `is_shown` selects, each in lines of its own.
pub(super) fn words(blocks: &[Value], is_shown: impl Fn(&Value) -> bool) -> String {
    let shown = blocks.iter().filter(|block| is_shown(block));
    joined(shown.map(block_words))
}

fn block_words(block: &Value) -> String {
    match text(block, "/type").unwrap_or_default() {
        "rich_text" => rich_text(block),
        "section" => {
            let fields = list(block, "fields").iter().map(text_of);
            let accessory = block.get("accessory").map(element_words);
            let own = block.get("text").map(text_of);
            joined(own.into_iter().chain(fields).chain(accessory))
        }
        "header" | "markdown" => block.get("text").map(text_of).unwrap_or_default(),
        "context" | "actions" | "context_actions" => {
            let elements = list(block, "elements").iter().map(element_words);
            elements
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        }
        "image" => image_words(block),
        "video" => {
            let field = |name| block.get(name).map(text_of).filter(|it| !it.is_empty());
            let title = field("title").or_else(|| field("alt_text"));
            let told = title.into_iter().chain(field("description"));
            let url = text(block, "/title_url").or_else(|| text(block, "/video_url"));
            format!("[video: {}] {}", url.unwrap_or_default(), joined(told))
        }
        "file" => match block.get("file") {
            Some(file) => file_words(file),
            None => format!(
                "[File: ID {}]",
                text(block, "/external_id").unwrap_or_default()
            ),
        },
        "table" | "data_table" => table_words(block),
        "input" => {
            let label = block.get("label").map(text_of).unwrap_or_default();
            format!("[input: {label}]")
        }
        "divider" => String::new(),
        _ => {
            let mut found = Vec::new();
            all_texts(block, DEPTH_MAX, &mut found);
            joined(found)
        }
    }
}

/// A text object, or a bare string.
pub(in crate::slack) fn text_of(value: &Value) -> String {
    let bare = value.as_str().or_else(|| text(value, "/text"));
    plain(bare.unwrap_or_default())
}

/// An element of a section, a context or a row of buttons.
fn element_words(element: &Value) -> String {
    match text(element, "/type").unwrap_or_default() {
        "mrkdwn" | "plain_text" => text_of(element),
        "image" => image_words(element),
        "button" | "workflow_button" => {
            let label = element.get("text").map(text_of).unwrap_or_default();
            match text(element, "/url") {
                Some(url) => format!("[{label} ({url})]"),
                None => format!("[{label}]"),
            }
        }
        _ => {
            let label = element.get("placeholder").map(text_of).unwrap_or_default();
            match label.is_empty() {
                true => String::new(),
                false => format!("[{label}]"),
            }
        }
    }
}

fn image_words(image: &Value) -> String {
    let title = image
        .get("title")
        .map(text_of)
        .filter(|title| !title.is_empty());
    let title = title
        .or_else(|| text(image, "/alt_text").map(plain))
        .unwrap_or_default();
    let url = ["/image_url", "/slack_file/url", "/slack_file/id"];
    let url = url
        .into_iter()
        .find_map(|place| text(image, place))
        .unwrap_or_default();
    match title.is_empty() {
        true => format!("[image: {url}]"),
        false => format!("[image: {title}, {url}]"),
    }
}

/// Rows of a table, with `|` between the cells.
fn table_words(table: &Value) -> String {
    let row = |row: &Value| {
        let cells = row.as_array().map_or(&[][..], Vec::as_slice);
        let cells = match cells.is_empty() {
            true => list(row, "cells"),
            false => cells,
        };
        let cells = cells.iter().map(|cell| match text(cell, "/type") {
            Some("rich_text") => rich_text(cell).replace('\n', " "),
            _ => text_of(cell),
        });
        cells.collect::<Vec<_>>().join(" | ")
    };
    joined(["columns", "rows"].iter().flat_map(|name| {
        let head = *name == "columns";
        let rows = list(table, name);
        match head {
            true => vec![
                rows.iter()
                    .map(|it| it.get("name").map(text_of).unwrap_or_default())
                    .filter(|it| !it.is_empty())
                    .collect::<Vec<_>>()
                    .join(" | "),
            ],
            false => rows.iter().map(row).collect(),
        }
    }))
}

/// Every text below a value, for blocks that are newer than this program.
fn all_texts(value: &Value, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match value {
        Value::Array(items) => items.iter().for_each(|item| all_texts(item, depth, found)),
        Value::Object(_) if text(value, "/type") == Some("rich_text") => {
            found.push(rich_text(value));
        }
        Value::Object(fields) => {
            for (name, inner) in fields {
                match inner {
                    Value::String(text) if TEXT_FIELDS.contains(&name.as_str()) => {
                        found.push(plain(text));
                    }
                    Value::Array(_) | Value::Object(_) => all_texts(inner, depth, found),
                    Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
                }
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Fields of a block that people read.
const TEXT_FIELDS: [&str; 8] = [
    "text",
    "title",
    "subtitle",
    "body",
    "description",
    "alt_text",
    "fallback",
    "url",
];

/// A block of the composer: lines, lists, quotes and code.
pub(in crate::slack) fn rich_text(block: &Value) -> String {
    // The number of the next item, by the indentation of the list.
    let mut numbers: Vec<u64> = Vec::new();
    let mut parts = Vec::new();
    for element in list(block, "elements") {
        let kind = text(element, "/type").unwrap_or_default();
        if kind != "rich_text_list" {
            numbers.clear();
        }
        parts.push(match kind {
            "rich_text_list" => list_words(element, &mut numbers),
            "rich_text_quote" => quoted(&inline_words(element)),
            "rich_text_preformatted" => {
                let language = text(element, "/language").unwrap_or_default();
                format!(
                    "```{language}\n{}\n```",
                    bare_words(element).trim_end_matches('\n')
                )
            }
            _ => inline_words(element),
        });
    }
    joined(parts)
}

fn list_words(element: &Value, numbers: &mut Vec<u64>) -> String {
    let number = |name: &str| element.get(name).and_then(Value::as_u64);
    let indent = number("indent")
        .and_then(|it| usize::try_from(it).ok())
        .unwrap_or(0)
        .min(DEPTH_MAX);
    let is_ordered = text(element, "/style") == Some("ordered");
    let offset = number("offset").unwrap_or(0);
    numbers.resize(indent + 1, 0);
    let counted = numbers.last_mut().filter(|_| is_ordered);
    let mut next = counted.as_ref().map_or(0, |counted| **counted).max(offset);
    let lines = list(element, "elements").iter().map(|item| {
        next = next.saturating_add(1);
        let sign = if is_ordered {
            format!("{next}.")
        } else {
            "•".to_owned()
        };
        format!("{}{sign} {}", "    ".repeat(indent), inline_words(item))
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    if let Some(counted) = counted {
        *counted = next;
    }
    match number("border").unwrap_or(0) {
        0 => lines,
        _ => quoted(&lines),
    }
}

fn quoted(text: &str) -> String {
    let lines = text.trim_end().lines().map(|line| format!("> {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn inline_words(element: &Value) -> String {
    list(element, "elements")
        .iter()
        .map(|it| styled(it, &leaf_words(it)))
        .collect()
}

/// As in code, where no style counts.
fn bare_words(element: &Value) -> String {
    list(element, "elements").iter().map(leaf_words).collect()
}

/// The text in the marks of its style; white space stays outside.
fn styled(element: &Value, words: &str) -> String {
    let has = |name: &str| {
        element.pointer("/style").and_then(|style| style.get(name)) == Some(&Value::Bool(true))
    };
    let inner = words.trim();
    if inner.is_empty() {
        return words.to_owned();
    }
    let mut marked = inner.to_owned();
    for (name, mark) in [
        ("code", "`"),
        ("strike", "~"),
        ("italic", "_"),
        ("bold", "*"),
    ] {
        if has(name) {
            marked = format!("{mark}{marked}{mark}");
        }
    }
    words.replacen(inner, &marked, 1)
}

fn leaf_words(leaf: &Value) -> String {
    let field = |name: &str| text(leaf, name).unwrap_or_default();
    match field("/type") {
        // This text is not escaped.
        "text" => field("/text").to_owned(),
        "link" => {
            let (url, label) = (field("/url"), field("/text"));
            let address = url.strip_prefix("mailto:").unwrap_or(url);
            match label.is_empty() || address.contains(label) {
                true => address.to_owned(),
                false => format!("{label} ({address})"),
            }
        }
        "emoji" => format!(":{}:", field("/name")),
        "user" => format!("<@{}>", field("/user_id")),
        "channel" => format!("<#{}>", field("/channel_id")),
        "usergroup" => format!("<!subteam^{}>", field("/usergroup_id")),
        "team" => format!("@{}", field("/team_id")),
        "broadcast" => format!("@{}", field("/range")),
        "color" => field("/value").to_owned(),
        "date" => match field("/fallback") {
            "" => leaf
                .get("timestamp")
                .map(Value::to_string)
                .unwrap_or_default(),
            fallback => fallback.to_owned(),
        },
        _ => {
            let mut found = Vec::new();
            all_texts(leaf, DEPTH_MAX, &mut found);
            found.join(" ")
        }
    }
}
