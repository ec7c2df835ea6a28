//! Decisions that wait for a person, in a Slack channel. A text is entered as a reply in the thread
//! of the message, or in a form, which a button opens.

use std::sync::Arc;

use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionPress};
use goondan_protocol::ids::DecisionId;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::actions::Api;
use super::description::plain;
use super::messages::{MENTION, MESSAGE, without_mention};
use super::mrkdwn::verbatim;
use crate::decisions::{Board, Buttons, ChatReply, Message, MessageRejection, with};
use crate::listener::ButtonPress;
use crate::payload::text;

/// Prefix of the action ids of our buttons, before the answer.
const ACTION_PREFIX: &str = "goondan:";

/// Word of the button that opens the form for a text, and of the form.
const TEXT: &str = "text";

/// Longest text of a form, in characters: Slack's limit.
const TEXT_CHARS_MAX: u64 = 3_000;

/// Color of a button, if it has one.
const fn style_of(answer: DecisionButton) -> Option<&'static str> {
    match answer {
        DecisionButton::Approve => Some("primary"),
        DecisionButton::Deny => Some("danger"),
        DecisionButton::Option(_) => None,
    }
}

/// Longest label of a button, in characters. Slack's limit is 75.
const LABEL_CHARS_MAX: usize = 75;

/// Longest text of one block, in characters. Slack's limit is 3000.
const BLOCK_CHARS_MAX: usize = 2_900;

/// An interaction with one of our messages or forms.
#[derive(Debug, PartialEq)]
pub(super) enum DecisionInteraction {
    Pressed(ButtonPress),
    Form(FormRequest),
}

/// A request of a person to open the form for a text.
#[derive(Debug, PartialEq)]
pub(super) struct FormRequest {
    /// Slack's permission to open a form, valid for three seconds.
    trigger: String,
    view: Value,
    /// The person, for a notice.
    to: String,
}

/// The interaction with one of our messages or forms, if the payload is one.
pub(super) fn to_decision(payload: &Value) -> Option<DecisionInteraction> {
    let user = text(payload, "/user/id")?;
    let pressed = |id: &str, answer, channel: &str, place: &str| {
        Some(DecisionInteraction::Pressed(ButtonPress {
            press: DecisionPress {
                decision_id: DecisionId::new(id).ok()?,
                answer,
                user: user.to_owned(),
            },
            place: place.to_owned(),
            to: format!("{channel}:{user}"),
        }))
    };
    match text(payload, "/type")? {
        "block_actions" => {
            let action = text(payload, "/actions/0/action_id")?;
            let word = action.strip_prefix(ACTION_PREFIX)?;
            let id = text(payload, "/actions/0/value")?;
            let channel = text(payload, "/channel/id");
            let channel = channel.or_else(|| text(payload, "/container/channel_id"))?;
            let ts = text(payload, "/message/ts");
            let ts = ts.or_else(|| text(payload, "/container/message_ts"))?;
            let place = format!("{channel}:{ts}");
            if word == TEXT {
                return Some(DecisionInteraction::Form(FormRequest {
                    trigger: text(payload, "/trigger_id")?.to_owned(),
                    view: form(&DecisionId::new(id).ok()?, &place),
                    to: format!("{channel}:{user}"),
                }));
            }
            let answer = DecisionAnswer::Button(DecisionButton::of_word(word)?);
            pressed(id, answer, channel, &place)
        }
        "view_submission" => {
            let form = text(payload, "/view/callback_id")?.strip_prefix(ACTION_PREFIX)?;
            let id = form.strip_prefix(TEXT)?.strip_prefix(':')?;
            let entered = format!("/view/state/values/{TEXT}/{TEXT}/value");
            let entered = text(payload, &entered).map(str::trim);
            let entered = entered.filter(|entered| !entered.is_empty())?;
            let place = text(payload, "/view/private_metadata")?;
            let (channel, _) = place.split_once(':')?;
            pressed(id, DecisionAnswer::Text(entered.to_owned()), channel, place)
        }
        _ => None,
    }
}

