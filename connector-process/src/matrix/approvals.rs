//! Tool calls that wait for a person, in a room. Matrix has no buttons: people react with an emoji.
//!
//! The message itself says which call it is about, and no other account can change it.

use goondan_protocol::approval::{ApprovalDecision, ApprovalPress};
use goondan_protocol::ids::ApprovalId;
use serde_json::{Value, json};

use super::actions::transaction;
use super::api::{Api, ApiError};
use super::events::{AUTOMATIC, MESSAGE, NOTICE, REACTION};
use crate::approvals::{Board, Buttons, Message, MessageRejection, with};
use crate::listener::ButtonPress;
use crate::payload::text;

/// Field of the messages with the call that they are about.
const APPROVAL: &str = "ai.goondan.approval";

/// Reactions of people, by decision.
const REACTIONS: [(&str, ApprovalDecision); 2] = [
    ("✅", ApprovalDecision::Approved),
    ("❌", ApprovalDecision::Denied),
];

/// Selects the colored form of an emoji. Some clients add it.
const EMOJI_STYLE: char = '\u{fe0f}';

pub(super) struct ApprovalRoom {
    pub(super) api: Api,
    pub(super) room: String,
}

/// The message that a reaction in this room is about, if it is one of ours for a decision.
pub(super) fn decided_message(event: &Value) -> Option<&str> {
    decision(event)?;
    text(event, "/content/m.relates_to/event_id")
}

fn decision(event: &Value) -> Option<ApprovalDecision> {
    if text(event, "/type") != Some(REACTION) {
        return None;
    }
    let key = text(event, "/content/m.relates_to/key")?;
    let key = key.trim_end_matches(EMOJI_STYLE);
    let mut reactions = REACTIONS.iter();
    reactions.find_map(|(emoji, decision)| (*emoji == key).then_some(*decision))
}

/// The decision of a reaction to `message`, if the account `own` asked for it there.
pub(super) fn to_pressed(
    event: &Value,
    message: &Value,
    (own, room): (&str, &str),
) -> Option<ButtonPress> {
    let decision = decision(event)?;
    if text(message, "/sender") != Some(own) {
        return None;
    }
    let approval = message.get("content")?.get(APPROVAL)?;
    let offered = approval.get("offered").and_then(Value::as_array)?;
    if !offered
        .iter()
        .any(|it| it.as_str() == Some(decision.as_str()))
    {
        return None;
    }
    let user = text(event, "/sender")?.to_owned();
    Some(ButtonPress {
        press: ApprovalPress {
            approval_id: ApprovalId::new(text(approval, "/id")?).ok()?,
            decision,
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

/// Reactions that a message offers, with their decisions.
fn offered(buttons: &Buttons) -> Vec<(&'static str, ApprovalDecision)> {
    let decisions: Vec<ApprovalDecision> = buttons.offered().map(|(it, _)| it).collect();
    let reactions = REACTIONS.iter().copied();
    reactions
        .filter(|(_, decision)| decisions.contains(decision))
        .collect()
}

/// A message whose foreign text is in a preformatted block, in which nothing is a mention or a link.
fn written(message: &Message) -> Value {
    let offered = message.buttons.as_ref().map(|it| (it, offered(it)));
    let hint = offered.as_ref().map(|(_, offered)| {
        let words = offered.iter().map(|(emoji, decision)| {
            let verb = match decision {
                ApprovalDecision::Approved => "approve",
                ApprovalDecision::Denied => "deny",
            };
            format!("{emoji} to {verb}")
        });
        let words: Vec<String> = words.collect();
        format!("React with {}.", words.join(" or "))
    });
    let plain: Vec<&str> = [message.head.as_str(), message.body.as_str()]
        .into_iter()
        .chain(hint.as_deref())
        .collect();
    let html = format!(
        "{}<pre><code>{}</code></pre>{}",
        escaped(&message.head),
        escaped(&message.body),
        hint.as_deref().unwrap_or_default()
    );
    let content = json!({
        "msgtype": "m.text", "body": plain.join("\n"), "format": "org.matrix.custom.html",
        "formatted_body": html, "m.mentions": {}, AUTOMATIC: true,
    });
    let Some((buttons, offered)) = offered else {
        return content;
    };
    let offered: Vec<&str> = offered.iter().map(|(_, it)| it.as_str()).collect();
    let approval = json!({"id": buttons.approval_id, "offered": offered});
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

impl ApprovalRoom {
    async fn send(&self, kind: &str, mark: &str, content: &Value) -> Result<String, ApiError> {
        let transaction = transaction(mark);
        let event = (kind, transaction.as_str());
        let sent = self.api.send_event(&self.room, event, content).await?;
        let id = text(&sent, "/event_id").map(str::to_owned);
        id.ok_or_else(|| ApiError::Strange("a message without an ID".to_owned()))
    }

    /// Adds the reactions, so that people only have to tap them.
    async fn offer(&self, event: &str, buttons: &Buttons) {
        for (emoji, decision) in offered(buttons) {
            let relation = json!({"rel_type": "m.annotation", "event_id": event, "key": emoji});
            let content = json!({"m.relates_to": relation});
            let mark = format!("{event} {}", decision.as_str());
            if let Err(error) = self.send(REACTION, &mark, &content).await {
                tracing::debug!(%error, "failed to add a reaction to an approval");
            }
        }
    }
}

impl Board for ApprovalRoom {
    async fn post(&self, message: &Message) -> Result<String, MessageRejection> {
        let buttons = message.buttons.as_ref();
        // The same call is one message, however often it is posted.
        let mark = match buttons {
            Some(buttons) => format!("approval {}", buttons.approval_id),
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
            body: "agent: a\n@room <b> & x".to_owned(),
            buttons: Some(Buttons {
                approval_id: "a-1".parse().unwrap(),
                may_approve,
            }),
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
                assert_eq!(press.approval_id.as_str(), "a-1");
                assert_eq!(
                    (press.user.as_str(), pressed.to.as_str()),
                    ("@ada:x", "@ada:x")
                );
                assert_eq!(pressed.place, "!r:x $m");
                press.decision
            })
        };
        let all = posted(true);
        assert_eq!(pressed("✅", &all), Some(ApprovalDecision::Approved));
        assert_eq!(
            pressed("✅\u{fe0f}", &all),
            Some(ApprovalDecision::Approved)
        );
        assert_eq!(pressed("❌", &all), Some(ApprovalDecision::Denied));
        assert_eq!(pressed("👍", &all), None);
        // A message that shows only a part of the call.
        let part = posted(false);
        assert_eq!(pressed("✅", &part), None);
        assert_eq!(pressed("❌", &part), Some(ApprovalDecision::Denied));
        let mut forged = posted(true);
        forged["sender"] = json!("@eve:x");
        assert_eq!(pressed("✅", &forged), None);
        assert_eq!(decided_message(&reaction("❌")), Some("$m"));
        assert_eq!(decided_message(&reaction("👍")), None);
        let said = json!({"type": MESSAGE, "content": {"body": "✅"}});
        assert_eq!(decided_message(&said), None);
    }
}
