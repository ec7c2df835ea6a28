//! Actions of agents through an account.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, TokenVerdict};
use goondan_protocol::service::{
    MATRIX, MATRIX_MESSAGES_MAX, Matrix as Action, MatrixText, ServiceSpec,
};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::api::{Api, ApiError};
use super::description::{STICKER, describe};
use super::events::{AUTOMATIC, MESSAGE, NOTICE, REACTION};
use crate::chat_replies::ChatService;
use crate::download;
use crate::payload::text;
use crate::service::{FailureContext, check_place};
use crate::service_api::ServiceApi;

/// Display name of the service.
const SERVICE: &str = "Matrix";

/// Longest ID of a room or an event, in bytes.
const ID_BYTES_MAX: usize = 255;

/// Hexadecimal digits of a transaction.
const TRANSACTION_DIGITS: usize = 32;

/// Time for which a typing indicator is shown, in milliseconds.
const TYPING_MS: u64 = 10_000;

/// Most users that one message mentions.
const MENTIONS_MAX: usize = 20;

/// MIME types of files that clients show, by the end of the name.
const MIME_TYPES: [(&str, &str); 10] = [
    ("gif", "image/gif"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
];

/// Performs the actions of agents.
pub(super) struct Actions {
    pub(super) api: Api,
    /// The account's ID, once known.
    pub(super) account: Arc<std::sync::OnceLock<String>>,
    /// The only rooms that can be written to; `None` for all.
    pub(super) listed: Option<Vec<String>>,
    /// The room for approvals, in which no agent can write or edit anything.
    pub(super) approvals: Option<String>,
    /// True if messages are sent as notices.
    pub(super) sends_notices: bool,
}

impl ServiceApi for Actions {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &MATRIX;

    async fn run(&self, action: Action, _is_idempotent: bool) -> Result<Value, CallError> {
        let result = match action {
            Action::Download { file, max_bytes } => return self.download(&file, max_bytes).await,
            Action::Send {
                room,
                text,
                thread,
                reply_to,
                mention,
                mark,
            } => {
                self.check_room(&room)?;
                let mut content = self.content(&text, mention.as_deref());
                relate(&mut content, thread.as_deref(), reply_to.as_deref())?;
                self.send(&room, &mark, &Value::Object(content)).await
            }
            Action::SendFile {
                room,
                name,
                base64,
                text,
                thread,
                reply_to,
                mark,
            } => {
                self.check_room(&room)?;
                let bytes = STANDARD.decode(base64);
                let bytes = bytes.map_err(|error| {
                    let message = format!("the file is not Base64: {error}");
                    CallError::new(CallErrorCode::Invalid, message)
                })?;
                let size = bytes.len();
                let mime_type = mime_type(&name);
                match self.api.upload(&name, mime_type, bytes).await {
                    Ok(uri) => {
                        let file = (name.as_str(), mime_type, size);
                        let mut content = file_content(&uri, file, text.as_ref());
                        relate(&mut content, thread.as_deref(), reply_to.as_deref())?;
                        self.send(&room, &mark, &Value::Object(content)).await
                    }
                    Err(error) => Err(error),
                }
            }
            Action::Edit {
                room,
                message,
                text,
                mark,
            } => {
                self.check_room(&room)?;
                check_event(&message)?;
                let content = self.edited(&text, &message);
                let sent = self.send(&room, &mark, &content).await;
                sent.map(|_id| json!({}))
            }
            Action::Delete {
                room,
                message,
                mark,
            } => {
                self.check_room(&room)?;
                check_event(&message)?;
                let transaction = transaction(&mark);
                let path = [
                    "client",
                    "v3",
                    "rooms",
                    &room,
                    "redact",
                    &message,
                    &transaction,
                ];
                let deleted = self.api.send(Method::PUT, &path, &json!({})).await;
                deleted.map(|_id| json!({}))
            }
            Action::React {
                room,
                message,
                emoji,
                mark,
            } => {
                self.check_room(&room)?;
                check_event(&message)?;
                let relation =
                    json!({"rel_type": "m.annotation", "event_id": message, "key": emoji});
                let content = json!({"m.relates_to": relation});
                let event = (REACTION, transaction(&mark));
                let sent = self.api.send_event(&room, (event.0, &event.1), &content);
                match sent.await {
                    // The requested state already exists.
                    Err(ApiError::Refused { code, .. }) if code == "M_DUPLICATE_ANNOTATION" => {
                        Ok(Value::Null)
                    }
                    sent => sent.map(|sent| id_of(&sent)),
                }
            }
            Action::Typing { room } => {
                self.check_room(&room)?;
                let own = self.account.get().map_or("", String::as_str);
                let path = ["client", "v3", "rooms", &room, "typing", own];
                let shown = json!({"typing": true, "timeout": TYPING_MS});
                let shown = self.api.send(Method::PUT, &path, &shown).await;
                shown.map(|_empty| json!({}))
            }
            Action::Read {
                room,
                thread,
                limit,
            } => {
                self.check_room(&room)?;
                let limit = limit.min(MATRIX_MESSAGES_MAX);
                match &thread {
                    Some(thread) => {
                        check_event(thread)?;
                        self.read_thread(&room, thread, limit).await
                    }
                    None => self.read_room(&room, limit).await,
                }
            }
        };
        result.map_err(|error| to_error(&error))
    }

    fn written_place(&self, action: &Action) -> Option<String> {
        match action {
            Action::Send { room, thread, .. } => Some(place_of(room, thread.as_deref())),
            Action::SendFile { .. }
            | Action::Download { .. }
            | Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Typing { .. }
            | Action::Read { .. } => None,
        }
    }

    fn secret(&self) -> &str {
        self.api.token()
    }
}

/// A room, or a thread in it.
fn place_of(room: &str, thread: Option<&str>) -> String {
    format!("{room} {}", thread.unwrap_or_default())
}

impl ChatService for Actions {
    const FACTS: &'static [&'static str] = &["roomId", "eventId", "threadId", "from", "isDirect"];

    fn home(&self, facts: &JsonObject) -> Option<String> {
        let fact = |name: &str| facts.get(name).and_then(Value::as_str);
        Some(place_of(fact("roomId")?, fact("threadId")))
    }

    fn reply_args(text: &str, facts: &JsonObject) -> Value {
        // With several people, the reply shows which message it answers.
        let is_direct = facts.get("isDirect") == Some(&Value::Bool(true));
        json!({"text": text, "quote": !is_direct})
    }
}

