//! Maps an event of a room to an event for an agent. Pure.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::EventId;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::description::{POLLS, STICKER, describe, without_fallback};
use super::rooms::Room;
use crate::payload::{
    add_payload, instance_key, is_allowed, one_line, properties, shortened, text,
};

/// Type of the events of messages.
pub(super) const MESSAGE: &str = "m.room.message";

/// Type of the events of encrypted messages.
const ENCRYPTED: &str = "m.room.encrypted";

/// Type of the events of reactions.
pub(super) const REACTION: &str = "m.reaction";

/// Type of the events that remove the content of others.
const REDACTION: &str = "m.room.redaction";

/// Field of messages that goondan writes. Those of other accounts are passed over, because two
/// agents could answer each other forever.
pub(super) const AUTOMATIC: &str = "ai.goondan.automatic";

/// Kind of messages that programs write by convention.
pub(super) const NOTICE: &str = "m.notice";

/// Name of events about messages that their authors changed.
const EDITED_MESSAGE: &str = "edited_message";

#[derive(Debug, PartialEq)]
pub(super) enum EventMapping {
    Event {
        event: Box<ConnectorEvent>,
        /// True if the agent's reply is posted to the room.
        is_answered: bool,
    },
    /// Skipped, with the reason as text.
    Ignored(IgnoreReason, &'static str),
    /// A message that only its recipients can read.
    Encrypted,
    /// Written by the account itself.
    Own,
}

/// Settings that determine events.
#[derive(Debug, Clone, Default)]
pub(super) struct Accepted {
    /// The rooms that are listened to; `None` for all.
    pub(super) rooms: Option<Vec<String>>,
    /// Bots whose messages are accepted.
    pub(super) bots: Vec<String>,
    /// True if reactions to messages of the account are events.
    pub(super) reactions: bool,
    /// True if deletions of messages are events.
    pub(super) redactions: bool,
}

/// The account of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) id: String,
    /// Its display name.
    pub(super) name: String,
}

/// Facts about an event that are not in it.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) account: &'a Account,
    pub(super) room_id: &'a str,
    pub(super) room: &'a Room,
    /// Other events of the room, by ID ([`related`]).
    pub(super) found: &'a BTreeMap<String, Value>,
}

/// Decides about an event without its surroundings; `None` if they are needed.
pub(super) fn decide(
    event: &Value,
    room: &str,
    account: &Account,
    accepted: &Accepted,
) -> Option<EventMapping> {
    let ignored = |reason, why| Some(EventMapping::Ignored(reason, why));
    let sender = text(event, "/sender").unwrap_or_default();
    if sender == account.id {
        return Some(EventMapping::Own);
    }
    if !is_allowed(accepted.rooms.as_deref(), room) {
        return ignored(IgnoreReason::OtherPlace, "the room is not one of `rooms`");
    }
    let kind = text(event, "/type").unwrap_or_default();
    let is_message = kind == MESSAGE || kind == STICKER || POLLS.contains(&kind);
    if kind == ENCRYPTED {
        return Some(EventMapping::Encrypted);
    }
    let is_wanted = is_message
        || (kind == REACTION && accepted.reactions)
        || (kind == REDACTION && accepted.redactions);
    if !is_wanted {
        return ignored(IgnoreReason::Unsupported, "it is not a message");
    }
    let is_empty = event
        .get("content")
        .and_then(Value::as_object)
        .is_none_or(JsonObject::is_empty);
    if is_empty && kind != REDACTION {
        return ignored(IgnoreReason::Unsupported, "it was deleted");
    }
    if is_automatic(event) && !is_allowed(Some(&accepted.bots), sender) {
        return ignored(IgnoreReason::Bot, "it is from a program");
    }
    None
}

fn is_automatic(event: &Value) -> bool {
    text(event, "/content/msgtype") == Some(NOTICE)
        || event.pointer(&format!("/content/{AUTOMATIC}")) == Some(&Value::Bool(true))
}

/// The event that an event is about in this way.
fn relation<'e>(event: &'e Value, kind: &str) -> Option<&'e str> {
    let relation = event.pointer("/content/m.relates_to")?;
    (text(relation, "/rel_type") == Some(kind)).then(|| text(relation, "/event_id"))?
}

