//! Forms sent by Slack: slash commands, and interactions with buttons, shortcuts and dialogs.
//!
//! Slack shows the answer to the user, so an accepted event gets an empty answer.

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored::IgnoreReason;
use serde_json::{Value, json};

use super::buttons;
use crate::listener::{DirectResponse, InboundRequest, MalformedRequest};
use crate::payload::{event_id, form, instance_key, is_allowed, properties, required, text};

/// Parses a form. If `channels` is given, only these channels are listened to; `asks` is true if
/// people are asked to approve tool calls.
pub(super) fn meaning(
    body: &[u8],
    channels: Option<&[String]>,
    asks: bool,
) -> Result<InboundRequest, MalformedRequest> {
    let form = form(body)?;
    if form.get("ssl_check").is_some() {
        return Ok(nothing(IgnoreReason::Ping));
    }
    let event = match form.get("payload").and_then(Value::as_str) {
        Some(payload) => {
            let payload = serde_json::from_str(payload).map_err(MalformedRequest::NotJson)?;
            if let Some(pressed) = buttons::to_pressed(&payload).filter(|_| asks) {
                return Ok(InboundRequest::Pressed(Box::new(pressed)));
            }
            action(&payload)?
        }
        None if form.get("command").is_some() => Some(command(&form)?),
        None => return Err(MalformedRequest::NoField { field: "payload" }),
    };
    let Some(event) = event else {
        return Ok(nothing(IgnoreReason::Unsupported));
    };
    let channel = event.properties.get("channel").and_then(Value::as_str);
    if channels.is_some() && !channel.is_some_and(|channel| is_allowed(channels, channel)) {
        return Ok(nothing(IgnoreReason::OtherPlace));
    }
    let answer = DirectResponse::ok(Value::Null);
    Ok(InboundRequest::Asked(Box::new(event), answer))
}

fn nothing(reason: IgnoreReason) -> InboundRequest {
    InboundRequest::Answer(DirectResponse::ok(Value::Null).counted_as(reason))
}

/// A slash command: the text after it is the input.
fn command(form: &Value) -> Result<ConnectorEvent, MalformedRequest> {
    let team = required(form, "/team_id")?;
    let channel = required(form, "/channel_id")?;
    let command = required(form, "/command")?;
    let trigger = required(form, "/trigger_id")?;
    let said = text(form, "/text").unwrap_or_default().trim();
    Ok(ConnectorEvent {
        id: Some(event_id(&format!("slack:{team}:command:{trigger}"))?),
        name: "slash_command".to_owned(),
        input: format!("{command} {said}").trim_end().to_owned(),
        instance_key: Some(instance_key(&format!("slack:{team}:{channel}"))?),
        properties: properties([
            ("team", form.get("team_id")),
            ("channel", form.get("channel_id")),
            ("user", form.get("user_id")),
            ("command", form.get("command")),
        ]),
        auth: text(form, "/user_id").map(|user| auth(team, user)),
        metadata: JsonObject::from_iter([("channel".to_owned(), json!(channel))]),
    })
}

struct SlackInteraction<'p> {
    name: &'static str,
    action: &'p str,
    input: String,
    /// Unique id of the interaction.
    mark: Option<&'p str>,
}

fn acted<'p>(
    payload: &'p Value,
    kind: &str,
) -> Result<Option<SlackInteraction<'p>>, MalformedRequest> {
    Ok(Some(match kind {
        "block_actions" => {
            let first = payload.pointer("/actions/0");
            let first = first.ok_or(MalformedRequest::NoField {
                field: "/actions/0",
            })?;
            let action = required(first, "/action_id")?;
            SlackInteraction {
                name: "block_action",
                action,
                input: chosen(first).unwrap_or_else(|| action.to_owned()),
                mark: text(first, "/action_ts").or_else(|| text(payload, "/trigger_id")),
            }
        }
        "shortcut" | "message_action" => {
            let action = required(payload, "/callback_id")?;
            SlackInteraction {
                name: "shortcut",
                action,
                input: text(payload, "/message/text").unwrap_or(action).to_owned(),
                mark: text(payload, "/trigger_id"),
            }
        }
        "view_submission" => {
            let action = required(payload, "/view/callback_id")?;
            let values = payload.pointer("/view/state/values");
            SlackInteraction {
                name: "view_submission",
                action,
                input: values.map_or_else(|| action.to_owned(), Value::to_string),
                mark: text(payload, "/view/hash").or_else(|| text(payload, "/trigger_id")),
            }
        }
        _ => return Ok(None),
    }))
}