impl Actions {
    /// Checks that agents may write to a room.
    fn check_room(&self, room: &str) -> Result<(), CallError> {
        check_place("room", room, self.listed.as_deref(), "rooms")?;
        if self.approvals.as_deref() == Some(room) {
            let message = format!("room {room} is for approvals; agents cannot use it");
            return Err(CallError::new(CallErrorCode::Refused, message));
        }
        check_id(room, '!', "room")
    }

    /// The content of a message.
    fn content(&self, text: &MatrixText, mention: Option<&str>) -> JsonObject {
        let kind = if self.sends_notices { NOTICE } else { "m.text" };
        let mut content = text_content(kind, text);
        let mut users: Vec<&str> = mention.into_iter().collect();
        users.extend(mentioned(&text.plain).filter(|user| Some(*user) != mention));
        users.truncate(MENTIONS_MAX);
        let mentions = if users.is_empty() {
            json!({})
        } else {
            json!({"user_ids": users})
        };
        content.insert("m.mentions".to_owned(), mentions);
        content
    }

    /// The content of an event that gives a message another text.
    fn edited(&self, text: &MatrixText, message: &str) -> Value {
        let new = self.content(text, None);
        // Text for clients that do not know edits. No notification is sent again.
        let fallback = MatrixText {
            plain: format!("* {}", text.plain),
            html: None,
        };
        let kind = new.get("msgtype").and_then(Value::as_str);
        let mut content = text_content(kind.unwrap_or("m.text"), &fallback);
        content.insert("m.mentions".to_owned(), json!({}));
        content.insert("m.new_content".to_owned(), Value::Object(new));
        let relation = json!({"rel_type": "m.replace", "event_id": message});
        content.insert("m.relates_to".to_owned(), relation);
        Value::Object(content)
    }

