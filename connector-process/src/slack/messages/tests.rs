use serde_json::{Value, json};

use super::*;

fn body(event: &Value) -> Value {
    json!({"type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": "Ev1", "event": event,
        "authorizations": [{"team_id": "T1", "user_id": "U9", "is_bot": true}]})
}

fn taken_by(event: &Value, filters: &Filters, threads: &Threads) -> Taken {
    taken(&body(event), false, (filters, threads)).unwrap()
}

fn event_in(event: &Value, threads: &Threads) -> ConnectorEvent {
    let taken = taken_by(event, &Filters::default(), threads).unwrap();
    assert!(taken.is_answered);
    *taken.event
}

fn event(event: &Value) -> ConnectorEvent {
    event_in(event, &Threads::default())
}

fn message(fields: &Value) -> Value {
    let mut message = json!({"type": "message", "channel": "C1", "user": "U1", "ts": "1.5",
        "channel_type": "channel", "text": "x"});
    let all = message.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    message
}

fn key(event: &ConnectorEvent) -> &str {
    event.instance_key.as_ref().unwrap().as_str()
}

fn id(event: &ConnectorEvent) -> &str {
    event.id.as_ref().unwrap().as_str()
}

#[test]
fn conn_2_a_message_and_its_mention_are_one_event_in_either_order() {
    let both = message(&json!({"text": "<@U9> a &lt; b &amp;amp;"}));
    let mention = message(&json!({"type": "app_mention", "text": "<@U9> a &lt; b &amp;amp;"}));
    let (mut both, mut mention) = (event(&both), event(&mention));
    // Only what Slack sent differs.
    assert_ne!(
        both.metadata.remove("payload"),
        mention.metadata.remove("payload")
    );
    assert_eq!(both, mention);
    assert_eq!(
        (both.name.as_str(), both.input.as_str()),
        ("app_mention", "a < b &amp;")
    );
    assert_eq!(
        (id(&both), key(&both)),
        ("slack:T1:C1:1.5", "slack:T1:C1:1.5")
    );
    assert_eq!(both.metadata["threadTs"], "1.5");
    assert_eq!(both.metadata["ts"], "1.5");
    assert_eq!(both.properties["channelType"], "channel");
}

#[test]
fn conn_2_a_mention_and_its_thread_are_one_conversation() {
    let threads = Threads::default();
    let reply = message(
        &json!({"ts": "2.5", "thread_ts": "1.5", "parent_user_id": "U1", "text": "and now?"}),
    );
    assert_eq!(event_in(&reply, &threads).name, "message");
    let mention = event_in(&message(&json!({"text": "<@U9> hello"})), &threads);
    let reply = event_in(&reply, &threads);
    assert_eq!(
        (key(&mention), key(&reply)),
        ("slack:T1:C1:1.5", "slack:T1:C1:1.5")
    );
    // The rule of the mention takes the rest of its thread.
    assert_eq!(
        (reply.name.as_str(), reply.input.as_str()),
        ("app_mention", "and now?")
    );
    assert_eq!(reply.metadata["threadTs"], "1.5");
    // A mention within a thread begins there.
    let within = message(&json!({"ts": "4.5", "thread_ts": "3.5", "text": "what does <@U9> say?"}));
    let within = event_in(&within, &threads);
    assert_eq!(
        (within.name.as_str(), key(&within)),
        ("app_mention", "slack:T1:C1:3.5")
    );
    assert_eq!(within.input, "what does <@U9> say?");
    assert!(threads.has("C1", "3.5"));
    // So does a thread under a message of the app, which asked something.
    let answer =
        message(&json!({"ts": "6.5", "thread_ts": "5.5", "parent_user_id": "U9", "text": "yes"}));
    assert_eq!(event_in(&answer, &threads).name, "app_mention");
    let other = message(&json!({"ts": "8.5", "thread_ts": "7.5", "text": "no"}));
    assert_eq!(event_in(&other, &threads).name, "message");
}

#[test]
fn compat_1_older_texts_are_unchanged_and_name_files() {
    let filters = Filters {
        older_texts: true,
        ..Filters::default()
    };
    let file = json!({"id": "F1", "name": "a.png", "filetype": "png",
        "url_private": "https://files.slack.com/a.png"});
    let mention = message(&json!({"text": "<@U9> a &amp; b", "files": [file]}));
    let taken = taken_by(&mention, &filters, &Threads::default()).unwrap();
    assert_eq!(
        taken.event.input,
        "<@U9> a &amp; b\n[image:a.png] https://files.slack.com/a.png"
    );
    assert_eq!(key(&taken.event), "slack:T1:C1:1.5");
    assert_eq!(taken.event.properties["attachment_count"], "1");
    let usual = event_in(&mention, &Threads::default());
    assert_eq!(usual.properties.get("attachment_count"), None);
}