/// The form for a text about the decision of this message.
fn form(decision_id: &DecisionId, place: &str) -> Value {
    let plain = |text: &str| json!({"type": "plain_text", "text": text});
    let input = json!({"type": "plain_text_input", "action_id": TEXT, "multiline": true,
        "max_length": TEXT_CHARS_MAX});
    json!({
        "type": "modal",
        "callback_id": format!("{ACTION_PREFIX}{TEXT}:{decision_id}"),
        "private_metadata": place,
        "title": plain("Answer"),
        "submit": plain("Send"),
        "close": plain("Cancel"),
        "blocks": [{"type": "input", "block_id": TEXT, "label": plain("Text"), "element": input}],
    })
}

/// The reply in the thread of a message, if the payload is one. Slack reports a reply that mentions
/// the app as a mention, perhaps as a message, too.
pub(super) fn to_reply(body: &Value) -> Option<ChatReply> {
    let event = body.get("event")?;
    let is_plain = event.get("subtype").is_none() && event.get("bot_id").is_none();
    let kind = text(event, "/type").filter(|kind| matches!(*kind, MESSAGE | MENTION))?;
    if !is_plain {
        return None;
    }
    let entered = text(event, "/text")?;
    let (channel, user) = (text(event, "/channel")?, text(event, "/user")?);
    Some(ChatReply {
        place: format!("{channel}:{}", text(event, "/thread_ts")?),
        user: user.to_owned(),
        text: plain(without_mention(body, kind, entered).unwrap_or(entered)),
        to: format!("{channel}:{user}"),
    })
}

/// Opens the requested forms until the sender is dropped.
pub(super) async fn open_forms(channel: &Channel, mut requests: mpsc::Receiver<FormRequest>) {
    while let Some(FormRequest { trigger, view, to }) = requests.recv().await {
        let params = json!({"trigger_id": trigger, "view": view});
        let Err(error) = channel.api.ask("views.open", &params, false).await else {
            continue;
        };
        tracing::warn!(reason = error.message, "failed to open a form in Slack");
        let advice = "The form cannot be opened. Reply in the thread of the message instead.";
        if let Err(rejection) = channel.tell(&to, advice).await {
            tracing::debug!(reason = rejection.reason, "failed to notify a user");
        }
    }
}

pub(super) struct Channel {
    pub(super) api: Arc<Api>,
    pub(super) channel: String,
}