    async fn send(&self, room: &str, mark: &str, content: &Value) -> Result<Value, ApiError> {
        let event = (MESSAGE, transaction(mark));
        let sent = self.api.send_event(room, (event.0, &event.1), content);
        Ok(id_of(&sent.await?))
    }

    async fn download(&self, file: &str, bytes_max: u64) -> Result<Value, CallError> {
        let Some((server, media)) = media_of(file) else {
            let message = format!("`{file}` is not the ID of a file; IDs begin with `mxc://`");
            return Err(CallError::new(CallErrorCode::Invalid, message));
        };
        let path = ["client", "v1", "media", "download", server, media];
        let request = self.api.request(Method::GET, &path, &[]);
        download::fetch(request, SERVICE, bytes_max).await
    }

    async fn read_room(&self, room: &str, limit: usize) -> Result<Value, ApiError> {
        let path = ["client", "v3", "rooms", room, "messages"];
        let filter = json!({"types": [MESSAGE, STICKER]}).to_string();
        let limit_text = limit.to_string();
        let query = [
            ("dir", "b"),
            ("limit", limit_text.as_str()),
            ("filter", filter.as_str()),
        ];
        let page = self.api.get(&path, &query).await?;
        Ok(listed(&chunk(&page)))
    }

    async fn read_thread(&self, room: &str, thread: &str, limit: usize) -> Result<Value, ApiError> {
        let path = [
            "client",
            "v1",
            "rooms",
            room,
            "relations",
            thread,
            "m.thread",
        ];
        let limit_text = limit.to_string();
        let query = [("dir", "b"), ("limit", limit_text.as_str())];
        let page = self.api.get(&path, &query).await?;
        let mut events = chunk(&page);
        if events.len() < limit {
            let path = ["client", "v3", "rooms", room, "event", thread];
            events.extend(self.api.find(&path).await?);
        }
        Ok(listed(&events))
    }
}

/// Events of a page, the latest first.
fn chunk(page: &Value) -> Vec<Value> {
    let events = page.get("chunk").and_then(Value::as_array);
    events.cloned().unwrap_or_default()
}

/// Messages for the agent, the oldest first. Edits are shown in the messages that they change.
fn listed(events: &[Value]) -> Value {
    let messages = events.iter().rev().filter_map(|event| {
        let relation = text(event, "/content/m.relates_to/rel_type");
        if relation == Some("m.replace") {
            return None;
        }
        let edit = "/unsigned/m.relations/m.replace/content/m.new_content";
        let content = event.pointer(edit).or_else(|| event.get("content"))?;
        let spoken = describe(text(event, "/type")?, content);
        let lines: Vec<String> = spoken.written.into_iter().chain(spoken.lines).collect();
        if lines.is_empty() {
            return None;
        }
        let at = event.get("origin_server_ts").and_then(Value::as_i64);
        let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
        Some(json!({
            "id": text(event, "/event_id"), "author": text(event, "/sender"),
            "time": at.map(|at| at.to_string()), "text": lines.join("\n"),
        }))
    });
    messages.collect()
}

fn id_of(sent: &Value) -> Value {
    sent.get("event_id").cloned().unwrap_or_default()
}

fn text_content(kind: &str, text: &MatrixText) -> JsonObject {
    let mut content = JsonObject::from_iter([
        ("msgtype".to_owned(), json!(kind)),
        ("body".to_owned(), json!(text.plain)),
        (AUTOMATIC.to_owned(), json!(true)),
    ]);
    add_html(&mut content, text);
    content
}