/// The first message of the event's thread, if it is in one.
pub(super) fn thread_of(event: &Value) -> Option<&str> {
    relation(event, "m.thread")
}

/// The message that an event answers, other than by being in its thread.
fn answered(event: &Value) -> Option<&str> {
    let relation = event.pointer("/content/m.relates_to")?;
    let is_fallback = relation.get("is_falling_back") == Some(&Value::Bool(true));
    text(relation, "/m.in_reply_to/event_id").filter(|_| !is_fallback)
}

fn redacted(event: &Value) -> Option<&str> {
    text(event, "/redacts").or_else(|| text(event, "/content/redacts"))
}

/// The message that an event changes or reacts to.
fn target(event: &Value) -> Option<&str> {
    match text(event, "/type") {
        Some(REDACTION) => redacted(event),
        Some(REACTION) => relation(event, "m.annotation"),
        Some(_) | None => relation(event, "m.replace"),
    }
}

/// IDs of the events that describe what an event is about. With the event that it changes, also
/// those of that event.
pub(super) fn related(event: &Value, found: &BTreeMap<String, Value>) -> Vec<String> {
    let changed = target(event);
    let placed = changed.and_then(|id| found.get(id)).unwrap_or(event);
    let ids = [changed, thread_of(placed), answered(placed)];
    let mut ids: Vec<String> = ids.into_iter().flatten().map(str::to_owned).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Maps an event about which [`decide`] needs its surroundings.
pub(super) fn to_mapped(
    event: &Value,
    accepted: &Accepted,
    around: &Surroundings<'_>,
) -> EventMapping {
    let kind = text(event, "/type").unwrap_or_default();
    let changed = target(event).and_then(|id| around.found.get(id));
    match kind {
        REACTION => match reacted(event, changed, around) {
            Ok(words) => {
                let place = Place::of(changed.unwrap_or(event), around);
                to_event("reaction", event, words, (place, around))
            }
            Err(why) => EventMapping::Ignored(IgnoreReason::Unsupported, why),
        },
        REDACTION => match deleted(event, changed, around) {
            Ok(words) => {
                let place = Place::of(changed.unwrap_or(event), around);
                to_event("redaction", event, words, (place, around))
            }
            Err(why) => EventMapping::Ignored(IgnoreReason::Unsupported, why),
        },
        kind => to_message(event, kind, changed, (accepted, around)),
    }
}

/// Place of an event in its room.
#[derive(Debug, Clone, Copy)]
struct Place<'e> {
    thread: Option<&'e str>,
    is_mention: bool,
}

impl<'e> Place<'e> {
    /// The place of an event, or of the message that it changes.
    fn of(event: &'e Value, around: &Surroundings<'_>) -> Self {
        let thread = thread_of(event);
        let find = |id: Option<&str>| id.and_then(|id| around.found.get(id));
        let root = find(thread);
        let is_with_account = root.is_some_and(|root| {
            let part = "/unsigned/m.relations/m.thread/current_user_participated";
            is_own(root, around.account)
                || root.pointer(part) == Some(&Value::Bool(true))
                || is_mention(root, around.account)
        });
        let answers_account =
            find(answered(event)).is_some_and(|event| is_own(event, around.account));
        Self {
            thread,
            is_mention: is_with_account || answers_account,
        }
    }
}

fn is_own(event: &Value, account: &Account) -> bool {
    text(event, "/sender") == Some(account.id.as_str())
}

/// The content of a message, of an edited one the new content.
fn content(event: &Value) -> &Value {
    let new = event.pointer("/content/m.new_content");
    let new = new.filter(|_| relation(event, "m.replace").is_some());
    new.or_else(|| event.get("content")).unwrap_or(&Value::Null)
}

/// True if a message mentions the account: by `m.mentions`, or by its name for older clients.
fn is_mention(event: &Value, account: &Account) -> bool {
    let content = content(event);
    if let Some(mentions) = content.get("m.mentions").filter(|it| it.is_object()) {
        let users = mentions.get("user_ids").and_then(Value::as_array);
        let mut users = users.into_iter().flatten();
        return users.any(|user| user.as_str() == Some(account.id.as_str()));
    }
    let body = without_fallback(content, text(content, "/body").unwrap_or_default());
    has_name(body, &account.id) || has_name(body, &account.name)
}

