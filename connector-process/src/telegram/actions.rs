//! Actions of agents through a bot.

use std::time::Duration;

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{ServiceSpec, TELEGRAM, Telegram as Action};
use serde_json::{Map, Value, json};

use super::answer::ApiError;
use super::api::Api;
use crate::download;
use crate::limits::SERVICE_TIMEOUT_MS;
use crate::service::{FailureContext, check_place};
use crate::service_api::ServiceApi;

/// Performs the actions of agents.
pub(super) struct Actions {
    pub(super) api: Api,
    pub(super) token: String,
    /// The only chats that can be written to; `None` for all.
    pub(super) chats: Option<Vec<String>>,
}

impl ServiceApi for Actions {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &TELEGRAM;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        if let Some(chat) = chat_of(&action) {
            check_place("chat", chat, self.chats.as_deref(), "chats")?;
        }
        if let Action::Download { file, max_bytes } = &action {
            return self.download(file, *max_bytes).await;
        }
        let (method, params) = to_method(&action);
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        match self.api.call(method, &params, request_timeout).await {
            Ok(result) => Ok(to_result(&action, &result)),
            // The requested state already exists.
            Err(ApiError::Refused { description, .. })
                if description.contains("message is not modified") =>
            {
                Ok(json!({}))
            }
            Err(error) => Err(to_error(&error, is_idempotent)),
        }
    }

    fn secret(&self) -> &str {
        &self.token
    }
}

impl Actions {
    /// Requests the file's path and fetches the file.
    async fn download(&self, file: &str, bytes_max: u64) -> Result<Value, CallError> {
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let params = json!({"file_id": file});
        let told = self.api.call("getFile", &params, request_timeout).await;
        let told = told.map_err(|error| to_error(&error, true))?;
        let size = told.get("file_size").and_then(Value::as_u64);
        if let Some(size) = size.filter(|size| *size > bytes_max) {
            let message = format!("the file has {size} bytes; `maxBytes` is {bytes_max}");
            return Err(CallError::new(CallErrorCode::TooLarge, message));
        }
        let path = told.get("file_path").and_then(Value::as_str);
        let Some(path) = path.filter(|path| is_file_path(path)) else {
            let message = "Telegram returned no path for the file";
            return Err(CallError::new(CallErrorCode::NotFound, message));
        };
        let mut fetched = download::fetch(self.api.file(path), "Telegram", bytes_max).await?;
        if let Some(fields) = fetched.as_object_mut() {
            fields.insert("filePath".to_owned(), json!(path));
            fields.insert("fileSize".to_owned(), json!(size));
            let id = told.get("file_unique_id").cloned().unwrap_or_default();
            fields.insert("fileUniqueId".to_owned(), id);
        }
        Ok(fetched)
    }
}

/// True if a file path stays within this bot's files.
fn is_file_path(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let mut parts = path.split('/');
    path.chars().all(is_plain) && parts.all(|part| !part.trim_matches('.').is_empty())
}

fn chat_of(action: &Action) -> Option<&str> {
    match action {
        Action::Send { chat, .. }
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
    let method = match action {
        Action::Send {
            text,
            parse_mode,
            reply_to,
            thread,
            silent,
            ..
        } => {
            put("text", Some(json!(text)));
            put("parse_mode", parse_mode.as_ref().map(|mode| json!(mode)));
            let answers = |id| json!({"message_id": id, "allow_sending_without_reply": true});
            put("reply_parameters", reply_to.map(answers));
            put("message_thread_id", thread.map(Value::from));
            put("disable_notification", silent.then(|| json!(true)));
            "sendMessage"
        }
        Action::Edit {
            message,
            text,
            parse_mode,
            ..
        } => {
            put("message_id", Some(json!(message)));
            put("text", Some(json!(text)));
            put("parse_mode", parse_mode.as_ref().map(|mode| json!(mode)));
            "editMessageText"
        }
        Action::Delete { message, .. } => {
            put("message_id", Some(json!(message)));
            "deleteMessage"
        }
        Action::React { message, emoji, .. } => {
            let reaction = emoji
                .iter()
                .map(|emoji| json!({"type": "emoji", "emoji": emoji}));
            put("message_id", Some(json!(message)));
            put("reaction", Some(reaction.collect()));
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

/// The result for the agent: the id of a sent message.
fn to_result(action: &Action, result: &Value) -> Value {
    match action {
        Action::Send { .. } => result.get("message_id").cloned().unwrap_or(Value::Null),
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
            reply_to: Some(3),
            thread: Some(4),
            silent: true,
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
    fn only_a_path_below_the_bots_own_is_fetched() {
        for good in ["photos/file_0.jpg", "documents/a-b.tar.gz"] {
            assert!(is_file_path(good), "{good}");
        }
        for bad in [
            "",
            "/etc",
            "a/../../bot1/getMe",
            "a//b",
            "a?b",
            "a#b",
            "..",
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
