//! Actions of agents through a bot.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{
    FormattedRange, OlderTelegramParameters, ServiceSpec, TELEGRAM, Telegram as Action,
};
use serde_json::{Map, Value, json};

use super::answer::ApiError;
use super::api::Api;
use super::chats::Chats;
use super::sent::{SentMessage, SentMessages};
use crate::chat_replies::ChatService;
use crate::download;
use crate::limits::SERVICE_TIMEOUT_MS;
use crate::multipart::UploadedFile;
use crate::service::{FailureContext, check_place};
use crate::service_api::ServiceApi;

/// Parameter with the formatted ranges of a text.
const RANGES: &str = "entities";

/// Performs the actions of agents.
pub(super) struct Actions {
    pub(super) api: Api,
    pub(super) token: String,
    /// The only chats that can be written to; `None` for all.
    pub(super) listed: Option<Vec<String>>,
    pub(super) chats: Arc<Chats>,
    /// Record of the bot's messages, if reactions to them are events.
    pub(super) sent: Option<Arc<SentMessages>>,
}

impl ServiceApi for Actions {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &TELEGRAM;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        if let Some(chat) = chat_of(&action) {
            self.check_chat(chat)?;
        }
        let action = self.in_current_chat(action);
        if let Action::Download { file, max_bytes } = &action {
            return self.download(file, *max_bytes).await;
        }
        let (method, params) = to_method(&action);
        let called = match &action {
            Action::SendFile { name, base64, .. } => self.send_file(params, name, base64).await,
            Action::Send { .. } | Action::Typing { .. } => {
                let called = self.chats.call(&self.api, method, &params).await;
                match called {
                    Err(error) if is_about_ranges(&error) && params.get(RANGES).is_some() => {
                        let plain = without_ranges(params);
                        self.chats.call(&self.api, method, &plain).await
                    }
                    called => called,
                }
            }
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Download { .. } => {
                let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
                let called = self.api.call(method, &params, request_timeout).await;
                match called {
                    Err(error) if is_about_ranges(&error) && params.get(RANGES).is_some() => {
                        let plain = without_ranges(params);
                        self.api.call(method, &plain, request_timeout).await
                    }
                    called => called,
                }
            }
        };
        match called {
            Ok(result) => {
                self.record(&action, &result).await;
                Ok(to_result(&action, &result))
            }
            // The requested state already exists.
            Err(ApiError::Refused { description, .. })
                if description.contains("message is not modified") =>
            {
                Ok(json!({}))
            }
            Err(error) => Err(to_error(&error, is_idempotent)),
        }
    }

    fn written_place(&self, action: &Action) -> Option<String> {
        match action {
            Action::Send { chat, thread, .. } => Some(self.place(chat, *thread)),
            Action::SendFile { .. }
            | Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Typing { .. }
            | Action::Download { .. } => None,
        }
    }

    fn secret(&self) -> &str {
        &self.token
    }
}

impl ChatService for Actions {
    const FACTS: &'static [&'static str] = &["chatId", "chatType", "messageId", "threadId"];

    fn home(&self, facts: &JsonObject) -> Option<String> {
        let fact = |name| facts.get(name).and_then(Value::as_i64);
        Some(self.place(&fact("chatId")?.to_string(), fact("threadId")))
    }

    fn reply_args(text: &str, facts: &JsonObject) -> Value {
        // With several people, the reply shows which message it answers.
        let is_group = facts.get("chatType").is_none_or(|kind| kind != "private");
        json!({"text": text, "quote": is_group})
    }
}

/// True if Telegram rejects the formatted ranges of a text.
fn is_about_ranges(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { status: 400, description }
        if description.to_ascii_lowercase().contains("entit"))
}

/// Parameters without formatted ranges: the text is shown without formatting.
fn without_ranges(mut params: Value) -> Value {
    tracing::warn!("Telegram rejects the formatting of a text; sending it without");
    if let Some(fields) = params.as_object_mut() {
        fields.remove(RANGES);
    }
    params
}