fn add_html(content: &mut JsonObject, text: &MatrixText) {
    if let Some(html) = &text.html {
        content.insert("format".to_owned(), json!("org.matrix.custom.html"));
        content.insert("formatted_body".to_owned(), json!(html));
    }
}

/// The content of a message with a file: its text, or its name as the body.
fn file_content(
    uri: &str,
    (name, mime_type, size): (&str, &str, usize),
    text: Option<&MatrixText>,
) -> JsonObject {
    let kind = match mime_type.split_once('/') {
        Some(("image", _)) => "m.image",
        Some(("audio", _)) => "m.audio",
        Some(("video", _)) => "m.video",
        Some(_) | None => "m.file",
    };
    let body = text.map_or(name, |text| text.plain.as_str());
    let mut content = JsonObject::from_iter([
        ("msgtype".to_owned(), json!(kind)),
        ("body".to_owned(), json!(body)),
        ("filename".to_owned(), json!(name)),
        ("url".to_owned(), json!(uri)),
        (
            "info".to_owned(),
            json!({"mimetype": mime_type, "size": size}),
        ),
        ("m.mentions".to_owned(), json!({})),
        (AUTOMATIC.to_owned(), json!(true)),
    ]);
    if let Some(text) = text {
        add_html(&mut content, text);
    }
    content
}

/// Adds a message's thread, and the message that it answers.
fn relate(
    content: &mut JsonObject,
    thread: Option<&str>,
    reply_to: Option<&str>,
) -> Result<(), CallError> {
    for event in [thread, reply_to].into_iter().flatten() {
        check_event(event)?;
    }
    let relation = match (thread, reply_to) {
        (None, None) => return Ok(()),
        (None, Some(answered)) => json!({"m.in_reply_to": {"event_id": answered}}),
        // Clients that do not know threads show an answer.
        (Some(thread), answered) => json!({
            "rel_type": "m.thread", "event_id": thread, "is_falling_back": answered.is_none(),
            "m.in_reply_to": {"event_id": answered.unwrap_or(thread)},
        }),
    };
    content.insert("m.relates_to".to_owned(), relation);
    Ok(())
}

/// User IDs in a text.
fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "()<>[]{},;!?\"'`*".contains(c));
    words.filter_map(|word| {
        let word = word.trim_end_matches(['.', ':']);
        let (name, server) = word.strip_prefix('@')?.split_once(':')?;
        let is_server = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        let is_user = !name.is_empty() && !server.is_empty() && server.chars().all(is_server);
        (is_user && word.len() <= ID_BYTES_MAX).then_some(word)
    })
}

fn check_id(id: &str, sigil: char, what: &str) -> Result<(), CallError> {
    let is_id = id.starts_with(sigil)
        && id.len() > 1
        && id.len() <= ID_BYTES_MAX
        && !id.chars().any(|c| c.is_control() || c.is_whitespace());
    if is_id {
        return Ok(());
    }
    let id: String = id.chars().take(ID_BYTES_MAX).collect();
    let message = format!("`{id}` is not the ID of a {what}; IDs begin with `{sigil}`");
    Err(CallError::new(CallErrorCode::Invalid, message))
}

fn check_event(event: &str) -> Result<(), CallError> {
    check_id(event, '$', "message")
}

/// Server and ID of a file.
fn media_of(uri: &str) -> Option<(&str, &str)> {
    let (server, media) = uri.strip_prefix("mxc://")?.split_once('/')?;
    let is_server = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    let is_media = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_file = !media.is_empty() && media.chars().all(is_media);
    let is_valid =
        is_file && server.chars().all(is_server) && server.contains(char::is_alphanumeric);
    is_valid.then_some((server, media))
}

