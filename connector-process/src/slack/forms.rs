//! Forms sent by Slack: slash commands, and interactions with buttons, shortcuts and dialogs.
//!
//! Slack shows the answer to the user, so an accepted event gets an empty answer.
//!
//! * `values`: choices and entries of a person.

mod values;

use std::borrow::Cow;

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};

use self::values::{action_words, entered};
use super::decisions::{DecisionInteraction, FormRequest, to_decision};
use super::description::{files, joined, list, message_words, plain};
use super::messages::{Filters, Ignored, OTHER_CHANNEL, auth, is_direct, key_of};
use crate::listener::{ButtonPress, MalformedRequest};
use crate::payload::{add_payload, event_id, form, instance_key, properties, required, text};

/// Kinds of payloads that need no answer of an agent, and why.
const IGNORED: [(&str, &str); 4] = [
    ("view_closed", "a dialog was closed"),
    ("dialog_cancellation", "a dialog was closed"),
    ("workflow_step_edit", "steps of workflows are not supported"),
    (
        "workflow_step_execute",
        "steps of workflows are not supported",
    ),
];

/// Words of a withdrawn choice.
const NOTHING: &str = "(nothing)";

/// A parsed form.
#[derive(Debug, PartialEq)]
pub(super) enum FormMeaning {
    Event(Box<ConnectorEvent>),
    /// A press of one of our buttons.
    Pressed(Box<ButtonPress>),
    /// A press of the button that opens our form.
    Form(Box<FormRequest>),
    /// A request for the choices of a list.
    Choices,
    /// Ignored, for this reason.
    Ignored(Ignored),
}

/// Parses a form; `asks` is true if people are asked to approve tool calls.
pub(super) fn meaning(
    body: &[u8],
    filters: &Filters,
    asks: bool,
) -> Result<FormMeaning, MalformedRequest> {
    let form = form(body)?;
    if form.get("ssl_check").is_some() {
        let why = "it checks the certificate";
        return Ok(FormMeaning::Ignored(Ignored::new(IgnoreReason::Ping, why)));
    }
    let event = match form.get("payload").and_then(Value::as_str) {
        Some(payload) => {
            let payload = serde_json::from_str(payload).map_err(MalformedRequest::NotJson)?;
            match to_decision(&payload).filter(|_| asks) {
                Some(DecisionInteraction::Pressed(pressed)) => {
                    return Ok(FormMeaning::Pressed(Box::new(pressed)));
                }
                Some(DecisionInteraction::Form(request)) => {
                    return Ok(FormMeaning::Form(Box::new(request)));
                }
                None => {}
            }
            let kind = required(&payload, "/type")?;
            if matches!(kind, "block_suggestion" | "dialog_suggestion") {
                return Ok(FormMeaning::Choices);
            }
            match interaction(&payload, kind)? {
                Ok(event) => event,
                Err(ignored) => return Ok(FormMeaning::Ignored(ignored)),
            }
        }
        None if form.get("command").is_some() => command(&form)?,
        None => return Err(MalformedRequest::NoField { field: "payload" }),
    };
    // Without a channel, the person's direct chat with the app is the place.
    let place = event.metadata.get("channel").and_then(Value::as_str);
    let is_listened_to =
        filters.channels.is_none() || place.is_some_and(|place| filters.has_channel(place));
    Ok(match is_listened_to {
        true => FormMeaning::Event(Box::new(event)),
        false => FormMeaning::Ignored(Ignored::new(IgnoreReason::OtherPlace, OTHER_CHANNEL)),
    })
}

/// A slash command: the text after it is the input.
fn command(form: &Value) -> Result<ConnectorEvent, MalformedRequest> {
    let team = text(form, "/team_id").or_else(|| text(form, "/enterprise_id"));
    let team = team.ok_or(MalformedRequest::NoField { field: "/team_id" })?;
    let channel = required(form, "/channel_id")?;
    let command = required(form, "/command")?;
    let trigger = required(form, "/trigger_id")?;
    let said = plain(text(form, "/text").unwrap_or_default().trim());
    let key = key_of(team, channel, text(form, "/thread_ts"));
    let team_told = json!(team);
    let mut metadata = JsonObject::from_iter([("channel".to_owned(), json!(channel))]);
    add_payload(&mut metadata, form);
    Ok(ConnectorEvent {
        id: Some(event_id(&format!("slack:{team}:command:{trigger}"))?),
        name: "slash_command".to_owned(),
        input: format!("{command} {said}").trim_end().to_owned(),
        instance_key: Some(instance_key(&key)?),
        properties: properties([
            ("team", Some(&team_told)),
            ("channel", form.get("channel_id")),
            ("channelName", form.get("channel_name")),
            ("user", form.get("user_id")),
            ("userName", form.get("user_name")),
            ("command", form.get("command")),
        ]),
        auth: text(form, "/user_id").map(|user| auth(team, user)),
        metadata,
    })
}

