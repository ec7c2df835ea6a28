//! Maps updates other than messages to events: reactions, members and requests to join. Pure.
//!
//! The connector posts no reply to these updates, because they are not messages to the agent.

use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};

use super::chats::Migrations;
use super::description::{integer, number, person, sender};
use super::sent::SentMessage;
use super::updates::{Accepted, Update, ignored, is_accepted_bot, to_event};
use crate::payload::{one_line, shortened, text};

/// Type of the updates about a person's reaction.
pub(super) const REACTION: &str = "message_reaction";

/// Type of the updates about reactions whose authors are unknown.
const REACTION_COUNT: &str = "message_reaction_count";

/// Type of the updates about the bot's own membership.
const OWN_MEMBERSHIP: &str = "my_chat_member";

/// Type of the updates about other members.
const MEMBERSHIP: &str = "chat_member";

/// Type of the updates about requests to join.
const JOIN_REQUEST: &str = "chat_join_request";

/// Types of updates by the setting that requests them.
const SETTINGS: [(&str, &[&str]); 3] = [
    ("reactions", &[REACTION, REACTION_COUNT]),
    ("memberChanges", &[OWN_MEMBERSHIP, MEMBERSHIP]),
    ("joinRequests", &[JOIN_REQUEST]),
];

/// Types of the updates other than messages that the settings request.
pub(super) fn more_updates(values: &Values<'_>) -> Vec<&'static str> {
    let wanted = SETTINGS.iter().filter(|(name, _)| values.truth(name));
    wanted
        .flat_map(|(_, kinds)| kinds.iter().copied())
        .collect()
}

/// Maps a requested update other than a message; `None` for all others. `sent` finds a message of
/// the bot.
pub(super) fn to_chat_update(
    id: i64,
    update: &Value,
    (accepted, migrations): (&Accepted, &Migrations),
    sent: impl Fn(i64, i64) -> Option<SentMessage>,
) -> Option<Update> {
    let mut kinds = accepted.more.iter();
    let (kind, change) = kinds.find_map(|kind| Some((*kind, update.get(*kind)?)))?;
    let Some(chat) = integer(change, "/chat/id") else {
        return Some(ignored(IgnoreReason::Unsupported, "it belongs to no chat"));
    };
    let listed = accepted.chats.as_deref();
    if !migrations.is_listed(listed, chat) {
        return Some(ignored(
            IgnoreReason::OtherPlace,
            "the chat is not one of `chats`",
        ));
    }
    let sent = integer(change, "/message_id").and_then(|message| sent(chat, message));
    let message = as_message(change, sent.as_ref());
    let author = integer(&message, "/from/id");
    if author.is_some() && author == accepted.own_id {
        return Some(ignored(IgnoreReason::Own, "the bot did it"));
    }
    let is_bot = message.pointer("/from/is_bot") == Some(&Value::Bool(true));
    if is_bot && !is_accepted_bot(&message, &accepted.bots) {
        return Some(ignored(IgnoreReason::Bot, "it is from a bot"));
    }
    let words = match kind {
        REACTION => reacted(change, &message, sent.as_ref()),
        REACTION_COUNT => counted(change, sent.as_ref()),
        JOIN_REQUEST => Ok(request_to_join(change, &message)),
        _ => membership(change, &message, kind == OWN_MEMBERSHIP),
    };
    let words = match words {
        Ok(words) => format!("[{words}]"),
        Err(why) => return Some(ignored(IgnoreReason::Unsupported, why)),
    };
    let event = to_event(id, update, (kind, &message), words, (listed, migrations));
    Some(event.map_or_else(
        || ignored(IgnoreReason::Unsupported, "its ids are invalid"),
        |event| Update::Event {
            event: Box::new(event),
            is_answered: false,
        },
    ))
}

/// The change as a message of its author, in the topic of the message that it is about.
fn as_message(change: &Value, sent: Option<&SentMessage>) -> Value {
    let mut message = JsonObject::new();
    for (name, value) in [
        ("chat", change.get("chat")),
        ("from", change.get("user").or_else(|| change.get("from"))),
        ("sender_chat", change.get("actor_chat")),
        ("message_id", change.get("message_id")),
        ("date", change.get("date")),
    ] {
        if let Some(value) = value {
            message.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(topic) = sent.and_then(|sent| sent.thread) {
        message.insert("is_topic_message".to_owned(), json!(true));
        message.insert("message_thread_id".to_owned(), json!(topic));
    }
    Value::Object(message)
}

/// The reason for reactions to messages that are not recorded.
const NOT_OWN: &str = "it is about none of the bot's latest messages";

fn reacted(
    change: &Value,
    message: &Value,
    sent: Option<&SentMessage>,
) -> Result<String, &'static str> {
    let sent = sent.ok_or(NOT_OWN)?;
    let [before, after] = ["old_reaction", "new_reaction"].map(|field| {
        let reactions = change.get(field).and_then(Value::as_array);
        let reactions = reactions.into_iter().flatten();
        reactions.map(reaction).collect::<Vec<String>>()
    });
    let without = |some: &[String], others: &[String]| {
        let rest = some.iter().filter(|it| !others.contains(it)).cloned();
        rest.collect::<Vec<String>>().join(" ")
    };
    let (new, gone) = (without(&after, &before), without(&before, &after));
    let (who, what) = (sender(message), &sent.text);
    match (new.as_str(), gone.as_str()) {
        ("", "") => Err("it changes no reaction"),
        (new, "") => Ok(format!(
            "{who} reacted with {new} to your message \"{what}\""
        )),
        ("", gone) => Ok(format!(
            "{who} took {gone} back from your message \"{what}\""
        )),
        (new, gone) => Ok(format!(
            "{who} reacted with {new} instead of {gone} to your message \"{what}\""
        )),
    }
}

/// Reactions in a channel, where their authors are unknown.
fn counted(change: &Value, sent: Option<&SentMessage>) -> Result<String, &'static str> {
    let what = &sent.ok_or(NOT_OWN)?.text;
    let counts = change.get("reactions").and_then(Value::as_array);
    let counts = counts.into_iter().flatten().filter_map(|count| {
        let total = number(count, "/total_count")?;
        Some(format!("{} {total}", reaction(count.get("type")?)))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() {
        return Ok(format!("Your message \"{what}\" has no reactions left"));
    }
    let counts = counts.join(", ");
    Ok(format!("Reactions to your message \"{what}\": {counts}"))
}

fn reaction(reaction: &Value) -> String {
    match text(reaction, "/type") {
        Some("emoji") => one_line(text(reaction, "/emoji").unwrap_or_default()),
        Some("paid") => "a paid star".to_owned(),
        _ => "a custom emoji".to_owned(),
    }
}

fn request_to_join(change: &Value, message: &Value) -> String {
    let about = text(change, "/bio").map(|bio| format!(": {}", shortened(bio)));
    let who = sender(message);
    format!("{who} asks to join the chat{}", about.unwrap_or_default())
}

/// Members are in the chat with these; a restricted one, if it says so.
fn is_in(member: &Value) -> bool {
    match text(member, "/status") {
        Some("creator" | "administrator" | "member") => true,
        Some("restricted") => member.get("is_member") == Some(&Value::Bool(true)),
        _ => false,
    }
}

fn membership(change: &Value, message: &Value, is_own: bool) -> Result<String, &'static str> {
    let unknown = "it describes no member";
    let before = change.get("old_chat_member").ok_or(unknown)?;
    let after = change.get("new_chat_member").ok_or(unknown)?;
    let user = after.get("user").ok_or(unknown)?;
    let by = sender(message);
    let whom = if is_own {
        "you".to_owned()
    } else {
        person(user)
    };
    let is_alone = integer(user, "/id") == integer(message, "/from/id");
    let [was, now] = [before, after].map(|member| text(member, "/status").unwrap_or_default());
    let is_private = text(change, "/chat/type") == Some("private");
    Ok(match (is_in(before), is_in(after)) {
        (false, true) if is_private => format!("{by} unblocked {whom}"),
        (true, false) if is_private => format!("{by} blocked {whom}"),
        (false, true) if is_alone => format!("{by} joined the chat"),
        (false, true) if now == "administrator" => {
            format!("{by} added {whom} to the chat as an administrator")
        }
        (false, true) => format!("{by} added {whom} to the chat"),
        (true, false) if is_alone => format!("{by} left the chat"),
        (_, false) if now == "kicked" => format!("{by} banned {whom} from the chat"),
        (true, false) => format!("{by} removed {whom} from the chat"),
        (false, false) if was == "kicked" => format!("{by} lifted the ban of {whom}"),
        (true, true) if now == "creator" && was != now => {
            format!("{by} made {whom} the owner of the chat")
        }
        (true, true) if now == "administrator" && was != now => {
            format!("{by} made {whom} an administrator{}", rights(before, after))
        }
        (true, true) if was == "administrator" && now == "member" => {
            format!("{by} took the rights of an administrator from {whom}")
        }
        (true, true) if was == "restricted" && now == "member" => {
            format!("{by} lifted the restrictions of {whom}")
        }
        (_, _) if now == "restricted" && was != now => {
            format!("{by} restricted {whom}{}", rights(before, after))
        }
        (_, _) if is_own => format!("{by} changed your rights{}", rights(before, after)),
        (_, _) => format!("{by} changed the rights of {whom}{}", rights(before, after)),
    })
}

/// The rights that differ, such as `; may delete messages; may not pin messages`.
fn rights(before: &Value, after: &Value) -> String {
    // Members without restrictions have all rights of a member, and none of an administrator.
    let usual = text(after, "/status") == Some("restricted");
    let fields = after.as_object().into_iter().flatten();
    let changed = fields.filter_map(|(name, now)| {
        let right = name.strip_prefix("can_").filter(|it| *it != "be_edited")?;
        let was = before.get(name).and_then(Value::as_bool).unwrap_or(usual);
        let now = now.as_bool().filter(|now| *now != was)?;
        let may = if now { "may" } else { "may not" };
        Some(format!("; {may} {}", right.replace('_', " ")))
    });
    changed.collect()
}

#[cfg(test)]
#[path = "chat_updates_tests.rs"]
mod tests;
