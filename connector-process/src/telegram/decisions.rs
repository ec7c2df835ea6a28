//! Decisions that wait for a person, in a Telegram chat.

use std::sync::Arc;
use std::time::Duration;

use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionPress};
use goondan_protocol::ids::DecisionId;
use serde_json::{Value, json};

use super::answer::ApiError;
use super::api::Api;
use super::chats::Chats;
use crate::decisions::{Board, Buttons, ChatReply, Message, MessageRejection, with};
use crate::limits::SERVICE_TIMEOUT_MS;
use crate::listener::ButtonPress;
use crate::payload::text;

/// Type of the updates for button presses.
pub(super) const UPDATE: &str = "callback_query";

/// Prefix of our buttons' data, before the answer and the decision. Telegram accepts 64 bytes.
const DATA_PREFIX: &str = "goondan:";

/// Prefix of the recipient of a notice about a reply, before the chat and the message. Notices about
/// button presses have the query's id.
const REPLY_PREFIX: &str = "reply:";

/// Most buttons in one row; more have one row each.
const ROW_BUTTONS_MAX: usize = 2;

/// Longest answer to a button press that Telegram displays, in characters.
const ANSWER_CHARS_MAX: usize = 200;

/// The press of one of our buttons, if the update is one.
pub(super) fn to_pressed(update: &Value) -> Option<ButtonPress> {
    let query = update.get(UPDATE)?;
    let data = text(query, "/data")?;
    let (answer, id) = data.strip_prefix(DATA_PREFIX)?.split_once(':')?;
    let answer = DecisionAnswer::Button(DecisionButton::of_word(answer)?);
    let decision_id = DecisionId::new(id).ok()?;
    let number = |pointer: &str| query.pointer(pointer).and_then(Value::as_i64);
    let chat = number("/message/chat/id").unwrap_or_default();
    let message = number("/message/message_id").unwrap_or_default();
    Some(ButtonPress {
        press: DecisionPress {
            decision_id,
            answer,
            user: number("/from/id")?.to_string(),
        },
        place: format!("{chat}:{message}"),
        to: text(query, "/id")?.to_owned(),
    })
}

/// The reply to a message, if the update is one.
pub(super) fn to_reply(update: &Value) -> Option<ChatReply> {
    let message = update.get("message")?;
    let number = |pointer: &str| message.pointer(pointer).and_then(Value::as_i64);
    let chat = number("/chat/id")?;
    let answered = number("/reply_to_message/message_id")?;
    Some(ChatReply {
        place: format!("{chat}:{answered}"),
        user: number("/from/id")?.to_string(),
        text: text(message, "/text")?.to_owned(),
        to: format!("{REPLY_PREFIX}{chat}:{}", number("/message_id")?),
    })
}

pub(super) struct Chat {
    pub(super) api: Api,
    pub(super) chat: String,
    pub(super) chats: Arc<Chats>,
}

impl Chat {
    async fn call(&self, method: &str, params: Value) -> Result<Value, MessageRejection> {
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let result = self.api.call(method, &params, request_timeout).await;
        result.or_else(|error| match error {
            // The message already has this content.
            ApiError::Refused { description, .. }
                if description.contains("message is not modified") =>
            {
                Ok(Value::Null)
            }
            error => Err(trouble(&error)),
        })
    }
}

fn trouble(error: &ApiError) -> MessageRejection {
    MessageRejection {
        reason: error.to_string(),
        is_final: match error {
            ApiError::Refused { status, .. } => *status < 500,
            // Messages of the former group cannot be changed.
            ApiError::Migrated { .. } => true,
            _ => false,
        },
        retry_after_ms: match error {
            ApiError::TooMany { retry_after_s } => Some(retry_after_s.saturating_mul(1_000)),
            _ => None,
        },
    }
}

/// A message in Telegram's format: foreign text is in a preformatted block, in which nothing is a
/// mention, a command or a link.
fn written(message: &Message) -> Value {
    let units = |text: &str| text.encode_utf16().count();
    let head = message.headline("Reply to this message to");
    let mut params = json!({
        "text": format!("{head}\n{}", message.body),
        "entities": [{
            "type": "pre",
            "offset": units(&head) + 1,
            "length": units(&message.body),
        }],
        "link_preview_options": {"is_disabled": true},
    });
    let buttons = message.buttons.as_ref().filter(|it| !it.choices.is_empty());
    if let (Some(buttons), Some(params)) = (buttons, params.as_object_mut()) {
        params.insert("reply_markup".to_owned(), keyboard(buttons));
    }
    params
}

fn keyboard(buttons: &Buttons) -> Value {
    let keys = buttons.offered().map(|(answer, label)| {
        let data = format!("{DATA_PREFIX}{answer}:{}", buttons.decision_id);
        json!({"text": label, "callback_data": data})
    });
    let keys: Vec<Value> = keys.collect();
    let rows: Vec<Vec<Value>> = match keys.len() {
        0..=ROW_BUTTONS_MAX => vec![keys],
        _ => keys.into_iter().map(|key| vec![key]).collect(),
    };
    json!({ "inline_keyboard": rows })
}

