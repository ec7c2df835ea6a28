//! The tool `telegram`: messages of a bot.

use std::sync::Arc;

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::service::{TELEGRAM_TEXT_UNITS_MAX, Telegram};
use serde::Deserialize;
use serde_json::{Value, json};

use super::split::{Measure, split};
use super::{ConnectionRoute, Connections, Offer, export, not_too_many};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// The exports of the tool.
pub(crate) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let connections: Connections = Arc::from(connections);
    vec![
        export(
            Offer {
                name: "send",
                description: "Writes a message to a Telegram chat and returns its id. A text that is too long for one message becomes several, unless it has a `parseMode`.",
                properties: send_properties(),
                required: &["text"],
                is_idempotent: false,
            },
            &connections,
            send,
        ),
        export(
            Offer {
                name: "edit",
                description: "Gives a message that `send` wrote another text.",
                properties: json!({
                    "message": own_schema(), "text": text_schema(),
                    "chat": chat_schema(), "parseMode": parse_mode_schema(),
                }),
                required: &["message", "text"],
                is_idempotent: true,
            },
            &connections,
            edit,
        ),
        export(
            Offer {
                name: "delete",
                description: "Takes a message back that `send` wrote.",
                properties: json!({"message": own_schema(), "chat": chat_schema()}),
                required: &["message"],
                is_idempotent: false,
            },
            &connections,
            delete,
        ),
        export(
            Offer {
                name: "react",
                description: "Puts an emoji under a message.",
                properties: json!({
                    "emoji": {"type": "string", "description": "One of Telegram's reactions, such as 👍; empty to take it away"},
                    "message": any_schema(), "chat": chat_schema(),
                }),
                required: &["emoji"],
                is_idempotent: true,
            },
            &connections,
            react,
        ),
        export(
            Offer {
                name: "typing",
                description: "Shows for five seconds that the bot is writing.",
                properties: json!({"chat": chat_schema(), "thread": thread_schema()}),
                required: &[],
                is_idempotent: true,
            },
            &connections,
            typing,
        ),
    ]
}

/// The arguments of `send`.
fn send_properties() -> Value {
    json!({
        "text": text_schema(), "chat": chat_schema(), "parseMode": parse_mode_schema(),
        "replyTo": {"type": "integer", "description": "The id of the message it is shown as an answer to"},
        "quote": {"type": "boolean", "description": "Whether it is shown as an answer to the message this turn answers; false if not given"},
        "thread": thread_schema(),
        "silent": {"type": "boolean", "description": "Whether nobody is notified; false if not given"},
    })
}

fn chat_schema() -> Value {
    json!({
        "type": ["string", "integer"],
        "description": "The chat's id, or `@name` of a public one. If not given, the chat this turn's message came from",
    })
}

fn text_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "What is written",
    })
}

fn parse_mode_schema() -> Value {
    json!({
        "enum": ["MarkdownV2", "HTML", "Markdown"],
        "description": "How the text is marked up. If not given, it is shown to the letter",
    })
}

fn own_schema() -> Value {
    json!({"type": "integer", "description": "The message's id, as `send` returned it"})
}

fn any_schema() -> Value {
    json!({
        "type": "integer",
        "description": "The message's id. If not given, the message this turn answers",
    })
}

fn thread_schema() -> Value {
    json!({
        "type": "integer",
        "description": "The topic of a forum. If not given, the one this turn's message came from",
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    chat: Option<Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    parse_mode: Option<String>,
    #[serde(default)]
    message: Option<i64>,
    #[serde(default)]
    reply_to: Option<i64>,
    #[serde(default)]
    quote: bool,
    #[serde(default)]
    thread: Option<i64>,
    #[serde(default)]
    silent: bool,
    #[serde(default)]
    emoji: String,
}

/// The chat, the topic in it, and the message that the turn answers, if it is of that chat.
struct Place {
    chat: String,
    thread: Option<i64>,
    answered: Option<i64>,
}

impl Place {
    fn of(route: &ConnectionRoute, args: &Args) -> Result<Self, ToolFault> {
        let (chat, is_home) = route.place("chat", args.chat.as_ref(), "chatId")?;
        let fact = |name| route.fact(name).filter(|_| is_home).and_then(Value::as_i64);
        Ok(Self {
            thread: args.thread.or_else(|| fact("threadId")),
            answered: fact("messageId"),
            chat,
        })
    }
}

async fn send(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let place = Place::of(&route, &args)?;
    let parts = if args.parse_mode.is_none() {
        not_too_many(split(
            &args.text,
            TELEGRAM_TEXT_UNITS_MAX,
            Measure::Utf16,
            false,
        ))?
    } else {
        check_length(&args.text)?;
        vec![args.text.clone()]
    };
    let quoted = place.answered.filter(|_| args.quote);
    let sent = route
        .run_parts(&parts, false, |number, part| Telegram::Send {
            chat: place.chat.clone(),
            text: part.to_owned(),
            parse_mode: args.parse_mode.clone(),
            reply_to: args.reply_to.or(quoted).filter(|_| number == 0),
            thread: place.thread,
            silent: args.silent,
        })
        .await?;
    Ok(json!({"chat": place.chat, "messages": sent}).to_string())
}

/// Mark-up cannot be cut anywhere.
fn check_length(text: &str) -> Result<(), ToolFault> {
    let units = Measure::Utf16.of(text);
    if units <= TELEGRAM_TEXT_UNITS_MAX {
        return Ok(());
    }
    Err(ToolFault::new(
        "E_TOO_LARGE",
        format!(
            "the text has {units} characters, a message of Telegram at most {TELEGRAM_TEXT_UNITS_MAX}; \
             send it in parts, each whole in itself"
        ),
    ))
}

async fn edit(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let place = Place::of(&route, &args)?;
    check_length(&args.text)?;
    let errand = Telegram::Edit {
        chat: place.chat,
        message: args.message.unwrap_or_default(),
        text: args.text,
        parse_mode: args.parse_mode,
    };
    run(&route, errand, "edited").await
}

async fn delete(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let place = Place::of(&route, &args)?;
    let errand = Telegram::Delete {
        chat: place.chat,
        message: args.message.unwrap_or_default(),
    };
    run(&route, errand, "deleted").await
}

async fn react(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let place = Place::of(&route, &args)?;
    let none = || ToolFault::new("E_INVALID_REQUEST", "say which `message`");
    let errand = Telegram::React {
        chat: place.chat,
        message: args.message.or(place.answered).ok_or_else(none)?,
        emoji: Some(args.emoji).filter(|emoji| !emoji.is_empty()),
    };
    run(&route, errand, "done").await
}

async fn typing(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let place = Place::of(&route, &args)?;
    let errand = Telegram::Typing {
        chat: place.chat,
        thread: place.thread,
    };
    run(&route, errand, "shown").await
}

async fn run(route: &ConnectionRoute, errand: Telegram, done: &str) -> Result<String, ToolFault> {
    let is_repeatable = errand.is_repeatable();
    route.run(&errand, is_repeatable).await?;
    Ok(done.to_owned())
}
