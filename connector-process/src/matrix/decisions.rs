//! Decisions that wait for a person, in a room. Matrix has no buttons: people react with an emoji.
//!
//! The message itself says which decision it is about, and no other account can change it.

use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionPress};
use goondan_protocol::ids::DecisionId;
use serde_json::{Value, json};

use super::actions::transaction;
use super::api::{Api, ApiError};
use super::description::without_fallback;
use super::events::{AUTOMATIC, MESSAGE, NOTICE, REACTION};
use crate::decisions::{Board, Buttons, ChatReply, Message, MessageRejection, with};
use crate::listener::ButtonPress;
use crate::payload::text;

/// Field of the messages with the decision that they are about.
const APPROVAL: &str = "ai.goondan.approval";

/// Selects the colored form of an emoji. Some clients leave it out or add it.
const EMOJI_STYLE: char = '\u{fe0f}';

/// The reaction of an answer.
fn reaction_of(answer: DecisionButton) -> String {
    match answer {
        DecisionButton::Approve => "✅".to_owned(),
        DecisionButton::Deny => "❌".to_owned(),
        DecisionButton::Option(9) => "🔟".to_owned(),
        DecisionButton::Option(number) => {
            format!("{}\u{fe0f}\u{20e3}", u16::from(number) + 1)
        }
    }
}

/// The answer of a reaction.
fn answer_of(key: &str) -> Option<DecisionButton> {
    let key = key.replace(EMOJI_STYLE, "");
    match key.as_str() {
        "✅" => Some(DecisionButton::Approve),
        "❌" => Some(DecisionButton::Deny),
        "🔟" => Some(DecisionButton::Option(9)),
        _ => {
            let digit = key.strip_suffix('\u{20e3}')?;
            let number: u8 = digit.parse().ok()?;
            number.checked_sub(1).map(DecisionButton::Option)
        }
    }
}

pub(super) struct DecisionRoom {
    pub(super) api: Api,
    pub(super) room: String,
}

/// The message that a reaction in this room is about, if it is one of ours for a decision.
pub(super) fn decided_message(event: &Value) -> Option<&str> {
    decision(event)?;
    text(event, "/content/m.relates_to/event_id")
}

fn decision(event: &Value) -> Option<DecisionButton> {
    if text(event, "/type") != Some(REACTION) {
        return None;
    }
    answer_of(text(event, "/content/m.relates_to/key")?)
}

/// The reply to a message of the room, if the event is one.
pub(super) fn to_reply(event: &Value, room: &str) -> Option<ChatReply> {
    let content = event.get("content")?;
    let answered = text(content, "/m.relates_to/m.in_reply_to/event_id")?;
    let is_text = text(event, "/type") == Some(MESSAGE) && text(content, "/msgtype")? == "m.text";
    let user = text(event, "/sender")?.to_owned();
    is_text.then_some(ChatReply {
        place: place_of(room, answered),
        user: user.clone(),
        text: without_fallback(content, text(content, "/body")?).to_owned(),
        to: user,
    })
}

/// The decision of a reaction to `message`, if the account `own` asked for it there.
pub(super) fn to_pressed(
    event: &Value,
    message: &Value,
    (own, room): (&str, &str),
) -> Option<ButtonPress> {
    let answer = decision(event)?;
    if text(message, "/sender") != Some(own) {
        return None;
    }
    let approval = message.get("content")?.get(APPROVAL)?;
    let offered = approval.get("offered").and_then(Value::as_array)?;
    if !offered
        .iter()
        .any(|it| it.as_str() == Some(&answer.to_string()))
    {
        return None;
    }
    let user = text(event, "/sender")?.to_owned();
    Some(ButtonPress {
        press: DecisionPress {
            decision_id: DecisionId::new(text(approval, "/id")?).ok()?,
            answer: DecisionAnswer::Button(answer),
            user: user.clone(),
        },
        place: place_of(room, text(message, "/event_id")?),
        to: user,
    })
}

/// The location of a message.
fn place_of(room: &str, event: &str) -> String {
    format!("{room} {event}")
}

