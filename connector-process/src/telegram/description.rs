//! Describes a message in words (`CONN-1`). Pure.
//!
//! The text of a person stays as it is. Everything else of a message, such as a photo, a quotation
//! or the origin of a forwarded message, becomes a line in brackets.
//!
//! * `media`: content other than text.
//! * `older`: the text and files of a message in the older contract.
//! * `service`: changes of the chat.

mod media;
mod older;
mod service;

use serde_json::Value;

use crate::payload::{one_line, shortened, text};

pub(super) use older::{older_files, older_text};
pub(super) use service::service_words;

/// Words for the message of a person.
#[derive(Debug, PartialEq)]
pub(super) struct MessageText {
    pub(super) text: String,
    /// Files of the message, for its metadata.
    pub(super) files: Vec<Value>,
}

/// Describes what a person said in a message; `None` if it has no known content. `bot` is the id
/// of the bot itself.
pub(super) fn describe(message: &Value, is_edited: bool, bot: Option<i64>) -> Option<MessageText> {
    let mut files = Vec::new();
    let media = media::described(message, &mut files);
    let written = written(message, "/text", "/entities")
        .or_else(|| written(message, "/caption", "/caption_entities"));
    if media.is_empty() && written.is_none() {
        return None;
    }
    let mut lines = Vec::new();
    if is_edited {
        lines.push("[Edited message]".to_owned());
    }
    lines.extend(origin(message));
    lines.extend(answered(message, bot));
    lines.extend(written);
    lines.extend(media);
    let text = lines.join("\n");
    Some(MessageText { text, files })
}

/// The text of a message, with the targets of its links.
fn written(message: &Value, pointer: &str, entities: &str) -> Option<String> {
    let said = text(message, pointer).filter(|said| !said.trim().is_empty())?;
    Some(with_links(said, message.pointer(entities)))
}

/// Adds the targets of links, which the text itself does not show.
fn with_links(said: &str, entities: Option<&Value>) -> String {
    let entities = entities.and_then(Value::as_array).into_iter().flatten();
    let mut notes: Vec<(u64, String)> = entities
        .filter_map(|entity| {
            let end = number(entity, "/offset")?.checked_add(number(entity, "/length")?)?;
            let note = match text(entity, "/type")? {
                "text_link" => format!(" ({})", text(entity, "/url")?),
                "text_mention" => format!(" (user {})", integer(entity, "/user/id")?),
                _ => return None,
            };
            Some((end, note))
        })
        .collect();
    notes.sort_by_key(|(end, _)| *end);
    let mut notes = notes.into_iter().peekable();
    let mut whole = String::with_capacity(said.len());
    let mut unit = 0_u64;
    for c in said.chars() {
        while let Some((_, note)) = notes.next_if(|(end, _)| *end <= unit) {
            whole.push_str(&note);
        }
        whole.push(c);
        unit = unit.saturating_add(u64::try_from(c.len_utf16()).unwrap_or(2));
    }
    for (_, note) in notes {
        whole.push_str(&note);
    }
    whole
}

/// The origin of a forwarded message.
fn origin(message: &Value) -> Option<String> {
    if message.get("is_automatic_forward") == Some(&Value::Bool(true)) {
        return Some("[Post of the linked channel]".to_owned());
    }
    let who = match message.get("forward_origin") {
        Some(origin) => origin_name(origin)?,
        // Servers before Bot API 7.0.
        None => {
            let user = message.get("forward_from").map(person);
            let chat = message.get("forward_from_chat").map(chat);
            let hidden = text(message, "/forward_sender_name").map(one_line);
            user.or(chat).or(hidden)?
        }
    };
    Some(format!("[Forwarded from {who}]"))
}

