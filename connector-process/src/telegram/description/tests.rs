use serde_json::json;

use super::*;
use crate::limits::QUOTE_CHARS_MAX;

/// The text for the model of a message with these fields.
fn text_of(fields: &Value) -> String {
    words_of(fields).expect("the message has content").text
}

fn words_of(fields: &Value) -> Option<MessageText> {
    let mut message = json!({"message_id": 5, "date": 1, "chat": {"id": -7, "type": "supergroup", "title": "G"},
        "from": {"id": 9, "is_bot": false, "first_name": "Ann", "last_name": "Lee"}});
    let all = message.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    describe(&message, false, Some(1))
}

/// Shapes of the Bot API's documentation, each with its words.
fn shapes() -> Vec<(Value, &'static str)> {
    let bob = json!({"id": 4, "is_bot": false, "first_name": "Bob"});
    let channel = json!({"id": -10, "type": "channel", "title": "News", "username": "news"});
    vec![
        (json!({"text": "hi"}), "hi"),
        (
            json!({"caption": "look", "photo": [
                {"file_id": "S", "file_unique_id": "s", "width": 90, "height": 67, "file_size": 1000},
                {"file_id": "L", "file_unique_id": "l", "width": 1280, "height": 960, "file_size": 90000},
            ]}),
            "look\n[Photo: 1280×960, 90000 bytes, file ID L]",
        ),
        (
            json!({"document": {"file_id": "D", "file_name": "a b.pdf", "mime_type": "application/pdf",
                "file_size": 12}}),
            "[File: a b.pdf, application/pdf, 12 bytes, file ID D]",
        ),
        (
            json!({"animation": {"file_id": "A", "width": 3, "height": 2, "duration": 4},
                "document": {"file_id": "A"}}),
            "[GIF: 0:04, 3×2, file ID A]",
        ),
        (
            json!({"voice": {"file_id": "V", "duration": 67, "mime_type": "audio/ogg"}}),
            "[Voice message: 1:07, audio/ogg, file ID V]",
        ),
        (
            json!({"audio": {"file_id": "M", "duration": 5, "performer": "Bach", "title": "Air"}}),
            "[Audio: Bach – Air, 0:05, file ID M]",
        ),
        (
            json!({"video": {"file_id": "W", "width": 4, "height": 3, "duration": 5}, "caption": "see"}),
            "see\n[Video: 0:05, 4×3, file ID W]",
        ),
        (
            json!({"video_note": {"file_id": "N", "length": 240, "duration": 5}}),
            "[Video message: 0:05, file ID N]",
        ),
        (
            json!({"sticker": {"file_id": "T", "emoji": "😀", "set_name": "Cats"}}),
            "[Sticker 😀 of the set Cats]",
        ),
        (json!({"dice": {"emoji": "🎯", "value": 6}}), "[Dice 🎯: 6]"),
        (
            json!({"location": {"latitude": 52.5, "longitude": 13.25}}),
            "[Location: 52.5, 13.25]",
        ),
        (
            json!({"location": {"latitude": 1.5, "longitude": 2.5, "live_period": 60}}),
            "[Live location: 1.5, 2.5]",
        ),
        (
            json!({"venue": {"title": "Café", "address": "Street 1",
                "location": {"latitude": 1.5, "longitude": 2.5}},
                "location": {"latitude": 1.5, "longitude": 2.5}}),
            "[Place: Café, Street 1, 1.5, 2.5]",
        ),
        (
            json!({"contact": {"phone_number": "+49 30 1", "first_name": "Bob", "user_id": 4}}),
            "[Contact: Bob, +49 30 1, user 4]",
        ),
        (
            json!({"poll": {"id": "1", "question": "Tea?", "type": "regular", "is_closed": false,
                "options": [{"text": "yes", "voter_count": 2}, {"text": "no", "voter_count": 0}]}}),
            "[Poll: Tea? – yes (2) / no]",
        ),
        (
            json!({"poll": {"question": "2+2?", "type": "quiz", "is_closed": true,
                "options": [{"text": "4", "voter_count": 0}]}}),
            "[Quiz, closed: 2+2? – 4]",
        ),
        (
            json!({"checklist": {"title": "Shop", "tasks": [{"id": 1, "text": "milk"},
                {"id": 2, "text": "tea", "completion_date": 5}]}}),
            "[Checklist: Shop – ☐ milk / ☑ tea]",
        ),
        (json!({"game": {"title": "Chess"}}), "[Game: Chess]"),
        (
            json!({"story": {"chat": {"id": 4, "type": "private", "first_name": "Bob"}, "id": 1}}),
            "[Story of Bob]",
        ),
        (
            json!({"web_app_data": {"button_text": "Form", "data": "{\"a\":1}"}}),
            "[Sent by the app Form: {\"a\":1}]",
        ),
        (
            json!({"successful_payment": {"currency": "EUR", "total_amount": 145, "invoice_payload": "o1"}}),
            "[Payment \"o1\": 145 EUR in its smallest unit]",
        ),
        (
            json!({"users_shared": {"request_id": 1, "users": [{"user_id": 4}, {"user_id": 5}]}}),
            "[Shared: user 4, user 5]",
        ),
        (
            json!({"text": "see here and @bob", "entities": [
                {"type": "text_link", "offset": 4, "length": 4, "url": "https://x.example"},
                {"type": "bold", "offset": 0, "length": 3},
                {"type": "mention", "offset": 13, "length": 4}]}),
            "see here (https://x.example) and @bob",
        ),
        (
            json!({"text": "😀 Bob!", "entities": [
                {"type": "text_mention", "offset": 3, "length": 3, "user": bob}]}),
            "😀 Bob (user 4)!",
        ),
        (
            json!({"caption": "map", "caption_entities": [
                {"type": "text_link", "offset": 0, "length": 3, "url": "https://m.example"}],
                "photo": [{"file_id": "P"}]}),
            "map (https://m.example)\n[Photo: file ID P]",
        ),
        (
            json!({"text": "so", "forward_origin": {"type": "user", "date": 1, "sender_user": bob}}),
            "[Forwarded from Bob]\nso",
        ),
        (
            json!({"text": "so", "forward_origin": {"type": "hidden_user", "sender_user_name": "Z Z"}}),
            "[Forwarded from Z Z]\nso",
        ),
        (
            json!({"text": "so", "forward_origin": {"type": "channel", "chat": channel,
                "message_id": 3, "author_signature": "Ed"}}),
            "[Forwarded from the channel News (Ed)]\nso",
        ),
        (
            json!({"text": "so", "forward_from": bob}),
            "[Forwarded from Bob]\nso",
        ),
        (
            json!({"text": "so", "is_automatic_forward": true, "sender_chat": channel,
                "forward_origin": {"type": "channel", "chat": channel}}),
            "[Post of the linked channel]\nso",
        ),
        (
            json!({"text": "yes", "reply_to_message": {"message_id": 4, "from": bob, "chat": {"id": -7},
                "text": "Shall\n we?"}}),
            "[Reply to Bob: \"Shall we?\"]\nyes",
        ),
        (
            json!({"text": "yes", "reply_to_message": {"message_id": 4, "chat": {"id": -7},
                "from": {"id": 1, "is_bot": true, "first_name": "Me"}, "text": "Shall I?"}}),
            "[Reply to your message: \"Shall I?\"]\nyes",
        ),
        (
            json!({"text": "this", "quote": {"text": "we", "position": 6, "is_manual": true},
                "reply_to_message": {"message_id": 4, "from": bob, "text": "Shall we?"}}),
            "[Reply to Bob: \"we\" (quoted)]\nthis",
        ),
        (
            json!({"text": "nice", "reply_to_message": {"message_id": 4, "from": bob,
                "photo": [{"file_id": "P"}]}}),
            "[Reply to Bob: Photo: file ID P]\nnice",
        ),
        (
            json!({"text": "nice", "reply_to_story": {"chat": {"id": 4, "first_name": "Bob"}, "id": 1}}),
            "[Reply to a story of Bob]\nnice",
        ),
        (
            json!({"text": "hm", "quote": {"text": "free", "position": 0},
                "external_reply": {"origin": {"type": "channel", "chat": channel}}}),
            "[Reply to the channel News in another chat: \"free\"]\nhm",
        ),
        // A message in a topic refers to the first one without answering it.
        (
            json!({"text": "hi", "is_topic_message": true, "message_thread_id": 3,
                "reply_to_message": {"message_id": 3, "from": bob,
                    "forum_topic_created": {"name": "Ideas", "icon_color": 1}}}),
            "hi",
        ),
    ]
}