/// A message whose foreign text is in a preformatted block, in which nothing is a mention or a link.
fn written(message: &Message) -> Value {
    let buttons = message.buttons.as_ref().filter(|it| !it.choices.is_empty());
    let hint = buttons.map(|buttons| {
        let words = buttons.offered().map(|(answer, label)| {
            let label = match answer {
                DecisionButton::Approve | DecisionButton::Deny => label.to_lowercase(),
                DecisionButton::Option(_) => label.to_owned(),
            };
            let emoji = reaction_of(answer);
            match answer {
                DecisionButton::Option(_) => format!("{emoji} for `{label}`"),
                DecisionButton::Approve | DecisionButton::Deny => format!("{emoji} to {label}"),
            }
        });
        let words: Vec<String> = words.collect();
        format!("React with {}.", words.join(" or "))
    });
    let head = message.headline("Reply to this message to");
    let plain: Vec<&str> = [head.as_str(), message.body.as_str()]
        .into_iter()
        .chain(hint.as_deref())
        .collect();
    let html = format!(
        "{}<pre><code>{}</code></pre>{}",
        escaped(&head),
        escaped(&message.body),
        escaped(hint.as_deref().unwrap_or_default())
    );
    let content = json!({
        "msgtype": "m.text", "body": plain.join("\n"), "format": "org.matrix.custom.html",
        "formatted_body": html, "m.mentions": {}, AUTOMATIC: true,
    });
    let Some(buttons) = buttons else {
        return content;
    };
    let offered = buttons.offered().map(|(answer, _)| answer);
    let offered: Vec<DecisionButton> = offered.collect();
    let approval = json!({"id": buttons.decision_id, "offered": offered});
    with(content, [(APPROVAL, approval)])
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

fn rejection(error: &ApiError) -> MessageRejection {
    MessageRejection {
        reason: error.to_string(),
        is_final: matches!(error, ApiError::Refused { status, .. } if *status < 500),
        retry_after_ms: match error {
            ApiError::TooMany { retry_after_ms } => Some(*retry_after_ms),
            ApiError::BadToken { .. }
            | ApiError::Refused { .. }
            | ApiError::Unreachable(_)
            | ApiError::Lost(_)
            | ApiError::Strange(_)
            | ApiError::NotTaken(_) => None,
        },
    }
}

impl DecisionRoom {
    async fn send(&self, kind: &str, mark: &str, content: &Value) -> Result<String, ApiError> {
        let transaction = transaction(mark);
        let event = (kind, transaction.as_str());
        let sent = self.api.send_event(&self.room, event, content).await?;
        let id = text(&sent, "/event_id").map(str::to_owned);
        id.ok_or_else(|| ApiError::Strange("a message without an ID".to_owned()))
    }

    /// Adds the reactions, so that people only have to tap them.
    async fn offer(&self, event: &str, buttons: &Buttons) {
        for (answer, _) in buttons.offered() {
            let emoji = reaction_of(answer);
            let relation = json!({"rel_type": "m.annotation", "event_id": event, "key": emoji});
            let content = json!({"m.relates_to": relation});
            let mark = format!("{event} {answer}");
            if let Err(error) = self.send(REACTION, &mark, &content).await {
                tracing::debug!(%error, "failed to add a reaction to an approval");
            }
        }
    }
}

impl Board for DecisionRoom {
    async fn post(&self, message: &Message) -> Result<String, MessageRejection> {
        let buttons = message.buttons.as_ref();
        // The same decision is one message, however often it is posted.
        let mark = match buttons {
            Some(buttons) => format!("approval {}", buttons.decision_id),
            None => uuid::Uuid::now_v7().to_string(),
        };
        let sent = self.send(MESSAGE, &mark, &written(message)).await;
        let event = sent.map_err(|error| rejection(&error))?;
        if let Some(buttons) = buttons {
            self.offer(&event, buttons).await;
        }
        Ok(place_of(&self.room, &event))
    }

    async fn edit(&self, place: &str, message: &Message) -> Result<(), MessageRejection> {
        let (room, event) = place.split_once(' ').unwrap_or_default();
        let new = written(message);
        let relation = json!({"rel_type": "m.replace", "event_id": event});
        let content = with(
            new.clone(),
            [("m.new_content", new), ("m.relates_to", relation)],
        );
        let transaction = transaction(&format!("{event} {}", message.head));
        let edit = (MESSAGE, transaction.as_str());
        let sent = self.api.send_event(room, edit, &content).await;
        sent.map(drop).map_err(|error| rejection(&error))
    }

    async fn tell(&self, to: &str, text: &str) -> Result<(), MessageRejection> {
        let content = json!({"msgtype": NOTICE, "body": format!("{to}: {text}"), AUTOMATIC: true,
            "m.mentions": {"user_ids": [to]}});
        let mark = uuid::Uuid::now_v7().to_string();
        let sent = self.send(MESSAGE, &mark, &content).await;
        sent.map(drop).map_err(|error| rejection(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "@bot:x";

    fn message(may_approve: bool) -> Message {
        Message {
            head: "Tool call a-1 waits.".to_owned(),
            reply: None,
            body: "agent: a\n@room <b> & x".to_owned(),
            buttons: Some(Buttons::of_call("a-1", may_approve)),
        }
    }

    fn posted(may_approve: bool) -> Value {
        json!({"event_id": "$m", "sender": OWN, "type": MESSAGE,
            "content": written(&message(may_approve))})
    }

    fn reaction(key: &str) -> Value {
        json!({"type": REACTION, "sender": "@ada:x", "event_id": "$r",
            "content": {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$m", "key": key}}})
    }

    #[test]
    fn steer_3_agent_text_in_matrix_has_no_markup_and_no_mentions() {
        let content = written(&message(true));
        assert_eq!(content["m.mentions"], json!({}));
        let html = content["formatted_body"].as_str().unwrap();
        assert!(
            html.contains("<pre><code>agent: a\n@room &lt;b&gt; &amp; x</code></pre>"),
            "{html}"
        );
        assert!(html.ends_with("React with ✅ to approve or ❌ to deny."));
        let closed = Message {
            buttons: None,
            ..message(true)
        };
        let content = written(&closed);
        assert_eq!(content.get(APPROVAL), None);
        assert!(!content["body"].as_str().unwrap().contains("React"));
    }

    #[test]
    fn steer_3_only_offered_reactions_to_our_messages_decide() {
        let pressed = |key: &str, message: &Value| {
            to_pressed(&reaction(key), message, (OWN, "!r:x")).map(|pressed| {
                let press = pressed.press;
                assert_eq!(press.decision_id.as_str(), "a-1");
                assert_eq!(
                    (press.user.as_str(), pressed.to.as_str()),
                    ("@ada:x", "@ada:x")
                );
                assert_eq!(pressed.place, "!r:x $m");
                press.answer
            })
        };
        let approve = Some(DecisionAnswer::Button(DecisionButton::Approve));
        let deny = Some(DecisionAnswer::Button(DecisionButton::Deny));
        let all = posted(true);
        assert_eq!(pressed("✅", &all), approve);
        assert_eq!(pressed("✅\u{fe0f}", &all), approve);
        assert_eq!(pressed("❌", &all), deny);
        assert_eq!(pressed("👍", &all), None);
        // A message that shows only a part of the call.
        let part = posted(false);
        assert_eq!(pressed("✅", &part), None);
        assert_eq!(pressed("❌", &part), deny);
        let mut forged = posted(true);
        forged["sender"] = json!("@eve:x");
        assert_eq!(pressed("✅", &forged), None);
        assert_eq!(decided_message(&reaction("❌")), Some("$m"));
        assert_eq!(decided_message(&reaction("👍")), None);
        let said = json!({"type": MESSAGE, "content": {"body": "✅"}});
        assert_eq!(decided_message(&said), None);
    }

    #[test]
    fn need_2_options_and_replies_of_matrix_are_understood() {
        for number in 0..10 {
            let option = DecisionButton::Option(number);
            let key = reaction_of(option);
            assert_eq!(answer_of(&key), Some(option), "{key}");
            assert_eq!(answer_of(&key.replace(EMOJI_STYLE, "")), Some(option));
        }
        assert_eq!(answer_of("0\u{20e3}"), None);
        let said = json!({"type": MESSAGE, "sender": "@ada:x", "event_id": "$a",
            "content": {"msgtype": "m.text", "body": "> <@bot:x> Which?\n\nblue",
                "m.relates_to": {"m.in_reply_to": {"event_id": "$m"}}}});
        let reply = to_reply(&said, "!r:x").unwrap();
        assert_eq!(
            (reply.place.as_str(), reply.text.trim()),
            ("!r:x $m", "blue")
        );
        assert_eq!(reply.user, "@ada:x");
    }
}