/// An interaction with the app's messages and dialogs; `None` if it is irrelevant.
fn action(payload: &Value) -> Result<Option<ConnectorEvent>, MalformedRequest> {
    let kind = required(payload, "/type")?;
    let team = text(payload, "/team/id").or_else(|| text(payload, "/user/team_id"));
    let team = team.ok_or(MalformedRequest::NoField { field: "/team/id" })?;
    let user = required(payload, "/user/id")?;
    let Some(SlackInteraction {
        name,
        action,
        input,
        mark,
    }) = acted(payload, kind)?
    else {
        return Ok(None);
    };
    let mark = mark.ok_or(MalformedRequest::NoField {
        field: "/trigger_id",
    })?;
    let channel = text(payload, "/channel/id").or_else(|| text(payload, "/container/channel_id"));
    let thread =
        text(payload, "/message/thread_ts").or_else(|| text(payload, "/container/thread_ts"));
    let key = match (channel, thread) {
        (Some(channel), Some(thread)) => format!("slack:{team}:{channel}:{thread}"),
        (Some(channel), None) => format!("slack:{team}:{channel}"),
        (None, _) => format!("slack:{team}:{user}"),
    };
    let mut metadata = JsonObject::new();
    let ts = text(payload, "/message/ts").or_else(|| text(payload, "/container/message_ts"));
    for (name, value) in [
        ("channel", channel),
        ("ts", ts),
        ("threadTs", thread.or(ts)),
    ] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), json!(value));
        }
    }
    let said = |text: Option<&str>| text.map(|text| json!(text));
    let (team_told, user_told, channel_told) = (json!(team), json!(user), said(channel));
    let (thread_told, ts_told, action_told) = (said(thread), said(ts), json!(action));
    Ok(Some(ConnectorEvent {
        id: Some(event_id(&format!(
            "slack:{team}:action:{user}:{action}:{mark}"
        ))?),
        name: name.to_owned(),
        input,
        instance_key: Some(instance_key(&key)?),
        properties: properties([
            ("team", Some(&team_told)),
            ("channel", channel_told.as_ref()),
            ("user", Some(&user_told)),
            ("action", Some(&action_told)),
            ("threadTs", thread_told.as_ref()),
            ("ts", ts_told.as_ref()),
        ]),
        auth: Some(auth(team, user)),
        metadata,
    }))
}

/// The chosen or entered value as text.
fn chosen(action: &Value) -> Option<String> {
    let places = [
        "/value",
        "/selected_option/value",
        "/selected_user",
        "/selected_channel",
        "/selected_conversation",
        "/selected_date",
        "/selected_time",
        "/text/text",
    ];
    let single = places.iter().find_map(|place| text(action, place));
    let single = single.filter(|text| !text.trim().is_empty());
    single.map(str::to_owned).or_else(|| {
        let several = [
            "/selected_options",
            "/selected_users",
            "/selected_channels",
            "/selected_conversations",
        ];
        let several = several
            .iter()
            .find_map(|place| action.pointer(place)?.as_array())?;
        let words = several
            .iter()
            .filter_map(|one| one.as_str().or_else(|| text(one, "/value")));
        let words: Vec<&str> = words.collect();
        (!words.is_empty()).then(|| words.join(", "))
    })
}

