//! Maps an update to an event. Pure.

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};

use super::chats::Migrations;
use super::description::{describe, integer, older_files, older_text, sender, service_words};
use crate::payload::{add_payload, event_id, instance_key, older_properties, properties, text};

/// Types of the requested updates.
pub(super) const UPDATES: [&str; 4] = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
];

/// Name of events about changes of a chat.
const SERVICE_MESSAGE: &str = "service_message";

#[derive(Debug, PartialEq)]
pub(super) enum Update {
    Event {
        event: Box<ConnectorEvent>,
        /// True if the agent's reply is posted to the chat.
        is_answered: bool,
    },
    /// A group has a new ID.
    Migrated { old: i64, new: i64 },
    /// Skipped.
    Ignored(Ignored),
}

/// An update that becomes no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ignored {
    /// The reason under which it is counted.
    pub(super) reason: IgnoreReason,
    /// The reason in words.
    pub(super) why: &'static str,
}

pub(super) const fn ignored(reason: IgnoreReason, why: &'static str) -> Update {
    Update::Ignored(Ignored { reason, why })
}

/// Settings and facts that determine events.
#[derive(Debug, Clone, Default)]
pub(super) struct Accepted {
    /// The chats that are listened to; `None` for all.
    pub(super) chats: Option<Vec<String>>,
    /// Bots whose messages are accepted.
    pub(super) bots: Vec<String>,
    /// True if changes of a chat are events.
    pub(super) service_messages: bool,
    /// Types of updates other than messages that become events.
    pub(super) more: Vec<&'static str>,
    /// True for texts as in goondan 0.0.3.
    pub(super) older_texts: bool,
    /// The ID of this bot, once known.
    pub(super) own_id: Option<i64>,
}

/// Maps update `id` to an event, unless it contains nothing for an agent.
pub(super) fn to_update(
    id: i64,
    update: &Value,
    accepted: &Accepted,
    migrations: &Migrations,
) -> Update {
    let found = UPDATES
        .iter()
        .find_map(|kind| Some((*kind, update.get(kind)?)));
    let Some((kind, message)) = found else {
        return ignored(IgnoreReason::Unsupported, "it is not a message");
    };
    let Some(chat) = integer(message, "/chat/id") else {
        return ignored(IgnoreReason::Unsupported, "it belongs to no chat");
    };
    let listed = accepted.chats.as_deref();
    // The message in the new group can arrive first.
    let former = integer(message, "/migrate_from_chat_id");
    let is_listed = [Some(chat), former]
        .into_iter()
        .flatten()
        .any(|id| migrations.is_listed(listed, id));
    if !is_listed {
        return ignored(IgnoreReason::OtherPlace, "the chat is not one of `chats`");
    }
    if let Some(new) = integer(message, "/migrate_to_chat_id") {
        return Update::Migrated { old: chat, new };
    }
    if let Some(old) = former {
        return Update::Migrated { old, new: chat };
    }
    // Messages of bots are ignored, because two bots could answer each other forever. Anonymous
    // administrators and channels have the account of a bot.
    let is_bot = message.pointer("/from/is_bot") == Some(&Value::Bool(true))
        && message.get("sender_chat").is_none();
    if is_bot && !is_accepted_bot(message, &accepted.bots) {
        return ignored(IgnoreReason::Bot, "it is from a bot");
    }
    let is_edited = kind.starts_with("edited_");
    if is_edited && message.pointer("/location/live_period").is_some() {
        return ignored(IgnoreReason::Unsupported, "it moves a live location");
    }
    let (name, said, files) = match describe(message, is_edited, accepted.own_id) {
        Some(spoken) => {
            let older = accepted.older_texts.then(|| older_text(message)).flatten();
            (kind, older.unwrap_or(spoken.text), spoken.files)
        }
        None => match service_words(message) {
            Some(words) if accepted.service_messages => (SERVICE_MESSAGE, words, Vec::new()),
            Some(_) => return ignored(IgnoreReason::Unsupported, "it is a service message"),
            None => return ignored(IgnoreReason::Unsupported, "it has no known content"),
        },
    };
    // A channel posts to everyone, and bots there see the posts of other bots.
    let is_answered = name != SERVICE_MESSAGE && !is_bot && !kind.ends_with("channel_post");
    match to_event(id, update, (name, message), said, (listed, migrations)) {
        Some(mut event) => {
            if accepted.older_texts {
                event.properties.extend(older_files(message));
            }
            if !files.is_empty() {
                event.metadata.insert("files".to_owned(), json!(files));
            }
            Update::Event {
                event: Box::new(event),
                is_answered,
            }
        }
        None => ignored(IgnoreReason::Unsupported, "its ids are invalid"),
    }
}

