//! Maps an update to an event. Pure.

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use serde_json::{Value, json};

use crate::payload::{
    add_payload, event_id, instance_key, is_allowed, older_properties, properties, text,
};

/// Types of the requested updates.
pub(super) const UPDATES: [&str; 4] = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
];

#[derive(Debug, PartialEq)]
pub(super) enum Update {
    Event(Box<ConnectorEvent>),
    /// Ignored, for this reason.
    Ignored(&'static str),
}

/// Maps update `id` to an event, unless it contains nothing for an agent.
pub(super) fn to_update(id: i64, update: &Value, chats: Option<&[String]>) -> Update {
    let found = UPDATES
        .iter()
        .find_map(|kind| Some((*kind, update.get(kind)?)));
    let Some((kind, message)) = found else {
        return Update::Ignored("it is not a message");
    };
    let Some(chat) = message.pointer("/chat/id").and_then(Value::as_i64) else {
        return Update::Ignored("it belongs to no chat");
    };
    if !is_allowed(chats, &chat.to_string()) {
        return Update::Ignored("the chat is not one of `chats`");
    }
    // Messages of bots are ignored, because two bots could answer each other forever.
    if message.pointer("/from/is_bot") == Some(&Value::Bool(true)) {
        return Update::Ignored("it is from a bot");
    }
    let caption = text(message, "/caption");
    let Some(said) = text(message, "/text").or(caption) else {
        return Update::Ignored("it has no text");
    };
    let key = format!("telegram:{chat}");
    let (Ok(id), Ok(key)) = (event_id(&format!("telegram:{id}")), instance_key(&key)) else {
        return Update::Ignored("its ids are invalid");
    };
    let fact = |pointer: &str| message.pointer(pointer);
    let mut properties = properties([
        ("chatId", fact("/chat/id")),
        ("chatType", fact("/chat/type")),
        ("fromId", fact("/from/id")),
        ("fromUsername", fact("/from/username")),
    ]);
    let is_caption = text(message, "/text").is_none();
    properties.insert("isEdited".to_owned(), json!(kind.starts_with("edited_")));
    properties.insert("isCaption".to_owned(), json!(is_caption));
    properties.extend(older_facts(update, message));
    let mut metadata = JsonObject::from_iter([("chatId".to_owned(), json!(chat))]);
    if fact("/is_topic_message") == Some(&json!(true))
        && let Some(thread) = fact("/message_thread_id")
    {
        metadata.insert("threadId".to_owned(), thread.clone());
    }
    for (name, pointer) in [
        ("messageId", "/message_id"),
        ("date", "/date"),
        ("fromName", "/from/first_name"),
        ("chatTitle", "/chat/title"),
    ] {
        if let Some(value) = fact(pointer) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    add_payload(&mut metadata, update);
    Update::Event(Box::new(ConnectorEvent {
        id: Some(id),
        name: kind.to_owned(),
        input: said.to_owned(),
        instance_key: Some(key),
        properties,
        auth: fact("/from/id").map(|user| {
            JsonObject::from_iter([
                ("service".to_owned(), json!("telegram")),
                ("user".to_owned(), user.clone()),
            ])
        }),
        metadata,
    }))
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
mod tests {
    use super::*;

    fn message(more: &Value) -> Value {
        let mut message = json!({"message_id": 5, "date": 1, "chat": {"id": -1007, "type": "group"},
            "from": {"id": 9, "is_bot": false, "username": "ann", "first_name": "Ann"}});
        let fields = message.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        message
    }

    fn event(kind: &str, more: &Value) -> ConnectorEvent {
        match to_update(3, &json!({"update_id": 3, kind: message(more)}), None) {
            Update::Event(event) => *event,
            Update::Ignored(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn texts_captions_and_edits_are_events_of_their_chat() {
        let found = event("message", &json!({"text": "hi"}));
        assert_eq!(found.id.unwrap().as_str(), "telegram:3");
        assert_eq!(found.instance_key.unwrap().as_str(), "telegram:-1007");
        assert_eq!(
            (found.name.as_str(), found.input.as_str()),
            ("message", "hi")
        );
        assert_eq!(found.properties["chatId"], -1007);
        assert_eq!(found.properties["fromUsername"], "ann");
        assert_eq!(found.properties["isEdited"], false);
        assert_eq!(found.metadata["messageId"], 5);
        let caption = event("channel_post", &json!({"caption": "a picture"}));
        assert_eq!(caption.input, "a picture");
        assert_eq!(caption.properties["isCaption"], true);
        assert!(caption.metadata.get("threadId").is_none());
        let topic = json!({"text": "x", "is_topic_message": true, "message_thread_id": 8});
        assert_eq!(event("message", &topic).metadata["threadId"], 8);
        let edited = event("edited_message", &json!({"text": "ho"}));
        assert_eq!(edited.name, "edited_message");
        assert_eq!(edited.properties["isEdited"], true);
    }

    #[test]
    fn irrelevant_telegram_updates_are_ignored() {
        let chats = ["7".to_owned()];
        let of = |update: Value, chats: Option<&[String]>| match to_update(1, &update, chats) {
            Update::Ignored(reason) => reason,
            Update::Event(event) => panic!("{event:?}"),
        };
        assert_eq!(of(json!({"poll": {}}), None), "it is not a message");
        let sticker = json!({"message": message(&json!({"sticker": {}}))});
        assert_eq!(of(sticker, None), "it has no text");
        let text = json!({"message": message(&json!({"text": "x"}))});
        assert_eq!(of(text, Some(&chats)), "the chat is not one of `chats`");
        let bot = message(&json!({"text": "x", "from": {"id": 1, "is_bot": true}}));
        assert_eq!(of(json!({"message": bot}), None), "it is from a bot");
    }
}