/// True if a text contains a name as a word of its own.
fn has_name(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty()
        && text.match_indices(&name).any(|(at, found)| {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            let after = text.get(at + found.len()..);
            let after = after.and_then(|after| after.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// A text without the name of the account before it.
fn without_name(said: String, account: &Account) -> String {
    for name in [account.id.as_str(), account.name.as_str()] {
        let start = said.trim_start();
        let start = start
            .strip_prefix('@')
            .filter(|_| !name.starts_with('@'))
            .unwrap_or(start);
        let rest = start.strip_prefix(name).filter(|_| !name.is_empty());
        let rest = rest.and_then(|rest| rest.strip_prefix([':', ',']));
        if let Some(rest) = rest.map(str::trim_start).filter(|rest| !rest.is_empty()) {
            return rest.to_owned();
        }
    }
    said
}

fn to_message(
    event: &Value,
    kind: &str,
    changed: Option<&Value>,
    (accepted, around): (&Accepted, &Surroundings<'_>),
) -> EventMapping {
    let sender = text(event, "/sender").unwrap_or_default();
    let is_edited = relation(event, "m.replace").is_some();
    if is_edited && changed.is_some_and(|changed| text(changed, "/sender") != Some(sender)) {
        let why = "it changes a message of another person";
        return EventMapping::Ignored(IgnoreReason::Unsupported, why);
    }
    // An edit does not say where the edited message is.
    let placed = changed.unwrap_or(event);
    let mut place = Place::of(placed, around);
    place.is_mention |= is_mention(event, around.account);
    let mut spoken = describe(kind, content(event));
    if spoken.is_empty() {
        let why = "it has no known content";
        return EventMapping::Ignored(IgnoreReason::Unsupported, why);
    }
    let mut lines = Vec::new();
    if is_edited {
        lines.push("[Edited message]".to_owned());
    }
    lines.extend(about_thread(place.thread, around));
    lines.extend(about_answered(placed, around));
    let written = spoken.written.take();
    lines.extend(written.map(|said| without_name(said, around.account)));
    lines.append(&mut spoken.lines);
    let name = if is_edited { EDITED_MESSAGE } else { "message" };
    match to_event(name, event, lines.join("\n"), (place, around)) {
        EventMapping::Event { mut event, .. } => {
            if !spoken.files.is_empty() {
                let files = json!(spoken.files);
                event.metadata.insert("files".to_owned(), files);
            }
            let is_answered = !is_allowed(Some(&accepted.bots), sender);
            EventMapping::Event { event, is_answered }
        }
        other => other,
    }
}

/// Author of a message, from the account's view.
fn author(event: &Value, around: &Surroundings<'_>) -> String {
    if is_own(event, around.account) {
        return "your message".to_owned();
    }
    around
        .room
        .name_of(text(event, "/sender").unwrap_or_default())
}

/// The text of a message, in one line.
fn quoted(event: &Value) -> Option<String> {
    describe(text(event, "/type")?, content(event)).quoted()
}

/// The message that begins a thread, with the first message in it.
fn about_thread(thread: Option<&str>, around: &Surroundings<'_>) -> Option<String> {
    let root = around.found.get(thread?)?;
    let count = root.pointer("/unsigned/m.relations/m.thread/count");
    (count.and_then(Value::as_u64) == Some(1)).then(|| line("Thread on", root, around))
}

/// The message that a message answers.
fn about_answered(event: &Value, around: &Surroundings<'_>) -> Option<String> {
    let id = answered(event)?;
    Some(match around.found.get(id) {
        Some(answered) => line("Reply to", answered, around),
        None => "[Reply to a message]".to_owned(),
    })
}

fn line(what: &str, event: &Value, around: &Surroundings<'_>) -> String {
    let who = author(event, around);
    match quoted(event) {
        Some(said) => format!("[{what} {who}: {said}]"),
        None => format!("[{what} {who}]"),
    }
}

fn reacted(
    event: &Value,
    changed: Option<&Value>,
    around: &Surroundings<'_>,
) -> Result<String, &'static str> {
    let changed = changed.filter(|changed| is_own(changed, around.account));
    let changed = changed.ok_or("it is about a message of another account")?;
    let key = text(event, "/content/m.relates_to/key").ok_or("it has no reaction")?;
    let who = around
        .room
        .name_of(text(event, "/sender").unwrap_or_default());
    let what = quoted(changed).map(|said| format!(" {said}"));
    let key: String = one_line(key).chars().take(REACTION_CHARS_MAX).collect();
    Ok(format!(
        "[{who} reacted with {key} to your message{}]",
        what.unwrap_or_default()
    ))
}

/// Longest reaction that is repeated, in characters.
const REACTION_CHARS_MAX: usize = 40;

fn deleted(
    event: &Value,
    changed: Option<&Value>,
    around: &Surroundings<'_>,
) -> Result<String, &'static str> {
    let kind = changed.and_then(|changed| text(changed, "/type"));
    if kind.is_some_and(|kind| kind != MESSAGE && kind != STICKER) {
        return Err("it deletes no message");
    }
    let by = text(event, "/sender").unwrap_or_default();
    let who = around.room.name_of(by);
    let reason = text(event, "/content/reason").map(|reason| format!(": {}", shortened(reason)));
    let of = changed.filter(|changed| text(changed, "/sender") != Some(by));
    let of = of.map(|changed| match author(changed, around).as_str() {
        "your message" => "your message".to_owned(),
        author => format!("a message of {author}"),
    });
    Ok(format!(
        "[{who} deleted {}{}]",
        of.as_deref().unwrap_or("a message"),
        reason.unwrap_or_default()
    ))
}

/// The ID of an event. IDs of the first room versions can be too long.
fn event_id(id: &str) -> Option<EventId> {
    let own = EventId::new(format!("matrix:{id}"));
    let hashed = || EventId::new(format!("matrix:{}", hex::encode(Sha256::digest(id))));
    own.or_else(|_invalid| hashed()).ok()
}

/// The event for the agent, which is not answered.
fn to_event(
    name: &str,
    event: &Value,
    said: String,
    (place, around): (Place<'_>, &Surroundings<'_>),
) -> EventMapping {
    let invalid = EventMapping::Ignored(IgnoreReason::Unsupported, "its ids are invalid");
    let (Some(id), Some(sender)) = (text(event, "/event_id"), text(event, "/sender")) else {
        return invalid;
    };
    let (room_id, room) = (around.room_id, around.room);
    let key = match place.thread {
        Some(thread) => format!("matrix:{room_id}:{thread}"),
        None => format!("matrix:{room_id}"),
    };
    let (Some(event_id), Ok(key)) = (event_id(id), instance_key(&key)) else {
        return invalid;
    };
    let is_direct = room.is_direct();
    let from_name = room.name_of(sender);
    let server = sender.split_once(':').map(|(_, server)| json!(server));
    let room_name = room
        .name
        .as_ref()
        .filter(|_| !is_direct)
        .map(|it| json!(it));
    let thread = place.thread.map(Value::from);
    let fact = |value: &str| Some(json!(value));
    let facts = [
        ("room", fact(room_id)),
        ("roomName", room_name.clone()),
        ("from", fact(sender)),
        ("fromName", fact(&from_name)),
        ("fromServer", server),
        ("thread", thread.clone()),
        ("isDirect", Some(json!(is_direct))),
        ("isMention", Some(json!(place.is_mention))),
        ("isEdited", Some(json!(name == EDITED_MESSAGE))),
    ];
    let properties = properties(
        facts
            .each_ref()
            .map(|(name, value)| (*name, value.as_ref())),
    );
    let mut metadata = JsonObject::new();
    for (name, value) in [
        ("roomId", fact(room_id)),
        ("roomName", room_name),
        ("eventId", fact(id)),
        ("threadId", thread),
        ("from", fact(sender)),
        ("fromName", fact(&from_name)),
        ("isDirect", Some(json!(is_direct))),
        ("date", event.get("origin_server_ts").cloned()),
    ] {
        metadata.extend(value.map(|value| (name.to_owned(), value)));
    }
    add_payload(&mut metadata, event);
    EventMapping::Event {
        event: Box::new(ConnectorEvent {
            id: Some(event_id),
            name: name.to_owned(),
            input: said,
            instance_key: Some(key),
            properties,
            auth: Some(JsonObject::from_iter([
                ("service".to_owned(), json!("matrix")),
                ("user".to_owned(), json!(sender)),
            ])),
            metadata,
        }),
        is_answered: false,
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