/// A chat id for the Bot API: a number, or the name of a public chat.
fn chat_id(chat: &str) -> Value {
    chat.parse::<i64>()
        .map_or_else(|_name| json!(chat), |id| json!(id))
}

impl Board for Chat {
    async fn post(&self, message: &Message) -> Result<String, MessageRejection> {
        let chat = chat_id(&self.chats.current(&self.chat));
        let params = with(written(message), [("chat_id", chat)]);
        let posted = self.chats.call(&self.api, "sendMessage", &params).await;
        let posted = posted.map_err(|error| trouble(&error))?;
        let number = |pointer: &str| posted.pointer(pointer).and_then(Value::as_i64);
        let chat = number("/chat/id").map_or_else(|| self.chat.clone(), |id| id.to_string());
        let message = number("/message_id").unwrap_or_default();
        Ok(format!("{chat}:{message}"))
    }

    async fn edit(&self, place: &str, message: &Message) -> Result<(), MessageRejection> {
        let (chat, id) = place.rsplit_once(':').unwrap_or_default();
        let id: i64 = id.parse().unwrap_or_default();
        let fields = [("chat_id", chat_id(chat)), ("message_id", json!(id))];
        let params = with(written(message), fields);
        self.call("editMessageText", params).await.map(drop)
    }

    async fn tell(&self, to: &str, text: &str) -> Result<(), MessageRejection> {
        if let Some((chat, id)) = to
            .strip_prefix(REPLY_PREFIX)
            .and_then(|place| place.rsplit_once(':'))
        {
            let id: i64 = id.parse().unwrap_or_default();
            let answered = json!({"message_id": id, "allow_sending_without_reply": true});
            let params = json!({"chat_id": chat_id(chat), "text": text,
                "reply_parameters": answered, "link_preview_options": {"is_disabled": true}});
            return self.call("sendMessage", params).await.map(drop);
        }
        let text: String = text.chars().take(ANSWER_CHARS_MAX).collect();
        let params = json!({"callback_query_id": to, "text": text, "show_alert": true});
        self.call("answerCallbackQuery", params).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(may_approve: bool) -> Message {
        Message {
            head: "Tool call 😀 waits.".to_owned(),
            reply: None,
            body: "agent: a\n@everyone <b> /start".to_owned(),
            buttons: Some(Buttons::of_call("a-1", may_approve)),
        }
    }

    #[test]
    fn steer_3_agent_text_in_telegram_has_no_markup_and_no_mentions() {
        let params = written(&message(true));
        assert_eq!(params.get("parse_mode"), None);
        let text = params["text"].as_str().unwrap();
        let units: Vec<u16> = text.encode_utf16().collect();
        let at = |name: &str| usize::try_from(params["entities"][0][name].as_u64().unwrap());
        let (offset, length) = (at("offset").unwrap(), at("length").unwrap());
        let block = String::from_utf16(&units[offset..offset + length]).unwrap();
        assert_eq!(block, message(true).body);
        assert_eq!(params["entities"][0]["type"], "pre");
    }

    #[test]
    fn steer_3_telegram_buttons_carry_their_approval_and_decision() {
        let row = |may_approve| {
            written(&message(may_approve))["reply_markup"]["inline_keyboard"][0].clone()
        };
        let deny = json!({"text": "Deny", "callback_data": "goondan:deny:a-1"});
        let approve = json!({"text": "Approve", "callback_data": "goondan:approve:a-1"});
        assert_eq!(row(true), json!([approve, deny]));
        assert_eq!(row(false), json!([deny]));
        let closed = Message {
            buttons: None,
            ..message(true)
        };
        assert_eq!(written(&closed).get("reply_markup"), None);
    }

    #[test]
    fn steer_3_only_our_buttons_of_telegram_are_understood() {
        let update = |data: &str| {
            json!({"update_id": 1, "callback_query": {"id": "q", "from": {"id": 5},
                "message": {"message_id": 7, "chat": {"id": -100}}, "data": data}})
        };
        let pressed = to_pressed(&update("goondan:deny:a-1")).unwrap();
        assert_eq!(pressed.press.decision_id.as_str(), "a-1");
        assert_eq!(
            pressed.press.answer,
            DecisionAnswer::Button(DecisionButton::Deny)
        );
        assert_eq!(pressed.press.user, "5");
        assert_eq!(
            (pressed.place.as_str(), pressed.to.as_str()),
            ("-100:7", "q")
        );
        for foreign in [
            "",
            "goondan:deny:",
            "goondan:grant:a-1",
            "approve:a-1",
            "goondan:deny:a 1",
        ] {
            assert_eq!(to_pressed(&update(foreign)), None, "{foreign}");
        }
        assert_eq!(
            to_pressed(&json!({"message": {"text": "goondan:deny:a-1"}})),
            None
        );
    }
}