impl Actions {
    /// A chat or its topic, under the current ID of the chat.
    fn place(&self, chat: &str, topic: Option<i64>) -> String {
        let chat = self.chats.current(chat);
        topic.map_or_else(|| chat.clone(), |topic| format!("{chat}:{topic}"))
    }

    /// Checks that agents may write to a chat, which settings can name by a former ID.
    fn check_chat(&self, chat: &str) -> Result<(), CallError> {
        let id = chat.parse().ok();
        let migrations = self.chats.migrations();
        if id.is_some_and(|id| migrations.is_listed(self.listed.as_deref(), id)) {
            return Ok(());
        }
        check_place("chat", chat, self.listed.as_deref(), "chats")
    }

    /// New messages go to the current ID of a chat. IDs of earlier messages belong to the former
    /// one.
    fn in_current_chat(&self, mut action: Action) -> Action {
        match &mut action {
            Action::Send { chat, .. }
            | Action::SendFile { chat, .. }
            | Action::Typing { chat, .. } => *chat = self.chats.current(chat),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Download { .. } => {}
        }
        action
    }

    /// Records a sent message, if reactions to it are events.
    async fn record(&self, action: &Action, result: &Value) {
        let (thread, text) = match action {
            Action::Send { thread, text, .. } => (thread, text),
            Action::SendFile {
                thread, text, name, ..
            } => (thread, if text.is_empty() { name } else { text }),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Typing { .. }
            | Action::Download { .. } => return,
        };
        let number = |pointer| result.pointer(pointer).and_then(Value::as_i64);
        let named = || chat_of(action).and_then(|chat| chat.parse().ok());
        let place = number("/chat/id").or_else(named).zip(number("/message_id"));
        if let (Some(sent), Some((chat, message))) = (&self.sent, place) {
            sent.record(SentMessage::new((chat, message), *thread, text))
                .await;
        }
    }

    /// Uploads a file: as a photo if it is an image, otherwise as a document.
    async fn send_file(&self, params: Value, name: &str, base64: &str) -> Result<Value, ApiError> {
        let content = STANDARD.decode(base64);
        let content = content
            .map_err(|error| ApiError::Strange(format!("the file is not Base64: {error}")))?;
        let file = UploadedFile {
            name,
            content: &content,
        };
        let mut params = match params {
            Value::Object(params) => params,
            _ => JsonObject::new(),
        };
        let mut method = if is_image(name) {
            ("sendPhoto", "photo")
        } else {
            ("sendDocument", "document")
        };
        let mut has_moved = false;
        loop {
            let (name, field) = method;
            let sent = self.api.upload(name, &params, (field, &file)).await;
            let old = params.get("chat_id").and_then(Value::as_i64);
            match (sent, old) {
                (Err(error), _)
                    if is_about_ranges(&error) && params.contains_key("caption_entities") =>
                {
                    params.remove("caption_entities");
                }
                // Too large or too narrow for a photo.
                (Err(ApiError::Refused { status: 400, .. }), _) if field == "photo" => {
                    method = ("sendDocument", "document");
                }
                (Err(ApiError::Migrated { to }), Some(old)) if !has_moved => {
                    has_moved = true;
                    if let Err(reason) = self.chats.learn(old, to).await {
                        tracing::warn!(reason, "failed to store the new ID of a chat");
                    }
                    params.insert("chat_id".to_owned(), json!(to));
                }
                (sent, _) => return sent,
            }
        }
    }

    /// Requests the file's path and fetches the file.
    async fn download(&self, file: &str, bytes_max: u64) -> Result<Value, CallError> {
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let params = json!({"file_id": file});
        let told = self.api.call("getFile", &params, request_timeout).await;
        let told = told.map_err(|error| to_error(&error, true))?;
        let path = told.get("file_path").and_then(Value::as_str);
        let Some(path) = path.filter(|path| is_file_path(path)) else {
            let message = "Telegram returned no path for the file";
            return Err(CallError::new(CallErrorCode::NotFound, message));
        };
        let Some(id) = told.get("file_id").filter(|id| id.is_string()) else {
            let message = "Telegram returned no ID of the file";
            return Err(CallError::new(CallErrorCode::NotFound, message));
        };
        let mut fetched = download::fetch(self.api.file(path), "Telegram", bytes_max).await?;
        if let Some(fields) = fetched.as_object_mut() {
            fields.insert("fileId".to_owned(), id.clone());
            fields.insert("filePath".to_owned(), json!(path));
            // The limit applies to the file itself, not to this number.
            let size = told.get("file_size").and_then(Value::as_u64);
            fields.insert("fileSize".to_owned(), json!(size));
            let id = told.get("file_unique_id").cloned().unwrap_or_default();
            fields.insert("fileUniqueId".to_owned(), id);
        }
        Ok(fetched)
    }
}

