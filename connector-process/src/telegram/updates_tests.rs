use super::*;

fn message(more: &Value) -> Value {
    let mut message = json!({"message_id": 5, "date": 1, "chat": {"id": -1007, "type": "group"},
        "from": {"id": 9, "is_bot": false, "username": "ann", "first_name": "Ann"}});
    let fields = message.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    message
}

fn accepted(chats: &[&str]) -> Accepted {
    let chats = chats.iter().map(|chat| (*chat).to_owned());
    Accepted {
        chats: Some(chats.collect()).filter(|list: &Vec<String>| !list.is_empty()),
        ..Accepted::default()
    }
}

fn mapped(kind: &str, more: &Value, accepted: &Accepted) -> Update {
    let update = json!({"update_id": 3, kind: message(more)});
    to_update(3, &update, accepted, &Migrations::default())
}

fn event(kind: &str, more: &Value) -> ConnectorEvent {
    match mapped(kind, more, &Accepted::default()) {
        Update::Event { event, .. } => *event,
        other => panic!("{other:?}"),
    }
}

fn why_ignored(kind: &str, more: &Value, accepted: &Accepted) -> &'static str {
    match mapped(kind, more, accepted) {
        Update::Ignored(ignored) => ignored.why,
        other => panic!("{other:?}"),
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
    assert_eq!(found.metadata["fromName"], "Ann");
    let caption = event("channel_post", &json!({"caption": "a picture"}));
    assert_eq!(caption.input, "a picture");
    assert_eq!(caption.properties["isCaption"], true);
    assert!(caption.metadata.get("threadId").is_none());
    let edited = event("edited_message", &json!({"text": "ho"}));
    assert_eq!(edited.name, "edited_message");
    assert_eq!(edited.input, "[Edited message]\nho");
    assert_eq!(edited.properties["isEdited"], true);
}

#[test]
fn conn_2_a_forum_topic_is_a_conversation_of_its_own() {
    let topic = json!({"text": "x", "is_topic_message": true, "message_thread_id": 8,
        "reply_to_message": {"message_id": 8, "forum_topic_created": {"name": "Ideas"}}});
    let found = event("message", &topic);
    assert_eq!(found.instance_key.unwrap().as_str(), "telegram:-1007:8");
    assert_eq!(found.metadata["threadId"], 8);
    assert_eq!(found.metadata["topicTitle"], "Ideas");
    assert_eq!(found.properties["threadId"], 8);
    // Answers outside of a forum have a thread but not a topic.
    let answer = json!({"text": "x", "message_thread_id": 8});
    let found = event("message", &answer);
    assert_eq!(found.instance_key.unwrap().as_str(), "telegram:-1007");
    assert!(found.metadata.get("threadId").is_none());
}

#[test]
fn conn_1_anonymous_administrators_and_channels_are_heard() {
    let admin = json!({"text": "x", "from": {"id": 1_087_968_824, "is_bot": true,
        "username": "GroupAnonymousBot", "first_name": "Group"},
        "sender_chat": {"id": -1007, "type": "group", "title": "G"}, "author_signature": "boss"});
    let found = event("message", &admin);
    assert_eq!(found.properties["fromId"], -1007);
    assert_eq!(found.auth.unwrap()["user"], -1007);
    assert_eq!(
        found.metadata["fromName"],
        "an anonymous administrator (boss)"
    );
    let channel = json!({"text": "x", "from": {"id": 136_817_688, "is_bot": true,
        "username": "Channel_Bot", "first_name": "Channel"},
        "sender_chat": {"id": -10, "type": "channel", "title": "News", "username": "news"}});
    let found = event("message", &channel);
    assert_eq!(found.properties["fromId"], -10);
    assert_eq!(found.properties["fromUsername"], "news");
    assert_eq!(found.metadata["fromName"], "the channel News");
    assert_eq!(found.properties["from_first_name"], "the channel News");
    assert_eq!(found.properties["from_id"], "-10");
}

#[test]
fn conn_1_irrelevant_telegram_updates_have_a_reason() {
    let all = Accepted::default();
    let none = to_update(1, &json!({"poll": {}}), &all, &Migrations::default());
    assert_eq!(
        none,
        ignored(IgnoreReason::Unsupported, "it is not a message")
    );
    let text = json!({"text": "x"});
    let other = accepted(&["7"]);
    assert_eq!(
        why_ignored("message", &text, &other),
        "the chat is not one of `chats`"
    );
    let bot = json!({"text": "x", "from": {"id": 1, "is_bot": true, "username": "Alerts"}});
    assert_eq!(why_ignored("message", &bot, &all), "it is from a bot");
    let unknown = json!({"something_new": {}});
    assert_eq!(
        why_ignored("message", &unknown, &all),
        "it has no known content"
    );
    let joined = json!({"new_chat_members": [{"id": 4, "first_name": "Bob"}]});
    assert_eq!(
        why_ignored("message", &joined, &all),
        "it is a service message"
    );
    let moves = json!({"location": {"latitude": 1.0, "longitude": 2.0, "live_period": 60}});
    assert_eq!(
        why_ignored("edited_message", &moves, &all),
        "it moves a live location"
    );
}

