use serde_json::{Value, json};

use super::*;

fn read(body: &str) -> FormMeaning {
    meaning(body.as_bytes(), &Filters::default(), false).unwrap()
}

fn event(meaning: FormMeaning) -> ConnectorEvent {
    match meaning {
        FormMeaning::Event(event) => *event,
        other => panic!("{other:?}"),
    }
}

fn payload(payload: &Value) -> String {
    let mut url = reqwest::Url::parse("http://x").unwrap();
    url.query_pairs_mut()
        .append_pair("payload", &payload.to_string());
    url.query().unwrap().to_owned()
}

fn of_payload(fields: &Value) -> FormMeaning {
    let mut whole =
        json!({"team": {"id": "T1"}, "user": {"id": "U1", "name": "ann"}, "trigger_id": "9"});
    let all = whole.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    read(&payload(&whole))
}

/// A payload in which a person used this element of a message.
fn used(action: &Value) -> ConnectorEvent {
    let mut action = action.clone();
    let fields = action.as_object_mut().unwrap();
    fields.extend([
        ("action_id".to_owned(), json!("pick")),
        ("action_ts".to_owned(), json!("2.5")),
    ]);
    event(of_payload(
        &json!({"type": "block_actions", "channel": {"id": "C1", "name": "ops"},
        "message": {"ts": "1.5", "thread_ts": "1.0"}, "actions": [action]}),
    ))
}

#[test]
fn slack_slash_command_becomes_an_event_with_its_text() {
    let body = "team_id=T1&channel_id=C1&channel_name=ops&user_id=U1&user_name=ann&command=%2Fweather\
                &text=94070+%EA%B3%A0+for+%3C%40U2%7Cbob%3E&response_url=https%3A%2F%2Fhooks.slack.com%2F1\
                &trigger_id=13.9";
    let found = event(read(body));
    assert_eq!(found.name, "slash_command");
    assert_eq!(found.input, "/weather 94070 고 for @bob (U2)");
    assert_eq!(found.id.unwrap().as_str(), "slack:T1:command:13.9");
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1");
    assert_eq!(found.properties["command"], "/weather");
    assert_eq!(
        (
            &found.properties["userName"],
            &found.properties["channelName"]
        ),
        (&json!("ann"), &json!("ops"))
    );
    assert_eq!(found.auth.unwrap()["user"], "U1");
    let elsewhere = Filters {
        channels: Some(vec!["C2".to_owned()]),
        ..Filters::default()
    };
    let elsewhere = meaning(body.as_bytes(), &elsewhere, false).unwrap();
    assert!(
        matches!(elsewhere, FormMeaning::Ignored(_)),
        "{elsewhere:?}"
    );
    assert!(matches!(
        read("ssl_check=1&token=x"),
        FormMeaning::Ignored(_)
    ));
}

#[test]
fn conn_1_every_element_of_slack_is_told_in_words() {
    for (action, words) in [
        (
            json!({"type": "button", "text": {"type": "plain_text", "text": "Approve"}, "value": "yes"}),
            "Approve (yes)",
        ),
        (
            json!({"type": "button", "text": {"type": "plain_text", "text": "Approve"}}),
            "Approve",
        ),
        (
            json!({"type": "static_select", "selected_option": {"text": {"type": "plain_text", "text": "Tea &amp; milk"},
            "value": "tea"}}),
            "Tea & milk (tea)",
        ),
        (
            json!({"type": "external_select", "selected_option": {"text": {"type": "plain_text", "text": "tea"},
            "value": "tea"}}),
            "tea",
        ),
        (
            json!({"type": "multi_static_select", "selected_options": [{"value": "a"}, {"value": "b"}]}),
            "a, b",
        ),
        (
            json!({"type": "users_select", "selected_user": "U2"}),
            "<@U2>",
        ),
        (
            json!({"type": "multi_users_select", "selected_users": ["U2", "W3"]}),
            "<@U2>, <@W3>",
        ),
        (
            json!({"type": "channels_select", "selected_channel": "C2"}),
            "<#C2>",
        ),
        (
            json!({"type": "multi_channels_select", "selected_channels": ["C2", "C3"]}),
            "<#C2>, <#C3>",
        ),
        (
            json!({"type": "conversations_select", "selected_conversation": "U2"}),
            "<@U2>",
        ),
        (
            json!({"type": "multi_conversations_select", "selected_conversations": ["C2", "U2"]}),
            "<#C2>, <@U2>",
        ),
        (
            json!({"type": "datepicker", "selected_date": "2026-03-01", "initial_date": "2026-01-01"}),
            "2026-03-01",
        ),
        (
            json!({"type": "timepicker", "selected_time": "09:30", "timezone": "Asia/Seoul"}),
            "09:30 (Asia/Seoul)",
        ),
        (
            json!({"type": "datetimepicker", "selected_date_time": 1_628_633_820}),
            "2021-08-10T22:17:00.000Z",
        ),
        (
            json!({"type": "checkboxes", "selected_options": [{"text": {"type": "mrkdwn", "text": "*Now*"},
            "value": "now"}]}),
            "*Now* (now)",
        ),
        (
            json!({"type": "checkboxes", "selected_options": []}),
            "(nothing)",
        ),
        (
            json!({"type": "radio_buttons", "selected_option": {"text": {"type": "plain_text", "text": "One"},
            "value": "One"}}),
            "One",
        ),
        (
            json!({"type": "overflow", "selected_option": {"text": {"type": "plain_text", "text": "Mute"},
            "value": "m"}}),
            "Mute (m)",
        ),
        (
            json!({"type": "plain_text_input", "value": "some words"}),
            "some words",
        ),
        (
            json!({"type": "plain_text_input", "value": null}),
            "(nothing)",
        ),
        (
            json!({"type": "email_text_input", "value": "a@x.org"}),
            "a@x.org",
        ),
        (
            json!({"type": "url_text_input", "value": "https://x.org"}),
            "https://x.org",
        ),
        (json!({"type": "number_input", "value": "1.5"}), "1.5"),
        (
            json!({"type": "rich_text_input", "rich_text_value": {"type": "rich_text", "elements":
            [{"type": "rich_text_list", "style": "bullet", "elements": [{"type": "rich_text_section", "elements":
                [{"type": "text", "text": "milk"}]}]}]}}),
            "• milk",
        ),
        (
            json!({"type": "file_input", "files": [{"id": "F1", "name": "a.pdf", "mimetype": "application/pdf",
            "size": 5, "url_private": "https://files.slack.com/a.pdf"}]}),
            "[File: a.pdf, application/pdf, 5 bytes, ID F1, URL https://files.slack.com/a.pdf]",
        ),
    ] {
        let found = used(&action);
        assert_eq!(
            (found.name.as_str(), found.input.as_str()),
            ("block_action", words),
            "{action}"
        );
        assert_eq!(found.properties["action"], "pick");
        assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1:1.0");
        assert_eq!(found.metadata["threadTs"], "1.0");
    }
}

