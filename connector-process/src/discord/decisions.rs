//! Decisions that wait for a person, in a Discord channel. Discord sends no replies to messages, so
//! a text is entered in a form, which a button opens.

use std::sync::Arc;
use std::time::Duration;

use goondan_clock::sleep;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionPress};
use goondan_protocol::ids::DecisionId;
use reqwest::Method;
use serde_json::{Value, json};

use super::actions::{Api, DiscordRequest};
use super::{COMPONENT, FORM};
use crate::decisions::{Board, Message, MessageRejection};
use crate::listener::ButtonPress;
use crate::payload::text;

/// Prefix of the ids of our buttons, before the answer and the decision.
const ID_PREFIX: &str = "goondan:";

/// Word of the button that opens the form for a text, and of the form.
const TEXT: &str = "text";

/// Most buttons in one row, and rows below one message.
const ROW_BUTTONS_MAX: usize = 5;

/// Longest label of a button, in characters.
const LABEL_CHARS_MAX: usize = 80;

/// Longest text of a form, in characters.
const TEXT_CHARS_MAX: u64 = 4_000;

/// Styles of buttons.
const SECONDARY: u64 = 2;
const SUCCESS: u64 = 3;
const DANGER: u64 = 4;

/// Pauses before a notice is sent again. Discord does not know the answer to a press that the notice
/// replaces until it has received it.
const NOTICE_PAUSES_MS: [u64; 3] = [250, 1_000, 3_000];

/// Types of components.
const ROW: u64 = 1;
const BUTTON: u64 = 2;
const INPUT: u64 = 4;

/// Type of the answer that opens a form.
const OPEN_FORM: u64 = 9;

/// An interaction with one of our messages.
#[derive(Debug, PartialEq)]
pub(super) enum DecisionInteraction {
    Pressed(ButtonPress),
    /// The answer opens the form for a text.
    Form(Value),
}

/// The interaction with one of our messages in the channel, if it is one.
pub(super) fn to_decision(body: &Value, channel: &str) -> Option<DecisionInteraction> {
    if text(body, "/channel_id") != Some(channel) {
        return None;
    }
    let kind = body.get("type").and_then(Value::as_u64)?;
    let (word, id) = text(body, "/data/custom_id")?
        .strip_prefix(ID_PREFIX)?
        .split_once(':')?;
    let decision_id = DecisionId::new(id).ok()?;
    let answer = match (kind, word) {
        (COMPONENT, TEXT) => return Some(DecisionInteraction::Form(form(&decision_id))),
        (COMPONENT, word) => DecisionAnswer::Button(DecisionButton::of_word(word)?),
        (FORM, TEXT) => {
            let entered = text(body, "/data/components/0/components/0/value");
            let entered = entered.or_else(|| text(body, "/data/components/0/component/value"));
            DecisionAnswer::Text(entered?.to_owned())
        }
        _ => return None,
    };
    let user = text(body, "/member/user/id").or_else(|| text(body, "/user/id"))?;
    let (application, token) = (text(body, "/application_id")?, text(body, "/token")?);
    let message = text(body, "/message/id").unwrap_or_default();
    Some(DecisionInteraction::Pressed(ButtonPress {
        press: DecisionPress {
            decision_id,
            answer,
            user: user.to_owned(),
        },
        place: format!("{channel}:{message}"),
        to: format!("{application}:{token}"),
    }))
}

fn form(decision_id: &DecisionId) -> Value {
    let input = json!({"type": INPUT, "custom_id": TEXT, "style": 2, "label": "Text",
        "required": true, "max_length": TEXT_CHARS_MAX});
    json!({"type": OPEN_FORM, "data": {
        "custom_id": format!("{ID_PREFIX}{TEXT}:{decision_id}"), "title": "Answer",
        "components": [{"type": ROW, "components": [input]}],
    }})
}

/// A message whose foreign text is in a code block, in which nothing is a mention or a link.
fn written(message: &Message) -> Value {
    // A code block ends at three backticks.
    let body = message.body.replace("``", "`\u{200b}`");
    json!({
        "content": message.headline("Press Text… to"),
        "embeds": [{"description": format!("```\n{body}\n```")}],
        "components": rows(message),
        "allowed_mentions": {"parse": []},
    })
}

fn rows(message: &Message) -> Vec<Value> {
    let Some(buttons) = &message.buttons else {
        return Vec::new();
    };
    let button = |word: &str, style: u64, label: &str| {
        let label: String = label.chars().take(LABEL_CHARS_MAX).collect();
        json!({"type": BUTTON, "style": style, "label": label,
            "custom_id": format!("{ID_PREFIX}{word}:{}", buttons.decision_id)})
    };
    let offered = buttons.offered().map(|(answer, label)| {
        let style = match answer {
            DecisionButton::Approve => SUCCESS,
            DecisionButton::Deny => DANGER,
            DecisionButton::Option(_) => SECONDARY,
        };
        button(&answer.to_string(), style, label)
    });
    let mut all: Vec<Value> = offered.collect();
    if message.reply.is_some() {
        all.push(button(TEXT, SECONDARY, "Text…"));
    }
    let rows = all.chunks(ROW_BUTTONS_MAX);
    rows.map(|row| json!({"type": ROW, "components": row}))
        .collect()
}

