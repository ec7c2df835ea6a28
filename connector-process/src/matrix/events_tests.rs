use super::*;

const ROOM: &str = "!V1ty-dkNqxnPCK6Mwpv6_RD_v-QPxfCebeN-UMyID38";
const ADA: &str = "@ada:example.test";
const BOT: &str = "@bot:example.test";
const FIRST: &str = "$b_68U2dYvtf-Ea-YHiVzDwWf5mGH0fT7PjZ570hGqa0";
const IN_THREAD: &str = "$Qxhxv1L8Hinp5MPgQUgVaWJzbWbK4rBF9Slst98PNSM";

fn account() -> Account {
    Account {
        id: BOT.to_owned(),
        name: "Goon Bot".to_owned(),
    }
}

/// A room with these members.
fn room(members: &[(&str, &str)]) -> Room {
    let members = members.iter();
    Room {
        name: Some("Orders".to_owned()),
        members: members
            .map(|(user, name)| ((*user).to_owned(), (*name).to_owned()))
            .collect(),
    }
}

fn team() -> Room {
    room(&[(ADA, "Ada Lovelace"), (BOT, "Goon Bot"), ("@bob:x", "Bob")])
}

/// An event in the shape of Synapse 1.163.2.
fn event(id: &str, sender: &str, kind: &str, content: &Value) -> Value {
    json!({"content": content, "event_id": id, "origin_server_ts": 1_796_001_177_180_u64,
        "sender": sender, "type": kind, "unsigned": {"age": 7960, "membership": "join"}})
}

fn message(content: &Value) -> Value {
    event("$e", ADA, MESSAGE, content)
}

fn first() -> Value {
    event(
        FIRST,
        ADA,
        MESSAGE,
        &json!({"body": "Goon Bot: where is my book?", "format": "org.matrix.custom.html",
            "formatted_body": "<a href=\"https://matrix.to/#/@bot:example.test\">Goon Bot</a>: where is my book?",
            "m.mentions": {"user_ids": [BOT]}, "msgtype": "m.text"}),
    )
}

fn in_thread() -> Value {
    event(
        IN_THREAD,
        ADA,
        MESSAGE,
        &json!({"body": "in a thread", "msgtype": "m.text", "m.relates_to": {"event_id": FIRST,
            "is_falling_back": true, "m.in_reply_to": {"event_id": FIRST}, "rel_type": "m.thread"}}),
    )
}

fn edit_of(id: &str, sender: &str) -> Value {
    event(
        "$CpvPoa4Wv2YTl9irtBD1k4ozCdRQM7Rog-6sxtfPypc",
        sender,
        MESSAGE,
        &json!({"body": " * edited", "msgtype": "m.text",
            "m.new_content": {"body": "edited", "msgtype": "m.text"},
            "m.relates_to": {"event_id": id, "rel_type": "m.replace"}}),
    )
}

fn reaction_to(id: &str) -> Value {
    event(
        "$r",
        ADA,
        REACTION,
        &json!({"m.relates_to": {"rel_type": "m.annotation", "event_id": id, "key": "👍"}}),
    )
}

fn redaction_of(id: &str) -> Value {
    let mut event = event(
        "$d",
        ADA,
        REDACTION,
        &json!({"reason": "oops", "redacts": id}),
    );
    event["redacts"] = json!(id);
    event
}

fn accepted() -> Accepted {
    Accepted {
        reactions: true,
        redactions: true,
        ..Accepted::default()
    }
}

/// Maps an event in a room with these known events.
fn mapped(event: &Value, room: &Room, known: &[Value]) -> EventMapping {
    let (account, accepted) = (account(), accepted());
    if let Some(decided) = decide(event, ROOM, &account, &accepted) {
        return decided;
    }
    let found = known.iter().map(|event| {
        let id = text(event, "/event_id").unwrap().to_owned();
        (id, event.clone())
    });
    let around = Surroundings {
        account: &account,
        room_id: ROOM,
        room,
        found: &found.collect(),
    };
    to_mapped(event, &accepted, &around)
}