#[test]
fn conn_1_every_content_of_a_telegram_message_is_in_words() {
    for (fields, expected) in shapes() {
        assert_eq!(text_of(&fields), expected, "{fields}");
    }
}

#[test]
fn conn_2_files_of_a_telegram_message_are_listed() {
    let spoken = words_of(&json!({"document": {"file_id": "D", "file_name": "a.pdf",
        "mime_type": "application/pdf", "file_size": 12}}));
    let expected = json!([{"kind": "file", "fileId": "D", "name": "a.pdf",
        "mimeType": "application/pdf", "bytes": 12}]);
    assert_eq!(Value::from(spoken.unwrap().files), expected);
}

#[test]
fn conn_1_long_answered_text_is_shortened() {
    let long = "가".repeat(QUOTE_CHARS_MAX + 5);
    let text = text_of(&json!({"text": "x", "reply_to_message": {"message_id": 1, "text": long}}));
    let expected = format!(
        "[Reply to someone: \"{}…\"]\nx",
        "가".repeat(QUOTE_CHARS_MAX)
    );
    assert_eq!(text, expected);
}

#[test]
fn conn_1_changes_of_a_telegram_chat_are_in_words() {
    let bob = json!({"id": 4, "is_bot": false, "first_name": "Bob"});
    let ann = json!({"id": 9, "is_bot": false, "first_name": "Ann", "last_name": "Lee"});
    for (fields, expected) in [
        (
            json!({"new_chat_members": [bob]}),
            "[Ann Lee added Bob to the chat]",
        ),
        (
            json!({"new_chat_members": [ann]}),
            "[Ann Lee joined the chat]",
        ),
        (json!({"left_chat_member": ann}), "[Ann Lee left the chat]"),
        (
            json!({"left_chat_member": bob}),
            "[Ann Lee removed Bob from the chat]",
        ),
        (
            json!({"new_chat_title": "Tea"}),
            "[Ann Lee renamed the chat to \"Tea\"]",
        ),
        (
            json!({"pinned_message": {"message_id": 1, "text": "Rules"}}),
            "[Ann Lee pinned a message: \"Rules\"]",
        ),
        (
            json!({"delete_chat_photo": true}),
            "[Ann Lee removed the photo of the chat]",
        ),
        (
            json!({"forum_topic_created": {"name": "Ideas"}}),
            "[Ann Lee opened the topic \"Ideas\"]",
        ),
        (
            json!({"forum_topic_edited": {"name": "X"}}),
            "[Ann Lee renamed the topic to \"X\"]",
        ),
        (
            json!({"forum_topic_closed": {}}),
            "[Ann Lee closed the topic]",
        ),
        (
            json!({"video_chat_started": {}}),
            "[Ann Lee started a call]",
        ),
        (
            json!({"video_chat_ended": {"duration": 9}}),
            "[The call ended after 9 s]",
        ),
        (
            json!({"message_auto_delete_timer_changed": {"message_auto_delete_time": 86400}}),
            "[Ann Lee has new messages deleted after 86400 s]",
        ),
        (
            json!({"boost_added": {"boost_count": 1}}),
            "[Ann Lee boosted the chat]",
        ),
    ] {
        let mut message =
            json!({"message_id": 5, "chat": {"id": -7, "type": "group"}, "from": ann});
        let all = message.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        assert_eq!(describe(&message, false, None), None, "{fields}");
        assert_eq!(service_words(&message).as_deref(), Some(expected));
    }
}