pub(super) struct Channel {
    pub(super) api: Arc<Api>,
    pub(super) channel: String,
}

impl Board for Channel {
    async fn post(&self, message: &Message) -> Result<String, MessageRejection> {
        let path = ["channels", &self.channel, "messages"];
        let request = DiscordRequest::new(Method::POST, &path).with_value(written(message));
        let posted = self
            .api
            .ask(request, false)
            .await
            .map_err(MessageRejection::from)?;
        let id = text(&posted, "/id").unwrap_or_default();
        Ok(format!("{}:{id}", self.channel))
    }

    async fn edit(&self, place: &str, message: &Message) -> Result<(), MessageRejection> {
        let (channel, id) = place.split_once(':').unwrap_or_default();
        let path = ["channels", channel, "messages", id];
        let request = DiscordRequest::new(Method::PATCH, &path).with_value(written(message));
        let edited = self.api.ask(request, true).await;
        edited.map(drop).map_err(MessageRejection::from)
    }

    async fn tell(&self, to: &str, said: &str) -> Result<(), MessageRejection> {
        let (application, token) = to.split_once(':').unwrap_or_default();
        let path = ["webhooks", application, token, "messages", "@original"];
        let body = json!({"content": said, "allowed_mentions": {"parse": []}});
        let mut pauses_ms = NOTICE_PAUSES_MS.into_iter();
        loop {
            let request = DiscordRequest::new(Method::PATCH, &path).with_value(body.clone());
            let reply = self.api.ask(request.of_interaction(), true).await;
            let Err(error) = reply else {
                return Ok(());
            };
            let pause_ms = pauses_ms.next();
            match pause_ms.filter(|_| error.code == CallErrorCode::NotFound) {
                Some(pause_ms) => sleep(Duration::from_millis(pause_ms)).await,
                None => {
                    // An error of the service may quote the path.
                    let message = error.message.replace(token, "…");
                    return Err(CallError { message, ..error }.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::Buttons;

    fn pressed(kind: u64, data: &Value) -> Option<DecisionInteraction> {
        let body = json!({"type": kind, "channel_id": "5", "application_id": "A", "token": "T",
            "member": {"user": {"id": "U1"}}, "message": {"id": "9"}, "data": data});
        to_decision(&body, "5")
    }

    #[test]
    fn need_2_discord_buttons_carry_their_decision_and_answer() {
        let message = Message {
            head: "Tool call a-1 waits for a person.".to_owned(),
            reply: Some("answer".to_owned()),
            body: "``` @everyone".to_owned(),
            buttons: Some(Buttons::of_call("a-1", true)),
        };
        let content = written(&message);
        let description = content["embeds"][0]["description"].as_str().unwrap();
        assert_eq!(description.matches("```").count(), 2, "{description}");
        assert_eq!(content["allowed_mentions"], json!({"parse": []}));
        let row = content["components"][0]["components"].as_array().unwrap();
        let ids: Vec<&str> = row
            .iter()
            .map(|it| it["custom_id"].as_str().unwrap())
            .collect();
        assert_eq!(
            ids,
            [
                "goondan:approve:a-1",
                "goondan:deny:a-1",
                "goondan:text:a-1"
            ]
        );
        let Some(DecisionInteraction::Pressed(press)) =
            pressed(COMPONENT, &json!({"custom_id": ids[1]}))
        else {
            panic!("no press");
        };
        let deny = DecisionAnswer::Button(DecisionButton::Deny);
        assert_eq!(
            (press.press.answer, press.press.user.as_str()),
            (deny, "U1")
        );
        assert_eq!((press.place.as_str(), press.to.as_str()), ("5:9", "A:T"));
    }

    #[test]
    fn need_2_a_discord_button_opens_a_form_for_a_text() {
        let opened = pressed(COMPONENT, &json!({"custom_id": "goondan:text:t-1"}));
        let Some(DecisionInteraction::Form(form)) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(form["data"]["custom_id"], "goondan:text:t-1");
        let data = json!({"custom_id": "goondan:text:t-1",
            "components": [{"components": [{"value": "blue"}]}]});
        let Some(DecisionInteraction::Pressed(press)) = pressed(FORM, &data) else {
            panic!("no answer");
        };
        assert_eq!(press.press.answer, DecisionAnswer::Text("blue".to_owned()));
        // Buttons of agents, and of other channels, are events.
        assert_eq!(pressed(COMPONENT, &json!({"custom_id": "ok"})), None);
        let elsewhere = json!({"type": COMPONENT, "channel_id": "6",
            "data": {"custom_id": "goondan:deny:a-1"}});
        assert_eq!(to_decision(&elsewhere, "5"), None);
    }
}