#[track_caller]
fn mapped_event(event: &Value, room: &Room, known: &[Value]) -> (ConnectorEvent, bool) {
    match mapped(event, room, known) {
        EventMapping::Event { event, is_answered } => (*event, is_answered),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn why(event: &Value, known: &[Value]) -> IgnoreReason {
    match mapped(event, &team(), known) {
        EventMapping::Ignored(reason, _) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn conn_1_a_mention_in_a_room_says_who_and_where() {
    let (told, is_answered) = mapped_event(&first(), &team(), &[]);
    assert!(is_answered);
    assert_eq!(told.name, "message");
    assert_eq!(told.input, "where is my book?");
    assert_eq!(told.id.unwrap().as_str(), format!("matrix:{FIRST}"));
    let key = told.instance_key.unwrap();
    assert_eq!(key.as_str(), format!("matrix:{ROOM}"));
    let expected = json!({"room": ROOM, "roomName": "Orders", "from": ADA,
        "fromName": "Ada Lovelace", "fromServer": "example.test", "isDirect": false,
        "isMention": true, "isEdited": false});
    assert_eq!(json!(told.properties), expected);
    let fact = |name: &str| told.metadata[name].clone();
    assert_eq!(
        (fact("roomId"), fact("eventId")),
        (json!(ROOM), json!(FIRST))
    );
    assert_eq!(fact("date"), 1_796_001_177_180_u64);
    assert_eq!(fact("payload")["event_id"], FIRST);
    assert_eq!(told.auth.unwrap()["user"], ADA);
}

#[test]
fn conn_1_mentions_of_older_clients_are_found_by_name() {
    for (body, is_mention, input) in [
        ("goon bot can you help", true, "goon bot can you help"),
        ("Goon Bot, help", true, "help"),
        ("@Goon Bot: help", true, "help"),
        ("@bot:example.test: help", true, "help"),
        ("Goon Bots are nice", false, "Goon Bots are nice"),
        ("a lagoon bot", false, "a lagoon bot"),
        ("Goon Bot:", true, "Goon Bot:"),
    ] {
        let content = json!({"body": body, "msgtype": "m.text"});
        let (told, _) = mapped_event(&message(&content), &team(), &[]);
        assert_eq!(told.properties["isMention"], is_mention, "{body}");
        assert_eq!(told.input, input);
    }
    // Newer clients need more than the name for a mention.
    let content = json!({"body": "about Goon Bot", "msgtype": "m.text", "m.mentions": {}});
    let (told, _) = mapped_event(&message(&content), &team(), &[]);
    assert_eq!(told.properties["isMention"], false);
}

#[test]
fn conn_1_direct_room_is_one_with_two_members() {
    let direct = room(&[(ADA, "Ada Lovelace"), (BOT, "Goon Bot")]);
    let content = json!({"body": "hi", "msgtype": "m.text"});
    let (told, _) = mapped_event(&message(&content), &direct, &[]);
    assert_eq!(told.properties["isDirect"], true);
    assert_eq!(told.properties.get("roomName"), None);
    assert_eq!(told.metadata["isDirect"], true);
}

#[test]
fn conn_2_matrix_thread_is_a_conversation_of_its_own() {
    let mut root = first();
    root["unsigned"] = json!({"m.relations": {"m.thread": {"count": 1,
        "current_user_participated": false}}});
    assert_eq!(related(&in_thread(), &BTreeMap::new()), [FIRST]);
    let (begun, _) = mapped_event(&in_thread(), &team(), std::slice::from_ref(&root));
    let key = format!("matrix:{ROOM}:{FIRST}");
    assert_eq!(begun.instance_key.unwrap().as_str(), key);
    assert_eq!(
        begun.input,
        "[Thread on Ada Lovelace: \"Goon Bot: where is my book?\"]\nin a thread"
    );
    assert_eq!(begun.metadata["threadId"], FIRST);
    // The thread of a mention, and one in which the account wrote.
    assert_eq!(begun.properties["isMention"], true);
    root["content"] = json!({"body": "x", "msgtype": "m.text"});
    root["unsigned"]["m.relations"]["m.thread"] =
        json!({"count": 2, "current_user_participated": true});
    let (continued, _) = mapped_event(&in_thread(), &team(), std::slice::from_ref(&root));
    assert_eq!(continued.input, "in a thread");
    assert_eq!(continued.properties["isMention"], true);
    root["unsigned"] = json!({});
    let (other, _) = mapped_event(&in_thread(), &team(), &[root]);
    assert_eq!(other.properties["isMention"], false);
}

#[test]
fn conn_1_answers_show_what_they_answer() {
    let answer = message(
        &json!({"body": "> <@ada:example.test> Goon Bot: where\n\nand when?",
        "m.relates_to": {"m.in_reply_to": {"event_id": FIRST}}, "msgtype": "m.text"}),
    );
    let (lost, _) = mapped_event(&answer, &team(), &[]);
    assert_eq!(lost.input, "[Reply to a message]\nand when?");
    let (told_it, _) = mapped_event(&answer, &team(), &[first()]);
    assert_eq!(
        told_it.input,
        "[Reply to Ada Lovelace: \"Goon Bot: where is my book?\"]\nand when?"
    );
    let own = event(
        FIRST,
        BOT,
        MESSAGE,
        &json!({"body": "Here.", "msgtype": "m.text"}),
    );
    let (told_it, _) = mapped_event(&answer, &team(), &[own]);
    assert_eq!(
        told_it.input,
        "[Reply to your message: \"Here.\"]\nand when?"
    );
    assert_eq!(told_it.properties["isMention"], true);
}

#[test]
fn conn_1_an_edit_is_in_the_conversation_of_its_message() {
    let edit = edit_of(IN_THREAD, ADA);
    let mut found = BTreeMap::new();
    assert_eq!(related(&edit, &found), [IN_THREAD]);
    found.insert(IN_THREAD.to_owned(), in_thread());
    assert_eq!(related(&edit, &found), [IN_THREAD, FIRST]);
    let (told, is_answered) = mapped_event(&edit, &team(), &[in_thread(), first()]);
    assert_eq!(told.name, "edited_message");
    assert_eq!(told.input, "[Edited message]\nedited");
    let key = told.instance_key.unwrap();
    assert_eq!(key.as_str(), format!("matrix:{ROOM}:{FIRST}"));
    assert_eq!(told.properties["isEdited"], true);
    assert!(is_answered);
    let foreign = edit_of(IN_THREAD, "@bob:x");
    assert_eq!(why(&foreign, &[in_thread()]), IgnoreReason::Unsupported);
}

#[test]
fn conn_1_reactions_and_deletions_are_events_if_wanted() {
    let own = event(
        "$own",
        BOT,
        MESSAGE,
        &json!({"body": "Shall I deploy?", "msgtype": "m.text"}),
    );
    let (reacted, is_answered) = mapped_event(&reaction_to("$own"), &team(), &[own]);
    assert_eq!(
        reacted.input,
        "[Ada Lovelace reacted with 👍 to your message \"Shall I deploy?\"]"
    );
    assert!(!is_answered);
    assert_eq!(reacted.name, "reaction");
    let foreign = why(&reaction_to(FIRST), &[first()]);
    assert_eq!(foreign, IgnoreReason::Unsupported);
    let mut gone = first();
    gone["content"] = json!({});
    let (deleted, is_answered) =
        mapped_event(&redaction_of(FIRST), &team(), std::slice::from_ref(&gone));
    assert_eq!(deleted.input, "[Ada Lovelace deleted a message: \"oops\"]");
    assert!(!is_answered);
    gone["sender"] = json!("@bob:x");
    let (deleted, _) = mapped_event(&redaction_of(FIRST), &team(), &[gone]);
    assert_eq!(
        deleted.input,
        "[Ada Lovelace deleted a message of Bob: \"oops\"]"
    );
    let reaction = reaction_to("$own");
    assert_eq!(
        why(&redaction_of("$r"), &[reaction]),
        IgnoreReason::Unsupported
    );
    let unwanted = Accepted::default();
    for event in [reaction_to("$own"), redaction_of(FIRST)] {
        let decided = decide(&event, ROOM, &account(), &unwanted);
        assert!(matches!(
            decided,
            Some(EventMapping::Ignored(IgnoreReason::Unsupported, _))
        ));
    }
}

#[test]
fn conn_1_what_is_no_message_to_the_account_has_a_reason() {
    let notice = message(&json!({"body": "n", "msgtype": "m.notice"}));
    assert_eq!(why(&notice, &[]), IgnoreReason::Bot);
    let automatic = message(&json!({"body": "n", "msgtype": "m.text", AUTOMATIC: true}));
    assert_eq!(why(&automatic, &[]), IgnoreReason::Bot);
    let deleted = message(&json!({}));
    assert_eq!(why(&deleted, &[]), IgnoreReason::Unsupported);
    let empty = message(&json!({"msgtype": "m.text", "body": " "}));
    assert_eq!(why(&empty, &[]), IgnoreReason::Unsupported);
    let named = event("$n", ADA, "m.room.name", &json!({"name": "New"}));
    assert_eq!(why(&named, &[]), IgnoreReason::Unsupported);
    let encrypted = event(
        "$TuxxvnOWIAuuUJvT9sFfZ-DBulNOeQGuGdJpAcM17u4",
        ADA,
        ENCRYPTED,
        &json!({"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "device_id": "D",
            "sender_key": "k", "session_id": "s"}),
    );
    assert_eq!(mapped(&encrypted, &team(), &[]), EventMapping::Encrypted);
    let own = event(
        "$o",
        BOT,
        MESSAGE,
        &json!({"body": "x", "msgtype": "m.text"}),
    );
    assert_eq!(mapped(&own, &team(), &[]), EventMapping::Own);
    let listed = Accepted {
        rooms: Some(vec!["!other:x".to_owned()]),
        bots: vec![ADA.to_owned()],
        ..Accepted::default()
    };
    let elsewhere = decide(&first(), ROOM, &account(), &listed);
    assert!(matches!(
        elsewhere,
        Some(EventMapping::Ignored(IgnoreReason::OtherPlace, _))
    ));
    // A listed bot reaches the agent, and is not answered.
    assert_eq!(decide(&notice, "!other:x", &account(), &listed), None);
    let around = Surroundings {
        account: &account(),
        room_id: "!other:x",
        room: &team(),
        found: &BTreeMap::new(),
    };
    let told = to_mapped(&notice, &listed, &around);
    assert!(matches!(
        told,
        EventMapping::Event {
            is_answered: false,
            ..
        }
    ));
}

#[test]
fn conn_1_long_ids_of_older_rooms_stay_valid() {
    let id = format!("${}:example.test", "x".repeat(240));
    let told = event_id(&id).unwrap();
    assert_eq!(told.as_str().len(), "matrix:".len() + 64);
    assert_eq!(event_id("$a").unwrap().as_str(), "matrix:$a");
}
