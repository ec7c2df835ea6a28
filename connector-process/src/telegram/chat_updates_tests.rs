use super::*;

const BOT: i64 = 1;

fn ann() -> Value {
    json!({"id": 9, "is_bot": false, "first_name": "Ann"})
}

fn accepted() -> Accepted {
    Accepted {
        more: SETTINGS
            .iter()
            .flat_map(|(_, kinds)| kinds.iter().copied())
            .collect(),
        own_id: Some(BOT),
        ..Accepted::default()
    }
}

/// Maps an update; the bot sent message 5 of chat -7 in topic 40.
fn mapped(kind: &str, fields: &Value, accepted: &Accepted) -> Option<Update> {
    let mut change = json!({"chat": {"id": -7, "type": "supergroup", "title": "G"}, "date": 1});
    let all = change.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    let update = json!({"update_id": 3, kind: change});
    let sent = |chat, message| {
        let sent = SentMessage::new((-7, 5), Some(40), "Shall I deploy?");
        ((chat, message) == (-7, 5)).then_some(sent)
    };
    to_chat_update(3, &update, (accepted, &Migrations::default()), sent)
}

fn words(kind: &str, fields: &Value) -> String {
    match mapped(kind, fields, &accepted()) {
        Some(Update::Event { event, is_answered }) => {
            assert!(!is_answered);
            event.input
        }
        other => panic!("{other:?}"),
    }
}

fn why_ignored(kind: &str, fields: &Value) -> (IgnoreReason, &'static str) {
    match mapped(kind, fields, &accepted()) {
        Some(Update::Ignored(ignored)) => (ignored.reason, ignored.why),
        other => panic!("{other:?}"),
    }
}

fn emoji(emojis: &[&str]) -> Value {
    let emojis = emojis.iter();
    emojis
        .map(|emoji| json!({"type": "emoji", "emoji": emoji}))
        .collect()
}

#[test]
fn conn_2_reaction_to_the_bot_reaches_the_conversation_of_its_topic() {
    let reaction = json!({"message_id": 5, "user": ann(), "old_reaction": [],
        "new_reaction": emoji(&["👍"])});
    let Some(Update::Event { event, .. }) = mapped(REACTION, &reaction, &accepted()) else {
        panic!("no event");
    };
    assert_eq!(event.name, "message_reaction");
    assert_eq!(event.id.unwrap().as_str(), "telegram:3");
    assert_eq!(event.instance_key.unwrap().as_str(), "telegram:-7:40");
    assert_eq!(
        event.input,
        "[Ann reacted with 👍 to your message \"Shall I deploy?\"]"
    );
    assert_eq!(event.properties["fromId"], 9);
    assert_eq!(event.metadata["threadId"], 40);
    assert_eq!(event.metadata["messageId"], 5);
    assert_eq!(event.auth.unwrap()["user"], 9);
}

#[test]
fn conn_1_changed_reactions_are_in_words() {
    for (old, new, expected) in [
        (
            emoji(&["👍"]),
            json!([]),
            "[Ann took 👍 back from your message \"Shall I deploy?\"]",
        ),
        (
            emoji(&["👍"]),
            emoji(&["❤"]),
            "[Ann reacted with ❤ instead of 👍 to your message \"Shall I deploy?\"]",
        ),
        (
            json!([]),
            json!([{"type": "custom_emoji", "custom_emoji_id": "6"}, {"type": "paid"}]),
            "[Ann reacted with a custom emoji a paid star to your message \"Shall I deploy?\"]",
        ),
    ] {
        let reaction =
            json!({"message_id": 5, "user": ann(), "old_reaction": old, "new_reaction": new});
        assert_eq!(words(REACTION, &reaction), expected);
    }
    let counts = json!({"message_id": 5, "reactions": [
        {"type": {"type": "emoji", "emoji": "👍"}, "total_count": 3},
        {"type": {"type": "emoji", "emoji": "❤"}, "total_count": 1}]});
    assert_eq!(
        words(REACTION_COUNT, &counts),
        "[Reactions to your message \"Shall I deploy?\": 👍 3, ❤ 1]"
    );
    let none = json!({"message_id": 5, "reactions": []});
    assert_eq!(
        words(REACTION_COUNT, &none),
        "[Your message \"Shall I deploy?\" has no reactions left]"
    );
}