/// True if Telegram shows the file as a photo.
fn is_image(name: &str) -> bool {
    let end = name
        .rsplit_once('.')
        .map(|(_, end)| end.to_ascii_lowercase());
    end.is_some_and(|end| ["jpg", "jpeg", "png", "webp"].contains(&end.as_str()))
}

/// True if a file path stays within this bot's files. It becomes a part of a URL, which removes some
/// characters and gives others a meaning.
fn is_file_path(path: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '?' | '#' | '%' | '\\');
    let mut parts = path.split('/');
    path.chars().all(is_plain) && parts.all(|part| !part.trim().trim_matches('.').is_empty())
}

fn chat_of(action: &Action) -> Option<&str> {
    match action {
        Action::Send { chat, .. }
        | Action::SendFile { chat, .. }
        | Action::Edit { chat, .. }
        | Action::Delete { chat, .. }
        | Action::React { chat, .. }
        | Action::Typing { chat, .. } => Some(chat),
        Action::Download { .. } => None,
    }
}

/// The method of the Bot API, and its parameters.
fn to_method(action: &Action) -> (&'static str, Value) {
    // The API expects ids as numbers and names of public chats as strings.
    let chat = chat_of(action).map(|chat| {
        let id = chat.parse::<i64>();
        id.map_or_else(|_name| json!(chat), |id| json!(id))
    });
    let mut params: Map<String, Value> = chat
        .map(|chat| ("chat_id".to_owned(), chat))
        .into_iter()
        .collect();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            params.insert(name.to_owned(), value);
        }
    };
    let answers = |id| json!({"message_id": id, "allow_sending_without_reply": true});
    let formatted = |ranges: &[FormattedRange]| (!ranges.is_empty()).then(|| json!(ranges));
    let method = match action {
        Action::Send {
            text,
            parse_mode,
            ranges,
            reply_to,
            thread,
            silent,
            older,
            ..
        } => {
            put("text", Some(json!(text)));
            put("parse_mode", parse_mode.as_ref().map(|mode| json!(mode)));
            put(RANGES, formatted(ranges));
            put("reply_parameters", reply_to.map(answers));
            put("message_thread_id", thread.map(Value::from));
            put("disable_notification", silent.then(|| json!(true)));
            put_older(older.as_ref(), &mut put);
            "sendMessage"
        }
        Action::Edit {
            message,
            text,
            parse_mode,
            ranges,
            older,
            ..
        } => {
            put("message_id", Some(json!(message)));
            put("text", Some(json!(text)));
            put("parse_mode", parse_mode.as_ref().map(|mode| json!(mode)));
            put(RANGES, formatted(ranges));
            put_older(older.as_ref(), &mut put);
            "editMessageText"
        }
        Action::SendFile {
            text,
            ranges,
            reply_to,
            thread,
            ..
        } => {
            put("caption", (!text.is_empty()).then(|| json!(text)));
            put("caption_entities", formatted(ranges));
            put("reply_parameters", reply_to.map(answers));
            put("message_thread_id", thread.map(Value::from));
            "sendDocument"
        }
        Action::Delete { message, .. } => {
            put("message_id", Some(json!(message)));
            "deleteMessage"
        }
        Action::React {
            message,
            emoji,
            more,
            is_big,
            ..
        } => {
            let reaction = emoji
                .iter()
                .chain(more)
                .map(|emoji| json!({"type": "emoji", "emoji": emoji}));
            put("message_id", Some(json!(message)));
            put("reaction", Some(reaction.collect()));
            put("is_big", is_big.map(Value::from));
            "setMessageReaction"
        }
        Action::Typing { thread, action, .. } => {
            put("message_thread_id", thread.map(Value::from));
            put("action", Some(json!(action.as_deref().unwrap_or("typing"))));
            "sendChatAction"
        }
        Action::Download { file, .. } => {
            put("file_id", Some(json!(file)));
            "getFile"
        }
    };
    (method, Value::Object(params))
}