#[test]
fn conn_1_inputs_beside_a_button_are_told_with_their_labels() {
    let found = event(of_payload(
        &json!({"type": "block_actions", "channel": {"id": "C1"},
        "message": {"ts": "1.5", "blocks": [
            {"type": "input", "block_id": "b1", "label": {"type": "plain_text", "text": "Why?"}},
            {"type": "input", "block_id": "b2", "label": {"type": "plain_text", "text": "Until"}},
            {"type": "actions", "block_id": "b3"}]},
        "actions": [{"action_id": "go", "action_ts": "2.5", "type": "button", "value": "go",
            "text": {"type": "plain_text", "text": "Go"}}],
        "state": {"values": {"b2": {"until": {"type": "datepicker", "selected_date": "2026-03-01"}},
            "b1": {"why": {"type": "plain_text_input", "value": "it is late"}},
            "b4": {"more": {"type": "plain_text_input", "value": null}},
            "b5": {"note": {"type": "plain_text_input", "value": "x"}}}}}),
    ));
    assert_eq!(
        found.input,
        "Go (go)\nWhy?: it is late\nUntil: 2026-03-01\nnote: x"
    );
    // The message and the thread under it are one conversation.
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1:1.5");
    assert_eq!(found.properties["userName"], "ann");
}

#[test]
fn conn_1_dialogs_and_shortcuts_are_told_in_words() {
    let dialog = json!({"type": "view_submission", "view": {"id": "V1", "callback_id": "order", "hash": "h",
        "private_metadata": "C7", "title": {"type": "plain_text", "text": "Order"}, "blocks": [
            {"type": "input", "block_id": "b", "label": {"type": "plain_text", "text": "Drink"}},
            {"type": "section", "block_id": "c", "text": {"type": "mrkdwn", "text": "For"}}],
        "state": {"values": {"c": {"x": {"type": "users_select", "selected_user": "U2"}},
            "b": {"a": {"type": "plain_text_input", "value": "tea"}}}}}});
    let found = event(of_payload(&dialog));
    assert_eq!(
        (found.name.as_str(), found.input.as_str()),
        ("view_submission", "Order\nDrink: tea\nFor: <@U2>")
    );
    // The app names the channel in its own field.
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C7");
    assert_eq!(found.metadata["privateMetadata"], "C7");
    assert_eq!(found.metadata["channel"], "C7");
    let of_metadata = |private: &str| {
        let mut dialog = dialog.clone();
        dialog["view"]["private_metadata"] = json!(private);
        event(of_payload(&dialog))
    };
    let in_thread = of_metadata(r#"{"channel": "C7", "thread_ts": "1.5"}"#);
    let key = in_thread.instance_key.unwrap();
    assert_eq!(key.as_str(), "slack:T1:C7:1.5");
    assert_eq!(in_thread.metadata["threadTs"], "1.5");
    for private in ["", "order 5", "{}", "[1]", "Cash", r#"{"channel": 5}"#] {
        let direct = of_metadata(private);
        assert_eq!(direct.instance_key.unwrap().as_str(), "slack:T1:U1");
        assert_eq!(direct.metadata["channel"], "U1");
    }
    let mut there = dialog.clone();
    there["response_urls"] =
        json!([{"block_id": "b", "action_id": "a", "channel_id": "C5", "response_url": "x"}]);
    let found = event(of_payload(&there));
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C5");
    let mut unnamed = dialog;
    unnamed["view"]["callback_id"] = json!("");
    assert_eq!(event(of_payload(&unnamed)).properties["action"], "V1");

    let shortcut = json!({"type": "message_action", "callback_id": "sum_up", "channel": {"id": "C1"},
        "message": {"ts": "1.5", "text": "", "files": [{"id": "F1", "name": "a.txt"}]}});
    let found = event(of_payload(&shortcut));
    assert_eq!(
        (found.name.as_str(), found.input.as_str()),
        ("shortcut", "[File: a.txt, ID F1]")
    );
    let global = event(of_payload(
        &json!({"type": "shortcut", "callback_id": "new_order"}),
    ));
    assert_eq!(global.input, "new_order");

    let older = json!({"type": "dialog_submission", "callback_id": "ride", "action_ts": "3.5",
        "submission": {"to": "Seoul", "note": null}, "channel": {"id": "C1"}, "state": "x"});
    assert_eq!(event(of_payload(&older)).input, "to: Seoul");
    let buttons = json!({"type": "interactive_message", "callback_id": "game", "action_ts": "3.5",
        "message_ts": "1.5", "channel": {"id": "C1"},
        "actions": [{"name": "chess", "type": "button", "value": "c"}]});
    let found = event(of_payload(&buttons));
    assert_eq!(
        (found.name.as_str(), found.input.as_str()),
        ("block_action", "chess (c)")
    );
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1:1.5");
    let menu = json!({"type": "interactive_message", "callback_id": "game", "action_ts": "3.5",
        "channel": {"id": "D1"}, "message_ts": "1.5",
        "actions": [{"name": "games", "type": "select", "selected_options": [{"value": "go"}]}]});
    let found = event(of_payload(&menu));
    assert_eq!(found.input, "go");
    assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:D1");
}

#[test]
fn conn_1_forms_that_say_nothing_are_ignored_with_a_reason() {
    for (kind, reason) in [
        ("view_closed", "a dialog was closed"),
        ("dialog_cancellation", "a dialog was closed"),
        ("workflow_step_edit", "steps of workflows are not supported"),
        ("hologram", "`hologram` is not supported"),
    ] {
        let found = of_payload(&json!({"type": kind}));
        let expected = Ignored::new(IgnoreReason::Unsupported, reason);
        assert_eq!(found, FormMeaning::Ignored(expected));
    }
    assert_eq!(
        of_payload(&json!({"type": "block_suggestion", "value": "t"})),
        FormMeaning::Choices
    );
}

#[test]
fn steer_3_own_button_is_no_event_in_the_approval_channel() {
    let button = json!({"type": "block_actions", "team": {"id": "T1"}, "user": {"id": "U1"},
        "channel": {"id": "C1"}, "message": {"ts": "1.5"}, "trigger_id": "9",
        "actions": [{"action_id": "goondan:deny", "action_ts": "2.5", "value": "a-1"}]});
    let body = payload(&button);
    let elsewhere = Filters {
        channels: Some(vec!["C2".to_owned()]),
        ..Filters::default()
    };
    let asked = meaning(body.as_bytes(), &elsewhere, true).unwrap();
    assert!(matches!(asked, FormMeaning::Pressed(_)), "{asked:?}");
    // Without approvals, it is an ordinary button.
    assert_eq!(event(read(&body)).input, "a-1");
}

#[test]
fn invalid_slack_form_is_rejected_with_its_missing_field() {
    let refused = |body: &str| {
        meaning(body.as_bytes(), &Filters::default(), false)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("a=b").contains("`payload`"));
    assert!(refused("payload=%7B").contains("is not valid JSON"));
    assert!(refused("command=%2Fx&team_id=T").contains("`/channel_id`"));
}

#[test]
fn conn_1_a_dialog_without_a_channel_is_taken_if_its_place_is_listed() {
    let dialog = |private: &str| {
        let whole = json!({"type": "view_submission", "team": {"id": "T1"}, "trigger_id": "9",
            "user": {"id": "U1", "name": "ann"}, "view": {"id": "V1", "callback_id": "order",
                "hash": "h", "private_metadata": private}});
        payload(&whole)
    };
    let is_taken = |private: &str, channels: &[&str]| {
        let channels = channels.iter().map(|channel| (*channel).to_owned());
        let filters = Filters {
            channels: Some(channels.collect()),
            ..Filters::default()
        };
        let meaning = meaning(dialog(private).as_bytes(), &filters, false).unwrap();
        matches!(meaning, FormMeaning::Event(_))
    };
    assert!(is_taken("C7", &["C7"]) && !is_taken("C7", &["C8", "U1"]));
    assert!(is_taken("", &["C7", "U1"]) && !is_taken("", &["C7"]));
}