#[test]
fn conn_1_members_and_requests_to_join_are_in_words() {
    let bob = json!({"id": 4, "is_bot": false, "first_name": "Bob"});
    let me = json!({"id": BOT, "is_bot": true, "first_name": "Me"});
    let member = |user: &Value, status: &str| json!({"user": user, "status": status});
    let change = |old: Value, new: Value| json!({"from": ann(), "old_chat_member": old, "new_chat_member": new});
    let admin = |user: &Value, pins: bool| {
        json!({"user": user, "status": "administrator", "can_be_edited": true,
            "can_delete_messages": true, "can_pin_messages": pins})
    };
    for (kind, fields, expected) in [
        (
            OWN_MEMBERSHIP,
            change(member(&me, "left"), member(&me, "member")),
            "[Ann added you to the chat]",
        ),
        (
            OWN_MEMBERSHIP,
            change(member(&me, "member"), admin(&me, false)),
            "[Ann made you an administrator; may delete messages]",
        ),
        (
            OWN_MEMBERSHIP,
            change(admin(&me, false), admin(&me, true)),
            "[Ann changed your rights; may pin messages]",
        ),
        (
            OWN_MEMBERSHIP,
            change(admin(&me, true), member(&me, "left")),
            "[Ann removed you from the chat]",
        ),
        (
            OWN_MEMBERSHIP,
            json!({"chat": {"id": 9, "type": "private"}, "from": ann(),
                "old_chat_member": member(&me, "member"), "new_chat_member": member(&me, "kicked")}),
            "[Ann blocked you]",
        ),
        (
            MEMBERSHIP,
            change(member(&ann(), "left"), member(&ann(), "member")),
            "[Ann joined the chat]",
        ),
        (
            MEMBERSHIP,
            change(member(&bob, "member"), member(&bob, "kicked")),
            "[Ann banned Bob from the chat]",
        ),
        (
            MEMBERSHIP,
            change(
                member(&bob, "member"),
                json!({"user": bob, "status": "restricted", "is_member": true,
                    "can_send_messages": false, "can_send_polls": true}),
            ),
            "[Ann restricted Bob; may not send messages]",
        ),
        (
            JOIN_REQUEST,
            json!({"from": bob, "user_chat_id": 4, "bio": "I like\ntea"}),
            "[Bob asks to join the chat: \"I like tea\"]",
        ),
    ] {
        assert_eq!(words(kind, &fields), expected);
    }
}

#[test]
fn conn_1_other_changes_of_a_chat_are_counted() {
    let reaction = |message: i64, user: Value| {
        json!({"message_id": message, "user": user, "old_reaction": [],
            "new_reaction": emoji(&["👍"])})
    };
    assert_eq!(
        why_ignored(REACTION, &reaction(6, ann())),
        (IgnoreReason::Unsupported, NOT_OWN)
    );
    let bot = json!({"id": 8, "is_bot": true, "first_name": "B"});
    let by_bot = why_ignored(REACTION, &reaction(5, bot));
    assert_eq!(by_bot.0, IgnoreReason::Bot);
    let own = json!({"id": BOT, "is_bot": true, "first_name": "Me"});
    assert_eq!(
        why_ignored(REACTION, &reaction(5, own)).0,
        IgnoreReason::Own
    );
    let elsewhere = Accepted {
        chats: Some(vec!["7".to_owned()]),
        ..accepted()
    };
    let Some(Update::Ignored(found)) = mapped(REACTION, &reaction(5, ann()), &elsewhere) else {
        panic!("an event");
    };
    assert_eq!(found.reason, IgnoreReason::OtherPlace);
    // Without the setting, it is for the mapping of messages to pass over.
    let none = mapped(REACTION, &reaction(5, ann()), &Accepted::default());
    assert_eq!(none, None);
}