/// Adds parameters of the older contract under their names.
fn put_older(older: Option<&OlderTelegramParameters>, put: &mut impl FnMut(&str, Option<Value>)) {
    let Some(older) = older else { return };
    put(
        "disable_notification",
        older.disable_notification.map(Value::from),
    );
    put(
        "disable_web_page_preview",
        older.disable_web_page_preview.map(Value::from),
    );
    put(
        "reply_to_message_id",
        older.reply_to_message_id.map(Value::from),
    );
    put(
        "allow_sending_without_reply",
        older.allow_sending_without_reply.map(Value::from),
    );
}

/// The result for the agent: the id of a sent message, or in the older contract the message.
fn to_result(action: &Action, result: &Value) -> Value {
    match action {
        Action::Send { older: Some(_), .. } | Action::Edit { older: Some(_), .. } => result.clone(),
        Action::Send { .. } | Action::SendFile { .. } => {
            result.get("message_id").cloned().unwrap_or(Value::Null)
        }
        Action::Edit { .. }
        | Action::Delete { .. }
        | Action::React { .. }
        | Action::Typing { .. }
        | Action::Download { .. } => {
            json!({})
        }
    }
}

fn to_error(failure: &ApiError, is_repeatable: bool) -> CallError {
    let failed = FailureContext {
        service: "Telegram",
        is_repeatable,
    };
    let error = |code| CallError::new(code, failure.to_string());
    match failure {
        ApiError::BadToken { .. } => error(CallErrorCode::Unauthorized),
        ApiError::TooMany { retry_after_s } => {
            error(CallErrorCode::RateLimited).later(Some(retry_after_s.saturating_mul(1_000)))
        }
        ApiError::Unreachable(_) | ApiError::NotTaken(_) => {
            error(CallErrorCode::Unavailable).later(None)
        }
        ApiError::Lost(_) => failed.unknown(failure.to_string()),
        ApiError::Strange(_) => error(CallErrorCode::Internal),
        ApiError::Migrated { .. } => error(CallErrorCode::NotFound),
        ApiError::Conflict(said) => failed.by_status(409, said, None),
        ApiError::Refused { description, .. } if description.contains("not found") => error(
            CallErrorCode::NotFound,
        )
        .suggest(
            "a bot can write only to chats that it has joined, or to users who wrote to it first",
        ),
        ApiError::Refused { description, .. } if description.contains("can't parse entities") => {
            error(CallErrorCode::Invalid).suggest("fix the markup, or omit `parseMode`")
        }
        ApiError::Refused { description, .. } if description.contains("too long") => {
            error(CallErrorCode::TooLarge)
        }
        ApiError::Refused {
            status,
            description,
        } => failed.by_status(*status, description, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(chat: &str) -> Action {
        Action::Send {
            chat: chat.to_owned(),
            text: "Hello.".to_owned(),
            parse_mode: Some("HTML".to_owned()),
            ranges: Vec::new(),
            reply_to: Some(3),
            thread: Some(4),
            silent: true,
            older: None,
        }
    }

    #[test]
    fn an_action_is_a_method_of_the_bot_api() {
        let (method, params) = to_method(&send("-100"));
        assert_eq!(method, "sendMessage");
        let expected = json!({"chat_id": -100, "text": "Hello.", "parse_mode": "HTML",
            "reply_parameters": {"message_id": 3, "allow_sending_without_reply": true},
            "message_thread_id": 4, "disable_notification": true});
        assert_eq!(params, expected);
        assert_eq!(to_method(&send("@news")).1["chat_id"], "@news");
        let chat = || "1".to_owned();
        let react = |emoji: Option<&str>| Action::React {
            chat: chat(),
            message: 2,
            emoji: emoji.map(str::to_owned),
            more: Vec::new(),
            is_big: None,
        };
        let put =
            json!({"chat_id": 1, "message_id": 2, "reaction": [{"type": "emoji", "emoji": "👍"}]});
        assert_eq!(to_method(&react(Some("👍"))), ("setMessageReaction", put));
        assert_eq!(to_method(&react(None)).1["reaction"], json!([]));
        let typing = Action::Typing {
            chat: chat(),
            thread: None,
            action: None,
        };
        let shown = json!({"chat_id": 1, "action": "typing"});
        assert_eq!(to_method(&typing), ("sendChatAction", shown));
    }

    #[test]
    fn compat_2_older_parameters_have_their_names() {
        let older = OlderTelegramParameters {
            disable_notification: Some(false),
            disable_web_page_preview: Some(true),
            reply_to_message_id: Some(3),
            allow_sending_without_reply: Some(true),
        };
        let action = Action::Send {
            chat: "5".to_owned(),
            text: "Hello.".to_owned(),
            parse_mode: None,
            ranges: Vec::new(),
            reply_to: None,
            thread: None,
            silent: false,
            older: Some(older),
        };
        let expected = json!({"chat_id": 5, "text": "Hello.", "disable_notification": false,
            "disable_web_page_preview": true, "reply_to_message_id": 3,
            "allow_sending_without_reply": true});
        assert_eq!(to_method(&action), ("sendMessage", expected));
        let sent = json!({"message_id": 7, "date": 8, "text": "Hello."});
        assert_eq!(to_result(&action, &sent), sent);
        let react = Action::React {
            chat: "5".to_owned(),
            message: 2,
            emoji: Some("👍".to_owned()),
            more: vec!["👎".to_owned()],
            is_big: Some(true),
        };
        let reaction = ["👍", "👎"].map(|emoji| json!({"type": "emoji", "emoji": emoji}));
        let expected = json!({"chat_id": 5, "message_id": 2, "reaction": reaction, "is_big": true});
        assert_eq!(to_method(&react), ("setMessageReaction", expected));
    }

    #[test]
    fn only_a_path_below_the_bots_own_is_fetched() {
        for good in [
            "photos/file_0.jpg",
            "documents/a-b.tar.gz",
            "documents/my file (2) \u{e9}.pdf",
        ] {
            assert!(is_file_path(good), "{good}");
        }
        for bad in [
            "",
            "/etc",
            "a/../../bot1/getMe",
            "a//b",
            "a?b",
            "a#b",
            "a/%2e%2e/b",
            "a\\..\\b",
            "a/.\t./b",
            "..",
            "a/.. ",
            "https://x",
        ] {
            assert!(!is_file_path(bad), "{bad}");
        }
    }

    #[test]
    fn telegram_refusals_are_mapped_to_error_codes() {
        let refused = |status, description: &str| {
            let description = description.to_owned();
            to_error(
                &ApiError::Refused {
                    status,
                    description,
                },
                false,
            )
        };
        for (error, code) in [
            (
                refused(400, "Bad Request: chat not found"),
                CallErrorCode::NotFound,
            ),
            (
                refused(400, "Bad Request: can't parse entities: x"),
                CallErrorCode::Invalid,
            ),
            (
                refused(400, "Bad Request: message is too long"),
                CallErrorCode::TooLarge,
            ),
            (
                refused(403, "Forbidden: bot was blocked by the user"),
                CallErrorCode::Refused,
            ),
            (
                refused(500, "Internal Server Error"),
                CallErrorCode::Interrupted,
            ),
            (
                to_error(&ApiError::BadToken { status: 401 }, false),
                CallErrorCode::Unauthorized,
            ),
        ] {
            assert_eq!(error.code, code, "{error}");
            assert!(!error.retryable);
        }
        let too_many = to_error(&ApiError::TooMany { retry_after_s: 9 }, false);
        assert_eq!(too_many.retry_after_ms, Some(9_000));
        let lost = ApiError::Lost("reset".to_owned());
        assert_eq!(to_error(&lost, false).code, CallErrorCode::Interrupted);
        assert!(to_error(&lost, true).retryable);
    }
}
