//! The words of a Slack message: its text, blocks, attachments and files. Pure.
//!
//! A person writes `text`; Slack repeats it in a `rich_text` block. Apps and workflows often leave
//! `text` empty, or use it only for the notification, and say everything in blocks or attachments.

mod blocks;
mod markup;
mod older;

use serde_json::Value;

pub(super) use self::blocks::{rich_text, text_of};
pub(super) use self::markup::plain;
pub(super) use self::older::{older_files, older_text};
use crate::payload::text;

/// Nested attachments that are read: a shared message can contain attachments of its own.
const DEPTH_MAX: usize = 4;

/// The words of a message. Empty if it has none.
pub(super) fn message_words(message: &Value) -> String {
    words_within(message, DEPTH_MAX)
}

fn words_within(message: &Value, depth: usize) -> String {
    let mut parts = Vec::new();
    let said = plain(text(message, "/text").unwrap_or_default());
    let blocks = list(message, "blocks");
    // The text has all that the composer's own block has.
    let has_text = !said.trim().is_empty();
    let shown = blocks::words(blocks, |block| {
        !(has_text && text(block, "/type") == Some("rich_text"))
    });
    if has_text && !has_words(&shown, &said) {
        parts.push(said);
    }
    parts.push(shown);
    if let Some(depth) = depth.checked_sub(1) {
        let attachments = list(message, "attachments").iter();
        parts.extend(attachments.map(|attachment| attachment_words(attachment, depth)));
    }
    parts.extend(list(message, "files").iter().map(file_words));
    joined(parts)
}

/// Text of several parts, each in lines of its own; blank parts are omitted.
pub(super) fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().map(|part| part.trim_end().to_owned());
    let parts: Vec<String> = parts.filter(|part| !part.trim().is_empty()).collect();
    parts.join("\n")
}

/// True if a text contains the words of another, ignoring white space.
fn has_words(text: &str, words: &str) -> bool {
    let bare = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    bare(text).contains(&bare(words))
}

pub(super) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    let items = value.get(name).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

/// An attachment: of an older app, a shared message, or a preview of a link.
fn attachment_words(attachment: &Value, depth: usize) -> String {
    let field = |name: &str| {
        let found = attachment.get(name).and_then(Value::as_str);
        found.map(plain).filter(|found| !found.trim().is_empty())
    };
    let is_message = ["is_share", "is_msg_unfurl"]
        .iter()
        .any(|name| attachment.get(*name) == Some(&Value::Bool(true)));
    let mut about = Vec::new();
    about.extend(field("author_name").or_else(|| field("author_subname")));
    about.extend(field("channel_name").map(|name| format!("#{name}")));
    about.extend(field("service_name"));
    about.extend(field("from_url").or_else(|| field("original_url")));
    let kind = match (is_message, field("from_url").is_some()) {
        (true, _) => "shared message",
        (false, true) => "link preview",
        (false, false) => "attachment",
    };
    let head = match about.is_empty() {
        true => format!("[{kind}]"),
        false => format!("[{kind}: {}]", about.join(", ")),
    };
    let title = field("title").map(|title| match field("title_link") {
        Some(link) if link != title => format!("{title} ({link})"),
        _ => title,
    });
    let fields = list(attachment, "fields").iter().map(|one| {
        let of = |name: &str| plain(one.get(name).and_then(Value::as_str).unwrap_or_default());
        let (title, value) = (of("title"), of("value"));
        match title.is_empty() {
            true => value,
            false => format!("{title}: {value}"),
        }
    });
    let mut parts = vec![
        field("pretext").unwrap_or_default(),
        title.unwrap_or_default(),
    ];
    let words = words_within(attachment, depth);
    if words.trim().is_empty() {
        // Otherwise the same words.
        let messages = list(attachment, "message_blocks").iter();
        parts.extend(messages.map(|it| {
            let inner = it.get("message").unwrap_or(&Value::Null);
            blocks::words(list(inner, "blocks"), |_| true)
        }));
    }
    parts.push(words);
    parts.extend(fields);
    parts.extend(
        list(attachment, "actions")
            .iter()
            .filter_map(|action| Some(format!("[{}]", plain(text(action, "/text")?)))),
    );
    parts.extend(field("image_url").map(|url| format!("[image: {url}]")));
    parts.extend(field("footer"));
    let mut told = joined(parts);
    if told.is_empty() {
        told = field("fallback").unwrap_or_default();
    }
    match told.is_empty() && about.is_empty() {
        true => String::new(),
        false => format!("{head} {told}").trim_end().to_owned(),
    }
}

/// A file: its name, type, size, id and URL, and the words in it that Slack gives.
pub(super) fn file_words(file: &Value) -> String {
    let field = |name: &str| text(file, name).filter(|found| !found.trim().is_empty());
    let name = ["/name", "/title"].into_iter().find_map(field);
    let mut about: Vec<String> = name.map(str::to_owned).into_iter().collect();
    let kind = ["/mimetype", "/filetype"].into_iter().find_map(field);
    about.extend(kind.map(str::to_owned));
    about.extend(bytes(file).map(|bytes| format!("{bytes} bytes")));
    about.extend(field("/id").map(|id| format!("ID {id}")));
    about.extend(address(file).map(|url| format!("URL {url}")));
    about.extend(match field("/mode") {
        Some("tombstone") => Some("deleted".to_owned()),
        Some("hidden_by_limit") => Some("hidden by the plan of the workspace".to_owned()),
        _ => None,
    });
    let mut parts = vec![format!("[File: {}]", about.join(", "))];
    let title = field("/title").filter(|title| Some(*title) != name);
    parts.extend(title.map(str::to_owned));
    // A spoken message, the description of a picture, and a mail.
    let within = [
        "/transcription/preview/content",
        "/alt_txt",
        "/subject",
        "/plain_text",
    ];
    parts.extend(within.into_iter().filter_map(field).map(str::to_owned));
    joined(parts)
}

fn bytes(file: &Value) -> Option<u64> {
    file.get("size").and_then(Value::as_u64)
}

/// The address from which the tool can download a file.
fn address(file: &Value) -> Option<&str> {
    let places = ["/url_private_download", "/url_private", "/permalink"];
    let mut found = places.into_iter().filter_map(|place| text(file, place));
    found.find(|url| !url.is_empty())
}

/// The files of a message, for its metadata.
pub(super) fn files(message: &Value) -> Option<Value> {
    let files = list(message, "files").iter().map(|file| {
        let known = [
            ("fileId", text(file, "/id").map(Value::from)),
            ("name", text(file, "/name").map(Value::from)),
            ("mimeType", text(file, "/mimetype").map(Value::from)),
            ("bytes", bytes(file).map(Value::from)),
            ("url", address(file).map(Value::from)),
        ];
        let known = known.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect::<Value>()
    });
    let files: Vec<Value> = files.collect();
    (!files.is_empty()).then_some(Value::Array(files))
}

#[cfg(test)]
#[path = "description/tests.rs"]
mod tests;