pub(super) fn is_accepted_bot(message: &Value, bots: &[String]) -> bool {
    let id = integer(message, "/from/id").map(|id| id.to_string());
    let name = text(message, "/from/username");
    bots.iter().any(|bot| {
        let bot = bot.trim_start_matches('@');
        id.as_deref() == Some(bot) || name.is_some_and(|name| name.eq_ignore_ascii_case(bot))
    })
}

/// The event of a message; `None` if its IDs are invalid.
pub(super) fn to_event(
    id: i64,
    update: &Value,
    (name, message): (&str, &Value),
    said: String,
    (listed, migrations): (Option<&[String]>, &Migrations),
) -> Option<ConnectorEvent> {
    let fact = |pointer: &str| message.pointer(pointer);
    let chat = integer(message, "/chat/id")?;
    let first = migrations.first(chat);
    let is_topic = fact("/is_topic_message") == Some(&json!(true));
    let thread = fact("/message_thread_id").filter(|_| is_topic);
    let key = match thread {
        Some(thread) => format!("telegram:{first}:{thread}"),
        None => format!("telegram:{first}"),
    };
    // Rules name the chat as `chats` does.
    let names_current = listed.is_some_and(|list| list.contains(&chat.to_string()));
    let named = json!(if names_current { chat } else { first });
    // Anonymous administrators share one account, and so do channels.
    let sender_chat = fact("/sender_chat/id");
    let from = sender_chat.or_else(|| fact("/from/id"));
    let username = match sender_chat {
        Some(_) => fact("/sender_chat/username"),
        None => fact("/from/username"),
    };
    let mut properties = properties([
        ("chatId", Some(&named)),
        ("chatType", fact("/chat/type")),
        ("fromId", from),
        ("fromUsername", username),
        ("threadId", thread),
    ]);
    let is_caption = text(message, "/text").is_none() && text(message, "/caption").is_some();
    let is_edited = name.starts_with("edited_");
    properties.insert("isEdited".to_owned(), json!(is_edited));
    properties.insert("isCaption".to_owned(), json!(is_caption));
    properties.extend(older_facts(update, message));
    if let Some(by) = message.get("sender_chat") {
        let name = json!(sender(message));
        properties.remove("from_last_name");
        properties.remove("from_username");
        properties.extend(older_properties([
            ("from_id", by.get("id")),
            ("from_username", by.get("username")),
            ("from_first_name", Some(&name)),
        ]));
    }
    let mut metadata = JsonObject::from_iter([
        ("chatId".to_owned(), json!(chat)),
        ("fromName".to_owned(), json!(sender(message))),
    ]);
    for (name, value) in [
        ("threadId", thread),
        ("messageId", fact("/message_id")),
        ("date", fact("/date")),
        ("chatType", fact("/chat/type")),
        ("chatTitle", fact("/chat/title")),
        (
            "topicTitle",
            fact("/reply_to_message/forum_topic_created/name"),
        ),
    ] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    add_payload(&mut metadata, update);
    Some(ConnectorEvent {
        id: Some(event_id(&format!("telegram:{id}")).ok()?),
        name: name.to_owned(),
        input: said,
        instance_key: Some(instance_key(&key).ok()?),
        properties,
        auth: from.map(|user| {
            JsonObject::from_iter([
                ("service".to_owned(), json!("telegram")),
                ("user".to_owned(), user.clone()),
            ])
        }),
        metadata,
    })
}

/// Properties of a message under their names of 0.0.3.
fn older_facts(update: &Value, message: &Value) -> JsonObject {
    let fact = |pointer: &str| message.pointer(pointer);
    older_properties([
        ("update_id", update.get("update_id")),
        ("chat_id", fact("/chat/id")),
        ("chat_type", fact("/chat/type")),
        ("chat_title", fact("/chat/title")),
        ("chat_username", fact("/chat/username")),
        ("message_id", fact("/message_id")),
        ("date", fact("/date")),
        ("from_id", fact("/from/id")),
        ("from_username", fact("/from/username")),
        ("from_first_name", fact("/from/first_name")),
        ("from_last_name", fact("/from/last_name")),
    ])
}

#[cfg(test)]
#[path = "updates_tests.rs"]
mod tests;