#[test]
fn compat_1_older_texts_have_markers_of_files() {
    let older = Accepted {
        older_texts: true,
        ..Accepted::default()
    };
    let taken = |more: &Value, accepted: &Accepted| match mapped("message", more, accepted) {
        Update::Event { event, .. } => event,
        other => panic!("{other:?}"),
    };
    let input = |more: &Value| taken(more, &older).input;
    let photo = json!([{"file_id": "P1", "width": 9, "height": 9}]);
    let answered = json!({"text": "which?", "from": {"id": 1, "first_name": "Bo"}});
    let message = json!({"photo": photo, "caption": "this", "reply_to_message": answered});
    assert_eq!(input(&message), "this\n[telegram_photo] file_id=P1");
    let properties = taken(&message, &older).properties;
    assert_eq!(properties["photo_file_id"], "P1");
    let properties = taken(&message, &Accepted::default()).properties;
    assert_eq!(properties.get("photo_file_id"), None);
    // Other content, which 0.0.3 ignored, is described in words.
    let voice = json!({"voice": {"file_id": "V1", "duration": 5}});
    assert_eq!(input(&voice), "[Voice message: 0:05, file ID V1]");
}

#[test]
fn conn_1_listed_bots_and_chat_changes_reach_agents_unanswered() {
    let listed = Accepted {
        bots: vec!["@alerts".to_owned()],
        service_messages: true,
        ..Accepted::default()
    };
    let is_answered = |kind: &str, more: Value| match mapped(kind, &more, &listed) {
        Update::Event { event, is_answered } => (event.name, is_answered),
        other => panic!("{other:?}"),
    };
    let bot = json!({"text": "x", "from": {"id": 1, "is_bot": true, "username": "Alerts"}});
    assert_eq!(is_answered("message", bot), ("message".to_owned(), false));
    let renamed = json!({"new_chat_title": "Tea"});
    let service = ("service_message".to_owned(), false);
    assert_eq!(is_answered("message", renamed), service);
    let post = ("channel_post".to_owned(), false);
    assert_eq!(is_answered("channel_post", json!({"text": "x"})), post);
    let usual = ("message".to_owned(), true);
    assert_eq!(is_answered("message", json!({"text": "x"})), usual);
}

#[test]
fn conn_1_supergroup_continues_the_conversation_of_its_group() {
    let listed = accepted(&["-1007"]);
    let moved = mapped(
        "message",
        &json!({"migrate_to_chat_id": -1_001_234}),
        &listed,
    );
    let migrated = Update::Migrated {
        old: -1007,
        new: -1_001_234,
    };
    assert_eq!(moved, migrated);
    let chat = json!({"id": -1_001_234, "type": "supergroup"});
    let from = json!({"chat": chat, "migrate_from_chat_id": -1007});
    assert_eq!(mapped("message", &from, &listed), migrated);
    // Before the change is known, the new ID is foreign.
    let text = json!({"chat": chat, "text": "after"});
    assert_eq!(
        why_ignored("message", &text, &listed),
        "the chat is not one of `chats`"
    );
    let migrations: Migrations =
        serde_json::from_value(json!({"migrated": {"-1007": -1_001_234}})).unwrap();
    let after = |accepted: &Accepted| {
        let update = json!({"update_id": 3, "message": message(&text)});
        match to_update(3, &update, accepted, &migrations) {
            Update::Event { event, .. } => *event,
            other => panic!("{other:?}"),
        }
    };
    let found = after(&listed);
    assert_eq!(found.instance_key.unwrap().as_str(), "telegram:-1007");
    assert_eq!(found.properties["chatId"], -1007);
    assert_eq!(found.metadata["chatId"], -1_001_234);
    let found = after(&accepted(&["-1001234"]));
    assert_eq!(found.instance_key.unwrap().as_str(), "telegram:-1007");
    assert_eq!(found.properties["chatId"], -1_001_234);
    assert_eq!(after(&Accepted::default()).properties["chatId"], -1007);
}
