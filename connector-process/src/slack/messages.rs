//! Messages and mentions of Slack's Events API become events. Pure, except for the threads that the
//! app takes part in.
//!
//! In a channel, a message and the thread under it are one conversation; a direct chat is one
//! conversation. A message that mentions the app, and every reply in a thread that began so or that
//! the app began, is an `app_mention`, so the rule for mentions takes the whole thread, and the
//! order of Slack's two events of one message does not matter.

use std::borrow::Cow;

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};

use super::description::{files, joined, message_words, older_files, older_text};
use super::threads::Threads;
use crate::listener::MalformedRequest;
use crate::payload::{
    add_payload, event_id, instance_key, is_allowed, properties, required, text, with_older,
};

pub(super) const MENTION: &str = "app_mention";
pub(super) const MESSAGE: &str = "message";
pub(super) const EDITED: &str = "message_changed";

/// Subtypes of messages that people write. All others report a change of a channel or a message.
const WRITTEN: [&str; 3] = ["file_share", "me_message", "thread_broadcast"];

/// First line of an edited message.
const EDITED_WORDS: &str = "[Edited message]\n";

/// An event, or the reason why there is none.
pub(super) type Taken = Result<TakenEvent, Ignored>;

/// Reason why a request becomes no event: the counted reason, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ignored {
    pub(super) reason: IgnoreReason,
    pub(super) why: Cow<'static, str>,
}

impl Ignored {
    pub(super) fn new(reason: IgnoreReason, why: impl Into<Cow<'static, str>>) -> Self {
        let why = why.into();
        Self { reason, why }
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct TakenEvent {
    pub(super) event: Box<ConnectorEvent>,
    /// False for a message of a bot that does not mention the app: the two could answer each other
    /// forever.
    pub(super) is_answered: bool,
}

pub(super) const OTHER_CHANNEL: &str = "the channel is not one of `channels`";

/// Filters of a connection.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// The only channels that are listened to; `None` for all.
    pub(super) channels: Option<Vec<String>>,
    /// Bots whose messages count, by bot id, app id or name.
    pub(super) bots: Vec<String>,
    /// True for texts as in goondan 0.0.3.
    pub(super) older_texts: bool,
}

impl Filters {
    pub(super) fn has_channel(&self, channel: &str) -> bool {
        is_allowed(self.channels.as_deref(), channel)
    }
}

/// A message that a person or a listed bot wrote.
struct AuthoredMessage<'p> {
    message: &'p Value,
    /// Time of the edit, which distinguishes it from the message itself.
    edited: Option<&'p str>,
    /// True if an earlier text was replaced.
    is_edit: bool,
}

/// True for a direct chat between a person and the app.
pub(super) fn is_direct(channel: &str, channel_type: Option<&str>) -> bool {
    matches!(channel_type, Some("im" | "app_home")) || channel.starts_with('D')
}

/// Key of the conversation of a message in a channel, by the first message of its thread.
pub(super) fn key_of(team: &str, channel: &str, root: Option<&str>) -> String {
    match root {
        Some(root) => format!("slack:{team}:{channel}:{root}"),
        None => format!("slack:{team}:{channel}"),
    }
}

/// Parses an `event_callback`. `retry` is true if Slack delivers it again.
pub(super) fn taken(
    body: &Value,
    retry: bool,
    (filters, threads): (&Filters, &Threads),
) -> Result<Taken, MalformedRequest> {
    let kind = required(body, "/event/type")?;
    if !matches!(kind, MESSAGE | MENTION) {
        let why = format!("`{kind}` is not a message");
        return Ok(Err(Ignored::new(IgnoreReason::Unsupported, why)));
    }
    let event = body.pointer("/event").unwrap_or(&Value::Null);
    let written = match written(event) {
        Ok(written) => written,
        Err(ignored) => return Ok(Err(ignored)),
    };
    let is_bot = match author(body, event, written.message, filters) {
        Ok(author) => author == Author::Bot,
        Err(ignored) => return Ok(Err(ignored)),
    };
    let channel = required(body, "/event/channel")?;
    if !filters.has_channel(channel) {
        return Ok(Err(Ignored::new(IgnoreReason::OtherPlace, OTHER_CHANNEL)));
    }
    let mut message = Message::new(body, kind, &written)?;
    let older = filters.older_texts.then(|| older_text(written.message));
    if let Some(older) = older.flatten() {
        message.words = older;
    }
    if message.words.trim().is_empty() {
        let why = "it has no text, file or attachment";
        return Ok(Err(Ignored::new(IgnoreReason::NoText, why)));
    }
    let is_answered = !is_bot || message.is_mention;
    let mut event = message.into_event(body, retry, threads)?;
    if filters.older_texts {
        event.properties.extend(older_files(written.message));
    }
    Ok(Ok(TakenEvent { event, is_answered }))
}