#[test]
fn conn_2_a_direct_chat_is_one_conversation() {
    let threads = Threads::default();
    let direct = |fields: &Value| {
        let mut direct = message(fields);
        direct["channel"] = json!("D1");
        direct["channel_type"] = json!("im");
        event_in(&direct, &threads)
    };
    let first = direct(&json!({"text": "<@U9> hello"}));
    assert_eq!(
        (first.name.as_str(), key(&first)),
        ("message", "slack:T1:D1")
    );
    assert_eq!(first.input, "hello");
    assert!(first.metadata.get("threadTs").is_none());
    let in_thread = direct(&json!({"ts": "2.5", "thread_ts": "1.5", "parent_user_id": "U9"}));
    assert_eq!(
        (in_thread.name.as_str(), key(&in_thread)),
        ("message", "slack:T1:D1")
    );
    assert_eq!(in_thread.metadata["threadTs"], "1.5");
}

#[test]
fn conn_1_edits_are_events_of_their_own() {
    let edit = |text: &str, former: &str, edited: &Value| {
        let mut now = message(&json!({"text": text, "ts": "1.5"}));
        now["edited"] = edited.clone();
        let former = message(&json!({"text": former}));
        json!({"type": "message", "subtype": "message_changed", "hidden": true, "channel": "C1", "ts": "1.9",
            "channel_type": "channel", "message": now, "previous_message": former})
    };
    let by_person = json!({"user": "U1", "ts": "1.8"});
    let found = event(&edit("do not delete", "delete", &by_person));
    assert_eq!(
        (found.name.as_str(), found.input.as_str()),
        ("message_changed", "[Edited message]\ndo not delete")
    );
    assert_eq!(
        (id(&found), key(&found)),
        ("slack:T1:C1:1.5:1.8", "slack:T1:C1:1.5")
    );
    assert_eq!(
        (&found.properties["isEdited"], &found.properties["user"]),
        (&json!(true), &json!("U1"))
    );
    assert_eq!(found.metadata["threadTs"], "1.5");
    // A mention that an edit adds also arrives as `app_mention`.
    let added = event(&edit("<@U9> delete", "delete", &by_person));
    let mention = event(&message(
        &json!({"type": "app_mention", "text": "<@U9> delete", "edited": by_person}),
    ));
    assert_eq!(
        (added.name.as_str(), added.input.as_str()),
        ("app_mention", "delete")
    );
    assert_eq!(
        (&added.id, &added.instance_key),
        (&mention.id, &mention.instance_key)
    );
    let kept = event(&edit("<@U9> no", "<@U9> yes", &by_person));
    assert_eq!(
        (kept.name.as_str(), kept.input.as_str()),
        ("message_changed", "[Edited message]\nno")
    );
    // A preview of a link changes a message, too.
    let preview = taken_by(
        &edit("https://x.org", "https://x.org", &Value::Null),
        &Filters::default(),
        &Threads::default(),
    );
    assert_eq!(preview.unwrap_err().why, "no person edited the message");
}

#[test]
fn conn_1_written_messages_of_all_subtypes_are_events() {
    for (fields, input) in [
        (
            json!({"subtype": "file_share", "text": "", "files": [{"id": "F1", "name": "a.png"}]}),
            "[File: a.png, ID F1]",
        ),
        (json!({"subtype": "me_message", "text": "waves"}), "waves"),
        (
            json!({"subtype": "thread_broadcast", "thread_ts": "1.0", "text": "to all", "root": {"text": "first"}}),
            "to all",
        ),
        (
            json!({"text": "", "attachments": [{"fallback": "disk full"}]}),
            "[attachment] disk full",
        ),
        (
            json!({"text": "", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "cpu high"}}]}),
            "cpu high",
        ),
    ] {
        assert_eq!(event(&message(&fields)).input, input, "{fields}");
    }
    let bare = event(&message(&json!({"type": "app_mention", "text": "<@U9> "})));
    assert_eq!(bare.input, "<@U9>");
    let other = event(&message(&json!({"text": "<@U2> ask <@U9>"})));
    assert_eq!(
        (other.name.as_str(), other.input.as_str()),
        ("app_mention", "<@U2> ask <@U9>")
    );
}