/// The transaction by which the homeserver recognizes a repeated event.
pub(super) fn transaction(mark: &str) -> String {
    let mut digits = hex::encode(Sha256::digest(mark));
    digits.truncate(TRANSACTION_DIGITS);
    format!("goondan-{digits}")
}

fn mime_type(name: &str) -> &'static str {
    let end = name
        .rsplit_once('.')
        .map(|(_, end)| end.to_ascii_lowercase());
    let known = MIME_TYPES
        .iter()
        .find(|(of, _)| end.as_deref() == Some(*of));
    known.map_or("application/octet-stream", |(_, kind)| kind)
}

/// The error of a call. All actions can be repeated, because of their transactions.
fn to_error(failure: &ApiError) -> CallError {
    let failed = FailureContext {
        service: SERVICE,
        is_repeatable: true,
    };
    let error = |code| CallError::new(code, failure.to_string());
    match failure {
        ApiError::BadToken { .. } => {
            error(CallErrorCode::Unauthorized).of_token(Some(TokenVerdict::Declined))
        }
        ApiError::TooMany { retry_after_ms } => {
            error(CallErrorCode::RateLimited).later(Some(*retry_after_ms))
        }
        ApiError::Unreachable(_) | ApiError::NotTaken(_) => {
            error(CallErrorCode::Unavailable).later(None)
        }
        ApiError::Lost(_) => failed.unknown(failure.to_string()),
        ApiError::Strange(_) => error(CallErrorCode::Internal),
        ApiError::Refused { status, code, said } => {
            let refused = failed.by_status(*status, &format!("{code}: {said}"), None);
            match refused.code {
                CallErrorCode::Refused => {
                    refused.suggest("the account must be in the room and may write there")
                }
                _ => refused,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(sends_notices: bool) -> Actions {
        let client = crate::http::service_client().unwrap();
        Actions {
            api: Api::new(client, "https://matrix.example.org", "syt_1").unwrap(),
            account: Arc::default(),
            listed: Some(vec!["!r:x".to_owned(), "!a:x".to_owned()]),
            approvals: Some("!a:x".to_owned()),
            sends_notices,
        }
    }

    fn text(plain: &str, html: Option<&str>) -> MatrixText {
        MatrixText {
            plain: plain.to_owned(),
            html: html.map(str::to_owned),
        }
    }

    #[test]
    fn conn_2_message_has_its_format_thread_and_mentions() {
        let hi = text("hi @bob:x.example.", Some("<b>hi</b> @bob:x.example."));
        let mut content = actions(false).content(&hi, Some("@ada:x"));
        relate(&mut content, Some("$t"), None).unwrap();
        let expected = json!({"msgtype": "m.text", "body": "hi @bob:x.example.",
            "format": "org.matrix.custom.html", "formatted_body": "<b>hi</b> @bob:x.example.",
            "m.mentions": {"user_ids": ["@ada:x", "@bob:x.example"]}, AUTOMATIC: true,
            "m.relates_to": {"rel_type": "m.thread", "event_id": "$t", "is_falling_back": true,
                "m.in_reply_to": {"event_id": "$t"}}});
        assert_eq!(json!(content), expected);
        let mut content = actions(true).content(&text("x", None), None);
        relate(&mut content, None, Some("$e")).unwrap();
        assert_eq!(content["msgtype"], "m.notice");
        assert_eq!(content["m.mentions"], json!({}));
        assert_eq!(
            content["m.relates_to"],
            json!({"m.in_reply_to": {"event_id": "$e"}})
        );
        relate(&mut content, Some("$t"), Some("$e")).unwrap();
        assert_eq!(content["m.relates_to"]["is_falling_back"], false);
        assert!(relate(&mut content, Some("t"), None).is_err());
        let edited = actions(false).edited(&text("new", None), "$e");
        assert_eq!(edited["body"], "* new");
        assert_eq!(edited["m.new_content"]["body"], "new");
        let relation = json!({"rel_type": "m.replace", "event_id": "$e"});
        assert_eq!(edited["m.relates_to"], relation);
    }

    #[test]
    fn conn_2_file_is_shown_by_its_kind_with_its_text() {
        let file = ("a.PNG", mime_type("a.PNG"), 5);
        let content = file_content("mxc://x/1", file, Some(&text("see", None)));
        let expected = json!({"msgtype": "m.image", "body": "see", "filename": "a.PNG",
            "url": "mxc://x/1", "info": {"mimetype": "image/png", "size": 5}, "m.mentions": {},
            AUTOMATIC: true});
        assert_eq!(json!(content), expected);
        let content = file_content("mxc://x/1", ("a", mime_type("a"), 5), None);
        assert_eq!(
            (&content["msgtype"], &content["body"]),
            (&json!("m.file"), &json!("a"))
        );
        for good in [
            "mxc://example.test/icvvFDtbyaCJSARjDtmEsjLc",
            "mxc://x:8448/a-b_c",
        ] {
            assert!(media_of(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "https://x/1",
            "mxc://x",
            "mxc:///1",
            "mxc://../1",
            "mxc://x/a/b",
            "mxc://x/..",
        ] {
            assert!(media_of(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn conn_2_only_listed_rooms_can_be_written_to() {
        let actions = actions(false);
        assert!(actions.check_room("!r:x").is_ok());
        for other in ["!s:x", "!a:x"] {
            let error = actions.check_room(other).unwrap_err();
            assert_eq!(error.code, CallErrorCode::Refused, "{other}");
        }
        let open = Actions {
            listed: None,
            ..actions
        };
        for bad in [
            "",
            "!",
            "#orders:x",
            "!a b",
            &format!("!{}", "x".repeat(255)),
        ] {
            let error = open.check_room(bad).unwrap_err();
            assert_eq!(error.code, CallErrorCode::Invalid, "{bad}");
        }
    }

    #[test]
    fn conn_2_repeated_message_has_the_same_transaction() {
        assert_eq!(transaction("t.1:c0/0"), transaction("t.1:c0/0"));
        assert_ne!(transaction("t.1:c0/0"), transaction("t.1:c0/1"));
        let lost = to_error(&ApiError::Lost("reset".to_owned()));
        assert!(lost.retryable, "{lost}");
        let limited = to_error(&ApiError::TooMany {
            retry_after_ms: 2_345,
        });
        assert_eq!(limited.code, CallErrorCode::RateLimited);
        assert_eq!(limited.retry_after_ms, Some(2_345));
        let refused = to_error(&ApiError::Refused {
            status: 413,
            code: "M_TOO_LARGE".to_owned(),
            said: "event too large".to_owned(),
        });
        assert_eq!(refused.code, CallErrorCode::TooLarge);
    }

    #[test]
    fn conn_2_read_messages_are_in_order_and_edited() {
        let said = |id: &str, body: &str| {
            json!({"event_id": id, "sender": "@ada:x", "type": MESSAGE,
                "origin_server_ts": 1_796_001_177_000_u64,
                "content": {"msgtype": "m.text", "body": body}, "unsigned": {"age": 1}})
        };
        let mut first = said("$1", "one");
        first["unsigned"]["m.relations"] = json!({"m.replace": {"event_id": "$3",
            "content": {"body": "* uno", "m.new_content": {"msgtype": "m.text", "body": "uno"}}}});
        let mut edit = said("$3", "* uno");
        edit["content"]["m.relates_to"] = json!({"rel_type": "m.replace", "event_id": "$1"});
        let mut deleted = said("$4", "");
        deleted["content"] = json!({});
        let read = listed(&[deleted, edit, said("$2", "two"), first]);
        let time = "2026-11-30T01:12:57Z";
        let message = |id: &str, text: &str| json!({"id": id, "author": "@ada:x", "time": time, "text": text});
        assert_eq!(read, json!([message("$1", "uno"), message("$2", "two")]));
    }
}