/// The message of an event, or the reason why it has none.
fn written(event: &Value) -> Result<AuthoredMessage<'_>, Ignored> {
    let unsupported = |why: &'static str| Ignored::new(IgnoreReason::Unsupported, why);
    let edited = |message| text(message, "/edited/ts");
    match text(event, "/subtype") {
        None | Some("bot_message") => {}
        Some(subtype) if WRITTEN.contains(&subtype) => {}
        Some(EDITED) => {
            let message = event
                .get("message")
                .ok_or_else(|| unsupported("it changes no message"))?;
            let former = event.get("previous_message").unwrap_or(&Value::Null);
            if text(message, "/subtype") == Some("tombstone") {
                return Err(unsupported("a message was deleted"));
            }
            let ts = edited(message);
            if ts.is_none() || ts == edited(former) {
                return Err(unsupported("no person edited the message"));
            }
            return Ok(AuthoredMessage {
                message,
                edited: ts,
                is_edit: true,
            });
        }
        Some("message_deleted") => return Err(unsupported("a message was deleted")),
        Some(subtype) => {
            let why = format!("`{subtype}` is not a written message");
            return Err(Ignored::new(IgnoreReason::Unsupported, why));
        }
    }
    Ok(AuthoredMessage {
        message: event,
        edited: edited(event),
        is_edit: false,
    })
}

/// Users of the app itself, as the event names them.
fn own_users(body: &Value) -> impl Iterator<Item = &str> {
    let installed = body.get("authorizations").and_then(Value::as_array);
    let installed = installed.into_iter().flatten();
    installed
        .filter(|it| it.get("is_bot") != Some(&Value::Bool(false)))
        .filter_map(|it| text(it, "/user_id"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    Person,
    /// A bot or workflow that the settings list.
    Bot,
}

/// The author of a message, or the reason to ignore it: two bots could answer each other forever.
fn author(
    body: &Value,
    event: &Value,
    message: &Value,
    filters: &Filters,
) -> Result<Author, Ignored> {
    let user = text(message, "/user");
    let app = text(message, "/app_id").or_else(|| text(message, "/bot_profile/app_id"));
    let is_own_user = user.is_some_and(|user| own_users(body).any(|own| own == user));
    if is_own_user || (app.is_some() && app == text(body, "/api_app_id")) {
        return Err(Ignored::new(IgnoreReason::Own, "this app wrote it"));
    }
    let has = |place: &str| message.pointer(place).is_some_and(|value| !value.is_null());
    let mut subtypes = [event, message].into_iter().map(|it| text(it, "/subtype"));
    let is_bot = has("/bot_id")
        || has("/bot_profile")
        || subtypes.any(|subtype| subtype == Some("bot_message"));
    if !is_bot {
        return Ok(Author::Person);
    }
    let names = ["/bot_id", "/bot_profile/name", "/username", "/user"];
    let names = names.iter().filter_map(|place| text(message, place));
    let is_listed = names
        .chain(app)
        .any(|name| filters.bots.iter().any(|bot| bot == name));
    if is_listed {
        return Ok(Author::Bot);
    }
    Err(Ignored::new(IgnoreReason::Bot, "it is from a bot"))
}

struct Message<'p> {
    kind: &'p str,
    team: &'p str,
    channel: &'p str,
    ts: &'p str,
    thread: Option<&'p str>,
    words: String,
    /// True if it mentions the app.
    is_mention: bool,
    written: &'p AuthoredMessage<'p>,
}

impl<'p> Message<'p> {
    fn new(
        body: &'p Value,
        kind: &'p str,
        written: &'p AuthoredMessage<'p>,
    ) -> Result<Self, MalformedRequest> {
        let team = text(body, "/team_id").or_else(|| text(body, "/enterprise_id"));
        let no_ts = MalformedRequest::NoField { field: "/event/ts" };
        let message = written.message;
        let said = text(message, "/text").unwrap_or_default();
        let is_mention = kind == MENTION || is_mentioned(body, said);
        let words = match without_mention(body, kind, said) {
            Some(said) => joined([message_words(&with_text(message, said))]),
            None => message_words(message),
        };
        Ok(Self {
            kind,
            team: team.ok_or(MalformedRequest::NoField { field: "/team_id" })?,
            channel: required(body, "/event/channel")?,
            ts: text(message, "/ts").ok_or(no_ts)?,
            thread: text(message, "/thread_ts"),
            words,
            is_mention,
            written,
        })
    }

    /// Name of the event. An edit that adds the mention is a mention.
    fn name(&self, body: &Value, is_direct: bool, threads: &Threads) -> &'static str {
        let former = text(body, "/event/previous_message/text").unwrap_or_default();
        let is_former_mention = self.written.is_edit && is_mentioned(body, former);
        if self.is_mention && !is_former_mention && (self.kind == MENTION || !is_direct) {
            return MENTION;
        }
        if self.written.is_edit {
            return EDITED;
        }
        let parent = text(self.written.message, "/parent_user_id");
        let is_own = parent.is_some_and(|parent| own_users(body).any(|own| own == parent));
        let takes_part = self.thread.is_some_and(|thread| {
            is_own
                || threads.has(self.channel, thread)
                || threads.is_below_answer(self.channel, thread)
        });
        if takes_part && !is_direct {
            MENTION
        } else {
            MESSAGE
        }
    }

    fn into_event(
        self,
        body: &Value,
        retry: bool,
        threads: &Threads,
    ) -> Result<Box<ConnectorEvent>, MalformedRequest> {
        let (team, channel, ts) = (self.team, self.channel, self.ts);
        let is_direct = is_direct(channel, text(body, "/event/channel_type"));
        let name = self.name(body, is_direct, threads);
        let root = self.thread.unwrap_or(ts);
        if name == MENTION && !is_direct {
            threads.remember(channel, root);
        }
        // Slash commands of a channel are one conversation, which has no first message.
        let continues_command = threads.is_below_answer(channel, root);
        let own_root = (!is_direct && !continues_command).then_some(root);
        let key = key_of(team, channel, own_root);
        let message = self.written.message;
        let of_message = |name: &str| message.get(name);
        let mut metadata = JsonObject::from_iter([
            ("channel".to_owned(), json!(channel)),
            ("ts".to_owned(), json!(ts)),
        ]);
        // In a channel, an answer belongs in a thread; in a direct message it does not.
        if let Some(thread) = self.thread.or((!is_direct).then_some(ts)) {
            metadata.insert("threadTs".to_owned(), json!(thread));
        }
        let event_id_of_slack = text(body, "/event_id").unwrap_or_default();
        metadata.insert("slackEventId".to_owned(), json!(event_id_of_slack));
        metadata.insert("retry".to_owned(), json!(retry));
        let id = match self.written.edited {
            Some(edited) => format!("slack:{team}:{channel}:{ts}:{edited}"),
            None => format!("slack:{team}:{channel}:{ts}"),
        };
        let input = match name {
            EDITED => format!("{EDITED_WORDS}{}", self.words),
            _ => self.words,
        };
        let (team_told, channel_told, edited_told) =
            (json!(team), json!(channel), json!(self.written.is_edit));
        let user = of_message("user");
        let author = [
            "/user_profile/display_name",
            "/user_profile/real_name",
            "/username",
            "/bot_profile/name",
        ];
        let author = author.iter().find_map(|place| {
            message
                .pointer(place)
                .filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
        });
        for (name, value) in [("fromName", author.cloned()), ("files", files(message))] {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), value);
            }
        }
        add_payload(&mut metadata, body);
        Ok(Box::new(ConnectorEvent {
            id: Some(event_id(&id)?),
            name: name.to_owned(),
            input,
            instance_key: Some(instance_key(&key)?),
            properties: with_older(
                properties([
                    ("team", Some(&team_told)),
                    ("channel", Some(&channel_told)),
                    ("channelType", body.pointer("/event/channel_type")),
                    ("user", user),
                    ("userName", author),
                    ("bot", of_message("bot_id")),
                    ("threadTs", of_message("thread_ts")),
                    ("ts", of_message("ts")),
                    ("isEdited", Some(&edited_told)),
                ]),
                [
                    ("channel_id", Some(&channel_told)),
                    ("thread_ts", of_message("thread_ts")),
                    ("user_id", user),
                ],
            ),
            auth: text(message, "/user").map(|user| auth(team, user)),
            metadata,
        }))
    }
}