#[test]
fn conn_1_all_else_is_ignored_with_a_reason() {
    let none = Filters::default();
    let listening = Filters {
        channels: Some(vec!["C2".to_owned()]),
        ..Filters::default()
    };
    for (event, filters, reason) in [
        (message(&json!({"bot_id": "B1"})), &none, "it is from a bot"),
        (
            message(&json!({"bot_profile": {"id": "B1", "app_id": "A2"}})),
            &none,
            "it is from a bot",
        ),
        (
            message(&json!({"subtype": "bot_message", "user": null, "username": "alerts"})),
            &none,
            "it is from a bot",
        ),
        (
            message(&json!({"user": "U9", "bot_id": "B9"})),
            &none,
            "this app wrote it",
        ),
        (
            message(&json!({"bot_id": "B9", "app_id": "A1"})),
            &none,
            "this app wrote it",
        ),
        (
            message(&json!({"text": "  "})),
            &none,
            "it has no text, file or attachment",
        ),
        (
            message(&json!({})),
            &listening,
            "the channel is not one of `channels`",
        ),
        (
            message(&json!({"subtype": "message_deleted", "deleted_ts": "1.0"})),
            &none,
            "a message was deleted",
        ),
        (
            message(
                &json!({"subtype": "message_changed", "message": {"subtype": "tombstone", "ts": "1.0"}}),
            ),
            &none,
            "a message was deleted",
        ),
        (
            message(&json!({"subtype": "message_replied"})),
            &none,
            "`message_replied` is not a written message",
        ),
        (
            message(&json!({"subtype": "channel_join"})),
            &none,
            "`channel_join` is not a written message",
        ),
        (
            message(&json!({"subtype": "channel_topic"})),
            &none,
            "`channel_topic` is not a written message",
        ),
        (
            message(&json!({"subtype": "huddle_thread"})),
            &none,
            "`huddle_thread` is not a written message",
        ),
        (
            json!({"type": "reaction_added", "user": "U1", "reaction": "eyes"}),
            &none,
            "`reaction_added` is not a message",
        ),
        (
            json!({"type": "app_home_opened", "user": "U1", "tab": "home"}),
            &none,
            "`app_home_opened` is not a message",
        ),
        (
            json!({"type": "link_shared", "links": []}),
            &none,
            "`link_shared` is not a message",
        ),
        (
            json!({"type": "member_joined_channel", "user": "U1"}),
            &none,
            "`member_joined_channel` is not a message",
        ),
        (
            json!({"type": "file_shared", "file_id": "F1"}),
            &none,
            "`file_shared` is not a message",
        ),
    ] {
        assert_eq!(
            taken_by(&event, filters, &Threads::default())
                .unwrap_err()
                .why,
            reason,
            "{event}"
        );
    }
}

#[test]
fn conn_1_listed_bots_are_heard() {
    let filters = |bot: &str| Filters {
        bots: vec![bot.to_owned()],
        ..Filters::default()
    };
    let alert = message(
        &json!({"subtype": "bot_message", "user": null, "bot_id": "B7", "username": "alerts",
        "text": "", "attachments": [{"title": "Disk full"}]}),
    );
    let workflow =
        message(&json!({"type": "app_mention", "bot_id": "B7", "text": "<@U9> from a workflow"}));
    for bot in ["B7", "alerts"] {
        let taken = taken_by(&alert, &filters(bot), &Threads::default()).unwrap();
        assert!(!taken.is_answered);
        let found = taken.event;
        assert_eq!(found.input, "[attachment] Disk full");
        assert_eq!(
            (&found.properties["bot"], &found.properties["userName"]),
            (&json!("B7"), &json!("alerts"))
        );
        assert!(found.auth.is_none());
    }
    let taken = taken_by(&workflow, &filters("B7"), &Threads::default()).unwrap();
    assert!(taken.is_answered);
    let found = taken.event;
    assert_eq!(
        (found.name.as_str(), found.input.as_str()),
        ("app_mention", "from a workflow")
    );
    assert!(taken_by(&alert, &filters("B8"), &Threads::default()).is_err());
    // An app never hears itself.
    let own = message(&json!({"bot_id": "B7", "app_id": "A1"}));
    assert!(taken_by(&own, &filters("B7"), &Threads::default()).is_err());
}

#[test]
fn an_event_without_its_authorizations_is_understood() {
    let mut mention = body(&message(
        &json!({"type": "app_mention", "text": "<@U9> hello"}),
    ));
    mention.as_object_mut().unwrap().remove("authorizations");
    let found = taken(&mention, true, (&Filters::default(), &Threads::default())).unwrap();
    let found = found.unwrap().event;
    assert_eq!(found.input, "hello");
    assert_eq!(found.metadata["retry"], true);
    mention["team_id"] = Value::Null;
    let refused = taken(&mention, false, (&Filters::default(), &Threads::default())).unwrap_err();
    assert!(refused.to_string().contains("/team_id"), "{refused}");
}
