//! Decisions that wait for a person, in a Slack channel.

use std::sync::Arc;

use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionPress};
use goondan_protocol::ids::DecisionId;
use serde_json::{Value, json};

use super::actions::Api;
use super::description::plain;
use super::messages::{MENTION, MESSAGE, without_mention};
use super::mrkdwn::verbatim;
use crate::decisions::{Board, Buttons, ChatReply, Message, MessageRejection, with};
use crate::listener::ButtonPress;
use crate::payload::text;

/// Prefix of the action ids of our buttons, before the answer.
const ACTION_PREFIX: &str = "goondan:";

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

/// The press of one of our buttons, if the payload is one.
pub(super) fn to_pressed(payload: &Value) -> Option<ButtonPress> {
    if text(payload, "/type") != Some("block_actions") {
        return None;
    }
    let action = text(payload, "/actions/0/action_id")?;
    let answer = DecisionButton::of_word(action.strip_prefix(ACTION_PREFIX)?)?;
    let user = text(payload, "/user/id")?;
    let channel =
        text(payload, "/channel/id").or_else(|| text(payload, "/container/channel_id"))?;
    let ts = text(payload, "/message/ts").or_else(|| text(payload, "/container/message_ts"))?;
    Some(ButtonPress {
        press: DecisionPress {
            decision_id: DecisionId::new(text(payload, "/actions/0/value")?).ok()?,
            answer: DecisionAnswer::Button(answer),
            user: user.to_owned(),
        },
        place: format!("{channel}:{ts}"),
        to: format!("{channel}:{user}"),
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
    let mut blocks = sections(&message.headline("Reply in the thread to"));
    blocks.extend(sections(&message.body));
    let buttons = message.buttons.as_ref().filter(|it| !it.choices.is_empty());
    blocks.extend(buttons.map(row));
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

fn row(buttons: &Buttons) -> Value {
    let elements: Vec<Value> = buttons
        .offered()
        .map(|(answer, label)| {
            let action = format!("{ACTION_PREFIX}{answer}");
            let button = json!({"type": "button", "action_id": action, "value": buttons.decision_id,
                "text": {"type": "plain_text", "text": labeled(label), "emoji": false}});
            match style_of(answer) {
                Some(style) => with(button, [("style", json!(style))]),
                None => button,
            }
        })
        .collect();
    json!({"type": "actions", "elements": elements})
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
        let pressed = to_pressed(&payload("goondan:approve", "a-1")).unwrap();
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
        assert_eq!(to_pressed(&payload("approve", "a-1")), None);
        assert_eq!(to_pressed(&payload("goondan:approve", "a 1")), None);
        let mut other = payload("goondan:approve", "a-1");
        other["type"] = json!("view_submission");
        assert_eq!(to_pressed(&other), None);
    }
}