struct SlackInteraction<'p> {
    name: &'static str,
    action: &'p str,
    input: String,
    /// Unique id of the interaction.
    mark: Option<&'p str>,
}

/// The interaction, or the reason to ignore it.
fn acted<'p>(
    payload: &'p Value,
    kind: &str,
) -> Result<Result<SlackInteraction<'p>, Ignored>, MalformedRequest> {
    let trigger = text(payload, "/trigger_id");
    Ok(Ok(match kind {
        "block_actions" => {
            let first = payload.pointer("/actions/0");
            let first = first.ok_or(MalformedRequest::NoField {
                field: "/actions/0",
            })?;
            let action = required(first, "/action_id")?;
            SlackInteraction {
                name: "block_action",
                action,
                input: block_action_words(payload, action),
                mark: text(first, "/action_ts").or(trigger),
            }
        }
        "interactive_message" => {
            let action = required(payload, "/callback_id")?;
            let words = list(payload, "actions").iter().filter_map(action_words);
            SlackInteraction {
                name: "block_action",
                action,
                input: or_name(joined(words), action),
                mark: text(payload, "/action_ts").or(trigger),
            }
        }
        "shortcut" | "message_action" => {
            let action = required(payload, "/callback_id")?;
            let message = payload.get("message").map(message_words);
            SlackInteraction {
                name: "shortcut",
                action,
                input: or_name(message.unwrap_or_default(), action),
                mark: trigger.or_else(|| text(payload, "/action_ts")),
            }
        }
        "view_submission" => {
            let action = text(payload, "/view/callback_id").filter(|id| !id.is_empty());
            let action =
                action.or_else(|| text(payload, "/view/external_id").filter(|id| !id.is_empty()));
            let action = action.or_else(|| text(payload, "/view/id"));
            let action = action.ok_or(MalformedRequest::NoField {
                field: "/view/callback_id",
            })?;
            let view = payload.get("view").unwrap_or(&Value::Null);
            let title = text(view, "/title/text").map(plain).unwrap_or_default();
            let fields = entered(view.pointer("/state/values"), list(view, "blocks"), None);
            SlackInteraction {
                name: "view_submission",
                action,
                input: or_name(joined([title, fields]), action),
                mark: text(view, "/hash").or(trigger),
            }
        }
        "dialog_submission" => {
            let action = required(payload, "/callback_id")?;
            let fields = payload.get("submission").and_then(Value::as_object);
            let fields = fields.into_iter().flatten();
            let fields =
                fields.filter_map(|(name, value)| Some(format!("{name}: {}", value.as_str()?)));
            SlackInteraction {
                name: "view_submission",
                action,
                input: or_name(joined(fields), action),
                mark: text(payload, "/action_ts").or(trigger),
            }
        }
        _ => {
            let known = IGNORED.iter().find(|(name, _)| *name == kind);
            let why: Cow<'static, str> = match known {
                Some((_, why)) => Cow::Borrowed(*why),
                None => format!("`{kind}` is not supported").into(),
            };
            return Ok(Err(Ignored::new(IgnoreReason::Unsupported, why)));
        }
    }))
}

/// The choice of a person, and the other inputs of the message or dialog.
fn block_action_words(payload: &Value, action: &str) -> String {
    let actions = list(payload, "actions");
    let chosen = actions.iter().filter_map(action_words);
    let place = ["/message/blocks", "/view/blocks"];
    let blocks = place
        .iter()
        .find_map(|place| payload.pointer(place)?.as_array());
    let others = entered(
        payload
            .pointer("/state/values")
            .or_else(|| payload.pointer("/view/state/values")),
        blocks.map_or(&[][..], Vec::as_slice),
        Some(actions),
    );
    let words = joined(chosen.chain([others]));
    let is_cleared = text(payload, "/actions/0/type").is_some_and(|kind| kind != "button");
    match words.is_empty() && is_cleared {
        true => NOTHING.to_owned(),
        false => or_name(words, action),
    }
}

/// The words, or the app's own name of the interaction.
fn or_name(words: String, name: &str) -> String {
    match words.trim().is_empty() {
        true => name.to_owned(),
        false => words,
    }
}

