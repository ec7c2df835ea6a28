//! Describes changes of a chat that Telegram reports as messages. Pure.

use serde_json::Value;

use super::{integer, number, person, sender};
use crate::payload::{one_line, shortened, text};

/// Describes a change of the chat; `None` if the message reports none.
pub(crate) fn service_words(message: &Value) -> Option<String> {
    let who = sender(message);
    members(message, &who)
        .or_else(|| chat_changes(message, &who))
        .or_else(|| topic_changes(message, &who))
        .or_else(|| calls(message, &who))
        .or_else(|| others(message, &who))
        .map(|said| format!("[{said}]"))
}

fn names(users: Option<&Value>) -> String {
    let users = users.and_then(Value::as_array).into_iter().flatten();
    let names: Vec<String> = users.map(person).collect();
    names.join(", ")
}

fn members(message: &Value, who: &str) -> Option<String> {
    let from = integer(message, "/from/id");
    if let Some(new) = message.get("new_chat_members") {
        let users = new.as_array()?;
        let is_alone = matches!(users.as_slice(), [only] if integer(only, "/id") == from);
        return Some(if is_alone {
            format!("{who} joined the chat")
        } else {
            format!("{who} added {} to the chat", names(Some(new)))
        });
    }
    let left = message.get("left_chat_member")?;
    Some(if integer(left, "/id") == from {
        format!("{who} left the chat")
    } else {
        format!("{who} removed {} from the chat", person(left))
    })
}

fn chat_changes(message: &Value, who: &str) -> Option<String> {
    if let Some(title) = text(message, "/new_chat_title") {
        return Some(format!("{who} renamed the chat to {}", shortened(title)));
    }
    if let Some(pinned) = message.get("pinned_message") {
        let said = text(pinned, "/text").or(text(pinned, "/caption"));
        let said = said.map(|said| format!(": {}", shortened(said)));
        return Some(format!(
            "{who} pinned a message{}",
            said.unwrap_or_default()
        ));
    }
    if let Some(seconds) = number(
        message,
        "/message_auto_delete_timer_changed/message_auto_delete_time",
    ) {
        return Some(match seconds {
            0 => format!("{who} keeps new messages from now on"),
            seconds => format!("{who} has new messages deleted after {seconds} s"),
        });
    }
    let said = [
        ("new_chat_photo", "changed the photo of the chat"),
        ("delete_chat_photo", "removed the photo of the chat"),
        ("group_chat_created", "created the group"),
        ("supergroup_chat_created", "created the group"),
        ("channel_chat_created", "created the channel"),
        ("chat_background_set", "changed the background of the chat"),
    ];
    let mut said = said.into_iter();
    said.find_map(|(field, said)| message.get(field).map(|_| format!("{who} {said}")))
}

fn topic_changes(message: &Value, who: &str) -> Option<String> {
    if let Some(name) = text(message, "/forum_topic_created/name") {
        return Some(format!("{who} opened the topic {}", shortened(name)));
    }
    if let Some(edited) = message.get("forum_topic_edited") {
        return Some(match text(edited, "/name") {
            Some(name) => format!("{who} renamed the topic to {}", shortened(name)),
            None => format!("{who} changed the icon of the topic"),
        });
    }
    let said = [
        ("forum_topic_closed", "closed the topic"),
        ("forum_topic_reopened", "opened the topic again"),
        ("general_forum_topic_hidden", "hid the general topic"),
        ("general_forum_topic_unhidden", "showed the general topic"),
    ];
    let mut said = said.into_iter();
    said.find_map(|(field, said)| message.get(field).map(|_| format!("{who} {said}")))
}

fn calls(message: &Value, who: &str) -> Option<String> {
    if let Some(invited) = message.pointer("/video_chat_participants_invited/users") {
        return Some(format!(
            "{who} invited {} to the call",
            names(Some(invited))
        ));
    }
    if let Some(seconds) = number(message, "/video_chat_ended/duration") {
        return Some(format!("The call ended after {seconds} s"));
    }
    if let Some(start) = number(message, "/video_chat_scheduled/start_date") {
        return Some(format!("{who} scheduled a call at Unix time {start}"));
    }
    message
        .get("video_chat_started")
        .map(|_| format!("{who} started a call"))
}

fn others(message: &Value, who: &str) -> Option<String> {
    if let Some(near) = message.get("proximity_alert_triggered") {
        let (traveler, watcher) = (near.get("traveler")?, near.get("watcher")?);
        let meters = number(near, "/distance").unwrap_or_default();
        let (traveler, watcher) = (person(traveler), person(watcher));
        return Some(format!("{traveler} is {meters} m away from {watcher}"));
    }
    for (field, said) in [
        ("checklist_tasks_done", "changed tasks of a checklist"),
        ("checklist_tasks_added", "added tasks to a checklist"),
        ("boost_added", "boosted the chat"),
        ("write_access_allowed", "allowed the bot to write"),
    ] {
        if message.get(field).is_some() {
            return Some(format!("{who} {said}"));
        }
    }
    let site = text(message, "/connected_website").map(one_line)?;
    Some(format!("{who} logged in on {site}"))
}