/// The person, for the agent.
pub(super) fn auth(team: &str, user: &str) -> JsonObject {
    JsonObject::from_iter([
        ("service".to_owned(), json!("slack")),
        ("team".to_owned(), json!(team)),
        ("user".to_owned(), json!(user)),
    ])
}

fn with_text(message: &Value, said: &str) -> Value {
    let mut message = message.clone();
    if let Some(fields) = message.as_object_mut() {
        fields.insert("text".to_owned(), json!(said));
    }
    message
}

/// True if a text mentions the app.
fn is_mentioned(body: &Value, said: &str) -> bool {
    own_users(body)
        .any(|own| said.contains(&format!("<@{own}>")) || said.contains(&format!("<@{own}|")))
}

/// The text without the mention of the app at its start, unless nothing else is left.
pub(super) fn without_mention<'s>(body: &Value, kind: &str, said: &'s str) -> Option<&'s str> {
    let called = said.trim_start().strip_prefix("<@")?;
    let (user, rest) = called.split_once('>')?;
    let user = user.split('|').next().unwrap_or(user);
    let is_known = own_users(body).next().is_some();
    let is_own = match is_known {
        true => own_users(body).any(|own| own == user),
        false => kind == MENTION,
    };
    let rest = rest.trim_start();
    (is_own && !rest.is_empty()).then_some(rest)
}

#[cfg(test)]
#[path = "messages/tests.rs"]
mod tests;