/// A place that an app stores in its dialog.
struct NamedPlace {
    channel: String,
    thread: Option<String>,
}

/// The place that `private_metadata` names: the ID of a channel, or JSON with `channel` and
/// `thread_ts`. The app writes it, and people cannot change it.
fn named_place(private: &str) -> Option<NamedPlace> {
    let named =
        serde_json::from_str::<Value>(private).unwrap_or_else(|_text| json!({"channel": private}));
    let channel = text(&named, "/channel").or_else(|| text(&named, "/channel_id"))?;
    let is_channel = channel.len() > 1
        && channel.starts_with(['C', 'G', 'D'])
        && channel
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    is_channel.then(|| NamedPlace {
        channel: channel.to_owned(),
        thread: text(&named, "/thread_ts").map(str::to_owned),
    })
}

/// An interaction with the app's messages and dialogs, or the reason to ignore it.
fn interaction(
    payload: &Value,
    kind: &str,
) -> Result<Result<ConnectorEvent, Ignored>, MalformedRequest> {
    let SlackInteraction {
        name,
        action,
        input,
        mark,
    } = match acted(payload, kind)? {
        Ok(interaction) => interaction,
        Err(ignored) => return Ok(Err(ignored)),
    };
    let team = ["/team/id", "/user/team_id", "/enterprise/id"];
    let team = team.iter().find_map(|place| text(payload, place));
    let team = team.ok_or(MalformedRequest::NoField { field: "/team/id" })?;
    let user = required(payload, "/user/id")?;
    let mark = mark.ok_or(MalformedRequest::NoField {
        field: "/trigger_id",
    })?;
    let first = |places: &[&str]| places.iter().find_map(|place| text(payload, place));
    let channel = first(&[
        "/channel/id",
        "/container/channel_id",
        "/response_urls/0/channel_id",
    ]);
    let private = text(payload, "/view/private_metadata").filter(|it| !it.is_empty());
    let named = private.and_then(named_place);
    let channel = channel.or(named.as_ref().map(|named| named.channel.as_str()));
    let thread = first(&["/message/thread_ts", "/container/thread_ts"]);
    // A thread of another channel is not the one of this place.
    let is_there = named
        .as_ref()
        .filter(|it| channel == Some(it.channel.as_str()));
    let thread = thread.or(is_there.and_then(|named| named.thread.as_deref()));
    let ts = first(&["/message/ts", "/container/message_ts", "/message_ts"]);
    // An own view of the app has no message under which an answer belongs.
    let root = thread.or(ts);
    let key = match channel {
        Some(channel) => {
            let kind = (text(payload, "/channel/name") == Some("directmessage")).then_some("im");
            key_of(team, channel, root.filter(|_| !is_direct(channel, kind)))
        }
        None => format!("slack:{team}:{user}"),
    };
    let mut metadata = JsonObject::new();
    // Without a channel, an answer goes to the direct chat with the person.
    let home = channel.or(Some(user));
    for (name, value) in [("channel", home), ("ts", ts), ("threadTs", root)] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), json!(value));
        }
    }
    add_payload(&mut metadata, payload);
    let of_message = payload.get("message").and_then(files);
    for (name, value) in [
        ("fromName", text(payload, "/user/name").map(Value::from)),
        (
            "channelName",
            text(payload, "/channel/name").map(Value::from),
        ),
        ("files", of_message),
    ] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), value);
        }
    }
    if let Some(private) = private {
        metadata.insert("privateMetadata".to_owned(), json!(private));
    }
    let told = |text: Option<&str>| text.map(|text| json!(text));
    let (team_told, user_told, channel_told) = (json!(team), json!(user), told(channel));
    let (thread_told, ts_told, action_told) = (told(thread), told(ts), json!(action));
    let user_name = told(first(&["/user/name", "/user/username"]));
    Ok(Ok(ConnectorEvent {
        id: Some(event_id(&format!(
            "slack:{team}:action:{user}:{action}:{mark}"
        ))?),
        name: name.to_owned(),
        input,
        instance_key: Some(instance_key(&key)?),
        properties: properties([
            ("team", Some(&team_told)),
            ("channel", channel_told.as_ref()),
            ("channelName", payload.pointer("/channel/name")),
            ("user", Some(&user_told)),
            ("userName", user_name.as_ref()),
            ("action", Some(&action_told)),
            ("threadTs", thread_told.as_ref()),
            ("ts", ts_told.as_ref()),
        ]),
        auth: Some(auth(team, user)),
        metadata,
    }))
}

#[cfg(test)]
#[path = "forms/tests.rs"]
mod tests;