/// Blocks of verbatim text.
fn sections(text: &str) -> Vec<Value> {
    let mut blocks = vec![String::new()];
    let mut chars = 0;
    for c in text.chars() {
        let piece = verbatim(c.encode_utf8(&mut [0; 4]));
        chars += piece.len();
        if chars > BLOCK_CHARS_MAX {
            blocks.push(String::new());
            chars = piece.len();
        }
        if let Some(block) = blocks.last_mut() {
            block.push_str(&piece);
        }
    }
    let plain = |text: String| json!({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": false}});
    blocks.into_iter().map(plain).collect()
}

/// A message in Slack's format.
fn written(message: &Message) -> Value {
    let mut blocks = sections(&message.headline("Reply in the thread, or press Text…, to"));
    blocks.extend(sections(&message.body));
    let buttons = message.buttons.as_ref();
    blocks.extend(buttons.and_then(|it| row(it, message.reply.is_some())));
    json!({
        // Text of the notification.
        "text": verbatim(&message.head),
        "blocks": blocks,
        "unfurl_links": false,
        "unfurl_media": false,
    })
}

/// A label in Slack's escaping, which makes it longer.
fn labeled(label: &str) -> String {
    let mut labeled = String::new();
    let mut chars_left = LABEL_CHARS_MAX;
    for c in label.chars() {
        let piece = verbatim(c.encode_utf8(&mut [0; 4]));
        let Some(left) = chars_left.checked_sub(piece.chars().count()) else {
            break;
        };
        chars_left = left;
        labeled.push_str(&piece);
    }
    labeled
}

/// The buttons, if there are any.
fn row(buttons: &Buttons, takes_text: bool) -> Option<Value> {
    let button = |word: &str, label: &str| {
        let action = format!("{ACTION_PREFIX}{word}");
        json!({"type": "button", "action_id": action, "value": buttons.decision_id,
            "text": {"type": "plain_text", "text": labeled(label), "emoji": false}})
    };
    let choices = buttons.offered().map(|(answer, label)| {
        let button = button(&answer.to_string(), label);
        match style_of(answer) {
            Some(style) => with(button, [("style", json!(style))]),
            None => button,
        }
    });
    let text = takes_text.then(|| button(TEXT, "Text…"));
    let elements: Vec<Value> = choices.chain(text).collect();
    (!elements.is_empty()).then(|| json!({"type": "actions", "elements": elements}))
}

impl Board for Channel {
    async fn post(&self, message: &Message) -> Result<String, MessageRejection> {
        let params = with(written(message), [("channel", json!(self.channel))]);
        let posted = self.api.ask("chat.postMessage", &params, false).await;
        let posted = posted.map_err(MessageRejection::from)?;
        let channel = text(&posted, "/channel").unwrap_or(&self.channel);
        let ts = text(&posted, "/ts").unwrap_or_default();
        Ok(format!("{channel}:{ts}"))
    }

    async fn edit(&self, place: &str, message: &Message) -> Result<(), MessageRejection> {
        let (channel, ts) = place.split_once(':').unwrap_or_default();
        let fields = [("channel", json!(channel)), ("ts", json!(ts))];
        let params = with(written(message), fields);
        let edited = self.api.ask("chat.update", &params, true).await;
        edited.map(drop).map_err(MessageRejection::from)
    }

    async fn tell(&self, to: &str, said: &str) -> Result<(), MessageRejection> {
        let (channel, user) = to.split_once(':').unwrap_or_default();
        let params = json!({"channel": channel, "user": user, "text": verbatim(said)});
        let reply = self.api.ask("chat.postEphemeral", &params, false).await;
        reply.map(drop).map_err(MessageRejection::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str, may_approve: bool) -> Message {
        Message {
            head: "Tool call a-1 waits for a person.".to_owned(),
            reply: None,
            body: body.to_owned(),
            buttons: Some(Buttons::of_call("a-1", may_approve)),
        }
    }

    #[test]
    fn steer_3_agent_text_in_slack_has_no_markup_and_no_mentions() {
        let params = written(&message("<!channel> *b* & :x:", true));
        let block = &params["blocks"][1]["text"];
        assert_eq!(block["text"], "&lt;!channel&gt; *b* &amp; :x:");
        assert_eq!(
            (&block["type"], &block["emoji"]),
            (&json!("plain_text"), &json!(false))
        );
        assert_eq!(params["text"], "Tool call a-1 waits for a person.");
        assert_eq!(params["unfurl_links"], false);
        // Even if escaping lengthens the text, each block stays within Slack's limit, and no text
        // is lost.
        let long = written(&message(&"&".repeat(3_000), true));
        let blocks = long["blocks"].as_array().unwrap();
        let texts: Vec<&str> = blocks
            .iter()
            .filter_map(|block| block["text"]["text"].as_str())
            .collect();
        assert!(texts.iter().all(|text| text.len() <= 3_000));
        assert_eq!(texts[1..].concat(), "&amp;".repeat(3_000));
    }

    #[test]
    fn steer_3_slack_buttons_carry_their_approval_and_decision() {
        let actions = |may_approve| {
            let params = written(&message("b", may_approve));
            let elements = params["blocks"][2]["elements"].as_array().cloned();
            let elements = elements.unwrap().into_iter();
            let told = elements.map(|it| (it["action_id"].clone(), it["value"].clone()));
            told.collect::<Vec<_>>()
        };
        let approve = (json!("goondan:approve"), json!("a-1"));
        let deny = (json!("goondan:deny"), json!("a-1"));
        assert_eq!(actions(true), [approve, deny.clone()]);
        assert_eq!(actions(false), [deny]);
        let closed = Message {
            buttons: None,
            ..message("b", true)
        };
        assert_eq!(written(&closed)["blocks"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn need_2_slack_labels_fit_with_their_escapes() {
        assert_eq!(labeled("a & b"), "a &amp; b");
        let long = labeled(&"&".repeat(LABEL_CHARS_MAX));
        assert_eq!(long, "&amp;".repeat(LABEL_CHARS_MAX / 5));
    }

    #[test]
    fn need_2_replies_in_the_thread_of_slack_are_understood() {
        let reply = |fields: Value| {
            let event = json!({"type": "message", "channel": "C1", "user": "U1", "ts": "3.5",
                "thread_ts": "1.5", "text": "light &amp; blue"});
            let mut body = json!({"event": event, "authorizations": [{"user_id": "U9"}]});
            let event = body["event"].as_object_mut().unwrap();
            event.extend(fields.as_object().unwrap().clone());
            to_reply(&body)
        };
        let expected = ChatReply {
            place: "C1:1.5".to_owned(),
            user: "U1".to_owned(),
            text: "light & blue".to_owned(),
            to: "C1:U1".to_owned(),
        };
        assert_eq!(reply(json!({})).as_ref(), Some(&expected));
        let mention = json!({"type": "app_mention", "text": "<@U9> light &amp; blue"});
        assert_eq!(reply(mention).as_ref(), Some(&expected));
        for other in [
            json!({"bot_id": "B7"}),
            json!({"subtype": "message_changed"}),
            json!({"type": "reaction_added"}),
            json!({"thread_ts": null}),
        ] {
            assert_eq!(reply(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn steer_3_only_our_buttons_of_slack_are_understood() {
        let payload = |action: &str, value: &str| {
            json!({"type": "block_actions", "team": {"id": "T1"}, "user": {"id": "U1"},
                "channel": {"id": "C1"}, "message": {"ts": "1.5"}, "trigger_id": "9",
                "actions": [{"action_id": action, "action_ts": "2.5", "value": value}]})
        };
        let Some(DecisionInteraction::Pressed(pressed)) =
            to_decision(&payload("goondan:approve", "a-1"))
        else {
            panic!("it is a press");
        };
        assert_eq!(pressed.press.decision_id.as_str(), "a-1");
        assert_eq!(
            pressed.press.answer,
            DecisionAnswer::Button(DecisionButton::Approve)
        );
        assert_eq!(pressed.press.user, "U1");
        assert_eq!(
            (pressed.place.as_str(), pressed.to.as_str()),
            ("C1:1.5", "C1:U1")
        );
        assert_eq!(to_decision(&payload("approve", "a-1")), None);
        assert_eq!(to_decision(&payload("goondan:approve", "a 1")), None);
        let mut other = payload("goondan:approve", "a-1");
        other["type"] = json!("view_submission");
        assert_eq!(to_decision(&other), None);
    }

    #[test]
    fn need_2_a_slack_button_opens_a_form_for_a_text() {
        let question = Message {
            reply: Some("answer".to_owned()),
            buttons: Some(Buttons {
                decision_id: "t-1".parse().unwrap(),
                choices: Vec::new(),
            }),
            ..message("Which?", true)
        };
        let posted = written(&question);
        let button = &posted["blocks"][2]["elements"][0];
        assert_eq!(button["action_id"], "goondan:text");
        let pressed = json!({"type": "block_actions", "user": {"id": "U1"}, "channel": {"id": "C1"},
            "message": {"ts": "1.5"}, "trigger_id": "9", "actions": [button]});
        let Some(DecisionInteraction::Form(form)) = to_decision(&pressed) else {
            panic!("it opens a form");
        };
        assert_eq!((form.trigger.as_str(), form.to.as_str()), ("9", "C1:U1"));
        // Slack returns the view with the entered text.
        let mut view = form.view;
        let input = view["blocks"][0]["element"]["action_id"].as_str().unwrap();
        let block = view["blocks"][0]["block_id"].as_str().unwrap();
        let entered = json!({block: {input: {"type": "plain_text_input", "value": " blue \n"}}});
        view["state"] = json!({ "values": entered });
        let sent = json!({"type": "view_submission", "user": {"id": "U2"}, "view": view});
        let Some(DecisionInteraction::Pressed(sent)) = to_decision(&sent) else {
            panic!("it is an answer");
        };
        assert_eq!(sent.press.answer, DecisionAnswer::Text("blue".to_owned()));
        assert_eq!(sent.press.decision_id.as_str(), "t-1");
        assert_eq!(
            (
                sent.press.user.as_str(),
                sent.place.as_str(),
                sent.to.as_str()
            ),
            ("U2", "C1:1.5", "C1:U2")
        );
    }
}