fn auth(team: &str, user: &str) -> JsonObject {
    JsonObject::from_iter([
        ("service".to_owned(), json!("slack")),
        ("team".to_owned(), json!(team)),
        ("user".to_owned(), json!(user)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> InboundRequest {
        meaning(body.as_bytes(), None, false).unwrap()
    }

    fn event(meaning: InboundRequest) -> ConnectorEvent {
        match meaning {
            InboundRequest::Asked(event, answer) => {
                assert_eq!(
                    answer,
                    DirectResponse::ok(Value::Null),
                    "Slack shows what it is answered"
                );
                *event
            }
            other => panic!("{other:?}"),
        }
    }

    fn payload(payload: &Value) -> String {
        let mut url = reqwest::Url::parse("http://x").unwrap();
        url.query_pairs_mut()
            .append_pair("payload", &payload.to_string());
        url.query().unwrap().to_owned()
    }

    #[test]
    fn slack_slash_command_becomes_an_event_with_its_text() {
        let body = "team_id=T1&channel_id=C1&user_id=U1&command=%2Fweather&text=94070+%EA%B3%A0&\
                    response_url=https%3A%2F%2Fhooks.slack.com%2F1&trigger_id=13.9";
        let found = event(read(body));
        assert_eq!(found.name, "slash_command");
        assert_eq!(found.input, "/weather 94070 고");
        assert_eq!(found.id.unwrap().as_str(), "slack:T1:command:13.9");
        assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1");
        assert_eq!(found.properties["command"], "/weather");
        assert_eq!(found.auth.unwrap()["user"], "U1");
        let channels = ["C2".to_owned()];
        let elsewhere = meaning(body.as_bytes(), Some(&channels), false).unwrap();
        assert_eq!(elsewhere, nothing(IgnoreReason::OtherPlace));
        let ping = read("ssl_check=1&token=x");
        assert_eq!(ping, nothing(IgnoreReason::Ping));
    }

    #[test]
    fn buttons_menus_shortcuts_and_dialogs_are_events() {
        let button = json!({"type": "block_actions", "team": {"id": "T1"}, "user": {"id": "U1"},
            "channel": {"id": "C1"}, "message": {"ts": "1.5", "thread_ts": "1.0"}, "trigger_id": "9",
            "actions": [{"action_id": "approve", "action_ts": "2.5", "value": "yes",
                "text": {"text": "Approve"}}]});
        let found = event(read(&payload(&button)));
        assert_eq!(
            (found.name.as_str(), found.input.as_str()),
            ("block_action", "yes")
        );
        assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1:1.0");
        assert_eq!(found.properties["action"], "approve");
        assert_eq!(found.metadata["threadTs"], "1.0");
        let mut menu = button.clone();
        menu["actions"][0] = json!({"action_id": "pick", "action_ts": "3", "selected_options":
            [{"value": "a"}, {"value": "b"}]});
        assert_eq!(event(read(&payload(&menu))).input, "a, b");
        let shortcut = json!({"type": "message_action", "callback_id": "sum_up", "trigger_id": "9",
            "team": {"id": "T1"}, "user": {"id": "U1"}, "channel": {"id": "C1"},
            "message": {"ts": "1.5", "text": "Long story."}});
        let found = event(read(&payload(&shortcut)));
        assert_eq!(
            (found.name.as_str(), found.input.as_str()),
            ("shortcut", "Long story.")
        );
        let dialog = json!({"type": "view_submission", "team": {"id": "T1"}, "user": {"id": "U1"},
            "view": {"callback_id": "order", "hash": "h", "state": {"values": {"b": {"a": {"value": "tea"}}}}}});
        let found = event(read(&payload(&dialog)));
        assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:U1");
        assert!(found.input.contains("tea"));
        let closed = json!({"type": "view_closed", "team": {"id": "T1"}, "user": {"id": "U1"}});
        let closed = read(&payload(&closed));
        assert_eq!(closed, nothing(IgnoreReason::Unsupported));
    }

    #[test]
    fn steer_3_own_button_is_no_event_in_the_approval_channel() {
        let button = json!({"type": "block_actions", "team": {"id": "T1"}, "user": {"id": "U1"},
            "channel": {"id": "C1"}, "message": {"ts": "1.5"}, "trigger_id": "9",
            "actions": [{"action_id": "goondan:deny", "action_ts": "2.5", "value": "a-1"}]});
        let body = payload(&button);
        let channels = ["C2".to_owned()];
        let asked = meaning(body.as_bytes(), Some(&channels), true).unwrap();
        assert!(matches!(asked, InboundRequest::Pressed(_)), "{asked:?}");
        // Without approvals, it is an ordinary button.
        assert_eq!(event(read(&body)).input, "a-1");
    }

    #[test]
    fn invalid_slack_form_is_rejected_with_its_missing_field() {
        let refused = |body: &str| {
            meaning(body.as_bytes(), None, false)
                .unwrap_err()
                .to_string()
        };
        assert!(refused("a=b").contains("`payload`"));
        assert!(refused("payload=%7B").contains("is not valid JSON"));
        assert!(refused("command=%2Fx&team_id=T").contains("`/channel_id`"));
    }
}