fn origin_name(origin: &Value) -> Option<String> {
    let signature = text(origin, "/author_signature").map(one_line);
    let signed = |who: String| match &signature {
        Some(signature) => format!("{who} ({signature})"),
        None => who,
    };
    match text(origin, "/type")? {
        "user" => origin.get("sender_user").map(person),
        "hidden_user" => text(origin, "/sender_user_name").map(one_line),
        "chat" => origin.get("sender_chat").map(chat).map(signed),
        "channel" => origin.get("chat").map(chat).map(signed),
        _ => None,
    }
}

/// The message that this one answers, shortened.
fn answered(message: &Value, bot: Option<i64>) -> Option<String> {
    let quote = text(message, "/quote/text").map(shortened);
    if let Some(story) = message.pointer("/reply_to_story/chat") {
        return Some(format!("[Reply to a story of {}]", chat(story)));
    }
    if let Some(external) = message.get("external_reply") {
        let who = external.get("origin").and_then(origin_name);
        let who = who.unwrap_or_else(|| "a message".to_owned());
        let mut files = Vec::new();
        let said = quote.or_else(|| media::described(external, &mut files).into_iter().next());
        return Some(reply_line(&format!("{who} in another chat"), said));
    }
    let replied = message.get("reply_to_message")?;
    // Each message of a forum topic refers to the creation of the topic.
    let is_topic = replied.get("forum_topic_created").is_some()
        || (message.get("is_topic_message") == Some(&Value::Bool(true))
            && replied.get("message_id") == message.get("message_thread_id"));
    if is_topic {
        return None;
    }
    let is_own = bot.is_some() && integer(replied, "/from/id") == bot;
    let who = if is_own {
        "your message".to_owned()
    } else {
        sender(replied)
    };
    let said = quote.map(|quote| format!("{quote} (quoted)")).or_else(|| {
        let said = text(replied, "/text").or(text(replied, "/caption"));
        let mut files = Vec::new();
        let media = || media::described(replied, &mut files).into_iter().next();
        said.map(shortened)
            .or_else(media)
            .or_else(|| service_words(replied))
    });
    Some(reply_line(&who, said))
}

fn reply_line(who: &str, said: Option<String>) -> String {
    match said {
        Some(said) => {
            let bare = said
                .strip_prefix('[')
                .and_then(|said| said.strip_suffix(']'));
            format!("[Reply to {who}: {}]", bare.unwrap_or(&said))
        }
        None => format!("[Reply to {who}]"),
    }
}

/// The sender of a message. Anonymous administrators and channels write as a chat.
pub(super) fn sender(message: &Value) -> String {
    let signature = text(message, "/author_signature").map(one_line);
    let own = integer(message, "/chat/id");
    let name = match message.get("sender_chat") {
        Some(by) if own.is_some() && integer(by, "/id") == own && by_group(by) => {
            "an anonymous administrator".to_owned()
        }
        Some(by) => chat(by),
        None => match message.get("from") {
            Some(from) => person(from),
            None => message
                .get("chat")
                .map_or_else(|| "someone".to_owned(), chat),
        },
    };
    match signature {
        Some(signature) => format!("{name} ({signature})"),
        None => name,
    }
}

fn by_group(chat: &Value) -> bool {
    text(chat, "/type") != Some("channel")
}

/// The full name of a user.
pub(super) fn person(user: &Value) -> String {
    let names = ["/first_name", "/last_name"].map(|name| text(user, name).unwrap_or_default());
    let name = one_line(&names.join(" "));
    if !name.is_empty() {
        return name;
    }
    let username = text(user, "/username").map(|name| format!("@{name}"));
    let id = || integer(user, "/id").map(|id| format!("user {id}"));
    username.or_else(id).unwrap_or_else(|| "someone".to_owned())
}

/// The title of a chat, or the name of its only user.
fn chat(chat: &Value) -> String {
    match text(chat, "/title") {
        Some(title) if text(chat, "/type") == Some("channel") => {
            format!("the channel {}", one_line(title))
        }
        Some(title) => one_line(title),
        None => person(chat),
    }
}

pub(super) fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

pub(super) fn integer(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

#[cfg(test)]
#[path = "description/tests.rs"]
mod tests;
